// A session over any bytes either says what is wrong with them or runs. For libFuzzer: https://llvm.org/docs/LibFuzzer.html
//
// A model whose inputs are all initializers too, as those of make_corpus.py are, is also run. An error with the code
// BACKPLANE_INTERNAL, or without a text, is a defect like a crash.
#include <cstdio>
#include <cstdlib>

#include "backplane/backplane.hpp"
#include "tests/fuzz/model_mutator.hpp"

namespace backplane::fuzz {
namespace {

/// Above any seed, and far below what would make one case slow.
constexpr const char* kMemoryLimit = "64MiB";
constexpr const char* kTimeLimitMs = "1000";
constexpr int kMostChanges = 4;

const Environment& environment() {
  static const Environment made = [] {
    Options options;
    options.set("environment.plugin_path", BACKPLANE_TEST_PLUGIN_DIR);
    options.set("environment.threads", "1");
    options.set("environment.log_level", "off");
    return Environment(options);
  }();
  return made;
}

void load_and_run(const std::uint8_t* data, std::size_t size) {
  Options options;
  options.set("providers", "cpu");
  options.set("memory_limit", kMemoryLimit);
  const Session session(environment(), data, size, options);
  (void)session.explain();
  if (!session.inputs().empty()) return;  // has no initializers of those names
  RunOptions run;
  run.set("timeout_ms", kTimeLimitMs);
  std::vector<std::string> names;
  for (const ValueInfo& output : session.outputs()) names.push_back(output.name);
  (void)session.run({}, names, run);
}

}  // namespace
}  // namespace backplane::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    backplane::fuzz::load_and_run(data, size);
  } catch (const backplane::Error& error) {
    if (error.code() == BACKPLANE_INTERNAL || *error.what() == '\0') {
      std::fprintf(stderr, "no error for a user: code %d, '%s'\n", static_cast<int>(error.code()),
                   error.what());
      std::abort();
    }
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  onnx::ModelProto model;
  // Some bytes of what cannot be read, and now and then of what can.
  if (seed % 16 == 0 || !model.ParseFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, max_size);
  backplane::fuzz::ModelMutator mutator(model, seed);
  for (int i = static_cast<int>(seed % backplane::fuzz::kMostChanges); i >= 0; --i)
    mutator.change();
  const std::string changed = model.SerializeAsString();
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  changed.copy(reinterpret_cast<char*>(data), changed.size());
  return changed.size();
}

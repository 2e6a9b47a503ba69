// backplane.tests::Fault: y = x, after doing what a broken kernel does. For the tests of the program.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "backplane/plugin.hpp"

namespace {

namespace sdk = backplane::sdk;
using sdk::DataType;

constexpr const char* kDomain = "backplane.tests";

/// What `compute` does first.
enum class Fault { None, Crash, CrashInLoop, Abort, Exit, Hang, Fail, Allocate };

Fault fault_of(const sdk::Node& node) {
  const std::string kind = node.get_string("kind", "none");
  if (kind == "none") return Fault::None;
  if (kind == "crash") return Fault::Crash;
  if (kind == "crash_in_loop") return Fault::CrashInLoop;
  if (kind == "abort") return Fault::Abort;
  if (kind == "exit") return Fault::Exit;
  if (kind == "hang") return Fault::Hang;
  if (kind == "fail") return Fault::Fail;
  if (kind == "allocate") return Fault::Allocate;
  sdk::invalid("Fault '", node.name(), "': kind '", kind, "' is not known");
}

sdk::OpSchema schema() {
  return sdk::OpSchema(kDomain, "Fault", 1)
      .doc("A copy of x, and a fault.")
      .type_param("T", {DataType::Float})
      .input("x", "T")
      .output("y", "T")
      .attribute("kind", BP_ATTRIBUTE_STRING, false,
                 "none, crash, crash_in_loop, abort, exit, hang, fail or allocate")
      .infer([](sdk::InferContext& ctx) { ctx.set_output_like(0, ctx.node().input(0)); });
}

/// Allocations of the heap in one run of kind "allocate".
constexpr int kAllocations = 3;

class FaultKernel {
 public:
  struct Prepared {
    Fault fault;
    void compute(const sdk::ComputeContext& ctx) const;
  };

  FaultKernel(const sdk::CreateContext&, const sdk::Node& node) : fault_(fault_of(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const sdk::Dims dims(x.dims().begin(), x.dims().end());
    ctx.set_output(0, x.type(), dims);
    return {fault_};
  }

 private:
  Fault fault_;
};

/// On another thread than the caller's, which waits for it.
void crash_on_a_worker(const sdk::Threads& threads) {
  threads.parallel_for(2, 1, [](std::uint64_t, std::uint64_t, std::uint32_t worker) {
    if (worker == 0) return std::this_thread::sleep_for(std::chrono::minutes(1));
    volatile int* volatile nowhere = nullptr;
    *nowhere = 1;
  });
}

void FaultKernel::Prepared::compute(const sdk::ComputeContext& ctx) const {
  switch (fault) {
    case Fault::None:
      break;
    case Fault::Crash:
      // The default action: a sanitizer's handler would make it an ordinary exit.
      std::signal(SIGSEGV, SIG_DFL);
      std::raise(SIGSEGV);
      break;
    case Fault::CrashInLoop:
      crash_on_a_worker(ctx.threads());
      break;
    case Fault::Abort:
      std::abort();
    case Fault::Exit:
      std::_Exit(7);
    case Fault::Hang:
      std::this_thread::sleep_for(std::chrono::hours(1));
      break;
    case Fault::Fail:
      sdk::failed("Fault was told to fail");
    case Fault::Allocate:
      for (int i = 0; i < kAllocations; ++i) {
        void* volatile block = std::malloc(16);
        std::free(block);
      }
      break;
  }
  std::memcpy(ctx.output(0).mutable_data<float>(), ctx.input(0).data<float>(),
              static_cast<std::size_t>(ctx.output(0).size()) * sizeof(float));
}

sdk::KernelList host_kernels() {
  return {sdk::op("Fault", kDomain)
              .name("fault:float")
              .types("T", {DataType::Float})
              .kernel<FaultKernel>()};
}

}  // namespace

BP_PLUGIN("cli_faults", "1.0.0", [](sdk::Plugin& plugin) {
  plugin.schema(schema());
  plugin.kernels_for("cpu", host_kernels);
});

#include "tests/ops/runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "backplane/backplane.h"
#include "tests/ops/model_writer.hpp"
#include "tests/reference/reference.hpp"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace backplane::ops_test {
namespace {

using reference::Arrays;
using reference::Call;

std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(dims[i]);
  return text + "]";
}

/// How far a result may be from `want`.
double allowed(ElementType type, double want, const Tolerance& tolerance) {
  using reference::epsilon;
  const double unit = epsilon(type == ElementType::Double ? type : ElementType::Float);
  double limit = (tolerance.absolute + tolerance.relative * std::abs(want)) * unit;
  if (reference::bits(type) < 32) {
    limit += epsilon(type) * std::abs(want) + reference::smallest(type);
  }
  return limit;
}

bool is_right(ElementType type, double got, double want, const Tolerance& tolerance) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  if (got == want || got == reference::round_to(type, want)) return true;
  if (std::isinf(got) || std::isinf(want)) return false;
  return std::abs(got - want) <= allowed(type, want, tolerance);
}

std::string kind_difference(const Tensor& got, ElementType type, const Dims& dims) {
  if (got.type != type) {
    return "the type is " + std::string(reference::name(got.type)) + ", wanted " +
           std::string(reference::name(type));
  }
  if (got.dims != dims)
    return "the dims are " + dims_text(got.dims) + ", wanted " + dims_text(dims);
  return "";
}

/// The first wrong elements, their number, and the greatest difference.
std::string element_difference(const Array& got, const Array& want, const Tolerance& tolerance) {
  const bool exact = !reference::is_float(want.type);
  const double steps = tolerance.absolute * reference::epsilon(ElementType::Float);
  std::ostringstream text;
  text.precision(9);
  std::int64_t wrong = 0;
  double greatest = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double a = got.values[i];
    const double b = want.values[i];
    // Integers differ only where a case allows whole steps.
    const bool right = exact ? std::abs(a - b) <= steps : is_right(want.type, a, b, tolerance);
    if (right) continue;
    if (wrong < 3)
      text << (wrong == 0 ? "" : "; ") << "at " << i << " got " << a << ", wanted " << b;
    greatest = std::fmax(greatest, std::abs(a - b));
    ++wrong;
  }
  if (wrong == 0) return "";
  text << "; " << wrong << " of " << want.size() << " wrong, by at most " << greatest;
  return text.str();
}

Model make_model(const GraphCase& graph, Form form, const Arrays& expected) {
  Model model;
  model.opsets[""] = graph.opset;
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty()) model.opsets[node.domain] = node.opset;
    model.nodes.push_back(node);
  }
  for (const auto& [name, tensor] : graph.feeds) {
    Dims dims = tensor.dims;
    if (form == Form::Open) std::fill(dims.begin(), dims.end(), -1);
    model.inputs.push_back({name, tensor.type, dims});
  }
  for (const auto& [name, tensor] : graph.constants) {
    if (form == Form::Open) {  // their dims stay: they often say what rank an output has
      model.inputs.push_back({name, tensor.type, tensor.dims});
    } else {
      model.initializers.emplace_back(name, tensor);
    }
  }
  // Only their rank is written down: the dims are for the library to find out.
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    model.outputs.push_back(
        {graph.outputs[i], expected[i].type, Dims(expected[i].dims.size(), -1)});
  }
  return model;
}

std::string attribute_text(const reference::AttributeValue& value) {
  std::ostringstream out;
  const auto list = [&](const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i) out << (i == 0 ? "[" : ",") << values[i];
    out << (values.empty() ? "[]" : "]");
  };
  if (const auto* number = std::get_if<std::int64_t>(&value)) out << *number;
  if (const auto* number = std::get_if<float>(&value)) out << *number;
  if (const auto* word = std::get_if<std::string>(&value)) out << *word;
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value)) list(*numbers);
  if (const auto* numbers = std::get_if<std::vector<float>>(&value)) list(*numbers);
  if (const auto* words = std::get_if<std::vector<std::string>>(&value)) list(*words);
  if (const auto* array = std::get_if<Array>(&value)) out << describe(to_tensor(*array));
  return out.str();
}

std::string judge(const std::vector<Tensor>& results, const GraphCase& graph,
                  const Arrays& expected) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string wrong = graph.expected.empty()
                                  ? difference(results[i], expected[i], graph.tolerance)
                                  : difference(results[i], graph.expected[i], graph.tolerance);
    if (!wrong.empty()) return "output " + graph.outputs[i] + ": " + wrong;
  }
  return "";
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

NamedTensors feeds_of(const GraphCase& graph, Form form) {
  NamedTensors feeds = graph.feeds;
  if (form == Form::Open) feeds.insert(feeds.end(), graph.constants.begin(), graph.constants.end());
  return feeds;
}

/// Sets the option that BACKPLANE_TEST_SET=provider.NAME.KEY=VALUE asks for, of targets of that provider.
void set_asked_option(std::vector<Target>& targets) {
  const char* const text = std::getenv("BACKPLANE_TEST_SET");
  if (text == nullptr) return;
  const std::string option(text);
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos)
    throw std::runtime_error("BACKPLANE_TEST_SET is '" + option + "', not KEY=VALUE");
  for (Target& target : targets) {
    if (option.starts_with("provider." + target.provider + "."))
      target.options.emplace_back(option.substr(0, equals), option.substr(equals + 1));
  }
}

bool has_instruction_set(const std::string& name) {
#if defined(__x86_64__)
  if (name == "amx") {
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    std::ifstream processors("/proc/cpuinfo");
    std::stringstream text;
    text << processors.rdbuf();
    return text.str().find(" amx_int8") != std::string::npos &&
           text.str().find(" avx512_bf16") != std::string::npos &&
           syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  }
  if (name == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return name == "baseline";
}

}  // namespace

bool is_full() {
  const char* const text = std::getenv("BACKPLANE_TEST_FULL");
  return text != nullptr && std::string(text) == "1";
}

std::vector<Target> find_targets() {
  std::vector<Target> targets;
  for (const std::string& provider : loaded_providers()) {
#ifdef BACKPLANE_SANITIZED_THREAD
    if (provider == "opencl") continue;  // it does not see what the driver's threads and kernels do
#endif
    if (provider != "cpu") {
      // Where most cases cost a run of the device's compiler, all of them would take minutes.
      const bool has_compiler =
          provider == "opencl" || provider == "cuda" || provider == "cuda_stand_in";
      constexpr int kSweepShare = 40, kRowShare = 6;
      targets.push_back({provider, provider});
      if (has_compiler) {
        targets.back().sweep_share = kSweepShare;
        targets.back().row_share = kRowShare;
      }
      if (provider == "opencl") {
        // PoCL has a cache of its own, and compiles a second time for who keeps what it made.
        targets.back().options.emplace_back("provider.opencl.cache_dir", "off");
        targets.push_back(targets.back());
        targets.back().name = "opencl_out_of_order";
        targets.back().sweep_share *= 3;  // the same kernels, in another kind of queue
        targets.back().row_share *= 3;
        targets.back().options.emplace_back("provider.opencl.queue", "out_of_order");
      }
      continue;
    }
    const bool has_tiles = has_instruction_set("amx");
    for (const char* isa : {"amx", "avx512", "avx2", "baseline"}) {
      if (!has_instruction_set(isa)) continue;
      // The same but for products of bytes and bfloat16, and those of AVX-512 are seen on most machines.
      if (has_tiles && !is_full() && std::string(isa) == "avx512") continue;
      // The plain target keeps 16-bit types as they are: those kernels are to be right, too.
      const bool widens = std::string(isa) != "baseline";
      targets.push_back({std::string("cpu_") + isa,
                         provider,
                         {{"provider.cpu.isa", isa}, {"widening", widens ? "true" : "false"}},
                         true});
    }
  }
  set_asked_option(targets);
  return targets;
}

std::vector<Target> compiling_targets() {
  std::vector<Target> found;
  for (const Target& target : find_targets()) {
    if (target.provider == "opencl" || target.provider == "cuda_stand_in") found.push_back(target);
  }
  return found;
}

std::vector<Target> form_targets() {
  std::vector<Target> targets;
  const std::vector<Target> all = compiling_targets();
  const bool has_others = std::any_of(
      all.begin(), all.end(), [](const Target& target) { return target.provider != "opencl"; });
  for (const Target& target : all) {
    if (target.name == "opencl_out_of_order") continue;       // the same kernels
    if (target.provider == "opencl" && has_others) continue;  // another test's
    targets.push_back(target);
    if (target.provider != "opencl") continue;
    targets.push_back(target);
    targets.back().name += kByGroups;
    targets.back().options.emplace_back("provider.opencl.tiles", "local");
  }
  return targets;
}

Arrays expected_of(const GraphCase& graph) {
  if (!graph.expected.empty()) {
    Arrays arrays;
    for (const Tensor& tensor : graph.expected) arrays.push_back(to_array(tensor));
    return arrays;
  }
  std::map<std::string, Array> values;
  for (const auto& [name, tensor] : graph.constants) values[name] = to_array(tensor);
  for (const auto& [name, tensor] : graph.feeds) values[name] = to_array(tensor);
  for (Node node : graph.nodes) {
    if (node.domain.empty()) node.opset = graph.opset;
    Call call{node, {}, node.outputs.size()};
    for (const std::string& input : node.inputs) {
      call.inputs.push_back(input.empty() ? nullptr : &values.at(input));
    }
    Arrays results = evaluate(call);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = results.at(i);
  }
  Arrays arrays;
  for (const std::string& output : graph.outputs) arrays.push_back(values.at(output));
  return arrays;
}

std::string difference(const Tensor& got, const Array& want, const Tolerance& tolerance) {
  std::string kind = kind_difference(got, want.type, want.dims);
  return kind.empty() ? element_difference(to_array(got), want, tolerance) : kind;
}

std::string difference(const Tensor& got, const Tensor& want, const Tolerance& tolerance) {
  std::string kind = kind_difference(got, want.type, want.dims);
  if (!kind.empty()) return kind;
  if (got.bytes == want.bytes && got.strings == want.strings) return "";
  const std::string wrong = element_difference(to_array(got), to_array(want), tolerance);
  const bool exact = !reference::is_float(want.type);
  return wrong.empty() && exact ? "got " + describe(got) + ", wanted " + describe(want) : wrong;
}

std::string model_of(const GraphCase& graph, Form form) {
  return write_model(make_model(graph, form, expected_of(graph)));
}

void save_case(const GraphCase& graph, Form form, const std::string& folder) {
  const Arrays expected = expected_of(graph);
  const std::filesystem::path data = std::filesystem::path(folder) / "test_data_set_0";
  std::filesystem::create_directories(data);
  write_file(data.parent_path() / "model.onnx", write_model(make_model(graph, form, expected)));
  const NamedTensors feeds = feeds_of(graph, form);
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const std::string file = "input_" + std::to_string(i) + ".pb";
    write_file(data / file, write_tensor(feeds[i].second, feeds[i].first));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string file = "output_" + std::to_string(i) + ".pb";
    const Tensor tensor = graph.expected.empty() ? to_tensor(expected[i]) : graph.expected[i];
    write_file(data / file, write_tensor(tensor, graph.outputs[i]));
  }
}

std::string describe(const GraphCase& graph) {
  std::ostringstream text;
  for (const Node& node : graph.nodes) {
    text << node.op_type << '-' << (node.domain.empty() ? graph.opset : node.opset) << " {";
    for (std::size_t i = 0; i < node.attributes.size(); ++i) {
      text << (i == 0 ? "" : ", ") << node.attributes[i].name << '='
           << attribute_text(node.attributes[i].value);
    }
    text << "} ";
  }
  for (const auto& [name, tensor] : graph.feeds) text << "\n  " << name << ' ' << describe(tensor);
  for (const auto& [name, tensor] : graph.constants) {
    text << "\n  " << name << " constant " << describe(tensor);
  }
  return text.str();
}

Outcome run_case(const GraphCase& graph, const Arrays& expected, const Target& target, Form form,
                 const std::string& optimization) {
  Options options = target.options;
  options.insert(
      options.end(),
      {{"providers", target.provider}, {"fallback", "forbid"}, {"optimization", optimization}});
  const NamedTensors feeds = feeds_of(graph, form);
  const std::string form_text = form == Form::Open ? "open dims, everything fed: " : "fixed dims: ";
  try {
    Session session(write_model(make_model(graph, form, expected)), options);
    for (const char* run : {"", "second run: "}) {
      const std::vector<Tensor> results = session.run(feeds, graph.outputs);
      if (!graph.refusal.empty()) break;
      const std::string wrong = judge(results, graph, expected);
      if (!wrong.empty())
        return {Outcome::Kind::Failed, std::string(form_text).append(run).append(wrong)};
    }
    if (!graph.refusal.empty())
      return {Outcome::Kind::Failed, form_text + "it ran, but should be refused"};
  } catch (const HostError& error) {
    const std::string why = error.what();
    // Where dims are known, ONNX's shape inference may be the first to refuse.
    const bool is_inferred =
        form == Form::Fixed && why.find("ShapeInferenceError") != std::string::npos;
    const bool has_own_words = target.provider != "cpu" && !graph.device_refusal.empty();
    const std::string& words = has_own_words ? graph.device_refusal : graph.refusal;
    if (!graph.refusal.empty() && (is_inferred || why.find(words) != std::string::npos)) return {};
    const bool refused =
        error.code() == BACKPLANE_UNSUPPORTED && (graph.may_be_refused || !target.must_run_all);
    return {refused ? Outcome::Kind::Refused : Outcome::Kind::Failed, form_text + why};
  }
  return {};
}

}  // namespace backplane::ops_test

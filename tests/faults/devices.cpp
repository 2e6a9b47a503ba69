#include "tests/faults/devices.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace backplane::core::faults {
namespace {

std::string plugin_folder = BACKPLANE_TEST_PLUGIN_DIR;

}  // namespace

void use_plugins_of(const std::string& folder) { plugin_folder = folder; }

const std::shared_ptr<Environment>& environment() {
  static const std::shared_ptr<Environment> shared = [] {
    EnvironmentOptions options;
    options.threads = 2;
    options.log_level = "error";
    options.plugin_path = {plugin_folder};
    auto made = std::make_shared<Environment>(options, Logger::Sink());
    made->plugins().load(BACKPLANE_TEST_FIXTURES_DIR "/fakegpu.so");
    return made;
  }();
  return shared;
}

bool has_device(const std::string& provider) {
  const bp_provider* raw = nullptr;
  PluginSet& plugins = environment()->plugins();
  if (!plugins.has_provider(provider)) return false;
  const PluginPtr plugin = plugins.find_provider(provider, &raw);
  return !enumerate_devices(*raw, nullptr).empty();
}

const fakegpu_api& fakegpu() {
  static const fakegpu_api* const api = [] {
    const bp_provider* provider = nullptr;
    static const PluginPtr plugin = environment()->plugins().find_provider("fakegpu", &provider);
    return static_cast<const fakegpu_api*>(
        provider->get_interface(provider->self, FAKEGPU_INTERFACE, 1));
  }();
  return *api;
}

fakegpu_counters counters(std::uint32_t device) {
  fakegpu_counters all{};
  all.struct_size = sizeof(all);
  fakegpu().counters(device, &all);
  return all;
}

std::string findings() {
  std::string all;
  char line[512];
  const std::uint64_t count = fakegpu().report(0, line, sizeof(line));
  for (std::uint64_t i = 0; i < count; ++i) {
    fakegpu().report(i, line, sizeof(line));
    all += std::string(line) + "\n";
  }
  return all;
}

std::string alive() {
  const fakegpu_counters now = counters();
  const std::pair<const char*, std::uint64_t> kinds[] = {
      {"devices", now.open_devices}, {"buffers", now.buffers},      {"streams", now.streams},
      {"fences", now.fences},        {"kernels", now.kernels},      {"prepared", now.prepared},
      {"open runs", now.open_runs},  {"recordings", now.recordings}};
  std::string words;
  for (const auto& [kind, count] : kinds) {
    if (count != 0) words += text(words.empty() ? "" : ", ", count, " ", kind);
  }
  return words;
}

ModelMaker::ModelMaker() {
  model_.set_ir_version(8);
  model_.add_opset_import()->set_version(17);
  model_.mutable_graph()->set_name("test");
}

ModelMaker& ModelMaker::input(const std::string& name, const Dims& dims) {
  ::onnx::ValueInfoProto* info = model_.mutable_graph()->add_input();
  info->set_name(name);
  auto* type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(::onnx::TensorProto::FLOAT);
  for (const std::int64_t dim : dims) {
    auto* made = type->mutable_shape()->add_dim();
    if (dim >= 0) made->set_dim_value(dim);
  }
  return *this;
}

ModelMaker& ModelMaker::output(const std::string& name) {
  ::onnx::ValueInfoProto* info = model_.mutable_graph()->add_output();
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(::onnx::TensorProto::FLOAT);
  return *this;
}

ModelMaker& ModelMaker::weight(const std::string& name, const Tensor& tensor) {
  ::onnx::TensorProto* proto = model_.mutable_graph()->add_initializer();
  proto->set_name(name);
  proto->set_data_type(::onnx::TensorProto::FLOAT);
  for (const std::int64_t dim : tensor.dims) proto->add_dims(dim);
  proto->set_raw_data(tensor.elements.data(), tensor.elements.size() * sizeof(float));
  return *this;
}

ModelMaker& ModelMaker::ints(const std::string& name, const Dims& values) {
  ::onnx::TensorProto* proto = model_.mutable_graph()->add_initializer();
  proto->set_name(name);
  proto->set_data_type(::onnx::TensorProto::INT64);
  proto->add_dims(static_cast<std::int64_t>(values.size()));
  proto->set_raw_data(values.data(), values.size() * sizeof(std::int64_t));
  return *this;
}

ModelMaker& ModelMaker::node(const std::string& name, const std::string& op,
                             const std::vector<std::string>& inputs, const std::string& output,
                             int axis) {
  ::onnx::NodeProto* proto = model_.mutable_graph()->add_node();
  proto->set_name(name);
  proto->set_op_type(op);
  for (const std::string& input : inputs) proto->add_input(input);
  proto->add_output(output);
  if (axis >= 0) {
    ::onnx::AttributeProto* attribute = proto->add_attribute();
    attribute->set_name("axis");
    attribute->set_type(::onnx::AttributeProto::INT);
    attribute->set_i(axis);
  }
  return *this;
}

MixedSession::MixedSession(std::string model, const Placement& placement,
                           const ProviderOptions& fakegpu_options,
                           const std::vector<std::string>& providers,
                           const std::function<void(SessionOptions&)>& change)
    : model_(std::move(model)) {
  SessionOptions options;
  for (const std::string& name : providers) options.providers.push_back({name, {}});
  options.provider_options["fakegpu"] = fakegpu_options;
  // PoCL has a cache of its own, and compiles a second time for who keeps what it made.
  if (std::find(providers.begin(), providers.end(), "opencl") != providers.end())
    options.provider_options["opencl"] = {{"cache_dir", "off"}};
  options.fallback = Fallback::Allow;
  options.optimization = OptimizationLevel::None;
  for (const auto& [node, provider] : placement) options.placement.push_back({node, provider});
  if (change) change(options);
  session_ =
      std::make_unique<Session>(environment(), "", std::as_bytes(std::span(model_)), options);
}

Tensors MixedSession::run(const Tensors& feeds, const RunOptions* options) {
  std::vector<std::unique_ptr<RuntimeValue>> values;
  std::vector<NamedValue> named_feeds, named_fetches;
  for (const auto& [name, tensor] : feeds) {
    values.push_back(std::make_unique<RuntimeValue>());
    values.back()->set_owned_tensor(DataType::Float, tensor.dims);
    if (!tensor.elements.empty())
      std::memcpy(values.back()->description.host_ptr, tensor.elements.data(),
                  tensor.elements.size() * sizeof(float));
    named_feeds.push_back({name, values.back().get()});
  }
  for (const ValueId output : session_->outputs()) {
    values.push_back(std::make_unique<RuntimeValue>());
    named_fetches.push_back({session_->model().graph.value(output).name, values.back().get()});
  }
  session_->run(named_feeds, named_fetches, options);
  Tensors results;
  for (const NamedValue& fetch : named_fetches) {
    const auto* first = static_cast<const float*>(fetch.value->description.host_ptr);
    const std::size_t count = fetch.value->description.bytes / sizeof(float);
    results[fetch.name] = {fetch.value->dims, count > 0 ? std::vector<float>(first, first + count)
                                                        : std::vector<float>()};
  }
  return results;
}

Tensors run_on_cpu(const std::string& model, const Tensors& feeds) {
  return MixedSession(model, {}, {}, {"cpu"}).run(feeds);
}

Tensor random_tensor(const Dims& dims, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor{dims, std::vector<float>(static_cast<std::size_t>(element_count(dims)))};
  for (float& element : tensor.elements)
    element = static_cast<float>(random() % 20000) / 10000.0f - 1.0f;
  return tensor;
}

std::string difference(const Tensors& got, const Tensors& want) {
  if (got.size() != want.size()) return text(got.size(), " values instead of ", want.size());
  for (const auto& [name, tensor] : want) {
    const auto found = got.find(name);
    if (found == got.end()) return text("no value '", name, "'");
    if (found->second.dims != tensor.dims)
      return text("'", name, "' has dims ", to_string(found->second.dims), ", not ",
                  to_string(tensor.dims));
    for (std::size_t i = 0; i < tensor.elements.size(); ++i) {
      const float a = found->second.elements[i], b = tensor.elements[i];
      if (!(std::abs(a - b) <= 1e-4f * (1 + std::abs(b))))
        return text("'", name, "'[", i, "] is ", a, ", not ", b);
    }
  }
  return "";
}

}  // namespace backplane::core::faults

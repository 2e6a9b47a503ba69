#include "tests/control_flow/flow_session.hpp"

#include <cstring>
#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include <nlohmann/json.hpp>

namespace backplane::core::flow {
namespace {

template <class Element>
RuntimeValuePtr tensor(DataType type, const Dims& dims, const std::vector<Element>& elements) {
  auto value = std::make_shared<RuntimeValue>();
  value->set_owned_tensor(type, dims);
  if (!elements.empty())
    std::memcpy(value->description.host_ptr, elements.data(), elements.size() * sizeof(Element));
  return value;
}

template <class Element>
std::vector<Element> elements_of(const RuntimeValue& value) {
  std::vector<Element> elements(value.description.bytes / sizeof(Element));
  if (!elements.empty())
    std::memcpy(elements.data(), value.description.host_ptr, value.description.bytes);
  return elements;
}

void name_nodes(::onnx::GraphProto& graph, const std::string& prefix) {
  for (int i = 0; i < graph.node_size(); ++i) {
    ::onnx::NodeProto& node = *graph.mutable_node(i);
    if (node.name().empty()) node.set_name(prefix + std::to_string(i));
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) name_nodes(*attribute.mutable_g(), prefix);
    }
  }
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

}  // namespace

RuntimeValuePtr floats(const Dims& dims, const std::vector<float>& elements) {
  return tensor(DataType::Float, dims, elements);
}

RuntimeValuePtr int64s(const Dims& dims, const std::vector<std::int64_t>& elements) {
  return tensor(DataType::Int64, dims, elements);
}

RuntimeValuePtr boolean(bool value) {
  return tensor<unsigned char>(DataType::Bool, {}, {static_cast<unsigned char>(value)});
}

RuntimeValuePtr strings(const Dims& dims, const std::vector<std::string>& elements) {
  auto value = std::make_shared<RuntimeValue>();
  value->set_owned_tensor(DataType::String, dims);
  value->strings = elements;
  return value;
}

std::vector<float> floats_of(const RuntimeValue& value) { return elements_of<float>(value); }

std::vector<std::int64_t> int64s_of(const RuntimeValue& value) {
  return elements_of<std::int64_t>(value);
}

const std::shared_ptr<Environment>& environment() {
  static const std::shared_ptr<Environment> shared = [] {
    EnvironmentOptions options;
    options.threads = 2;
    options.log_level = "error";
    options.plugin_path = {BACKPLANE_TEST_PLUGIN_DIR};
    auto made = std::make_shared<Environment>(options, Logger::Sink());
    made->plugins().load(BACKPLANE_TEST_FIXTURES_DIR "/fakegpu.so");
    return made;
  }();
  return shared;
}

fakegpu_counters counters() {
  fakegpu_counters all{};
  all.struct_size = sizeof(all);
  fakegpu().counters(FAKEGPU_ALL_DEVICES, &all);
  return all;
}

void reset_counters() { fakegpu().reset(); }

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

FlowSession::FlowSession(const std::string& text, const FlowSetup& setup) {
  ::onnx::ModelProto proto;
  const auto status = ::onnx::OnnxParser::Parse(proto, text.c_str());
  if (!status.IsOK()) invalid("the test's model: ", status.ErrorMessage());
  name_nodes(*proto.mutable_graph(), "n");
  model_ = proto.SerializeAsString();
  SessionOptions options;
  for (const std::string& name : setup.providers) options.providers.push_back({name, {}});
  if (setup.providers.front().starts_with("fakegpu"))
    options.provider_options["fakegpu"] = setup.fakegpu_options;
  options.fallback = Fallback::Allow;
  options.optimization = setup.optimization;
  options.profile = setup.profile;
  for (const auto& [pattern, provider] : setup.placement)
    options.placement.push_back({pattern, provider});
  session_ =
      std::make_unique<Session>(environment(), "", std::as_bytes(std::span(model_)), options);
}

Values FlowSession::run(const Values& feeds) {
  std::vector<NamedValue> fed, fetched;
  for (const auto& [name, value] : feeds) fed.push_back({name, value.get()});
  Values results;
  for (const ValueId id : session_->outputs()) {
    const std::string& name = session_->model().graph.value(id).name;
    results[name] = std::make_shared<RuntimeValue>();
    fetched.push_back({name, results[name].get()});
  }
  session_->run(fed, fetched);
  return results;
}

std::size_t FlowSession::plan_count() {
  return nlohmann::json::parse(session_->statistics())["plans"];
}

std::string error_of(const std::string& text, const Values& feeds, const FlowSetup& setup) {
  try {
    FlowSession(text, setup).run(feeds);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace backplane::core::flow

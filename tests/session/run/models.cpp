#include "tests/session/run/models.hpp"

namespace backplane::session_test {

ModelMaker::ModelMaker() {
  model_.set_ir_version(8);
  model_.add_opset_import()->set_version(17);
  ::onnx::OperatorSetIdProto* tests = model_.add_opset_import();
  tests->set_domain("backplane.tests");
  tests->set_version(1);
  model_.mutable_graph()->set_name("test");
}

ModelMaker& ModelMaker::input(const std::string& name, const std::vector<Dim>& dims,
                              ElementType type) {
  ::onnx::ValueInfoProto* info = model_.mutable_graph()->add_input();
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(static_cast<std::int32_t>(type));
  tensor->mutable_shape();
  for (const Dim& dim : dims) {
    auto* added = tensor->mutable_shape()->add_dim();
    if (dim.size >= 0) {
      added->set_dim_value(dim.size);
    } else if (!dim.symbol.empty()) {
      added->set_dim_param(dim.symbol);
    }
  }
  return *this;
}

ModelMaker& ModelMaker::output(const std::string& name, ElementType type) {
  ::onnx::ValueInfoProto* info = model_.mutable_graph()->add_output();
  info->set_name(name);
  info->mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<std::int32_t>(type));
  return *this;
}

ModelMaker& ModelMaker::weight(const std::string& name, const std::vector<std::int64_t>& dims,
                               const std::vector<float>& elements) {
  ::onnx::TensorProto* proto = model_.mutable_graph()->add_initializer();
  proto->set_name(name);
  proto->set_data_type(::onnx::TensorProto::FLOAT);
  for (const std::int64_t dim : dims) proto->add_dims(dim);
  proto->set_raw_data(elements.data(), elements.size() * sizeof(float));
  return *this;
}

ModelMaker& ModelMaker::ints(const std::string& name, const std::vector<std::int64_t>& elements) {
  ::onnx::TensorProto* proto = model_.mutable_graph()->add_initializer();
  proto->set_name(name);
  proto->set_data_type(::onnx::TensorProto::INT64);
  proto->add_dims(static_cast<std::int64_t>(elements.size()));
  proto->set_raw_data(elements.data(), elements.size() * sizeof(std::int64_t));
  return *this;
}

ModelMaker& ModelMaker::node(const std::string& op, const std::vector<std::string>& inputs,
                             const std::vector<std::string>& outputs) {
  ::onnx::NodeProto* proto = model_.mutable_graph()->add_node();
  proto->set_name(outputs.at(0));
  proto->set_op_type(op);
  for (const std::string& input : inputs) proto->add_input(input);
  for (const std::string& output : outputs) proto->add_output(output);
  return *this;
}

ModelMaker& ModelMaker::probe(const std::string& input, const std::string& output,
                              const Probe& probe) {
  node("Probe", {input}, {output});
  ::onnx::NodeProto* proto = model_.mutable_graph()->mutable_node(model_.graph().node_size() - 1);
  proto->set_domain("backplane.tests");
  ::onnx::AttributeProto* attribute = proto->add_attribute();
  attribute->set_name("probe");
  attribute->set_type(::onnx::AttributeProto::INT);
  attribute->set_i(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&probe)));
  return *this;
}

const Environment& environment() {
  static const Environment shared(Options()
                                      .set("environment.threads", "2")
                                      .set("environment.log_level", "error")
                                      .set("environment.plugin_path", BACKPLANE_TEST_PLUGIN_DIR));
  return shared;
}

Options cpu_options() {
  Options options;
  options.set("providers", "cpu");
  options.RegisterCustomOpsLibrary(BACKPLANE_TEST_BUILD_DIR "/tests/session/session_probe.so");
  return options;
}

}  // namespace backplane::session_test

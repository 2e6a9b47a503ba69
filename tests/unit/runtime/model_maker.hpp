// Writes the models of this folder's tests.
#pragma once

#include <cstdint>
#include <onnx/onnx_pb.h>
#include <string>
#include <vector>

namespace backplane::runtime_test {

/// A model under construction. Dims are numbers, symbols, or "?" for a dimension without a name.
class ModelMaker {
 public:
  static constexpr int kFloat = ::onnx::TensorProto::FLOAT;
  static constexpr int kInt64 = ::onnx::TensorProto::INT64;

  ModelMaker() {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(17);
    graph().set_name("test");
  }

  ModelMaker& input(const std::string& name, const std::vector<std::string>& dims,
                    int type = kFloat) {
    declare(*graph().add_input(), name, dims, type);
    return *this;
  }
  ModelMaker& output(const std::string& name, const std::vector<std::string>& dims,
                     int type = kFloat) {
    declare(*graph().add_output(), name, dims, type);
    return *this;
  }
  /// An output of unknown shape.
  ModelMaker& output(const std::string& name, int type = kFloat) {
    ::onnx::ValueInfoProto* info = graph().add_output();
    info->set_name(name);
    info->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return *this;
  }
  /// A node whose name is "make_" and its output's; `axis` is set unless negative.
  ModelMaker& node(const std::string& op, const std::vector<std::string>& inputs,
                   const std::string& result, std::int64_t axis = -1) {
    ::onnx::NodeProto* made = graph().add_node();
    made->set_op_type(op);
    made->set_name("make_" + result);
    for (const std::string& read : inputs) made->add_input(read);
    made->add_output(result);
    return axis < 0 ? *this : attribute("axis", axis);
  }
  /// An integer attribute of the last node.
  ModelMaker& attribute(const std::string& name, std::int64_t value) {
    ::onnx::AttributeProto* made = graph().mutable_node(graph().node_size() - 1)->add_attribute();
    made->set_name(name);
    made->set_type(::onnx::AttributeProto::INT);
    made->set_i(value);
    return *this;
  }
  ModelMaker& weight(const std::string& name, const std::vector<std::int64_t>& dims,
                     const std::vector<float>& elements) {
    return initializer(name, kFloat, dims, elements.data(), elements.size() * sizeof(float));
  }
  ModelMaker& ints(const std::string& name, const std::vector<std::int64_t>& elements) {
    return initializer(name, kInt64, {static_cast<std::int64_t>(elements.size())}, elements.data(),
                       elements.size() * sizeof(std::int64_t));
  }

  ::onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  std::string bytes() const { return model_.SerializeAsString(); }

 private:
  static void declare(::onnx::ValueInfoProto& info, const std::string& name,
                      const std::vector<std::string>& dims, int type) {
    info.set_name(name);
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    for (const std::string& dim : dims) {
      auto* made = tensor->mutable_shape()->add_dim();
      if (dim == "?") continue;
      if (dim.find_first_not_of("0123456789") == std::string::npos) {
        made->set_dim_value(std::stoll(dim));
      } else {
        made->set_dim_param(dim);
      }
    }
    tensor->mutable_shape();  // a scalar's shape is there, too
  }
  ModelMaker& initializer(const std::string& name, int type, const std::vector<std::int64_t>& dims,
                          const void* data, std::size_t bytes) {
    ::onnx::TensorProto* tensor = graph().add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    for (const std::int64_t dim : dims) tensor->add_dims(dim);
    tensor->set_raw_data(data, bytes);
    return *this;
  }

  ::onnx::ModelProto model_;
};

}  // namespace backplane::runtime_test

// Models for tests, made from ONNX's protos.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <onnx/onnx_pb.h>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/onnx/importer.hpp"

namespace backplane::core {

inline ::onnx::TypeProto tensor_type(int element, const std::vector<std::string>& dims) {
  ::onnx::TypeProto type;
  type.mutable_tensor_type()->set_elem_type(element);
  auto* shape = type.mutable_tensor_type()->mutable_shape();
  for (const std::string& dim : dims) {
    const bool number = !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
    if (number) {
      shape->add_dim()->set_dim_value(std::stoll(dim));
    } else {
      shape->add_dim()->set_dim_param(dim);
    }
  }
  return type;
}

inline ::onnx::ValueInfoProto value_info(const std::string& name,
                                         const std::vector<std::string>& dims,
                                         int element = ::onnx::TensorProto::FLOAT) {
  ::onnx::ValueInfoProto info;
  info.set_name(name);
  *info.mutable_type() = tensor_type(element, dims);
  return info;
}

inline ::onnx::NodeProto node(const std::string& op, const std::vector<std::string>& inputs,
                              const std::vector<std::string>& outputs,
                              const std::string& name = "") {
  ::onnx::NodeProto proto;
  proto.set_op_type(op);
  if (!name.empty()) proto.set_name(name);
  for (const std::string& input : inputs) proto.add_input(input);
  for (const std::string& output : outputs) proto.add_output(output);
  return proto;
}

inline void set_int(::onnx::NodeProto& proto, const std::string& name, std::int64_t value) {
  auto* attribute = proto.add_attribute();
  attribute->set_name(name);
  attribute->set_type(::onnx::AttributeProto::INT);
  attribute->set_i(value);
}

inline void set_graph(::onnx::NodeProto& proto, const std::string& name,
                      const ::onnx::GraphProto& graph) {
  auto* attribute = proto.add_attribute();
  attribute->set_name(name);
  attribute->set_type(::onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = graph;
}

template <class Element>
::onnx::TensorProto raw_tensor(const std::string& name, int type,
                               const std::vector<std::int64_t>& dims,
                               const std::vector<Element>& values) {
  ::onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(type);
  for (const std::int64_t dim : dims) tensor.add_dims(dim);
  tensor.set_raw_data(values.data(), values.size() * sizeof(Element));
  return tensor;
}

/// A model of the given nodes with one input x: float[2,3] and one output y without declared shape.
inline ::onnx::ModelProto model_of(const std::vector<::onnx::NodeProto>& nodes,
                                   std::int64_t opset = 17, std::int64_t ir_version = 8) {
  ::onnx::ModelProto model;
  model.set_ir_version(ir_version);
  auto* import = model.add_opset_import();
  import->set_version(opset);
  auto* graph = model.mutable_graph();
  graph->set_name("test");
  for (const auto& proto : nodes) *graph->add_node() = proto;
  *graph->add_input() = value_info("x", {"2", "3"});
  auto* output = graph->add_output();
  output->set_name("y");
  return model;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// Imports from memory. The text must stay: large initializers refer to it.
inline Model import_text(const std::string& text, const ImportOptions& options = {}) {
  static const SchemaRegistry schemas;
  return import_bytes(bytes_of(text), schemas, options);
}

/// What import says, "no error" when it is content.
inline std::string import_error(const ::onnx::ModelProto& model,
                                const ImportOptions& options = {}) {
  try {
    (void)import_text(model.SerializeAsString(), options);
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

inline const Value& value_of(const Graph& graph, const std::string& name) {
  const ValueId id = graph.find_value(name);
  if (id == kNone) invalid("no value ", name);
  return graph.value(id);
}

inline std::string shape_of(const Graph& graph, const std::string& name) {
  const Type& type = value_of(graph, name).type;
  return type.to_string() + (type.shape ? to_string(*type.shape) : std::string("?"));
}

template <class Element>
std::vector<Element> elements_of(const Constant& constant) {
  std::vector<Element> values(constant.bytes().size() / sizeof(Element));
  if (!values.empty())
    std::memcpy(values.data(), constant.bytes().data(), values.size() * sizeof(Element));
  return values;
}

}  // namespace backplane::core

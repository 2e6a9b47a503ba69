#include "core/onnx/body_proto.hpp"

#include "core/onnx/tensors.hpp"
#include "core/onnx/types.hpp"

namespace backplane::core {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

void write_info(const Value& value, ::onnx::ValueInfoProto& info) {
  info.set_name(value.name);
  if (value.type.kind != Type::Kind::Unknown) *info.mutable_type() = to_proto(value.type);
}

void write_body(const Graph& graph, GraphProto& proto) {
  proto.set_name(graph.name.empty() ? "body" : graph.name);
  for (const ValueId input : graph.inputs) write_info(graph.value(input), *proto.add_input());
  for (const Value& value : graph.values()) {
    if (value.constant != nullptr && (!value.uses.empty() || value.is_output))
      *proto.add_initializer() = to_proto(*value.constant, value.name);
  }
  for (const NodeId id : topological_order(graph))
    *proto.add_node() = to_proto(graph, graph.node(id));
  for (const ValueId output : graph.outputs) write_info(graph.value(output), *proto.add_output());
}

void write_attribute(const Attribute& attribute, AttributeProto& proto) {
  proto.set_type(static_cast<AttributeProto::AttributeType>(attribute.type));
  switch (attribute.type) {
    case Attribute::Type::Float:
      proto.set_f(attribute.floats.front());
      break;
    case Attribute::Type::Int:
      proto.set_i(attribute.ints.front());
      break;
    case Attribute::Type::String:
      proto.set_s(attribute.strings.front());
      break;
    case Attribute::Type::Tensor:
      *proto.mutable_t() = to_proto(*attribute.tensors.front(), "");
      break;
    case Attribute::Type::Graph:
      write_body(*attribute.graphs.front(), *proto.mutable_g());
      break;
    case Attribute::Type::TypeProto:
      *proto.mutable_tp() = to_proto(attribute.types.front());
      break;
    case Attribute::Type::Floats:
      proto.mutable_floats()->Add(attribute.floats.begin(), attribute.floats.end());
      break;
    case Attribute::Type::Ints:
      proto.mutable_ints()->Add(attribute.ints.begin(), attribute.ints.end());
      break;
    case Attribute::Type::Strings:
      for (const std::string& string : attribute.strings) proto.add_strings(string);
      break;
    case Attribute::Type::Tensors:
      for (const ConstantPtr& tensor : attribute.tensors)
        *proto.add_tensors() = to_proto(*tensor, "");
      break;
    case Attribute::Type::Graphs:
      for (const auto& body : attribute.graphs) write_body(*body, *proto.add_graphs());
      break;
    case Attribute::Type::TypeProtos:
      for (const Type& type : attribute.types) *proto.add_type_protos() = to_proto(type);
      break;
  }
}

}  // namespace

NodeProto to_proto(const Graph& graph, const Node& node) {
  NodeProto proto;
  proto.set_name(node.name);
  proto.set_op_type(node.op_type);
  proto.set_domain(node.domain);
  const auto name = [&](ValueId id) { return id == kNone ? std::string() : graph.value(id).name; };
  for (const ValueId input : node.inputs) proto.add_input(name(input));
  for (const ValueId output : node.outputs) proto.add_output(name(output));
  for (const auto& [attribute_name, attribute] : node.attributes) {
    AttributeProto& written = *proto.add_attribute();
    written.set_name(attribute_name);
    write_attribute(attribute, written);
  }
  return proto;
}

}  // namespace backplane::core

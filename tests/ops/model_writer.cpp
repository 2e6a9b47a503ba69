#include "tests/ops/model_writer.hpp"

#include <cstdint>
#include <cstring>
#include <variant>

namespace backplane::ops_test {
namespace {

/// One message: https://protobuf.dev/programming-guides/encoding/. Field numbers are those of
/// onnx.proto.
class Message {
 public:
  void number(int field, std::int64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(static_cast<std::uint64_t>(value));
  }
  void bytes(int field, const std::string& value) {
    varint((static_cast<std::uint64_t>(field) << 3) | 2u);
    varint(value.size());
    text_ += value;
  }
  void fixed32(int field, float value) {
    varint((static_cast<std::uint64_t>(field) << 3) | 5u);
    std::uint32_t pattern = 0;
    std::memcpy(&pattern, &value, sizeof(pattern));
    for (int b = 0; b < 4; ++b) text_ += static_cast<char>((pattern >> (8 * b)) & 0xFFu);
  }
  void message(int field, const Message& value) { bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80u; value >>= 7) text_ += static_cast<char>((value & 0x7Fu) | 0x80u);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

Message tensor_message(const Tensor& tensor, const std::string& name) {
  Message message;
  for (const std::int64_t dim : tensor.dims) message.number(1, dim);
  message.number(2, static_cast<std::int64_t>(tensor.type));
  for (const std::string& word : tensor.strings) message.bytes(6, word);
  if (!name.empty()) message.bytes(8, name);
  if (tensor.type != ElementType::String) message.bytes(9, tensor.bytes);
  return message;
}

/// AttributeProto.AttributeType and the field of the value, by kind.
struct AttributeWriter {
  Message& message;

  void operator()(std::int64_t value) const {
    message.number(3, value);
    message.number(20, 2);
  }
  void operator()(float value) const {
    message.fixed32(2, value);
    message.number(20, 1);
  }
  void operator()(const std::string& value) const {
    message.bytes(4, value);
    message.number(20, 3);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    for (const std::int64_t value : values) message.number(8, value);
    message.number(20, 7);
  }
  void operator()(const std::vector<float>& values) const {
    for (const float value : values) message.fixed32(7, value);
    message.number(20, 6);
  }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) message.bytes(9, value);
    message.number(20, 8);
  }
  void operator()(const Array& value) const {
    message.message(5, tensor_message(to_tensor(value), ""));
    message.number(20, 4);
  }
};

Message node_message(const reference::Node& node) {
  Message message;
  for (const std::string& input : node.inputs) message.bytes(1, input);
  for (const std::string& output : node.outputs) message.bytes(2, output);
  message.bytes(4, node.op_type);
  for (const reference::Attribute& attribute : node.attributes) {
    Message inner;
    inner.bytes(1, attribute.name);
    std::visit(AttributeWriter{inner}, attribute.value);
    message.message(5, inner);
  }
  if (!node.domain.empty()) message.bytes(7, node.domain);
  return message;
}

Message value_message(const ValueInfo& value) {
  Message tensor_type;
  tensor_type.number(1, static_cast<std::int64_t>(value.type));
  Message shape;
  for (std::size_t axis = 0; axis < value.dims.size(); ++axis) {
    Message dim;
    if (value.dims[axis] >= 0) {
      dim.number(1, value.dims[axis]);
    } else {
      dim.bytes(2, value.symbols.empty() ? value.name + "_dim" + std::to_string(axis)
                                         : value.symbols[axis]);
    }
    shape.message(1, dim);
  }
  tensor_type.message(2, shape);
  Message type;
  type.message(1, tensor_type);
  Message message;
  message.bytes(1, value.name);
  message.message(2, type);
  return message;
}

/// The IR version that came with an opset, from 8 on.
std::int64_t ir_version(const Model& model) {
  const auto main = model.opsets.find("");
  const std::int64_t opset = main == model.opsets.end() ? 0 : main->second;
  if (opset >= 25) return 12;
  if (opset >= 23) return 11;
  if (opset >= 21) return 10;
  return opset >= 19 ? 9 : 8;
}

}  // namespace

std::string write_tensor(const Tensor& tensor, const std::string& name) {
  return tensor_message(tensor, name).text();
}

std::string write_model(const Model& model) {
  Message graph;
  for (const reference::Node& node : model.nodes) graph.message(1, node_message(node));
  graph.bytes(2, "test");
  for (const auto& [name, tensor] : model.initializers)
    graph.message(5, tensor_message(tensor, name));
  for (const ValueInfo& value : model.inputs) graph.message(11, value_message(value));
  for (const ValueInfo& value : model.outputs) graph.message(12, value_message(value));
  Message message;
  message.number(1, ir_version(model));
  message.message(7, graph);
  for (const auto& [domain, version] : model.opsets) {
    Message opset;
    if (!domain.empty()) opset.bytes(1, domain);
    opset.number(2, version);
    message.message(8, opset);
  }
  return message.text();
}

}  // namespace backplane::ops_test

#include "tests/session/life/model_maker.hpp"

#include <random>

namespace backplane::session_test {
namespace {

/// One message: https://protobuf.dev/programming-guides/encoding. Field numbers are onnx.proto's.
class Message {
 public:
  Message& number(int field, std::int64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& text(int field, const std::string& value) {
    varint((static_cast<std::uint64_t>(field) << 3) | 2u);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80u; value >>= 7) bytes_ += static_cast<char>((value & 0x7Fu) | 0x80u);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

constexpr int kFloat = 1;

Message tensor(const std::string& name, const Dims& dims) {
  Message message;
  for (const std::int64_t dim : dims) message.number(1, dim);
  message.number(2, kFloat).text(8, name);
  return message;
}

Message entry(const std::string& key, const std::string& value) {
  return Message().text(1, key).text(2, value);
}

}  // namespace

ModelMaker& ModelMaker::input(const std::string& name, const std::vector<InputDim>& dims) {
  Message shape;
  for (const InputDim& dim : dims) {
    Message one;
    if (dim.size >= 0) one.number(1, dim.size);
    if (!dim.symbol.empty()) one.text(2, dim.symbol);
    if (!dim.denotation.empty()) one.text(3, dim.denotation);
    shape.text(1, one.bytes());
  }
  const Message type =
      Message().text(1, Message().number(1, kFloat).text(2, shape.bytes()).bytes());
  inputs_ += Message().text(11, Message().text(1, name).text(2, type.bytes()).bytes()).bytes();
  return *this;
}

ModelMaker& ModelMaker::output(const std::string& name) {
  const Message type = Message().text(1, Message().number(1, kFloat).bytes());
  outputs_ += Message().text(12, Message().text(1, name).text(2, type.bytes()).bytes()).bytes();
  return *this;
}

ModelMaker& ModelMaker::weight(const std::string& name, const Dims& dims,
                               const std::vector<float>& elements) {
  Message message = tensor(name, dims);
  message.text(9, std::string(reinterpret_cast<const char*>(elements.data()),
                              elements.size() * sizeof(float)));
  weights_ += Message().text(5, message.bytes()).bytes();
  return *this;
}

ModelMaker& ModelMaker::external_weight(const std::string& name, const Dims& dims,
                                        const std::string& location) {
  Message message = tensor(name, dims);
  message.text(13, entry("location", location).bytes()).number(14, 1);
  weights_ += Message().text(5, message.bytes()).bytes();
  return *this;
}

ModelMaker& ModelMaker::node(const std::string& name, const std::string& op,
                             const std::vector<std::string>& inputs, const std::string& output,
                             const std::map<std::string, std::int64_t>& attributes,
                             const std::string& domain) {
  Message message;
  for (const std::string& input : inputs) message.text(1, input);
  message.text(2, output).text(3, name).text(4, op);
  for (const auto& [key, value] : attributes)
    message.text(5, Message().text(1, key).number(3, value).number(20, 2).bytes());
  if (!domain.empty()) {
    message.text(7, domain);
    domains_.insert(domain);
  }
  nodes_ += Message().text(1, message.bytes()).bytes();
  return *this;
}

ModelMaker& ModelMaker::metadata(const std::string& key, const std::string& value) {
  metadata_ += Message().text(14, entry(key, value).bytes()).bytes();
  return *this;
}

std::string ModelMaker::bytes() const {
  const Message graph = Message().text(2, "test");
  Message model;
  model.number(1, 8).text(7, nodes_ + graph.bytes() + weights_ + inputs_ + outputs_);
  model.text(8, Message().text(1, "").number(2, 17).bytes());
  for (const std::string& domain : domains_)
    model.text(8, Message().text(1, domain).number(2, 1).bytes());
  return model.bytes() + metadata_;
}

std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 20000) / 10000.0f - 1.0f;
  return values;
}

ModelMaker small_net() {
  ModelMaker maker;
  maker.input("x", {2, 4}).weight("w", {4, 3}, numbers(12, 1)).weight("b", {3}, numbers(3, 2));
  maker.node("product", "Gemm", {"x", "w", "b"}, "h").node("positive", "Relu", {"h"}, "y");
  return maker.output("y");
}

}  // namespace backplane::session_test

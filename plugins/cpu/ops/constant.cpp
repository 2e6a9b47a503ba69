// Constant: https://onnx.ai/onnx/operators/onnx__Constant.html
#include <cstring>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// The value of an attribute, of which a node has exactly one.
class Constant {
 public:
  struct Prepared {
    const Constant* constant;  // outlives what it prepared
    void compute(const sdk::ComputeContext& ctx) const {
      const std::vector<std::string>& texts = constant->texts_;
      for (std::size_t i = 0; i < texts.size(); ++i) ctx.output_value(0).set_string(i, texts[i]);
      const std::vector<char>& bytes = constant->bytes_;
      if (!bytes.empty()) {
        std::memcpy(ctx.output(0).mutable_data<char>(), bytes.data(), bytes.size());
      }
    }
  };

  Constant(const sdk::CreateContext&, const sdk::Node& node) {
    if (const sdk::Value value = node.get_tensor("value")) {
      take_tensor(value);
    } else if (const bp_attribute* number = node.attribute("value_float")) {
      take(DataType::Float, number->floats, 1);
    } else if (const bp_attribute* numbers = node.attribute("value_floats")) {
      take(DataType::Float, numbers->floats, numbers->count);
      dims_ = {numbers->count};
    } else if (const bp_attribute* integer = node.attribute("value_int")) {
      take(DataType::Int64, integer->ints, 1);
    } else if (const bp_attribute* integers = node.attribute("value_ints")) {
      take(DataType::Int64, integers->ints, integers->count);
      dims_ = {integers->count};
    } else if (node.has("value_string")) {
      type_ = DataType::String;
      texts_ = {node.get_string("value_string", "")};
    } else if (node.has("value_strings")) {
      type_ = DataType::String;
      texts_ = node.get_strings("value_strings");
      dims_ = {static_cast<std::int64_t>(texts_.size())};
    } else {
      sdk::unsupported(
          "Constant: none of the attributes value, value_float(s), value_int(s), "
          "value_string(s) is given; sparse_value is not handled");
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, type_, dims_);
    return {this};
  }

 private:
  void take_tensor(const sdk::Value& value) {
    const sdk::Tensor tensor = value.tensor();
    dims_.assign(tensor.dims().begin(), tensor.dims().end());
    if (tensor.type() != DataType::String) {
      return take_bytes(tensor.type(), tensor.bytes_data(), tensor.bytes());
    }
    type_ = DataType::String;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      texts_.emplace_back(value.string_at(static_cast<std::uint64_t>(i)));
    }
  }

  template <class T>
  void take(DataType type, const T* numbers, std::size_t count) {
    take_bytes(type, numbers, count * sizeof(T));
  }

  void take_bytes(DataType type, const void* data, std::size_t size) {
    type_ = type;
    const char* from = static_cast<const char*>(data);
    if (size > 0) bytes_.assign(from, from + size);
  }

  DataType type_ = DataType::None;
  sdk::Dims dims_;
  std::vector<char> bytes_;
  std::vector<std::string> texts_;
};

}  // namespace

sdk::KernelList constant_kernels() {
  return {sdk::op("Constant").name("cpu:Constant").kernel<Constant>()};
}

}  // namespace backplane::cpu

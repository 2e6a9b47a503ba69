// Backplane SDK: attributes for nodes that a rewrite adds, and for operators.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin/tensor.hpp"

namespace backplane::sdk {

/// A typed attribute with its storage.
class Attribute {
 public:
  Attribute(std::string name, std::int64_t value)
      : Attribute(std::move(name), BP_ATTRIBUTE_INT, std::vector<std::int64_t>{value}) {}
  Attribute(std::string name, std::vector<std::int64_t> values)
      : Attribute(std::move(name), BP_ATTRIBUTE_INTS, std::move(values)) {}
  Attribute(std::string name, float value) : name_(std::move(name)), floats_{value} {
    type_ = BP_ATTRIBUTE_FLOAT;
  }
  Attribute(std::string name, std::vector<float> values)
      : name_(std::move(name)), floats_(std::move(values)) {
    type_ = BP_ATTRIBUTE_FLOATS;
  }
  Attribute(std::string name, std::string value)
      : name_(std::move(name)), texts_{std::move(value)} {
    type_ = BP_ATTRIBUTE_STRING;
  }
  Attribute(std::string name, std::vector<std::string> values)
      : name_(std::move(name)), texts_(std::move(values)) {
    type_ = BP_ATTRIBUTE_STRINGS;
  }
  /// A tensor in host memory, which is borrowed until the host has the node.
  Attribute(std::string name, Value tensor)
      : Attribute(std::move(name), BP_ATTRIBUTE_TENSOR, std::vector<Value>{tensor}) {}
  Attribute(std::string name, std::vector<Value> tensors)
      : Attribute(std::move(name), BP_ATTRIBUTE_TENSORS, std::move(tensors)) {}

  /// The ABI's form, which points into this object.
  const bp_attribute* raw() {
    strings_.clear();
    for (const std::string& text : texts_) strings_.push_back(bp_str{text.data(), text.size()});
    values_.clear();
    for (const Value& tensor : tensors_) values_.push_back(tensor.raw());
    raw_ = abi_struct<bp_attribute>();
    raw_.name = name_.c_str();
    raw_.type = type_;
    raw_.count = static_cast<std::uint32_t>(ints_.size() + floats_.size() + strings_.size() +
                                            values_.size());
    raw_.ints = ints_.empty() ? nullptr : ints_.data();
    raw_.floats = floats_.empty() ? nullptr : floats_.data();
    raw_.strings = strings_.empty() ? nullptr : strings_.data();
    raw_.values = values_.empty() ? nullptr : values_.data();
    return &raw_;
  }

 private:
  Attribute(std::string name, std::int32_t type, std::vector<std::int64_t> ints)
      : name_(std::move(name)), type_(type), ints_(std::move(ints)) {}
  Attribute(std::string name, std::int32_t type, std::vector<Value> tensors)
      : name_(std::move(name)), type_(type), tensors_(std::move(tensors)) {}

  std::string name_;
  std::int32_t type_ = 0;
  std::vector<std::int64_t> ints_;
  std::vector<float> floats_;
  std::vector<std::string> texts_;
  std::vector<Value> tensors_;
  std::vector<bp_str> strings_;
  std::vector<const bp_value*> values_;
  bp_attribute raw_{};
};

}  // namespace backplane::sdk

#include "tests/reference/reference.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

namespace backplane::reference {
namespace {

/// Made at its first use: registrations of other files run in any order.
std::map<std::string, Function>& functions() {
  static std::map<std::string, Function> map;
  return map;
}

template <class T>
const T* attribute_as(const Call& call, const std::string& name) {
  const AttributeValue* value = call.find(name);
  if (value == nullptr) return nullptr;
  const T* typed = std::get_if<T>(value);
  if (typed == nullptr) {
    throw std::logic_error(call.node.op_type + ": attribute " + name + " is of another type");
  }
  return typed;
}

std::vector<std::string>& known_strings() {
  static std::vector<std::string> list;
  return list;
}

}  // namespace

std::int64_t element_count(const Dims& dims) {
  return product(dims, 0, static_cast<std::int64_t>(dims.size()));
}

Array filled(ElementType type, Dims dims, double value) {
  const auto count = static_cast<std::size_t>(element_count(dims));
  return {type, std::move(dims), std::vector<double>(count, value)};
}

double string_number(const std::string& text) {
  std::vector<std::string>& list = known_strings();
  const auto found = std::find(list.begin(), list.end(), text);
  if (found != list.end()) return static_cast<double>(found - list.begin());
  list.push_back(text);
  return static_cast<double>(list.size() - 1);
}

const std::string& string_of(double number) {
  return known_strings().at(static_cast<std::size_t>(number));
}

const Array& Call::input(std::size_t index) const {
  const Array* array = optional(index);
  if (array == nullptr) {
    throw std::logic_error(node.op_type + ": input " + std::to_string(index) + " is needed");
  }
  return *array;
}

const Array* Call::optional(std::size_t index) const {
  return index < inputs.size() ? inputs[index] : nullptr;
}

std::vector<std::int64_t> Call::integers(std::size_t index) const {
  std::vector<std::int64_t> result;
  for (const double value : input(index).values) {
    // The two ends of int64 are no doubles: INT64_MAX arrives as 2^63.
    result.push_back(value >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(value));
  }
  return result;
}

const AttributeValue* Call::find(const std::string& name) const {
  for (const Attribute& attribute : node.attributes) {
    if (attribute.name == name) return &attribute.value;
  }
  return nullptr;
}

bool Call::has(const std::string& name) const { return find(name) != nullptr; }

std::int64_t Call::integer(const std::string& name, std::int64_t absent) const {
  const auto* value = attribute_as<std::int64_t>(*this, name);
  return value == nullptr ? absent : *value;
}

double Call::number(const std::string& name, double absent) const {
  const auto* value = attribute_as<float>(*this, name);
  return value == nullptr ? absent : static_cast<double>(*value);
}

std::string Call::text(const std::string& name, const std::string& absent) const {
  const auto* value = attribute_as<std::string>(*this, name);
  return value == nullptr ? absent : *value;
}

std::vector<std::int64_t> Call::list(const std::string& name,
                                     const std::vector<std::int64_t>& absent) const {
  const auto* value = attribute_as<std::vector<std::int64_t>>(*this, name);
  return value == nullptr ? absent : *value;
}

Arrays evaluate(const Call& call) {
  const auto found = functions().find(call.node.op_type);
  if (found == functions().end()) {
    throw std::logic_error("tests/reference has no function for " + call.node.op_type);
  }
  Arrays results = found->second(call);
  for (Array& array : results) {
    if (array.size() != element_count(array.dims)) {
      throw std::logic_error("the reference of " + call.node.op_type + " is wrong in size");
    }
    if (array.type == ElementType::String || is_float(array.type)) continue;
    for (double& value : array.values) value = round_to(array.type, value);
  }
  return results;
}

Registration::Registration(std::initializer_list<const char*> op_types, Function function) {
  for (const char* op_type : op_types) functions()[op_type] = function;
}

Dims strides_of(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis > 1; --axis) {
    strides[axis - 2] = strides[axis - 1] * dims[axis - 1];
  }
  return strides;
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()));
  for (std::size_t i = 1; i <= result.size(); ++i) {
    const std::int64_t left = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t right = i <= b.size() ? b[b.size() - i] : 1;
    if (left != right && left != 1 && right != 1) throw std::logic_error("dims do not broadcast");
    result[result.size() - i] = left == 1 ? right : left;
  }
  return result;
}

std::int64_t offset_broadcast(const Dims& dims, const Dims& index) {
  std::int64_t offset = 0;
  const std::size_t skipped = index.size() - dims.size();
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    offset = offset * dims[axis] + (dims[axis] == 1 ? 0 : index[axis + skipped]);
  }
  return offset;
}

std::int64_t offset_of(const Dims& dims, const Dims& index) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) offset = offset * dims[axis] + index[axis];
  return offset;
}

std::int64_t positive_axis(std::int64_t axis, std::int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

std::int64_t product(const Dims& dims, std::int64_t begin, std::int64_t end) {
  std::int64_t result = 1;
  for (std::int64_t axis = begin; axis < end; ++axis)
    result *= dims[static_cast<std::size_t>(axis)];
  return result;
}

}  // namespace backplane::reference

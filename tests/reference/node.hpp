// Arrays and nodes as the tests write them down.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/reference/element_type.hpp"

namespace backplane::reference {

using Dims = std::vector<std::int64_t>;

/// Elements of dims; 1 for a scalar.
std::int64_t element_count(const Dims& dims);

/// A tensor in double precision, row-major. `type` is the element type that it stands for. Strings
/// are numbers here (string_number), so that functions which only move elements need not know of
/// them.
struct Array {
  ElementType type = ElementType::Undefined;
  Dims dims;
  std::vector<double> values;

  std::int64_t rank() const { return static_cast<std::int64_t>(dims.size()); }
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};

/// An array of `dims` filled with `value`.
Array filled(ElementType type, Dims dims, double value = 0);

/// The number that stands for a string in this process, and back.
double string_number(const std::string& text);
const std::string& string_of(double number);

using AttributeValue = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                                    std::vector<float>, std::vector<std::string>, Array>;

inline std::vector<std::int64_t> ints(std::vector<std::int64_t> values) { return values; }
inline std::vector<float> floats(std::vector<float> values) { return values; }
inline std::vector<std::string> strings(std::vector<std::string> values) { return values; }

/// {"axis", 1}, {"alpha", 0.5f}, {"mode", "reflect"}, {"axes", ints({0, 2})}.
struct Attribute {
  std::string name;
  AttributeValue value;

  template <std::integral Int>
  Attribute(std::string its_name, Int number)
      : name(std::move(its_name)), value(static_cast<std::int64_t>(number)) {}
  template <std::floating_point Float>
  Attribute(std::string its_name, Float number)
      : name(std::move(its_name)), value(static_cast<float>(number)) {}
  Attribute(std::string its_name, const char* text)
      : name(std::move(its_name)), value(std::string(text)) {}
  template <class T>
  requires std::constructible_from<AttributeValue, T> &&
      (!std::integral<T>)&&(!std::floating_point<T>)&&(!std::convertible_to<T, const char*>)
          Attribute(std::string its_name, T other)
      : name(std::move(its_name)), value(std::move(other)) {}
};

/// One node. `inputs` and `outputs` are names of values, "" for an absent one; rows of one operator
/// leave them out.
struct Node {
  std::string op_type = {};
  std::string domain = {};
  std::int64_t opset = 21;
  std::vector<Attribute> attributes = {};
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};
};

}  // namespace backplane::reference

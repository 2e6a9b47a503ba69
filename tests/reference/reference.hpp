// What every operator should compute, in double precision and in the plainest way: no blocking, no
// shared code with a plugin, one loop over output elements where that is possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tests/reference/node.hpp"

namespace backplane::reference {

using Arrays = std::vector<Array>;

/// One node with its inputs.
struct Call {
  const Node& node;
  std::vector<const Array*> inputs;  // null: absent
  std::size_t output_count = 1;

  /// An input that must be there; throws std::logic_error.
  const Array& input(std::size_t index) const;
  /// nullptr where the input is absent.
  const Array* optional(std::size_t index) const;
  /// An input's values as integers.
  std::vector<std::int64_t> integers(std::size_t index) const;

  bool has(const std::string& name) const;
  std::int64_t integer(const std::string& name, std::int64_t absent) const;
  double number(const std::string& name, double absent) const;
  std::string text(const std::string& name, const std::string& absent) const;
  std::vector<std::int64_t> list(const std::string& name,
                                 const std::vector<std::int64_t>& absent = {}) const;
  const AttributeValue* find(const std::string& name) const;
};

using Function = Arrays (*)(const Call& call);

/// `call` by its operator's function. Integer results are wrapped to their type; floating-point
/// ones stay double. Throws std::logic_error for an operator without a function.
Arrays evaluate(const Call& call);

/// A file-level object that adds a function for some operators, as GoogleTest's TEST adds tests:
/// files of this folder are linked as objects, and no list of them is kept.
struct Registration {
  Registration(std::initializer_list<const char*> op_types, Function function);
};

// ---- Arithmetic of indices ----

/// Row-major strides, in elements.
Dims strides_of(const Dims& dims);
/// The dims that both broadcast to; throws std::logic_error when they do not.
Dims broadcast(const Dims& a, const Dims& b);
/// Calls body(index) for every index of dims, last axis fastest; once with {} for a scalar. A template, as references
/// take most of the time of some tests and call little bodies.
template <class Body>
void for_each_index(const Dims& dims, const Body& body) {
  const std::int64_t count = element_count(dims);
  Dims index(dims.size(), 0);
  for (std::int64_t done = 0; done < count; ++done) {
    body(std::as_const(index));
    for (std::size_t axis = dims.size(); axis > 0; --axis) {
      if (++index[axis - 1] < dims[axis - 1]) break;
      index[axis - 1] = 0;
    }
  }
}
/// The offset of an index; axes beyond the array's rank are dropped from the left, and those of
/// size 1 repeat.
std::int64_t offset_broadcast(const Dims& dims, const Dims& index);
/// The offset of an index of these dims.
std::int64_t offset_of(const Dims& dims, const Dims& index);
/// An axis counted from the front.
std::int64_t positive_axis(std::int64_t axis, std::int64_t rank);
/// Product of dims[begin, end).
std::int64_t product(const Dims& dims, std::int64_t begin, std::int64_t end);

}  // namespace backplane::reference

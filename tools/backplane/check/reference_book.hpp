// References by an operator's name, one file a family: the specification's words in double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/backplane/check/bare_kernel.hpp"

namespace backplane::cli::check {

/// What the node's outputs are; nothing for forms of it that the reference does not know.
using Reference = std::function<std::optional<std::vector<Tensor>>(const NodeCase&)>;
using ReferenceBook = std::map<std::string, Reference>;

void add_elementwise_references(ReferenceBook& book);
void add_generated_references(ReferenceBook& book);
void add_indexed_references(ReferenceBook& book);
void add_movement_references(ReferenceBook& book);
void add_pool_references(ReferenceBook& book);
void add_quantized_references(ReferenceBook& book);
void add_reduction_references(ReferenceBook& book);

/// A reference that gives one tensor.
using OneTensor = std::function<std::optional<Tensor>(const NodeCase&)>;
Reference one_output(OneTensor make);

/// An attribute with a default.
template <class T>
T attribute_or(const NodeCase& node, const std::string& name, T fallback) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? fallback : std::get<T>(found->second);
}

bool has_input(const NodeCase& node, std::size_t input);
inline const Tensor& input_of(const NodeCase& node, std::size_t input) {
  return node.inputs.at(input).tensor;
}
/// The elements of an input of integers.
std::vector<std::int64_t> integers_of(const NodeCase& node, std::size_t input);
/// Integers that are an attribute in some versions and an input in others; nothing where there are none.
std::optional<std::vector<std::int64_t>> integers_of(const NodeCase& node, const std::string& name,
                                                     std::size_t input);

/// An axis or place that may count from the end.
inline std::int64_t from_start(std::int64_t place, std::int64_t count) {
  return place < 0 ? place + count : place;
}
std::int64_t product(const Dims& dims);
/// Where an element stands, and back.
Dims place_of(std::int64_t index, const Dims& dims);
std::int64_t index_of(const Dims& place, const Dims& dims);
/// The element of a tensor of `dims` that stands at element `index` of `whole`, to which it broadcasts.
std::int64_t broadcast_source(std::int64_t index, const Dims& whole, const Dims& dims);
Dims broadcast_dims(const Dims& a, const Dims& b);

/// A tensor of other dims whose element at a place is that of `x` at `source(place)`, an index; 0 for a negative one.
Tensor moved(const Tensor& x, const Dims& dims,
             const std::function<std::int64_t(const Dims&)>& source);

}  // namespace backplane::cli::check

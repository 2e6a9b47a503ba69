// Facts of element types, and elements as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"

namespace backplane::cli {

/// Bits of an element; 0 for strings and what is not known.
int element_bits(ElementType type);

/// Compared by tolerance: floats and complex numbers.
bool is_floating(ElementType type);
bool is_complex(ElementType type);

/// ONNX's word: "float", "int64"; and its inverse (None when there is none).
std::string element_name(ElementType type);
ElementType element_named(const std::string& name);

/// Element `index` of dense data as a double: exact for all but 64-bit integers beyond 2^53. Not for strings
/// and complex numbers.
double element_at(ElementType type, const void* data, std::uint64_t index);

/// The bits of element `index`, for types of at most 64 bits.
std::uint64_t element_bits_at(ElementType type, const void* data, std::uint64_t index);

/// How far apart integer elements are; they themselves are compared as integers, of any size.
double integer_distance(ElementType type, const void* a, const void* b, std::uint64_t index);

/// Element `index` as text, of any type with elements in memory: all digits of an integer, of a float as many as tell it
/// from its neighbours.
std::string element_text(ElementType type, const void* data, std::uint64_t index);

/// The nearest float16 and bfloat16, as bits; for finite values of a normal size.
std::uint16_t float16_bits(float value);
std::uint16_t bfloat16_bits(float value);

/// "tensor(float)" as an element type; None for what is no tensor.
ElementType tensor_element(const std::string& type);

/// "[2,3]"
std::string shape_text(const std::vector<std::int64_t>& dims);

}  // namespace backplane::cli

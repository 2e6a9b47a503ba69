// Elements of tensors as numbers, whatever their type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/data_type.hpp"

namespace backplane::core {

/// True for types whose elements are numbers: all but strings. A complex number is two, real part first.
bool has_numbers(DataType type);

/// Number `index` of dense elements; exact where a double can hold it.
double read_number(DataType type, const std::byte* elements, std::uint64_t index);

/// Writes number `index`: rounded to the nearest, ties to even. Out of range becomes the largest of an integer or of a
/// float without infinity, infinity elsewhere; NaN becomes 0 where there is none.
void write_number(DataType type, std::byte* elements, std::uint64_t index, double number);

}  // namespace backplane::core

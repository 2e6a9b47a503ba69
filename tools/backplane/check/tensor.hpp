// Tensors as the suite holds them: dense, in the checker's memory.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "backplane/plugin_api.h"

namespace backplane::cli::check {

using Dims = std::vector<std::int64_t>;

/// A dense tensor of a type whose elements have whole bytes.
struct Tensor {
  bp_dtype dtype = BP_NONE;
  Dims dims;
  std::vector<std::uint8_t> data;

  std::int64_t size() const;
  /// Element `index` as a double: exact for all but 64-bit integers beyond 2^53.
  double at(std::int64_t index) const;
  /// Rounds as a cast does.
  void set(std::int64_t index, double number);
};

/// Bytes of an element; 0 for what the suite does not generate (strings, complex numbers, parts of a byte).
std::uint64_t element_bytes(bp_dtype dtype);
/// "tensor(float)", and its inverse: BP_NONE for what is no tensor of such a type.
std::string type_string(bp_dtype dtype);
bp_dtype dtype_of(const std::string& type_string);
bool is_floating(bp_dtype dtype);

/// Zeroed.
Tensor make_tensor(bp_dtype dtype, Dims dims);
Tensor int64s(const std::vector<std::int64_t>& values);
Tensor int64_scalar(std::int64_t value);

/// Random numbers; the same for the same seed on every machine.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : engine_(seed) {}
  /// In [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  double real(double low, double high);
  /// Integers are whole numbers of the range; unsigned ones and bools start at 0 where `low` is below.
  Tensor tensor(bp_dtype dtype, const Dims& dims, double low, double high);

 private:
  std::mt19937_64 engine_;
};

/// The host interface's value, and back. Borrows nothing.
Value to_value(const Tensor& tensor);
Tensor from_value(const ValueView& value);

/// Where `got` is not `want` within what the type can be held to; "" when it is.
std::string difference(const Tensor& got, const Tensor& want);

}  // namespace backplane::cli::check

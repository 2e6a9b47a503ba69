#include "tools/backplane/check/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/backplane/compare.hpp"
#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

ElementType element_type(bp_dtype dtype) { return static_cast<ElementType>(dtype); }

template <class T>
void store(std::uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// As arithmetic of T would give it: modulo 2 to the power of its bits, 0 for what is no number.
template <class T>
T wrapped(double number) {
  if (!std::isfinite(number)) return T(0);
  const double rest = std::fmod(number, 0x1p64);  // towards zero; has the sign of `number`
  const std::uint64_t bits = static_cast<std::uint64_t>(std::abs(rest));
  return static_cast<T>(rest < 0 ? 0 - bits : bits);
}

/// 0 and 1 are far apart for an integer, and nothing for a float whose neighbours are as large as `scale`.
Tolerance tolerance_of(bp_dtype dtype, double scale) {
  switch (dtype) {
    case BP_FLOAT16:
      return {1e-2, 2e-3 * scale};
    case BP_BFLOAT16:
      return {6e-2, 1e-2 * scale};
    case BP_DOUBLE:
      return {1e-6, 1e-8 * scale};
    default:
      return {1e-3, 1e-5 * scale};
  }
}

}  // namespace

std::int64_t Tensor::size() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

double Tensor::at(std::int64_t index) const {
  return element_at(element_type(dtype), data.data(), static_cast<std::uint64_t>(index));
}

void Tensor::set(std::int64_t index, double number) {
  std::uint8_t* to = data.data() + static_cast<std::uint64_t>(index) * element_bytes(dtype);
  switch (dtype) {
    case BP_FLOAT:
      return store(to, static_cast<float>(number));
    case BP_DOUBLE:
      return store(to, number);
    case BP_FLOAT16:
      return store(to, float16_bits(static_cast<float>(number)));
    case BP_BFLOAT16:
      return store(to, bfloat16_bits(static_cast<float>(number)));
    case BP_BOOL:
      return store(to, static_cast<std::uint8_t>(number != 0));
    case BP_INT8:
      return store(to, wrapped<std::int8_t>(number));
    case BP_UINT8:
      return store(to, wrapped<std::uint8_t>(number));
    case BP_INT16:
      return store(to, wrapped<std::int16_t>(number));
    case BP_UINT16:
      return store(to, wrapped<std::uint16_t>(number));
    case BP_INT32:
      return store(to, wrapped<std::int32_t>(number));
    case BP_UINT32:
      return store(to, wrapped<std::uint32_t>(number));
    case BP_INT64:
      return store(to, wrapped<std::int64_t>(number));
    case BP_UINT64:
      return store(to, wrapped<std::uint64_t>(number));
    default:
      run_failed("the suite writes no elements of type ", dtype);
  }
}

std::uint64_t element_bytes(bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
    case BP_INT8:
    case BP_UINT8:
      return 1;
    case BP_FLOAT16:
    case BP_BFLOAT16:
    case BP_INT16:
    case BP_UINT16:
      return 2;
    case BP_FLOAT:
    case BP_INT32:
    case BP_UINT32:
      return 4;
    case BP_DOUBLE:
    case BP_INT64:
    case BP_UINT64:
      return 8;
    default:
      return 0;
  }
}

std::string type_string(bp_dtype dtype) {
  return dtype == BP_NONE ? "" : "tensor(" + element_name(element_type(dtype)) + ")";
}

bp_dtype dtype_of(const std::string& type_string) {
  const auto dtype = static_cast<bp_dtype>(tensor_element(type_string));
  return element_bytes(dtype) == 0 ? BP_NONE : dtype;
}

bool is_floating(bp_dtype dtype) { return cli::is_floating(element_type(dtype)); }

Tensor make_tensor(bp_dtype dtype, Dims dims) {
  Tensor tensor{dtype, std::move(dims), {}};
  tensor.data.resize(static_cast<std::uint64_t>(tensor.size()) * element_bytes(dtype));
  return tensor;
}

Tensor int64s(const std::vector<std::int64_t>& values) {
  Tensor tensor = make_tensor(BP_INT64, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

Tensor int64_scalar(std::int64_t value) {
  Tensor tensor = int64s({value});
  tensor.dims.clear();
  return tensor;
}

std::int64_t Generator::integer(std::int64_t low, std::int64_t high) {
  // Not uniform_int_distribution: libraries differ in what they make of the same engine.
  return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
}

double Generator::real(double low, double high) {
  return low + (high - low) * static_cast<double>(engine_() >> 40) * 0x1p-24;
}

Tensor Generator::tensor(bp_dtype dtype, const Dims& dims, double low, double high) {
  Tensor made = make_tensor(dtype, dims);
  const bool starts_at_zero = dtype == BP_BOOL || dtype == BP_UINT8 || dtype == BP_UINT16 ||
                              dtype == BP_UINT32 || dtype == BP_UINT64;
  if (starts_at_zero) low = std::max(low, 0.0);
  for (std::int64_t i = 0; i < made.size(); ++i) {
    if (dtype == BP_BOOL) {
      made.set(i, static_cast<double>(integer(0, 1)));
    } else if (is_floating(dtype)) {
      made.set(i, real(low, high));
    } else {
      const double first = std::ceil(low), last = std::max(first, std::floor(high));
      made.set(i, static_cast<double>(
                      integer(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last))));
    }
  }
  return made;
}

Value to_value(const Tensor& tensor) {
  Value value = Value::tensor(element_type(tensor.dtype), tensor.dims);
  if (!tensor.data.empty())
    std::memcpy(value.mutable_bytes(), tensor.data.data(), tensor.data.size());
  return value;
}

Tensor from_value(const ValueView& value) {
  Tensor tensor = make_tensor(static_cast<bp_dtype>(value.element_type()), value.dims());
  if (!tensor.data.empty()) std::memcpy(tensor.data.data(), value.bytes(), tensor.data.size());
  return tensor;
}

std::string difference(const Tensor& got, const Tensor& want) {
  double scale = 1;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double size = std::abs(want.at(i));
    if (std::isfinite(size)) scale = std::max(scale, size);
  }
  if (got.dtype != want.dtype || got.dims != want.dims) {
    return text("is ", type_string(got.dtype), " ", shape_text(got.dims), " and should be ",
                type_string(want.dtype), " ", shape_text(want.dims));
  }
  const Tolerance tolerance = tolerance_of(want.dtype, scale);
  return compare(to_value(got), to_value(want), tolerance, true).difference;
}

}  // namespace backplane::cli::check

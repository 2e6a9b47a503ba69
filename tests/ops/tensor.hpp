// Tensors as the host interface takes them: element type, dims and packed bytes. Literals and
// random ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tests/reference/node.hpp"

namespace backplane::ops_test {

using reference::Array;
using reference::Dims;
using reference::ElementType;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
/// What no size reaches: sums and products of it do not fit.
constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();

/// `bytes` are as in TensorProto.raw_data; `strings` are used by String alone.
struct Tensor {
  ElementType type = ElementType::Undefined;
  Dims dims = {};
  std::string bytes = {};
  std::vector<std::string> strings = {};
};

Tensor to_tensor(const Array& array);
/// 64-bit integers beyond 2^53 are rounded.
Array to_array(const Tensor& tensor);

/// Literals. Throw std::logic_error when the number of values is not that of dims.
Tensor tensor(ElementType type, Dims dims, std::vector<double> values);
Tensor f32(Dims dims, std::vector<double> values);
Tensor f64(Dims dims, std::vector<double> values);
Tensor f16(Dims dims, std::vector<double> values);
Tensor bf16(Dims dims, std::vector<double> values);
Tensor i64(Dims dims, std::vector<std::int64_t> values);
/// A one-dimensional int64 tensor, as shapes and axes are.
Tensor i64(std::vector<std::int64_t> values);
Tensor i32(Dims dims, std::vector<double> values);
Tensor i8(Dims dims, std::vector<double> values);
Tensor u8(Dims dims, std::vector<double> values);
Tensor boolean(Dims dims, std::vector<double> values);
Tensor text(Dims dims, std::vector<std::string> values);

/// "float[2,3] {1, 2, ...}", with at most `count` values.
std::string describe(const Tensor& tensor, int count = 8);

/// Numbers that are the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  /// In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high);
  double real(double low, double high);
  /// True in one of `of` cases.
  bool one_in(int of) { return integer(1, of) == 1; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(list.size()) - 1))];
  }
  template <class T>
  const T& pick(std::vector<T>&& list) = delete;  // the result would not outlive it
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + integer(0, static_cast<std::int64_t>(list.size()) - 1));
  }

  /// One of the sizes at which loops have their seams: 1, 2, 3, 5, 7, 8, 13, 16, 17, 33.
  std::int64_t size();
  /// Dims of `rank` such sizes with at most `most` elements; one in twelve has an axis of size 0
  /// when `may_be_empty`.
  Dims dims(std::int64_t rank, std::int64_t most = 2000, bool may_be_empty = true);
  /// An axis of a rank, in half of the cases counted from the end.
  std::int64_t axis(std::int64_t rank);
  /// Dims that broadcast to `dims`: axes of size 1, and shorter ones.
  Dims broadcastable(const Dims& dims);
  /// An order of 0 .. count-1.
  Dims permutation(std::int64_t count);

  /// Values in [low, high], as far as the type reaches; integers are whole.
  Tensor tensor(ElementType type, const Dims& dims, double low = -3, double high = 3);
  /// Int8 or UInt8, as of trained weights: most are near the middle, a few at an end, some of those one beside the other.
  Tensor trained_bytes(ElementType type, const Dims& dims);
  /// int64 or int32 numbers in [low, high].
  Tensor indices(const Dims& dims, std::int64_t low, std::int64_t high,
                 ElementType type = ElementType::Int64);

 private:
  std::uint64_t state_;
};

using Types = std::vector<ElementType>;

/// float, double, float16, bfloat16.
const Types& float_types();
/// All integers of 8 bits and more.
const Types& integer_types();
/// Both.
const Types& number_types();
/// Numbers, bool and string.
const Types& all_types();

}  // namespace backplane::ops_test

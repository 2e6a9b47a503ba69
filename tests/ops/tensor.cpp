#include "tests/ops/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace backplane::ops_test {
namespace {

std::size_t storage_bytes(ElementType type, std::int64_t count) {
  return static_cast<std::size_t>((count * reference::bits(type) + 7) / 8);
}

/// Little-endian; elements of fewer than 8 bits are packed from the low bits up.
void put(std::string& bytes, ElementType type, std::int64_t index, std::uint64_t pattern) {
  const int width = reference::bits(type);
  if (width < 8) {
    const std::int64_t bit = index * width;
    char& byte = bytes[static_cast<std::size_t>(bit / 8)];
    byte = static_cast<char>(static_cast<unsigned char>(byte) | (pattern << (bit % 8)));
    return;
  }
  for (int b = 0; b < width / 8; ++b) {
    bytes[static_cast<std::size_t>(index * (width / 8) + b)] =
        static_cast<char>((pattern >> (8 * b)) & 0xFFu);
  }
}

std::uint64_t get(const std::string& bytes, ElementType type, std::int64_t index) {
  const int width = reference::bits(type);
  std::uint64_t pattern = 0;
  if (width < 8) {
    const std::int64_t bit = index * width;
    pattern = static_cast<unsigned char>(bytes[static_cast<std::size_t>(bit / 8)]);
    return (pattern >> (bit % 8)) & ((1u << width) - 1);
  }
  for (int b = width / 8; b > 0; --b) {
    const auto at = static_cast<std::size_t>(index * (width / 8) + b - 1);
    pattern = (pattern << 8) | static_cast<unsigned char>(bytes[at]);
  }
  return pattern;
}

void check_count(const Dims& dims, std::size_t count) {
  if (static_cast<std::size_t>(reference::element_count(dims)) != count) {
    throw std::logic_error("a literal tensor has " + std::to_string(count) +
                           " values for dims of " + std::to_string(reference::element_count(dims)) +
                           " elements");
  }
}

}  // namespace

Tensor to_tensor(const Array& array) {
  Tensor result{array.type, array.dims, {}, {}};
  if (array.type == ElementType::String) {
    for (const double number : array.values) result.strings.push_back(reference::string_of(number));
    return result;
  }
  result.bytes.resize(storage_bytes(array.type, array.size()));
  for (std::int64_t i = 0; i < array.size(); ++i) {
    put(result.bytes, array.type, i, reference::encode(array.type, array.values[i]));
  }
  return result;
}

Array to_array(const Tensor& tensor) {
  Array result{tensor.type, tensor.dims, {}};
  for (const std::string& word : tensor.strings) {
    result.values.push_back(reference::string_number(word));
  }
  if (tensor.type == ElementType::String) return result;
  const std::int64_t count = reference::element_count(tensor.dims);
  result.values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    result.values.push_back(reference::decode(tensor.type, get(tensor.bytes, tensor.type, i)));
  }
  return result;
}

Tensor tensor(ElementType type, Dims dims, std::vector<double> values) {
  check_count(dims, values.size());
  return to_tensor({type, std::move(dims), std::move(values)});
}

Tensor f32(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Float, std::move(dims), std::move(values));
}
Tensor f64(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Double, std::move(dims), std::move(values));
}
Tensor f16(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Float16, std::move(dims), std::move(values));
}
Tensor bf16(Dims dims, std::vector<double> values) {
  return tensor(ElementType::BFloat16, std::move(dims), std::move(values));
}
Tensor i32(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Int32, std::move(dims), std::move(values));
}
Tensor i8(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Int8, std::move(dims), std::move(values));
}
Tensor u8(Dims dims, std::vector<double> values) {
  return tensor(ElementType::UInt8, std::move(dims), std::move(values));
}
Tensor boolean(Dims dims, std::vector<double> values) {
  return tensor(ElementType::Bool, std::move(dims), std::move(values));
}

Tensor i64(Dims dims, std::vector<std::int64_t> values) {
  check_count(dims, values.size());
  Tensor result{ElementType::Int64, std::move(dims), {}, {}};
  result.bytes.resize(values.size() * 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    put(result.bytes, ElementType::Int64, static_cast<std::int64_t>(i),
        static_cast<std::uint64_t>(values[i]));
  }
  return result;
}

Tensor i64(std::vector<std::int64_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return i64(Dims{count}, std::move(values));
}

Tensor text(Dims dims, std::vector<std::string> values) {
  check_count(dims, values.size());
  return {ElementType::String, std::move(dims), {}, std::move(values)};
}

std::string describe(const Tensor& tensor, int count) {
  std::ostringstream out;
  out << reference::name(tensor.type) << '[';
  for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis) {
    out << (axis == 0 ? "" : ",") << tensor.dims[axis];
  }
  out << "] {";
  const Array array = to_array(tensor);
  out.precision(9);
  for (std::int64_t i = 0; i < array.size(); ++i) {
    if (i > 0) out << ", ";
    if (i == count) {
      out << "...";
      break;
    }
    if (tensor.type == ElementType::String) {
      out << '"' << tensor.strings[static_cast<std::size_t>(i)] << '"';
    } else {
      out << array.values[i];
    }
  }
  out << '}';
  return out.str();
}

/// SplitMix64.
std::uint64_t Random::bits() {
  state_ += 0x9E3779B97F4A7C15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  const auto span = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int64_t>(bits() % span);
}

double Random::real(double low, double high) {
  return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
}

std::int64_t Random::size() { return pick({1, 2, 3, 5, 7, 8, 13, 16, 17, 33}); }

Dims Random::dims(std::int64_t rank, std::int64_t most, bool may_be_empty) {
  Dims result;
  for (std::int64_t axis = 0; axis < rank; ++axis) result.push_back(size());
  while (reference::element_count(result) > most) {
    std::int64_t& largest = *std::max_element(result.begin(), result.end());
    largest = (largest + 1) / 2;
  }
  if (may_be_empty && rank > 0 && one_in(12)) {
    result[static_cast<std::size_t>(integer(0, rank - 1))] = 0;
  }
  return result;
}

std::int64_t Random::axis(std::int64_t rank) {
  const std::int64_t result = integer(0, rank - 1);
  return one_in(2) ? result : result - rank;
}

Dims Random::broadcastable(const Dims& dims) {
  Dims result = dims;
  const std::int64_t way = integer(0, 3);
  if (way == 0) return result;
  const std::int64_t dropped = way == 1 ? 0 : integer(0, static_cast<std::int64_t>(dims.size()));
  result.erase(result.begin(), result.begin() + dropped);
  for (std::int64_t& dim : result) {
    if (way != 2 && one_in(2)) dim = 1;
  }
  return result;
}

Dims Random::permutation(std::int64_t count) {
  Dims result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  for (std::int64_t i = count; i > 1; --i) {
    std::swap(result[static_cast<std::size_t>(i - 1)],
              result[static_cast<std::size_t>(integer(0, i - 1))]);
  }
  return result;
}

Tensor Random::tensor(ElementType type, const Dims& dims, double low, double high) {
  Array array{type, dims, {}};
  const std::int64_t count = reference::element_count(dims);
  for (std::int64_t i = 0; i < count; ++i) {
    if (type == ElementType::String) {
      array.values.push_back(reference::string_number("s" + std::to_string(integer(0, 20))));
    } else if (type == ElementType::Bool) {
      array.values.push_back(static_cast<double>(integer(0, 1)));
    } else if (reference::is_integer(type)) {
      const auto least =
          static_cast<std::int64_t>(std::fmax(std::ceil(low), reference::lowest(type)));
      const auto most =
          static_cast<std::int64_t>(std::fmin(std::floor(high), reference::highest(type)));
      array.values.push_back(static_cast<double>(integer(least, std::max(least, most))));
    } else {
      array.values.push_back(reference::round_to(type, real(low, high)));
    }
  }
  return to_tensor(array);
}

Tensor Random::trained_bytes(ElementType type, const Dims& dims) {
  const double middle = type == ElementType::Int8 ? 0 : 128;
  Tensor made = tensor(type, dims, middle - 60, middle + 60);
  const auto count = static_cast<std::int64_t>(made.bytes.size());
  for (std::int64_t i = integer(0, 400); i < count; i += integer(1, 2000)) {
    const double end = one_in(2) ? reference::lowest(type) : reference::highest(type);
    const auto byte = static_cast<char>(static_cast<std::int32_t>(end));
    made.bytes[static_cast<std::size_t>(i)] = byte;
    const std::int64_t beside = i + (one_in(2) ? dims.back() : 1);
    if (beside < count && one_in(2)) made.bytes[static_cast<std::size_t>(beside)] = byte;
  }
  return made;
}

Tensor Random::indices(const Dims& dims, std::int64_t low, std::int64_t high, ElementType type) {
  Array array{type, dims, {}};
  const std::int64_t count = reference::element_count(dims);
  for (std::int64_t i = 0; i < count; ++i)
    array.values.push_back(static_cast<double>(integer(low, high)));
  return to_tensor(array);
}

const Types& float_types() {
  static const Types types = {ElementType::Float, ElementType::Double, ElementType::Float16,
                              ElementType::BFloat16};
  return types;
}

const Types& integer_types() {
  static const Types types = {ElementType::Int8,   ElementType::Int16, ElementType::Int32,
                              ElementType::Int64,  ElementType::UInt8, ElementType::UInt16,
                              ElementType::UInt32, ElementType::UInt64};
  return types;
}

const Types& number_types() {
  static const Types types = [] {
    Types all = float_types();
    all.insert(all.end(), integer_types().begin(), integer_types().end());
    return all;
  }();
  return types;
}

const Types& all_types() {
  static const Types types = [] {
    Types all = number_types();
    all.insert(all.end(), {ElementType::Bool, ElementType::String});
    return all;
  }();
  return types;
}

}  // namespace backplane::ops_test

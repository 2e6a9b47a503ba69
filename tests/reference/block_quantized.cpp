// Operators of com.microsoft whose weights are numbers of 4 or 8 bits in blocks: MatMulNBits, GatherBlockQuantized.
#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

/// Number `index` of rows of packed bytes, the lowest bits first.
double number_at(const Array& bytes, std::int64_t bits, std::int64_t index) {
  const auto byte =
      static_cast<std::int64_t>(bytes.values[static_cast<std::size_t>(index * bits / 8)]);
  return static_cast<double>(byte >> (index * bits % 8) & ((1 << bits) - 1));
}

Arrays matmul_nbits(const Call& call) {
  const Array& a = call.input(0);
  const Array* zeros = call.optional(3);
  const Array* bias = call.optional(5);
  const std::int64_t depth = call.integer("K", 0);
  const std::int64_t columns = call.integer("N", 0);
  const std::int64_t bits = call.integer("bits", 4);
  const std::int64_t block = call.integer("block_size", 0);
  const std::int64_t blocks = (depth + block - 1) / block;
  const std::int64_t zeros_of_column = (blocks * bits + 7) / 8 * 8 / bits;
  const auto weight = [&](std::int64_t k, std::int64_t column) {
    const std::int64_t at = column * blocks + k / block;
    double zero = static_cast<double>(1 << (bits - 1));
    if (zeros != nullptr && zeros->type == ElementType::UInt8) {
      zero = number_at(*zeros, bits, column * zeros_of_column + k / block);
    } else if (zeros != nullptr) {
      zero = zeros->values[static_cast<std::size_t>(at)];
    }
    return (number_at(call.input(1), bits, column * blocks * block + k) - zero) *
           call.input(2).values[static_cast<std::size_t>(at)];
  };
  Array y{a.type, a.dims, {}};
  y.dims.back() = columns;
  const std::int64_t rows = product(a.dims, 0, static_cast<std::int64_t>(a.dims.size()) - 1);
  y.values.assign(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const double w = weight(k, column);
      for (std::int64_t row = 0; row < rows; ++row) {
        y.values[static_cast<std::size_t>(row * columns + column)] +=
            a.values[static_cast<std::size_t>(row * depth + k)] * w;
      }
    }
    for (std::int64_t row = 0; bias != nullptr && row < rows; ++row)
      y.values[static_cast<std::size_t>(row * columns + column)] +=
          bias->values[static_cast<std::size_t>(column)];
  }
  return {y};
}

const Registration kMatMulNBits({"MatMulNBits"}, matmul_nbits);

}  // namespace
}  // namespace backplane::reference

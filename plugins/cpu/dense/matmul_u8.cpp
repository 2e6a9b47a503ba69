#include "plugins/cpu/dense/matmul_u8.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/zero_point_tail.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// A quad that begins in a row ends at most so many bytes behind it.
constexpr std::int64_t kBehind = 3;

std::uint64_t copy_bytes(std::int64_t depth) {
  return align64(static_cast<std::uint64_t>(RowsU8::kCopied * depth + kBehind));
}

}  // namespace

MatMulU8::MatMulU8(std::int64_t rows, std::int64_t depth, std::int64_t columns, Isa isa,
                   unsigned threads)
    : rows_(rows), depth_(depth), columns_(columns), isa_(isa) {
  ShapeU8 shape;
  shape.rows = rows;
  shape.depth = (depth + 3) / 4 * 4;
  shape.columns = columns;
  product_ = EitherProductU8(shape, isa, threads);
}

std::uint64_t MatMulU8::packed_bytes() const {
  return ZeroPointTail::end(product_.packed_bytes(), columns_);
}

void MatMulU8::pack(const WeightsU8& weights, bool constant, void* packed,
                    const sdk::Threads& threads) const {
  const auto* w = static_cast<const std::uint8_t*>(weights.data.data) + weights.offset;
  const std::uint8_t flip = weights.data.is_signed ? 0 : 0x80;
  const ZeroPointTail tail = ZeroPointTail::behind(packed, product_.packed_bytes(), columns_);
  *tail.has_zeros = 0;
  for (std::int64_t j = 0; j < columns_; ++j) {
    const std::int64_t at = weights.zero_offset + j * weights.zero_step;
    tail.zeros[j] = weights.zero.at(at) - (weights.data.is_signed ? 0 : 128);
    if (tail.zeros[j] != 0) *tail.has_zeros = 1;
  }
  product_.pack_rows(w, weights.row_stride, depth_, flip, constant, tail.sums, packed, threads);
  for (std::int64_t j = 0; j < columns_; ++j)
    tail.sums[j] -= static_cast<std::int32_t>(depth_ * tail.zeros[j]);
}

bool MatMulU8::has_zeros(const void* packed) const {
  return *ZeroPointTail::behind(packed, product_.packed_bytes(), columns_).has_zeros != 0;
}

std::uint64_t MatMulU8::rows_bytes(std::int64_t count) const {
  return 2 * align64(static_cast<std::uint64_t>(count) * 4) + copy_bytes(depth_);
}

RowsU8 MatMulU8::rows_of(const Bytes& a, std::int64_t count, bool sums, void* memory,
                         const sdk::Threads& threads) const {
  const std::uint64_t table = align64(static_cast<std::uint64_t>(count) * 4);
  auto* numbers = reinterpret_cast<std::int32_t*>(static_cast<char*>(memory) + table);
  auto* copy = static_cast<std::uint8_t*>(memory) + 2 * table;
  RowsU8 rows;
  rows.data = static_cast<const std::uint8_t*>(a.data);
  rows.count = count;
  rows.depth = depth_;
  rows.is_signed = a.is_signed;
  rows.minus_zeros = static_cast<const std::int32_t*>(memory);
  if (depth_ % 4 != 0) {
    // What is read behind another row's end is the next rows, and meets weights of zero.
    const std::int64_t copied = std::min(count, RowsU8::kCopied);
    const auto bytes = static_cast<std::size_t>(copied * depth_);
    std::memcpy(copy, rows.data + (count - copied) * depth_, bytes);
    std::memset(copy + bytes, 0, kBehind);
    rows.copy = copy;
  }
  if (sums) {
    const SumBytes sum = sum_bytes(isa_);
    const std::uint8_t flip = a.is_signed ? 0x80 : 0;
    split_loop(threads, count, 0.05 * static_cast<double>(depth_) + 2, 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   const std::uint32_t total = sum(rows.data + r * depth_, depth_, flip);
                   numbers[r] = static_cast<std::int32_t>(0U - total);
                 }
               });
    rows.minus_sums = numbers;
  }
  return rows;
}

void MatMulU8::run(const RowsU8& a, std::int64_t first_row, const void* packed, FinishSums finish,
                   void* y, void* scratch, const sdk::Threads& threads) const {
  const ZeroPointTail tail = ZeroPointTail::behind(packed, product_.packed_bytes(), columns_);
  if (a.zero_step != 0 || *a.minus_zeros != 0)
    finish.terms[0] = {a.minus_zeros + first_row * a.zero_step, a.zero_step, tail.sums};
  if (a.minus_sums != nullptr && *tail.has_zeros != 0)
    finish.terms[1] = {a.minus_sums + first_row, 1, tail.zeros};
  finish.choose(isa_);
  ArgsU8 args;
  args.packed = packed;
  args.finish.sums = true;
  args.x_signed = a.is_signed;
  args.out = y;
  args.out_stride = columns_;
  args.after = &finish;
  product_.run(args, threads, scratch,
               [&](const std::uint8_t** table, std::int64_t, std::int64_t row, std::int64_t count) {
                 for (std::int64_t r = 0; r < count; ++r) table[r] = a.at(first_row + row + r);
               });
}

}  // namespace backplane::cpu

#include "plugins/cpu/dense/fixed_product.hpp"

#include <algorithm>
#include <utility>

namespace backplane::cpu {
namespace {

constexpr std::size_t kLineFloats = 16;

}  // namespace

FixedProduct::FixedProduct(const float* weights, std::int64_t pitch, std::int64_t columns,
                           std::int64_t depth, float alpha, std::vector<float> bias, Isa isa,
                           const sdk::Threads& threads)
    : columns_(columns), depth_(depth), bias_(std::move(bias)), isa_(isa) {
  if (columns == 0 || depth == 0) return;
  MatMulShape shape;
  shape.columns = columns;
  shape.depth = depth;
  shape.b_depth_stride = 1;
  shape.b_column_stride = pitch;
  const MatMulF32 product(shape, true, Activation{}, isa, 1);
  packed_.resize(static_cast<std::size_t>(product.packed_floats()) + kLineFloats);
  packed_begin_ = (64 - reinterpret_cast<std::uintptr_t>(packed_.data()) % 64) / 4 % kLineFloats;
  product.pack(weights, alpha, packed_.data() + packed_begin_, threads);
}

MatMulF32 FixedProduct::plan(std::int64_t rows, unsigned threads) const {
  MatMulShape shape;  // of some size, where the product is of none and never run
  shape.rows = std::max<std::int64_t>(1, rows);
  shape.columns = std::max<std::int64_t>(1, columns_);
  shape.depth = std::max<std::int64_t>(1, depth_);
  return MatMulF32(shape, true, Activation{}, isa_, threads);
}

void FixedProduct::run(const MatMulF32& plan, const float* x, std::int64_t x_pitch, float* y,
                       std::int64_t y_pitch, void* workspace, const sdk::Threads& threads) const {
  const std::int64_t offset = 0;
  MatMulArgs args;
  args.a = x;
  args.a_stride = x_pitch;
  args.a_offsets = &offset;
  args.packed = packed_.data() + packed_begin_;
  args.bias = bias_.empty() ? nullptr : bias_.data();
  args.y = y;
  args.y_stride = y_pitch;
  args.y_offsets = &offset;
  plan.run(args, workspace, threads);
}

}  // namespace backplane::cpu

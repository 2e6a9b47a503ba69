#include "plugins/cpu/dense/line_product.hpp"

#include <algorithm>

#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

MatMulShape transposed_shape(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                             ProductPrecision precision) {
  MatMulShape shape;
  shape.rows = rows;
  shape.depth = depth;
  shape.columns = columns;
  shape.b_transposed = true;
  shape.rounds = precision == ProductPrecision::kBFloat;
  shape.weight_type = product_weights(precision);
  return shape;
}

}  // namespace

LineProduct<float>::LineProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                                ProductPrecision precision, Isa isa, unsigned threads)
    : depth_(depth),
      product_(transposed_shape(rows, depth, columns, precision), true, Activation{}, isa,
               threads) {}

void LineProduct<float>::pack(Weights weights, std::int64_t first, float* packed,
                              const sdk::Threads& threads) const {
  product_.pack(weights + first * depth_, 1.0f, packed, threads);
}

void LineProduct<float>::run(const float* a, const float* packed, const float* bias, float* y,
                             char* workspace, const sdk::Threads& threads) const {
  const std::int64_t offset = 0;
  MatMulArgs args;
  args.a = a;
  args.a_stride = depth_;
  args.a_offsets = &offset;
  args.b_offsets = &offset;
  args.packed = packed;
  args.bias = bias;
  args.y = y;
  product_.run(args, workspace, threads);
}

void LineProduct<double>::pack(Weights weights, std::int64_t first, double* packed,
                               const sdk::Threads&) const {
  std::copy_n(weights + first * depth_, packed_size(), packed);
}

void LineProduct<double>::run(const double* a, const double* packed, const double* bias, double* y,
                              char*, const sdk::Threads& threads) const {
  split_loop(threads, rows_ * columns_, static_cast<double>(depth_), 1,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t i = begin; i < end; ++i) {
                 const std::int64_t column = i % columns_;
                 double sum = bias != nullptr ? bias[column] : 0.0;
                 for (std::int64_t k = 0; k < depth_; ++k)
                   sum += a[i / columns_ * depth_ + k] * packed[column * depth_ + k];
                 y[i] = sum;
               }
             });
}

}  // namespace backplane::cpu

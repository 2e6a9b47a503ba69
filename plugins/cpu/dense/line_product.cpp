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

void LineProduct<float>::run(const float* a, const LiveRows& live, const float* packed,
                             const float* bias, float* y, char* workspace,
                             const sdk::Threads& threads) const {
  const std::int64_t offset = 0;
  MatMulArgs args;
  args.a = a;
  args.a_stride = depth_;
  args.a_offsets = &offset;
  args.b_offsets = &offset;
  args.packed = packed;
  args.bias = bias;
  args.y = y;
  args.backwards = live.index % 2 == 1;
  product_.run(args, workspace, threads);
}

void LineProduct<double>::pack(Weights weights, std::int64_t first, double* packed,
                               const sdk::Threads&) const {
  std::copy_n(weights + first * depth_, packed_size(), packed);
}

void LineProduct<double>::run(const double* a, const LiveRows&, const double* packed,
                              const double* bias, double* y, char*,
                              const sdk::Threads& threads) const {
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

LineProduct<std::uint8_t>::LineProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                                       ProductPrecision, Isa isa, unsigned threads)
    : product_(rows, depth, columns, isa, threads), loops_(&quantize_loops(isa)) {}

std::int64_t LineProduct<std::uint8_t>::packed_size() const {
  const std::uint64_t scales = static_cast<std::uint64_t>(product_.columns()) * sizeof(float);
  return scales_place() + static_cast<std::int64_t>(align64(scales) / sizeof(float));
}

std::uint64_t LineProduct<std::uint8_t>::workspace_bytes() const {
  return row_bytes() + product_.rows_bytes(product_.rows()) + product_.scratch_bytes();
}

void LineProduct<std::uint8_t>::pack(const Weights& weights, std::int64_t first, float* packed,
                                     const sdk::Threads& threads) const {
  const std::int64_t columns = product_.columns();
  const std::int64_t matrix = first / columns;
  WeightsU8 bytes;
  bytes.data = weights.data;
  bytes.offset = matrix * product_.depth() * columns;
  bytes.row_stride = columns;
  bytes.zero = weights.zeros;
  bytes.zero_offset = matrix * weights.zero_count;
  bytes.zero_step = weights.zero_count == 1 ? 0 : 1;
  product_.pack(bytes, true, packed, threads);
  float* scales = packed + scales_place();
  const float* from = weights.scales + matrix * weights.scale_count;
  for (std::int64_t j = 0; j < columns; ++j) scales[j] = from[weights.scale_count == 1 ? 0 : j];
}

ByteRange LineProduct<std::uint8_t>::range_of(const float* a, const LiveRows& live) const {
  const std::int64_t depth = product_.depth();
  float least = 0;
  float greatest = 0;
  if (live.lengths == nullptr) {
    loops_->widen(a, live.end * depth, least, greatest);
  } else {
    for (std::int64_t r = 0; r < live.end; ++r) {
      if (live.has(r)) loops_->widen(a + r * depth, depth, least, greatest);
    }
  }
  return {least, greatest};
}

void LineProduct<std::uint8_t>::run(const float* a, const LiveRows& live, const float* packed,
                                    const float* bias, float* y, char* workspace,
                                    const sdk::Threads& threads) const {
  const ByteRange range = range_of(a, live);
  auto* bytes = reinterpret_cast<std::uint8_t*>(workspace);
  const QuantizeParams params = range.params();
  split_elements(threads, product_.rows() * product_.depth(), 0.3,
                 [&](std::int64_t begin, std::int64_t end) {
                   loops_->to_u8(params, a + begin, bytes + begin, end - begin);
                 });
  const auto zero_byte = static_cast<std::uint8_t>(range.zero_point);
  Bytes data, zeros;
  data.data = bytes;
  zeros.data = &zero_byte;
  char* memory = workspace + row_bytes();
  const RowsU8 rows =
      product_.rows_of(data, product_.rows(), zeros, false, product_.has_zeros(packed), memory,
                       threads, [](std::int64_t) { return std::int64_t{0}; });
  FinishSums finish;
  finish.floats = true;
  finish.to_floats.factor = range.scale;
  finish.to_floats.scale = packed + scales_place();
  finish.to_floats.scale_step = 1;
  finish.to_floats.bias = bias;
  product_.run(rows, 0, packed, finish, y, memory + product_.rows_bytes(product_.rows()), threads);
}

}  // namespace backplane::cpu

#include "plugins/cpu/dense/matmul_f32.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "plugins/cpu/dense/attention_rows.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

// Multiply-adds that pay for another thread, columns that are not shared by threads, and parts for each thread.
constexpr int64_t kPartWork = 100'000;
constexpr int64_t kPartColumns = 64;
constexpr int64_t kPartsPerThread = 4;

MatMulShape merged(MatMulShape shape, bool a_dense) {
  if (shape.shared_b && a_dense) {
    shape.rows *= shape.batch;
    shape.batch = 1;
  }
  return shape;
}

ProductShape product_shape(const MatMulShape& shape) {
  ProductShape product;
  product.rows = shape.rows;
  product.depth = shape.depth;
  product.columns = shape.columns;
  if (shape.rounds) {
    product.pairs = true;
    product.depth = ceil_div(shape.depth, 2);
    product.rounded_depth = shape.depth;
  } else {
    product.weight_type = shape.weight_type;
  }
  return product;
}

}  // namespace

MatMulF32::MatMulF32(const MatMulShape& shape, bool a_dense, const Activation& activation, Isa isa,
                     unsigned threads)
    : shape_(merged(shape, a_dense)),
      isa_(isa),
      many_(shape_.batch >= 2 * static_cast<int64_t>(threads) ||
            (shape_.batch > 1 && threads == 1)),
      threads_(threads),
      activation_(activation),
      product_(product_shape(shape_), activation, isa, many_ ? 1 : threads) {
  if (shape_.rows <= kMostProductRows) plan_few_rows();
}

void MatMulF32::plan_few_rows() {
  const WeightView b = view(nullptr, 1);
  few_along_columns_ = b.column_stride == 1 && (shape_.columns > 1 || b.depth_stride != 1);
  if (few_along_columns_) {
    few_rows_ = row_product_kernels(isa_, sdk::DataType::Float)->along_columns;
  } else if (b.depth_stride == 1) {
    few_rows_ = row_product_kernels(isa_, sdk::DataType::Float)->along_depth;
  }
  const int64_t work = shape_.batch * shape_.rows * shape_.depth * shape_.columns;
  const int64_t wanted = std::min(kPartsPerThread * threads_, work / kPartWork);
  if (threads_ == 1 || wanted <= 1) return;
  few_parts_ = std::clamp<int64_t>(ceil_div(wanted, shape_.batch), 1,
                                   ceil_div(shape_.columns, kPartColumns));
  few_grain_ = static_cast<uint64_t>(std::max<int64_t>(1, shape_.batch * few_parts_ / wanted));
}

uint64_t MatMulF32::workspace_bytes(bool packed) const {
  const uint64_t scratch = product_.scratch_bytes() * (many_ ? threads_ : 1);
  if (packed) return scratch;
  if (reads_b()) return 0;
  const auto matrix = align64(static_cast<uint64_t>(product_.packed_floats()) * 4);
  // Matrices of its own for each product are packed by the thread that uses them.
  return scratch + matrix * (many_ && !shape_.shared_b ? threads_ : 1);
}

WeightView MatMulF32::view(const void* b, float alpha) const {
  WeightView weights;
  weights.data = b;
  weights.depth = shape_.depth;
  if (shape_.b_depth_stride != 0) {
    weights.depth_stride = shape_.b_depth_stride;
    weights.column_stride = shape_.b_column_stride;
  } else {
    weights.depth_stride = shape_.b_transposed ? 1 : shape_.columns;
    weights.column_stride = shape_.b_transposed ? shape_.depth : 1;
  }
  weights.scale = alpha;
  return weights;
}

void MatMulF32::pack(const float* b, float alpha, void* packed, const sdk::Threads& threads) const {
  const WeightView weights = view(b, alpha);
  const Panels& panels = product_.panels();
  if (shape_.rounds || shape_.weight_type == sdk::DataType::Float)
    return product_.pack(weights, 0, static_cast<float*>(packed), threads);
  const HalfConversion& narrowing = half_conversion(isa_, shape_.weight_type);
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    const int64_t count = shape_.depth * panel.vectors * panels.lanes();
    const auto floats = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(count));
    pack_panel(panels, weights, panel, floats.get());
    auto* to = static_cast<uint16_t*>(packed) + panel.column * shape_.depth;
    narrowing.from_float(floats.get(), to, count);
  });
}

void MatMulF32::pack(const uint16_t* b, uint16_t* packed, const sdk::Threads& threads) const {
  const WeightView weights = view(b, 1);
  const Panels& panels = product_.panels();
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    pack_panel(panels, weights, panel, packed + panel.column * shape_.depth);
  });
}

void MatMulF32::pack(const sdk::Tensor& b, float alpha, void* packed,
                     const sdk::Threads& threads) const {
  if (shape_.rounds) {
    return pack_pairs(product_.panels(), view(b.bytes_data(), alpha), b.type(), isa_,
                      static_cast<uint32_t*>(packed), threads);
  }
  if (b.type() == sdk::DataType::Float) return pack(b.data<float>(), alpha, packed, threads);
  pack(b.data<uint16_t>(), static_cast<uint16_t*>(packed), threads);
}

void MatMulF32::run_one(const MatMulArgs& args, const void* packed, int64_t index, void* scratch,
                        const sdk::Threads& threads) const {
  const int64_t y_offset = index * shape_.rows * shape_.columns;
  const float* a = args.a + args.a_offsets[index];
  ProductArgs product;
  product.packed = packed;
  product.backwards = args.backwards;
  product.bias = args.bias;
  product.residual = args.residual != nullptr ? args.residual + y_offset : nullptr;
  product.residual_stride = shape_.columns;
  product.out = args.y + (args.y_offsets != nullptr ? args.y_offsets[index] : y_offset);
  product.out_stride = args.y_offsets != nullptr ? args.y_stride : shape_.columns;
  product_.run(product, 0, shape_.rows, threads, scratch,
               [&](const float** table, int64_t, int64_t row, int64_t count) {
                 for (int64_t i = 0; i < count; ++i) table[i] = a + (row + i) * args.a_stride;
               });
}

void MatMulF32::run_few_rows(const MatMulArgs& args, const sdk::Threads& threads) const {
  const WeightView b = view(nullptr, 1);
  const int64_t stride = few_along_columns_ ? b.depth_stride : b.column_stride;
  const int64_t blocks = ceil_div(shape_.columns, kPartColumns);
  const auto part = [&](int64_t index, int64_t of_columns) {
    const int64_t column = blocks * of_columns / few_parts_ * kPartColumns;
    const int64_t end = blocks * (of_columns + 1) / few_parts_ * kPartColumns;
    const int64_t dense = index * shape_.rows * shape_.columns;
    RowProductArgs rows{};
    std::array<const float*, kMostProductRows> table;
    for (int64_t i = 0; i < shape_.rows; ++i)
      table[static_cast<std::size_t>(i)] = args.a + args.a_offsets[index] + i * args.a_stride;
    rows.a = table.data();
    rows.b = args.b + (shape_.shared_b ? 0 : args.b_offsets[index]) + column * b.column_stride;
    rows.b_stride = stride;
    rows.rows = shape_.rows;
    rows.depth = shape_.depth;
    rows.columns = std::min(end, shape_.columns) - column;
    rows.y = args.y + (args.y_offsets != nullptr ? args.y_offsets[index] : dense) + column;
    rows.y_stride = args.y_offsets != nullptr ? args.y_stride : shape_.columns;
    few_rows_(rows);
    finish_few_rows(args, dense, column, rows);
  };
  const auto parts = [&](uint64_t begin, uint64_t end, uint32_t) {
    for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i)
      part(i / few_parts_, i % few_parts_);
  };
  const auto count = static_cast<uint64_t>(shape_.batch * few_parts_);
  if (few_grain_ == 0) {
    parts(0, count, 0);
  } else {
    threads.parallel_for(count, few_grain_, parts);
  }
}

/// What is done to sums, while they are in the cache; `residual`: where those of the product begin.
void MatMulF32::finish_few_rows(const MatMulArgs& args, int64_t residual, int64_t column,
                                const RowProductArgs& rows) const {
  float* y = rows.y;
  const int64_t stride = rows.y_stride;
  if (args.alpha != 1.0f) {
    for (int64_t i = 0; i < rows.rows; ++i)
      attention_rows(isa_).scale(y + i * stride, y + i * stride, rows.columns, args.alpha);
  }
  const ActivationKernels& kernels = activation_kernels(isa_);
  if (args.bias != nullptr)
    kernels.add({}, y, stride, args.bias + column, 0, y, stride, rows.rows, rows.columns);
  if (args.residual != nullptr)
    kernels.add({}, y, stride, args.residual + residual + column, shape_.columns, y, stride,
                rows.rows, rows.columns);
  if (activation_.changes()) kernels.apply(activation_, y, stride, rows.rows, rows.columns);
}

void MatMulF32::run(const MatMulArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (args.packed == nullptr && reads_b()) return run_few_rows(args, threads);
  auto* scratch = static_cast<char*>(workspace);
  auto* own = reinterpret_cast<float*>(scratch + product_.scratch_bytes() * (many_ ? threads_ : 1));
  const void* shared = args.packed;
  if (shared == nullptr && shape_.shared_b) {
    pack(args.b, args.alpha, own, threads);
    shared = own;
  }
  if (many_) return run_many(args, shared, own, scratch, threads);
  for (int64_t i = 0; i < shape_.batch; ++i) {
    if (!shape_.shared_b) pack(args.b + args.b_offsets[i], args.alpha, own, threads);
    run_one(args, shape_.shared_b ? shared : own, i, scratch, threads);
  }
}

void MatMulF32::run_many(const MatMulArgs& args, const void* shared, float* own, char* scratch,
                         const sdk::Threads& threads) const {
  const uint64_t scratch_bytes = product_.scratch_bytes();
  const int64_t matrix =
      static_cast<int64_t>(align64(static_cast<uint64_t>(product_.packed_floats()) * 4) / 4);
  threads.parallel_for(
      static_cast<uint64_t>(shape_.batch), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
        float* mine = own + worker * matrix;
        for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
          if (!shape_.shared_b) {
            const WeightView weights = view(args.b + args.b_offsets[i], args.alpha);
            for (int64_t p = 0; p < product_.panels().count(); ++p)
              pack_panel(product_.panels(), weights, p, mine);
          }
          run_one(args, shape_.shared_b ? shared : mine, i, scratch + worker * scratch_bytes,
                  threads);
        }
      });
}

}  // namespace backplane::cpu

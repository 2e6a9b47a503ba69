#include "plugins/cpu/dense/matmul_f32.hpp"

#include <memory>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

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
      product_(product_shape(shape_), activation, isa, many_ ? 1 : threads) {}

uint64_t MatMulF32::workspace_bytes(bool packed) const {
  const uint64_t scratch = product_.scratch_bytes() * (many_ ? threads_ : 1);
  if (packed) return scratch;
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
  if (shape_.rounds) return pack_rounded(b, sdk::DataType::Float, alpha, packed, threads);
  const WeightView weights = view(b, alpha);
  const Panels& panels = product_.panels();
  if (shape_.weight_type == sdk::DataType::Float)
    return pack_panels(panels, weights, static_cast<float*>(packed), threads);
  const HalfConversion& narrowing = half_conversion(isa_, shape_.weight_type);
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    const int64_t count = shape_.depth * panel.vectors * panels.lanes;
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

void MatMulF32::pack_rounded(const void* b, sdk::DataType type, float alpha, void* packed,
                             const sdk::Threads& threads) const {
  const WeightView weights = view(b, alpha);
  const Panels& panels = product_.panels();
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    auto* to = static_cast<uint32_t*>(packed) + panel.column * product_.shape().depth;
    pack_panel_pairs(panels, weights, type, panel, isa_, to);
  });
}

void MatMulF32::pack(const sdk::Tensor& b, float alpha, void* packed,
                     const sdk::Threads& threads) const {
  if (shape_.rounds) return pack_rounded(b.bytes_data(), b.type(), alpha, packed, threads);
  if (b.type() == sdk::DataType::Float) return pack(b.data<float>(), alpha, packed, threads);
  pack(b.data<uint16_t>(), static_cast<uint16_t*>(packed), threads);
}

void MatMulF32::run_one(const MatMulArgs& args, const void* packed, int64_t index, void* scratch,
                        const sdk::Threads& threads) const {
  const int64_t y_offset = index * shape_.rows * shape_.columns;
  const float* a = args.a + args.a_offsets[index];
  ProductArgs product;
  product.packed = packed;
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

void MatMulF32::run(const MatMulArgs& args, void* workspace, const sdk::Threads& threads) const {
  auto* scratch = static_cast<char*>(workspace);
  const uint64_t scratch_bytes = product_.scratch_bytes();
  auto* own = reinterpret_cast<float*>(scratch + scratch_bytes * (many_ ? threads_ : 1));
  const int64_t matrix =
      static_cast<int64_t>(align64(static_cast<uint64_t>(product_.packed_floats()) * 4) / 4);
  const void* shared = args.packed;
  if (shared == nullptr && shape_.shared_b) {
    pack(args.b, args.alpha, own, threads);
    shared = own;
  }
  if (!many_) {
    for (int64_t i = 0; i < shape_.batch; ++i) {
      if (!shape_.shared_b) pack(args.b + args.b_offsets[i], args.alpha, own, threads);
      run_one(args, shape_.shared_b ? shared : own, i, scratch, threads);
    }
    return;
  }
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

// MatMul: https://onnx.ai/onnx/operators/onnx__MatMul.html
// and backplane.cpu::MatMul, which a rewrite makes: inputs A, B, bias [columns], residual (as y); attributes
// trans_b (B is [..., columns, depth]), alpha, activation, weight_type (of 16 bits: a constant B is held so).
// y = activation(alpha * A B + bias + residual).
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/matmul_dims.hpp"
#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/plain_row.hpp"
#include "plugins/cpu/kernels/product_f64.hpp"

namespace backplane::cpu {
namespace {

constexpr uint32_t kA = 0, kB = 1, kBias = 2, kResidual = 3;

/// float.
class MatMul {
 public:
  struct Prepared {
    MatMulF32 product;
    std::vector<int64_t> a_offsets, b_offsets;
    int64_t depth;
    float alpha;
    bool packed;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      MatMulArgs args;
      args.a = ctx.input(kA).data<float>();
      args.a_stride = depth;
      args.a_offsets = a_offsets.data();
      args.b = ctx.input(kB).data<float>();
      args.b_offsets = b_offsets.data();
      args.packed = packed ? ctx.packed(0).data<char>() : nullptr;
      args.alpha = alpha;
      args.bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
      args.residual = ctx.has_input(kResidual) ? ctx.input(kResidual).data<float>() : nullptr;
      args.y = ctx.output(0).mutable_data<float>();
      product.run(args, ctx.workspace().mutable_data<char>(), ctx.threads());
    }
  };

  MatMul(const sdk::CreateContext& ctx, const sdk::Node& node)
      : trans_b_(node.get_int("trans_b", 0) != 0),
        alpha_(node.get_float("alpha", 1.0f)),
        products_(products_of(ctx)),
        weight_type_(weight_type_of(node, products_)),
        activation_(read_activation(node)),
        isa_(isa_of(ctx)),
        key_(weight_type_, products_, isa_, alpha_) {}
  MatMul(const MatMul&) = delete;
  MatMul& operator=(const MatMul&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor b = ctx.input(kB);
    MatMulDims dims(ctx.input(kA).dims(), b.dims(), trans_b_);
    check_addends(ctx.input(kBias), ctx.input(kResidual), dims.columns, dims.out);
    ctx.set_output(0, sdk::DataType::Float, dims.out);
    MatMulShape shape;
    shape.batch = static_cast<int64_t>(dims.a_indices.size());
    shape.rows = dims.rows;
    shape.depth = dims.depth;
    shape.columns = dims.columns;
    shape.shared_b = dims.shared_b();
    shape.b_transposed = trans_b_ && b.rank() > 1;
    const bool packed = shape.shared_b && ctx.input_constant(kB);
    check_weights(b, packed);
    if (packed) shape.weight_type = weight_type_;
    shape.rounds = packed && products_ == ProductPrecision::kBFloat;
    MatMulF32 product(shape, dims.a_in_order(), activation_, isa_, ctx.threads().count());
    if (packed) {
      ctx.request_pack(key_.of(b.dims(), shape.b_transposed), {kB}, product.packed_bytes(), this);
      ctx.ignore_input(kB);
    }
    ctx.set_workspace(product.workspace_bytes(packed));
    if (ctx.input(kResidual).present() && product.takes_residual_in_place(packed))
      ctx.allow_in_place(0, kResidual);
    ctx.set_variant(packed              ? packed_variant(weight_type_, products_)
                    : product.reads_b() ? "rows"
                                        : "packing");
    ctx.set_cost(static_cast<uint64_t>(2 * sdk::element_count(dims.out) * dims.depth),
                 b.bytes() + ctx.input(kA).bytes());
    std::vector<int64_t> a_offsets = std::move(dims.a_indices);
    std::vector<int64_t> b_offsets = std::move(dims.b_indices);
    for (int64_t& offset : a_offsets) offset *= dims.rows * dims.depth;
    for (int64_t& offset : b_offsets) offset *= dims.depth * dims.columns;
    return {
        std::move(product), std::move(a_offsets), std::move(b_offsets), dims.depth, alpha_, packed};
  }

  /// Packs a constant B.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    MatMulShape shape;
    const int rank = b.rank();
    shape.b_transposed = trans_b_ && rank > 1;
    shape.columns = rank == 1 ? 1 : b.dim(shape.b_transposed ? rank - 2 : rank - 1);
    shape.depth = rank == 1 || shape.b_transposed ? b.dim(rank - 1) : b.dim(rank - 2);
    shape.weight_type = weight_type_;
    shape.rounds = products_ == ProductPrecision::kBFloat;
    const MatMulF32 product(shape, true, Activation{}, isa_, 1);
    product.pack(b, alpha_, ctx.target().mutable_data<char>(), ctx.threads());
  }

 private:
  bool trans_b_;
  float alpha_;
  ProductPrecision products_;
  sdk::DataType weight_type_;
  Activation activation_;
  Isa isa_;
  ProductKey key_;
};

template <class T>
class PlainMatMul {
 public:
  struct Prepared {
    MatMulDims dims;
    PlainRow multiply;
    ProductF64 product;

    void compute(const sdk::ComputeContext& ctx) const {
      const T* a = ctx.input(kA).data<T>();
      const T* b = ctx.input(kB).data<T>();
      T* y = ctx.output(0).mutable_data<T>();
      if constexpr (std::is_same_v<T, double>) {
        // Fewer rows do not pay for the copy of the other matrix.
        if (dims.rows >= 4) return multiply_matrices(ctx, a, b, y);
      }
      const int64_t rows = static_cast<int64_t>(dims.a_indices.size()) * dims.rows;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(rows), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              const auto matrix = static_cast<std::size_t>(i / dims.rows);
              const T* row = a + (dims.a_indices[matrix] * dims.rows + i % dims.rows) * dims.depth;
              const T* right = b + dims.b_indices[matrix] * dims.depth * dims.columns;
              multiply(row, right, dims.columns, dims.depth, dims.columns, y + i * dims.columns);
            }
          });
    }

    void multiply_matrices(const sdk::ComputeContext& ctx, const double* a, const double* b,
                           double* y) const {
      for (std::size_t i = 0; i < dims.a_indices.size(); ++i, y += dims.rows * dims.columns) {
        const MatrixF64 left{a + dims.a_indices[i] * dims.rows * dims.depth, dims.depth, 1};
        const double* from = b + dims.b_indices[i] * dims.depth * dims.columns;
        const auto part = [&](int64_t first, int64_t count) {
          product(left, {from + first, dims.columns, 1}, dims.rows, dims.depth, count, y + first,
                  dims.columns);
        };
        split_columns_f64(ctx.threads(), dims.rows, dims.depth, dims.columns, part);
      }
    }
  };

  PlainMatMul(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    MatMulDims dims(ctx.input(kA).dims(), ctx.input(kB).dims(), false);
    ctx.set_output(0, ctx.input(kA).type(), dims.out);
    ctx.set_variant("plain");
    return {std::move(dims), plain_row(isa_, sdk::data_type_of<T>()), product_f64(isa_)};
  }

 private:
  Isa isa_;
};

template <class T>
sdk::KernelEntry plain(int since = 1) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op("MatMul")
      .name(std::string("cpu:matmul_") + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .template kernel<PlainMatMul<T>>();
}

}  // namespace

sdk::KernelList matmul_kernels() {
  return {
      sdk::op("MatMul")
          .name("cpu:matmul")
          .types("T", {sdk::DataType::Float})
          .flags(BP_KERNEL_WIDENS_HALF | BP_KERNEL_HALF_WEIGHTS)
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT})
          .kernel<MatMul>(),
      sdk::op("MatMul", "backplane.cpu")
          .name("cpu:matmul_fused")
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
          .kernel<MatMul>(),
      plain<double>(),
      plain<sdk::Half>(),
      plain<sdk::BFloat16>(13),
      plain<int32_t>(9),
      plain<int64_t>(9),
      plain<uint32_t>(9),
      plain<uint64_t>(9),
  };
}

}  // namespace backplane::cpu

// backplane.cpu::DynamicMatMul, which a rewrite makes of a MatMulInteger whose sums are scaled: inputs a (uint8 or
// int8, [..., depth]), B (constant bytes, [depth, columns]), and those that may be left out: a_scale (one float),
// b_scale (floats, one or [columns]), a_zero (as a, one), b_zero (constant, as B, one or [columns]), bias [columns],
// residual (as y); attributes of an activation.
// y = activation(float(sum (a - a_zero) * (B - b_zero)) * (a_scale * b_scale) + bias + residual).
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/matmul_dims.hpp"
#include "plugins/cpu/dense/matmul_u8.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

class DynamicMatMul {
 public:
  static constexpr std::uint32_t kA = 0, kB = 1, kAScale = 2, kBScale = 3, kAZero = 4, kBZero = 5,
                                 kBias = 6, kResidual = 7;

  struct Prepared {
    MatMulU8 product;
    Activation activation;
    std::uint64_t row_bytes = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      const void* packed = ctx.packed(0).bytes_data();
      const Bytes zero = ctx.has_input(kAZero) ? Bytes(ctx.input(kAZero)) : Bytes();
      const RowsU8 rows = product.rows_of(Bytes(ctx.input(kA)), product.rows(), zero, false,
                                          product.has_zeros(packed), workspace, ctx.threads(),
                                          [](std::int64_t) { return std::int64_t{0}; });
      FinishSums finish;
      finish.floats = true;
      SumsToFloats& to = finish.to_floats;
      static constexpr float kOne = 1;
      if (ctx.has_input(kAScale)) to.factor = *ctx.input(kAScale).data<float>();
      to.scale = ctx.has_input(kBScale) ? ctx.input(kBScale).data<float>() : &kOne;
      to.scale_step = ctx.has_input(kBScale) && ctx.input(kBScale).size() > 1 ? 1 : 0;
      to.bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
      to.residual = ctx.has_input(kResidual) ? ctx.input(kResidual).data<float>() : nullptr;
      to.residual_stride = product.columns();
      to.activation = activation;
      product.run(rows, 0, packed, finish, ctx.output(0).mutable_data<float>(),
                  workspace + row_bytes, ctx.threads());
    }
  };

  DynamicMatMul(const sdk::CreateContext& ctx, const sdk::Node& node)
      : activation_(read_activation(node)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(kA);
    const sdk::Tensor b = ctx.input(kB);
    if (b.rank() != 2) sdk::invalid("B has dims ", sdk::to_string(b.dims()), "; it needs two");
    const MatMulDims dims(a.dims(), b.dims(), false);
    check_shapes(ctx, dims);
    ctx.set_output(0, sdk::DataType::Float, dims.out);
    const auto rows = static_cast<std::int64_t>(dims.a_indices.size()) * dims.rows;
    Prepared prepared{MatMulU8(rows, dims.depth, dims.columns, isa_, ctx.threads().count()),
                      activation_};
    const MatMulU8& product = prepared.product;
    prepared.row_bytes = product.rows_bytes(rows);
    const bool has_zero = ctx.input(kBZero).present();
    // As MatMulInteger's: one copy for both.
    const std::string key =
        sdk::message("integer matmul ", kernels_key(isa_), " dims ", sdk::to_string(b.dims()),
                     " type ", sdk::type_name(b.type()), " zeros ", has_zero);
    if (has_zero) {
      ctx.request_pack(key, {kB, kBZero}, product.packed_bytes(), this);
    } else {
      ctx.request_pack(key, {kB}, product.packed_bytes(), this);
    }
    ctx.set_workspace(prepared.row_bytes + product.scratch_bytes());
    // Not in place of the residual: sums stand in y before it is added.
    ctx.set_variant("packed");
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(dims.out) * dims.depth),
                 a.bytes() + b.bytes());
    return prepared;
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    const bool has_zero = ctx.source_count() > 1;
    WeightsU8 weights;
    weights.data = Bytes(b);
    weights.row_stride = b.dim(1);
    if (has_zero) weights.zero = Bytes(ctx.source(1));
    weights.zero_step = has_zero && ctx.source(1).size() > 1 ? 1 : 0;
    MatMulU8(1, b.dim(0), b.dim(1), isa_, 1)
        .pack(weights, true, ctx.target().mutable_data<char>(), ctx.threads());
  }

 private:
  static void check_shapes(const sdk::PrepareContext& ctx, const MatMulDims& dims) {
    const auto fits = [&](std::uint32_t input, std::int64_t columns) {
      const sdk::Tensor tensor = ctx.input(input);
      return !tensor.present() || tensor.size() == 1 ||
             (tensor.rank() == 1 && tensor.dim(0) == columns);
    };
    if (!fits(kAScale, 1) || !fits(kAZero, 1) || !fits(kBScale, dims.columns) ||
        !fits(kBZero, dims.columns))
      sdk::invalid("A's scale and zero point must be one, B's one or ", dims.columns);
    check_addends(ctx.input(kBias), ctx.input(kResidual), dims.columns, dims.out);
  }

  Activation activation_;
  Isa isa_;
};

}  // namespace

sdk::KernelList dynamic_matmul_kernels() {
  return {
      sdk::op("DynamicMatMul", "backplane.cpu").name("cpu:dynamic_matmul").kernel<DynamicMatMul>()};
}

}  // namespace backplane::cpu

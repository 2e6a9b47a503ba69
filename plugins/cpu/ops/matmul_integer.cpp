// MatMulInteger, QLinearMatMul: https://onnx.ai/onnx/operators/onnx__MatMulInteger.html,
// onnx__QLinearMatMul.html
#include "plugins/cpu/dense/matmul_dims.hpp"
#include "plugins/cpu/dense/product_s16.hpp"
#include "plugins/cpu/dense/quantized_lines.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Where the inputs stand.
struct Inputs {
  std::uint32_t a, b, a_zero, b_zero;
  std::uint32_t a_scale, b_scale, y_scale, y_zero;
};
constexpr std::uint32_t kNone = 99;  // past the end
constexpr Inputs kIntegerInputs{0, 1, 2, 3, kNone, kNone, kNone, kNone};
constexpr Inputs kLinearInputs{0, 3, 2, 5, 1, 4, 6, 7};

/// The matrices of a tensor: all axes but the last two.
std::int64_t matrix_count(sdk::DimsView dims) {
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis + 2 < dims.size(); ++axis) count *= dims[axis];
  return count;
}

template <bool kLinear>
class IntegerMatMul {
 public:
  static constexpr Inputs kInputs = kLinear ? kLinearInputs : kIntegerInputs;

  struct Prepared {
    MatMulDims dims;
    IntegerProduct product;
    const IntegerKernels* kernels = nullptr;
    std::int64_t a_matrices = 1;
    std::int64_t b_matrices = 1;
    bool merged = false;     // one product: A's matrices follow each other, and there is one B
    bool is_signed = false;  // y, of the linear form
    bool packed = false;
    LineParameter a_zero = {}, b_zero = {}, a_scale = {}, b_scale = {}, y_scale = {}, y_zero = {};
    std::uint64_t a_bytes = 0, b_bytes = 0, sum_bytes = 0, scale_bytes = 0;

    std::int64_t padded_depth() const { return product.shape().padded_depth(); }

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      auto* a = reinterpret_cast<std::int16_t*>(workspace);
      auto* b = reinterpret_cast<std::int16_t*>(workspace + a_bytes);
      auto* sums = reinterpret_cast<std::int32_t*>(workspace + a_bytes + b_bytes);
      auto* scales = reinterpret_cast<double*>(workspace + a_bytes + b_bytes + sum_bytes);
      char* scratch = workspace + a_bytes + b_bytes + sum_bytes + scale_bytes;
      if (!kLinear) sums = ctx.output(0).template mutable_data<std::int32_t>();
      widen_a(ctx, a);
      const std::int16_t* weights = b;
      if (packed) {
        weights = ctx.packed(0).template data<std::int16_t>();
      } else {
        pack_b(ctx, b);
      }
      const std::int64_t depth = padded_depth();
      const std::int64_t products = merged ? 1 : static_cast<std::int64_t>(dims.a_indices.size());
      for (std::int64_t i = 0; i < products; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const std::int16_t* rows = a + dims.a_indices[index] * dims.rows * depth;
        product.run(
            weights + dims.b_indices[index] * product.packed_size(),
            sums + i * dims.rows * dims.columns, dims.columns, ctx.threads(), scratch,
            [&](const std::int16_t** table, std::int64_t, std::int64_t row, std::int64_t count) {
              for (std::int64_t r = 0; r < count; ++r) table[r] = rows + (row + r) * depth;
            });
      }
      if constexpr (kLinear) narrow(ctx, sums, scales);
    }

    /// A without its zero points, rows padded to pairs.
    void widen_a(const sdk::ComputeContext& ctx, std::int16_t* to) const {
      const sdk::Tensor a = ctx.input(kInputs.a);
      const bool has_zero = ctx.has_input(kInputs.a_zero);
      const Bytes zeros = has_zero ? Bytes(ctx.input(kInputs.a_zero)) : Bytes();
      const std::int64_t depth = dims.depth;
      const auto widen_row = [&](std::int64_t row) {
        std::int16_t* out = to + row * padded_depth();
        const auto zero =
            static_cast<std::int16_t>(zeros.at(a_zero.at(row / dims.rows, row % dims.rows)));
        if (a.type() == DataType::Int8) {
          kernels->widen_s8(a.data<std::int8_t>() + row * depth, out, depth, zero);
        } else {
          kernels->widen_u8(a.data<std::uint8_t>() + row * depth, out, depth, zero);
        }
        if (depth % 2 != 0) out[depth] = 0;
      };
      split_loop(ctx.threads(), a_matrices * dims.rows, 0.2 * static_cast<double>(depth) + 2, 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) widen_row(row);
                 });
    }

    void pack_b(const sdk::ComputeContext& ctx, std::int16_t* to) const {
      const bool has_zero = ctx.has_input(kInputs.b_zero);
      const Bytes data(ctx.input(kInputs.b));
      const Bytes zero = has_zero ? Bytes(ctx.input(kInputs.b_zero)) : Bytes();
      for (std::int64_t i = 0; i < b_matrices; ++i) {
        pack_matrix(product, data, zero, b_zero, i, to + i * product.packed_size());
      }
    }

    /// y from the sums.
    void narrow(const sdk::ComputeContext& ctx, const std::int32_t* sums, double* scales) const {
      const sdk::Tensor a = ctx.input(kInputs.a_scale);
      const sdk::Tensor b = ctx.input(kInputs.b_scale);
      const sdk::Tensor y = ctx.input(kInputs.y_scale);
      const Bytes zeros(ctx.input(kInputs.y_zero));
      for (std::int64_t i = 0; i < b.size(); ++i) scales[i] = scale_at(b, i);
      auto* out = ctx.output(0).template mutable_data<std::uint8_t>();
      const auto rows = static_cast<std::int64_t>(dims.a_indices.size()) * dims.rows;
      const auto narrow_row = [&](std::int64_t row) {
        const std::int64_t matrix = row / dims.rows;
        const std::int64_t line = row % dims.rows;
        const auto index = static_cast<std::size_t>(matrix);
        Requantize args{};
        args.scale = scales + b_scale.at(dims.b_indices[index], 0);
        args.scale_step = b_scale.line_step;
        args.factor = scale_at(a, a_scale.at(dims.a_indices[index], line)) /
                      scale_at(y, y_scale.at(matrix, line));
        args.zero_point = zeros.at(y_zero.at(matrix, line));
        args.least = is_signed ? -128 : 0;
        args.most = is_signed ? 127 : 255;
        kernels->narrow(args, sums + row * dims.columns, out + row * dims.columns, dims.columns);
      };
      split_loop(ctx.threads(), rows, 0.5 * static_cast<double>(dims.columns), 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) narrow_row(row);
                 });
    }
  };

  IntegerMatMul(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(kInputs.a);
    const sdk::Tensor b = ctx.input(kInputs.b);
    MatMulDims dims(a.dims(), b.dims(), false);
    const DataType type = kLinear ? ctx.input(kInputs.y_zero).type() : DataType::Int32;
    ctx.set_output(0, type, dims.out);
    const auto products = static_cast<std::int64_t>(dims.a_indices.size());
    const bool merged = dims.shared_b() && dims.a_in_order();
    IntegerShape shape;
    shape.rows = merged ? products * dims.rows : dims.rows;
    shape.depth = dims.depth;
    shape.columns = dims.columns;
    Prepared p{.dims = dims,
               .product = IntegerProduct(shape, isa_, ctx.threads().count()),
               .kernels = &integer_kernels(isa_),
               .a_matrices = matrix_count(a.dims()),
               .b_matrices = matrix_count(b.dims()),
               .merged = merged,
               .is_signed = type == DataType::Int8};
    p.a_zero = line_parameter("A's zero point", ctx.input(kInputs.a_zero), p.a_matrices, dims.rows);
    p.b_zero =
        line_parameter("B's zero point", ctx.input(kInputs.b_zero), p.b_matrices, dims.columns);
    if constexpr (kLinear) set_scales(ctx, p);
    const bool has_zero = ctx.input(kInputs.b_zero).present();
    p.packed = p.b_matrices == 1 && ctx.input_constant(kInputs.b) &&
               (!has_zero || ctx.input_constant(kInputs.b_zero));
    if (p.packed) request_b(ctx, p, has_zero);
    p.a_bytes =
        align64(static_cast<std::uint64_t>(p.a_matrices * dims.rows * p.padded_depth()) * 2);
    if (!p.packed)
      p.b_bytes = align64(static_cast<std::uint64_t>(p.b_matrices * p.product.packed_size()) * 2);
    if (kLinear)
      p.sum_bytes = align64(static_cast<std::uint64_t>(sdk::element_count(dims.out)) * 4);
    ctx.set_workspace(p.a_bytes + p.b_bytes + p.sum_bytes + p.scale_bytes +
                      p.product.scratch_bytes());
    ctx.set_variant(p.packed ? "packed" : "packing");
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(dims.out) * dims.depth),
                 a.bytes() + b.bytes());
    return p;
  }

  /// Packs a constant B.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    IntegerShape shape;
    shape.rows = 1;
    const bool is_vector = b.rank() == 1;
    shape.depth = b.dim(is_vector ? 0 : b.rank() - 2);
    shape.columns = is_vector ? 1 : b.dim(b.rank() - 1);
    const bool has_zero = ctx.source_count() > 1;
    const Bytes zero = has_zero ? Bytes(ctx.source(1)) : Bytes();
    const LineParameter line{0, has_zero && ctx.source(1).size() > 1 ? 1 : 0};
    pack_matrix(IntegerProduct(shape, isa_, 1), Bytes(b), zero, line, 0,
                ctx.target().mutable_data<std::int16_t>());
  }

 private:
  static void pack_matrix(const IntegerProduct& product, const Bytes& data, const Bytes& zero,
                          const LineParameter& line, std::int64_t matrix, std::int16_t* to) {
    const IntegerShape& shape = product.shape();
    IntegerWeights weights;
    weights.data = data;
    weights.depth_stride = shape.columns;
    weights.column_stride = 1;
    weights.zero = zero;
    weights.zero_step = line.line_step;
    weights.offset = matrix * shape.depth * shape.columns;
    weights.zero_offset = line.at(matrix, 0);
    product.pack_group(weights, 0, to);
  }

  static void set_scales(const sdk::PrepareContext& ctx, Prepared& p) {
    const auto products = static_cast<std::int64_t>(p.dims.a_indices.size());
    p.a_scale = line_parameter("A's scale", ctx.input(kInputs.a_scale), p.a_matrices, p.dims.rows);
    p.b_scale =
        line_parameter("B's scale", ctx.input(kInputs.b_scale), p.b_matrices, p.dims.columns);
    p.y_scale = line_parameter("Y's scale", ctx.input(kInputs.y_scale), products, p.dims.rows);
    p.y_zero = line_parameter("Y's zero point", ctx.input(kInputs.y_zero), products, p.dims.rows);
    p.scale_bytes =
        align64(static_cast<std::uint64_t>(ctx.input(kInputs.b_scale).size()) * sizeof(double));
  }

  void request_b(sdk::PrepareContext& ctx, const Prepared& p, bool has_zero) const {
    const std::string key =
        sdk::message("matmul s16 isa ", static_cast<int>(isa_), " dims ",
                     sdk::to_string(ctx.input(kInputs.b).dims()), " type ",
                     sdk::type_name(ctx.input(kInputs.b).type()), " zeros ", has_zero);
    const auto bytes = static_cast<std::uint64_t>(p.product.packed_size()) * 2;
    if (has_zero) {
      ctx.request_pack(key, {kInputs.b, kInputs.b_zero}, bytes, this);
    } else {
      ctx.request_pack(key, {kInputs.b}, bytes, this);
    }
  }

  Isa isa_;
};

}  // namespace

sdk::KernelList matmul_integer_kernels() {
  const std::vector<DataType> bytes = {DataType::UInt8, DataType::Int8};
  return {sdk::op("MatMulInteger")
              .name("cpu:matmul_integer")
              .types("T1", bytes)
              .types("T2", bytes)
              .kernel<IntegerMatMul<false>>(),
          sdk::op("QLinearMatMul")
              .name("cpu:qlinear_matmul")
              .types("T1", bytes)
              .types("T2", bytes)
              .types("T3", bytes)
              .kernel<IntegerMatMul<true>>()};
}

}  // namespace backplane::cpu

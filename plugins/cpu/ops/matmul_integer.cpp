// MatMulInteger, QLinearMatMul: https://onnx.ai/onnx/operators/onnx__MatMulInteger.html,
// onnx__QLinearMatMul.html
#include "plugins/cpu/dense/matmul_dims.hpp"
#include "plugins/cpu/dense/matmul_u8.hpp"
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
    MatMulU8 product;
    const IntegerKernels* kernels = nullptr;
    std::int64_t a_matrices = 1;
    std::int64_t b_matrices = 1;
    bool merged = false;     // one product: A's matrices follow each other, and there is one B
    bool is_signed = false;  // y, of the linear form
    bool packed = false;
    LineParameter a_zero = {}, b_zero = {}, a_scale = {}, b_scale = {}, y_scale = {}, y_zero = {};
    std::uint64_t row_bytes = 0, b_bytes = 0, sum_bytes = 0, scale_bytes = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      char* own = workspace + row_bytes;
      auto* sums = reinterpret_cast<std::int32_t*>(own + b_bytes);
      auto* scales = reinterpret_cast<double*>(own + b_bytes + sum_bytes);
      char* scratch = own + b_bytes + sum_bytes + scale_bytes;
      if (!kLinear) sums = ctx.output(0).template mutable_data<std::int32_t>();
      const char* weights = own;
      if (packed) {
        weights = ctx.packed(0).template data<char>();
      } else {
        pack_b(ctx, own);
      }
      const std::uint64_t matrix_bytes = product.packed_bytes();
      bool has_zeros = false;
      for (std::int64_t i = 0; i < b_matrices; ++i)
        has_zeros |= product.has_zeros(weights + static_cast<std::uint64_t>(i) * matrix_bytes);
      const RowsU8 rows = read_rows(ctx, has_zeros, workspace);
      const std::int64_t products = merged ? 1 : static_cast<std::int64_t>(dims.a_indices.size());
      for (std::int64_t i = 0; i < products; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const auto matrix = static_cast<std::uint64_t>(dims.b_indices[index]);
        product.run(rows, dims.a_indices[index] * dims.rows, weights + matrix * matrix_bytes,
                    FinishSums{}, sums + i * dims.rows * dims.columns, scratch, ctx.threads());
      }
      if constexpr (kLinear) narrow(ctx, sums, scales);
    }

    RowsU8 read_rows(const sdk::ComputeContext& ctx, bool sums, void* memory) const {
      const bool has_zero = ctx.has_input(kInputs.a_zero);
      const Bytes zeros = has_zero ? Bytes(ctx.input(kInputs.a_zero)) : Bytes();
      const bool each = a_zero.line_step != 0 || a_zero.matrix_step != 0;
      return product.rows_of(Bytes(ctx.input(kInputs.a)), a_matrices * dims.rows, zeros, each, sums,
                             memory, ctx.threads(), [&](std::int64_t row) {
                               return a_zero.at(row / dims.rows, row % dims.rows);
                             });
    }

    void pack_b(const sdk::ComputeContext& ctx, char* to) const {
      const bool has_zero = ctx.has_input(kInputs.b_zero);
      const Bytes data(ctx.input(kInputs.b));
      const Bytes zero = has_zero ? Bytes(ctx.input(kInputs.b_zero)) : Bytes();
      for (std::int64_t i = 0; i < b_matrices; ++i) {
        pack_matrix(product, data, zero, b_zero, i, false,
                    to + static_cast<std::uint64_t>(i) * product.packed_bytes(), ctx.threads());
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
    const std::int64_t rows = merged ? products * dims.rows : dims.rows;
    Prepared p{.dims = dims,
               .product = MatMulU8(rows, dims.depth, dims.columns, isa_, ctx.threads().count()),
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
    // Of a matrix without elements nothing is packed beforehand.
    p.packed = p.b_matrices == 1 && dims.depth > 0 && ctx.input_constant(kInputs.b) &&
               (!has_zero || ctx.input_constant(kInputs.b_zero));
    if (p.packed) request_b(ctx, p, has_zero);
    p.row_bytes = p.product.rows_bytes(p.a_matrices * dims.rows);
    if (!p.packed) p.b_bytes = static_cast<std::uint64_t>(p.b_matrices) * p.product.packed_bytes();
    if (kLinear)
      p.sum_bytes = align64(static_cast<std::uint64_t>(sdk::element_count(dims.out)) * 4);
    ctx.set_workspace(p.row_bytes + p.b_bytes + p.sum_bytes + p.scale_bytes +
                      p.product.scratch_bytes());
    ctx.set_variant(p.packed ? "packed" : "packing");
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(dims.out) * dims.depth),
                 a.bytes() + b.bytes());
    return p;
  }

  /// Packs a constant B.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    const bool is_vector = b.rank() == 1;
    const std::int64_t depth = b.dim(is_vector ? 0 : b.rank() - 2);
    const std::int64_t columns = is_vector ? 1 : b.dim(b.rank() - 1);
    const bool has_zero = ctx.source_count() > 1;
    const Bytes zero = has_zero ? Bytes(ctx.source(1)) : Bytes();
    const LineParameter line{0, has_zero && ctx.source(1).size() > 1 ? 1 : 0};
    pack_matrix(MatMulU8(1, depth, columns, isa_, 1), Bytes(b), zero, line, 0, true,
                ctx.target().mutable_data<char>(), ctx.threads());
  }

 private:
  static void pack_matrix(const MatMulU8& product, const Bytes& data, const Bytes& zero,
                          const LineParameter& line, std::int64_t matrix, bool constant, char* to,
                          const sdk::Threads& threads) {
    WeightsU8 weights;
    weights.data = data;
    weights.offset = matrix * product.depth() * product.columns();
    weights.row_stride = product.columns();
    weights.zero = zero;
    weights.zero_offset = line.at(matrix, 0);
    weights.zero_step = line.line_step;
    product.pack(weights, constant, to, threads);
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
    const std::string key = sdk::message(
        "integer matmul ", kernels_key(isa_), " dims ", sdk::to_string(ctx.input(kInputs.b).dims()),
        " type ", sdk::type_name(ctx.input(kInputs.b).type()), " zeros ", has_zero);
    const std::uint64_t bytes = p.product.packed_bytes();
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

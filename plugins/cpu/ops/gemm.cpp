// Gemm: https://onnx.ai/onnx/operators/onnx__Gemm.html
// and backplane.cpu::Gemm, the same with an activation.
#include "plugins/common/broadcast.hpp"
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/layout_copy.hpp"
#include "plugins/cpu/dense/matmul_f32.hpp"
#include "plugins/cpu/dense/plain_product.hpp"
#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/product_f64.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr uint32_t kLeft = 0, kRight = 1, kAddend = 2;

struct GemmAttributes {
  bool trans_a, trans_b;
  float alpha, beta;

  explicit GemmAttributes(const sdk::Node& node)
      : trans_a(node.get_int("transA", 0) != 0),
        trans_b(node.get_int("transB", 0) != 0),
        alpha(node.get_float("alpha", 1.0f)),
        beta(node.get_float("beta", 1.0f)) {}
};

struct GemmDims {
  int64_t rows, depth, columns;

  GemmDims(const GemmAttributes& attributes, const sdk::PrepareContext& ctx) {
    const sdk::Tensor a = ctx.input(kLeft);
    const sdk::Tensor b = ctx.input(kRight);
    if (a.rank() != 2 || b.rank() != 2) {
      sdk::invalid("Gemm: A has dims ", sdk::to_string(a.dims()), " and B ",
                   sdk::to_string(b.dims()), "; both must be matrices");
    }
    rows = a.dim(attributes.trans_a ? 1 : 0);
    depth = a.dim(attributes.trans_a ? 0 : 1);
    columns = b.dim(attributes.trans_b ? 0 : 1);
    if (b.dim(attributes.trans_b ? 1 : 0) != depth) {
      sdk::invalid("Gemm: A has dims ", sdk::to_string(a.dims()), " and B ",
                   sdk::to_string(b.dims()), ", whose inner dimensions do not fit each other");
    }
    const sdk::Tensor c = ctx.input(kAddend);
    if (c.present() && !common::broadcasts_to(c.dims(), out())) {
      sdk::invalid("Gemm: C has dims ", sdk::to_string(c.dims()), ", which do not broadcast to ",
                   sdk::to_string(out()));
    }
  }
  sdk::DimsView out() const {
    out_dims_ = {rows, columns};
    return out_dims_;
  }

 private:
  mutable sdk::Dims out_dims_;
};

/// The steps of C, which broadcasts to [rows, columns].
struct AddendSteps {
  int64_t row = 0, column = 0;

  explicit AddendSteps(sdk::DimsView dims) {
    if (!dims.empty() && dims.back() != 1) column = 1;
    if (dims.size() == 2 && dims[0] != 1) row = dims[1];
  }
};

/// float.
class Gemm {
 public:
  struct Prepared {
    MatMulF32 product;
    GemmAttributes attributes;
    int64_t rows, depth, columns;
    bool packed;
    bool direct_c;  // C serves as bias or residual as it is
    uint64_t a_bytes, c_bytes;
    Isa isa;

    void compute(const sdk::ComputeContext& ctx) const {
      if (rows * columns == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      const sdk::Threads threads = ctx.threads();
      const int64_t offset = 0;
      MatMulArgs args;
      args.a = ctx.input(kLeft).data<float>();
      if (attributes.trans_a) {
        auto* copy = reinterpret_cast<float*>(workspace);
        transpose_planes(isa, args.a, copy, 1, depth, rows, 4, threads);
        args.a = copy;
      }
      args.a_stride = depth;
      args.a_offsets = &offset;
      args.b = ctx.input(kRight).data<float>();
      args.b_offsets = &offset;
      args.packed = packed ? ctx.packed(0).data<char>() : nullptr;
      args.alpha = attributes.alpha;
      args.y = ctx.output(0).mutable_data<float>();
      if (ctx.has_input(kAddend))
        add_c(ctx.input(kAddend), reinterpret_cast<float*>(workspace + a_bytes), args);
      product.run(args, workspace + a_bytes + c_bytes, threads);
    }

    void add_c(const sdk::Tensor& c, float* copy, MatMulArgs& args) const {
      const AddendSteps steps(c.dims());
      const bool row_wise = steps.row == 0;
      const float* addend = c.data<float>();
      if (!direct_c) {
        for (int64_t i = 0; i < (row_wise ? 1 : rows); ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            copy[i * columns + j] = attributes.beta * addend[i * steps.row + j * steps.column];
          }
        }
        addend = copy;
      }
      (row_wise ? args.bias : args.residual) = addend;
    }
  };

  Gemm(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node),
        products_(products_of(ctx)),
        weight_type_(weight_type_of(node, products_)),
        activation_(read_activation(node)),
        isa_(isa_of(ctx)),
        key_(weight_type_, products_, isa_, attributes_.alpha) {}
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const GemmDims dims(attributes_, ctx);
    ctx.set_output(0, sdk::DataType::Float, dims.out());
    MatMulShape shape;
    shape.rows = dims.rows;
    shape.depth = dims.depth;
    shape.columns = dims.columns;
    shape.b_transposed = attributes_.trans_b;
    check_weights(ctx.input(kRight), ctx.input_constant(kRight));
    if (ctx.input_constant(kRight)) {
      shape.weight_type = weight_type_;
      shape.rounds = products_ == ProductPrecision::kBFloat;
    }
    Prepared prepared{MatMulF32(shape, true, activation_, isa_, ctx.threads().count()),
                      attributes_,
                      dims.rows,
                      dims.depth,
                      dims.columns,
                      ctx.input_constant(kRight),
                      false,
                      0,
                      0,
                      isa_};
    const sdk::Tensor c = ctx.input(kAddend);
    if (c.present()) {
      const AddendSteps steps(c.dims());
      prepared.direct_c = attributes_.beta == 1.0f && (steps.column == 1 || dims.columns == 1) &&
                          (steps.row == 0 || steps.row == dims.columns);
      const int64_t floats = (steps.row == 0 ? 1 : dims.rows) * dims.columns;
      if (!prepared.direct_c) prepared.c_bytes = align64(static_cast<uint64_t>(floats) * 4);
    }
    if (attributes_.trans_a)
      prepared.a_bytes = align64(static_cast<uint64_t>(dims.rows * dims.depth) * 4);
    if (prepared.packed) {
      ctx.request_pack(key_.of(ctx.input(kRight).dims(), attributes_.trans_b), {kRight},
                       prepared.product.packed_bytes(), this);
      ctx.ignore_input(kRight);
    }
    ctx.set_workspace(prepared.a_bytes + prepared.c_bytes +
                      prepared.product.workspace_bytes(prepared.packed));
    ctx.set_variant(prepared.packed              ? packed_variant(weight_type_, products_)
                    : prepared.product.reads_b() ? "rows"
                                                 : "packing");
    ctx.set_cost(static_cast<uint64_t>(2 * dims.rows * dims.depth * dims.columns),
                 ctx.input(kLeft).bytes() + ctx.input(kRight).bytes());
    return prepared;
  }

  /// Packs a constant B.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    MatMulShape shape;
    shape.b_transposed = attributes_.trans_b;
    shape.columns = b.dim(attributes_.trans_b ? 0 : 1);
    shape.depth = b.dim(attributes_.trans_b ? 1 : 0);
    shape.weight_type = weight_type_;
    shape.rounds = products_ == ProductPrecision::kBFloat;
    const MatMulF32 product(shape, true, Activation{}, isa_, 1);
    product.pack(b, attributes_.alpha, ctx.target().mutable_data<char>(), ctx.threads());
  }

 private:
  GemmAttributes attributes_;
  ProductPrecision products_;
  sdk::DataType weight_type_;
  Activation activation_;
  Isa isa_;
  ProductKey key_;
};

/// Other types: alpha and beta are applied in double to integers' and doubles' sums.
template <class T>
class PlainGemm {
 public:
  struct Prepared {
    GemmAttributes attributes;
    int64_t rows, depth, columns;
    ProductF64 product;

    void compute(const sdk::ComputeContext& ctx) const {
      const T* a = ctx.input(kLeft).data<T>();
      const T* b = ctx.input(kRight).data<T>();
      const T* c = ctx.has_input(kAddend) ? ctx.input(kAddend).data<T>() : nullptr;
      if constexpr (std::is_same_v<T, double>) return multiply(ctx, a, b, c);
      const AddendSteps steps(ctx.has_input(kAddend) ? ctx.input(kAddend).dims() : sdk::DimsView());
      T* y = ctx.output(0).mutable_data<T>();
      const int64_t a_row = attributes.trans_a ? 1 : depth;
      const int64_t b_column = attributes.trans_b ? depth : 1;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(rows), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              for (int64_t j = 0; j < columns; ++j) {
                const SumOf<T> sum =
                    plain_dot(a + i * a_row, attributes.trans_a ? rows : 1, b + j * b_column,
                              attributes.trans_b ? 1 : columns, depth);
                const SumOf<T> addend =
                    c != nullptr ? to_sum(c[i * steps.row + j * steps.column]) : SumOf<T>{};
                y[i * columns + j] = from_sum<T>(combine(sum, addend));
              }
            }
          });
    }

    void multiply(const sdk::ComputeContext& ctx, const double* a, const double* b,
                  const double* c) const {
      const AddendSteps steps(c != nullptr ? ctx.input(kAddend).dims() : sdk::DimsView());
      double* y = ctx.output(0).mutable_data<double>();
      const MatrixF64 left{a, attributes.trans_a ? 1 : depth, attributes.trans_a ? rows : 1};
      const MatrixF64 right{b, attributes.trans_b ? 1 : columns, attributes.trans_b ? depth : 1};
      const auto part = [&](int64_t first, int64_t count) {
        const MatrixF64 some{b + first * right.column, right.row, right.column};
        product(left, some, rows, depth, count, y + first, columns);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = first; j < first + count; ++j) {
            const double addend = c != nullptr ? c[i * steps.row + j * steps.column] : 0;
            y[i * columns + j] = combine(y[i * columns + j], addend);
          }
        }
      };
      split_columns_f64(ctx.threads(), rows, depth, columns, part);
    }

    SumOf<T> combine(SumOf<T> sum, SumOf<T> addend) const {
      if (attributes.alpha == 1.0f && attributes.beta == 1.0f)
        return multiply_add<SumOf<T>>(addend, sum, 1);
      return static_cast<SumOf<T>>(
          static_cast<double>(attributes.alpha) * static_cast<double>(sum) +
          static_cast<double>(attributes.beta) * static_cast<double>(addend));
    }
  };

  PlainGemm(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const GemmDims dims(attributes_, ctx);
    ctx.set_output(0, ctx.input(kLeft).type(), dims.out());
    ctx.set_variant("plain");
    return {attributes_, dims.rows, dims.depth, dims.columns, product_f64(isa_)};
  }

 private:
  GemmAttributes attributes_;
  Isa isa_;
};

template <class T>
sdk::KernelEntry plain_gemm(int since = 1) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op("Gemm")
      .name(std::string("cpu:gemm_") + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .template kernel<PlainGemm<T>>();
}

}  // namespace

// Up to version 6 the attribute 'broadcast' says whether C broadcasts; a C that fits does so either way.
sdk::KernelList gemm_kernels() {
  return {
      sdk::op("Gemm")
          .name("cpu:gemm")
          .types("T", {sdk::DataType::Float})
          .flags(BP_KERNEL_WIDENS_HALF | BP_KERNEL_HALF_WEIGHTS)
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
          .kernel<Gemm>(),
      sdk::op("Gemm", "backplane.cpu")
          .name("cpu:gemm_fused")
          .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})
          .kernel<Gemm>(),
      plain_gemm<double>(),
      plain_gemm<sdk::Half>(),
      plain_gemm<sdk::BFloat16>(13),
      plain_gemm<int32_t>(9),
      plain_gemm<int64_t>(9),
      plain_gemm<uint32_t>(9),
      plain_gemm<uint64_t>(9),
  };
}

}  // namespace backplane::cpu

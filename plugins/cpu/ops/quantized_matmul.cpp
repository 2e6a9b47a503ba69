// backplane.cpu::QuantizedMatMul, which a rewrite makes of a MatMul or Gemm between DequantizeLinear and
// QuantizeLinear, and of QLinearMatMul: inputs a (bytes, [..., depth]), B (constant, [depth, columns], or the other way round with
// transB; int8 of zero point 0 or uint8 of zero point 128), scale and shift [columns] (constant); attributes
// transB, a_type, a_zero and those of QuantizedResult.
// y = clamp(round(sum (a - a_zero) * (B - B's zero point) * scale + shift) + zero, least, most).
#include <cstring>

#include "plugins/cpu/dense/either_product_u8.hpp"
#include "plugins/cpu/dense/finish_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

class QuantizedMatMul {
 public:
  static constexpr std::uint32_t kA = 0, kB = 1, kScale = 2, kShift = 3;

  struct Prepared {
    EitherProductU8 product;
    FinishU8 finish;
    std::int64_t depth = 0;       // of A; the product's is a multiple of 4
    std::uint64_t row_bytes = 0;  // of A's copy, where its rows have no whole quads
    bool is_signed = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      const auto* a = static_cast<const std::uint8_t*>(ctx.input(kA).bytes_data());
      char* workspace = ctx.workspace().mutable_data<char>();
      const std::int64_t rows = product.shape().rows;
      const std::int64_t step = product.shape().depth;
      if (row_bytes > 0) {
        auto* copy = reinterpret_cast<std::uint8_t*>(workspace);
        for (std::int64_t r = 0; r < rows; ++r) {
          std::memcpy(copy + r * step, a + r * depth, static_cast<std::size_t>(depth));
          std::memset(copy + r * step + depth, 0, static_cast<std::size_t>(step - depth));
        }
        a = copy;
      }
      ArgsU8 args;
      args.packed = ctx.packed(0).bytes_data();
      args.finish = finish;
      args.x_signed = is_signed;
      args.out = ctx.output(0).mutable_data<char>();
      args.out_stride = product.shape().columns;
      product.run(
          args, ctx.threads(), workspace + row_bytes,
          [&](const std::uint8_t** table, std::int64_t, std::int64_t row, std::int64_t count) {
            for (std::int64_t r = 0; r < count; ++r) table[r] = a + (row + r) * step;
          });
    }
  };

  QuantizedMatMul(const sdk::CreateContext& ctx, const sdk::Node& node)
      : transposed_(node.get_int("transB", 0) != 0),
        is_signed_(is_signed_input(node, "a")),
        zero_(static_cast<std::int32_t>(node.get_int("a_zero", 0)) + (is_signed_ ? 128 : 0)),
        result_(node),
        isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(kA);
    const sdk::Tensor b = ctx.input(kB);
    const sdk::DimsView dims = a.dims();
    const std::int64_t depth = dims.empty() ? 0 : dims.back();
    if (b.rank() != 2 || dims.empty() || b.dim(transposed_ ? 1 : 0) != depth) {
      sdk::invalid("A has dims ", sdk::to_string(dims), ", B ", sdk::to_string(b.dims()),
                   "; A's last must be B's ", transposed_ ? "last" : "first");
    }
    sdk::Dims out(dims.begin(), dims.end());
    out.back() = b.dim(transposed_ ? 0 : 1);
    ctx.set_output(0, result_.type, out);
    std::int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < dims.size(); ++axis) rows *= dims[axis];
    Prepared prepared{product(rows, b, ctx.threads().count()), result_.finish, depth, 0,
                      is_signed_};
    const EitherProductU8& product = prepared.product;
    if (depth % 4 != 0) {
      prepared.row_bytes = align64(static_cast<std::uint64_t>(rows * product.shape().depth));
    }
    const std::string key =
        sdk::message("matmul u8 ", kernels_key(isa_), " zero ", zero_, " transposed ", transposed_,
                     " dims ", sdk::to_string(b.dims()), " ", sdk::type_name(b.type()));
    ctx.request_pack(key, {kB, kScale, kShift}, product.packed_bytes(), this);
    ctx.set_workspace(prepared.row_bytes + product.scratch_bytes());
    ctx.set_variant("packed");
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(out) * depth),
                 a.bytes() + b.bytes());
    return prepared;
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    const std::int64_t depth = b.dim(transposed_ ? 1 : 0);
    const std::int64_t columns = b.dim(transposed_ ? 0 : 1);
    const auto* weights = static_cast<const std::uint8_t*>(b.bytes_data());
    const std::uint8_t flip = b.type() == sdk::DataType::Int8 ? 0 : 0x80;
    product(1, b, 1).pack({ctx.source(1).data<float>(), ctx.source(2).data<float>(), zero_},
                          ctx.target().mutable_data<char>(), ctx.threads(),
                          [&](std::int64_t, std::int64_t, std::int64_t k, std::int64_t column) {
                            if (k >= depth) return std::int8_t{0};
                            const std::int64_t at =
                                transposed_ ? column * depth + k : k * columns + column;
                            return static_cast<std::int8_t>(weights[at] ^ flip);
                          });
  }

 private:
  EitherProductU8 product(std::int64_t rows, const sdk::Tensor& b, unsigned threads) const {
    ShapeU8 shape;
    shape.rows = rows;
    shape.depth = (b.dim(transposed_ ? 1 : 0) + 3) / 4 * 4;
    shape.columns = b.dim(transposed_ ? 0 : 1);
    return EitherProductU8(shape, isa_, threads);
  }

  bool transposed_;
  bool is_signed_;
  std::int32_t zero_;  // of unsigned rows
  QuantizedResult result_;
  Isa isa_;
};

}  // namespace

sdk::KernelList quantized_matmul_kernels() {
  return {sdk::op("QuantizedMatMul", "backplane.cpu")
              .name("cpu:quantized_matmul")
              .kernel<QuantizedMatMul>()};
}

}  // namespace backplane::cpu

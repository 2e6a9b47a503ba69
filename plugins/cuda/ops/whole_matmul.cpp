// MatMul and Gemm of integers of 32 and 64 bits.
#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/matrix_batch.hpp"
#include "plugins/cuda/whole_products.hpp"

namespace backplane::cuda {
namespace {

using device_ops::View;

/// Between nodes of a rewrite types may be known in `prepare` alone.
void require_whole(DataType type) {
  if (!is_whole(type))
    sdk::unsupported("a product of ", sdk::type_name(type), " as one of integers");
}

void set_cost(sdk::PrepareContext& ctx, const WholeProduct& p) {
  ctx.set_variant("plain");
  ctx.set_cost(2 * static_cast<std::uint64_t>(p.outer * p.inner * p.rows * p.columns * p.depth),
               ctx.input(0).bytes() + ctx.input(1).bytes());
}

class WholeMatMul {
 public:
  WholeMatMul(const Device&, const sdk::Node&) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(1);
    require_whole(a.type());
    device_ops::MatrixBatch matrices(a.dims(), b.dims());
    ctx.set_output(0, a.type(), matrices.y_dims);
    if (sdk::element_count(matrices.y_dims) == 0) return;
    const common::StridedLoops loops = matrices.merge();
    const std::size_t rank = loops.dims.size();
    if (rank > 2)
      sdk::unsupported("a batch of integer products whose axes merge into ", rank, "; two are");
    WholeProduct product;
    product.type = a.type();
    product.rows = matrices.rows;
    product.columns = product.b_row = product.y_row = matrices.columns;
    product.depth = product.a_row = matrices.depth;
    product.inner = loops.dims[rank - 1];
    product.outer = rank > 1 ? loops.dims[0] : 1;
    const auto steps = [&](std::size_t operand) {
      return std::array<std::int64_t, 2>{rank > 1 ? loops.strides[operand][0] : 0,
                                         loops.strides[operand][rank - 1]};
    };
    product.a_batch = steps(0);
    product.b_batch = steps(1);
    product.y_batch = steps(2);
    add_product(work.launches(), product);
    set_cost(ctx, product);
  }
};

class WholeGemm {
 public:
  WholeGemm(const Device&, const sdk::Node& node)
      : alpha_(node.get_float("alpha", 1)),
        beta_(node.get_float("beta", 1)),
        a_is_transposed_(node.get_int("transA", 0) != 0),
        b_is_transposed_(node.get_int("transB", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(1), c = ctx.input(2);
    require_whole(a.type());
    if (a.rank() != 2 || b.rank() != 2 ||
        a.dim(a_is_transposed_ ? 0 : 1) != b.dim(b_is_transposed_ ? 1 : 0))
      sdk::invalid("Gemm of ", to_string(a.dims()), " and ", to_string(b.dims()));
    WholeProduct product;
    product.type = a.type();
    product.rows = a.dim(a_is_transposed_ ? 1 : 0);
    product.depth = a.dim(a_is_transposed_ ? 0 : 1);
    product.columns = product.y_row = b.dim(b_is_transposed_ ? 0 : 1);
    product.a_row = a_is_transposed_ ? 1 : product.depth;
    product.a_step = a_is_transposed_ ? product.rows : 1;
    product.b_row = b_is_transposed_ ? 1 : product.columns;
    product.b_step = b_is_transposed_ ? product.depth : 1;
    const Dims dims{product.rows, product.columns};
    ctx.set_output(0, a.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    add_product(work.launches(), product);
    if (c.present() || alpha_ != 1) add_factors(work.launches(), product.type, c, dims);
    set_cost(ctx, product);
  }

 private:
  /// What the factors give together is cut off once.
  void add_factors(device_ops::Work& work, DataType type, const sdk::Tensor& c,
                   const Dims& dims) const {
    const bool has_addend = c.present() && beta_ != 0;
    if (has_addend && !common::broadcasts_to(c.dims(), dims))
      sdk::invalid("Gemm adds ", to_string(c.dims()), " to ", sdk::to_string(dims));
    if (!has_addend && alpha_ == 1) return;
    const View y = device_ops::dense_view(output(0), type, dims);
    std::vector<View> views{y};
    if (has_addend) views.push_back(device_ops::broadcast_view(input(2), type, c.dims(), dims));
    const bool is_sum = alpha_ == 1 && beta_ == 1;
    const std::string addend = has_addend ? " + (double)p1 * (double)v1" : "";
    const std::string text =
        is_sum ? "v0 + v1" : sdk::message("(VALUE(T))((double)p0 * (double)v0", addend, ")");
    std::vector<double> factors;
    if (!is_sum) factors = {static_cast<double>(alpha_), static_cast<double>(beta_)};
    device_ops::add_pointwise(
        work, dims, views, y,
        {text, sdk::message("#define T ", device_ops::type_code(type), "\n"), factors});
  }

  float alpha_, beta_;
  bool a_is_transposed_, b_is_transposed_;
};

}  // namespace

KernelList whole_matmul_kernels() {
  const common::TypeList types = whole_types();
  return {
      cuda_kernel<WholeMatMul>(
          sdk::op("MatMul").name(kernel_name("matmul of integers")).priority(-1).types("T", types)),
      cuda_kernel<WholeGemm>(sdk::op("Gemm")
                                 .name(kernel_name("gemm of integers"))
                                 .priority(-1)
                                 .since(7)
                                 .types("T", types)),
  };
}

}  // namespace backplane::cuda

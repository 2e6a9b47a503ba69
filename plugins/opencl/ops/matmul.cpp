// MatMul, Gemm, and FusedMatMul of a rewrite: https://onnx.ai/onnx/operators/onnx__MatMul.html
#include <algorithm>

#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/matrix_batch.hpp"
#include "plugins/common/kernels/pointwise.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/opencl/kernels/columns.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

/// b as a constant matrix in panels, where that is of use. `product` has its sizes by then.
bool use_panels(const sdk::PrepareContext& ctx, const ColumnPackers& packers, const Tile& tile,
                bool is_transposed, Product& product, Way& way) {
  if (tile.tiling != Tiling::kVector || !ctx.input_constant(1)) return false;
  const ColumnPacker* const packer =
      packers.find({product.channels, product.columns, tile.columns(), is_transposed});
  product.b = packed(0);
  product.b_is_panel = true;
  way.packed_bytes = packer->bytes();
  way.request_packed = [packer](sdk::PrepareContext& host) {
    host.request_pack(packer->key(), {1}, packer->bytes(), packer);
    host.ignore_input(1);
  };
  return true;
}

std::uint64_t bytes_of(const Dims& dims, DataType type) {
  return static_cast<std::uint64_t>(sdk::element_count(dims) * sdk::element_bytes(type));
}

Dims dims_of(const sdk::Tensor& tensor) {
  const DimsView dims = tensor.dims();
  return {dims.begin(), dims.end()};
}

void set_product_cost(sdk::PrepareContext& ctx, const Product& product) {
  const std::int64_t sums = product.batch * product.rows * product.columns * product.channels;
  ctx.set_cost(2 * static_cast<std::uint64_t>(sums), ctx.input(0).bytes() + ctx.input(1).bytes());
}

/// Where what is added to a product turns out to have other dims than it: the product is in the workspace, and this the step
/// after it.
void add_residual(Work& work, const sdk::PrepareContext& ctx, const Dims& product, const Dims& dims,
                  const Activation& activation) {
  const DataType type = ctx.input(0).type();
  const sdk::Tensor residual = ctx.input(3);
  add_pointwise(work, dims,
                {broadcast_view(workspace(), type, product, dims),
                 broadcast_view(input(3), residual.type(), residual.dims(), dims)},
                dense_view(output(0), type, dims),
                {activation.of_scalar, common::kScalarFunctions, {}, "  REAL s = v0 + v1;\n"});
}

class MatMul {
 public:
  MatMul(const device_ops::Device&, const sdk::Node& node) : activation_(Activation::from(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(1);
    device_ops::MatrixBatch matrices(a.dims(), b.dims());
    Product product;
    product.type = a.type();
    product.channels = matrices.depth;
    product.columns = matrices.columns;
    const sdk::Tensor residual = ctx.input(3);
    Dims dims = matrices.y_dims;
    if (residual.present()) dims = common::broadcast_dims({matrices.y_dims, residual.dims()});
    const bool is_apart = residual.present() && !(matrices.y_dims == dims_of(residual));
    ctx.set_output(0, a.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    product.has_bias = ctx.input(2).present();
    product.bias = input(2);
    product.bias_is_along = true;
    product.has_residual = residual.present() && !is_apart;
    product.residual = input(3);
    product.activation = is_apart ? Activation::make("", {}) : activation_;
    const common::StridedLoops loops = matrices.merge();
    product.rows = matrices.rows;
    product.a = input(0);
    product.b = input(1);
    product.y = output(0);
    product.a_row = product.channels;
    product.b_channel = product.columns;
    product.y_row = product.columns;
    if (launch_count(loops) > 64)
      sdk::unsupported("a batch whose axes merge into ", loops.dims.size(), " of ",
                       launch_count(loops));
    if (is_apart) product.y = workspace();
    set_product_cost(ctx, product);
    const bool is_one_matrix = loops.dims.size() == 1 && loops.strides[1][0] == 0;
    std::vector<Way> ways;
    for (const Tile& tile : tiles_to_try(device_of(work), product.type, product.rows,
                                         product.columns, ctx.input_constant(1) && is_one_matrix)) {
      Way way(work);
      way.name = tile.name();
      Product tiled = product;
      if (is_one_matrix) use_panels(ctx, packers_, tile, false, tiled, way);
      add_products(way.work, tiled, loops, tile);
      if (is_apart) {
        way.workspace_bytes = bytes_of(matrices.y_dims, a.type());
        add_residual(way.work, ctx, matrices.y_dims, dims, activation_);
      }
      ways.push_back(std::move(way));
    }
    take_best(ctx, work, std::move(ways), bytes_of(dims, a.type()));
  }

 private:
  Activation activation_;
  ColumnPackers packers_;
};

class Gemm {
 public:
  Gemm(const device_ops::Device&, const sdk::Node& node)
      : alpha_(node.get_float("alpha", 1)),
        beta_(node.get_float("beta", 1)),
        a_is_transposed_(node.get_int("transA", 0) != 0),
        b_is_transposed_(node.get_int("transB", 0) != 0),
        activation_(Activation::from(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor a = ctx.input(0), c = ctx.input(2);
    Product product = product_of(a, ctx.input(1));
    const Dims dims{product.rows, product.columns};
    ctx.set_output(0, a.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    // The bias is added as it is; another beta needs a step of its own, and so do the factors of integers, of which
    // what they give together is cut off once.
    const bool has_bias = c.present() && beta_ != 0;
    const bool scales_integers = !is_float(a.type()) && (alpha_ != 1 || (has_bias && beta_ != 1));
    if (scales_integers && !work.device().has_double())
      sdk::unsupported("Gemm of integers with alpha ", alpha_, " and beta ", beta_,
                       " needs double precision, which ", work.device().limits().name, " lacks");
    const bool is_fused = has_bias && beta_ == 1 && !scales_integers;
    product.factor = scales_integers ? 1 : alpha_;
    product.activation = activation_;
    if (has_bias && !common::broadcasts_to(c.dims(), dims))
      sdk::invalid("Gemm adds ", to_string(c.dims()), " to ", sdk::to_string(dims));
    if (is_fused) set_bias(c, dims, product);
    set_product_cost(ctx, product);
    std::vector<Way> ways;
    for (const Tile& tile : tiles_to_try(device_of(work), product.type, product.rows,
                                         product.columns, ctx.input_constant(1))) {
      Way way(work);
      way.name = tile.name();
      add_tiled(ctx, product, tile, way);
      if (scales_integers || (has_bias && !is_fused))
        add_factors(way.work, a.type(), c, dims, scales_integers, has_bias);
      ways.push_back(std::move(way));
    }
    take_best(ctx, work, std::move(ways), bytes_of(dims, a.type()));
  }

 private:
  /// The matrices, as they lie.
  Product product_of(const sdk::Tensor& a, const sdk::Tensor& b) const {
    if (a.rank() != 2 || b.rank() != 2 ||
        a.dim(a_is_transposed_ ? 0 : 1) != b.dim(b_is_transposed_ ? 1 : 0))
      sdk::invalid("Gemm of ", to_string(a.dims()), " and ", to_string(b.dims()));
    Product product;
    product.type = a.type();
    product.rows = a.dim(a_is_transposed_ ? 1 : 0);
    product.channels = a.dim(a_is_transposed_ ? 0 : 1);
    product.columns = b.dim(b_is_transposed_ ? 0 : 1);
    product.a = input(0);
    product.a_row = a_is_transposed_ ? 1 : product.channels;
    product.a_step = a_is_transposed_ ? product.rows : 1;
    product.b = input(1);
    product.b_channel = b_is_transposed_ ? 1 : product.columns;
    product.b_step = b_is_transposed_ ? product.channels : 1;
    product.y = output(0);
    product.y_row = product.columns;
    return product;
  }

  void add_tiled(const sdk::PrepareContext& ctx, Product product, const Tile& tile,
                 Way& way) const {
    if (!use_panels(ctx, packers_, tile, b_is_transposed_, product, way) &&
        tile.tiling == Tiling::kVector && b_is_transposed_)
      transpose_b(ctx.input(1), product, way);
    add_product(way.work, product, tile);
  }

  static void set_bias(const sdk::Tensor& c, const Dims& dims, Product& product) {
    const Dims strides = broadcast_view({}, c.type(), c.dims(), dims).strides;
    product.has_bias = true;
    product.bias = input(2);
    product.bias_row = strides[0];
    product.bias_is_along = strides[1] != 0;
  }

  static bool is_float(DataType type) {
    const common::TypeList types = float_types();
    return std::find(types.begin(), types.end(), type) != types.end();
  }

  /// What the product's launch leaves of the factors: beta and C, and of integers alpha too.
  void add_factors(Work& work, DataType type, const sdk::Tensor& c, const Dims& dims,
                   bool scales_integers, bool has_bias) const {
    std::vector<View> views{dense_view(output(0), type, dims)};
    if (has_bias) views.push_back(broadcast_view(input(2), type, c.dims(), dims));
    std::string text = "v0 + (VALUE(T))p0 * v1";
    if (scales_integers) {
      text = sdk::message("(VALUE(T))((double)", has_bias ? "p1" : "p0", " * (double)v0",
                          has_bias ? " + (double)p0 * (double)v1)" : ")");
    }
    std::vector<double> factors;
    if (has_bias) factors.push_back(static_cast<double>(beta_));
    if (scales_integers) factors.push_back(static_cast<double>(alpha_));
    add_pointwise(work, dims, views, dense_view(output(0), type, dims),
                  {text, sdk::message("#define T ", type_code(type), "\n"), factors});
  }

  /// A matrix whose columns do not lie together is laid out anew.
  static void transpose_b(const sdk::Tensor& b, Product& product, Way& way) {
    way.workspace_bytes = b.bytes();
    add_strided_copy(way.work, b.type(),
                     {Dims{product.channels, product.columns}, input(1), workspace(),
                      Dims{1, product.channels}, Dims{product.columns, 1}, 0, 0, -1});
    product.b = workspace();
    product.b_channel = product.columns;
    product.b_step = 1;
  }

  float alpha_, beta_;
  bool a_is_transposed_, b_is_transposed_;
  Activation activation_;
  ColumnPackers packers_;
};

}  // namespace

KernelList matmul_kernels() {
  const common::TypeList types = common::join(
      float_types(), {DataType::Int32, DataType::Int64, DataType::UInt32, DataType::UInt64});
  return {
      device_kernel<MatMul>(sdk::op("MatMul")
                                .name(kernel_name("matmul"))
                                .types("T", types)
                                .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT})),
      device_kernel<MatMul>(sdk::op("FusedMatMul", private_domain())
                                .name(kernel_name("matmul"))
                                .input_types(0, {DataType::Float})
                                .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      device_kernel<Gemm>(sdk::op("Gemm")
                              .name(kernel_name("gemm"))
                              .since(7)
                              .types("T", types)
                              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      device_kernel<Gemm>(sdk::op("FusedGemm", private_domain())
                              .name(kernel_name("gemm"))
                              .input_types(0, {DataType::Float})
                              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
  };
}

}  // namespace backplane::opencl

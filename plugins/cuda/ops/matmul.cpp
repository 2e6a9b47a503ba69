// MatMul, Gemm, and FusedMatMul and FusedGemm of a rewrite, by cuBLASLt:
// https://onnx.ai/onnx/operators/onnx__MatMul.html
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/matrix_batch.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"

namespace backplane::cuda {
namespace {

/// Products of a batch that merges into no single axis; hardly any model has one.
constexpr std::int64_t kMostCalls = 64;

/// Between nodes of a rewrite types may be known in `prepare` alone; integers are another kernel's.
void require_floats(DataType type) {
  if (!device_ops::is_float(type))
    sdk::unsupported("a product of ", sdk::type_name(type), " as one of floats");
}

/// What is added to a product, broadcast to its dims, times a factor.
struct Addend {
  std::uint32_t place;
  float factor = 1;
};

/// A product without depth, which the library does not compute: sums of nothing, and what comes after.
void add_empty_product(sdk::PrepareContext& ctx, NodeWork& work, const Dims& dims,
                       const std::vector<Addend>& addends, Epilogue epilogue) {
  std::vector<device_ops::View> views;
  device_ops::Expression expression;
  std::string sum = "0";
  for (const Addend& addend : addends) {
    const sdk::Tensor tensor = ctx.input(addend.place);
    if (!tensor.present() || addend.factor == 0) continue;
    if (!common::broadcasts_to(tensor.dims(), dims))
      sdk::invalid("a product of dims ", sdk::to_string(dims), " with ", to_string(tensor.dims()),
                   " added");
    sum += sdk::message(" + p", views.size(), " * v", views.size());
    expression.parameters.push_back(static_cast<double>(addend.factor));
    views.push_back(
        device_ops::broadcast_view(input(addend.place), tensor.type(), tensor.dims(), dims));
  }
  expression.text = activated(sum, epilogue);
  expression.functions = common::kScalarFunctions;
  const DataType type = ctx.input(0).type();
  device_ops::add_pointwise(work.launches(), dims, views,
                            device_ops::dense_view(output(0), type, dims), expression);
  ctx.set_variant("no elements");
}

bool is_same(DimsView a, const Dims& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Takes from a product what is done after it, for which the library may have no algorithm. False: there is no such thing.
bool take_rest(Product& product) {
  if (!product.has_bias && product.epilogue == Epilogue::kNone) return false;
  product.has_bias = false;
  product.epilogue = Epilogue::kNone;
  return true;
}

/// Does that after the product, whose rows lie together.
void add_rest(NodeWork& work, const ProductPlan& plan, std::int64_t rows) {
  const Product& product = plan.product;
  const device_ops::View y{plan.y, product.type, Dims{product.columns, 1}};
  std::vector<device_ops::View> views{y};
  if (product.has_bias) views.push_back({plan.bias, product.type, Dims{0, 1}});
  device_ops::add_pointwise(work.launches(), Dims{rows, product.columns}, views, y,
                            {activated(product.has_bias ? "(v0 + v1)" : "v0", product.epilogue),
                             common::kScalarFunctions,
                             {}});
}

/// The products, without their rest where the library has no algorithm that does it, too.
std::unique_ptr<ProductWork> products_of(NodeWork& work, const ProductPlan& whole, bool& has_rest) {
  const auto made = [&work](ProductPlan plan) {
    return std::make_unique<ProductWork>(work.device(), work.label(), std::move(plan),
                                         work.choosing());
  };
  try {
    return made(whole);
  } catch (const sdk::Error& error) {
    ProductPlan bare = whole;
    if (error.code() != BP_UNSUPPORTED || !take_rest(bare.product)) throw;
    has_rest = false;
    return made(std::move(bare));
  }
}

/// Adds the products; their form is complete but for the precision. The first `kept` bytes of the workspace are not theirs.
void add_products(sdk::PrepareContext& ctx, NodeWork& work, ProductPlan plan, Precision precision,
                  std::uint64_t kept = 0) {
  Product& product = plan.product;
  if (product.type == DataType::Float) product.precision = precision;
  bool has_rest = true;
  std::unique_ptr<ProductWork> part = products_of(work, plan, has_rest);
  if (const std::uint64_t bytes = kept + part->workspace_bytes(); bytes > 0)
    ctx.set_workspace(bytes, work.device().limits().alignment);
  const std::string way =
      sdk::message(part->way(), product.batch > 1 ? ", batch" : "", part->rounding());
  work.add(std::move(part));
  const std::int64_t rows =
      product.rows * product.batch * static_cast<std::int64_t>(plan.calls.size());
  if (!has_rest) add_rest(work, plan, rows);
  ctx.set_variant(way + (has_rest ? "" : ", then pointwise"));
  ctx.set_cost(2 * static_cast<std::uint64_t>(rows * product.columns * product.depth),
               ctx.input(0).bytes() + ctx.input(1).bytes());
}

/// The step after a product that is in the workspace: what is added to it turned out to have other dims than it.
void add_matrix(const sdk::PrepareContext& ctx, NodeWork& work, const Dims& product,
                const Dims& dims, Epilogue epilogue) {
  const DataType type = ctx.input(0).type();
  const sdk::Tensor addend = ctx.input(3);
  device_ops::add_pointwise(
      work.launches(), dims,
      {device_ops::broadcast_view(device_ops::workspace(), type, product, dims),
       device_ops::broadcast_view(input(3), addend.type(), addend.dims(), dims)},
      device_ops::dense_view(output(0), type, dims),
      {activated("(v0 + v1)", epilogue), common::kScalarFunctions, {}});
}

class MatMul {
 public:
  MatMul(const Device& device, const sdk::Node& node)
      : epilogue_(epilogue_after(node)), precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(1);
    require_floats(a.type());
    device_ops::MatrixBatch matrices(a.dims(), b.dims());
    ProductPlan plan;
    Product& product = plan.product;
    product.type = product.result = a.type();
    product.rows = matrices.rows;
    product.depth = matrices.depth;
    product.columns = matrices.columns;
    const sdk::Tensor addend = ctx.input(3);
    Dims dims = matrices.y_dims;
    if (addend.present()) dims = common::broadcast_dims({matrices.y_dims, addend.dims()});
    const bool is_apart = addend.present() && !is_same(addend.dims(), matrices.y_dims);
    ctx.set_output(0, a.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    if (product.depth == 0) return add_empty_product(ctx, work, dims, {{2}, {3}}, epilogue_);
    plan.a = input(0);
    plan.b = input(1);
    plan.b_is_constant = ctx.input_constant(1);
    plan.y = output(0);
    product.a.step = product.depth;
    product.b.step = product.columns;
    product.has_bias = ctx.input(2).present();
    plan.bias = input(2);
    product.has_addend = addend.present() && !is_apart;
    plan.c = input(3);
    product.epilogue = is_apart ? Epilogue::kNone : epilogue_;
    const Dims made = matrices.y_dims;
    WorkspacePieces pieces(work.device());
    if (is_apart) {
      plan.y = pieces.add(sdk::element_count(made) * sdk::element_bytes(a.type()));
      plan.workspace = device_ops::workspace(pieces.bytes());
    }
    set_batch(matrices, plan);
    add_products(ctx, work, std::move(plan), precision_, pieces.bytes());
    if (is_apart) add_matrix(ctx, work, made, dims, epilogue_);
  }

 private:
  /// What is left over after one axis is calls of their own.
  static void set_batch(device_ops::MatrixBatch& matrices, ProductPlan& plan) {
    Product& product = plan.product;
    const common::StridedLoops loops = matrices.merge();
    product.rows = matrices.rows;
    if (loops.dims.empty()) return;
    const std::size_t last = loops.dims.size() - 1;
    product.batch = loops.dims[last];
    product.a.batch_step = loops.strides[0][last];
    product.b.batch_step = loops.strides[1][last];
    product.y_batch_step = loops.strides[2][last];
    std::int64_t calls = 1;
    for (std::size_t axis = 0; axis < last; ++axis) calls *= loops.dims[axis];
    if (calls > kMostCalls)
      sdk::unsupported("a batch whose axes merge into ", loops.dims.size(), " of ", calls,
                       " products; there may be ", kMostCalls);
    const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(product.type));
    plan.calls.assign(static_cast<std::size_t>(calls), {});
    for (std::int64_t call = 0; call < calls; ++call) {
      ProductPlan::Call& moved = plan.calls[static_cast<std::size_t>(call)];
      std::int64_t rest = call;
      for (std::size_t axis = last; axis-- > 0;) {
        const std::int64_t at = rest % loops.dims[axis];
        rest /= loops.dims[axis];
        moved.a += static_cast<std::uint64_t>(at * loops.strides[0][axis]) * bytes;
        moved.b += static_cast<std::uint64_t>(at * loops.strides[1][axis]) * bytes;
        moved.y += static_cast<std::uint64_t>(at * loops.strides[2][axis]) * bytes;
      }
    }
  }

  Epilogue epilogue_;
  Precision precision_;
};

class Gemm {
 public:
  Gemm(const Device& device, const sdk::Node& node)
      : alpha_(node.get_float("alpha", 1)),
        beta_(node.get_float("beta", 1)),
        a_is_transposed_(node.get_int("transA", 0) != 0),
        b_is_transposed_(node.get_int("transB", 0) != 0),
        epilogue_(epilogue_after(node)),
        precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), b = ctx.input(1), c = ctx.input(2);
    require_floats(a.type());
    if (a.rank() != 2 || b.rank() != 2)
      sdk::invalid("Gemm of ", to_string(a.dims()), " and ", to_string(b.dims()));
    ProductPlan plan;
    Product& product = plan.product;
    product.type = product.result = a.type();
    product.rows = a.dim(a_is_transposed_ ? 1 : 0);
    product.depth = a.dim(a_is_transposed_ ? 0 : 1);
    product.columns = b.dim(b_is_transposed_ ? 0 : 1);
    if (b.dim(b_is_transposed_ ? 1 : 0) != product.depth)
      sdk::invalid("Gemm of ", to_string(a.dims()), " and ", to_string(b.dims()));
    const Dims dims{product.rows, product.columns};
    ctx.set_output(0, a.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    if (product.depth == 0) return add_empty_product(ctx, work, dims, {{2, beta_}}, epilogue_);
    plan.a = input(0);
    plan.b = input(1);
    plan.b_is_constant = ctx.input_constant(1);
    plan.y = output(0);
    product.a = {a.dim(1), 0, a_is_transposed_};
    product.b = {b.dim(1), 0, b_is_transposed_};
    product.factor = static_cast<double>(alpha_);
    product.epilogue = epilogue_;
    if (c.present() && beta_ != 0) set_addend(c, dims, work, plan);
    add_products(ctx, work, std::move(plan), precision_);
  }

 private:
  /// A row is the library's bias, a whole matrix its addend; anything else is spread out into y first.
  void set_addend(const sdk::Tensor& c, const Dims& dims, NodeWork& work, ProductPlan& plan) const {
    if (!common::broadcasts_to(c.dims(), dims))
      sdk::invalid("Gemm adds ", to_string(c.dims()), " to ", sdk::to_string(dims));
    const Dims steps = device_ops::broadcast_view({}, c.type(), c.dims(), dims).strides;
    const bool is_row = steps[0] == 0 && (steps[1] == 1 || dims[1] == 1);
    if (is_row && beta_ == 1) {
      plan.product.has_bias = true;
      plan.bias = input(2);
      return;
    }
    plan.product.has_addend = true;
    plan.product.addend_factor = static_cast<double>(beta_);
    const bool is_whole = sdk::element_count(c.dims()) == sdk::element_count(dims);
    plan.c = is_whole ? input(2) : output(0);
    if (is_whole) return;
    device_ops::add_pointwise(work.launches(), dims,
                              {device_ops::broadcast_view(input(2), c.type(), c.dims(), dims)},
                              device_ops::dense_view(output(0), c.type(), dims), {"v0", "", {}});
  }

  float alpha_, beta_;
  bool a_is_transposed_, b_is_transposed_;
  Epilogue epilogue_;
  Precision precision_;
};

}  // namespace

KernelList matmul_kernels() {
  const common::TypeList types = device_ops::float_types();
  const auto fused = [](const char* op_type, const char* name) {
    return sdk::op(op_type, private_domain())
        .name(kernel_name(name))
        .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16})
        .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA});
  };
  return {
      cuda_kernel<MatMul>(sdk::op("MatMul")
                              .name(kernel_name("matmul"))
                              .types("T", types)
                              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT})),
      cuda_kernel<MatMul>(fused("FusedMatMul", "matmul")),
      cuda_kernel<Gemm>(sdk::op("Gemm")
                            .name(kernel_name("gemm"))
                            .since(7)
                            .types("T", types)
                            .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      cuda_kernel<Gemm>(fused("FusedGemm", "gemm")),
  };
}

}  // namespace backplane::cuda

// JoinedMatMul and JoinedGemm of a rewrite: products of one value with several constant matrices of one size, one result after
// another (plugins/common/device_ops/joined_parts.hpp), by cuBLASLt.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/joined_parts.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"

namespace backplane::cuda {
namespace {

/// Whether one product keeps the device busy: it has a tile of the usual size for every multiprocessor. Then several at once have
/// nothing to gain, and are the calls that they would be apart.
bool fills(const Product& product, const DeviceTraits& traits) {
  constexpr std::int64_t kTile = 128;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return tiles(product.rows) * tiles(product.columns) >= traits.multiprocessors;
}

class JoinedProducts {
 public:
  JoinedProducts(const Device& device, const sdk::Node& node)
      : is_transposed_(node.get_int("transB", 0) != 0),
        epilogue_(epilogue_after(node)),
        precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const sdk::Tensor a = ctx.input(0), weights = ctx.input(1), rows = ctx.input(2);
    if (weights.rank() != 3 || a.rank() < 1 ||
        a.dims().back() != weights.dim(is_transposed_ ? 2 : 1))
      sdk::invalid("products of ", to_string(a.dims()), " with ", to_string(weights.dims()));
    ProductPlan plan;
    Product& product = plan.product;
    product.type = product.result = a.type();
    product.depth = a.dims().back();
    product.columns = weights.dim(is_transposed_ ? 1 : 2);
    product.batch = weights.dim(0);
    Dims part(a.dims().begin(), a.dims().end());
    part.back() = product.columns;
    const std::uint64_t alignment = work.device().limits().alignment;
    ctx.set_output(0, a.type(),
                   device_ops::dims_of_parts(product.batch, part, a.type(), alignment));
    const std::int64_t elements = sdk::element_count(part);
    if (elements == 0) return;
    if (product.depth == 0) sdk::unsupported("joined products without depth");
    product.rows = elements / product.columns;
    product.a.step = product.depth;  // and no step from one matrix to the next: all read this one
    product.b = {weights.dim(2), weights.dim(1) * weights.dim(2), is_transposed_};
    product.y_batch_step = device_ops::step_of_parts(elements, a.type(), alignment);
    product.has_bias = rows.present();
    if (product.has_bias) product.bias_batch_step = rows.dim(1);
    product.epilogue = epilogue_;
    if (product.type == DataType::Float) product.precision = precision_;
    plan.a = input(0);
    plan.b = input(1);
    plan.b_is_constant = ctx.input_constant(1);
    plan.bias = input(2);
    plan.y = output(0);
    add_products(ctx, work, std::move(plan));
  }

 private:
  static void add_products(sdk::PrepareContext& ctx, NodeWork& work, ProductPlan plan) {
    const Product& product = plan.product;
    const std::int64_t count = product.batch;
    ctx.set_cost(
        2 * static_cast<std::uint64_t>(product.rows * product.columns * product.depth * count),
        ctx.input(0).bytes() + ctx.input(1).bytes());
    const char* how = " in a call";
    if (fills(product, work.device().traits())) {
      how = " in calls of their own: each fills the device";
      divide(plan);
    } else if (!work.device().products().find(to_library(product, kLibraryAlignment),
                                              work.choosing())) {
      how = " in calls of their own: the library has no algorithm for all at once";
      divide(plan);
    }
    auto part = std::make_unique<ProductWork>(work.device(), work.label(), std::move(plan),
                                              work.choosing());
    ctx.set_variant(sdk::message(part->way(), part->rounding(), ", ", count, " products", how));
    if (part->workspace_bytes() > 0)
      ctx.set_workspace(part->workspace_bytes(), work.device().limits().alignment);
    work.add(std::move(part));
  }

  /// The same products, on the same memory, one after another.
  static void divide(ProductPlan& plan) {
    Product& product = plan.product;
    const auto bytes = [&](std::int64_t elements) {
      return static_cast<std::uint64_t>(elements * sdk::element_bytes(product.type));
    };
    plan.calls.clear();
    for (std::int64_t i = 0; i < product.batch; ++i)
      plan.calls.push_back({0, bytes(i * product.b.batch_step), bytes(i * product.y_batch_step),
                            bytes(i * product.bias_batch_step)});
    product.batch = 1;
    product.b.batch_step = product.y_batch_step = product.bias_batch_step = 0;
  }

  bool is_transposed_;
  Epilogue epilogue_;
  Precision precision_;
};

}  // namespace

KernelList joined_matmul_kernels() {
  const auto joined = [](const char* op_type) {
    return cuda_kernel<JoinedProducts>(
        sdk::op(op_type, private_domain())
            .name(kernel_name("joined products"))
            .input_types(0, {DataType::Float, DataType::Float16, DataType::BFloat16})
            .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT}));
  };
  return {joined("JoinedMatMul"), joined("JoinedGemm")};
}

}  // namespace backplane::cuda

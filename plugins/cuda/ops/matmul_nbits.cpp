// MatMulNBits, and JoinedMatMulNBits of a rewrite, which is several of one value: the few rows of a model that decodes by the shared
// kernels, whose sums are float32 whatever `precision` is; more of them by cuBLASLt, with that precision.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "op_table.hpp"
#include "plugins/common/device_ops/block_weights.hpp"
#include "plugins/cuda/integer_lines.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"

namespace backplane::cuda {
namespace {

using device_ops::BlockProduct;
using device_ops::MemoryRef;

class NarrowMatMul {
 public:
  NarrowMatMul(const Device& device, const sdk::Node& node)
      : shared_(node), precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    std::vector<BlockProduct> products = shared_.begin(ctx);
    for (BlockProduct& each : products) each.may_use_matrices = true;
    const std::string several =
        products.size() > 1 ? sdk::message(", ", products.size(), " products") : std::string();
    if (products[0].rows == 0) return;
    if (products[0].is_for_few_rows(work.device())) {
      add_packed_products(work.launches(), products,
                          0);  // without a workspace, as groups share rows
      return ctx.set_variant(
          sdk::message("packed", several, several.empty() ? "" : " in a launch"));
    }
    std::uint64_t bytes = 0;
    for (const BlockProduct& each : products) bytes = std::max(bytes, add_products(each, work));
    ctx.set_workspace(bytes, work.device().limits().alignment);
    ctx.set_variant("written out, cublaslt" + several);
  }

 private:
  static MemoryRef after(MemoryRef place, std::uint64_t bytes) {
    place.offset += bytes;
    return place;
  }

  /// Some columns after the other, in the same memory. Returns the bytes of the workspace.
  std::uint64_t add_products(const BlockProduct& form, NodeWork& work) const {
    constexpr std::int64_t kUnit = 64;
    const std::int64_t at_once = form.columns_at_once(work.device(), kUnit);
    const std::int64_t element = sdk::element_bytes(form.type);
    const auto bytes_of = [&](std::int64_t columns) {
      return static_cast<std::uint64_t>(columns * element);
    };
    WorkspacePieces pieces(work.device());
    const MemoryRef written = pieces.add(at_once * form.depth * element);
    std::uint64_t of_library = 0;
    for (std::int64_t first = 0; first < form.columns; first += at_once) {
      const std::int64_t count = std::min(at_once, form.columns - first);
      add_written_columns(work.launches(), form, {written, first, count, form.depth, 1});
      ProductPlan plan;
      Product& product = plan.product;
      product.type = product.result = form.type;
      product.rows = form.rows;
      product.depth = product.a.step = product.b.step = form.depth;
      product.columns = count;
      product.b.is_transposed = true;
      product.y_step = form.columns;
      product.has_bias = form.has_bias;
      if (form.type == DataType::Float) product.precision = precision_;
      plan.a = form.a;
      plan.b = written;
      plan.bias = after(form.bias, bytes_of(first));
      plan.y = after(form.y, bytes_of(first));
      plan.workspace = device_ops::workspace(pieces.bytes());
      auto part = std::make_unique<ProductWork>(work.device(), work.label(), std::move(plan),
                                                work.choosing());
      of_library = std::max(of_library, part->workspace_bytes());
      work.add(std::move(part));
    }
    return pieces.bytes() + of_library;
  }

  device_ops::MatMulNBits shared_;
  Precision precision_;
};

}  // namespace

KernelList matmul_nbits_kernels() {
  return {cuda_kernel<NarrowMatMul>(device_ops::matmul_nbits_op()),
          cuda_kernel<NarrowMatMul>(device_ops::joined_matmul_nbits_op())};
}

}  // namespace backplane::cuda

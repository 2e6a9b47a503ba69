// MatMulNBits: the few rows of a model that decodes by the shared kernels, more of them by this provider's products.
#include <algorithm>

#include "plugins/common/device_ops/block_weights.hpp"
#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

using device_ops::BlockProduct;

class NarrowMatMul {
 public:
  NarrowMatMul(const device_ops::Device&, const sdk::Node& node) : shared_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const std::vector<BlockProduct> products = shared_.begin(ctx);
    const BlockProduct& form = products[0];
    if (form.rows == 0) return;
    if (form.is_for_few_rows(work.device())) {
      if (const std::uint64_t bytes = add_packed_products(work, products, 0); bytes > 0)
        ctx.set_workspace(bytes, work.device().limits().alignment);
      return ctx.set_variant("packed");
    }
    std::vector<Way> ways;
    for (const Tile& tile :
         tiles_to_try(device_of(work), form.type, form.rows, form.columns, true)) {
      Way way(work);
      way.name = "written out, " + tile.name();
      add_by_tiles(form, tile, way);
      ways.push_back(std::move(way));
    }
    take_best(ctx, work, std::move(ways), bytes_of(form, form.rows * form.columns));
  }

 private:
  using Shared = device_ops::MatMulNBits;

  static std::uint64_t bytes_of(const BlockProduct& form, std::int64_t elements) {
    return static_cast<std::uint64_t>(elements * sdk::element_bytes(form.type));
  }

  /// Some columns after the other, in the same memory.
  static void add_by_tiles(const BlockProduct& form, const Tile& tile, Way& way) {
    constexpr std::int64_t kUnit = 64;
    const bool has_panels = tile.tiling == Tiling::kVector;
    const std::int64_t unit = has_panels ? tile.columns() : kUnit;
    const std::int64_t at_once = form.columns_at_once(way.work.device(), unit);
    Product product;
    product.type = form.type;
    product.rows = form.rows;
    product.channels = product.a_row = form.depth;
    product.y_row = form.columns;
    product.a = input(Shared::kA);
    product.b = workspace();
    product.b_is_panel = has_panels;
    product.has_bias = form.has_bias;
    product.bias_is_along = true;
    for (std::int64_t first = 0; first < form.columns; first += at_once) {
      const std::int64_t count = std::min(at_once, form.columns - first);
      product.columns = product.b_channel = count;
      product.bias = input(Shared::kBias, bytes_of(form, first));
      product.y = output(0, bytes_of(form, first));
      if (has_panels) {
        add_written_panels(way.work, form, product.b, first, count, unit);
      } else {
        add_written_columns(way.work, form, {product.b, first, count, 1, count});
      }
      add_product(way.work, product, tile);
    }
    const std::int64_t width = (at_once + unit - 1) / unit * unit;
    way.workspace_bytes = bytes_of(form, width * form.depth);
  }

  Shared shared_;
};

}  // namespace

sdk::KernelList matmul_nbits_kernels() {
  return {device_kernel<NarrowMatMul>(device_ops::matmul_nbits_op())};
}

}  // namespace backplane::opencl

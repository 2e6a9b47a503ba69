// Einsum: its products by this provider's own, the rest by the shared kernels.
#include "plugins/common/device_ops/einsum.hpp"

#include <algorithm>
#include <string>

#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/columns.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {
namespace {

using device_ops::EinsumProduct;
using device_ops::WorkspacePieces;

class Target final : public device_ops::EinsumTarget {
 public:
  Target(sdk::PrepareContext& ctx, Work& work, const ColumnPackers& packers)
      : ctx_(ctx), work_(work), packers_(packers) {}

  Work& launches() override { return work_; }
  std::size_t batch_axes(DataType) const override { return 2; }
  bool reads_a(const EinsumProduct&) const override { return true; }
  bool reads_b(const EinsumProduct& p) const override {
    return p.b_column == 1 || p.columns == 1 || tile_of(p).tiling != Tiling::kVector || is_whole(p);
  }
  /// Where a column of the matrix lies together, items read along it, a sum each.
  bool wants_lone_row(DataType, bool lie_together) const override { return lie_together; }

  std::string add(const EinsumProduct& p, WorkspacePieces&) override {
    Product product;
    product.type = p.type;
    product.rows = p.rows;
    product.columns = p.columns;
    product.channels = p.depth;
    product.a = p.a;
    product.a_row = p.a_row;
    product.a_step = p.a_depth;
    product.b = p.b;
    product.b_channel = p.b_depth;
    product.b_step = p.b_column;
    product.y = p.y;
    product.y_row = p.y_row;
    const Tile tile = tile_of(p);
    if (tile.tiling == Tiling::kVector && is_whole(p)) set_panels(p, tile, product);
    add_products(work_, product, p.batch, tile);
    return tile.name();
  }

 private:
  /// Few rows by a matrix whose columns do not lie together: to read it once is less than to turn it.
  Tile tile_of(const EinsumProduct& p) const {
    constexpr std::int64_t kFewRows = 4;
    const bool is_whole_constant = is_whole(p);
    if (p.rows <= kFewRows && p.b_depth == 1 && p.b_column != 1 && !is_whole_constant)
      return Tile{Tiling::kDot};
    return choose_tile(device_of(work_), p.type, p.rows, p.columns, is_whole_constant);
  }

  /// Whether b is a constant, the same for all of the batch, that can be packed.
  bool is_whole(const EinsumProduct& p) const {
    if (p.b.place != Place::Input || p.type != DataType::Float || p.columns == 1) return false;
    const bool is_dense = p.b_column == 1 && p.b_depth == p.columns;
    const bool is_turned = p.b_depth == 1 && p.b_column == p.depth;
    const Dims& steps = p.batch.strides[1];
    return (is_dense || is_turned) && ctx_.input_constant(p.b.index) &&
           ctx_.input(p.b.index).size() == p.columns * p.depth &&
           std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 0; });
  }

  void set_panels(const EinsumProduct& p, const Tile& tile, Product& product) const {
    const ColumnPacker* const packer =
        packers_.find({p.depth, p.columns, tile.columns(), p.b_column != 1});
    product.b = packed(ctx_.request_pack(packer->key(), {p.b.index}, packer->bytes(), packer));
    product.b_is_panel = true;
    ctx_.ignore_input(p.b.index);
  }

  sdk::PrepareContext& ctx_;
  Work& work_;
  const ColumnPackers& packers_;
};

class EinsumOp {
 public:
  EinsumOp(const device_ops::Device&, const sdk::Node& node) : shared_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    Target target(ctx, work, packers_);
    shared_.prepare(ctx, target);
  }

 private:
  device_ops::Einsum shared_;
  ColumnPackers packers_;
};

}  // namespace

sdk::KernelList einsum_kernels() { return {device_kernel<EinsumOp>(device_ops::einsum_op())}; }

}  // namespace backplane::opencl

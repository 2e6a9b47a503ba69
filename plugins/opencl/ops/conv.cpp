// Conv, and FusedConv of a rewrite: https://onnx.ai/onnx/operators/onnx__Conv.html
#include <algorithm>

#include "plugins/opencl/kernels/depthwise.hpp"
#include "plugins/opencl/kernels/image.hpp"
#include "plugins/opencl/kernels/product.hpp"
#include "plugins/opencl/kernels/winograd.hpp"

namespace backplane::opencl {
namespace {

class Conv {
 public:
  Conv(const device_ops::Device&, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)), activation_(Activation::from(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(1);
    if (x.rank() < 3 || w.rank() != x.rank() || x.dim(1) != w.dim(1) * groups_ ||
        w.dim(0) % groups_ != 0)
      sdk::invalid("Conv of ", to_string(x.dims()), " with weights ", to_string(w.dims()), " in ",
                   groups_, " groups");
    const DimsView taps(w.dims().data() + 2, w.dims().size() - 2);
    const Window window =
        attributes_.resolve(DimsView(x.dims().data() + 2, x.dims().size() - 2), taps);
    const Dims dims = output_dims(x.dims(), w.dim(0), window);
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    const auto sums =
        static_cast<std::uint64_t>(sdk::element_count(dims) * w.dim(1) * window.taps());
    ctx.set_cost(2 * sums,
                 x.bytes() + w.bytes() + 4 * static_cast<std::uint64_t>(sdk::element_count(dims)));
    if (groups_ > 1 && w.dim(1) == 1 && is_planar(window))
      return prepare_depthwise(ctx, work, window);
    if (prepare_winograd(ctx, work, window)) return;
    Product product;
    product.type = x.type();
    product.rows = w.dim(0) / groups_;
    product.channels = w.dim(1);
    set_image(ctx, work, x, window, product);
    const Tile tile =
        choose_tile(device_of(work), x.type(), product.rows, product.columns, product.b_has_slack);
    set_weights(ctx, work, w, tile, product);
    product.y = output(0);
    product.y_row = window.out_points();
    product.batch = x.dim(0) * groups_;
    product.inner = groups_;
    product.y_batch = {w.dim(0) * window.out_points(), product.rows * window.out_points()};
    product.has_bias = ctx.input(2).present();
    product.bias = input(2);
    product.bias_row = 1;
    product.bias_inner = product.rows;
    product.has_residual = ctx.input(3).present();
    product.residual = input(3);
    product.activation = activation_;
    add_product(work, product, tile);
    ctx.set_variant(sdk::message(needs_spread(window) ? "spread, " : "", tile.name()));
  }

 private:
  void prepare_depthwise(sdk::PrepareContext& ctx, Work& work, const Window& window) const {
    Depthwise conv;
    conv.type = ctx.input(0).type();
    conv.images = ctx.input(0).dim(0);
    conv.channels = ctx.input(1).dim(0);
    conv.multiplier = conv.channels / groups_;
    conv.window = window;
    conv.x = input(0);
    conv.weights = input(1);
    conv.has_bias = ctx.input(2).present();
    conv.bias = input(2);
    conv.has_residual = ctx.input(3).present();
    conv.residual = input(3);
    conv.y = output(0);
    conv.activation = activation_;
    ctx.set_variant(add_depthwise(work, conv));
  }

  /// False where it does not apply or does not pay.
  bool prepare_winograd(sdk::PrepareContext& ctx, Work& work, const Window& window) const {
    if (groups_ != 1 || ctx.input(0).type() != DataType::Float || !ctx.input_constant(1))
      return false;
    Winograd conv;
    conv.images = ctx.input(0).dim(0);
    conv.in_channels = ctx.input(1).dim(1);
    conv.out_channels = ctx.input(1).dim(0);
    conv.window = window;
    if (!winograd_pays(device_of(work), conv)) return false;
    conv.x = input(0);
    conv.has_bias = ctx.input(2).present();
    conv.bias = input(2);
    conv.has_residual = ctx.input(3).present();
    conv.residual = input(3);
    conv.y = output(0);
    conv.activation = activation_;
    const WinogradPlan plan(device_of(work), conv);
    const WinogradPacker& packer = winograd_packer(conv, plan);
    const std::uint32_t weights = ctx.request_pack(packer.key(), {1}, packer.bytes(), &packer);
    ctx.ignore_input(1);
    ctx.set_workspace(plan.workspace_bytes, work.device().limits().alignment);
    add_winograd(work, conv, plan, packed(weights));
    ctx.set_variant("winograd, " + plan.tile.name());
    return true;
  }

  /// One packer for each height of a panel, as for the products: it lives as long as the kernel.
  const WinogradPacker& winograd_packer(const Winograd& conv, const WinogradPlan& plan) const {
    const std::lock_guard lock(mutex_);
    auto& packer = winograd_packers_[plan.tile.rows];
    if (packer == nullptr) {
      packer = std::make_unique<WinogradPacker>(
          WinogradPacker{conv.in_channels, conv.out_channels, plan.tile.rows});
    }
    return *packer;
  }

  void set_image(sdk::PrepareContext& ctx, Work& work, const sdk::Tensor& x, const Window& window,
                 Product& product) const {
    const std::int64_t planes = x.dim(0) * x.dim(1);
    product.b = input(0);
    if (needs_spread(window)) {
      product.b = workspace();
      ctx.set_workspace(static_cast<std::uint64_t>(spread_elements(window, planes) *
                                                   sdk::element_bytes(x.type())),
                        work.device().limits().alignment);
      add_spread(work, {input(0), x.type()}, x.type(), planes, window);
    }
    place_image(window, x.dim(1), groups_, product);
  }

  void set_weights(sdk::PrepareContext& ctx, const Work&, const sdk::Tensor& w, const Tile& tile,
                   Product& product) const {
    const std::int64_t depth =
        product.channels * static_cast<std::int64_t>(product.tap_offsets.size());
    product.a = input(1);
    product.a_row = depth;
    product.a_batch.inner = product.rows * depth;
    if (tile.tiling != Tiling::kVector || !ctx.input_constant(1)) return;
    const std::int64_t panels = (product.rows + tile.rows - 1) / tile.rows;
    const std::int64_t group = panels * tile.rows * depth;
    packer_.rows = product.rows;
    packer_.depth = depth;
    packer_.groups = groups_;
    product.a = packed(request(ctx, tile.rows, group * groups_ * 4));
    product.a_is_panel = true;
    product.a_batch.inner = group;
    ctx.ignore_input(1);
    static_cast<void>(w);
  }

  std::uint32_t request(sdk::PrepareContext& ctx, std::int64_t panel, std::int64_t bytes) const {
    // One packer for each height of a panel: a request of an earlier plan may still be in use.
    const std::lock_guard lock(mutex_);
    auto& packer = packers_[panel];
    if (packer == nullptr) {
      packer = std::make_unique<Packer>(packer_);
      packer->panel = panel;
    }
    return ctx.request_pack(sdk::message("conv rows ", panel, " of ", packer->rows, "x",
                                         packer->depth, "x", packer->groups),
                            {1}, static_cast<std::uint64_t>(bytes), packer.get());
  }

  struct Packer {
    std::int64_t rows = 0, depth = 0, groups = 1, panel = 1;
    void pack(const sdk::PackContext& ctx) const {
      const auto* const weights = ctx.source(0).data<float>();
      std::vector<float> all;
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::vector<float> part =
            pack_rows(weights + group * rows * depth, rows, depth, panel);
        all.insert(all.end(), part.begin(), part.end());
      }
      upload_packed(ctx, all);
    }
  };

  WindowAttributes attributes_;
  std::int64_t groups_;
  Activation activation_;
  mutable std::mutex mutex_;
  mutable Packer packer_;
  mutable std::map<std::int64_t, std::unique_ptr<Packer>> packers_;
  mutable std::map<std::int64_t, std::unique_ptr<WinogradPacker>> winograd_packers_;
};

}  // namespace

KernelList conv_kernels() {
  return {
      device_kernel<Conv>(sdk::op("Conv").name(kernel_name("conv")).types("T", float_types())),
      device_kernel<Conv>(sdk::op("FusedConv", private_domain())
                              .name(kernel_name("conv"))
                              .input_types(0, {DataType::Float})),
  };
}

}  // namespace backplane::opencl

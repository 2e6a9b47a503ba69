// Conv, and FusedConv of a rewrite: https://onnx.ai/onnx/operators/onnx__Conv.html
#include <optional>

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
    const Window window = attributes_.resolve_convolution(x, w, groups_);
    const Dims dims = output_dims(x.dims(), w.dim(0), window);
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    const auto sums =
        static_cast<std::uint64_t>(sdk::element_count(dims) * w.dim(1) * window.taps());
    ctx.set_cost(2 * sums,
                 x.bytes() + w.bytes() + 4 * static_cast<std::uint64_t>(sdk::element_count(dims)));
    if (groups_ > 1 && w.dim(1) == 1 && is_planar(window))
      return prepare_depthwise(ctx, work, window);
    take_best(ctx, work, ways_of(ctx, work, window),
              static_cast<std::uint64_t>(sdk::element_count(dims) * sdk::element_bytes(x.type())));
  }

 private:
  /// Where sums go, and what is done with them first: the same for every way of convolving.
  template <class Convolution>
  void set_results(const sdk::PrepareContext& ctx, Convolution& conv) const {
    conv.has_bias = ctx.input(2).present();
    conv.bias = input(2);
    conv.has_residual = ctx.input(3).present();
    conv.residual = input(3);
    conv.activation = activation_;
    conv.y = output(0);
  }

  void prepare_depthwise(sdk::PrepareContext& ctx, Work& work, const Window& window) const {
    Depthwise conv;
    conv.type = ctx.input(0).type();
    conv.images = ctx.input(0).dim(0);
    conv.channels = ctx.input(1).dim(0);
    conv.multiplier = conv.channels / groups_;
    conv.window = window;
    conv.x = input(0);
    conv.weights = input(1);
    set_results(ctx, conv);
    ctx.set_variant(add_depthwise(work, conv));
  }

  /// The way by rule first, and with option `tuning` the others.
  std::vector<Way> ways_of(const sdk::PrepareContext& ctx, const Work& work,
                           const Window& window) const {
    const Device& device = device_of(work);
    const bool is_tuned = device.tuner().is_on();
    const std::optional<Winograd> winograd = winograd_of(ctx, window);
    const bool pays = winograd && winograd_pays(device, *winograd);
    std::vector<Way> ways;
    if (pays) ways.push_back(winograd_way(work, *winograd));
    if (!pays || is_tuned) add_product_ways(ctx, work, window, ways);
    if (!pays && is_tuned && winograd && winograd_applies(device, *winograd))
      ways.push_back(winograd_way(work, *winograd));
    return ways;
  }

  void add_product_ways(const sdk::PrepareContext& ctx, const Work& work, const Window& window,
                        std::vector<Way>& ways) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(1);
    Product product;
    product.type = x.type();
    product.rows = w.dim(0) / groups_;
    product.channels = w.dim(1);
    product.b = needs_spread(window) ? workspace() : input(0);
    place_image(window, x.dim(1), groups_, product);
    product.y_row = window.out_points();
    product.batch = x.dim(0) * groups_;
    product.inner = groups_;
    product.y_batch = {w.dim(0) * window.out_points(), product.rows * window.out_points()};
    set_results(ctx, product);
    product.bias_row = 1;
    product.bias_inner = product.rows;
    for (const Tile& tile : tiles_to_try(device_of(work), x.type(), product.rows, product.columns,
                                         product.b_has_slack)) {
      Way way(work);
      way.name = sdk::message(needs_spread(window) ? "spread, " : "", tile.name());
      if (needs_spread(window)) add_image(x, window, way);
      Product tiled = product;
      set_weights(ctx, tile, tiled, way);
      add_product(way.work, tiled, tile);
      ways.push_back(std::move(way));
    }
  }

  /// Nothing where the operands are not those of Winograd's convolution.
  std::optional<Winograd> winograd_of(const sdk::PrepareContext& ctx, const Window& window) const {
    if (groups_ != 1 || ctx.input(0).type() != DataType::Float || !ctx.input_constant(1))
      return std::nullopt;
    Winograd conv;
    conv.images = ctx.input(0).dim(0);
    conv.in_channels = ctx.input(1).dim(1);
    conv.out_channels = ctx.input(1).dim(0);
    conv.window = window;
    conv.x = input(0);
    set_results(ctx, conv);
    return conv;
  }

  Way winograd_way(const Work& work, const Winograd& conv) const {
    const WinogradPlan plan(device_of(work), conv);
    const WinogradPacker* const packer = &winograd_packer(conv, plan);
    Way way(work);
    way.name = sdk::message("winograd, ", plan.columns > 0 ? "whole, " : "", plan.tile.name());
    way.workspace_bytes = plan.workspace_bytes;
    way.packed_bytes = packer->bytes();
    way.request_packed = [packer](sdk::PrepareContext& ctx) {
      ctx.request_pack(packer->key(), {1}, packer->bytes(), packer);
      ctx.ignore_input(1);
    };
    add_winograd(way.work, conv, plan, packed(0));
    return way;
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

  static void add_image(const sdk::Tensor& x, const Window& window, Way& way) {
    const std::int64_t planes = x.dim(0) * x.dim(1);
    way.workspace_bytes =
        static_cast<std::uint64_t>(spread_elements(window, planes) * sdk::element_bytes(x.type()));
    add_spread(way.work, {input(0), x.type()}, x.type(), planes, window);
  }

  void set_weights(const sdk::PrepareContext& ctx, const Tile& tile, Product& product,
                   Way& way) const {
    const std::int64_t depth =
        product.channels * static_cast<std::int64_t>(product.tap_offsets.size());
    product.a = input(1);
    product.a_row = depth;
    product.a_batch.inner = product.rows * depth;
    if (tile.tiling != Tiling::kVector || !ctx.input_constant(1)) return;
    const Packer* const packer = packer_of({product.rows, depth, groups_, tile.rows});
    product.a = packed(0);
    product.a_is_panel = true;
    product.a_batch.inner = packer->group_floats();
    way.packed_bytes = packer->bytes();
    way.request_packed = [packer](sdk::PrepareContext& host) {
      host.request_pack(packer->key(), {1}, packer->bytes(), packer);
      host.ignore_input(1);
    };
  }

  struct Packer {
    std::int64_t rows = 0, depth = 0, groups = 1, panel = 1;
    std::int64_t group_floats() const { return (rows + panel - 1) / panel * panel * depth; }
    std::uint64_t bytes() const {
      return static_cast<std::uint64_t>(group_floats() * groups) * sizeof(float);
    }
    std::string key() const {
      return sdk::message("conv rows ", panel, " of ", rows, "x", depth, "x", groups);
    }
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

  /// One packer for each height of a panel: a request of an earlier plan may still be in use.
  const Packer* packer_of(const Packer& wanted) const {
    const std::lock_guard lock(mutex_);
    auto& packer = packers_[wanted.panel];
    if (packer == nullptr) packer = std::make_unique<Packer>(wanted);
    return packer.get();
  }

  WindowAttributes attributes_;
  std::int64_t groups_;
  Activation activation_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::unique_ptr<Packer>> packers_;
  mutable std::map<std::int64_t, std::unique_ptr<WinogradPacker>> winograd_packers_;
};

}  // namespace

KernelList conv_kernels() {
  return {
      device_kernel<Conv>(sdk::op("Conv")
                              .name(kernel_name("conv"))
                              .types("T", float_types())
                              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
      device_kernel<Conv>(sdk::op("FusedConv", private_domain())
                              .name(kernel_name("conv"))
                              .input_types(0, {DataType::Float})
                              .roles({BP_INPUT_DATA, BP_INPUT_WEIGHT, BP_INPUT_DATA})),
  };
}

}  // namespace backplane::opencl

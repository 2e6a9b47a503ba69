// Conv, and FusedConv of a rewrite: https://onnx.ai/onnx/operators/onnx__Conv.html
//
// A convolution is a product of the weights with the image, whose taps are the same rows moved by a constant: for
// that the image is first spread out, padded, with the columns and rows that a stride visits brought
// together. An image that needs neither is read as it lies.
#include <algorithm>

#include "plugins/opencl/kernels/depthwise.hpp"
#include "plugins/opencl/kernels/product.hpp"
#include "plugins/opencl/kernels/winograd.hpp"

namespace backplane::opencl {
namespace {

/// The image as taps find it: [channel][phase][depth][height][width], see above.
struct Spread {
  std::array<std::int64_t, 3> phases, size;

  explicit Spread(const Window& window) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const bool one = window.kernel[axis] == 1 || window.dilation[axis] % window.stride[axis] == 0;
      phases[axis] = one ? 1 : window.stride[axis];
      size[axis] = window.out[axis] +
                   (window.kernel[axis] - 1) * window.dilation[axis] / window.stride[axis];
    }
  }
  std::int64_t phase_points() const { return size[0] * size[1] * size[2]; }
  std::int64_t channel_points() const { return phases[0] * phases[1] * phases[2] * phase_points(); }
};

bool needs_spread(const Window& window) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (window.kernel[axis] != 1 || window.stride[axis] != 1 || window.pad_begin[axis] != 0 ||
        window.pad_end[axis] != 0)
      return true;
  }
  return false;
}

std::vector<std::int32_t> tap_offsets(const Window& window, const Spread& spread) {
  std::vector<std::int32_t> offsets;
  std::array<std::int64_t, 3> k{};
  for (k[0] = 0; k[0] < window.kernel[0]; ++k[0]) {
    for (k[1] = 0; k[1] < window.kernel[1]; ++k[1]) {
      for (k[2] = 0; k[2] < window.kernel[2]; ++k[2]) {
        std::int64_t phase = 0, point = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
          const std::int64_t at = k[axis] * window.dilation[axis];
          phase = phase * spread.phases[axis] +
                  (spread.phases[axis] == 1 ? 0 : at % window.stride[axis]);
          point = point * spread.size[axis] + at / window.stride[axis];
        }
        offsets.push_back(static_cast<std::int32_t>(phase * spread.phase_points() + point));
      }
    }
  }
  return offsets;
}

/// Where a work item is: of plane, phase and depth i2.
constexpr char kSpreadPlace[] = R"kernel(
#if IS_FLAT
  i64 plane = i2, oz = 0, px = 0, py = 0, pz = 0;
#else
  i64 oz = i2 % size0, plane = i2 / size0;
  i64 px = plane % f2;
  plane /= f2;
  i64 py = plane % f1;
  plane /= f1;
  i64 pz = plane % f0;
  plane /= f0;
#endif
  i64 z = oz * s0 + pz - b0;
)kernel";

constexpr char kSpreadPoint[] = R"kernel(
  i64 v = i1 * s1 + py - b1, u = i0 * s2 + px - b2;
  VALUE(T) value = 0;
  if (z >= 0 && z < n_0 && v >= 0 && v < n_1 && u >= 0 && u < n_2)
    value = LOAD(T, x, ((plane * n_0 + z) * n_1 + v) * n_2 + u);
  STORE(T, y, (i2 * size1 + i1) * size2 + i0, value);
)kernel";

/// For processors: `band` lines of a plane, without a question for each element.
constexpr char kSpreadLines[] = R"kernel(
  int begin = b2 > px ? (int)((b2 - px + STEP - 1) / STEP) : 0;
  int end = (int)((n_2 + b2 - px + STEP - 1) / STEP);
  if (n_2 + b2 <= px) end = 0;
  if (end > size2) end = (int)size2;
  if (begin > end) begin = end;
  i64 last = (i1 + 1) * band < size1 ? (i1 + 1) * band : size1;
  for (i64 row = i1 * band; row < last; ++row) {
    i64 v = row * s1 + py - b1, at = (i2 * size1 + row) * size2;
    int from = begin, to = end;
    if (z < 0 || z >= n_0 || v < 0 || v >= n_1) from = to = (int)size2;
    for (int i = 0; i < from; ++i) STORE(T, y, at + i, 0);
    i64 line = ((plane * n_0 + z) * n_1 + v) * n_2 + px - b2;
    for (int i = from; i < to; ++i) STORE(T, y, at + i, LOAD(T, x, line + (i64)i * STEP));
    for (int i = to; i < size2; ++i) STORE(T, y, at + i, 0);
  }
)kernel";

void add_spread(Work& work, DataType type, std::int64_t planes, const Window& window,
                const Spread& spread) {
  const std::int64_t phases = spread.phases[0] * spread.phases[1] * spread.phases[2];
  const bool by_lines = work.device().limits().is_processor;
  constexpr std::int64_t kLeastPoints = 2048;
  const std::int64_t band =
      std::clamp<std::int64_t>(kLeastPoints / spread.size[2], 1, spread.size[1]);
  const std::int64_t items = planes * phases * spread.size[0];
  Walk walk(by_lines ? Dims{items, (spread.size[1] + band - 1) / band, 1}
                     : Dims{items, spread.size[1], spread.size[2]});
  walk.name("spread").define("IS_FLAT", phases == 1 && spread.size[0] == 1 ? 1 : 0);
  walk.in("x", input(0), type).out("y", workspace(), type).define("T", type_code(type));
  for (std::size_t axis = 0; axis < 3; ++axis) {
    walk.number(sdk::message("f", axis), spread.phases[axis]);
    walk.number(sdk::message("s", axis), window.stride[axis]);
    walk.number(sdk::message("b", axis), window.pad_begin[axis]);
    walk.number(sdk::message("n_", axis), window.in[axis]);
    walk.number(sdk::message("size", axis), spread.size[axis]);
  }
  walk.body = kSpreadPlace;
  if (by_lines) walk.number("band", band).define("STEP", window.stride[2]);
  walk.body += by_lines ? kSpreadLines : kSpreadPoint;
  walk.add_to(work);
}

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
    std::int64_t channel = window.in_points();
    product.b = input(0);
    product.columns = window.out_points();
    if (needs_spread(window)) {
      const Spread spread(window);
      channel = spread.channel_points();
      if (channel > std::int64_t{1} << 30) sdk::unsupported("a channel of ", channel, " points");
      product.b = workspace();
      product.b_has_slack = true;
      product.tap_offsets = tap_offsets(window, spread);
      product.columns =
          ((window.out[0] - 1) * spread.size[1] + window.out[1] - 1) * spread.size[2] +
          window.out[2];
      product.is_rowed = product.columns != window.out_points();
      product.is_deep = window.out[0] > 1 && spread.size[1] != window.out[1];
      product.pitch = spread.size[2];
      product.line = window.out[2];
      product.lines = spread.size[1];
      product.line_rows = window.out[1];
      constexpr std::int64_t kSlack = 64;  // elements of the widest tile
      ctx.set_workspace(static_cast<std::uint64_t>((x.dim(0) * x.dim(1) * channel + kSlack) *
                                                   sdk::element_bytes(x.type())),
                        work.device().limits().alignment);
      add_spread(work, x.type(), x.dim(0) * x.dim(1), window, spread);
    }
    product.b_channel = channel;
    product.b_batch = {x.dim(1) * channel, x.dim(1) / groups_ * channel};
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

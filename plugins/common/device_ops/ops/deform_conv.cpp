// DeformConv: https://onnx.ai/onnx/operators/onnx__DeformConv.html, after https://arxiv.org/abs/1703.06211 and
// https://arxiv.org/abs/1811.11168
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/deform_conv_node.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/device_ops/window.hpp"

namespace backplane::device_ops {
namespace {

/// An item has an output pixel, i0, of W filters of a group from `filter` on: where a tap lies, and how its four pixels count, is worked
/// out once for these and for the channels that share its offset. Outside of the image, where NaN is, too, there are zeros.
constexpr char kBentWindow[] = R"kernel(
  i64 group = i1 / blocks, filter = group * filters + i1 % blocks * W, last = (group + 1) * filters;
  i64 taps = k_1 * k_2, pixels = out_1 * out_2, first_channel = group * depth;
  REAL top = (REAL)(i0 / out_2 * s_1 - b_1), left = (REAL)(i0 % out_2 * s_2 - b_2);
  REAL sums[W];
  UNROLL for (int e = 0; e < W; ++e) sums[e] = filter + e < last ? BIAS(filter + e) : 0;
  for (i64 c = first_channel; c < first_channel + depth;) {
    i64 sharing = c / of_offset, end = (sharing + 1) * of_offset;
    if (end > first_channel + depth) end = first_channel + depth;
    for (i64 tap = 0; tap < taps; ++tap) {
      i64 map = (i2 * offset_groups + sharing) * taps + tap;
      REAL y_at = top + (REAL)(tap / k_2 * d_1) + LOAD(T, offset, 2 * map * pixels + i0);
      REAL x_at = left + (REAL)(tap % k_2 * d_2) + LOAD(T, offset, (2 * map + 1) * pixels + i0);
      if (!(y_at > -1 && y_at < (REAL)in_1 && x_at > -1 && x_at < (REAL)in_2) || in_1 * in_2 == 0) continue;
      REAL factor = FACTOR(map * pixels + i0), row = floor(y_at), column = floor(x_at);
      REAL down = y_at - row, right = x_at - column;
      i64 above = (i64)row, before = (i64)column;
      REAL of_above = above >= 0 ? factor * (1 - down) : 0, of_below = above + 1 < in_1 ? factor * down : 0;
      REAL of_before = before >= 0 ? 1 - right : 0, of_behind = before + 1 < in_2 ? right : 0;
      // What counts nothing is read elsewhere.
      i64 high = above >= 0 ? above : 0, low = above + 1 < in_1 ? above + 1 : high;
      i64 near = before >= 0 ? before : 0, far = before + 1 < in_2 ? before + 1 : near;
      for (i64 channel = c; channel < end; ++channel) {
        GLOBAL const STORAGE(T) *plane = x + (i2 * channels + channel) * in_1 * in_2;
        GLOBAL const STORAGE(T) *upper = plane + high * in_2, *lower = plane + low * in_2;
        REAL seen = of_above * (of_before * (REAL)LOAD(T, upper, near) + of_behind * (REAL)LOAD(T, upper, far)) +
                    of_below * (of_before * (REAL)LOAD(T, lower, near) + of_behind * (REAL)LOAD(T, lower, far));
        UNROLL for (int e = 0; e < W; ++e)
          if (filter + e < last) sums[e] += seen * (REAL)LOAD(T, w, ((filter + e) * depth + channel - first_channel) * taps + tap);
      }
    }
    c = end;
  }
  UNROLL for (int e = 0; e < W; ++e)
    if (filter + e < last) STORE(T, y, (i2 * filters * groups + filter + e) * pixels + i0, sums[e]);
)kernel";

class DeformConv {
 public:
  DeformConv(const Device&, const sdk::Node& node) : attributes_(node), rule_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    rule_.check_weights(ctx);
    const sdk::Tensor x = ctx.input(Rule::kX), w = ctx.input(Rule::kW);
    const Window window = attributes_.resolve_convolution(x, w, rule_.groups);
    rule_.set_dims(ctx, window.taps(), window.out[1], window.out[2]);
    if (x.dim(0) * w.dim(0) * window.out_points() > 0) add_launch(ctx, work, window);
  }

 private:
  using Rule = common::DeformConvRule;

  void add_launch(const sdk::PrepareContext& ctx, Work& work, const Window& window) const {
    constexpr std::int64_t kMostWidth = 8;
    const sdk::Tensor x = ctx.input(Rule::kX), w = ctx.input(Rule::kW);
    const DataType type = x.type();
    const std::int64_t filters = w.dim(0) / rule_.groups, batch = x.dim(0), depth = w.dim(1);
    const std::int64_t width = outputs_at_once(work.device(), filters, kMostWidth,
                                               batch * rule_.groups * window.out_points());
    const std::int64_t blocks = ceil_divide(filters, width);
    Walk walk(Dims{batch, rule_.groups * blocks, window.out_points()});
    walk.in("x", input(Rule::kX), type).in("w", input(Rule::kW), type);
    walk.in("offset", input(Rule::kOffset), type);
    const bool has_bias = ctx.input(Rule::kBias).present();
    const bool has_mask = ctx.input(Rule::kMask).present();
    if (has_bias) walk.in("bias", input(Rule::kBias), type);
    if (has_mask) walk.in("mask", input(Rule::kMask), type);
    walk.out("y", output(0), type).number("blocks", blocks).number("filters", filters);
    walk.number("groups", rule_.groups).number("offset_groups", rule_.offset_groups);
    walk.number("depth", depth).number("channels", x.dim(1));
    walk.number("of_offset", x.dim(1) / rule_.offset_groups);
    add_numbers(walk, window);
    walk.real_type(type).define("T", type_code(type)).define("W", width);
    walk.define("UNROLL", "_Pragma(\"unroll\")");
    walk.define("BIAS(at)", has_bias ? "LOAD(T, bias, at)" : "0");
    walk.define("FACTOR(at)", has_mask ? "LOAD(T, mask, at)" : "1");
    walk.body = kBentWindow;
    walk.in_bands(std::max<std::int64_t>(1, depth * window.taps() * (width + 8))).add_to(work);
  }

  WindowAttributes attributes_;
  Rule rule_;
};

}  // namespace

KernelList deform_conv_kernels() {
  return {device_kernel<DeformConv>(
      sdk::op("DeformConv").name(kernel_name("deform conv")).types("T", float_types()))};
}

}  // namespace backplane::device_ops

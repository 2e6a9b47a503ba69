// What a DeformConv node asks for: https://onnx.ai/onnx/operators/onnx__DeformConv.html
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// Images of two spatial axes. Each tap of a window is moved by an offset, down and right, that all channels of an offset group
/// share, as they share the factor by which the mask, where there is one, multiplies what the tap sees.
struct DeformConvRule {
  enum Input : std::uint32_t { kX, kW, kOffset, kBias, kMask };

  std::int64_t groups, offset_groups;

  explicit DeformConvRule(const sdk::Node& node)
      : groups(node.get_int("group", 1)), offset_groups(node.get_int("offset_group", 1)) {}

  void check_weights(const sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kX), w = ctx.input(kW);
    if (x.rank() != 4 || w.rank() != 4)
      sdk::unsupported("DeformConv: X has rank ", x.rank(), " and W rank ", w.rank(),
                       "; images of two spatial axes (rank 4) are handled");
    if (groups < 1 || offset_groups < 1 || x.dim(1) != w.dim(1) * groups ||
        w.dim(0) % groups != 0 || x.dim(1) % offset_groups != 0)
      sdk::invalid("DeformConv: X has dims ", sdk::to_string(x.dims()), " and W ",
                   sdk::to_string(w.dims()), ", which do not fit group ", groups,
                   " and offset_group ", offset_groups);
  }

  /// With windows of so many taps that lie at out_height x out_width places: checks the other inputs, and sets the output.
  void set_dims(sdk::PrepareContext& ctx, std::int64_t taps, std::int64_t out_height,
                std::int64_t out_width) const {
    const std::int64_t batch = ctx.input(kX).dim(0), filters = ctx.input(kW).dim(0);
    const std::int64_t maps = offset_groups * taps;
    check(ctx, kOffset, "offset", {batch, 2 * maps, out_height, out_width});
    check(ctx, kMask, "mask", {batch, maps, out_height, out_width});
    check(ctx, kBias, "B", {filters});
    ctx.set_output(0, ctx.input(kX).type(), sdk::Dims{batch, filters, out_height, out_width});
  }

 private:
  static void check(const sdk::PrepareContext& ctx, Input index, const char* name,
                    const sdk::Dims& wanted) {
    const sdk::Tensor tensor = ctx.input(index);
    if (!tensor.present() || sdk::to_string(tensor.dims()) == sdk::to_string(wanted)) return;
    sdk::invalid("DeformConv: ", name, " has dims ", sdk::to_string(tensor.dims()), ", expected ",
                 sdk::to_string(wanted));
  }
};

}  // namespace backplane::common

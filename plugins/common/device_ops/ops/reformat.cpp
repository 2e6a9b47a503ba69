// Reformat, a node that rewrites put at the edges of regions whose values are stored otherwise: in another element type,
// with axes in another order, or both at once.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

/// "to": the element type, or the input's; "perm": as Transpose has it, or none. "channels": an image [batch, channels, spatial ...]
/// becomes [batch, spatial ..., channels], with so many of them, those beyond its "own" zeros.
class Reformat {
 public:
  Reformat(const Device&, const sdk::Node& node)
      : to_(static_cast<DataType>(node.get_int("to", BP_NONE))),
        order_(node.get_ints("perm")),
        channels_(node.get_int("channels", 0)),
        own_(node.get_int("own", 0)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const auto rank = static_cast<std::size_t>(x.rank());
    const DataType to = to_ == DataType::None ? x.type() : to_;
    if (to != x.type() && !(is_float(to) && is_float(x.type())))
      sdk::unsupported("a value of ", sdk::type_name(x.type()), " is not stored as ",
                       sdk::type_name(to));
    if (channels_ > 0) return fill_channels(ctx, work, to);
    Dims order = order_;
    for (std::size_t axis = 0; order_.empty() && axis < rank; ++axis)
      order.push_back(static_cast<std::int64_t>(axis));
    if (order.size() != rank)
      sdk::invalid("a value of dims ", to_string(x.dims()), " in the order ",
                   sdk::to_string(order));
    const Dims strides = common::dense_strides(x.dims());
    Dims dims, from;
    std::int64_t last = -1;  // of the axes with more than one element
    bool keeps_order = true;
    for (const std::int64_t axis : order) {
      const auto at = static_cast<std::size_t>(normalize_axis(axis, x.rank()));
      dims.push_back(x.dims()[at]);
      from.push_back(strides[at]);
      if (dims.back() == 1) continue;
      keeps_order = keeps_order && static_cast<std::int64_t>(at) > last;
      last = static_cast<std::int64_t>(at);
    }
    ctx.set_output(0, to, dims);
    if (to == x.type()) {
      ctx.set_variant(keeps_order ? "view" : "transpose");
      if (keeps_order) {
        ctx.set_view(0, 0);
        return work.add_copy(input(0), output(0), x.bytes());
      }
      return add_strided_copy(work, to,
                              {dims, input(0), output(0), from, common::dense_strides(dims)});
    }
    ctx.set_variant(keeps_order ? "cast" : "cast, transpose");
    add_pointwise(work, dims, {{input(0), x.type(), from}}, dense_view(output(0), to, dims),
                  {finite_text(to), "", {}});
  }

 private:
  /// An item for each pixel, whose channels are written at once.
  void fill_channels(sdk::PrepareContext& ctx, Work& work, DataType to) const {
    const sdk::Tensor x = ctx.input(0);
    Dims dims(x.dims().begin(), x.dims().end());
    const std::int64_t pixel_bytes = channels_ * sdk::element_bytes(to);
    if (dims.size() < 3 || dims[1] != own_ || own_ > channels_ ||
        (pixel_bytes != common::kWidestBytes && pixel_bytes != common::kWidestBytes / 2))
      sdk::invalid("an image of dims ", to_string(x.dims()), " for a convolution of ", own_,
                   " channels, filled up to ", channels_);
    const std::int64_t batch = dims[0];
    dims.erase(dims.begin() + 1);
    const std::int64_t pixels = sdk::element_count(DimsView(dims.data() + 1, dims.size() - 1));
    dims.push_back(channels_);
    ctx.set_output(0, to, dims);
    ctx.set_variant(sdk::message(to == x.type() ? "" : "cast, ", "transpose, ", own_, " of ",
                                 channels_, " channels"));
    if (sdk::element_count(dims) == 0) return;
    const char *const from_code = type_code(x.type()), *const to_code = type_code(to);
    const common::NeighbourText pixel(to_code, channels_);
    Walk walk(Dims{batch, pixels});
    walk.in("x", input(0), x.type()).out("y", output(0), to).number("pixels", pixels);
    walk.functions = common::kNeighbourWords;
    walk.body = sdk::message(
        "  x += i1 * ", own_, " * pixels + i0;\n  y += (i1 * pixels + i0) * ", channels_,
        ";\n  STORAGE(", to_code, ") made[", channels_, "];\n  UNROLL for (int c = 0; c < ",
        channels_, "; ++c) made[c] = 0;\n  UNROLL for (int c = 0; c < ", own_,
        "; ++c) {\n    VALUE(", from_code, ") v0 = LOAD(", from_code,
        ", x, c * pixels);\n    STORE(", to_code, ", made, c, ",
        to == x.type() ? "v0" : finite_text(to), ");\n  }\n  if (IS_AT(y, ", pixel.total(),
        ")) {\n", pixel.write("y", "made"), "  } else {\n    UNROLL for (int c = 0; c < ",
        channels_, "; ++c) y[c] = made[c];\n  }\n");
    walk.name("pixels").add_to(work);
  }

  DataType to_;
  Dims order_;
  std::int64_t channels_, own_;
};

}  // namespace

KernelList reformat_kernels() {
  return {
      device_kernel<Reformat>(sdk::op("Reformat", private_domain()).name(kernel_name("reformat")))};
}

}  // namespace backplane::device_ops

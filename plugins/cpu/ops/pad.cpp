// Pad, CenterCropPad: https://onnx.ai/onnx/operators/onnx__Pad.html, onnx__CenterCropPad.html
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_value.hpp"
#include "plugins/cpu/kernels/row_sources.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

enum class PadMode { Constant, Reflect, Edge, Wrap };

/// The remainder that is not negative.
std::int64_t modulo(std::int64_t value, std::int64_t divisor) {
  return ((value % divisor) + divisor) % divisor;
}

/// Where each element of one output axis comes from. No table: axes may be as long as a recording.
struct PaddedAxis {
  PadMode mode = PadMode::Constant;
  std::int64_t dim = 1;  // of the input
  std::int64_t before = 0, after = 0;

  std::int64_t count() const { return dim + before + after; }
  /// The elements that lie in the input itself, one after another.
  std::int64_t run_begin() const { return std::clamp<std::int64_t>(before, 0, count()); }
  std::int64_t run_end() const {
    return std::clamp<std::int64_t>(before + dim, run_begin(), count());
  }

  /// The place of element `index` in the input's axis; -1 for the constant.
  std::int64_t place(std::int64_t index) const {
    const std::int64_t at = index - before;
    if (at >= 0 && at < dim) return at;
    switch (mode) {
      case PadMode::Constant:
        break;
      case PadMode::Edge:
        return at < 0 ? 0 : dim - 1;
      case PadMode::Wrap: {
        const std::int64_t once = at < 0 ? at + dim : at - dim;  // without a division
        return once >= 0 && once < dim ? once : modulo(at, dim);
      }
      case PadMode::Reflect: {
        const std::int64_t once = at < 0 ? -at : 2 * (dim - 1) - at;
        if (once >= 0 && once < dim) return once;
        const std::int64_t period = std::max<std::int64_t>(1, 2 * (dim - 1));
        const std::int64_t within = modulo(at, period);
        return within >= dim ? period - within : within;
      }
    }
    return -1;
  }
};

/// The elements of axis `axis` with its pads. Errors: BP_INVALID_ARGUMENT where that is no size.
std::int64_t padded_dim(std::size_t axis, std::int64_t dim, std::int64_t before,
                        std::int64_t after) {
  const std::int64_t count = (common::Checked(dim) + before + after)
                                 .value("Pad: the sum of ", dim, " elements and pads ", before,
                                        " and ", after, " along axis ", axis);
  if (count < 0)
    sdk::invalid("Pad: pads ", before, " and ", after, " remove more than the ", dim,
                 " elements of axis ", axis);
  return count;
}

/// A padded copy, row by row of the last axis that is padded; `block` elements after it stay together.
struct PadPlan {
  RowSources<PaddedAxis> outer;
  PaddedAxis last;
  std::int64_t block = 1, size = 0;
  ElementValue value;             // for Constant, unless it comes with the run
  std::uint32_t value_input = 0;  // 0: none
  int bits = 0;

  PadPlan(PadMode mode, sdk::DataType type, sdk::DimsView dims, const sdk::Dims& before,
          const sdk::Dims& after)
      : bits(sdk::element_bits(type)) {
    require_storable(type);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] + before[i] + after[i] == 0) return;  // the other axes may then be of any size
    }
    std::size_t padded = dims.size();
    while (padded > 0 && before[padded - 1] == 0 && after[padded - 1] == 0) {
      block *= dims[--padded];
    }
    for (std::size_t i = 0; i < padded; ++i) {
      const PaddedAxis axis{mode, dims[i], before[i], after[i]};
      if (axis.dim == 0 && mode != PadMode::Constant)
        sdk::invalid("Pad: an axis without elements can only be padded with a constant");
      if (i + 1 == padded) {
        last = axis;
      } else {
        outer.add(axis, axis.dim);
      }
    }
    size = outer.rows() * block * last.count();
  }

  void compute(const sdk::ComputeContext& ctx) const {
    if (size == 0) return;
    const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
    mover.clear_padding();
    ElementValue constant = value;
    const bool given = value_input > 0 && ctx.has_input(value_input);
    if (mover.storage() == Storage::Strings) {
      const sdk::Value target = ctx.output_value(0);
      const std::string text(given ? ctx.input_value(value_input).string_at(0)
                                   : std::string_view());
      return copy_rows(mover, 0, outer.rows(), [&](std::int64_t at, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
          target.set_string(static_cast<std::uint64_t>(at + i), text);
      });
    }
    if (given) constant = ElementValue::first_of(ctx.input(value_input));
    void* memory = ctx.output(0).mutable_data<void>();
    const auto fill = [&](std::int64_t at, std::int64_t count) {
      constant.fill(memory, at, count, bits);
    };
    if (!mover.parallel() || size * bits / 8 < kParallelBytes)
      return copy_rows(mover, 0, outer.rows(), fill);
    const std::int64_t row_bytes = std::max<std::int64_t>(1, size / outer.rows() * bits / 8);
    ctx.threads().parallel_for(static_cast<std::uint64_t>(outer.rows()),
                               static_cast<std::uint64_t>(1 + kParallelBytes / 4 / row_bytes),
                               [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                                 copy_rows(mover, static_cast<std::int64_t>(begin),
                                           static_cast<std::int64_t>(end), fill);
                               });
  }

 private:
  template <class Fill>
  void copy_rows(const ElementMover& mover, std::int64_t begin, std::int64_t end,
                 const Fill& fill) const {
    const std::int64_t columns = last.count();
    const std::int64_t run_begin = last.run_begin(), run_end = last.run_end();
    const std::int64_t run = (run_end - run_begin) * block;
    const std::int64_t run_source = run > 0 ? last.place(run_begin) * block : 0;
    outer.each(begin, end, [&](std::int64_t row, std::int64_t source) {
      const std::int64_t target = row * columns * block;
      if (source < 0) return fill(target, columns * block);
      const std::int64_t from = source * last.dim * block;
      copy_edge(mover, target, from, 0, run_begin, fill);
      if (run > 0) mover.copy(target + run_begin * block, from + run_source, run);
      copy_edge(mover, target, from, run_end, columns, fill);
    });
  }

  template <class Fill>
  void copy_edge(const ElementMover& mover, std::int64_t target, std::int64_t from,
                 std::int64_t begin, std::int64_t end, const Fill& fill) const {
    if (begin == end) return;
    if (last.mode == PadMode::Constant) return fill(target + begin * block, (end - begin) * block);
    for (std::int64_t i = begin; i < end; ++i)
      mover.copy(target + i * block, from + last.place(i) * block, block);
  }
};

class Pad {
 public:
  using Prepared = PadPlan;

  Pad(const sdk::CreateContext&, const sdk::Node& node)
      : pads_(node.get_ints(node.since_version() == 1 ? "paddings" : "pads")),
        value_(node.get_float("value", 0)),
        from_inputs_(node.since_version() >= 11),
        mode_(mode_of(node.get_string("mode", "constant"), node.since_version())) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const auto rank = static_cast<std::size_t>(input.rank());
    const std::vector<std::int64_t> pads = from_inputs_ ? ctx.input(1).to_ints() : pads_;
    std::vector<std::int64_t> axes;
    const bool some_axes = from_inputs_ && ctx.input(3).present();
    if (some_axes) axes = ctx.input(3).to_ints();
    const std::size_t count = some_axes ? axes.size() : rank;
    if (pads.size() != 2 * count)
      sdk::invalid("Pad: ", pads.size(), " pads for ", count, " axes, two each are needed");
    sdk::Dims before(rank, 0), after(rank, 0), dims = to_dims(input.dims());
    if (some_axes) axis_flags(axes, input.rank());
    for (std::size_t i = 0; i < count; ++i) {
      const auto axis =
          some_axes ? static_cast<std::size_t>(normalize_axis(axes[i], input.rank())) : i;
      before[axis] = pads[i];
      after[axis] = pads[count + i];
      dims[axis] = padded_dim(axis, dims[axis], pads[i], pads[count + i]);
    }
    ctx.set_output(0, input.type(), dims);
    Prepared prepared(mode_, input.type(), input.dims(), before, after);
    if (from_inputs_) {
      prepared.value_input = 2;
    } else {
      prepared.value = ElementValue::of_float(input.type(), value_);
    }
    return prepared;
  }

 private:
  static PadMode mode_of(const std::string& name, int since) {
    if (name == "constant") return PadMode::Constant;
    if (name == "reflect") return PadMode::Reflect;
    if (name == "edge") return PadMode::Edge;
    if (name == "wrap" && since >= 19) return PadMode::Wrap;
    sdk::invalid("Pad: mode '", name, "' is not one of opset ", since);
  }

  std::vector<std::int64_t> pads_;
  float value_;
  bool from_inputs_;
  PadMode mode_;
};

/// Cuts or pads with zeros on both sides, so that the chosen axes get the sizes of `shape`.
class CenterCropPad {
 public:
  using Prepared = PadPlan;

  CenterCropPad(const sdk::CreateContext&, const sdk::Node& node)
      : axes_(node.get_ints("axes")), given_(node.has("axes")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const auto rank = static_cast<std::size_t>(input.rank());
    const sdk::Dims shape = ctx.input(1).to_ints();
    if (given_) axis_flags(axes_, input.rank());
    if (shape.size() != (given_ ? axes_.size() : rank)) {
      sdk::invalid("CenterCropPad: ", shape.size(), " sizes for ", given_ ? axes_.size() : rank,
                   " axes");
    }
    sdk::Dims before(rank, 0), after(rank, 0), dims = to_dims(input.dims());
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto axis =
          given_ ? static_cast<std::size_t>(normalize_axis(axes_[i], input.rank())) : i;
      if (shape[i] < 0)
        sdk::invalid("CenterCropPad: the sizes ", sdk::to_string(shape), " have a negative one");
      const std::int64_t more = shape[i] - dims[axis];
      // The odd element goes to the end when padding, and is cut there too.
      before[axis] = more >= 0 ? more / 2 : -(-more / 2);
      after[axis] = more - before[axis];
      dims[axis] = shape[i];
    }
    ctx.set_output(0, input.type(), dims);
    return Prepared(PadMode::Constant, input.type(), input.dims(), before, after);
  }

 private:
  std::vector<std::int64_t> axes_;
  bool given_;
};

}  // namespace

sdk::KernelList pad_kernels() {
  return {sdk::op("Pad")
              .name("cpu:pad")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
              .kernel<Pad>(),
          sdk::op("CenterCropPad")
              .name("cpu:center_crop_pad")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
              .kernel<CenterCropPad>()};
}

}  // namespace backplane::cpu

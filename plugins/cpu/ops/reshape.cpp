// Reshape, Flatten, Squeeze, Unsqueeze, BitCast: the same bytes under other dims, or as another type.
// https://onnx.ai/onnx/operators/onnx__Reshape.html, onnx__Flatten.html, onnx__Squeeze.html, onnx__Unsqueeze.html,
// onnx__BitCast.html
#include <algorithm>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"

namespace backplane::cpu {
namespace {

/// A view of input 0 where the host grants it, a copy elsewhere.
struct SameElements {
  void compute(const sdk::ComputeContext& ctx) const { copy_all(ctx, 0, 0); }

  static SameElements prepare(sdk::PrepareContext& ctx, const sdk::Dims& dims) {
    const sdk::DataType type = ctx.input(0).type();
    require_storable(type);
    ctx.set_output(0, type, dims);
    if (has_memory(type)) ctx.set_view(0, 0);
    return {};
  }
};

class Reshape {
 public:
  using Prepared = SameElements;

  Reshape(const sdk::CreateContext&, const sdk::Node& node)
      : shape_(node.get_ints("shape")),
        from_input_(node.since_version() >= 5),
        allow_zero_(node.get_int("allowzero", 0) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Dims wanted = from_input_ ? ctx.input(1).to_ints() : shape_;
    return SameElements::prepare(ctx, target_dims(ctx.input(0).dims(), wanted));
  }

 private:
  // 0 copies the input's dim (unless allowzero), one -1 takes what is left.
  sdk::Dims target_dims(sdk::DimsView input, const sdk::Dims& wanted) const {
    sdk::Dims dims = wanted;
    common::Checked product(1);
    std::size_t open = dims.size();
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0 && !allow_zero_) {
        if (i >= input.size())
          sdk::invalid("Reshape: shape ", sdk::to_string(wanted), " copies dim ", i,
                       " of an input of dims ", sdk::to_string(input));
        dims[i] = input[i];
      }
      if (dims[i] < -1)
        sdk::invalid("Reshape: shape ", sdk::to_string(wanted), " has a dim below -1");
      if (dims[i] == -1) {
        if (open < dims.size())
          sdk::invalid("Reshape: shape ", sdk::to_string(wanted), " has more than one -1");
        open = i;
      } else {
        product = product * dims[i];
      }
    }
    const std::int64_t count = sdk::element_count(input);
    // Where a dim is 0 the others may be any.
    const bool is_empty = std::find(dims.begin(), dims.end(), 0) != dims.end();
    const std::int64_t known =
        is_empty ? 0 : product.value("Reshape: shape ", sdk::to_string(wanted));
    if (open < dims.size()) {
      if (known == 0 || count % known != 0) {
        sdk::invalid("Reshape: dims ", sdk::to_string(input), " cannot become ",
                     sdk::to_string(wanted));
      }
      dims[open] = count / known;
    } else if (known != count) {
      sdk::invalid("Reshape: dims ", sdk::to_string(input), " (", count,
                   " elements) cannot become ", sdk::to_string(wanted));
    }
    return dims;
  }

  std::vector<std::int64_t> shape_;
  bool from_input_, allow_zero_;
};

class Flatten {
 public:
  using Prepared = SameElements;

  Flatten(const sdk::CreateContext&, const sdk::Node& node) : axis_(node.get_int("axis", 1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    const auto rank = static_cast<std::int64_t>(dims.size());
    if (axis_ < -rank || axis_ > rank)
      sdk::invalid("Flatten: axis ", axis_, " is out of range for ", rank, " dimensions");
    const auto split = static_cast<std::size_t>(axis_ < 0 ? axis_ + rank : axis_);
    return SameElements::prepare(
        ctx, {dims_product(dims, 0, split), dims_product(dims, split, dims.size())});
  }

 private:
  std::int64_t axis_;
};

/// Axes come as an attribute up to opset 11 and as input 1 from opset 13.
class AxesOfNode {
 public:
  explicit AxesOfNode(const sdk::Node& node)
      : axes_(node.get_ints("axes")), from_input_(node.since_version() >= 13) {}
  std::vector<std::int64_t> read(const sdk::PrepareContext& ctx) const {
    if (!from_input_) return axes_;
    return ctx.input(1).present() ? ctx.input(1).to_ints() : std::vector<std::int64_t>();
  }
  bool given(const sdk::PrepareContext& ctx) const {
    return from_input_ ? ctx.input(1).present() : !axes_.empty();
  }

 private:
  std::vector<std::int64_t> axes_;
  bool from_input_;
};

class Squeeze {
 public:
  using Prepared = SameElements;

  Squeeze(const sdk::CreateContext&, const sdk::Node& node) : axes_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    const bool all = !axes_.given(ctx);
    std::vector<bool> dropped(dims.size(), false);
    for (const std::int64_t axis : axes_.read(ctx)) {
      dropped[static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(dims.size())))] = true;
    }
    sdk::Dims kept;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (!all && dropped[i] && dims[i] != 1)
        sdk::invalid("Squeeze: axis ", i, " of dims ", sdk::to_string(dims), " is not 1");
      if (all ? dims[i] != 1 : !dropped[i]) kept.push_back(dims[i]);
    }
    return SameElements::prepare(ctx, kept);
  }

 private:
  AxesOfNode axes_;
};

class Unsqueeze {
 public:
  using Prepared = SameElements;

  Unsqueeze(const sdk::CreateContext&, const sdk::Node& node) : axes_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    const std::vector<std::int64_t> axes = axes_.read(ctx);
    const std::vector<bool> added = axis_flags(axes, static_cast<int>(dims.size() + axes.size()));
    sdk::Dims target;
    std::size_t next = 0;
    for (const bool is_new : added) target.push_back(is_new ? 1 : dims[next++]);
    return SameElements::prepare(ctx, target);
  }

 private:
  AxesOfNode axes_;
};

/// The bits of each element as another type of the same size.
class BitCast {
 public:
  using Prepared = SameElements;

  BitCast(const sdk::CreateContext&, const sdk::Node& node)
      : to_(static_cast<sdk::DataType>(node.get_int("to", 0))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const int bits = sdk::element_bits(to_);
    if (bits == 0 || bits != sdk::element_bits(input.type())) {
      sdk::invalid("BitCast: elements of type ", sdk::type_name(input.type()),
                   " have another size than those of type ", sdk::type_name(to_));
    }
    ctx.set_output(0, to_, input.dims());
    ctx.set_view(0, 0);
    return {};
  }

 private:
  sdk::DataType to_;
};

}  // namespace

sdk::KernelList reshape_kernels() {
  const auto roles = {BP_INPUT_DATA, BP_INPUT_HOST_VALUE};
  return {sdk::op("Reshape").name("cpu:reshape").roles(roles).kernel<Reshape>(),
          // As its first version: the shape is an attribute.
          sdk::op("Reshape", "backplane.cpu").name("cpu:reshape").kernel<Reshape>(),
          sdk::op("Flatten").name("cpu:flatten").kernel<Flatten>(),
          sdk::op("Squeeze").name("cpu:squeeze").roles(roles).kernel<Squeeze>(),
          sdk::op("Unsqueeze").name("cpu:unsqueeze").roles(roles).kernel<Unsqueeze>(),
          sdk::op("BitCast").name("cpu:bit_cast").kernel<BitCast>()};
}

}  // namespace backplane::cpu

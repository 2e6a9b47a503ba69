// Slice, Split: parts of a tensor, as views where memory allows it.
// https://onnx.ai/onnx/operators/onnx__Slice.html, onnx__Split.html
#include <limits>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

/// A part of input 0: from element `offset` on, with strides that may be negative.
struct Part {
  StridedCopy copy;
  std::int64_t offset = 0;

  Part(sdk::PrepareContext& ctx, std::uint32_t output, std::int64_t start, const sdk::Dims& dims,
       sdk::Dims strides)
      : copy(ctx.input(0).type()), offset(start) {
    const sdk::DataType type = ctx.input(0).type();
    ctx.set_output(output, type, dims);
    const sdk::Dims dense = dense_strides(dims);
    bool is_dense = true, is_view = has_memory(type);
    for (std::size_t a = 0; a < dims.size(); ++a) {
      if (dims[a] == 1) strides[a] = dense[a];
      copy.axis(dims[a], strides[a], dense[a]);
      is_dense = is_dense && strides[a] == dense[a];
      is_view = is_view && strides[a] >= dense[a];
    }
    copy.offsets(start, 0);
    copy.finish();
    is_view = is_view && copy.size() > 0 && (dims.empty() || strides.back() == 1);
    const std::int64_t bits = start * sdk::element_bits(type);
    if (is_view && bits % 8 == 0) {
      ctx.set_view(output, 0, static_cast<std::uint64_t>(bits / 8),
                   is_dense ? nullptr : strides.data());
    }
  }

  void run(const sdk::ComputeContext& ctx, std::uint32_t output) const {
    const sdk::Tensor to = ctx.output(output);
    const int bytes = sdk::element_bytes(to.type());
    // A granted view beside others that were not: it is there already.
    if (bytes > 0 && to.size() > 0 && ctx.input(0).data<char>() + offset * bytes == to.data<char>())
      return;
    copy.run(ctx, 0, output);
  }
};

class Slice {
 public:
  struct Prepared {
    Part part;
    void compute(const sdk::ComputeContext& ctx) const { part.run(ctx, 0); }
  };

  Slice(const sdk::CreateContext&, const sdk::Node& node)
      : from_inputs_(node.since_version() >= 10) {
    if (from_inputs_) return;
    ranges_ = {node.get_ints("starts"), node.get_ints("ends"), node.get_ints("axes"), {}};
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const Ranges ranges = from_inputs_ ? read(ctx) : ranges_;
    const sdk::DimsView input = ctx.input(0).dims();
    const std::size_t count = ranges.starts.size();
    if (ranges.ends.size() != count || (!ranges.axes.empty() && ranges.axes.size() != count) ||
        (!ranges.steps.empty() && ranges.steps.size() != count) || count > input.size()) {
      sdk::invalid("Slice: ", count, " starts, ", ranges.ends.size(), " ends, ", ranges.axes.size(),
                   " axes and ", ranges.steps.size(),
                   " steps do not fit each other or an input of rank ", input.size());
    }
    if (!ranges.axes.empty()) axis_flags(ranges.axes, static_cast<int>(input.size()));
    sdk::Dims dims = to_dims(input), strides = dense_strides(input);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto axis = static_cast<std::size_t>(
          ranges.axes.empty() ? static_cast<int>(i)
                              : normalize_axis(ranges.axes[i], static_cast<int>(input.size())));
      cut(ranges.starts[i], ranges.ends[i], ranges.steps.empty() ? 1 : ranges.steps[i], dims[axis],
          strides[axis], offset);
    }
    return {Part(ctx, 0, offset, dims, strides)};
  }

 private:
  struct Ranges {
    std::vector<std::int64_t> starts, ends, axes, steps;
  };

  static Ranges read(const sdk::PrepareContext& ctx) {
    Ranges ranges{ctx.input(1).to_ints(), ctx.input(2).to_ints(), {}, {}};
    if (ctx.input(3).present()) ranges.axes = ctx.input(3).to_ints();
    if (ctx.input(4).present()) ranges.steps = ctx.input(4).to_ints();
    return ranges;
  }

  // Narrows one axis: `dim` and `stride` become those of the slice, `offset` grows by where it starts.
  static void cut(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t& dim,
                  std::int64_t& stride, std::int64_t& offset) {
    if (step == 0) sdk::invalid("Slice: a step is 0");
    step = std::max(step, -std::numeric_limits<std::int64_t>::max());
    if (start < 0) start += dim;
    if (end < 0) end += dim;
    std::int64_t count = 0;
    if (step > 0) {
      start = std::clamp<std::int64_t>(start, 0, dim);
      end = std::clamp<std::int64_t>(end, 0, dim);
      if (end > start) count = (end - start - 1) / step + 1;
    } else if (dim > 0) {
      start = std::clamp<std::int64_t>(start, 0, dim - 1);
      end = std::clamp<std::int64_t>(end, -1, dim - 1);
      if (start > end) count = (start - end - 1) / -step + 1;
    }
    dim = count;
    if (count > 0) offset += start * stride;
    if (count > 1) stride *= step;
  }

  Ranges ranges_;
  bool from_inputs_;
};

class Split {
 public:
  struct Prepared {
    std::vector<Part> parts;
    std::vector<std::uint32_t> outputs;
    void compute(const sdk::ComputeContext& ctx) const {
      for (std::size_t i = 0; i < parts.size(); ++i) parts[i].run(ctx, outputs[i]);
    }
  };

  Split(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        sizes_(node.get_ints("split")),
        count_(node.get_int("num_outputs", 0)),
        since_(node.since_version()) {
    if (since_ == 1 && node.input(1))
      sdk::unsupported("Split of opset 1 with its sizes as an input");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const auto axis = static_cast<std::size_t>(normalize_axis(axis_, input.rank()));
    const std::vector<std::int64_t> sizes = part_sizes(ctx, input.dims()[axis]);
    sdk::Dims dims = to_dims(input.dims());
    const sdk::Dims strides = dense_strides(dims);
    Prepared prepared;
    std::int64_t start = 0;
    for (std::uint32_t i = 0; i < sizes.size(); ++i) {
      dims[axis] = sizes[i];
      if (ctx.output_wanted(i)) {
        prepared.parts.emplace_back(ctx, i, start * strides[axis], dims, strides);
        prepared.outputs.push_back(i);
      }
      start += sizes[i];
    }
    return prepared;
  }

 private:
  std::vector<std::int64_t> part_sizes(const sdk::PrepareContext& ctx, std::int64_t dim) const {
    const auto outputs = static_cast<std::int64_t>(ctx.output_count());
    std::vector<std::int64_t> sizes = sizes_;
    if (since_ >= 13 && ctx.input(1).present()) sizes = ctx.input(1).to_ints();
    if (sizes.empty()) {
      if (count_ != 0 && count_ != outputs)
        sdk::invalid("Split: num_outputs is ", count_, ", the node has ", outputs, " outputs");
      if (since_ < 18 && dim % outputs != 0)
        sdk::invalid("Split: ", dim, " elements do not divide into ", outputs, " equal parts");
      const std::int64_t part = (dim + outputs - 1) / outputs;
      std::int64_t rest = dim;
      for (std::int64_t i = 0; i < outputs; ++i) {
        sizes.push_back(std::min(part, rest));
        rest -= sizes.back();
      }
      return sizes;
    }
    common::Checked sum(0);
    for (const std::int64_t size : sizes) {
      if (size < 0)
        sdk::invalid("Split: the part sizes ", sdk::to_string(sizes), " have a negative one");
      sum = sum + size;
    }
    if (sum.value("Split: the sum of the part sizes ", sdk::to_string(sizes)) != dim ||
        static_cast<std::int64_t>(sizes.size()) != outputs) {
      sdk::invalid("Split: the part sizes ", sdk::to_string(sizes), " do not make ", dim,
                   " elements in ", outputs, " outputs");
    }
    return sizes;
  }

  std::int64_t axis_;
  std::vector<std::int64_t> sizes_;
  std::int64_t count_;
  int since_;
};

}  // namespace

sdk::KernelList slice_kernels() {
  const auto roles = {BP_INPUT_DATA, BP_INPUT_HOST_VALUE};
  return {sdk::op("Slice").name("cpu:slice").roles(roles).kernel<Slice>(),
          sdk::op("Split").name("cpu:split").roles(roles).kernel<Split>()};
}

}  // namespace backplane::cpu

// Concat: https://onnx.ai/onnx/operators/onnx__Concat.html
#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

/// Wishes for its inputs to be made inside the output, and copies those that are not.
class Concat {
 public:
  struct Prepared {
    sdk::Dims target_strides;
    std::vector<StridedCopy> copies;        // for dense inputs and output
    std::vector<std::int64_t> axis_starts;  // where each input starts along the axis
    std::size_t axis;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
        if (ctx.input_inside(i) || copies[i].size() == 0) continue;
        const sdk::Tensor input = ctx.input(i);
        if (input.strides() == nullptr && output.strides() == nullptr) {
          copies[i].run(ctx, i, 0);
        } else {
          strided_copy(input, output, i).run(ctx, i, 0);
        }
      }
    }

    StridedCopy strided_copy(const sdk::Tensor& input, const sdk::Tensor& output,
                             std::size_t index) const {
      StridedCopy copy(output.type());
      std::int64_t dense = 1;  // the stride that the axis has in a dense input
      const std::int64_t* to =
          output.strides() != nullptr ? output.strides() : target_strides.data();
      for (int a = 0; a < input.rank(); ++a) dense *= input.dim(a);
      for (int a = 0; a < input.rank(); ++a) {
        dense /= input.dim(a);
        copy.axis(input.dim(a), input.strides() != nullptr ? input.strides()[a] : dense, to[a]);
      }
      copy.offsets(0, axis_starts[index] * to[axis]);
      copy.finish();
      return copy;
    }
  };

  Concat(const sdk::CreateContext&, const sdk::Node& node) : axis_(node.get_int("axis", 1)) {
    if (!node.has("axis") && node.since_version() >= 4)
      sdk::invalid("Concat: the attribute 'axis' is missing");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor first = ctx.input(0);
    const auto axis = static_cast<std::size_t>(normalize_axis(axis_, first.rank()));
    sdk::Dims dims = to_dims(first.dims());
    dims[axis] = 0;
    common::Checked sum(0);
    for (std::uint32_t i = 0; i < ctx.input_count(); ++i)
      sum = sum + axis_dim(ctx.input(i), dims, axis, i);
    dims[axis] = sum.value("Concat: the sum of the inputs' sizes along axis ", axis);
    ctx.set_output(0, first.type(), dims);

    Prepared prepared;
    prepared.target_strides = dense_strides(dims);
    prepared.axis = axis;
    const std::int64_t outer = dims_product(dims, 0, axis);
    const std::int64_t pitch = dims_product(dims, axis, dims.size());
    std::int64_t start = 0, axis_start = 0;
    for (std::uint32_t i = 0; i < ctx.input_count(); ++i) {
      const sdk::DimsView part = ctx.input(i).dims();
      const std::int64_t run = dims_product(part, axis, part.size());
      StridedCopy copy(first.type());
      copy.axis(outer, run, pitch);
      copy.axis(run, 1, 1);
      copy.offsets(0, start);
      copy.finish();
      prepared.copies.push_back(copy);
      prepared.axis_starts.push_back(axis_start);
      if (copy.size() > 0 && has_memory(first.type()))
        wish(ctx, i, first.type(), start, outer > 1 ? prepared.target_strides.data() : nullptr);
      start += run;
      axis_start += part[axis];
    }
    if (has_memory(first.type())) ctx.allow_strided_output(0);
    return prepared;
  }

 private:
  static std::int64_t axis_dim(const sdk::Tensor& part, const sdk::Dims& dims, std::size_t axis,
                               std::uint32_t index) {
    bool same = part.rank() == static_cast<int>(dims.size());
    for (std::size_t a = 0; same && a < dims.size(); ++a)
      same = a == axis || part.dims()[a] == dims[a];
    if (!same) {
      sdk::invalid("Concat: input ", index, " has dims ", sdk::to_string(part.dims()),
                   ", which do not fit those of input 0 along axis ", axis);
    }
    return part.dims()[axis];
  }

  static void wish(sdk::PrepareContext& ctx, std::uint32_t input, sdk::DataType type,
                   std::int64_t start, const std::int64_t* strides) {
    ctx.allow_strided_input(input);
    const std::int64_t bits = start * sdk::element_bits(type);
    if (bits % 8 == 0) ctx.set_inside(input, 0, static_cast<std::uint64_t>(bits / 8), strides);
  }

  std::int64_t axis_;
};

}  // namespace

sdk::KernelList concat_kernels() { return {sdk::op("Concat").name("cpu:concat").kernel<Concat>()}; }

}  // namespace backplane::cpu

// Expand, Tile: https://onnx.ai/onnx/operators/onnx__Expand.html, onnx__Tile.html
#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

struct RepeatedCopy {
  StridedCopy copy;
  void compute(const sdk::ComputeContext& ctx) const { copy.run(ctx, 0, 0); }
};

/// Broadcasting in both directions between the input and `shape`.
class Expand {
 public:
  using Prepared = RepeatedCopy;

  Expand(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const sdk::Dims shape = ctx.input(1).to_ints();
    const std::size_t rank = std::max(shape.size(), input.dims().size());
    sdk::Dims dims(rank, 1), from(rank, 1);
    std::copy(input.dims().begin(), input.dims().end(), from.end() - input.rank());
    std::copy(shape.begin(), shape.end(), dims.end() - static_cast<std::ptrdiff_t>(shape.size()));
    for (std::size_t i = 0; i < rank; ++i) {
      if (dims[i] < 0 || (dims[i] != from[i] && dims[i] != 1 && from[i] != 1)) {
        sdk::invalid("Expand: dims ", sdk::to_string(input.dims()), " cannot be broadcast with ",
                     sdk::to_string(shape));
      }
      if (dims[i] == 1) dims[i] = from[i];
    }
    ctx.set_output(0, input.type(), dims);
    if (sdk::element_count(dims) == input.size() && has_memory(input.type())) ctx.set_view(0, 0);
    const sdk::Dims source = dense_strides(from), target = dense_strides(dims);
    Prepared prepared{StridedCopy(input.type())};
    for (std::size_t i = 0; i < rank; ++i)
      prepared.copy.axis(dims[i], from[i] == 1 ? 0 : source[i], target[i]);
    prepared.copy.finish();
    return prepared;
  }
};

/// Repeats the input along every axis.
class Tile {
 public:
  using Prepared = RepeatedCopy;

  Tile(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const sdk::Dims repeats = ctx.input(1).to_ints();
    sdk::Dims dims = to_dims(input.dims());
    if (repeats.size() != dims.size()) {
      sdk::invalid("Tile: ", repeats.size(), " repeats for an input of rank ", dims.size());
    }
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (repeats[i] < 0)
        sdk::invalid("Tile: the repeats ", sdk::to_string(repeats), " have a negative one");
      dims[i] = (common::Checked(dims[i]) * repeats[i])
                    .value("Tile: ", repeats[i], " times the ", dims[i], " elements of axis ", i);
    }
    ctx.set_output(0, input.type(), dims);
    if (sdk::element_count(dims) == input.size() && has_memory(input.type())) ctx.set_view(0, 0);
    const sdk::Dims source = dense_strides(input.dims()), target = dense_strides(dims);
    Prepared prepared{StridedCopy(input.type())};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      prepared.copy.axis(repeats[i], 0, target[i] * input.dims()[i]);
      prepared.copy.axis(input.dims()[i], source[i], target[i]);
    }
    prepared.copy.finish();
    return prepared;
  }
};

}  // namespace

sdk::KernelList expand_kernels() {
  const auto roles = {BP_INPUT_DATA, BP_INPUT_HOST_VALUE};
  return {sdk::op("Expand").name("cpu:expand").roles(roles).kernel<Expand>(),
          sdk::op("Tile").name("cpu:tile").since(6).roles(roles).kernel<Tile>()};
}

}  // namespace backplane::cpu

// Shape: https://onnx.ai/onnx/operators/onnx__Shape.html
//
// The host evaluates it while planning. It is a node of the device so that a rewrite sees that nobody reads the elements of
// its operand, which then need not be there in the model's own type.
#include <algorithm>
#include <limits>

#include "op_table.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {
namespace {

class Shape {
 public:
  Shape(const Device&, const sdk::Node& node)
      : start_(node.get_int("start", 0)),
        end_(node.get_int("end", std::numeric_limits<std::int64_t>::max())) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    const DimsView dims = ctx.input(0).dims();
    const auto rank = static_cast<std::int64_t>(dims.size());
    const auto clamp = [rank](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const std::int64_t begin = clamp(start_), count = std::max(begin, clamp(end_)) - begin;
    ctx.set_output(0, DataType::Int64, DimsView(&count, 1));
    if (count == 0) return;
    const auto bytes = static_cast<std::size_t>(count) * sizeof(std::int64_t);
    device_ops::Work& launches = work.launches();
    launches.add_copy(launches.add_table(dims.data() + begin, bytes), output(0), bytes);
  }

 private:
  std::int64_t start_, end_;
};

}  // namespace

KernelList shape_kernels() {
  return {cuda_kernel<Shape>(sdk::op("Shape")
                                 .name(kernel_name("shape"))
                                 .types("T", device_ops::element_types())
                                 .roles({BP_INPUT_SHAPE_ONLY}))};
}

}  // namespace backplane::cuda

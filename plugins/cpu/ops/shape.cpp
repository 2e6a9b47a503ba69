// Shape, Size: https://onnx.ai/onnx/operators/onnx__Shape.html, onnx__Size.html
#include <algorithm>
#include <limits>

#include "backplane/plugin.hpp"

namespace backplane::cpu {
namespace {

/// The dims of the input from `start` to `end` (opset 15; all of them before), clamped to its rank.
class Shape {
 public:
  struct Prepared {
    sdk::Dims dims;
    void compute(const sdk::ComputeContext& ctx) const {
      std::copy(dims.begin(), dims.end(), ctx.output(0).mutable_data<std::int64_t>());
    }
  };

  Shape(const sdk::CreateContext&, const sdk::Node& node)
      : start_(node.get_int("start", 0)),
        end_(node.get_int("end", std::numeric_limits<std::int64_t>::max())) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView dims = ctx.input(0).dims();
    const auto rank = static_cast<std::int64_t>(dims.size());
    const auto clamp = [rank](std::int64_t at) {
      return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const std::int64_t begin = clamp(start_);
    const std::int64_t end = std::max(begin, clamp(end_));
    Prepared prepared{sdk::Dims(dims.begin() + begin, dims.begin() + end)};
    const std::int64_t count = end - begin;
    ctx.set_output(0, sdk::DataType::Int64, sdk::DimsView(&count, 1));
    return prepared;
  }

 private:
  std::int64_t start_, end_;
};

class Size {
 public:
  struct Prepared {
    std::int64_t size;
    void compute(const sdk::ComputeContext& ctx) const {
      *ctx.output(0).mutable_data<std::int64_t>() = size;
    }
  };

  Size(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::Int64, sdk::DimsView());
    return {ctx.input(0).size()};
  }
};

}  // namespace

sdk::KernelList shape_kernels() {
  return {sdk::op("Shape").name("cpu:shape").roles({BP_INPUT_SHAPE_ONLY}).kernel<Shape>(),
          sdk::op("Size").name("cpu:size").roles({BP_INPUT_SHAPE_ONLY}).kernel<Size>()};
}

}  // namespace backplane::cpu

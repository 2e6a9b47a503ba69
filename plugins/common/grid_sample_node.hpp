// What a GridSample node asks for: https://onnx.ai/onnx/operators/onnx__GridSample.html
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"

namespace backplane::common {

enum class SampleMode { Nearest, Linear, Cubic };
enum class SamplePadding { Zeros, Border, Reflection };

struct GridSampleRule {
  SampleMode mode;
  SamplePadding padding;
  bool align_corners;
};

constexpr int kMostSampledAxes = 3;  // spatial ones

inline SampleMode sample_mode_of(const std::string& name) {
  if (name == "nearest") return SampleMode::Nearest;
  if (name == "linear" || name == "bilinear") return SampleMode::Linear;
  if (name == "cubic" || name == "bicubic") return SampleMode::Cubic;
  sdk::invalid("GridSample: mode '", name, "' is not known");
}

inline SamplePadding sample_padding_of(const std::string& name) {
  if (name == "zeros") return SamplePadding::Zeros;
  if (name == "border") return SamplePadding::Border;
  if (name == "reflection") return SamplePadding::Reflection;
  sdk::invalid("GridSample: padding_mode '", name, "' is not known");
}

inline GridSampleRule grid_sample_rule(const sdk::Node& node) {
  return {sample_mode_of(node.get_string("mode", "linear")),
          sample_padding_of(node.get_string("padding_mode", "zeros")),
          node.get_int("align_corners", 0) != 0};
}

/// Checks the inputs, sets the output and returns its dims.
inline sdk::Dims set_grid_sample_dims(sdk::PrepareContext& ctx) {
  const sdk::Tensor x = ctx.input(0), grid = ctx.input(1);
  const int axes = x.rank() - 2;
  if (axes > kMostSampledAxes)
    sdk::unsupported("GridSample over ", axes, " spatial axes, more than ", kMostSampledAxes);
  if (axes < 1 || grid.rank() != axes + 2 || grid.dim(axes + 1) != axes ||
      grid.dim(0) != x.dim(0)) {
    sdk::invalid("GridSample: a grid of dims ", sdk::to_string(grid.dims()),
                 " does not fit an input of dims ", sdk::to_string(x.dims()));
  }
  sdk::Dims dims{x.dim(0), x.dim(1)};
  std::int64_t image = 1;
  for (int a = 0; a < axes; ++a) {
    dims.push_back(grid.dim(a + 1));
    image *= x.dim(a + 2);
  }
  if (image == 0 && sdk::element_count(dims) > 0)
    sdk::invalid("GridSample: the input has no elements");
  ctx.set_output(0, x.type(), dims);
  return dims;
}

}  // namespace backplane::common

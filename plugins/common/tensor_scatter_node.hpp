// What a TensorScatter node asks for: https://onnx.ai/onnx/operators/onnx__TensorScatter.html
#pragma once

#include <cstdint>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"

namespace backplane::common {

struct TensorScatterRule {
  std::int64_t axis;
  bool circular;
};

/// A cache [batches, prefixes, cache_length, run] and an update [batches, prefixes, length, run].
struct TensorScatterSizes {
  std::int64_t batches = 0, prefixes = 1, cache_length = 0, length = 0, run = 1;
};

inline TensorScatterRule tensor_scatter_rule(const sdk::Node& node) {
  const std::string mode = node.get_string("mode", "linear");
  if (mode != "linear" && mode != "circular")
    sdk::invalid("TensorScatter: mode '", mode, "' is neither linear nor circular");
  return {node.get_int("axis", -2), mode == "circular"};
}

/// Checks the inputs and sets the output.
inline TensorScatterSizes set_tensor_scatter_dims(sdk::PrepareContext& ctx,
                                                  const TensorScatterRule& rule) {
  const sdk::Tensor cache = ctx.input(0), update = ctx.input(1);
  const int axis = normalize_axis(rule.axis, cache.rank());
  if (axis == 0) sdk::invalid("TensorScatter: axis 0 is the batch");
  bool fits = cache.rank() == update.rank();
  for (int i = 0; fits && i < cache.rank(); ++i)
    fits = i == axis ? update.dim(i) <= cache.dim(i) : update.dim(i) == cache.dim(i);
  if (fits && ctx.input(2).present()) fits = ctx.input(2).size() == cache.dim(0);
  if (!fits)
    sdk::invalid("TensorScatter: an update of dims ", sdk::to_string(update.dims()),
                 " does not fit a cache of dims ", sdk::to_string(cache.dims()));
  ctx.set_output(0, cache.type(), cache.dims());
  return {cache.dim(0), product(cache.dims(), 1, axis), cache.dim(axis), update.dim(axis),
          product(cache.dims(), axis + 1, cache.rank())};
}

}  // namespace backplane::common

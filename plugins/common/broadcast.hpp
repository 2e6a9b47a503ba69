// Multidirectional broadcasting: https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// The shape that all of `shapes` broadcast to. Errors: BP_INVALID_ARGUMENT when there is none.
inline sdk::Dims broadcast_dims(const std::vector<sdk::DimsView>& shapes) {
  std::size_t rank = 0;
  for (const sdk::DimsView& shape : shapes) rank = shape.size() > rank ? shape.size() : rank;
  sdk::Dims result(rank, 1);
  for (const sdk::DimsView& shape : shapes) {
    const std::size_t shift = rank - shape.size();
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      std::int64_t& out = result[shift + axis];
      if (shape[axis] == out || shape[axis] == 1) continue;
      if (out != 1) {
        std::string text;
        for (const sdk::DimsView& each : shapes)
          text += (text.empty() ? "" : " and ") + to_string(each);
        sdk::invalid("shapes ", text, " cannot be broadcast to one");
      }
      out = shape[axis];
    }
  }
  return result;
}

/// Whether `shape` broadcasts to `to` without changing it (unidirectional broadcasting).
inline bool broadcasts_to(sdk::DimsView shape, sdk::DimsView to) {
  if (shape.size() > to.size()) return false;
  const std::size_t shift = to.size() - shape.size();
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] != 1 && shape[axis] != to[shift + axis]) return false;
  }
  return true;
}

/// How to walk over operands that broadcast to one dense output, with as few loops as possible.
///
/// `dims` are the output's with neighbouring axes merged where every operand allows it, and axes of
/// one element dropped; at least one axis remains. `strides[k][axis]` is operand k's step, in
/// elements, 0 where it is repeated. The last axis of an operand has stride 1 or 0.
struct BroadcastLoops {
  sdk::Dims dims;
  std::vector<sdk::Dims> strides;

  /// Where element `row`, the index over all axes but the last, starts in an operand, in elements.
  std::int64_t row_offset(std::size_t operand, std::int64_t row) const {
    std::int64_t offset = 0;
    for (std::size_t axis = dims.size() - 1; axis-- > 0;) {
      offset += row % dims[axis] * strides[operand][axis];
      row /= dims[axis];
    }
    return offset;
  }
  /// Where element `i` of the output comes from in an operand, in elements.
  std::int64_t offset(std::size_t operand, std::int64_t i) const {
    return row_offset(operand, i / dims.back()) + i % dims.back() * strides[operand].back();
  }
};

/// Loops over `out` for dense operands of these shapes, each of which broadcasts to `out`.
inline BroadcastLoops plan_broadcast(sdk::DimsView out,
                                     const std::vector<sdk::DimsView>& operands) {
  const std::size_t count = operands.size();
  std::vector<sdk::Dims> full(count, sdk::Dims(out.size(), 0));
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t shift = out.size() - operands[k].size();
    std::int64_t stride = 1;
    for (std::size_t axis = operands[k].size(); axis-- > 0;) {
      full[k][shift + axis] = operands[k][axis] == 1 ? 0 : stride;
      stride *= operands[k][axis];
    }
  }
  BroadcastLoops loops;
  loops.strides.resize(count);
  for (std::size_t axis = 0; axis < out.size(); ++axis) {  // outermost first
    if (out[axis] == 1) continue;
    bool merge = !loops.dims.empty();
    for (std::size_t k = 0; merge && k < count; ++k) {
      merge = loops.strides[k].back() == full[k][axis] * out[axis];
    }
    if (merge) {
      loops.dims.back() *= out[axis];
      for (std::size_t k = 0; k < count; ++k) loops.strides[k].back() = full[k][axis];
    } else {
      loops.dims.push_back(out[axis]);
      for (std::size_t k = 0; k < count; ++k) loops.strides[k].push_back(full[k][axis]);
    }
  }
  if (loops.dims.empty()) {
    loops.dims.push_back(1);
    for (sdk::Dims& strides : loops.strides) strides.push_back(0);
  }
  return loops;
}

}  // namespace backplane::common

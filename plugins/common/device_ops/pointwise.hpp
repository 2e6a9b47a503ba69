// Launches of element-wise kernels and of copies between strided layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

/// An operand or the output of an element-wise launch.
struct View {
  MemoryRef memory;
  DataType type = DataType::Float;
  Dims strides;  ///< one per axis of the walk, in elements
};

/// A dense tensor of these dims, seen in a walk over `out` to which it broadcasts.
View broadcast_view(const MemoryRef& memory, DataType type, DimsView dims, DimsView out);
/// A dense tensor of the walk's own dims.
View dense_view(const MemoryRef& memory, DataType type, DimsView dims);

/// The dims of what a node that a rewrite made of element-wise ones makes of its first `operands` inputs.
class MadeDims {
 public:
  /// From the attribute "dims"; without it, these are what the inputs broadcast to.
  explicit MadeDims(const sdk::Node& node);
  /// Errors: BP_INVALID_ARGUMENT where an input does not broadcast to them.
  Dims of(const sdk::PrepareContext& ctx, std::uint32_t operands) const;

 private:
  bool is_known_;
  Dims dims_;
};

/// What an element-wise kernel computes: see pointwise_text. `functions` stands before the kernel.
struct Expression {
  std::string text;
  std::string functions;
  std::vector<double> parameters = {};
  std::string statements = {};  ///< before the expression's evaluation
};

/// `v0`, for an output of that type: a finite number stays one, so that what masks add, the least float or so, is no infinity.
const char* finite_text(DataType to);

void add_pointwise(Work& work, DimsView dims, const std::vector<View>& operands, const View& out,
                   const Expression& expression, int unless_inside = -1);

/// Moves elements of `bytes` bytes (a power of two up to 16) whatever their type: from and to strides in
/// elements, with the offsets, also in elements, of the first one.
struct StridedCopy {
  Dims dims;
  MemoryRef from, to;
  Dims from_strides, to_strides;
  std::int64_t from_offset = 0, to_offset = 0;
  int unless_inside = -1;
};
void add_strided_copy(Work& work, DataType type, StridedCopy copy);

/// Groups for a walk whose innermost dimension has `inner` items, and the next one `outer`: one where the kernel does
/// not look for the end along it.
std::array<std::size_t, 3> group_for(const Device& device, std::int64_t inner,
                                     std::int64_t outer = 1);

}  // namespace backplane::device_ops

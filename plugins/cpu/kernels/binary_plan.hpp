// A binary operator of one element type, planned: the loop for its type and instruction set.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/binary_f32.hpp"
#include "plugins/cpu/kernels/broadcast_rows.hpp"

namespace backplane::cpu {

/// `op` on operands of `type` with dims `a` and `b`, which broadcast to `y`.
BroadcastRows plan_binary(BinaryOp op, sdk::DataType type, Isa isa, sdk::DimsView a,
                          sdk::DimsView b, sdk::DimsView y);

/// The dims of the second operand as it takes part in broadcasting: as they are since opset 7. Before,
/// with the attribute `broadcast`, they match a run of the first operand's axes that starts at `axis`
/// (by default the last ones); without it both shapes are equal.
class LegacyBroadcast {
 public:
  explicit LegacyBroadcast(const sdk::Node& node);
  sdk::Dims second_dims(sdk::DimsView first, sdk::DimsView second) const;

 private:
  bool legacy_;
  bool broadcast_;
  bool has_axis_;
  std::int64_t axis_;
};

}  // namespace backplane::cpu

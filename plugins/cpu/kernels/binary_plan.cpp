#include "plugins/cpu/kernels/binary_plan.hpp"

#include "plugins/common/axes.hpp"
#include "plugins/cpu/kernels/binary_f64.hpp"
#include "plugins/cpu/kernels/binary_scalar.hpp"

namespace backplane::cpu {
namespace {

double ns_of(BinaryOp op, bool vector) {
  switch (op) {
    case BinaryOp::kPow:
      return 8;
    case BinaryOp::kMod:
    case BinaryOp::kFMod:
      return vector ? 1 : 8;
    case BinaryOp::kDiv:
      return vector ? 0.3 : 2;
    default:
      return vector ? 0.12 : 0.3;
  }
}

}  // namespace

BroadcastRows plan_binary(BinaryOp op, sdk::DataType type, Isa isa, sdk::DimsView a,
                          sdk::DimsView b, sdk::DimsView y) {
  const std::int64_t bytes = sdk::element_bytes(type);
  const bool is_half = type == sdk::DataType::Float16 || type == sdk::DataType::BFloat16;
  const bool vector = is_half || type == sdk::DataType::Float;
  const BroadcastRows::Elements elements{bytes, bytes, bytes, ns_of(op, vector)};
  if (vector) {
    RowLoops loops = binary_f32(isa, op);
    if (loops[RowForm::kBoth] == nullptr) loops = scalar_binary<float>(op);
    const HalfConversion* half = is_half ? &half_conversion(isa, type) : nullptr;
    return {a, b, y, elements, loops, half, is_half};
  }
  const RowLoops loops = common::with_number(type, [op, isa](auto tag) -> RowLoops {
    using T = typename decltype(tag)::type;
    if constexpr (common::kIsHalfType<T>)
      return {{nullptr, nullptr, nullptr}};
    else if constexpr (std::is_same_v<T, double>)
      return binary_f64(isa, op);
    else
      return scalar_binary<T>(op);
  });
  return {a, b, y, elements, loops};
}

LegacyBroadcast::LegacyBroadcast(const sdk::Node& node)
    : legacy_(node.since_version() < 7),
      broadcast_(node.get_int("broadcast", 0) != 0),
      has_axis_(node.has("axis")),
      axis_(has_axis_ ? node.get_int("axis", 0) : 0) {}

sdk::Dims LegacyBroadcast::second_dims(sdk::DimsView first, sdk::DimsView second) const {
  sdk::Dims dims(second.begin(), second.end());
  if (!legacy_) return dims;
  if (!broadcast_) {
    if (dims != sdk::Dims(first.begin(), first.end())) {
      sdk::invalid("shapes ", to_string(first), " and ", to_string(second),
                   " differ, and before opset 7 only attribute 'broadcast' allows that");
    }
    return dims;
  }
  const int rank = static_cast<int>(first.size());
  if (dims.size() > first.size()) {
    sdk::invalid("shape ", to_string(second), " has more dimensions than ", to_string(first));
  }
  if (!has_axis_) return dims;
  const int axis = common::normalize_axis(axis_, rank == 0 ? 1 : rank);
  if (axis + dims.size() > first.size()) {
    sdk::invalid("axis ", axis_, " leaves no room for shape ", to_string(second), " in ",
                 to_string(first));
  }
  dims.insert(dims.end(), first.size() - static_cast<std::size_t>(axis) - dims.size(), 1);
  return dims;
}

}  // namespace backplane::cpu

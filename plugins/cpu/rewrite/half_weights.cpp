// Products hold constant weights in 16 bits where these are exact: those of models in float16 and bfloat16, and of such
// models that were exported in float.
#include <cstring>

#include "plugins/cpu/dense/weight_attributes.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Weights that a core's own cache holds are read fast enough.
constexpr std::uint64_t kLeastBytes = 64 * 1024;

/// Whether floats at any alignment stay what they are, NaN included, when they become numbers of `type` and floats again.
bool holds(const HalfConversion& conversion, const char* data, std::uint64_t count) {
  constexpr std::uint64_t kPart = 512;
  float floats[kPart], again[kPart];
  std::uint16_t halves[kPart];
  for (std::uint64_t i = 0; i < count; i += kPart) {
    const std::uint64_t part = std::min(kPart, count - i);
    std::memcpy(floats, data + i * sizeof(float), part * sizeof(float));
    conversion.from_float(floats, halves, static_cast<std::int64_t>(part));
    conversion.to_float(halves, again, static_cast<std::int64_t>(part));
    if (std::memcmp(floats, again, part * sizeof(float)) != 0) return false;
  }
  return true;
}

/// Float where no type of 16 bits will do.
DataType weight_type(const sdk::ValueInfo& weights, Isa isa) {
  const auto [data, bytes] = weights.stored_constant();
  if (data == nullptr || bytes < kLeastBytes) return DataType::Float;
  for (const DataType type : {DataType::BFloat16, DataType::Float16}) {
    if (holds(half_conversion(isa, type), static_cast<const char*>(data), bytes / sizeof(float)))
      return type;
  }
  return DataType::Float;
}

bool is_scaled(const WorkNode& node) {
  if (!node.changed) return node.original.get_float("alpha", 1) != 1;
  const auto alpha = node.attributes.find("alpha");
  return alpha != node.attributes.end() && std::get<float>(alpha->second) != 1;
}

}  // namespace

void hold_weights_in_halves(WorkingGraph& graph, Isa isa) {
  if (isa == Isa::kBaseline) return;  // it would make floats of them one by one
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || (node->op != "MatMul" && node->op != "Gemm") ||
        (!node->domain.empty() && node->domain != kPrivateDomain) || is_scaled(*node))
      continue;
    const sdk::ValueInfo weights = graph.constant_info(node->input(1));
    if (!weights || weights.rank() != 2 || weights.type() != DataType::Float) continue;
    const DataType type = weight_type(weights, isa);
    if (type == DataType::Float) continue;
    if (!node->changed) graph.change(node);
    node->domain = kPrivateDomain;
    node->attributes[kWeightType] = static_cast<std::int64_t>(type);
  }
}

}  // namespace backplane::cpu

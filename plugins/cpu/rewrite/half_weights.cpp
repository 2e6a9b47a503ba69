// Products hold constant weights in 16 bits where these are exact: those of models in float16 and bfloat16, which are read as they
// are, and those of such models that were exported in float.
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

/// The Cast that makes floats of a constant of 16 bits; null: the value is not made so.
WorkNode* cast_of_halves(const WorkingGraph& graph, const std::string& value) {
  WorkNode* cast = value.empty() ? nullptr : graph.producer(value);
  if (cast == nullptr || !cast->is("Cast") || cast->changed || !graph.is_float(value))
    return nullptr;
  const sdk::ValueInfo halves = graph.constant_info(cast->input(0));
  const bool is_half =
      halves && (halves.type() == DataType::Float16 || halves.type() == DataType::BFloat16);
  return is_half && halves.rank() == 2 ? cast : nullptr;
}

void set_weight_type(WorkingGraph& graph, WorkNode* node, DataType type) {
  graph.change(node);
  node->domain = kPrivateDomain;
  node->attributes[kWeightType] = static_cast<std::int64_t>(type);
}

}  // namespace

void keep_half_weights(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed || !(node->is("MatMul") || node->is("Gemm")) ||
        !graph.is_float(node->outputs[0]) || is_scaled(*node))
      continue;
    WorkNode* cast = cast_of_halves(graph, node->input(1));
    if (cast == nullptr) continue;
    set_weight_type(graph, node, graph.constant_info(cast->input(0)).type());
    graph.set_input(node, 1, cast->input(0));
    graph.remove_if_unread(cast, node);
  }
}

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
    set_weight_type(graph, node, type);
  }
}

}  // namespace backplane::cpu

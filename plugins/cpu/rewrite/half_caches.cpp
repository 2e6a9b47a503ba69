// Attention keeps its cache in the model's 16 bits: what it reads of before and hands on is neither widened nor narrowed.
#include <optional>

#include "plugins/cpu/dense/cache_attributes.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// A cache of keys or values of an attention: its places among the node's inputs and outputs.
struct CachePlaces {
  std::size_t past, present;
};

const std::string& output_of(const WorkNode& node, std::size_t index) {
  static const std::string kNone;
  return index < node.outputs.size() ? node.outputs[index] : kNone;
}

/// The Cast to float that makes a value of a past; null: there is none.
WorkNode* widening_of(const WorkingGraph& graph, const std::string& value) {
  WorkNode* cast = value.empty() ? nullptr : graph.producer(value);
  return cast != nullptr && cast->is("Cast") && !cast->changed ? cast : nullptr;
}

/// The Cast that alone reads a present.
WorkNode* narrowing_of(const WorkingGraph& graph, const std::string& value) {
  WorkNode* cast = value.empty() ? nullptr : graph.only_consumer(value);
  return cast != nullptr && cast->is("Cast") && !cast->changed ? cast : nullptr;
}

/// The one type of 16 bits that both caches have on the other side of their Casts; Float: they do not.
DataType cache_type(const WorkingGraph& graph, const WorkNode& node,
                    const std::vector<CachePlaces>& caches) {
  std::optional<DataType> found;
  const auto agrees = [&](const WorkNode* cast, bool is_past) {
    if (cast == nullptr) return false;
    const sdk::ValueInfo half = graph.info(is_past ? cast->input(0) : cast->outputs[0]);
    if (!half || (half.type() != DataType::Float16 && half.type() != DataType::BFloat16))
      return false;
    if (!found) found = half.type();
    return found == half.type();
  };
  for (const auto& [past, present] : caches) {
    const std::string &before = node.input(past), &after = output_of(node, present);
    // New keys or values that are read where they are stay floats.
    if (before.empty() && after.empty()) return DataType::Float;
    if (!before.empty() && !agrees(widening_of(graph, before), true)) return DataType::Float;
    if (!after.empty() && !agrees(narrowing_of(graph, after), false)) return DataType::Float;
  }
  return found.value_or(DataType::Float);
}

void keep(WorkingGraph& graph, WorkNode* node, const char* op,
          const std::vector<CachePlaces>& caches) {
  const DataType type = cache_type(graph, *node, caches);
  if (type == DataType::Float) return;
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = op;
  node->attributes[kCacheType] = static_cast<std::int64_t>(type);
  for (const auto& [past, present] : caches) {
    WorkNode* const widening = widening_of(graph, node->input(past));
    if (widening != nullptr) {
      graph.set_input(node, past, widening->input(0));
      graph.remove_if_unread(widening, node);
    }
    WorkNode* const narrowing = narrowing_of(graph, output_of(*node, present));
    if (narrowing == nullptr) continue;
    const std::string after = narrowing->outputs[0];
    graph.remove(narrowing, node);
    graph.set_output(node, present, after);
  }
}

}  // namespace

void keep_half_caches(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* const node = graph.at(i);
    if (node == nullptr || node->changed || !graph.is_float(node->outputs[0])) continue;
    if (node->is("GroupQueryAttention", "com.microsoft"))
      keep(graph, node, "GroupQueryAttention", {{3, 1}, {4, 2}});
    if (node->is("Attention")) keep(graph, node, "CachedAttention", {{4, 1}, {5, 2}});
  }
}

}  // namespace backplane::cpu

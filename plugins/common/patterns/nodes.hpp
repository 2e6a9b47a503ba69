// What matchers of patterns ask of a graph: who alone makes a value, who else reads it, what is known of its dims before any run,
// and the number that a constant is.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::patterns {

/// Nodes whose work an added node does: no part of what is matched later.
using NodeSet = std::set<const bp_node*>;

/// The node that alone reads `value`, once, where nobody outside does and that is not taken; empty otherwise.
inline sdk::Node only_consumer(const sdk::ValueInfo& value, const NodeSet& taken) {
  if (value.is_output() || value.consumer_count() != 1) return sdk::Node();
  const sdk::Node node = value.consumer(0);
  return taken.count(node.raw()) == 0 ? node : sdk::Node();
}

/// What makes a value that one node alone reads, once; empty where others do, or that node of ONNX's is taken.
inline sdk::Node only_producer(const sdk::ValueInfo& value, const NodeSet& taken) {
  const sdk::Node node = value ? value.producer() : sdk::Node();
  if (!node || !node.domain().empty() || taken.count(node.raw()) > 0) return sdk::Node();
  return value.is_output() || value.consumer_count() != 1 ? sdk::Node() : node;
}

/// Whether others than these nodes read the value.
bool is_read_by_others(const sdk::ValueInfo& value, const std::vector<sdk::Node>& nodes);

/// Whether an axis of one value surely has, in every run, the size of an axis of another. Both have ranks.
bool same_size(const sdk::ValueInfo& a, int a_axis, const sdk::ValueInfo& b, int b_axis);

/// What is known before any run of the dims of one value beside those of another.
enum class DimsMatch : std::uint8_t {
  kSame,     ///< of each axis, the size or the symbol is the same
  kPerhaps,  ///< the same number of axes, and none of which two sizes are known that differ
  kOther
};
DimsMatch match_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b);

/// Whether both surely have the same dims, in every run.
inline bool same_dims(const sdk::ValueInfo& a, const sdk::ValueInfo& b) {
  return match_dims(a, b) == DimsMatch::kSame;
}

/// The size of the last axis; -1 where it is not known.
inline std::int64_t last_size(const sdk::ValueInfo& value) {
  return value && value.rank() > 0 ? value.dims().back() : -1;
}

/// The number of a constant of one element, float32 or of 16 bits, however many axes it has; false where it is something else.
bool number_of(const sdk::ValueInfo& value, float& number);
/// The same of at most one axis.
bool scalar_of(const sdk::ValueInfo& value, float& number);
/// The same of no more axes than `value` has, beside which it stands in an operator that broadcasts: it adds none.
bool number_beside(const sdk::ValueInfo& constant, const sdk::ValueInfo& value, float& number);

/// The axes of a reduction of `rank` axes, in order: the constant, the attribute, or all of them. False where they are not known.
bool read_axes(const sdk::Node& node, int rank, sdk::Dims& axes);

}  // namespace backplane::patterns

// What passes share. Each pass changes one graph, not the bodies in it, and says whether it changed anything.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "core/passes/passes.hpp"

namespace backplane::core {

/// The state of one run_passes.
struct PassRun {
  const PassOptions& options;
  const ConstantEvaluator& evaluate;
  const Graph* main = nullptr;    ///< whose inputs are the feeds
  std::uint64_t large_bytes = 0;  ///< of results above max_folded_bytes so far
  std::set<std::pair<const Graph*, NodeId>> not_folded;  ///< tried in vain; not to be tried again
  RemovalLog* removed = nullptr;                         ///< null: nobody asks

  int unify_rounds = 0;  ///< of unify_shape_reads that were done

  bool is_random(const Node& node) const { return options.is_random && options.is_random(node); }
};

/// Whether `gone` may give way to `kept`: not where the model annotates both, differently.
inline bool annotations_agree(const Value& kept, const Value& gone) {
  return gone.quantization.empty() || kept.quantization.empty() ||
         kept.quantization == gone.quantization;
}
/// The annotation of a value that gives way goes with its readers.
inline void keep_annotation(Value& kept, const Value& gone) {
  if (kept.quantization.empty()) kept.quantization = gone.quantization;
}

/// Replaces nodes of constants by their results, and gives bodies the constants that they capture.
bool fold_constants(Graph& graph, PassRun& run);
/// Puts the branch of an If whose condition is a constant in its place.
bool inline_constant_if(Graph& graph, PassRun& run);
/// Lets bodies of Loops and Scans read what they only hand on from turn to turn where it is: outside. A weight is a constant
/// again then.
bool capture_loop_invariants(Graph& graph, PassRun& run);
/// Removes nodes that hand their input on: Identity, Dropout at inference, casts, reshapes and the like to what is there.
bool eliminate_identities(Graph& graph, PassRun& run);
/// Makes nodes that read dimensions from Shapes read those of one size from one value, and numbers that are known into
/// constants.
bool unify_shape_reads(Graph& graph, PassRun& run);
/// Makes one of equal constants, and of nodes that do the same to the same.
bool merge_common_subexpressions(Graph& graph, PassRun& run);
/// Removes nodes whose outputs nobody reads.
bool eliminate_dead_nodes(Graph& graph, PassRun& run);

}  // namespace backplane::core

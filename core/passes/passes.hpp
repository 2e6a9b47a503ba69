// Graph passes, by level.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/graph/verify.hpp"

namespace backplane::core {

enum class OptimizationLevel { None, Basic, Extended, All };

inline constexpr std::uint64_t kLargestFold = 512ull << 20;
inline constexpr std::uint64_t kLargestFolds = 4ull << 30;

/// Computes a node all of whose inputs are constants; nullopt when nobody can. One entry per output, null for
/// one that is left out. May throw what the kernel throws.
using ConstantEvaluator =
    std::function<std::optional<std::vector<ConstantPtr>>(const Graph& graph, const Node& node)>;

struct PassOptions {
  OptimizationLevel level = OptimizationLevel::All;
  std::set<std::string> disabled;  ///< names of passes, see pass_names()
  std::set<std::string> enabled;   ///< run below their level too
  /// At level Basic, folding stops where one result would be larger than this and larger than its inputs together.
  /// Above it, results of up to kLargestFold are folded too, kLargestFolds in all: models that write their weights as
  /// ConstantOfShape or Expand then have constants like any other, which providers pack and place once.
  std::uint64_t max_folded_bytes = 1u << 20;
  /// Names of graph inputs that are fed and whose equal symbols are checked to be equal sizes: where the graph reads
  /// dimensions from. Empty: nothing is known of feeds.
  std::vector<std::string> feeds;
  /// Symbols that inner values have because the file says so, see Model::unproven_symbols.
  std::set<std::string> unproven_symbols;
  /// Operators whose results differ from run to run are never folded or merged: true for those.
  std::function<bool(const Node& node)> is_random;
  bool verify =
      kVerifiesGraphs;  ///< the graph before the first pass and after each, see verify_graph
};

/// The pass that evaluates nodes: what it removes was computed, once.
inline constexpr const char* kFoldingPass = "fold_constants";

/// All passes in the order they run: "fold_constants", "inline_constant_if", "eliminate_identities",
/// "capture_loop_invariants", "unify_shape_reads" and "merge_common_subexpressions" (from level Extended on), "eliminate_dead_nodes".
///
/// unify_shape_reads needs to know the feeds, since it makes a graph read inputs that it did not read before: sessions
/// run it over a graph that is cut to what is fed and fetched. Where a node reads a dimension of any value by Shape, with
/// or without Gather or Slice, it gets the first feed that has this symbol, or the first value in the order in which nodes
/// run that a Shape reads; then what exporters compute of shapes in every layer is computed once.
std::vector<std::string> pass_names();

/// Runs the passes of the level until nothing changes any more, bodies included. Graph inputs, outputs and their
/// names stay; so do overridable initializers. Operators with bodies are never folded, and neither is a node whose
/// evaluation throws: it may never run, and when it does, the run says why it fails. Nodes that one node replaces leave
/// their origins with it; those that are folded or were no-ops leave them with nobody, and `removed`, if it is not null,
/// gets the pass that did it, bodies included.
/// Throws InvalidArgument for an unknown name in `disabled` or `enabled`, and for one that is in both; Internal for what
/// verify_graph finds, naming the pass.
void run_passes(Graph& graph, const PassOptions& options, const ConstantEvaluator& evaluate,
                RemovalLog* removed = nullptr);
/// Likewise; the model's own log is of this run alone.
inline void run_passes(Model& model, const PassOptions& options,
                       const ConstantEvaluator& evaluate) {
  model.removed.clear();
  run_passes(model.graph, options, evaluate, &model.removed);
}

}  // namespace backplane::core

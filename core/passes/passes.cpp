#include "core/passes/passes.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

struct Pass {
  const char* name;
  OptimizationLevel from;
  bool (*apply)(Graph& graph, PassRun& run);
};

// Their order: no-ops first, since folding one copies the weight that it hands on; then constants, since most no-ops
// and equal nodes show only behind them; reads of shapes before nodes are merged; dead nodes last, since the others make
// them.
constexpr Pass kPasses[] = {
    {"eliminate_identities", OptimizationLevel::Basic, eliminate_identities},
    {kFoldingPass, OptimizationLevel::Basic, fold_constants},
    {"inline_constant_if", OptimizationLevel::Basic, inline_constant_if},
    {"capture_loop_invariants", OptimizationLevel::Basic, capture_loop_invariants},
    {"unify_shape_reads", OptimizationLevel::Extended, unify_shape_reads},
    {"merge_common_subexpressions", OptimizationLevel::Extended, merge_common_subexpressions},
    {"eliminate_dead_nodes", OptimizationLevel::Basic, eliminate_dead_nodes},
};

/// Marks the original nodes that are in a graph and its bodies.
void mark_origins(const Graph& graph, std::vector<bool>& marks) {
  for (const NodeId id : graph.node_ids()) {
    for (const std::int32_t origin : graph.node(id).origins) {
      const auto index = static_cast<std::size_t>(origin);
      if (index >= marks.size()) marks.resize(index + 1);
      marks[index] = true;
    }
    for_each_body(graph.node(id), [&](const Graph& body) { mark_origins(body, marks); });
  }
}

/// Notes what passes remove of a graph and its bodies.
class RemovalWatch {
 public:
  RemovalWatch(const Graph& graph, RemovalLog* log) : graph_(graph), log_(log) {
    if (log_ != nullptr) mark_origins(graph_, there_);
  }
  void note(const char* pass) {
    if (log_ == nullptr) return;
    std::vector<bool> left(there_.size());
    mark_origins(graph_, left);
    for (std::size_t i = 0; i < there_.size(); ++i) {
      if (there_[i] && !left[i]) (*log_)[static_cast<std::int32_t>(i)] = pass;
    }
    there_ = std::move(left);
  }

 private:
  const Graph& graph_;
  RemovalLog* log_;
  std::vector<bool> there_;  ///< by index of the original node
};

void verify(const Graph& graph, const PassRun& run, const char* when, const char* pass = "") {
  if (!run.options.verify) return;
  GraphSurroundings surroundings;
  surroundings.is_body = run.main != &graph;
  verify_graph(graph, text(when, pass), surroundings);
}

/// One round over a graph and its bodies.
bool apply_passes(Graph& graph, const std::vector<const Pass*>& passes, PassRun& run) {
  bool changed = false;
  RemovalWatch watch(graph, run.removed);
  for (const Pass* pass : passes) {
    const bool changed_now = pass->apply(graph, run);
    verify(graph, run, "after the pass ", pass->name);
    if (!changed_now) continue;
    changed = true;
    watch.note(pass->name);
  }
  bool bodies_changed = false;
  for (const NodeId id : graph.node_ids()) {
    for_each_body(graph.node(id), [&](Graph& body) {
      bodies_changed = apply_passes(body, passes, run) || bodies_changed;
    });
  }
  if (bodies_changed) {
    graph.update_captures();
    verify(graph, run, "after passes over the graph's bodies");
  }
  return changed || bodies_changed;
}

void check_name(const std::string& name, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  std::string known;
  for (const std::string& pass : names) known += (known.empty() ? "" : ", ") + pass;
  invalid("unknown pass ", quoted(name), "; known: ", known, did_you_mean(name, names));
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

void run_passes(Graph& graph, const PassOptions& options, const ConstantEvaluator& evaluate,
                RemovalLog* removed) {
  const std::vector<std::string> names = pass_names();
  for (const std::set<std::string>* given : {&options.disabled, &options.enabled}) {
    for (const std::string& name : *given) check_name(name, names);
  }
  std::vector<const Pass*> passes;
  for (const Pass& pass : kPasses) {
    const bool disabled = options.disabled.contains(pass.name);
    const bool enabled = options.enabled.contains(pass.name);
    if (disabled && enabled) invalid("the pass ", quoted(pass.name), " is enabled and disabled");
    if (!disabled && (enabled || options.level >= pass.from)) passes.push_back(&pass);
  }
  PassRun run{options, evaluate, &graph, 0, {}, removed, 0};
  verify(graph, run, "before the passes");
  // Every change removes a node, a use or a capture, or is made a limited number of times, so this ends.
  while (apply_passes(graph, passes, run)) {
  }
}

}  // namespace backplane::core

#include <algorithm>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

bool is_fixed(const Value& value) { return value.constant != nullptr && !value.overridable; }

/// Bytes of a value, where its type says them.
std::optional<std::uint64_t> static_bytes(const Type& type) {
  if (!type.is_static()) return std::nullopt;
  std::uint64_t count = 1;
  for (const Dim& dim : *type.shape) {
    const auto size = static_cast<std::uint64_t>(dim.size);
    if (size != 0 && count > (std::uint64_t{1} << 62) / size) return std::uint64_t{1} << 62;
    count *= size;
  }
  return storage_bytes(type.element, count);
}

std::uint64_t bytes_of(const Constant& constant) { return constant.stored_bytes().size(); }

class Folding {
 public:
  Folding(Graph& graph, PassRun& run)
      : graph_(graph), run_(run), listed_(graph.value_count(), false) {
    for (const ValueId id : graph.initializers) listed_[id] = true;
  }

  bool run() {
    bool changed = false;
    for (const NodeId id : topological_order(graph_)) changed = fold(id) || changed;
    return changed;
  }

 private:
  bool is_candidate(const Node& node) const {
    // Integers that are made real only for an operator are what a provider's quantized kernels look for; what no
    // rewrite takes is folded after placement.
    if (node.op_type == "DequantizeLinear" && node.domain.empty()) return false;
    if (node.has_bodies() || run_.is_random(node) || run_.not_folded.contains({&graph_, node.id}))
      return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [this](ValueId input) {
      return input == kNone || is_fixed(graph_.value(input));
    });
  }

  /// Each input once: else a chain of nodes that join a value to itself would double it without end.
  std::uint64_t input_bytes(const Node& node) const {
    std::uint64_t bytes = 0;
    for (auto input = node.inputs.begin(); input != node.inputs.end(); ++input) {
      if (*input != kNone && std::find(node.inputs.begin(), input, *input) == input)
        bytes += bytes_of(*graph_.value(*input).constant);
    }
    return bytes;
  }

  /// Whether a result of this size may be kept.
  bool is_allowed(std::uint64_t bytes, std::uint64_t from_bytes) const {
    if (bytes <= run_.options.max_folded_bytes || bytes <= from_bytes) return true;
    if (run_.options.level < OptimizationLevel::Extended) return false;
    return bytes <= kLargestFold && run_.large_bytes + bytes <= kLargestFolds;
  }

  bool fold(NodeId id) {
    const Node& node = graph_.node(id);
    if (!is_candidate(node)) return false;
    const std::uint64_t from_bytes = input_bytes(node);
    for (const ValueId output : node.outputs) {
      const auto bytes = output == kNone ? std::nullopt : static_bytes(graph_.value(output).type);
      if (bytes && !is_allowed(*bytes, from_bytes)) return give_up(id);
    }
    std::optional<std::vector<ConstantPtr>> results;
    try {
      results = run_.evaluate(graph_, node);
    } catch (const Error&) {
      return give_up(id);
    }
    if (!results || !is_complete(node, *results)) return give_up(id);
    for (const ConstantPtr& result : *results) {
      if (result && !is_allowed(bytes_of(*result), from_bytes)) return give_up(id);
    }
    replace(id, *results);
    return true;
  }

  bool give_up(NodeId id) {
    run_.not_folded.emplace(&graph_, id);
    return false;
  }

  static bool is_complete(const Node& node, const std::vector<ConstantPtr>& results) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone && (i >= results.size() || !results[i])) return false;
    }
    return true;
  }

  void replace(NodeId id, const std::vector<ConstantPtr>& results) {
    const std::vector<ValueId> inputs = graph_.node(id).inputs;
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    graph_.remove_node(id);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      Value& value = graph_.value(outputs[i]);
      value.type = Type::tensor(results[i]->type(), results[i]->dims());
      value.constant = results[i];
      if (bytes_of(*results[i]) > run_.options.max_folded_bytes)
        run_.large_bytes += bytes_of(*results[i]);
      release(outputs[i]);
    }
    for (const ValueId input : inputs) {
      if (input != kNone) release(input);
    }
  }

  /// Lets go of an intermediate result that nobody reads any more, so that a chain is never in memory as a whole.
  void release(ValueId id) {
    Value& value = graph_.value(id);
    const bool listed = listed_.contains(id) && listed_[id];
    if (listed || !value.uses.empty() || value.is_output || value.is_input || !value.constant)
      return;
    if (bytes_of(*value.constant) > run_.options.max_folded_bytes) {
      run_.large_bytes -= std::min(run_.large_bytes, bytes_of(*value.constant));
    }
    value.constant.reset();
  }

  Graph& graph_;
  PassRun& run_;
  PerValue<bool> listed_;  // initializers of the model stay, read or not
};

/// Constants that bodies capture become constants of the bodies; the contents are shared.
bool hand_to_bodies(Graph& graph) {
  bool changed = false;
  for (const NodeId id : graph.node_ids()) {
    for (const ValueId captured : graph.node(id).captured) {
      const Value& value = graph.value(captured);
      if (!is_fixed(value)) continue;
      for_each_body(graph.node(id), [&](Graph& body) {
        const ValueId inner = body.find_value(value.name);
        if (inner == kNone || !body.value(inner).is_outer) return;
        body.value(inner).is_outer = false;
        body.value(inner).constant = value.constant;
        body.value(inner).type = value.type;
        changed = true;
      });
    }
  }
  if (changed) graph.update_captures();
  return changed;
}

}  // namespace

bool fold_constants(Graph& graph, PassRun& run) {
  const bool folded = run.evaluate && Folding(graph, run).run();
  return hand_to_bodies(graph) || folded;
}

}  // namespace backplane::core

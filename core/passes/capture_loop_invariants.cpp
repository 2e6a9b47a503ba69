// Loop: https://onnx.ai/onnx/operators/onnx__Loop.html
// Scan: https://onnx.ai/onnx/operators/onnx__Scan.html
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "core/passes/pass.hpp"

namespace backplane::core {
namespace {

/// Where what a node carries from turn to turn stands.
struct CarriedPlaces {
  std::size_t count;
  std::size_t
      input;  ///< of the first, in the node's inputs and the body's; the node's outputs begin with them
  std::size_t body_output;  ///< the same in the body's outputs
};

/// What a value of a body is another name of: exporters hand values on by way of Identity.
ValueId named_by(const Graph& body, ValueId id) {
  while (id != kNone && body.value(id).producer != kNone) {
    const Node& maker = body.node(body.value(id).producer);
    if (maker.op_type != "Identity" || !maker.domain.empty() || maker.is_ordered() ||
        maker.inputs.size() != 1)
      break;
    id = maker.inputs[0];
  }
  return id;
}

/// Whether the body hands on carried value `k` as it came, and may read the name of its first one instead.
bool is_invariant(const Graph& graph, const Node& node, const Graph& body,
                  const CarriedPlaces& places, std::size_t k) {
  const ValueId outer = node.inputs[places.input + k];
  const ValueId inner = body.inputs[places.input + k];
  const ValueId handed_on = body.outputs[places.body_output + k];
  if (outer == kNone || named_by(body, handed_on) != inner ||
      std::count(body.outputs.begin(), body.outputs.end(), inner) != (handed_on == inner ? 1 : 0))
    return false;
  const ValueId known = body.find_value(graph.value(outer).name);
  if (known != kNone && !body.value(known).is_outer) return false;  // the body means another value
  if (k >= node.outputs.size() || node.outputs[k] == kNone) return true;
  const Value& result = graph.value(node.outputs[k]);
  return !result.is_output && annotations_agree(graph.value(outer), result);
}

void capture(Graph& graph, Node& node, Graph& body, const CarriedPlaces& places, std::size_t k) {
  const auto at = [k](std::size_t first) { return static_cast<std::ptrdiff_t>(first + k); };
  const ValueId outer = node.inputs[places.input + k];
  const ValueId inner = body.inputs[places.input + k];
  const ValueId captured = body.value_named(graph.value(outer).name);
  body.value(captured).is_outer = true;
  body.value(captured).type = graph.value(outer).type;
  body.inputs.erase(body.inputs.begin() + at(places.input));
  const ValueId handed_on = body.outputs[places.body_output + k];
  body.outputs.erase(body.outputs.begin() + at(places.body_output));
  body.value(handed_on).is_output =
      std::count(body.outputs.begin(), body.outputs.end(), handed_on) > 0;
  body.value(inner).is_input = false;
  body.replace_uses(inner, captured, false);
  node.inputs.erase(node.inputs.begin() + at(places.input));
  if (k >= node.outputs.size()) return;
  if (node.outputs[k] != kNone) {
    keep_annotation(graph.value(outer), graph.value(node.outputs[k]));
    graph.replace_uses(node.outputs[k], outer, false);
  }
  node.outputs.erase(node.outputs.begin() + at(0));
}

/// Of a Loop: inputs are the trip count, the condition, then carried values; the body's are the iteration, the condition,
/// then these; the body's outputs begin with the condition.
std::optional<CarriedPlaces> places_of_loop(const Node& loop, const Graph& body) {
  if (loop.inputs.size() < 2 || body.inputs.size() != loop.inputs.size()) return std::nullopt;
  const CarriedPlaces places{loop.inputs.size() - 2, 2, 1};
  if (body.outputs.size() < places.count + places.body_output) return std::nullopt;
  return places;
}

/// Of a Scan: states, then what is scanned. Version 8 has batches, each with states of its own.
std::optional<CarriedPlaces> places_of_scan(const Node& scan, const Graph& body) {
  const auto attribute = scan.attributes.find("num_scan_inputs");
  if (scan.since_version < 9 || attribute == scan.attributes.end() ||
      attribute->second.ints.size() != 1 || body.inputs.size() != scan.inputs.size())
    return std::nullopt;
  const std::int64_t scanned = attribute->second.ints.front();
  const auto inputs = static_cast<std::int64_t>(scan.inputs.size());
  if (scanned < 1 || scanned > inputs) return std::nullopt;
  const CarriedPlaces places{static_cast<std::size_t>(inputs - scanned), 0, 0};
  if (body.outputs.size() < places.count) return std::nullopt;
  return places;
}

std::optional<CarriedPlaces> places_of(const Node& node, const Graph& body) {
  if (!node.domain.empty() || node.is_ordered()) return std::nullopt;
  if (node.op_type == "Loop") return places_of_loop(node, body);
  if (node.op_type == "Scan") return places_of_scan(node, body);
  return std::nullopt;
}

bool capture_invariants(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto attribute = node.attributes.find("body");
  if (attribute == node.attributes.end() || attribute->second.graphs.size() != 1) return false;
  const std::shared_ptr<Graph> body = attribute->second.graphs.front();
  const std::optional<CarriedPlaces> places = places_of(node, *body);
  if (!places) return false;
  Node changed = node;
  for (std::size_t k = places->count; k-- > 0;) {
    if (is_invariant(graph, changed, *body, *places, k)) capture(graph, changed, *body, *places, k);
  }
  if (changed.inputs.size() == node.inputs.size()) return false;
  graph.remove_node(id);
  changed.captured.clear();  // update_captures finds them anew
  graph.add_node(std::move(changed));
  return true;
}

}  // namespace

bool capture_loop_invariants(Graph& graph, PassRun&) {
  bool changed = false;
  for (const NodeId id : graph.node_ids()) changed = capture_invariants(graph, id) || changed;
  if (changed) graph.update_captures();
  return changed;
}

}  // namespace backplane::core

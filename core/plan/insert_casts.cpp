#include "core/plan/insert_casts.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "backplane/plugin_api/optional/widening.h"
#include "core/plan/kernel_handle.hpp"

namespace backplane::core {
namespace {

/// A node's inputs and outputs that are to be cast.
struct CastSides {
  std::vector<std::size_t> inputs, outputs;
};

class CastInserter {
 public:
  CastInserter(PlacedGraph& placed, const PlacementRequest& request, std::int64_t opset,
               InsertedCasts& inserted)
      : placed_(placed), graph_(*placed.graph), request_(request), inserted_(inserted) {
    // The first that has all types; a model may be older than it, or have operators of other domains alone.
    constexpr std::int64_t kLeastOpset = 13;
    const auto version = static_cast<int>(std::max(opset, kLeastOpset));
    const auto schema = request.schemas->registry().find("", "Cast", version);
    if (schema) cast_version_ = schema->since_version;
    for (const std::string& name : inserted.back) {
      const NodeId id = graph_.find_node(name);
      if (id == kNone) continue;
      const ValueId from = graph_.node(id).inputs[0];
      uncast_[graph_.node(id).outputs[0]] = {from, graph_.value(from).type.element};
    }
  }

  /// The reason, where the node got casts.
  std::optional<Reason> try_node(NodeId id, const std::vector<TypeCast>& casts) {
    const Node& node = graph_.node(id);
    const SchemaInfo* const schema = request_.schemas->find(node);
    if (cast_version_ == 0 || schema == nullptr || node.has_bodies()) return std::nullopt;
    for (const int device : devices_to_ask(id)) {
      for (const TypeCast& types : casts) {
        const std::optional<CastSides> sides = sides_of(node, *schema, types.from);
        if (!sides || kernels_in(device, node, *sides, types.to).empty()) continue;
        const std::string label = request_.devices->at(device).label();
        const std::string had(name(types.from)), now(name(types.to));
        cast(id, *sides, types);
        return Reason{label, "cast",
                      text(label, " does not take it in ", had, "; ", sides->inputs.size(),
                           " of its inputs are cast to ", now, " and ", sides->outputs.size(),
                           " of its outputs back, as the option casts allows")};
      }
    }
    return std::nullopt;
  }

  /// The same for a node of a 16-bit type that a kernel wants in float.
  std::optional<Reason> try_widening(NodeId id) {
    const Node& node = graph_.node(id);
    const SchemaInfo* const schema = request_.schemas->find(node);
    if (cast_version_ == 0 || schema == nullptr || node.has_bodies()) return std::nullopt;
    for (const DataType half : {DataType::Float16, DataType::BFloat16}) {
      const std::optional<CastSides> sides = sides_of(node, *schema, half);
      if (!sides) continue;
      std::vector<int> devices = devices_to_ask(id);
      const int own = placed_.placement[id].device;
      if (own >= 0) devices.push_back(own);
      for (const int device : devices) {
        const std::vector<RegisteredKernel> kernels =
            kernels_in(device, node, *sides, DataType::Float);
        if (kernels.empty()) continue;
        const bool asks = (kernels.front().def->flags & BP_KERNEL_WIDENS_HALF) != 0;
        if (!asks && (device != own || !passes_on(node, *sides))) continue;
        const std::string label = request_.devices->at(device).label();
        const std::string had(name(half));
        if (asks) keep_weights(node, *sides, kernels.front());
        cast(id, *sides, {half, DataType::Float});
        return Reason{label, "widened",
                      text(label, " computes it in float, as ",
                           asks ? "its kernel asks" : "what it moves is float", ": ",
                           sides->inputs.size(), " of its inputs and ", sides->outputs.size(),
                           " of its outputs are ", had, "; the option widening switches this off")};
      }
    }
    return std::nullopt;
  }

 private:
  /// Whether a node that only moves elements, as far as is known, has some of them in float, and nobody outside wants its
  /// results as they were.
  bool passes_on(const Node& node, const CastSides& sides) const {
    const auto is_float = [&](std::size_t i) { return uncast_.contains(node.inputs[i]); };
    const auto is_result = [&](std::size_t i) {
      return std::find(graph_.outputs.begin(), graph_.outputs.end(), node.outputs[i]) !=
             graph_.outputs.end();
    };
    return std::any_of(sides.inputs.begin(), sides.inputs.end(), is_float) &&
           std::none_of(sides.outputs.begin(), sides.outputs.end(), is_result);
  }

  /// Notes whose casts of constants are to wait for the kernel's provider.
  void keep_weights(const Node& node, const CastSides& sides, const RegisteredKernel& kernel) {
    if ((kernel.def->flags & BP_KERNEL_HALF_WEIGHTS) == 0) return;
    const bp_kernel_def& def = *kernel.def;
    for (const std::size_t i : sides.inputs) {
      const bool is_weight =
          KernelHandle::role(def.input_roles, def.input_role_count, i) == BP_INPUT_WEIGHT;
      if (is_weight && placed_.is_constant(node.inputs[i]))
        inserted_.weights.insert(name_of_cast(node.name, i));
    }
  }

  static std::string name_of_cast(const std::string& node, std::size_t input) {
    return text(node, "/cast_input_", input);
  }

  /// Devices before that of the node that said no because of a type.
  std::vector<int> devices_to_ask(NodeId id) const {
    const NodePlacement& placement = placed_.placement[id];
    std::vector<int> devices;
    for (int device = 0; device < static_cast<int>(request_.devices->devices.size()); ++device) {
      if (device == placement.device) break;
      const std::string& label = request_.devices->at(device).label();
      const auto says_type = [&](const Reason& reason) {
        return reason.provider == label && reason.code == "type";
      };
      if (std::any_of(placement.reasons.begin(), placement.reasons.end(), says_type))
        devices.push_back(device);
    }
    return devices;
  }

  bool has_type(ValueId id, DataType type) const {
    return id != kNone && graph_.value(id).type.is_tensor() &&
           graph_.value(id).type.element == type;
  }

  /// A sequence, optional or map of elements of the type: no cast reaches them, and what lies within must agree with what
  /// the node takes out or puts in.
  bool holds_type(ValueId id, DataType type) const {
    if (id == kNone) return false;
    const Type* at = &graph_.value(id).type;
    if (at->inner == nullptr) return false;
    while (at->inner != nullptr) at = at->inner.get();
    return at->element == type;
  }

  /// nullopt: there is nothing to cast, or something that cannot be.
  std::optional<CastSides> sides_of(const Node& node, const SchemaInfo& schema,
                                    DataType type) const {
    const auto holds = [&](ValueId id) { return holds_type(id, type); };
    if (std::any_of(node.inputs.begin(), node.inputs.end(), holds) ||
        std::any_of(node.outputs.begin(), node.outputs.end(), holds))
      return std::nullopt;
    CastSides sides;
    std::set<std::string> params;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!has_type(node.inputs[i], type)) continue;
      const FormalParam* const formal = schema.input(i);
      if (formal == nullptr || !schema.type_params.contains(formal->type)) return std::nullopt;
      params.insert(formal->type);
      sides.inputs.push_back(i);
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (!has_type(node.outputs[i], type)) continue;
      const FormalParam* const formal = schema.output(i);
      if (formal == nullptr || !params.contains(formal->type)) return std::nullopt;
      sides.outputs.push_back(i);
    }
    if (sides.inputs.empty()) return std::nullopt;
    return sides;
  }

  /// The device's kernels for the node alone, in the other type.
  std::vector<RegisteredKernel> kernels_in(int device, const Node& node, const CastSides& sides,
                                           DataType type) const {
    Graph trial;
    Node alone;
    alone.name = node.name;
    alone.op_type = node.op_type;
    alone.domain = node.domain;
    alone.since_version = node.since_version;
    alone.attributes = node.attributes;
    const auto copy = [&](const std::vector<ValueId>& values,
                          const std::vector<std::size_t>& changed, bool is_input) {
      std::vector<ValueId> copies;
      for (std::size_t i = 0; i < values.size(); ++i) {
        copies.push_back(kNone);
        if (values[i] == kNone) continue;
        const Value& value = graph_.value(values[i]);
        const bool changes = std::find(changed.begin(), changed.end(), i) != changed.end();
        const bool known = trial.find_value(value.name) != kNone;
        copies.back() = trial.value_named(value.name);
        Value& made = trial.value(copies.back());
        made.type = value.type;
        if (changes) made.type.element = type;
        if (!is_input) {
          trial.add_output(copies.back());
        } else if (value.constant != nullptr && !changes) {
          made.constant = value.constant;
        } else if (!known) {
          trial.add_input(copies.back());
        }
      }
      return copies;
    };
    alone.inputs = copy(node.inputs, sides.inputs, true);
    alone.outputs = copy(node.outputs, sides.outputs, false);
    const NodeId id = trial.add_node(std::move(alone));
    const GraphView view(trial, {id});
    std::vector<Reason> reasons;
    return matching_kernels(request_.devices->entry(device), *request_.schemas, trial,
                            trial.node(id), view.node(id), reasons);
  }

  /// A Cast node without inputs and outputs; `stem` begins its name.
  Node cast_node(const std::string& stem, DataType to) const {
    Node cast;
    cast.name = stem;
    cast.op_type = "Cast";
    cast.since_version = cast_version_;
    cast.attributes["to"].ints = {static_cast<std::int64_t>(to)};
    return cast;
  }

  void cast(NodeId id, const CastSides& sides, const TypeCast& types) {
    const std::string node = graph_.node(id).name;
    for (const std::size_t i : sides.inputs) {
      const ValueId from = graph_.node(id).inputs[i];
      graph_.set_input(id, i, cast_of(from, name_of_cast(node, i), types));
    }
    for (const std::size_t i : sides.outputs) {
      const ValueId to = graph_.node(id).outputs[i];
      const ValueId made = graph_.new_value(graph_.value(to).name + "/uncast");
      graph_.value(made).type = graph_.value(to).type;
      graph_.value(made).type.element = types.to;
      graph_.set_output(id, i, made);
      Node back = cast_node(text(node, "/cast_output_", i), types.from);
      back.inputs = {made};
      back.outputs = {to};
      graph_.add_node(std::move(back));
      uncast_[to] = {made, types.to};
      inserted_.back.insert(text(node, "/cast_output_", i));
    }
  }

  ValueId cast_of(ValueId from, const std::string& stem, const TypeCast& types) {
    const auto known = uncast_.find(from);
    if (known != uncast_.end() && known->second.second == types.to) return known->second.first;
    const auto [done, is_new] = cast_.try_emplace({from, types.to}, kNone);
    if (!is_new) return done->second;
    const ValueId made = graph_.new_value(graph_.value(from).name + "/cast");
    graph_.value(made).type = graph_.value(from).type;
    graph_.value(made).type.element = types.to;
    Node cast = cast_node(stem, types.to);
    cast.inputs = {from};
    cast.outputs = {made};
    graph_.add_node(std::move(cast));
    return done->second = made;
  }

  PlacedGraph& placed_;
  Graph& graph_;
  const PlacementRequest& request_;
  InsertedCasts& inserted_;
  int cast_version_ = 0;
  std::map<std::pair<ValueId, DataType>, ValueId> cast_;    ///< casts of values that there are
  std::map<ValueId, std::pair<ValueId, DataType>> uncast_;  ///< what values are cast from
};

}  // namespace

std::map<std::string, Reason> insert_casts(PlacedGraph& placed, const std::vector<NodeId>& order,
                                           const PlacementRequest& request, const CastRules& rules,
                                           std::int64_t opset, InsertedCasts& inserted) {
  std::map<std::string, Reason> reasons;
  CastInserter inserter(placed, request, opset, inserted);
  for (const NodeId id : order) {
    std::optional<Reason> reason = inserter.try_node(id, rules.casts);
    if (!reason && rules.widens) reason = inserter.try_widening(id);
    if (reason) reasons.emplace(placed.graph->node(id).name, std::move(*reason));
  }
  return reasons;
}

}  // namespace backplane::core

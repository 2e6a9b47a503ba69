// What a session says of itself, as JSON.
#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/runtime/session.hpp"
#include "core/runtime/session_report.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Shape& shape) {
  Json dims = Json::array();
  for (const Dim& dim : shape) {
    if (dim.known()) {
      dims.push_back(dim.size);
    } else {
      dims.push_back(dim.symbol.empty() ? "?" : dim.symbol);
    }
  }
  return dims;
}

Json describe_values(const Graph& graph, const std::vector<ValueId>& values) {
  Json list = Json::array();
  for (const ValueId id : values) {
    const Value& value = graph.value(id);
    Json row = {{"name", value.name}, {"type", value.type.to_string()}};
    row["shape"] = value.type.shape ? json_of(*value.type.shape) : Json();
    list.push_back(std::move(row));
  }
  return list;
}

constexpr const char* kWhilePlanning = "evaluated while planning";

/// Where an original node ended up.
struct Fate {
  std::string provider;  ///< "" when it is gone
  std::string kernel;
  std::string fused_into;
  /// Of a node that runs as its body: the kernels that it became.
  std::vector<std::string> parts = {};
};

/// Finds the fate of every node of the original model, bodies included.
class Fates {
 public:
  Fates(const Model& model, const std::shared_ptr<Generation>& generation, const Segment* segment,
        const DeviceSet& devices)
      : model_(model), devices_(devices) {
    fates_.resize(model.original.size());
    for (Fate& fate : fates_) fate.kernel = "not needed for the outputs";
    add_removed(model.removed);
    add(generation, segment);
    settle_taken_bodies(model.graph);
  }

  std::vector<Fate>& all() { return fates_; }

  /// The program that a node was placed in, and what it is called there; null for one that passes removed.
  std::pair<const Program*, std::string> place_of(const std::string& qualified) const {
    const auto found = places_.find(qualified);
    return found != places_.end() ? found->second
                                  : std::pair<const Program*, std::string>(nullptr, "");
  }

  /// Copies of all plans, those in bodies under qualified names.
  const std::vector<CopyRecord>& copies() const { return copies_; }

 private:
  /// What is folded is evaluated, once and on the host; what other passes remove is nowhere. Nodes that are there all the
  /// same, since parts of them were left, get their fates after this.
  void add_removed(const RemovalLog& removed) {
    for (const auto& [origin, pass] : removed) {
      const bool is_folded = pass == kFoldingPass;
      fates_[static_cast<std::size_t>(origin)] = {
          is_folded ? "host" : "", (is_folded ? "folded by " : "removed by ") + pass, ""};
    }
  }

  void add(const std::shared_ptr<Generation>& generation, const Segment* segment) {
    generations_.push_back(generation);
    const Program& program = *generation->program;
    const std::string& scope = program.context().scope;
    for (const auto& [name, placement] : program.first_placement())
      places_[scope + name] = {&program, name};
    add_removed(program.removed());
    for (const std::int32_t origin : program.folded_origins())
      fates_[static_cast<std::size_t>(origin)] = {"host", "folded", ""};
    for (const std::int32_t origin : program.idle_origins())
      fates_[static_cast<std::size_t>(origin)] = {"host", "not needed after fusion", ""};
    std::map<NodeId, std::string> labels;
    std::map<NodeId, bool> evaluated;
    if (segment != nullptr) {
      for (const Step& step : segment->steps) {
        if (step.node != kNone) labels[step.node] = step.label;
      }
      for (const DroppedNode& dropped : segment->dropped)
        labels[dropped.node] = dropped.name + " (a view: nothing to compute)";
      for (const NodeId id : segment->evaluated) evaluated[id] = true;
      for (CopyRecord copy : segment->copies) {
        copy.value = scope + copy.value;
        copies_.push_back(std::move(copy));
      }
    }
    for (const NodeId id : program.order()) {
      const bool on_host = segment != nullptr ? evaluated.contains(id) : program.is_host_node(id);
      settle(program, id, on_host, labels[id]);
    }
    for (const NodeId id : program.order()) {
      if (program.node(id).control == nullptr) continue;
      for (const ControlBody& body : program.node(id).control->bodies) {
        const auto& executable = static_cast<const Executable&>(*body.body);
        const Executable::Last last = executable.last();
        segments_.push_back(last.segment);
        add(last.generation, last.segment.get());
      }
    }
  }

  void settle(const Program& program, NodeId id, bool on_host, const std::string& label) {
    const Node& node = program.graph().node(id);
    const ProgramNode& placed = program.node(id);
    Fate fate;
    if (on_host) {
      fate = {"host", kWhilePlanning, ""};
    } else if (placed.control != nullptr) {
      fate = {"host", label.empty() ? node.op_type + ", run by the core" : label, ""};
    } else if (placed.device >= 0) {
      fate.provider = devices_.at(placed.device).label();
      fate.kernel = !label.empty() || !placed.kernel ? label : placed.kernel.def().name;
    }
    for (const std::int32_t origin : node.origins) {
      Fate own = fate;
      const std::string name = program.context().scope + node.name;
      const std::string& original = model_.original[static_cast<std::size_t>(origin)].name;
      if (name != original) own.fused_into = name;
      if (places_.contains(original)) {
        fates_[static_cast<std::size_t>(origin)] = std::move(own);
      } else {
        join(fates_[static_cast<std::size_t>(origin)], std::move(own));
      }
    }
  }

  static bool is_control_flow(const Fate& fate) {
    return fate.provider == "host" && fate.kernel != kWhilePlanning;
  }

  /// The fate of a node whose body took its place is that of all its nodes which do something in a run; where the core
  /// runs If, Loop or Scan among them, it is theirs, and nodes inside have fates of their own.
  static void join(Fate& whole, Fate part) {
    if (is_control_flow(whole)) return;
    if (is_control_flow(part)) {
      whole = std::move(part);
      return;
    }
    const bool is_computed =
        part.provider != "host" && part.kernel.find("(a view") == std::string::npos;
    if (!is_computed) {
      if (whole.parts.empty()) whole = std::move(part);
      return;
    }
    constexpr std::size_t kMostNamed = 4;
    std::vector<std::string> parts = std::move(whole.parts);
    if (std::find(parts.begin(), parts.end(), part.kernel) == parts.end())
      parts.push_back(part.kernel);
    if (!whole.parts.empty()) {
      const bool is_known = whole.provider.find(part.provider) != std::string::npos;
      part.provider = is_known ? whole.provider : whole.provider + ", " + part.provider;
    }
    if (parts.size() > 1) {
      part.fused_into.clear();
      part.kernel = "its body: ";
      for (std::size_t i = 0; i < std::min(parts.size(), kMostNamed); ++i)
        part.kernel += (i > 0 ? ", " : "") + parts[i];
      if (parts.size() > kMostNamed)
        part.kernel += text(" and ", parts.size() - kMostNamed, " more");
    }
    whole = std::move(part);
    whole.parts = std::move(parts);
  }

  /// Bodies of nodes that a provider took whole are where the node is.
  void settle_taken_bodies(const Graph& graph) {
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      if (!node.has_bodies() || node.origins.size() != 1) continue;
      Fate fate = fates_[static_cast<std::size_t>(node.origins.front())];
      if (fate.provider.empty() || fate.provider == "host") continue;
      if (fate.fused_into.empty())
        fate.fused_into = model_.original[static_cast<std::size_t>(node.origins.front())].name;
      settle_whole(node, fate);
    }
  }

  void settle_whole(const Node& node, const Fate& fate) {
    for_each_body(node, [&](const Graph& body) {
      for (const NodeId id : body.node_ids()) {
        const Node& inner = body.node(id);
        for (const std::int32_t origin : inner.origins)
          fates_[static_cast<std::size_t>(origin)] = fate;
        settle_whole(inner, fate);
      }
    });
  }

  const Model& model_;
  const DeviceSet& devices_;
  std::vector<Fate> fates_;
  std::map<std::string, std::pair<const Program*, std::string>> places_;
  std::vector<CopyRecord> copies_;
  std::vector<std::shared_ptr<Generation>> generations_;  ///< that the places are in
  std::vector<std::shared_ptr<const Segment>> segments_;
};

Json reasons_of(const Fates& fates, const std::string& node) {
  Json reasons = Json::array();
  const auto [program, name] = fates.place_of(node);
  if (program == nullptr) return reasons;
  const NodePlacement& placement = program->first_placement().at(name);
  for (const Reason& reason : placement.reasons)
    reasons.push_back(
        {{"provider", reason.provider}, {"code", reason.code}, {"text", reason.text}});
  const auto note = program->placed().notes.find(name);
  if (note != program->placed().notes.end() && placement.device >= 0) {
    reasons.push_back({{"provider", program->context().devices->at(placement.device).label()},
                       {"code", "note"},
                       {"text", note->second}});
  }
  return reasons;
}

/// Runs of nodes on one provider, in the order of the program.
Json subgraphs_of(const Model& model, const Program& program, std::vector<Fate>& fates) {
  Json groups = Json::array();
  for (const NodeId id : program.order()) {
    for (const std::int32_t origin : program.graph().node(id).origins) {
      const Fate& fate = fates[static_cast<std::size_t>(origin)];
      if (fate.provider.empty() || fate.provider == "host") continue;
      if (groups.empty() || groups.back()["provider"] != fate.provider)
        groups.push_back({{"provider", fate.provider}, {"nodes", Json::array()}});
      groups.back()["nodes"].push_back(model.original[static_cast<std::size_t>(origin)].name);
    }
  }
  return groups;
}

Json arenas_of(const std::vector<std::uint64_t>& bytes, const DeviceSet& devices) {
  Json arenas = Json::object();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    std::string name = "host";
    if (i >= devices.space_count())
      name = devices.at(static_cast<int>(i - devices.space_count())).label() + " pinned";
    else if (i > 0)
      name = devices.at(static_cast<int>(i) - 1).label();
    arenas[name] = bytes[i];
  }
  return arenas;
}

Json copies_of(const Fates& fates) {
  Json copies = Json::array();
  for (const CopyRecord& copy : fates.copies()) {
    copies.push_back({{"value", copy.value},
                      {"from", copy.from},
                      {"to", copy.to},
                      {"bytes", copy.bytes},
                      {"cause", copy.cause},
                      {"route", copy.route},
                      {"value_bytes", copy.value_bytes},
                      {"pieces", copy.pieces}});
  }
  return copies;
}

/// The model's nodes that passes left as they were, by original node.
std::map<std::int32_t, const Node*> nodes_left(const Graph& graph) {
  std::map<std::int32_t, const Node*> left;
  for (const NodeId id : graph.node_ids()) {
    if (graph.node(id).origins.size() == 1) left[graph.node(id).origins.front()] = &graph.node(id);
  }
  return left;
}

Json json_names(const Graph& graph, const std::vector<ValueId>& values) {
  Json names = Json::array();
  for (const ValueId id : values) names.push_back(id == kNone ? "" : graph.value(id).name);
  return names;
}

Json nodes_of(const Model& model, Fates& fates) {
  Json nodes = Json::array();
  const std::map<std::int32_t, const Node*> left = nodes_left(model.graph);
  for (std::size_t i = 0; i < model.original.size(); ++i) {
    const OriginalNode& original = model.original[i];
    const Fate& fate = fates.all()[i];
    Json row = {{"name", original.name}, {"op", original.op_type}, {"domain", original.domain}};
    row["provider"] = fate.provider.empty() ? Json() : Json(fate.provider);
    row["kernel"] = fate.kernel;
    row["fused_into"] = fate.fused_into.empty() ? Json() : Json(fate.fused_into);
    row["reasons"] = reasons_of(fates, original.name);
    if (const auto node = left.find(static_cast<std::int32_t>(i)); node != left.end()) {
      row["inputs"] = json_names(model.graph, node->second->inputs);
      row["outputs"] = json_names(model.graph, node->second->outputs);
    }
    nodes.push_back(std::move(row));
  }
  return nodes;
}

/// Each order that the nodes could run in, with the most bytes of inner values that live at one time: by the sizes of
/// the plan where there is one, else by the types. The memory of feeds and fetches is the caller's.
Json orders_of(const Program& program, const Segment* segment) {
  const Graph& graph = program.graph();
  ValueBytes bytes = estimated_bytes(graph, program.order());
  for (const ValueId id : graph.value_ids()) {
    if (segment == nullptr || bytes[id] == 0) continue;
    const ValueState& state = *segment->values[id];
    if (state.kind == ValueState::Kind::Tensor)
      bytes[id] = state.known != nullptr ? 0 : state.bytes;
  }
  const bool is_default = program.context().execution_order == ExecutionOrder::Default;
  const std::vector<NodeId> standard = topological_order(graph);
  const std::vector<NodeId> frugal = is_default ? priority_order(graph, bytes) : program.order();
  Json orders = {{"used", is_default ? "default" : "priority"}};
  const auto add = [&](const char* name, const std::vector<NodeId>& order) {
    Json names = Json::array();
    for (const NodeId id : order) names.push_back(graph.node(id).name);
    orders[name] = {{"peak_bytes", peak_bytes(graph, order, bytes)}, {"order", std::move(names)}};
  };
  add("default", standard);
  add("priority", frugal);
  return orders;
}

/// The model's quantization annotations, by value.
Json quantization_of(const Graph& graph) {
  Json annotations = Json::object();
  for (const Value& value : graph.values()) {
    for (const auto& [parameter, tensor] : value.quantization)
      annotations[value.name][parameter] = tensor;
  }
  return annotations;
}

}  // namespace

/// On how devices were chosen: the session's, and those of paths that differ from it.
std::vector<std::string> Session::remarks_on_devices() const {
  std::vector<std::string> remarks = devices_.remarks;
  for (const auto& [name, path] : paths_) {
    for (const std::string& remark : path->devices.remarks) {
      const auto& known = devices_.remarks;
      if (std::find(known.begin(), known.end(), remark) == known.end())
        remarks.push_back(text("path '", name, "': ", remark));
    }
  }
  return remarks;
}

std::string Session::explain() {
  const auto [generation, segment] = default_->last();
  const Program& program = *generation->program;
  Fates fates(model_, generation, segment.get(), devices_);

  Json json;
  json["ir_version"] = model_.ir_version;
  json["opsets"] = Json::object();
  for (const auto& [domain, version] : model_.opsets) json["opsets"][domain] = version;
  json["producer"] = {{"name", model_.producer_name}, {"version", model_.producer_version}};
  json["model"] = {{"domain", model_.domain},
                   {"version", model_.model_version},
                   {"description", model_.doc},
                   {"graph", model_.graph.name},
                   {"graph_description", model_.graph.doc}};
  json["metadata"] = Json::object();
  for (const auto& [key, value] : model_.metadata) json["metadata"][key] = value;
  json["graph_inputs"] = Json::array();
  for (const ValueId id : model_.graph.inputs)
    json["graph_inputs"].push_back(model_.graph.value(id).name);
  json["inputs"] = describe_values(model_.graph, inputs_);
  json["outputs"] = describe_values(model_.graph, outputs_);
  json["overridable_initializers"] = describe_values(model_.graph, overridable_);
  json["quantization"] = quantization_of(original_);
  json["nodes"] = nodes_of(model_, fates);
  json["subgraphs"] = subgraphs_of(model_, program, fates.all());
  json["copies"] = copies_of(fates);
  json["order"] = Json::array();
  for (const NodeId id : program.order()) json["order"].push_back(program.graph().node(id).name);
  json["orders"] = orders_of(program, segment.get());
  json["arena_bytes"] = arenas_of(default_->arena_bytes(), devices_);
  json["planned"] = segment != nullptr;
  if (segment != nullptr) json["capture"] = capture_json(program, *segment);
  json["remarks"] = remarks_on_devices();
  for (const std::string& remark : program.placed().remarks) json["remarks"].push_back(remark);
  report_options(*this, json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Session::statistics() {
  const auto [generation, segment] = default_->last();
  Fates fates(model_, generation, segment.get(), devices_);
  Json json;
  json["load_ms"] = load_ms_;
  json["threads"] = threads_.max_threads;
  json["precision"] = options_.precision;
  json["plan_ms"] = default_->plan_ms();
  json["plans"] = generation->plan_count.load();
  json["programs"] = executables().size();
  json["arena_bytes"] = arenas_of(default_->arena_bytes(), devices_);
  json["device_allocations"] = device_allocation_count();
  json["nodes_on"] = Json::object();
  for (const Fate& fate : fates.all()) {
    if (fate.provider.empty() || fate.provider == "host") continue;
    json["nodes_on"][fate.provider] = json["nodes_on"].value(fate.provider, 0) + 1;
  }
  const std::size_t views = segment != nullptr ? segment->views.size() : 0;
  json["copies"] = segment != nullptr ? segment->copies.size() - views : 0;
  json["views"] = views;
  report_life(*this, *generation->program, json);
  json["files"] = Json::array();
  for (const SessionFile& file : files())
    json["files"].push_back({{"what", file.what}, {"path", file.path.string()}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Session::trace() {
  if (!options_.profile) invalid("the session collects no spans; set the option 'profile' to true");
  return trace_.take();
}

}  // namespace backplane::core

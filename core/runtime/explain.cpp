// What a session says of itself, as JSON.
#include <nlohmann/json.hpp>

#include "core/runtime/session.hpp"

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

/// Where an original node ended up.
struct Fate {
  std::string provider;  ///< "" when it is gone
  std::string kernel;
  std::string fused_into;
};

/// Finds the fate of every node of the original model.
class Fates {
 public:
  Fates(const Model& model, const Program& program, const Segment* segment,
        const DeviceSet& devices)
      : program_(program), devices_(devices) {
    fates_.resize(model.original.size());
    for (Fate& fate : fates_) fate.kernel = "removed by optimization";
    for (const std::int32_t origin : program.folded_origins())
      fates_[static_cast<std::size_t>(origin)] = {"host", "folded", ""};
    std::map<NodeId, std::string> labels;
    if (segment != nullptr) {
      for (const Step& step : segment->steps) {
        if (step.kind == StepKind::Compute) labels[step.node] = step.label;
      }
      for (const auto& [id, kernel] : segment->dropped)
        labels[id] = kernel + " (a view: nothing to compute)";
    }
    std::map<NodeId, bool> evaluated;
    if (segment != nullptr) {
      for (const NodeId id : segment->evaluated) evaluated[id] = true;
    }
    for (const NodeId id : program.order()) {
      const bool on_host = segment != nullptr ? evaluated.contains(id) : program.is_host_node(id);
      settle(model, id, on_host, labels[id]);
    }
  }

  std::vector<Fate>& all() { return fates_; }

 private:
  void settle(const Model& model, NodeId id, bool on_host, const std::string& label) {
    const Node& node = program_.graph().node(id);
    const ProgramNode& placed = program_.node(id);
    Fate fate;
    if (on_host) {
      fate = {"host", "evaluated while planning", ""};
    } else if (placed.device >= 0) {
      fate.provider = devices_.at(placed.device).label();
      fate.kernel = !label.empty() || !placed.kernel ? label : placed.kernel.def().name;
    }
    for (const std::int32_t origin : node.origins) {
      Fate own = fate;
      if (node.name != model.original[static_cast<std::size_t>(origin)].name)
        own.fused_into = node.name;
      fates_[static_cast<std::size_t>(origin)] = std::move(own);
    }
  }

  const Program& program_;
  const DeviceSet& devices_;
  std::vector<Fate> fates_;
};

Json reasons_of(const Program& program, const std::string& node) {
  Json reasons = Json::array();
  const auto placement = program.first_placement().find(node);
  if (placement == program.first_placement().end()) return reasons;
  for (const Reason& reason : placement->second.reasons)
    reasons.push_back(
        {{"provider", reason.provider}, {"code", reason.code}, {"text", reason.text}});
  const auto note = program.placed().notes.find(node);
  if (note != program.placed().notes.end() && placement->second.device >= 0) {
    reasons.push_back(
        {{"provider", program.context().devices->at(placement->second.device).label()},
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

Json copies_of(const Segment* segment) {
  Json copies = Json::array();
  if (segment == nullptr) return copies;
  for (const CopyRecord& copy : segment->copies) {
    copies.push_back({{"value", copy.value},
                      {"from", copy.from},
                      {"to", copy.to},
                      {"bytes", copy.bytes},
                      {"cause", copy.cause}});
  }
  return copies;
}

/// The model's nodes that passes left as they were, by original node.
std::map<std::int32_t, const Node*> nodes_left(const Graph& graph) {
  std::map<std::int32_t, const Node*> left;
  for (std::size_t i = 0; i < graph.node_limit(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (graph.has_node(id) && graph.node(id).origins.size() == 1)
      left[graph.node(id).origins.front()] = &graph.node(id);
  }
  return left;
}

Json names_of(const Graph& graph, const std::vector<ValueId>& values) {
  Json names = Json::array();
  for (const ValueId id : values) names.push_back(id == kNone ? "" : graph.value(id).name);
  return names;
}

Json nodes_of(const Model& model, const Program& program, std::vector<Fate>& fates) {
  Json nodes = Json::array();
  const std::map<std::int32_t, const Node*> left = nodes_left(model.graph);
  for (std::size_t i = 0; i < model.original.size(); ++i) {
    const OriginalNode& original = model.original[i];
    const Fate& fate = fates[i];
    Json row = {{"name", original.name}, {"op", original.op_type}, {"domain", original.domain}};
    row["provider"] = fate.provider.empty() ? Json() : Json(fate.provider);
    row["kernel"] = fate.kernel;
    row["fused_into"] = fate.fused_into.empty() ? Json() : Json(fate.fused_into);
    row["reasons"] = reasons_of(program, original.name);
    if (const auto node = left.find(static_cast<std::int32_t>(i)); node != left.end()) {
      row["inputs"] = names_of(model.graph, node->second->inputs);
      row["outputs"] = names_of(model.graph, node->second->outputs);
    }
    nodes.push_back(std::move(row));
  }
  return nodes;
}

}  // namespace

std::string Session::explain() {
  const std::shared_ptr<Generation> generation = default_->generation();
  const Program& program = *generation->program;
  const std::shared_ptr<const Segment> segment = default_->last_segment();
  Fates fates(model_, program, segment.get(), devices_);

  Json json;
  json["ir_version"] = model_.ir_version;
  json["opsets"] = Json::object();
  for (const auto& [domain, version] : model_.opsets) json["opsets"][domain] = version;
  json["producer"] = {{"name", model_.producer_name}, {"version", model_.producer_version}};
  json["metadata"] = Json::object();
  for (const auto& [key, value] : model_.metadata) json["metadata"][key] = value;
  json["graph_inputs"] = Json::array();
  for (const ValueId id : model_.graph.inputs)
    json["graph_inputs"].push_back(model_.graph.value(id).name);
  json["inputs"] = describe_values(model_.graph, inputs_);
  json["outputs"] = describe_values(model_.graph, outputs_);
  json["overridable_initializers"] = describe_values(model_.graph, overridable_);
  json["nodes"] = nodes_of(model_, program, fates.all());
  json["subgraphs"] = subgraphs_of(model_, program, fates.all());
  json["copies"] = copies_of(segment.get());
  json["order"] = Json::array();
  for (const NodeId id : program.order()) json["order"].push_back(program.graph().node(id).name);
  json["arena_bytes"] = arenas_of(default_->arena_bytes(), devices_);
  json["planned"] = segment != nullptr;
  json["remarks"] = program.placed().remarks;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Session::statistics() {
  const std::shared_ptr<Generation> generation = default_->generation();
  const std::shared_ptr<const Segment> segment = default_->last_segment();
  Fates fates(model_, *generation->program, segment.get(), devices_);
  Json json;
  json["load_ms"] = load_ms_;
  json["threads"] = threads_.max_threads;
  json["precision"] = options_.precision;
  json["plan_ms"] = default_->plan_ms();
  json["plans"] = generation->plan_count.load();
  json["arena_bytes"] = arenas_of(default_->arena_bytes(), devices_);
  json["device_allocations"] = device_allocation_count();
  json["nodes_on"] = Json::object();
  for (const Fate& fate : fates.all()) {
    if (fate.provider.empty() || fate.provider == "host") continue;
    json["nodes_on"][fate.provider] = json["nodes_on"].value(fate.provider, 0) + 1;
  }
  json["copies"] = segment != nullptr ? segment->copies.size() : 0;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Session::trace() {
  if (!options_.profile) invalid("the session collects no spans; set the option 'profile' to true");
  std::vector<Span> spans;
  {
    const std::lock_guard lock(spans_mutex_);
    spans.swap(spans_);
  }
  Json events = Json::array();
  std::map<std::string, int> lanes;
  std::uint64_t origin = spans.empty() ? 0 : spans.front().begin_ns;
  for (const Span& span : spans) origin = std::min(origin, span.begin_ns);
  for (const Span& span : spans) {
    const auto [lane, added] = lanes.emplace(span.lane, static_cast<int>(lanes.size()) + 1);
    if (added)
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", 1},
                        {"tid", lane->second},
                        {"args", {{"name", span.lane}}}});
    events.push_back({{"name", span.name},
                      {"cat", "run"},
                      {"ph", "X"},
                      {"ts", static_cast<double>(span.begin_ns - origin) / 1000.0},
                      {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1000.0},
                      {"pid", 1},
                      {"tid", lane->second},
                      {"args", {{"kernel", span.detail}, {"device", span.lane}}}});
  }
  const Json json = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace backplane::core

#include "core/plan/control_flow.hpp"

#include <algorithm>
#include <map>

#include "core/plan/program.hpp"

namespace backplane::core {
namespace {

const Attribute* find_attribute(const Node& node, const std::string& name) {
  const auto found = node.attributes.find(name);
  return found != node.attributes.end() ? &found->second : nullptr;
}

const Graph& body_attribute(const Node& node, const std::string& name) {
  const Attribute* attribute = find_attribute(node, name);
  if (attribute == nullptr || attribute->graphs.size() != 1)
    invalid("its attribute '", name, "' holds no graph");
  return *attribute->graphs.front();
}

/// Entry `index` of a list attribute; `otherwise` where the list is left out.
std::int64_t list_entry(const Node& node, const std::string& name, std::size_t index,
                        std::int64_t otherwise) {
  const Attribute* attribute = find_attribute(node, name);
  if (attribute == nullptr || attribute->ints.empty()) return otherwise;
  if (index >= attribute->ints.size())
    invalid("its attribute '", name, "' has ", attribute->ints.size(), " entries; ", index + 1,
            " are needed");
  return attribute->ints[index];
}

/// A type that inference left open in the body is the outer value's.
void take_type(Value& inner, const Value& outer) {
  const bool vague = inner.type.kind == Type::Kind::Unknown ||
                     (inner.type.is_tensor() && outer.type.is_tensor() && !inner.type.shape);
  if (vague) inner.type = outer.type;
}

/// Makes a body of a node into a graph of its own: captured constants become its constants, and other captured values
/// its inputs.
class BodyMaker {
 public:
  BodyMaker(const ProgramContext& context, const PlacedGraph& placed, const Node& node,
            const std::string& attribute)
      : context_(context),
        placed_(placed),
        graph_(std::make_shared<Graph>(body_attribute(node, attribute))) {
    body_.attribute = attribute;
    body_.scope = context.scope + node.name + "/" + attribute;
  }

  /// `wanted` says which outputs somebody reads; `carried`, whether an output that is a feed may be handed on.
  template <class Wanted, class Carried>
  ControlBody make(const Wanted& wanted, const Carried& carried) {
    take_inputs();
    take_captured();
    for (std::size_t i = 0; i < graph_->outputs.size(); ++i) {
      const ValueId id = graph_->outputs[i];
      BodyOutput output;
      body_.output_types.push_back(graph_->value(id).type);
      const auto feed = feeds_.find(id);
      if (feed != feeds_.end() && carried(i, feed->second)) {
        output.feed = static_cast<int>(feed->second);
      } else if (wanted(i)) {
        output.fetch = static_cast<int>(cut_.fetches.size());
        cut_.fetches.push_back(graph_->value(id).name);
      }
      body_.outputs.push_back(output);
    }
    body_.fetch_count = cut_.fetches.size();
    ProgramContext context = context_;
    context.body = graph_;
    context.scope = body_.scope + "/";
    try {
      body_.body = context.make_body(context, cut_);
    } catch (const Error& error) {
      throw error.within("its body '" + body_.attribute + "'");
    }
    return std::move(body_);
  }

 private:
  void take_inputs() {
    for (const ValueId id : graph_->inputs) {
      Value& value = graph_->value(id);
      if (value.constant !=
          nullptr) {  // a default that is never used: every input of a body is given
        value.constant = nullptr;
        std::erase(graph_->initializers, id);
      }
      add_feed(id);
      const bool ranked = value.type.is_tensor() && value.type.shape;
      body_.input_ranks.push_back(ranked ? static_cast<int>(value.type.shape->size()) : -1);
    }
    body_.input_count = cut_.feeds.size();
  }

  void take_captured() {
    for (Value& value : graph_->values()) {
      if (!value.is_outer || (value.uses.empty() && !value.is_output)) continue;
      const ValueId id = placed_.graph->find_value(value.name);
      if (id == kNone)
        throw Error(Code::Internal, text("the captured value '", value.name, "' is unknown"));
      const Value& outer = placed_.graph->value(id);
      value.is_outer = false;
      take_type(value, outer);
      if (outer.constant != nullptr) {
        value.constant = outer.constant;
        continue;
      }
      graph_->add_input(value.id);
      add_feed(value.id);
      body_.captured.push_back(id);
    }
  }

  void add_feed(ValueId id) {
    feeds_.emplace(id, cut_.feeds.size());
    cut_.feeds.push_back(graph_->value(id).name);
  }

  const ProgramContext& context_;
  const PlacedGraph& placed_;
  std::shared_ptr<Graph> graph_;
  std::map<ValueId, std::size_t> feeds_;
  Cut cut_;
  ControlBody body_;
};

bool is_wanted(const Node& node, std::size_t output) {
  return output < node.outputs.size() && node.outputs[output] != kNone;
}

void check_count(const ControlBody& body, const char* what, std::size_t has, std::size_t needs) {
  if (has != needs)
    invalid("its body '", body.attribute, "' has ", has, " ", what, "; ", needs, " are needed");
}

void make_if(const ProgramContext& context, const PlacedGraph& placed, const Node& node,
             ControlNode& control) {
  for (const char* attribute : {"then_branch", "else_branch"}) {
    control.bodies.push_back(BodyMaker(context, placed, node, attribute)
                                 .make([&](std::size_t i) { return is_wanted(node, i); },
                                       [](std::size_t, std::size_t) { return false; }));
    const ControlBody& body = control.bodies.back();
    check_count(body, "inputs", body.input_count, 0);
    if (body.outputs.size() < node.outputs.size())
      check_count(body, "outputs", body.outputs.size(), node.outputs.size());
  }
}

void make_loop(const ProgramContext& context, const PlacedGraph& placed, const Node& node,
               ControlNode& control) {
  const std::size_t carried = node.inputs.size() > 2 ? node.inputs.size() - 2 : 0;
  control.carried_count = carried;
  control.bodies.push_back(
      BodyMaker(context, placed, node, "body")
          .make([&](std::size_t i) { return i <= carried || is_wanted(node, i - 1); },
                // The turn's number and condition change under whoever carries them on.
                [&](std::size_t i, std::size_t feed) {
                  return i == 0 ? feed == 1 : i <= carried && feed >= 2;
                }));
  const ControlBody& body = control.bodies.back();
  check_count(body, "inputs", body.input_count, carried + 2);
  const std::size_t scanned =
      body.outputs.size() > carried + 1 ? body.outputs.size() - carried - 1 : 0;
  check_count(body, "outputs", body.outputs.size(), carried + 1 + scanned);
  if (node.outputs.size() > carried + scanned)
    check_count(body, "outputs", body.outputs.size(), node.outputs.size() + 1);
}

void make_scan(const ProgramContext& context, const PlacedGraph& placed, const Node& node,
               ControlNode& control) {
  ScanLayout& layout = control.scan;
  layout.batched = node.since_version < 9;
  const std::size_t first = layout.batched ? 1 : 0;
  const std::int64_t declared = list_entry(node, "num_scan_inputs", 0, 0);
  if (declared < 1 || static_cast<std::size_t>(declared) + first > node.inputs.size())
    invalid("its attribute 'num_scan_inputs' is ", declared, " but it has ", node.inputs.size(),
            " inputs");
  const auto scanned = static_cast<std::size_t>(declared);
  layout.state_count = node.inputs.size() - first - scanned;
  control.carried_count = layout.state_count;
  control.bodies.push_back(
      BodyMaker(context, placed, node, "body")
          .make([&](std::size_t i) { return i < layout.state_count || is_wanted(node, i); },
                // Slices change under whoever carries them on.
                [&](std::size_t i, std::size_t feed) {
                  return i < layout.state_count &&
                         (feed < layout.state_count || feed >= layout.state_count + scanned);
                }));
  const ControlBody& body = control.bodies.back();
  check_count(body, "inputs", body.input_count, layout.state_count + scanned);
  if (body.outputs.size() < std::max(layout.state_count, node.outputs.size()))
    check_count(body, "outputs", body.outputs.size(),
                std::max(layout.state_count, node.outputs.size()));
  const char* directions = layout.batched ? "directions" : "scan_input_directions";
  for (std::size_t i = 0; i < scanned; ++i) {
    layout.input_reversed.push_back(list_entry(node, directions, i, 0) != 0);
    layout.input_axes.push_back(layout.batched ? 0 : list_entry(node, "scan_input_axes", i, 0));
  }
  for (std::size_t i = 0; i + layout.state_count < body.outputs.size(); ++i) {
    layout.output_reversed.push_back(!layout.batched &&
                                     list_entry(node, "scan_output_directions", i, 0) != 0);
    layout.output_axes.push_back(layout.batched ? 0 : list_entry(node, "scan_output_axes", i, 0));
  }
}

}  // namespace

bool is_control_flow(const Node& node) {
  return node.domain.empty() &&
         (node.op_type == "If" || node.op_type == "Loop" || node.op_type == "Scan");
}

std::unique_ptr<ControlNode> make_control_node(const ProgramContext& context,
                                               const PlacedGraph& placed, const Node& node) {
  auto control = std::make_unique<ControlNode>();
  try {
    if (node.op_type == "If") {
      make_if(context, placed, node, *control);
    } else if (node.op_type == "Loop") {
      control->kind = ControlKind::Loop;
      make_loop(context, placed, node, *control);
    } else {
      control->kind = ControlKind::Scan;
      make_scan(context, placed, node, *control);
    }
  } catch (const Error& error) {
    throw error.within(text("node '", node.name, "' (", node.op_type, ")"));
  }
  return control;
}

namespace {

/// Where the node reads an input: kNoSpace when elements do not matter.
int reading_space(const Program& program, const Use& use) {
  const ProgramNode& placed = program.node(use.node);
  const DeviceSet& devices = *program.context().devices;
  if (placed.control != nullptr || program.is_host_node(use.node) || use.input < 0 ||
      placed.device < 0 || !placed.kernel)
    return kNoSpace;
  switch (placed.kernel.input_role(static_cast<std::size_t>(use.input))) {
    case BP_INPUT_SHAPE_ONLY:
      return kNoSpace;
    case BP_INPUT_HOST_VALUE:
    case BP_INPUT_HOST_DATA:
      return kHostSpace;
    default:
      return devices.space_of(placed.device);
  }
}

/// Where the bodies of a control-flow node read an outer value, and (as `input`) an input of the node.
void add_body_spaces(const ControlNode& control, const Use& use, ValueId value,
                     std::vector<int>& spaces) {
  for (const ControlBody& body : control.bodies) {
    const BodyPlaces homes = body.body->homes();
    if (use.input < 0) {
      for (std::size_t i = 0; i < body.captured.size(); ++i) {
        if (body.captured[i] == value) spaces.push_back(homes.feeds[body.input_count + i]);
      }
      continue;
    }
    const auto input = static_cast<std::size_t>(use.input);
    if (control.kind == ControlKind::If || (control.kind == ControlKind::Loop && input < 2)) {
      spaces.push_back(kHostSpace);
      continue;
    }
    const bool lengths = control.scan.batched && input == 0;
    const std::size_t first = control.scan.batched ? 1 : 0;
    spaces.push_back(lengths ? kHostSpace : homes.feeds[input - first]);
  }
}

int home_of_feed(const Program& program, std::size_t feed) {
  const auto& keyed = program.keyed_feeds();
  if (std::find(keyed.begin(), keyed.end(), feed) != keyed.end()) return kHostSpace;
  const Value& value = program.graph().value(program.feeds()[feed]);
  if (!value.type.is_tensor() || value.type.element == DataType::String) return kHostSpace;
  std::vector<int> spaces;
  for (const Use& use : value.uses) {
    const ProgramNode& placed = program.node(use.node);
    if (placed.control != nullptr) {
      add_body_spaces(*placed.control, use, value.id, spaces);
    } else {
      spaces.push_back(reading_space(program, use));
    }
  }
  // A device that reads it reads it each time the body runs; the host can follow there only by a copy as well. Of several
  // devices the first one of the session, whoever reads first: rewrites and claims then do not move it.
  int home = kNoSpace;
  for (const int space : spaces) {
    if (home <= kHostSpace ? space > home : space > kHostSpace && space < home) home = space;
  }
  return home;
}

int home_of_fetch(const Program& program, std::size_t fetch) {
  const Value& value = program.graph().value(program.fetches()[fetch]);
  if (!value.type.is_tensor() || value.type.element == DataType::String) return kHostSpace;
  if (value.producer == kNone) return kNoSpace;
  const ProgramNode& placed = program.node(value.producer);
  const auto output = static_cast<std::size_t>(value.producer_output);
  if (placed.control != nullptr) {
    const ControlNode& control = *placed.control;
    const std::size_t inner = control.kind == ControlKind::Loop ? output + 1 : output;
    for (const ControlBody& body : control.bodies) {
      if (inner >= body.outputs.size()) continue;
      const BodyPlaces homes = body.body->homes();
      const BodyOutput& from = body.outputs[inner];
      const int home = from.fetch >= 0  ? homes.fetches[static_cast<std::size_t>(from.fetch)]
                       : from.feed >= 0 ? homes.feeds[static_cast<std::size_t>(from.feed)]
                                        : kNoSpace;
      if (home != kNoSpace) return home;
    }
    return kNoSpace;
  }
  if (placed.device < 0 || !placed.kernel || program.is_host_node(value.producer)) return kNoSpace;
  if (placed.kernel.output_role(output) == BP_OUTPUT_HOST) return kHostSpace;
  return program.context().devices->space_of(placed.device);
}

}  // namespace

BodyPlaces find_homes(const Program& program) {
  BodyPlaces homes;
  for (std::size_t i = 0; i < program.feeds().size(); ++i)
    homes.feeds.push_back(home_of_feed(program, i));
  for (std::size_t i = 0; i < program.fetches().size(); ++i)
    homes.fetches.push_back(home_of_fetch(program, i));
  return homes;
}

namespace {

std::optional<std::size_t> rank_of(const Graph& graph, ValueId id) {
  if (id == kNone) return std::nullopt;
  const Type& type = graph.value(id).type;
  if (!type.is_tensor() || !type.shape) return std::nullopt;
  return type.shape->size();
}

/// `to_front`: moves axis to the front; otherwise the first axis to where `axis` is.
Node transposition(const Node& scan, std::size_t axis, std::size_t rank, bool to_front) {
  Node node;
  node.op_type = "Transpose";
  node.since_version = scan.since_version;
  node.origins = scan.origins;
  Attribute& perm = node.attributes["perm"];
  perm.type = Attribute::Type::Ints;
  for (std::size_t i = 0; i < rank; ++i) {
    std::size_t from = 0;
    if (to_front) {
      from = i == 0 ? axis : i <= axis ? i - 1 : i;
    } else {
      from = i == axis ? 0 : i < axis ? i + 1 : i;
    }
    perm.ints.push_back(static_cast<std::int64_t>(from));
  }
  return node;
}

Type permuted(const Type& type, const std::vector<std::int64_t>& perm) {
  Type result = type;
  for (std::size_t i = 0; i < perm.size(); ++i)
    (*result.shape)[i] = (*type.shape)[static_cast<std::size_t>(perm[i])];
  return result;
}

void transpose_input(Graph& graph, NodeId id, std::size_t index, std::size_t axis) {
  const ValueId from = graph.node(id).inputs[index];
  Node node = transposition(graph.node(id), axis, *rank_of(graph, from), true);
  node.name = text(graph.node(id).name, "/scan_input_", index);
  const ValueId moved = graph.new_value(graph.value(from).name + "/slices_first");
  graph.value(moved).type = permuted(graph.value(from).type, node.attributes["perm"].ints);
  node.inputs = {from};
  node.outputs = {moved};
  graph.add_node(std::move(node));
  graph.set_input(id, index, moved);
}

void transpose_output(Graph& graph, NodeId id, std::size_t index, std::size_t axis,
                      std::size_t rank) {
  const ValueId to = graph.node(id).outputs[index];
  Node node = transposition(graph.node(id), axis, rank, false);
  node.name = text(graph.node(id).name, "/scan_output_", index);
  const ValueId stacked = graph.new_value(graph.value(to).name + "/slices_first");
  const Type type = graph.value(to).type;
  if (type.shape) {
    const Node front = transposition(graph.node(id), axis, rank, true);
    graph.value(stacked).type = permuted(type, front.attributes.at("perm").ints);
  } else {
    graph.value(stacked).type = type;
  }
  graph.set_output(id, index, stacked);
  node.inputs = {stacked};
  node.outputs = {to};
  graph.add_node(std::move(node));
}

/// An axis to move, and of how many.
struct MovedAxis {
  std::size_t index;  ///< of the node's input or output
  std::size_t axis, rank;
};

/// Adds one that is not the first; false when the rank is not known.
bool add_axis(std::int64_t axis, std::size_t index, std::optional<std::size_t> rank,
              const char* what, std::vector<MovedAxis>& moved) {
  if (axis == 0) return true;
  if (!rank) return false;
  const std::size_t known = scan_axis(axis, *rank, what);
  if (known != 0) moved.push_back({index, known, *rank});
  return true;
}

}  // namespace

std::size_t scan_axis(std::int64_t axis, std::size_t rank, const char* what) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count)
    invalid("its ", what, " has axis ", axis, ", but ", count, " axes");
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

bool normalize_scan(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op_type != "Scan" || !node.domain.empty() || node.since_version < 9) return false;
  if (!node.attributes.contains("scan_input_axes") && !node.attributes.contains("scan_output_axes"))
    return false;
  const auto scanned = static_cast<std::size_t>(std::clamp<std::int64_t>(
      list_entry(node, "num_scan_inputs", 0, 0), 0, static_cast<std::int64_t>(node.inputs.size())));
  const std::size_t states = node.inputs.size() - scanned;
  std::vector<MovedAxis> inputs, outputs;
  bool known = true;
  for (std::size_t i = states; i < node.inputs.size(); ++i)
    known = add_axis(list_entry(node, "scan_input_axes", i - states, 0), i,
                     rank_of(graph, node.inputs[i]), "scan input", inputs) &&
            known;
  const Graph& body = body_attribute(node, "body");
  for (std::size_t i = states; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    std::optional<std::size_t> rank = rank_of(graph, node.outputs[i]);
    if (!rank && i < body.outputs.size()) {
      rank = rank_of(body, body.outputs[i]);
      if (rank) ++*rank;
    }
    known = add_axis(list_entry(node, "scan_output_axes", i - states, 0), i, rank, "scan output",
                     outputs) &&
            known;
  }
  if (!known) return false;
  for (const MovedAxis& moved : inputs) transpose_input(graph, id, moved.index, moved.axis);
  for (const MovedAxis& moved : outputs)
    transpose_output(graph, id, moved.index, moved.axis, moved.rank);
  graph.node(id).attributes.erase("scan_input_axes");
  graph.node(id).attributes.erase("scan_output_axes");
  return true;
}

}  // namespace backplane::core

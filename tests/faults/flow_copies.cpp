#include "tests/faults/flow_copies.hpp"

#include <algorithm>
#include <utility>

namespace backplane::core::faults {
namespace {

constexpr const char* kHost = "host";
constexpr std::uint64_t kSliceAlignment = 256;  ///< of the fake devices

bool is_device(const std::string& place) { return !place.empty() && place != kHost; }
bool is_fake(const std::string& place) { return place.rfind("fakegpu", 0) == 0; }

/// Of an If the branch that is taken for true first; of others none or one.
std::vector<const ::onnx::GraphProto*> bodies_of(const ::onnx::NodeProto& node) {
  std::vector<const ::onnx::GraphProto*> bodies;
  for (const char* name : {"then_branch", "else_branch", "body"}) {
    for (const ::onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g() && attribute.name() == name) bodies.push_back(&attribute.g());
    }
  }
  return bodies;
}

/// Whether something in the graph, bodies included, names the value; be it needed or not.
bool mentions(const ::onnx::GraphProto& graph, const std::string& value) {
  for (const ::onnx::NodeProto& node : graph.node()) {
    if (std::find(node.input().begin(), node.input().end(), value) != node.input().end())
      return true;
    const auto bodies = bodies_of(node);
    if (std::any_of(bodies.begin(), bodies.end(),
                    [&](const ::onnx::GraphProto* body) { return mentions(*body, value); }))
      return true;
  }
  return false;
}

}  // namespace

FlowCopies::FlowCopies(const RandomFlow& flow, Placement places, std::vector<std::string> devices,
                       bool peer)
    : places_(std::move(places)), devices_(std::move(devices)), peer_(peer) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(flow.model())) invalid("the model cannot be read");
  const auto size_of = [&](const char* feed) {
    return flow.feeds().at(feed).elements.size() * sizeof(float);
  };
  matrix_bytes_ = size_of("x0");
  bytes_["xs"] = size_of("xs");
  takes_then_ = flow.feeds().at("c").elements.at(0) > 0;
  trips_ = static_cast<std::int64_t>(flow.feeds().at("t").elements.at(0));
  Places given, wanted;
  for (const auto& input : model.graph().input()) given[input.name()] = kHost;
  for (const auto& output : model.graph().output()) wanted[output.name()] = kHost;
  walk_graph(model.graph(), given, wanted);
}

/// Where a graph reads what it is given: see the class. "": nowhere.
std::string FlowCopies::reader(const Graph& graph, const std::string& value) const {
  std::vector<std::string> places;
  for (const Node& node : graph.node()) {
    if (runs(node)) add_reader(node, value, places);
  }
  for (const Node& node : graph.node()) {
    if (!runs(node)) continue;
    for (const Graph* body : bodies_of(node)) {
      if (mentions(*body, value)) places.push_back(reader(*body, value));
    }
  }
  for (const std::string& first : devices_) {
    const auto found = std::find_if(places.begin(), places.end(), [&](const std::string& place) {
      return is_device(place) && place.rfind(first, 0) == 0;
    });
    if (found != places.end()) return *found;
  }
  return std::find(places.begin(), places.end(), kHost) != places.end() ? kHost : "";
}

/// Where a node reads it as an input.
void FlowCopies::add_reader(const Node& node, const std::string& value,
                            std::vector<std::string>& places) const {
  const std::vector<const Graph*> bodies = bodies_of(node);
  const int on_host = node.op_type() == "If" ? 1 : node.op_type() == "Loop" ? 2 : 0;
  for (int i = 0; i < node.input_size(); ++i) {
    if (node.input(i) != value) continue;
    if (bodies.empty()) {
      places.push_back(places_.at(node.name()));
    } else if (i < on_host) {
      places.emplace_back(kHost);
    } else {
      places.push_back(reader(*bodies.front(), bodies.front()->input(i).name()));
    }
  }
}

/// Where a graph makes the value; "": it has no place of its own.
std::string FlowCopies::maker(const Graph& graph, const std::string& value) const {
  for (const Node& node : graph.node()) {
    const auto found = std::find(node.output().begin(), node.output().end(), value);
    if (found == node.output().end()) continue;
    const std::vector<const Graph*> bodies = bodies_of(node);
    if (bodies.empty()) return places_.at(node.name());
    const int index =
        static_cast<int>(found - node.output().begin()) + (node.op_type() == "Loop" ? 1 : 0);
    for (const Graph* body : bodies) {
      std::string place = maker(*body, body->output(index).name());
      if (!place.empty()) return place;
    }
  }
  return "";
}

std::string FlowCopies::carried_place(const Turns& turns, const std::string& initial) const {
  std::string read = reader(turns.body, turns.carried);
  if (read == kHost) return read;
  std::string made = maker(turns.body, turns.next);
  if (!made.empty()) return made;
  return !read.empty() ? read : initial;
}

/// What a body names of the graph around it; `other`: the other branch of an If. All of it is read, whether the body
/// runs or not.
FlowCopies::Places FlowCopies::give_captured(Walk& walk, const Graph& body, const Graph* other) {
  Places given;
  for (const auto& [value, place] : walk.at) {
    if (!mentions(body, value)) continue;
    std::string& there = given[value];
    there = reader(body, value);
    if (there.empty() && other != nullptr) there = reader(*other, value);
    if (there.empty()) there = place;
    walk.readers[value].insert(there);
  }
  return given;
}

void FlowCopies::walk_graph(const Graph& graph, const Places& given, const Places& wanted) {
  Walk now;
  now.at = given;
  for (const Node& node : graph.node()) {
    if (!runs(node)) continue;
    if (node.op_type() == "If") {
      walk_if(now, node);
    } else if (node.op_type() == "Loop") {
      walk_loop(now, node);
    } else if (node.op_type() == "Scan") {
      walk_scan(now, node);
    } else {
      const std::string& place = places_.at(node.name());
      for (const std::string& input : node.input()) now.readers[input].insert(place);
      for (const std::string& output : node.output()) now.at[output] = place;
    }
  }
  for (const auto& [value, place] : wanted) {
    if (now.at.at(value) != place) {
      now.readers[value].insert(place);  // straight to where it is wanted
    } else if (now.handed_over.contains(value)) {
      count_within(place, bytes_of(value));
    }
  }
  finish(now);
}

void FlowCopies::walk_if(Walk& walk, const Node& node) {
  const std::vector<const Graph*> bodies = bodies_of(node);
  std::string place;
  for (const Graph* body : bodies) {
    if (place.empty()) place = maker(*body, body->output(0).name());
  }
  if (place.empty()) place = kHost;
  walk.readers[node.input(0)].insert(kHost);
  const Places of_then = give_captured(walk, *bodies[0], bodies[1]);
  const Places of_else = give_captured(walk, *bodies[1], bodies[0]);
  const Graph& taken = takes_then_ ? *bodies[0] : *bodies[1];
  walk_graph(taken, takes_then_ ? of_then : of_else, {{taken.output(0).name(), place}});
  walk.at[node.output(0)] = place;
}

void FlowCopies::walk_loop(Walk& walk, const Node& node) {
  const Graph& body = *bodies_of(node).front();
  walk.readers[node.input(0)].insert(kHost);
  Places given = give_captured(walk, body, nullptr);
  given[body.input(0).name()] = given[body.input(1).name()] = kHost;
  take_turns(
      walk, node,
      {body, node.input(2), body.input(2).name(), body.output(1).name(),
       body.output_size() > 2 ? body.output(2).name() : "", node.input(0) == "two" ? 2 : trips_},
      std::move(given), "");
}

void FlowCopies::walk_scan(Walk& walk, const Node& node) {
  const Graph& body = *bodies_of(node).front();
  Places given = give_captured(walk, body, nullptr);
  const std::string element = body.input(1).name();
  std::string place = reader(body, element);
  if (place.empty()) place = walk.at.at(node.input(1));
  walk.readers[node.input(1)].insert(place);
  given[element] = place;
  take_turns(
      walk, node,
      {body, node.input(0), body.input(0).name(), body.output(0).name(), body.output(1).name(),
       static_cast<std::int64_t>(bytes_of(node.input(1)) / matrix_bytes_)},
      std::move(given), element);
}

/// `element`: what each turn gets a slice of the scanned input as; "": nothing.
void FlowCopies::take_turns(Walk& walk, const Node& node, const Turns& turns, Places given,
                            const std::string& element) {
  const std::string place = carried_place(turns, walk.at.at(turns.initial));
  walk.readers[turns.initial].insert(place);
  given[turns.carried] = place;
  Places wanted{{turns.next, place}};
  std::string stack;
  if (!turns.slice.empty()) {
    stack = maker(turns.body, turns.slice);
    if (stack.empty()) stack = kHost;
    wanted[turns.slice] = stack;
  }
  for (std::int64_t turn = 0; turn < turns.count; ++turn) {
    const bool is_aligned = static_cast<std::uint64_t>(turn) * matrix_bytes_ % kSliceAlignment == 0;
    if (!is_aligned && !element.empty()) count_within(given.at(element), matrix_bytes_);
    walk_graph(turns.body, given, wanted);
    if (!is_aligned) count_within(stack, matrix_bytes_);
  }
  if (turns.count == 0) count_within(place, matrix_bytes_);
  walk.at[node.output(0)] = place;
  walk.handed_over.insert(node.output(0));
  if (turns.slice.empty()) return;
  walk.at[node.output(1)] = stack;
  bytes_[node.output(1)] = static_cast<std::uint64_t>(turns.count) * matrix_bytes_;
}

/// Counts what goes from one memory to another.
void FlowCopies::finish(const Walk& walk) {
  for (const auto& [value, made] : walk.at) {
    const auto found = walk.readers.find(value);
    if (found == walk.readers.end()) continue;
    std::set<std::string> targets = found->second;
    targets.erase(made);
    for (const std::string& target : found->second) {
      const bool has_way = target == made || !is_device(made) || !is_device(target) ||
                           (peer_ && is_fake(made) && is_fake(target));
      if (!has_way) targets.insert(kHost);
    }
    for (const std::string& target : targets) count_transfer(made, target, bytes_of(value));
  }
}

std::uint64_t FlowCopies::bytes_of(const std::string& value) const {
  const auto found = bytes_.find(value);
  return found != bytes_.end() ? found->second : matrix_bytes_;
}

void FlowCopies::count_transfer(const std::string& from, const std::string& to,
                                std::uint64_t bytes) {
  if (bytes == 0) return;
  if (is_fake(to)) {
    ++(peer_ && is_fake(from) ? copies_.peer : copies_.to_device);
  } else if (is_fake(from) && to == kHost) {
    ++copies_.to_host;
  } else {
    return;
  }
  copies_.bytes += bytes;
}

void FlowCopies::count_within(const std::string& place, std::uint64_t bytes) {
  if (!is_fake(place) || bytes == 0) return;
  ++copies_.within;
  copies_.bytes_within += bytes;
}

}  // namespace backplane::core::faults

// What memory a session uses for what, as JSON.
#include <algorithm>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "core/runtime/session.hpp"
#include "core/runtime/session_report.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

std::string space_name(const DeviceSet& devices, int space) {
  return space == kHostSpace ? "host" : devices.at(DeviceSet::device_of_space(space)).label();
}

std::string arena_name(const DeviceSet& devices, int arena) {
  const int pinned = arena - static_cast<int>(devices.space_count());
  return pinned < 0 ? space_name(devices, arena) : devices.at(pinned).label() + " pinned";
}

const char* place_name(Place place) {
  switch (place) {
    case Place::Arena:
      return "arena";
    case Place::Incoming:
      return "feed";
    case Place::Fetch:
      return "fetch";
    case Place::Weight:
      return "weight";
    case Place::View:
      return "view";
    case Place::Dynamic:
      return "own";
    case Place::Nowhere:
      break;
  }
  return "none";
}

/// Bytes of an arena in use between two steps.
struct Piece {
  int first, last;
  std::uint64_t begin, end;
};

std::vector<Piece> pieces_of(const Segment& segment, int arena) {
  std::vector<Piece> pieces;
  for (const Slot& slot : segment.slots) {
    if (slot.place == Place::Arena && slot.arena == arena && slot.state->bytes > 0)
      pieces.push_back({slot.first, slot.last, slot.offset, slot.offset + slot.state->bytes});
  }
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    const Step& step = segment.steps[i];
    if (step.workspace_arena != arena || step.workspace_bytes == 0) continue;
    const int at = static_cast<int>(i);
    pieces.push_back({at, at, step.workspace_offset, step.workspace_offset + step.workspace_bytes});
  }
  return pieces;
}

/// The most bytes that are in use at one step, and that step. Values that share memory count once.
std::pair<std::uint64_t, int> peak_of(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  std::set<int> starts;  // what is in use grows at these steps only
  for (const Piece& piece : pieces) starts.insert(piece.first);
  std::pair<std::uint64_t, int> peak{0, 0};
  for (const int step : starts) {
    std::uint64_t used = 0, reached = 0;
    for (const Piece& piece : pieces) {
      if (step < piece.first || step > piece.last) continue;
      used += piece.end - std::min(piece.end, std::max(piece.begin, reached));
      reached = std::max(reached, piece.end);
    }
    if (used > peak.first) peak = {used, step};
  }
  return peak;
}

Json slots_of(const Program& program, const Segment& segment, const DeviceSet& devices) {
  Json rows = Json::array();
  for (const Slot& slot : segment.slots) {
    if (slot.place == Place::Nowhere || slot.value == kNone) continue;
    Json row = {{"value", program.graph().value(slot.value).name},
                {"memory", slot.place == Place::Arena ? arena_name(devices, slot.arena)
                                                      : space_name(devices, slot.space)},
                {"place", place_name(slot.place)},
                {"bytes", slot.state->bytes}};
    if (slot.place == Place::Arena) {
      const ArenaPlace place = place_in_arena(segment, slot.arena, slot.offset);
      row["offset"] = place.offset;
      row["buffer"] = place.buffer;
      row["first_step"] = slot.first;
      row["last_step"] = slot.last;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json workspaces_of(const Program& program, const Segment& segment, const DeviceSet& devices) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    const Step& step = segment.steps[i];
    if (step.workspace_arena < 0 || step.workspace_bytes == 0) continue;
    const ArenaPlace place = place_in_arena(segment, step.workspace_arena, step.workspace_offset);
    rows.push_back({{"node", program.graph().node(step.node).name},
                    {"memory", arena_name(devices, step.workspace_arena)},
                    {"bytes", step.workspace_bytes},
                    {"offset", place.offset},
                    {"buffer", place.buffer},
                    {"step", i}});
  }
  return rows;
}

Json steps_of(const Program& program, const Segment& segment) {
  Json names = Json::array();
  for (const Step& step : segment.steps) {
    names.push_back(step.kind == StepKind::Compute ? program.graph().node(step.node).name
                                                   : step.label);
  }
  return names;
}

Json plan_of(const Executable& executable, const Program& program, const Segment& segment,
             const DeviceSet& devices) {
  Json plan = {{"inputs", executable.cut().feeds}, {"outputs", executable.cut().fetches}};
  plan["arenas"] = Json::object();
  for (std::size_t i = 0; i < segment.arena_bytes.size(); ++i) {
    if (segment.arena_bytes[i] == 0) continue;
    const auto [bytes, step] = peak_of(pieces_of(segment, static_cast<int>(i)));
    plan["arenas"][arena_name(devices, static_cast<int>(i))] = {
        {"bytes", segment.arena_bytes[i]}, {"peak_bytes", bytes}, {"peak_step", step}};
  }
  plan["capture"] = capture_json(program, segment);
  plan["steps"] = steps_of(program, segment);
  plan["values"] = slots_of(program, segment, devices);
  plan["workspaces"] = workspaces_of(program, segment, devices);
  return plan;
}

/// Weights of all plans, each once.
class Weights {
 public:
  explicit Weights(const DeviceSet& devices) : devices_(devices) {}

  void add(const Program& program, const Segment& segment) {
    for (const Slot& slot : segment.slots) {
      if (slot.weight == nullptr) continue;
      add(*slot.weight, program.graph().value(slot.value).name, space_name(devices_, slot.space),
          "plain");
    }
    for (const Step& step : segment.steps) {
      for (const WeightPtr& pack : step.packs)
        add(*pack, program.graph().node(step.node).name,
            space_name(devices_, devices_.space_of(step.device)), "packed");
    }
  }

  Json json() const {
    Json totals = Json::object();
    for (const auto& [memory, bytes] : totals_) totals[memory] = bytes;
    return {{"bytes", std::move(totals)}, {"list", list_}};
  }

 private:
  void add(const Weight& weight, const std::string& of, const std::string& memory,
           const char* kind) {
    if (!seen_.insert(&weight).second) return;
    // What lies where the model was mapped takes no memory of its own.
    const bool in_model = weight.source != nullptr;
    const std::uint64_t bytes = weight.value.description.bytes;
    const std::string where = in_model ? "model" : memory;
    totals_[where] += bytes;
    list_.push_back({{"of", of}, {"kind", kind}, {"memory", where}, {"bytes", bytes}});
  }

  const DeviceSet& devices_;
  std::set<const Weight*> seen_;
  std::map<std::string, std::uint64_t> totals_;
  Json list_ = Json::array();
};

}  // namespace

std::string Session::memory() {
  Json json;
  json["arenas"] = {{"sets", arenas_.set_count()},
                    {"bytes", arenas_.bytes()},
                    {"peak_bytes", arenas_.peak_bytes()}};
  json["plans"] = Json::array();
  Weights weights(devices_);
  for (const std::shared_ptr<Executable>& executable : executables()) {
    const auto [generation, segment] = executable->last();
    if (segment == nullptr) continue;
    json["plans"].push_back(plan_of(*executable, *generation->program, *segment, devices_));
    weights.add(*generation->program, *segment);
  }
  json["weights"] = weights.json();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace backplane::core

#include "core/runtime/session_report.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

Json path_json(const SessionPath& path, const std::string& session_precision) {
  static const char* const kWords[] = {"low", "normal", "high"};
  Json providers = Json::array();
  Json backup;
  for (const SessionDevice& device : path.devices.devices) {
    if (device.requested) {
      providers.push_back(device.device->label());
    } else if (device.placeable) {
      backup = device.device->label();
    }
  }
  const std::string& own = path.options.precision;
  return {{"name", path.name},
          {"inputs", path.inputs},
          {"outputs", path.outputs},
          {"providers", providers},
          {"backup", backup},
          {"threads", path.threads.max_threads},
          {"precision", own.empty() ? session_precision : own},
          {"power", kWords[static_cast<int>(path.options.power)]},
          {"memory", kWords[static_cast<int>(path.options.memory)]}};
}

std::string step_name(const Program& program, const Segment& segment, std::size_t index) {
  const Step& step = segment.steps[index];
  return step.node == kNone ? step.label : program.graph().node(step.node).name;
}

Json range_json(const Program& program, const Segment& segment, const CaptureRange& range,
                const CaptureTally& tally) {
  const std::string refusal = tally.refusal();
  const char* const state = !refusal.empty()            ? "refused"
                            : tally.replayed.load() > 0 ? "replayed"
                                                        : "not yet";
  return {{"device", program.context().devices->at(range.device).label()},
          {"first", step_name(program, segment, range.begin)},
          {"last", step_name(program, segment, range.end - 1)},
          {"steps", range.end - range.begin - range.host_copies.size()},
          {"state", state},
          {"reason", refusal},
          {"recorded", tally.recorded.load()},
          {"replayed", tally.replayed.load()},
          {"plain", tally.plain.load()}};
}

}  // namespace

Json capture_json(const Program& program, const Segment& segment) {
  Json json = {{"mode", program.context().capture ? "auto" : "off"},
               {"ranges", Json::array()},
               {"outside", Json::array()}};
  if (segment.capture == nullptr) return json;
  const CapturePlan& plan = *segment.capture;
  for (std::size_t i = 0; i < plan.ranges.size(); ++i)
    json["ranges"].push_back(range_json(program, segment, plan.ranges[i], plan.tallies[i]));
  for (const CaptureBreak& left : plan.breaks) {
    json["outside"].push_back(
        {{"first", step_name(program, segment, static_cast<std::size_t>(left.first_step))},
         {"steps", left.steps},
         {"reason", left.reason}});
  }
  if (const std::uint64_t watched = plan.watched.plain.load(); watched > 0)
    json["runs_with_profile_or_observer"] = watched;
  return json;
}

void report_options(const Session& session, Json& json) {
  json["options"] = session.options().given;
  json["entries"] = session.options().entries;
  json["model_options"] = {{"used", session.options().options_from_model},
                           {"options", session.model_options()}};
  json["paths"] = Json::array();
  for (const auto& [name, path] : session.paths())
    json["paths"].push_back(path_json(*path, session.options().precision));
}

void report_life(Session& session, const Program& program, Json& json) {
  json["steps_ms"] = Json::object();
  for (const auto& [step, ms] : session.steps())
    json["steps_ms"][step] = json["steps_ms"].value(step, 0.0) + ms;
  json["reopened"] = session.is_reopened();
  json["nodes_asked"] = program.asked_count();
  json["weights_packed"] = session.environment().weights().packed_count();
  json["weights_restored"] = session.environment().weights().restored_count();
  json["memory"] = Json::object();
  for (const auto& [place, bytes] : session.budget().taken())
    json["memory"][place] = {{"weights", bytes.second}, {"runs", bytes.first}};
}

}  // namespace backplane::core

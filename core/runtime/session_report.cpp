#include "core/runtime/session_report.hpp"

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

Json path_json(const SessionPath& path) {
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
  return {{"name", path.name},
          {"inputs", path.inputs},
          {"outputs", path.outputs},
          {"providers", providers},
          {"backup", backup},
          {"threads", path.threads.max_threads},
          {"power", kWords[static_cast<int>(path.options.power)]},
          {"memory", kWords[static_cast<int>(path.options.memory)]}};
}

}  // namespace

void report_options(const Session& session, Json& json) {
  json["options"] = session.options().given;
  json["entries"] = session.options().entries;
  json["model_options"] = {{"used", session.options().options_from_model},
                           {"options", session.model_options()}};
  json["paths"] = Json::array();
  for (const auto& [name, path] : session.paths()) json["paths"].push_back(path_json(*path));
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

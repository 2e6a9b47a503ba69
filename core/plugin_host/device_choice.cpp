#include "core/plugin_host/device_choice.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "backplane/plugin_api/optional/device_state.h"
#include "core/base/nearest_name.hpp"
#include "core/base/wildcard.hpp"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

using Infos = std::vector<const bp_device_info*>;

constexpr std::string_view kName = "name=";

std::string names_of(const Infos& infos) {
  std::string names;
  for (const bp_device_info* info : infos)
    names += text(names.empty() ? "'" : ", '", info->name, "'");
  return names;
}

/// Zeros where the provider does not know.
std::vector<bp_device_state> states_of(const bp_provider& provider, const Infos& infos) {
  std::vector<bp_device_state> states(infos.size());
  const std::string what = text("provider '", provider.name, "'");
  const void* const found = find_interface(provider, what, BP_DEVICE_STATES_INTERFACE,
                                           BP_SIZE_V1(bp_device_states, query), "bp_device_states");
  if (found == nullptr) return states;
  const auto& table = *static_cast<const bp_device_states*>(found);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    states[i].struct_size = sizeof(bp_device_state);
    bp_status* const status =
        call_plugin(what, [&] { return table.query(provider.self, infos[i], &states[i]); });
    if (status == nullptr) continue;
    take_error(status);
    states[i] = bp_device_state{};
  }
  return states;
}

/// The first device with the largest value.
template <class ValueOf>
std::size_t largest(const Infos& infos, const ValueOf& value_of) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < infos.size(); ++i) {
    if (value_of(i) > value_of(best)) best = i;
  }
  return best;
}

bool is_on_host(const bp_device_info& info) { return (info.flags & BP_DEVICE_HOST_MEMORY) != 0; }

/// Whether a name alone means `one` and not `other`, whatever their order.
bool is_better(const bp_device_info& one, const bp_device_info& other) {
  if (one.score != other.score) return one.score > other.score;
  if (is_on_host(one) != is_on_host(other)) return is_on_host(other);
  return one.memory_bytes > other.memory_bytes;
}

std::size_t least_power(const bp_provider& provider, const Infos& infos) {
  const std::vector<bp_device_state> states = states_of(provider, infos);
  for (std::size_t i = 0; i < infos.size() && infos.size() > 1; ++i) {
    if (states[i].power_mw > 0) continue;
    throw Error(Code::Unsupported,
                text("provider '", provider.name, "' does not say how much power its device '",
                     infos[i]->name, "' draws; choose one by index or name: ", names_of(infos)));
  }
  return largest(infos, [&](std::size_t i) { return -static_cast<double>(states[i].power_mw); });
}

std::size_t most_memory(const bp_provider& provider, const Infos& infos) {
  const std::vector<bp_device_state> states = states_of(provider, infos);
  const bool all_known = std::all_of(states.begin(), states.end(),
                                     [](const auto& state) { return state.free_bytes > 0; });
  return largest(infos, [&](std::size_t i) {
    return all_known ? states[i].free_bytes : infos[i]->memory_bytes;
  });
}

std::size_t by_name(const bp_provider& provider, std::string_view pattern, const Infos& infos) {
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (fits_wildcard(pattern, infos[i]->name, LetterCase::Ignored)) return i;
  }
  throw Error(Code::NotFound, text("provider '", provider.name, "' has no device called '", pattern,
                                   "'; it has ", names_of(infos)));
}

std::size_t by_index(const bp_provider& provider, const std::string& wanted, const Infos& infos) {
  std::size_t index = 0;
  const char* const end = wanted.data() + wanted.size();
  const auto [stop, error] = std::from_chars(wanted.data(), end, index);
  if (error != std::errc() || stop != end) {
    invalid("provider '", provider.name, ":", wanted, "': a device is asked for as ", provider.name,
            ":0 (an index), or by fastest, least_power, most_memory, all or name=PATTERN",
            did_you_mean(wanted, {"fastest", "least_power", "most_memory", "all"}));
  }
  if (index >= infos.size()) {
    throw Error(Code::NotFound, text("provider '", provider.name, "' has no device ", index,
                                     "; it has ", infos.size(), ", counted from 0"));
  }
  return index;
}

}  // namespace

std::pair<std::string, std::string> split_device_name(const std::string& name) {
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, ""};
  if (colon + 1 == name.size())
    invalid("provider '", name, "': a device is asked for as NAME:INDEX, such as '",
            name.substr(0, colon), ":0'");
  return {name.substr(0, colon), name.substr(colon + 1)};
}

std::size_t best_device(const Infos& infos) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < infos.size(); ++i) {
    if (is_better(*infos[i], *infos[best])) best = i;
  }
  return best;
}

std::string why_best(const Infos& infos) {
  Infos others = infos;
  const std::size_t index = best_device(infos);
  const bp_device_info& best = *infos[index];
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
  if (others.empty()) return "it has no other";
  const bp_device_info& next = *others[best_device(others)];
  if (best.score != next.score) return text("it has the highest score, ", best.score);
  const std::string same = text("of the highest score, ", best.score, ", ");
  if (is_on_host(best) != is_on_host(next)) return same + "it has memory of its own";
  if (best.memory_bytes != next.memory_bytes)
    return text(same, "it has the most memory, ", best.memory_bytes, " bytes");
  return same + "it is the first";
}

std::vector<std::size_t> choose_devices(const bp_provider& provider, const std::string& wanted,
                                        const Infos& infos) {
  if (wanted.empty()) return {best_device(infos)};
  if (wanted == "fastest") return {largest(infos, [&](std::size_t i) { return infos[i]->score; })};
  if (wanted == "least_power") return {least_power(provider, infos)};
  if (wanted == "most_memory") return {most_memory(provider, infos)};
  if (wanted.starts_with(kName))
    return {by_name(provider, std::string_view(wanted).substr(kName.size()), infos)};
  if (wanted != "all") return {by_index(provider, wanted, infos)};
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i]->score > 0) all.push_back(i);
  }
  if (all.empty())
    throw Error(Code::NotFound, text("no device of provider '", provider.name,
                                     "' can serve; it has ", names_of(infos)));
  return all;
}

}  // namespace backplane::core

#include "core/runtime/run_options.hpp"

#include <charconv>
#include <cstdint>
#include <system_error>
#include <vector>

#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

constexpr std::string_view kEntry = "entry.";

/// The option of type bool under a key; null for another key.
template <class Options>
auto switch_of(Options& options, const std::string& key) -> decltype(&options.synchronize) {
  if (key == "only_path_to_fetches") return &options.only_path_to_fetches;
  if (key == "shrink_arenas") return &options.shrink_arenas;
  if (key == "synchronize") return &options.synchronize;
  return nullptr;
}

[[noreturn]] void unknown_key(const std::string& key) {
  const std::vector<std::string> known = {"tag",           "log_level",   "only_path_to_fetches",
                                          "shrink_arenas", "synchronize", "timeout_ms",
                                          "entry.NAME"};
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  invalid("there is no run option ", quoted(key), did_you_mean(key, known), "; there are ", list);
}

/// A century; deadlines are counted in nanoseconds of 64 bits.
constexpr double kMostMs = 3.2e12;

std::optional<std::chrono::nanoseconds> read_timeout(const std::string& value) {
  if (value.empty()) return std::nullopt;
  double ms = 0;
  const char* const end = value.data() + value.size();
  const auto [after, error] = std::from_chars(value.data(), end, ms);
  if (error != std::errc() || after != end || !(ms >= 0 && ms <= kMostMs))
    invalid("run option 'timeout_ms': ", quoted(value),
            " is not a number of milliseconds from 0 to ", kMostMs, "; empty: no deadline");
  return std::chrono::nanoseconds(static_cast<std::int64_t>(ms * 1e6));
}

bool is_entry(const std::string& key) { return key.starts_with(kEntry) && key != kEntry; }

}  // namespace

void RunOptions::set(const std::string& key, const std::string& value) {
  if (key == "tag") {
    tag = value;
  } else if (key == "log_level") {
    log_level = value.empty() ? std::nullopt : std::optional(log_level_named(value));
  } else if (key == "timeout_ms") {
    timeout = read_timeout(value);
  } else if (bool* option = switch_of(*this, key)) {
    if (value != "true" && value != "false")
      invalid("run option '", key, "': ", quoted(value), " is not true or false");
    *option = value == "true";
  } else if (is_entry(key)) {
    entries[key.substr(kEntry.size())] = value;
  } else {
    unknown_key(key);
  }
}

std::string RunOptions::get(const std::string& key) const {
  if (key == "tag") return tag;
  if (key == "log_level") return log_level ? std::string(name(*log_level)) : "";
  if (key == "timeout_ms")
    return timeout ? text(std::chrono::duration<double, std::milli>(*timeout).count()) : "";
  if (const bool* option = switch_of(*this, key)) return *option ? "true" : "false";
  if (!is_entry(key)) unknown_key(key);
  const auto found = entries.find(key.substr(kEntry.size()));
  if (found == entries.end()) throw Error(Code::NotFound, "run option '" + key + "' is not set");
  return found->second;
}

}  // namespace backplane::core

#include "core/runtime/trace_log.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

namespace backplane::core {
namespace {

using Json = nlohmann::ordered_json;

/// Gives runs that overlap different numbers, from 0 on; what is outside of runs has 0.
std::map<std::uint64_t, std::size_t> tracks_of(const std::vector<Span>& spans) {
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> times;  // of runs
  for (const Span& span : spans) {
    if (span.run == 0) continue;
    const auto [place, added] = times.emplace(span.run, std::pair(span.begin_ns, span.end_ns));
    place->second.first = std::min(place->second.first, span.begin_ns);
    place->second.second = std::max(place->second.second, span.end_ns);
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> by_begin;
  for (const auto& [run, time] : times) by_begin.emplace_back(time.first, run);
  std::sort(by_begin.begin(), by_begin.end());
  std::map<std::uint64_t, std::size_t> tracks;
  std::vector<std::uint64_t> busy_until;
  for (const auto& [begin, run] : by_begin) {
    std::size_t track = 0;
    while (track < busy_until.size() && busy_until[track] > begin) ++track;
    if (track == busy_until.size()) busy_until.push_back(0);
    busy_until[track] = times[run].second;
    tracks[run] = track;
  }
  return tracks;
}

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1000.0; }

}  // namespace

std::uint64_t steady_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

TraceLog::Watch::~Watch() {
  try {
    log.add({name, "session", "session", begin_ns, steady_ns(), {}, 0});
  } catch (...) {  // a span is not worth a session
  }
}

void TraceLog::add(Span span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

void TraceLog::add(std::vector<Span> spans) {
  const std::lock_guard lock(mutex_);
  spans_.insert(spans_.end(), std::make_move_iterator(spans.begin()),
                std::make_move_iterator(spans.end()));
}

std::string TraceLog::take() {
  std::vector<Span> spans;
  {
    const std::lock_guard lock(mutex_);
    spans.swap(spans_);
  }
  // Chrome's format nests spans of a lane by their order: the outer one first.
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  const std::map<std::uint64_t, std::size_t> tracks = tracks_of(spans);
  const std::uint64_t origin = spans.empty() ? 0 : spans.front().begin_ns;
  Json events = Json::array();
  if (!spans.empty()) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", 0},
                      {"args", {{"name", "backplane"}}}});
  }
  std::map<std::pair<std::size_t, std::string>, int> lanes;
  for (const Span& span : spans) {
    const std::size_t track = span.run == 0 ? 0 : tracks.at(span.run);
    const auto [lane, added] =
        lanes.emplace(std::pair(track, span.lane), static_cast<int>(lanes.size()) + 1);
    if (added) {
      std::string name = span.lane;
      if (track > 0) name += " #" + std::to_string(track + 1);
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", 1},
                        {"tid", lane->second},
                        {"args", {{"name", std::move(name)}}}});
    }
    Json details = Json::object();
    for (const auto& [key, value] : span.details) details[key] = value;
    events.push_back({{"name", span.name},
                      {"cat", span.category},
                      {"ph", "X"},
                      {"ts", microseconds(span.begin_ns - origin)},
                      {"dur", microseconds(span.end_ns - span.begin_ns)},
                      {"pid", 1},
                      {"tid", lane->second},
                      {"args", std::move(details)}});
  }
  const Json json = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace backplane::core

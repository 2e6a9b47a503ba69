#include "tools/backplane/bench_sessions.hpp"

#include <cmath>
#include <fstream>
#include <unistd.h>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

/// Of the process: /proc/self/statm counts pages.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t arena_bytes(const Session& session) {
  std::uint64_t bytes = 0;
  const Json statistics = Json::parse(session.statistics());
  const Json arenas = statistics.value("arena_bytes", Json::object());
  for (const auto& [place, count] : arenas.items()) bytes += count.get<std::uint64_t>();
  return bytes;
}

double mb(std::uint64_t bytes) {
  return std::round(static_cast<double>(bytes) / (1 << 20) * 100) / 100;
}

}  // namespace

SessionMemory::SessionMemory() : before_(resident_bytes()) {}

void SessionMemory::add(const Session& session, const FeedSet& feeds) {
  as_run([&] { session.run(feeds.views()); });
  last_ = resident_bytes();
  if (count_++ == 0) {
    first_ = last_;
  } else {
    later_arenas_ += arena_bytes(session);
  }
}

Json SessionMemory::report() const {
  if (count_ < 2) return nullptr;
  const std::uint64_t one = first_ > before_ ? first_ - before_ : 0;
  const std::uint64_t all = last_ > before_ ? last_ - before_ : 0;
  const std::uint64_t shared = all > later_arenas_ ? all - later_arenas_ : 0;
  Json report = {{"sessions", count_},
                 {"one_mb", mb(one)},
                 {"all_mb", mb(all)},
                 {"arenas_mb", mb(later_arenas_)}};
  report["ratio"] =
      one > 0
          ? Json(std::round(static_cast<double>(shared) / static_cast<double>(one) * 1000) / 1000)
          : Json(nullptr);
  return report;
}

}  // namespace backplane::cli

// The memory that sessions of one model share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/feeds.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli {

/// Watches the process's resident memory while sessions are made.
class SessionMemory {
 public:
  /// Notes what the process has before the first session.
  SessionMemory();
  /// Runs a session once, so that it has all that it needs, and notes what the process has then.
  void add(const Session& session, const FeedSet& feeds);
  /// {"sessions","one_mb","all_mb","arenas_mb","ratio"}: of one session, of all, of the arenas of all but the first;
  /// and (all - arenas) / one. Null for fewer than two sessions.
  Json report() const;

 private:
  std::uint64_t before_ = 0, first_ = 0, last_ = 0, later_arenas_ = 0;
  std::size_t count_ = 0;
};

}  // namespace backplane::cli

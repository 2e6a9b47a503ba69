// Which feeds and fetches devices can work on where they lie, without a copy.
#pragma once

#include <cstdint>
#include <vector>

namespace backplane::core {

class Program;

/// What a program's placement allows.
struct HostViewPlaces {
  bool any = false;
  /// By feed and fetch: the alignment that its memory needs; 0: no device could view it.
  std::vector<std::uint64_t> feeds, fetches;
};

/// A feed can be viewed by the devices that share the host's memory and read it. A fetch by the one that makes it, where
/// nobody else reads it and it is fetched once.
HostViewPlaces find_host_views(const Program& program);

/// What the memory of one run's feeds and fetches allows besides: part of a plan's key. Empty: nothing.
struct HostViewWishes {
  std::vector<char> feeds, fetches;
};

}  // namespace backplane::core

// What multiprocessors of compute capability 9.0 do beside their items, on the processor: the words of
// plugins/cuda/kernels/tile_product.hpp that are the device's own instructions, so that all that is written in them runs as it stands. What
// takes its time there comes as late here as it may (warpgroup_memory.hpp, warpgroup_products.hpp), one group of a cluster is as far ahead
// of the others as it can be, and items that may go on do so in no fixed order. What waits for ever, or uses the words as a GPU leaves
// undefined, is the launch's fault.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/cuda/warpgroup_memory.hpp"
#include "tests/cuda/warpgroup_products.hpp"

namespace backplane::cuda {

/// Whether a kernel's text has these words, and what then stands before it: they call the functions of Warpgroups::words().
bool has_warpgroups(const std::string& source);
std::string warpgroup_words();

/// A cluster, whose groups run at once.
class Warpgroups {
 public:
  static Warpgroups& all() {
    static Warpgroups cluster;
    return cluster;
  }
  static void* const* words();

  void begin(unsigned groups, unsigned items, const Range& declared, std::uint32_t given_bytes);
  /// Does something that was put off, and that an item of the group waits for; false: there is nothing.
  bool go_on(unsigned group);
  void end_item();
  /// A reason why the cluster may not end, or nothing.
  std::string what_is_left() const;

  GroupMemory& memory(unsigned group) { return groups_[group].memory; }
  Warpgroup& team(unsigned group, unsigned item) {
    return groups_[group].teams[item / Warpgroup::kItems];
  }
  GroupMemory& memory() { return memory(Fibers::all().group()); }
  Warpgroup& team() { return team(Fibers::all().group(), Fibers::all().item()); }
  unsigned groups() const { return static_cast<unsigned>(groups_.size()); }

  /// At a barrier of a group's, by its number, that so many items come to.
  void meet(unsigned number, unsigned items);
  void reach_cluster();
  void await_cluster();

 private:
  struct Meeting {
    unsigned items = 0, come = 0, times = 0;
  };
  struct Group {
    GroupMemory memory;
    std::deque<Warpgroup> teams;
    std::array<Meeting, 64> meetings{};
    std::vector<unsigned> reached,
        awaited;  ///< how often each item did so with the cluster's barrier
  };
  bool have_all_reached(unsigned times) const;

  std::deque<Group> groups_;
  std::vector<unsigned> come_,
      ended_;           ///< items that reached the cluster's barrier so often, and that ended then
  unsigned items_ = 0;  ///< of all groups
};

}  // namespace backplane::cuda

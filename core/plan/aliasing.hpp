// Which slots share memory: views, work in place, and values produced inside others.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/step_builder.hpp"

namespace backplane::core {

/// Slots that share one piece of memory. Slot::offset is an offset into it.
struct Storage {
  int first_slot = -1, last_slot = -1;  ///< of Aliases::next_slot's chain; -1: nobody shares it
  int fresh_slot = -1;  ///< the first slot of the chain whose readers no writer in place waits for
  int root = -1;        ///< the slot that says where the memory is; its offset is 0
  std::uint64_t bytes = 0;
  std::uint64_t alignment = 64;
  int first = 0;  ///< the step that first writes it
  int last =
      0;  ///< the last step that reads or writes it; the number of steps when it outlives them
};

/// What aliasing decided: the storage of each slot (-1: a slot without memory), and steps that need not run.
struct Aliases {
  std::vector<Storage> storages;
  std::vector<int> storage_of;  ///< by slot
  std::vector<int> next_slot;   ///< by slot: another one of its storage; -1: it is the last
  std::vector<bool> dropped;    ///< by step: all its outputs are views
  /// (reader, writer): steps that only memory orders. The writer works in place on what the reader still reads. Control
  /// edges join them.
  std::vector<std::pair<int, int>> orders;
  /// (slot of a fetch, slot of what comes in): the program may give them one memory. The kernel that makes the one works in
  /// place on the other, which nothing else reads.
  std::vector<std::pair<int, int>> over_incoming;

  /// visit(slot) for each slot of a storage, in the order they joined it.
  template <class Visit>
  void each_slot(const Storage& storage, const Visit& visit) const {
    for (int slot = storage.first_slot; slot >= 0; slot = next_slot[static_cast<std::size_t>(slot)])
      visit(slot);
  }
};

/// Whether a tensor of these strides lies in memory as one without.
bool is_dense(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides);

/// Grants what can be granted of the kernels' wishes. Slots get places, offsets and strides; steps get
/// BP_INPUT_INSIDE bits.
Aliases find_aliases(SegmentDraft& draft);

}  // namespace backplane::core

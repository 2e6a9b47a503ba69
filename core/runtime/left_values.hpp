// What the segments of a run left for those after them.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/runtime/segment_context.hpp"

namespace backplane::core {

/// Values by their ids and spaces, where they lie in the contexts of segments that have run.
///
/// Threads: one, the run's.
class LeftValues {
 public:
  /// Where a value of an earlier segment lies; null when no segment left it in that space.
  const RuntimeValue* find(ValueId value, int space) const;
  /// What is left, for planning the next segment.
  std::vector<LiveValue> all() const;
  bool empty() const { return values_.empty(); }

  /// Notes what a segment, which has run, leaves for later ones, and empties what none of them needs any more.
  void leave(SegmentContext& context);
  /// The run has ended.
  void clear() { values_.clear(); }

 private:
  struct Left {
    const RuntimeValue* value;
    SegmentContext*
        owner;  ///< whose slot `slot` owns the memory that the value lies in; null: nobody's does
    int slot;
  };

  void forget(const LiveValue& live);

  std::map<std::pair<ValueId, int>, Left> values_;
};

}  // namespace backplane::core

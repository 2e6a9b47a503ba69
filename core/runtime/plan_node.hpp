// The plans of a program: a tree, since what is planned next depends on what running the last segment made known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/plan/segment.hpp"

namespace backplane::core {

/// What tells plans apart: types and dims of feeds, elements of those that shapes depend on.
using PlanKey = std::vector<std::int64_t>;

/// A planned segment and what came after it, by what became known.
struct PlanNode {
  std::shared_ptr<Segment> segment;
  std::size_t depth =
      0;  ///< of the arenas that it runs in: the first ones in which nothing lies that is still needed
  std::map<std::pair<ValueId, int>, std::size_t>
      in_arenas;  ///< what lies in arenas after it, by value and space, and their depth
  struct Next {
    PlanKey key;
    std::shared_ptr<PlanNode> node;
  };
  std::list<Next> next;  ///< the most recently used first, bounded
};

/// Decides in which arenas the plan that follows `from` runs, and what then lies in arenas.
void choose_arenas(PlanNode& node, const PlanNode& from);

}  // namespace backplane::core

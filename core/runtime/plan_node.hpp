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
#include "core/runtime/plan_key.hpp"

namespace backplane::core {

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

/// What follows under a key, moved to the front; null when there is nothing.
std::shared_ptr<PlanNode> find_next(PlanNode& from, const PlanKey& key);

/// Decides in which arenas the plan that follows `from` runs, and what then lies in arenas.
void choose_arenas(PlanNode& node, const PlanNode& from);

}  // namespace backplane::core

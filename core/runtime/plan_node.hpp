// The plans of a program: a tree, since what is planned next depends on what running the last segment made known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/segment.hpp"
#include "core/runtime/plan_key.hpp"

namespace backplane::core {

struct PlanNode;

/// Plans by their keys, the most recently used first.
class PlanList {
 public:
  struct Entry {
    PlanKey key;
    std::shared_ptr<PlanNode> node;
  };
  /// The plan of a key, moved to the front; null when there is none.
  std::shared_ptr<PlanNode> find(const PlanKey& key);
  /// `entry` has a key that is not there.
  void push_front(Entry entry);
  /// Takes the one that was used least recently; there is one.
  Entry take_back();
  const Entry& front() const { return entries_.front(); }
  const Entry& back() const { return entries_.back(); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::list<Entry> entries_;
  std::unordered_multimap<std::size_t, std::list<Entry>::iterator> places_;  ///< by the key's hash
};

/// A planned segment and what came after it, by what became known.
struct PlanNode {
  std::shared_ptr<Segment> segment;
  std::size_t depth =
      0;  ///< of the arenas that it runs in: the first ones in which nothing lies that is still needed
  std::map<std::pair<ValueId, int>, std::size_t>
      in_arenas;  ///< what lies in arenas after it, by value and space, and their depth
  PlanList next;  ///< bounded
};

/// Plans of any program that are kept where no number was given.
inline constexpr std::size_t kLeastPlans = 16;

/// How many plans are kept, one of which is `segment`: `given`, where it is not 0. Planning costs by the step, and so does what
/// is kept of it, while the shapes of a program's runs are as many whatever it has of steps.
std::size_t kept_plans(std::size_t given, const Segment& segment);

/// Decides in which arenas the plan that follows `from` runs, and what then lies in arenas.
void choose_arenas(PlanNode& node, const PlanNode& from);

}  // namespace backplane::core

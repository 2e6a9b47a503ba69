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

/// Plans by their keys: first those that nobody has asked for since they were made, then the others, of each the most
/// recent first. Plans that go are remembered for a while, so that shapes that come again are known.
class PlanList {
 public:
  struct Entry {
    PlanKey key;
    std::shared_ptr<PlanNode> node;
    std::uint64_t used = 0;  ///< in look-ups
  };
  using Place = std::list<Entry>::iterator;

  PlanList() = default;
  PlanList(const PlanList&) = delete;
  PlanList& operator=(const PlanList&) = delete;

  /// The plan of a key, which comes again; null when there is none.
  std::shared_ptr<PlanNode> find(const PlanKey& key);
  /// `entry` has a key that is not there.
  void push_front(Entry entry);
  Entry take(Place place);
  /// The one that was used least recently; there is one.
  Place oldest();
  /// The look-up in which a plan for this key was used last before it went; 0: none is known.
  std::uint64_t last_use_of_gone(const PlanKey& key) const;
  const Entry& front() const { return entries_.front(); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  /// Those that nobody has asked for since they were made are the ones up to here.
  Place begin() { return entries_.begin(); }
  Place asked_for() { return asked_for_; }

 private:
  struct Gone {
    std::size_t hash = 0;
    std::uint64_t used = 0;
  };

  std::list<Entry> entries_;
  Place asked_for_ = entries_.end();                    ///< the first that comes again
  std::unordered_multimap<std::size_t, Place> places_;  ///< by the key's hash
  std::uint64_t look_ups_ = 0;
  std::vector<Gone> gone_;  ///< by hash; a later one takes the place of an earlier one
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

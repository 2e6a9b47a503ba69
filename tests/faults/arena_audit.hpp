// Whether the memory of a plan holds what it should: values that live at the same time lie apart, and what is dead is
// read by nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/executable.hpp"

namespace backplane::core::faults {

/// Finds out anew, from the steps alone, from when to when each piece of arena memory holds something.
///
/// A piece are the slots that share bytes on purpose: a value written over an input of the step that makes it, a view,
/// what lies inside a concatenation. What a body reads and what it makes never share bytes, and nothing is written over
/// what is read again. Lifetime: borrows both.
class ArenaAudit {
 public:
  ArenaAudit(const Program& program, const Segment& segment);

  /// Two pieces that live at the same time on the same bytes, or what is written over too early, in words; "" when there
  /// is nothing.
  std::string overlap() const;

  /// Makes `segment`, a plan like the audited one, fill each piece with NaN before it is first written and after it is
  /// last read, and each workspace before its step. All steps are put in one order, so nothing races.
  void poison(Segment& segment) const;

 private:
  /// Arena memory from one step to another, both included.
  struct Piece {
    int arena = -1;
    std::uint64_t begin = 0, end = 0;
    int first = -1, last = -1;
    std::string name;
  };
  class Joiner;
  class Kin;
  class Poisoner;
  void find_overwritten(const Segment& segment);

  const Program& program_;
  std::vector<Piece> pieces_;
  std::string overwritten_;
};

/// The plans that an executable and the bodies in it, and in those, have made so far: for each set of shapes, and each
/// segment. What a turn or a branch runs is among them. While no run is in flight.
class PlanAudit {
 public:
  explicit PlanAudit(const Executable& executable);

  /// Of which there are more after a run that found no plan.
  std::size_t plan_count() const { return plans_.size(); }
  std::size_t body_plan_count() const { return body_plan_count_; }
  /// See ArenaAudit::overlap; with the scope of the body.
  std::string overlap() const;
  /// Changes the plans themselves as ArenaAudit::poison does. The session keeps no memory of runs (option "arena"), and
  /// so no contexts of what they were before.
  void poison() const;

  struct Plan {
    std::shared_ptr<Generation> generation;
    std::shared_ptr<Segment> segment;
    const std::string& scope() const { return generation->program->context().scope; }
    bool is_of_body() const { return generation->program->context().body != nullptr; }
  };
  /// The main graph's first.
  const std::vector<Plan>& plans() const { return plans_; }

 private:
  void add(const Executable& executable);
  void add_plans(const std::shared_ptr<Generation>& generation, const PlanNode& plan);

  std::vector<Plan> plans_;
  std::size_t body_plan_count_ = 0;
};

}  // namespace backplane::core::faults

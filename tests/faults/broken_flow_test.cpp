// Plans of bodies, broken on purpose: proof that what random_placement_test looks at control flow with sees a copy too
// few or too many, and values that share memory.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/faults/arena_audit.hpp"
#include "tests/faults/broken_steps.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/faults/flow_copies.hpp"
#include "tests/faults/network.hpp"
#include "tests/faults/random_flow.hpp"

namespace backplane::core::faults {
namespace {

/// A loop over three devices with a branch in it, and a scan: all nodes are on devices that the next one is not on.
const char* const kFlow = R"(<ir_version: 8, opset_import: ["" : 17]>
  flow (float[4,16] x0, float[4,16] x1, float[3,4,16] xs, float c, float t)
      => (float[4,16] y, float[?,4,16] all, float[4,16] z, float[?,4,16] sums)
      <float zero = {0.0}, bool yes = {1}> {
    [cond] cond = Greater (c, zero)
    [trips] trips = Cast <to = 7> (t)
    [k] k = Neg (x1)
    [loop] y, all = Loop (trips, yes, x0) <body = turns
        (int64 i, bool go, float[4,16] v) => (bool on, float[4,16] w, float[4,16] slice) {
      [u] u = Tanh (v)
      [p] p = Sigmoid (u)
      [q] q = Mul (u, p)
      [if] r = If (cond) <
        then_branch = yes_branch () => (float[4,16] r1) { [r0] r0 = Add (q, k)  [r1] r1 = Add (r0, u) },
        else_branch = no_branch () => (float[4,16] r2) { [r2] r2 = Abs (q) }>
      [w] w = Sub (r, u)
      [slice] slice = Sigmoid (w)
      [on] on = Identity (go)
    }>
    [scan] z, sums = Scan <num_scan_inputs = 1, body = walk
        (float[4,16] s, float[4,16] e) => (float[4,16] next, float[4,16] sum) {
      [d] d = Tanh (e)
      [next] next = Add (s, d)
      [sum] sum = Neg (next)
    }> (y, xs)
  })";
const Placement kFlowPlaces{{"k", "cpu"},        {"u", "fakegpu:0"},    {"p", "cpu"},
                            {"q", "fakegpu:1"},  {"r0", "fakegpu:1"},   {"r1", "fakegpu:0"},
                            {"r2", "fakegpu:1"}, {"w", "fakegpu:0"},    {"slice", "fakegpu:1"},
                            {"d", "fakegpu:1"},  {"next", "fakegpu:0"}, {"sum", "cpu"}};
const std::vector<std::string> kFlowDevices{"fakegpu:0", "fakegpu:1", "cpu"};

bool operator==(const Copies& a, const Copies& b) {
  return a.to_device == b.to_device && a.to_host == b.to_host && a.peer == b.peer &&
         a.bytes == b.bytes && a.within == b.within && a.bytes_within == b.bytes_within;
}

/// One session, whose plans can be changed after a run.
class ChangedSession {
 public:
  ChangedSession()
      : flow_(kFlow, {{"x0", random_tensor({4, 16}, 1)},
                      {"x1", random_tensor({4, 16}, 2)},
                      {"xs", random_tensor({3, 4, 16}, 3)},
                      {"c", {{}, {1}}},
                      {"t", {{}, {3}}}}),
        want_(run_on_cpu(flow_.model(), flow_.feeds())),
        session_(flow_.model(), kFlowPlaces, {{"delay_us", "0"}}, kFlowDevices,
                 [](SessionOptions& options) { options.arena = false; }) {
    EXPECT_EQ(run(), "") << "as it was planned";
    std::vector<std::string> feeds;
    for (const auto& [name, tensor] : flow_.feeds()) feeds.push_back(name);
    route_ = session_.core().route(feeds, {});
  }

  /// What is wrong with a run; "" when nothing is.
  std::string run() {
    fakegpu().reset();
    try {
      const std::string wrong = difference(session_.run(flow_.feeds()), want_);
      return wrong.empty() ? findings() : wrong;
    } catch (const Error& error) {
      return error.message();
    }
  }
  /// Those of the last run.
  static Copies counted() {
    const fakegpu_counters now = counters();
    return {now.copies_h2d,  now.copies_d2h,
            now.copies_peer, now.bytes_h2d + now.bytes_d2h + now.bytes_peer,
            now.copies_d2d,  now.bytes_d2d};
  }
  Copies expected() {
    Placement places;
    for (const auto& [node, provider] :
         Network::places(nlohmann::json::parse(session_.core().explain())))
      places[bare(node)] = provider == "cpu" ? "host" : provider;
    return FlowCopies(flow_, places, kFlowDevices, false).copies();
  }
  PlanAudit audit() const { return PlanAudit(*route_.executable); }
  /// The plan of a body that runs.
  Segment& body(std::size_t index) const { return *bodies().at(index); }
  std::vector<std::shared_ptr<Segment>> bodies() const {
    std::vector<std::shared_ptr<Segment>> found;
    const PlanAudit all = audit();
    for (const PlanAudit::Plan& plan : all.plans()) {
      if (plan.is_of_body() && plan.scope().find("else_branch") == std::string::npos)
        found.push_back(plan.segment);
    }
    return found;
  }

 private:
  RandomFlow flow_;
  Tensors want_;
  MixedSession session_;
  Session::Route route_;
};

/// Where a step of a body is.
struct Spot {
  std::size_t body, step;
};

class BrokenFlow : public FaultTest {
 protected:
  static std::vector<Spot> steps_of_kind(const ChangedSession& session,
                                         const std::vector<StepKind>& kinds) {
    std::vector<Spot> spots;
    const std::vector<std::shared_ptr<Segment>> bodies = session.bodies();
    for (std::size_t body = 0; body < bodies.size(); ++body) {
      for (std::size_t step = 0; step < bodies[body]->steps.size(); ++step) {
        if (std::count(kinds.begin(), kinds.end(), bodies[body]->steps[step].kind) > 0)
          spots.push_back({body, step});
      }
    }
    return spots;
  }
};

TEST_F(BrokenFlow, UnbrokenPlansPassEveryAudit) {
  ChangedSession session;
  EXPECT_EQ(session.run(), "");
  EXPECT_TRUE(ChangedSession::counted() == session.expected());
  EXPECT_EQ(session.audit().overlap(), "");
  EXPECT_EQ(session.bodies().size(), 3u) << "a loop's, a branch's, a scan's";
  session.audit().poison();
  EXPECT_EQ(session.run(), "");
}

TEST_F(BrokenFlow, EveryCopyTooMuchIsCounted) {
  const std::vector<Spot> spots = steps_of_kind(ChangedSession(), {StepKind::Copy});
  EXPECT_GE(spots.size(), 8u);
  for (const Spot& spot : spots) {
    ChangedSession session;
    const std::string label = session.body(spot.body).steps[spot.step].label;
    repeat_copy(session.body(spot.body), spot.step);
    EXPECT_EQ(session.run(), "") << "twice the same: " << label;
    EXPECT_FALSE(ChangedSession::counted() == session.expected()) << label;
  }
}

TEST_F(BrokenFlow, EveryCopyTooFewIsCounted) {
  for (const Spot& spot : steps_of_kind(ChangedSession(), {StepKind::Copy})) {
    ChangedSession session;
    const std::string label = session.body(spot.body).steps[spot.step].label;
    remove_step(session.body(spot.body), spot.step);
    session.run();
    EXPECT_FALSE(ChangedSession::counted() == session.expected()) << label;
  }
}

/// What is not brought into an arena is what was there before: often that of the turn before, which may be right.
TEST_F(BrokenFlow, ReadingDeadMemoryOfABodyIsSeenWhereThatIsPoisoned) {
  for (const Spot& spot : steps_of_kind(ChangedSession(), {StepKind::Copy, StepKind::HostCopy})) {
    ChangedSession session;
    const std::string label = session.body(spot.body).steps[spot.step].label;
    remove_step(session.body(spot.body), spot.step);
    session.audit().poison();
    EXPECT_NE(session.run(), "") << label;
  }
}

/// Puts a slot where another one is.
class Moved {
 public:
  Moved(Segment& segment, int moved, int onto) : slot_(segment.slot(moved)), offset_(slot_.offset) {
    slot_.offset = segment.slot(onto).offset;
  }
  ~Moved() { slot_.offset = offset_; }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

 private:
  Slot& slot_;
  std::uint64_t offset_;
};

bool are_apart(const Segment& segment, int a, int b) {
  if (a < 0 || b < 0 || a == b) return false;
  const Slot& first = segment.slot(a);
  const Slot& second = segment.slot(b);
  return first.place == Place::Arena && second.place == Place::Arena &&
         first.arena == second.arena && first.state->bytes > 0 && second.state->bytes > 0 &&
         first.offset != second.offset;
}

TEST_F(BrokenFlow, TwoInputsOfAStepOnTheSameBytesAreSeen) {
  const ChangedSession session;
  const PlanAudit whole = session.audit();
  std::size_t broken = 0;
  for (const PlanAudit::Plan& plan : whole.plans()) {
    Segment& segment = *plan.segment;
    for (const Step& step : segment.steps) {
      for (const int a : step.inputs) {
        for (const int b : step.inputs) {
          if (!are_apart(segment, a, b)) continue;
          ++broken;
          const Moved moved(segment, a, b);
          EXPECT_NE(session.audit().overlap(), "") << plan.scope() << " " << step.label;
        }
      }
    }
  }
  EXPECT_GE(broken, 6u);
  EXPECT_EQ(session.audit().overlap(), "") << "all is where it was";
}

/// A body reads what it captured after it has made a part of its result.
TEST_F(BrokenFlow, AResultOfABodyOverWhatItReadsIsSeen) {
  const ChangedSession session;
  const PlanAudit whole = session.audit();
  std::size_t broken = 0;
  for (const PlanAudit::Plan& plan : whole.plans()) {
    Segment& segment = *plan.segment;
    for (const Step& step : segment.steps) {
      if (step.kind != StepKind::Control) continue;
      for (const int input : step.inputs) {
        for (const int output : step.outputs) {
          if (!are_apart(segment, input, output)) continue;
          ++broken;
          const Moved moved(segment, output, input);
          EXPECT_NE(session.audit().overlap(), "") << plan.scope() << " " << step.label;
        }
      }
    }
  }
  EXPECT_GE(broken, 1u);
}

}  // namespace
}  // namespace backplane::core::faults

// Plans with a copy or a wait taken out: the fake devices must see it. Proof that the other tests of this folder would
// notice a copy or a fence that the core forgets.
#include <algorithm>
#include <functional>

#include "core/plan/segment.hpp"
#include "core/runtime/run_context.hpp"
#include "tests/faults/broken_steps.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

constexpr float kUntouched = 12345.0f;

struct Case {
  std::string model;
  Placement placement;
};

/// fakegpu:0, then the cpu, then fakegpu:1, which also reads what fakegpu:0 made.
Case over_the_cpu() {
  ModelMaker maker;
  maker.input("x", {8, 8});
  maker.node("first", "Tanh", {"x"}, "a")
      .node("second", "Neg", {"a"}, "b")
      .node("third", "Mul", {"a", "b"}, "c");
  maker.node("fourth", "Sigmoid", {"c"}, "d").node("fifth", "Add", {"d", "a"}, "y");
  return {maker.output("y").bytes(),
          {{"first", "fakegpu:0"},
           {"second", "cpu"},
           {"third", "fakegpu:1"},
           {"fourth", "cpu"},
           {"fifth", "fakegpu:0"}}};
}

/// From device to device and back.
Case to_and_fro() {
  ModelMaker maker;
  maker.input("x", {8, 8});
  maker.node("first", "Tanh", {"x"}, "a")
      .node("second", "Sigmoid", {"a"}, "b")
      .node("third", "Mul", {"a", "b"}, "y");
  return {maker.output("y").bytes(),
          {{"first", "fakegpu:0"}, {"second", "fakegpu:1"}, {"third", "fakegpu:0"}}};
}

using Breakage = std::function<void(Segment&)>;

/// Plans the model anew, breaks the plan, and runs it as a session would.
class BrokenPlan : public FaultTest {
 protected:
  void open(const Case& chosen, const char* peer, const char* delay_us,
            const char* host_copy = "none") {
    feeds_ = {{"x", random_tensor({8, 8}, 4)}};
    want_ = run_on_cpu(chosen.model, feeds_);
    session_ = std::make_unique<MixedSession>(
        chosen.model, chosen.placement,
        ProviderOptions{{"peer", peer}, {"delay_us", delay_us}, {"host_copy", host_copy}});
    generation_ = session_->core().route({"x"}, {"y"}).executable->generation();
  }
  void TearDown() override {
    generation_ = nullptr;
    session_ = nullptr;
    FaultTest::TearDown();
  }

  std::unique_ptr<Segment> plan() {
    Program& program = *generation_->program;
    ValueStates states(program.graph().value_count());
    const ValueId x = program.feeds().at(0);
    states[x] = tensor_state(DataType::Float, {8, 8});
    return plan_segment(program, 0, std::move(states), {{x, kHostSpace, -1}}, {false});
  }

  /// What is wrong with a run of the broken plan; "" when it ran and its result is right.
  std::string run(const Breakage& breakage) {
    fakegpu().reset();
    std::shared_ptr<Segment> segment = plan();
    breakage(*segment);
    Program& program = *generation_->program;
    RuntimeValue feed, fetch;
    feed.set_owned_tensor(DataType::Float, {8, 8});
    std::copy(feeds_["x"].elements.begin(), feeds_["x"].elements.end(),
              static_cast<float*>(feed.description.host_ptr));
    fetch.set_owned_tensor(DataType::Float, {8, 8});
    std::fill_n(static_cast<float*>(fetch.description.host_ptr), 64, kUntouched);
    RunContext context(program, program.context().threads, 4, false);
    std::string problem;
    try {
      context.start(1, {});
      context.run(segment, 0, {&feed}, {&fetch});
    } catch (const Error& error) {
      problem = error.message();
    }
    context.finish();
    const auto* first = static_cast<const float*>(fetch.description.host_ptr);
    if (problem.empty()) problem = difference({{"y", {{8, 8}, {first, first + 64}}}}, want_);
    return problem;
  }

  Tensors feeds_, want_;
  std::unique_ptr<MixedSession> session_;
  std::shared_ptr<Generation> generation_;
};

/// Steps that wait for something that nobody before them waited for (the host does the waiting for all streams).
std::vector<std::size_t> needed_waits(const Segment& segment) {
  std::map<int, int> waited;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < segment.steps.size(); ++i) {
    bool is_new = false;
    for (const Wait& wait : segment.steps[i].waits) {
      const auto known = waited.find(wait.stream);
      is_new = is_new || known == waited.end() || known->second < wait.step;
      waited[wait.stream] = std::max(wait.step, known == waited.end() ? -1 : known->second);
    }
    if (is_new) found.push_back(i);
  }
  return found;
}

/// What these tests do on purpose is what the thread sanitizer stops a program for.
#ifdef BACKPLANE_SANITIZED_THREAD
constexpr bool kRacesAreFatal = true;
#else
constexpr bool kRacesAreFatal = false;
#endif

TEST_F(BrokenPlan, AnUnbrokenPlanRuns) {
  for (const Case& chosen : {over_the_cpu(), to_and_fro()}) {
    for (const char* const peer : {"false", "true"}) {
      open(chosen, peer, "50");
      EXPECT_EQ(run([](Segment&) {}), "");
      EXPECT_EQ(findings(), "");
    }
  }
}

TEST_F(BrokenPlan, EveryMissingCopyIsSeen) {
  if (kRacesAreFatal) GTEST_SKIP() << "a plan without it races";
  for (const Case& chosen : {over_the_cpu(), to_and_fro()}) {
    for (const char* const host_copy : {"none", "async"}) {
      const char* const peer = host_copy[0] == 'n' ? "true" : "false";
      open(chosen, peer, "5", host_copy);
      const std::unique_ptr<Segment> whole = plan();
      std::size_t on_stream = 0;
      for (std::size_t i = 0; i < whole->steps.size(); ++i) {
        if (whole->steps[i].kind == StepKind::Compute) continue;
        on_stream += whole->steps[i].kind == StepKind::Copy ? 1 : 0;
        EXPECT_NE(run([i](Segment& segment) { remove_step(segment, i); }), "")
            << "without the step " << whole->steps[i].label << ", peer=" << peer;
      }
      EXPECT_EQ(on_stream, whole->copies.size());
      EXPECT_GE(on_stream, 4u);
      EXPECT_EQ(run([](Segment&) {}), "") << "the plan is right again";
    }
  }
}

TEST_F(BrokenPlan, EveryMissingWaitIsSeen) {
  if (kRacesAreFatal) GTEST_SKIP() << "a plan without it races";
  std::size_t missing = 0;
  for (const char* const host_copy : {"none", "async"}) {
    open(over_the_cpu(), "false", "20000", host_copy);
    const std::unique_ptr<Segment> whole = plan();
    for (const std::size_t step : needed_waits(*whole)) {
      ++missing;
      std::string problem;  // a stream may happen to draw a delay near 0
      for (int attempt = 0; attempt < 3 && problem.empty(); ++attempt)
        problem = run([step](Segment& segment) { segment.steps[step].waits.clear(); });
      EXPECT_NE(problem, "") << "step " << step << ": " << whole->steps[step].label
                             << ", host_copy=" << host_copy;
    }
  }
  EXPECT_GE(missing, 5u);
}

/// A fence between two streams: found by the order of events, so without delays too.
TEST_F(BrokenPlan, AMissingFenceBetweenDevicesIsARace) {
  if (kRacesAreFatal) GTEST_SKIP() << "a plan without it races";
  open(to_and_fro(), "true", "0");
  const std::unique_ptr<Segment> whole = plan();
  std::size_t missing = 0;
  for (const std::size_t i : needed_waits(*whole)) {
    const Step& step = whole->steps[i];
    const auto on_other = [&](const Wait& wait) {
      return step.on_stream && wait.stream != step.device;
    };
    if (!std::any_of(step.waits.begin(), step.waits.end(), on_other)) continue;
    ++missing;
    EXPECT_NE(run([i](Segment& segment) { segment.steps[i].waits.clear(); }), "") << step.label;
    EXPECT_GT(counters().races + counters().uninitialized, 0u) << step.label;
  }
  EXPECT_EQ(missing, 2u) << "second waits for fakegpu:0, third for fakegpu:1";
}

}  // namespace
}  // namespace backplane::core::faults

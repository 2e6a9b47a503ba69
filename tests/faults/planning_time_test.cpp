// How long it takes to plan 3,000 nodes on four devices; the figures are printed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

constexpr int kNodes = 3000;
constexpr int kTurns = 7;
const char* const kDevices[] = {"cpu", "fakegpu:0", "fakegpu:1", "fakegpu:2"};

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + kTurns / 2, times.end());
  return times[kTurns / 2];
}

/// Ten branches that are added up now and then; runs of six nodes on one device, the next run on the next one.
std::string wide_model() {
  ModelMaker maker;
  maker.input("x", {4, 64});
  std::vector<std::string> ends(10, "x");
  static const char* const kOps[] = {"Relu", "Tanh", "Neg", "Abs", "Sigmoid"};
  for (int i = 0; i < kNodes; ++i) {
    const std::string made = i + 1 == kNodes ? "y" : text("v", i);
    const std::string node = text("d", i / 6 % 4, "_", i);
    const auto branch = static_cast<std::size_t>(i) % ends.size();
    if (i % 7 == 6) {
      maker.node(node, "Add", {ends[branch], ends[(branch + 1) % ends.size()]}, made);
    } else {
      maker.node(node, kOps[i % 5], {ends[branch]}, made);
    }
    ends[branch] = made;
  }
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) maker.output(ends[i]);
  return maker.output("y").bytes();
}

/// By rules that spread the nodes, and by cost, which asks every device for every node.
void measure(const char* what, const Placement& rules, PlacementPolicy policy) {
  std::vector<double> placing, planning;
  std::size_t copies = 0;
  const std::string model = wide_model();
  const Tensors feeds{{"x", random_tensor({4, 64}, 1)}};
  MixedSession session(model, rules, {{"delay_us", "0"}},
                       {"fakegpu:0", "fakegpu:1", "fakegpu:2", "cpu"},
                       [&](SessionOptions& options) {
                         options.placement_policy = policy;
                         options.copy_rates = "off";
                       });
  const std::shared_ptr<Generation> generation =
      session.core().route({"x"}, {}).executable->generation();
  Program& program = *generation->program;
  ValueStates states(program.graph().value_count());
  const ValueId x = program.feeds().at(0);
  states[x] = tensor_state(DataType::Float, {4, 64});
  for (int turn = 0; turn < kTurns; ++turn) {
    auto start = std::chrono::steady_clock::now();
    Refusals refusals;
    const Program again(program.context(), session.core().route({"x"}, {}).executable->cut(),
                        refusals);
    placing.push_back(milliseconds_since(start));
    start = std::chrono::steady_clock::now();
    const auto segment = plan_segment(program, 0, states, {{x, kHostSpace, -1}},
                                      std::vector<bool>(program.fetches().size()));
    planning.push_back(milliseconds_since(start));
    copies = segment->copies.size();
    EXPECT_TRUE(segment->is_last);
  }
  std::printf(
      "%s: %d nodes, 4 devices, %zu copies: placing and kernels %.1f ms, planning %.1f ms\n", what,
      kNodes, copies, median(placing), median(planning));
  EXPECT_LT(median(placing) + median(planning), 2000) << "planning has become quadratic";
}

class PlanningTime : public FaultTest {
 public:
  // Before the plugin counts its devices.
  static void SetUpTestSuite() { ::setenv("BACKPLANE_FAKEGPU_DEVICES", "3", 1); }
};

TEST_F(PlanningTime, ThreeThousandNodesOnFourDevices) {
  Placement rules;
  for (int device = 0; device < 4; ++device) rules[text("d", device, "_*")] = kDevices[device];
  measure("by rules", rules, PlacementPolicy::Priority);
  measure("by cost", {}, PlacementPolicy::Cost);
}

}  // namespace
}  // namespace backplane::core::faults

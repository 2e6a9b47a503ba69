// If, Loop and Scan on the cpu.
#include <atomic>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "core/runtime/executable.hpp"
#include "tests/control_flow/flow_session.hpp"

namespace backplane::core::flow {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kIf = R"(<ir_version: 8, opset_import: ["" : 17]>
  g (bool c, float[2] x) => (float[2] y) {
    d = Mul (x, x)
    y = If (c) <
      then_branch = a () => (float[2] t) { t = Add (x, d) },
      else_branch = b () => (float[2] e) { e = Sub (x, d) }>
  })";

TEST(ControlFlow, T4IfRunsTheBranchOfItsCondition) {
  FlowSession session(kIf);
  const Values x{{"x", floats({2}, {1, 3})}};
  for (const bool condition : {true, false, true}) {
    Values feeds = x;
    feeds["c"] = boolean(condition);
    const Values results = session.run(feeds);
    if (condition) {
      EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(2, 12));
    } else {
      EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(0, -6));
    }
  }
  // Both branches make the same shape, so the graph is one segment.
  EXPECT_EQ(session.plan_count(), 1u);
}

TEST(ControlFlow, T4IfWithBranchesOfOtherShapes) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[2] x) => (float[N] z) {
      y = If (c) <
        then_branch = a () => (float[2] t) { t = Neg (x) },
        else_branch = b () => (float[4] e) { e = Concat <axis = 0> (x, x) }>
      z = Abs (y)
    })");
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(true)}, {"x", floats({2}, {1, -2})}}).at("z")),
              ElementsAre(1, 2));
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(false)}, {"x", floats({2}, {1, -2})}}).at("z")),
              ElementsAre(1, 2, 1, 2));
}

TEST(ControlFlow, T4ABranchThatDoesNotFitSaysNothingOfTheOutputs) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[N, M] x) => (float[A, B] z) {
      y = If (c) <
        then_branch = a () => (float[I, J] t) { t = Identity (x) },
        else_branch = b () => (float[K, L] e) {
          w = Constant <value = float[2, 2] {1.0, 1.0, 1.0, 1.0}> ()
          e = MatMul (x, w) }>
      z = Abs (y)
    })");
  const RuntimeValuePtr wide = floats({1, 3}, {-1, 2, -3}), square = floats({1, 2}, {-1, 2});
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(true)}, {"x", wide}}).at("z")),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(false)}, {"x", square}}).at("z")),
              ElementsAre(1, 1));
  try {
    session.run({{"c", boolean(false)}, {"x", wide}});
    FAIL() << "the branch was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("MatMul"));
  }
}

TEST(ControlFlow, T4ABranchWhoseShapeArithmeticFailsSaysNothingEither) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[N, M] x) => (float[A, B] y) {
      y = If (c) <
        then_branch = a () => (float[I, J] t) {
          third = Constant <value_ints = [2]> ()
          shape = Shape (x)
          size = Gather (shape, third)
          t = Expand (x, size) },
        else_branch = b () => (float[K, L] e) { e = Neg (x) }>
    })");
  const RuntimeValuePtr x = floats({1, 3}, {-1, 2, -3});
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(false)}, {"x", x}}).at("y")),
              ElementsAre(1, -2, 3));
  EXPECT_THROW(session.run({{"c", boolean(true)}, {"x", x}}), Error);
}

TEST(ControlFlow, T4BranchesHandOnWhatTheyCapture) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[2] x) => (float[2] y, float[2] z) {
      d = Neg (x)
      y, z = If (c) <
        then_branch = a () => (float[2] x, float[2] x) { unused = Abs (x) },
        else_branch = b () => (float[2] d, float[2] w) <float[2] w = {7, 8}> { }>
    })");
  Values results = session.run({{"c", boolean(true)}, {"x", floats({2}, {1, 2})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(1, 2));
  EXPECT_THAT(floats_of(*results.at("z")), ElementsAre(1, 2));
  results = session.run({{"c", boolean(false)}, {"x", floats({2}, {1, 2})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(-1, -2));
  EXPECT_THAT(floats_of(*results.at("z")), ElementsAre(7, 8));
}

TEST(ControlFlow, T4ConstantConditionPutsTheBranchInPlace) {
  const char* const text = R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <bool c = {1}> {
      t = Neg (x)
      y = If (c) <
        then_branch = a () => (float[2] s) { t = Add (x, x)  s = Mul (t, x) },
        else_branch = b () => (float[2] e) { e = Sub (x, x) }>
    })";
  FlowSession session(text);
  EXPECT_THAT(floats_of(*session.run({{"x", floats({2}, {1, 3})}}).at("y")), ElementsAre(2, 18));
  const auto order = nlohmann::json::parse(session.core().explain())["order"];
  EXPECT_EQ(order.size(), 2u) << order;  // Add and Mul, no If
  FlowSetup plain;
  plain.optimization = OptimizationLevel::None;
  EXPECT_THAT(floats_of(*FlowSession(text, plain).run({{"x", floats({2}, {1, 3})}}).at("y")),
              ElementsAre(2, 18));
}

TEST(ControlFlow, T4ConditionOnAShapeIsKnownWhilePlanning) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 2] x) => (float[M] y) <int64[1] one = {1}, int64[1] zero = {0}> {
      dims = Shape (x)
      rows = Gather (dims, zero)
      single = Equal (rows, one)
      [choice] y = If (single) <
        then_branch = a () => (float[2] t) { t = Squeeze (x, zero) },
        else_branch = b () => (float[K] e) { e = ReduceSum <keepdims = 0> (x, zero) }>
    })");
  const auto label = [&] {
    const auto explanation = nlohmann::json::parse(session.core().explain());
    for (const auto& row : explanation["nodes"]) {
      if (row["name"] == "choice") return row["kernel"].get<std::string>();
    }
    return std::string();
  };
  EXPECT_THAT(floats_of(*session.run({{"x", floats({1, 2}, {1, 2})}}).at("y")), ElementsAre(1, 2));
  EXPECT_THAT(label(), HasSubstr("always its then_branch"));
  EXPECT_THAT(floats_of(*session.run({{"x", floats({2, 2}, {1, 2, 3, 4})}}).at("y")),
              ElementsAre(4, 6));
  EXPECT_THAT(label(), HasSubstr("always its else_branch"));
}

TEST(ControlFlow, T4FunctionsOfTheModelMayHoldControlFlow) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (bool c, float[2] x) => (float[2] y) {
      y = local.choose (c, x)
    }
    <domain: "local", opset_import: ["" : 17]>
    choose (c, v) => (r) {
      n = Neg (v)
      r = If (c) <
        then_branch = a () => (float[N] t) { t = Sub (v, n) },
        else_branch = b () => (float[N] e) { e = Mul (v, n) }>
    })");
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(true)}, {"x", floats({2}, {1, 3})}}).at("y")),
              ElementsAre(2, 6));
  EXPECT_THAT(floats_of(*session.run({{"c", boolean(false)}, {"x", floats({2}, {1, 3})}}).at("y")),
              ElementsAre(-1, -9));
}

TEST(ControlFlow, T4FunctionBodiesStandInForKernels) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (seq(float[N]) s, float[1] x) => (float[M] y) {
      [map] t = SequenceMap (s) <body = b (float[N] e) => (float[N] f) { d = Add (e, x)  f = Mul (d, d) }>
      y = ConcatFromSequence <axis = 0> (t)
    })");
  auto sequence = std::make_shared<RuntimeValue>();
  sequence->set_type(Type::parse("seq(tensor(float))"));
  for (const RuntimeValuePtr& element : {floats({1}, {1}), floats({2}, {2, 3})}) {
    element->is_element = true;
    sequence->elements.push_back(element);
  }
  const Values results = session.run({{"s", sequence}, {"x", floats({1}, {1})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(4, 9, 16));
  const auto explanation = nlohmann::json::parse(session.core().explain());
  bool named = false;
  for (const auto& row : explanation["nodes"])
    named =
        named || (row["name"] == "map" && row["op"] == "SequenceMap" && row["provider"] == "host");
  EXPECT_TRUE(named) << explanation["nodes"];
  EXPECT_THAT(explanation["remarks"].dump(), HasSubstr("runs as its function body"));
}

const char* const kLoop = R"(<ir_version: 8, opset_import: ["" : 17]>
  g (int64 m, bool c, float[2] x, float[2] d) => (float[2] y, float[N, 2] s) {
    y, s = Loop (m, c, x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] u) {
      on = Identity (go)
      w = Add (v, d)
      u = Mul (v, v)
    }>
  })";

Values loop_feeds(std::int64_t turns, bool condition) {
  return {{"m", int64s({}, {turns})},
          {"c", boolean(condition)},
          {"x", floats({2}, {1, 2})},
          {"d", floats({2}, {1, 10})}};
}

TEST(ControlFlow, T4LoopCarriesAndStacks) {
  FlowSession session(kLoop);
  for (int round = 0; round < 3; ++round) {
    const Values results = session.run(loop_feeds(3, true));
    EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(4, 32));
    EXPECT_EQ(results.at("s")->dims, (Dims{3, 2}));
    EXPECT_THAT(floats_of(*results.at("s")), ElementsAre(1, 4, 4, 144, 9, 484));
  }
}

TEST(ControlFlow, T4LoopOfManyTurnsGrowsItsStack) {
  FlowSession session(kLoop);
  const Values results = session.run(loop_feeds(100, true));
  EXPECT_EQ(results.at("s")->dims, (Dims{100, 2}));
  const std::vector<float> stack = floats_of(*results.at("s"));
  for (std::size_t i = 0; i < 100; ++i) {
    const auto step = static_cast<float>(i);
    ASSERT_EQ(stack[2 * i], (1 + step) * (1 + step)) << i;
    ASSERT_EQ(stack[2 * i + 1], (2 + 10 * step) * (2 + 10 * step)) << i;
  }
}

TEST(ControlFlow, T4LoopOfNoTurnsHandsOnWhatItStartsWith) {
  FlowSession session(kLoop);
  for (const Values& feeds : {loop_feeds(0, true), loop_feeds(5, false), loop_feeds(-1, true)}) {
    const Values results = session.run(feeds);
    EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(1, 2));
    EXPECT_EQ(results.at("s")->dims, (Dims{0, 2}));
  }
}

TEST(ControlFlow, T4ABodyThatNoTurnRunsNeedNotFit) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[N] x, float[M] w) => (float[K] y, float[S, T] s) {
      y, s = Loop (m, , x) <body = f (int64 i, bool go, float[A] v) => (bool go, float[B] t, float[B] u) {
        t = Add (v, w)
        u = Neg (t)
      }>
    })");
  const RuntimeValuePtr x = floats({2}, {1, 2}), w = floats({3}, {1, 1, 1});
  const Values results = session.run({{"m", int64s({}, {0})}, {"x", x}, {"w", w}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(1, 2));
  EXPECT_EQ(results.at("s")->dims.front(), 0);
  EXPECT_THAT(floats_of(*session.run({{"m", int64s({}, {1})}, {"x", x}, {"w", x}}).at("y")),
              ElementsAre(2, 4));
  EXPECT_THROW(session.run({{"m", int64s({}, {1})}, {"x", x}, {"w", w}}), Error);
}

TEST(ControlFlow, T4AScanOverNothingNeedNotFit) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[N] start, float[L, M] x) => (float[K] last, float[L, M] all) {
      last, all = Scan <num_scan_inputs = 1,
        body = f (float[A] s, float[B] v) => (float[A] t, float[B] u) { t = Add (s, v)  u = Neg (v) }> (start, x)
    })");
  const Values results =
      session.run({{"start", floats({2}, {1, 2})}, {"x", floats({0, 3}, std::vector<float>{})}});
  EXPECT_THAT(floats_of(*results.at("last")), ElementsAre(1, 2));
  EXPECT_EQ(results.at("all")->dims.front(), 0);
}

TEST(ControlFlow, T4LoopEndsByItsCondition) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float x) => (float y, int64 last) <float limit = {100}, int64 none = {-1}> {
      y, last = Loop (, , x, none) <body = b (int64 i, bool go, float v, int64 k) => (bool on, float w, int64 i) {
        w = Add (v, v)
        on = Less (w, limit)
      }>
    })");
  const Values results = session.run({{"x", floats({}, {3})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(192));
  EXPECT_THAT(int64s_of(*results.at("last")), ElementsAre(5));
}

TEST(ControlFlow, T4LoopSwapsWhatItCarries) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[1] a, float[1] b) => (float[1] y, float[1] z) {
      y, z = Loop (m, , a, b) <body = f (int64 i, bool go, float[1] p, float[1] q) => (bool go, float[1] q, float[1] r) {
        r = Add (p, q)
      }>
    })");
  for (const auto& [turns, first, second] :
       {std::tuple(0, 0.0F, 1.0F), {1, 1.0F, 1.0F}, {2, 1.0F, 2.0F}, {10, 55.0F, 89.0F}}) {
    const Values results =
        session.run({{"m", int64s({}, {turns})}, {"a", floats({1}, {0})}, {"b", floats({1}, {1})}});
    EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(first)) << turns;
    EXPECT_THAT(floats_of(*results.at("z")), ElementsAre(second)) << turns;
  }
}

TEST(ControlFlow, T4LoopCarriesValuesThatGrow) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[K] x) => (float[N] z) {
      y = Loop (m, , x) <body = f (int64 i, bool go, float[P] v) => (bool go, float[Q] w) {
        n = Neg (v)
        w = Concat <axis = 0> (v, n)
      }>
      z = Abs (y)
    })");
  const Values results = session.run({{"m", int64s({}, {3})}, {"x", floats({1}, {2})}});
  EXPECT_EQ(results.at("z")->dims, (Dims{8}));
  EXPECT_EQ(session.run({{"m", int64s({}, {0})}, {"x", floats({1}, {2})}}).at("z")->dims,
            (Dims{1}));
}

TEST(ControlFlow, T4ShapesDependOnTheTurn) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[4] x) => (float[1] y) <float[1] zero = {0}, int64[1] axis = {0}, int64[1] none = {0}> {
      y = Loop (m, , zero) <body = f (int64 i, bool go, float[1] v) => (bool go, float[1] w) {
        end = Unsqueeze (i, axis)
        part = Slice (x, none, end, axis)
        sum = ReduceSum (part)
        w = Add (v, sum)
      }>
    })");
  const Values results =
      session.run({{"m", int64s({}, {4})}, {"x", floats({4}, {1, 10, 100, 1000})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(0 + 1 + 11 + 111));
}

/// What plans the body of the main graph's first node.
std::shared_ptr<Generation> first_body(Session& session) {
  const std::shared_ptr<Generation> main = session.route({"m", "x"}, {}).executable->generation();
  const ControlNode& control = *main->program->node(main->program->order().front()).control;
  return static_cast<const Executable&>(*control.bodies.front().body).generation();
}

TEST(ControlFlow, T4PlansOfTurnsBecomeThoseOfLaterOnes) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[500] x) => (float[1] y) <float[1] zero = {0}, int64[1] axis = {0}, int64[1] none = {0}> {
      y = Loop (m, , zero) <body = f (int64 i, bool go, float[1] v) => (bool go, float[1] w) {
        end = Unsqueeze (i, axis)
        part = Slice (x, none, end, axis)
        sum = ReduceSum (part)
        w = Add (v, sum)
      }>
    })");
  constexpr std::int64_t kTurns = 400;  // more than there are plans
  const Values feeds{{"m", int64s({}, {kTurns})}, {"x", floats({500}, std::vector<float>(500, 1))}};
  constexpr std::int64_t kSum = kTurns * (kTurns - 1) / 2;
  const std::vector<float> sums{static_cast<float>(kSum)};
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(floats_of(*session.run(feeds).at("y")), sums);
    const std::shared_ptr<Generation> body = first_body(session.core());
    EXPECT_LT(body->plans.next.size(), static_cast<std::size_t>(kTurns));
    EXPECT_NE(body->plans.next.front().node->segment->resize_index, nullptr) << "made anew";
  }
}

TEST(ControlFlow, T4BodiesNestAndSeeAllAroundThem) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[1] x) => (float[1] y) <float[1] one = {1}> {
      y = Loop (m, , x) <body = outer (int64 i, bool go, float[1] v) => (bool go, float[1] w) {
        k = Cast <to = 1> (i)
        odd_part = Mod <fmod = 1> (k, two)
        odd = Cast <to = 9> (odd_part)
        two = Constant <value = float {2}> ()
        w = If (odd) <
          then_branch = t () => (float[1] r) {
            r = Loop (m, , v) <body = inner (int64 j, bool go_on, float[1] u) => (bool go_on, float[1] s) {
              p = Add (u, k)
              s = Add (p, x)
            }>
          },
          else_branch = e () => (float[1] v2) { v2 = Add (v, one) }>
      }>
    })");
  // m = 3, x = 10: 11; then three times + 1 + 10; then + 1.
  const Values results = session.run({{"m", int64s({}, {3})}, {"x", floats({1}, {10})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(45));
}

TEST(ControlFlow, T4ScanRunsForwardsAndBackwards) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] start, float[3, 2] x) => (float[2] last, float[3, 2] sums) {
      last, sums = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
        body = f (float[2] s, float[2] v) => (float[2] t, float[2] u) { t = Add (s, v)  u = Identity (t) }> (start, x)
    })");
  const Values results =
      session.run({{"start", floats({2}, {0, 0})}, {"x", floats({3, 2}, {1, 10, 2, 20, 3, 30})}});
  EXPECT_THAT(floats_of(*results.at("last")), ElementsAre(6, 60));
  EXPECT_THAT(floats_of(*results.at("sums")), ElementsAre(6, 60, 5, 50, 3, 30));
  EXPECT_EQ(session.plan_count(), 1u);
}

TEST(ControlFlow, T4ScanAlongOtherAxes) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] start, float[2, 3] x) => (float[2] last, float[2, 3] sums) {
      last, sums = Scan <num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [1],
        body = f (float[2] s, float[2] v) => (float[2] t, float[2] u) { t = Add (s, v)  u = Identity (t) }> (start, x)
    })");
  const Values results =
      session.run({{"start", floats({2}, {0, 0})}, {"x", floats({2, 3}, {1, 2, 3, 10, 20, 30})}});
  EXPECT_THAT(floats_of(*results.at("last")), ElementsAre(6, 60));
  EXPECT_THAT(floats_of(*results.at("sums")), ElementsAre(1, 3, 6, 10, 30, 60));
}

TEST(ControlFlow, T4ScanOfABatchWithLengths) {
  FlowSession session(R"(<ir_version: 3, opset_import: ["" : 8]>
    g (int64[2] lengths, float[2, 1] start, float[2, 3, 1] x) => (float[2, 1] last, float[2, 3, 1] sums) {
      last, sums = Scan <num_scan_inputs = 1,
        body = f (float[1] s, float[1] v) => (float[1] t, float[1] u) { t = Add (s, v)  u = Identity (t) }> (lengths, start, x)
    })");
  const Values results = session.run({{"lengths", int64s({2}, {3, 1})},
                                      {"start", floats({2, 1}, {0, 100})},
                                      {"x", floats({2, 3, 1}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_THAT(floats_of(*results.at("last")), ElementsAre(6, 104));
  EXPECT_THAT(floats_of(*results.at("sums")), ElementsAre(1, 3, 6, 104, 0, 0));
}

TEST(ControlFlow, T4ScanRefusesLengthsThatDoNotFitTheBatch) {
  const std::string text = R"(<ir_version: 3, opset_import: ["" : 8]>
    g (int64[L] lengths, float[2, 1] start, float[2, 3, 1] x) => (float[2, 1] last, float[2, 3, 1] sums) {
      last, sums = Scan <num_scan_inputs = 1,
        body = f (float[1] s, float[1] v) => (float[1] t, float[1] u) { t = Add (s, v)  u = Identity (t) }> (lengths, start, x)
    })";
  const auto error_with = [&](const std::vector<std::int64_t>& lengths) {
    return error_of(text,
                    {{"lengths", int64s({static_cast<std::int64_t>(lengths.size())}, lengths)},
                     {"start", floats({2, 1}, {0, 100})},
                     {"x", floats({2, 3, 1}, {1, 2, 3, 4, 5, 6})}});
  };
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40})
    EXPECT_THAT(error_with({3, length}), HasSubstr("does not lie within 0 and 3")) << length;
  EXPECT_THAT(error_with({3}), HasSubstr("one int64 for each entry of the batch"));
}

TEST(ControlFlow, L9SequencesAreCarried) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[2] x) => (float[N] y) {
      none = SequenceEmpty <dtype = 1> ()
      all = Loop (m, , none) <body = f (int64 i, bool go, seq(float[2]) v) => (bool go, seq(float[2]) w) {
        k = Cast <to = 1> (i)
        e = Mul (x, k)
        w = SequenceInsert (v, e)
      }>
      y = ConcatFromSequence <axis = 0> (all)
    })");
  const Values results = session.run({{"m", int64s({}, {3})}, {"x", floats({2}, {1, 2})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(0, 0, 1, 2, 2, 4));
}

// A Loop that builds a sequence would else copy it at each turn once more.
TEST(ControlFlow, L9SequencesAreGivenOutWithoutACopy) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (seq(float[N]) s, float[1] x) => (seq(float[M]) once, seq(float[K]) twice, seq(float[K]) again) {
      once = SequenceInsert (s, x)
      twice = SequenceInsert (once, x)
      again = Identity (twice)
    })");
  auto sequence = std::make_shared<RuntimeValue>();
  sequence->set_type(Type::parse("seq(tensor(float))"));
  sequence->elements.push_back(floats({1}, {1}));
  sequence->elements[0]->is_element = true;
  for (int run = 0; run < 3; ++run) {
    const Values results = session.run({{"s", sequence}, {"x", floats({1}, {2})}});
    const std::map<std::string, std::size_t> sizes = {{"once", 2}, {"twice", 3}, {"again", 3}};
    for (const auto& [name, count] : sizes) {
      const auto& elements = results.at(name)->elements;
      ASSERT_EQ(elements.size(), count) << name;
      EXPECT_EQ(elements.front(), sequence->elements[0]) << name;
      EXPECT_THAT(floats_of(*elements.back()), ElementsAre(2)) << name;
    }
  }
  FlowSession one(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (seq(float[N]) s, float[1] x) => (seq(float[M]) t) { t = SequenceInsert (s, x) })");
  const Values results = one.run({{"s", sequence}, {"x", floats({1}, {2})}});
  EXPECT_EQ(results.at("t")->elements.back().use_count(), 1);  // the session has none of it
}

TEST(ControlFlow, L9CarriedElementsChangeTheirShape) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[2] x) => (int64[1] size, float[N] y) {
      first = SequenceConstruct (x)
      all = Loop (m, , first) <body = f (int64 i, bool go, seq(float[2]) v) => (bool go, seq(float[2]) w) {
        zero = Constant <value_int = 0> ()
        e = SequenceAt (v, zero)
        twice = Concat <axis = 0> (e, e)
        w = SequenceConstruct (twice)
      }>
      at = Constant <value_int = 0> ()
      y = SequenceAt (all, at)
      size = Shape (y)
    })");
  const Values results = session.run({{"m", int64s({}, {2})}, {"x", floats({2}, {1, 2})}});
  EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  std::int64_t size = 0;
  std::memcpy(&size, results.at("size")->description.host_ptr, sizeof(size));
  EXPECT_EQ(size, 8);
}

TEST(ControlFlow, L9OptionalsAndStringsComeOutOfBranches) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 18]>
    g (bool c, float[2] x, string[2] s) => (bool has, string[N] t) {
      o, t = If (c) <
        then_branch = a () => (optional(float[2]) p, string[2] q) { p = Optional (x)  q = Identity (s) },
        else_branch = b () => (optional(float[2]) p2, string[4] q2) {
          p2 = Optional <type = float[2]> ()
          q2 = Concat <axis = 0> (s, s)
        }>
      has = OptionalHasElement (o)
    })");
  for (const bool condition : {true, false}) {
    const Values results = session.run(
        {{"c", boolean(condition)}, {"x", floats({2}, {1, 2})}, {"s", strings({2}, {"a", "b"})}});
    EXPECT_EQ(*static_cast<bool*>(results.at("has")->description.host_ptr), condition);
    EXPECT_EQ(results.at("t")->strings.size(), condition ? 2u : 4u);
    EXPECT_EQ(results.at("t")->strings.back(), "b");
  }
}

TEST(ControlFlow, T4StringsAreStackedAndScanned) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, string[2] s) => (string[N, 2] t) <bool always = {1}> {
      t = Loop (m, always) <body = f (int64 i, bool go) => (bool go, string[2] q) { q = Identity (s) }>
    })");
  const Values results = session.run({{"m", int64s({}, {9})}, {"s", strings({2}, {"a", "b"})}});
  EXPECT_EQ(results.at("t")->dims, (Dims{9, 2}));
  EXPECT_EQ(results.at("t")->strings.size(), 18u);
  EXPECT_EQ(results.at("t")->strings[17], "b");
}

TEST(ControlFlow, T4InnerFetchesEndAtTheNodeThatTheyNeed) {
  FlowSession session(kLoop);
  const Session::Route route = session.core().route({"m", "c", "x", "d"}, {"s"});
  EXPECT_EQ(route.fetches.size(), 1u);
}

TEST(ControlFlow, T4ErrorsNameTheNodeAndWhatIsAroundIt) {
  const std::string text = R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[K] x, float[N] d) => (float[2] y) {
      [outer] y = Loop (m, , x) <body = b (int64 i, bool go, float[P] v) => (bool go, float[Q] w) {
        [inner] w = Add (v, d)
      }>
    })";
  const std::string message = error_of(
      text, {{"m", int64s({}, {2})}, {"x", floats({2}, {1, 2})}, {"d", floats({3}, {1, 2, 3})}});
  EXPECT_THAT(message, HasSubstr("'outer'"));
  EXPECT_THAT(message, HasSubstr("'inner'"));
}

TEST(ControlFlow, T4StackedSlicesOfOtherShapesAreAnError) {
  const std::string message = error_of(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[K] x) => (float[N] y, float[A, B] s) {
      y, s = Loop (m, , x) <body = f (int64 i, bool go, float[P] v) => (bool go, float[Q] w, float[R] u) {
        w = Concat <axis = 0> (v, v)
        u = Neg (w)
      }>
    })",
                                       {{"m", int64s({}, {3})}, {"x", floats({1}, {2})}});
  EXPECT_THAT(message, HasSubstr("tensors of one type and shape"));
  EXPECT_THAT(message, HasSubstr("Loop"));
}

TEST(ControlFlow, T4ACancelledLoopEnds) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x) => (float[1] y) {
      y = Loop (, , x) <body = f (int64 i, bool go, float[1] v) => (bool go, float[1] w) { w = Neg (v) }>
    })");
  const Session::Route route = session.core().route({"x"}, {"y"});
  const RuntimeValuePtr x = floats({1}, {1});
  RuntimeValue y;
  std::atomic<bool> cancel{false};
  RunSettings settings;
  settings.controls.stop.cancelled = &cancel;
  std::thread other([&] { cancel = true; });
  std::string message;
  try {
    route.executable->run({x.get()}, {&y}, settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Cancelled);
    message = error.message();
  }
  other.join();
  EXPECT_THAT(message, HasSubstr("cancelled"));
}

TEST(ControlFlow, T4SpansOfBodiesAreInTheTrace) {
  FlowSetup setup;
  setup.profile = true;
  FlowSession session(kLoop, setup);
  session.run(loop_feeds(3, true));
  int additions = 0;
  const auto trace = nlohmann::json::parse(session.core().trace());
  for (const auto& event : trace["traceEvents"]) additions += event["name"] == "n0/body/n1" ? 1 : 0;
  EXPECT_EQ(additions, 3);
}

TEST(ControlFlow, T4TheExplanationListsNodesOfBodies) {
  FlowSession session(kLoop);
  session.run(loop_feeds(3, true));
  std::map<std::string, std::string> providers;
  const auto explanation = nlohmann::json::parse(session.core().explain());
  for (const auto& row : explanation["nodes"])
    providers[row["name"]] = row["provider"].is_null() ? "" : row["provider"].get<std::string>();
  EXPECT_EQ(providers["n0"], "host");
  EXPECT_EQ(providers["n0/body/n1"], "cpu");
  EXPECT_EQ(providers["n0/body/n2"], "cpu");
}

}  // namespace
}  // namespace backplane::core::flow

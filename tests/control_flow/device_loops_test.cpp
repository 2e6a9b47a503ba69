// Bodies on a device: what stays there, and what is copied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/control_flow/counted_new.hpp"
#include "tests/control_flow/flow_session.hpp"

namespace backplane::core::flow {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class DeviceLoops : public ::testing::Test {
 protected:
  void SetUp() override { reset_counters(); }
  void TearDown() override { EXPECT_EQ(findings(), ""); }

  static FlowSetup on_device() {
    FlowSetup setup;
    setup.providers = {"fakegpu:0", "cpu"};
    return setup;
  }
};

const char* const kDeviceLoop = R"(<ir_version: 8, opset_import: ["" : 17]>
  g (int64 m, float[64] x, float[64] d) => (float[64] y) {
    e = Neg (d)
    y = Loop (m, , x) <body = b (int64 i, bool go, float[64] v) => (bool go, float[64] w) {
      u = Add (v, e)
      w = Relu (u)
    }>
  })";

struct Counted {
  std::uint64_t up, down;
  bool operator==(const Counted&) const = default;
};

Counted copies() {
  const fakegpu_counters now = counters();
  return {now.copies_h2d, now.copies_d2h};
}

TEST_F(DeviceLoops, T4LoopCarriedValuesStayOnTheirDevice) {
  FlowSession session(kDeviceLoop, on_device());
  const auto run = [&](std::int64_t turns) {
    return session.run({{"m", int64s({}, {turns})},
                        {"x", floats({64}, std::vector<float>(64, 100))},
                        {"d", floats({64}, std::vector<float>(64, 1))}});
  };
  run(1);
  for (const std::int64_t turns : {1, 2, 30}) {
    reset_counters();
    const Values results = run(turns);
    EXPECT_THAT(floats_of(*results.at("y")), Each(100 - static_cast<float>(turns)));
    // x and d go there, y comes back: however many turns there are.
    EXPECT_EQ(copies(), (Counted{2, 1})) << turns << " turns";
  }
}

TEST_F(DeviceLoops, T4SteadyStateOfALoopAllocatesNothing) {
  for (const bool device : {false, true}) {
    FlowSession session(kDeviceLoop, device ? on_device() : FlowSetup());
    const Session::Route route = session.core().route({"m", "x", "d"}, {"y"});
    const RuntimeValuePtr m = int64s({}, {10});
    const RuntimeValuePtr x = floats({64}, std::vector<float>(64, 100));
    const RuntimeValuePtr d = floats({64}, std::vector<float>(64, 1));
    RuntimeValue y;
    PlanMemo memo;
    RunSettings settings;
    settings.memo = &memo;
    const std::vector<bool> resizable{true};
    settings.resizable = &resizable;
    const RunValues feeds{m.get(), x.get(), d.get()}, fetches{&y};
    const auto run = [&](std::int64_t turns) {
      *static_cast<std::int64_t*>(m->description.host_ptr) = turns;
      const std::uint64_t before = allocation_count(), buffers = device_allocation_count();
      route.executable->run(feeds, fetches, settings);
      EXPECT_EQ(device_allocation_count() - buffers, 0u);
      return allocation_count() - before;
    };
    for (int i = 0; i < 4; ++i) route.executable->run(feeds, fetches, settings);
    if (device) {
      run(10);  // the fixture itself calls `new` for each piece of work
      run(100);
    } else {
      EXPECT_EQ(run(10), 0u);
      EXPECT_EQ(run(1000), 0u);
    }
  }
}

TEST_F(DeviceLoops, T4CapturedValuesAreNotCopied) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[64] x) => (float[64] z) {
      d = Neg (x)
      y = If (c) <
        then_branch = a () => (float[64] t) { t = Mul (d, d) },
        else_branch = b () => (float[64] d) { }>
      z = Abs (y)
    })",
                      on_device());
  const Values x{{"x", floats({64}, std::vector<float>(64, 3))}};
  for (const bool condition : {true, false}) {
    Values feeds = x;
    feeds["c"] = boolean(condition);
    session.run(feeds);
    reset_counters();
    EXPECT_THAT(floats_of(*session.run(feeds).at("z")), Each(condition ? 9 : 3));
    EXPECT_EQ(copies(), (Counted{1, 1})) << condition;
  }
}

// A branch's results that another place makes: each goes there once, straight to where it is to lie, also if a node of
// the branch reads it there.
TEST_F(DeviceLoops, ResultsOfABodyAreCopiedOnceToTheirDevice) {
  for (const char* const host_copy : {"none", "sync", "async"}) {
    FlowSetup setup = on_device();
    setup.fakegpu_options = {{"host_copy", host_copy}};
    setup.placement["elsewhere"] = "cpu";
    FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[64] x) => (float[64] z) {
      d = Neg (x)
      y, y2 = If (c) <
        then_branch = a () => (float[64] t, float[64] t2) { t = Mul (d, d)  t2 = Neg (t) },
        else_branch = b () => (float[64] e, float[64] e2) { [elsewhere] e = Tanh (d)  e2 = Neg (e) }>
      z = Add (y, y2)
    })",
                        setup);
    for (const bool condition : {true, false, false}) {
      const Values feeds{{"c", boolean(condition)}, {"x", floats({64}, std::vector<float>(64, 3))}};
      session.run(feeds);
      reset_counters();
      EXPECT_THAT(floats_of(*session.run(feeds).at("z")), Each(0));
      // x there, z back; the other branch's d to the host, and what that makes of it there: the host's branch reads
      // its d whether it runs or not.
      EXPECT_EQ(copies(), (Counted{condition ? 1u : 2u, 2})) << host_copy << condition;
      EXPECT_EQ(counters().copies_d2d, 0u) << host_copy << condition;
      EXPECT_EQ(counters().bytes_h2d, (condition ? 1u : 2u) * 64 * sizeof(float));
    }
  }
}

TEST_F(DeviceLoops, T4ConditionOfADeviceIsWaitedForOnceATurn) {
  FlowSetup setup = on_device();
  setup.placement["op:Less"] = "cpu";
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[1] x) => (float[1] y) <float[1] limit = {100}> {
      y = Loop (, , x) <body = b (int64 i, bool go, float[1] v) => (bool on, float[1] w) {
        w = Add (v, v)
        less = Less (w, limit)
        on = Squeeze (less)
      }>
    })",
                      setup);
  const Values feeds{{"x", floats({1}, {3})}};
  session.run(feeds);
  reset_counters();
  EXPECT_THAT(floats_of(*session.run(feeds).at("y")), ElementsAre(192));
  EXPECT_EQ(copies(), (Counted{1, 6 + 1}));  // six turns
}

TEST_F(DeviceLoops, T4ScanSlicesAndStacksOnTheDevice) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (float[64] start, float[5, 64] x) => (float[64] last, float[5, 64] sums) {
      last, sums = Scan <num_scan_inputs = 1,
        body = f (float[64] s, float[64] v) => (float[64] t, float[64] u) { t = Add (s, v)  u = Mul (t, t) }> (start, x)
    })",
                      on_device());
  const Values feeds{{"start", floats({64}, std::vector<float>(64, 0))},
                     {"x", floats({5, 64}, std::vector<float>(320, 1))}};
  session.run(feeds);
  reset_counters();
  const Values results = session.run(feeds);
  EXPECT_THAT(floats_of(*results.at("last")), Each(5));
  const std::vector<float> sums = floats_of(*results.at("sums"));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t step = i / 64 + 1;
    ASSERT_EQ(sums[i], static_cast<float>(step * step)) << i;
  }
  EXPECT_EQ(copies(), (Counted{2, 2}));
}

TEST_F(DeviceLoops, T4SlicesThatAreNotAlignedAreRightToo) {
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[3] x, float[3] d) => (float[3] y, float[N, 3] s) {
      y, s = Loop (m, , x) <body = b (int64 i, bool go, float[3] v) => (bool go, float[3] w, float[3] u) {
        w = Add (v, d)
        u = Mul (w, w)
      }>
    })",
                      on_device());
  for (int round = 0; round < 2; ++round) {
    const Values results = session.run(
        {{"m", int64s({}, {7})}, {"x", floats({3}, {0, 0, 0})}, {"d", floats({3}, {1, 2, 3})}});
    EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(7, 14, 21));
    EXPECT_EQ(results.at("s")->dims, (Dims{7, 3}));
    EXPECT_EQ(floats_of(*results.at("s"))[20], 441);
  }
}

TEST_F(DeviceLoops, T4BodiesArePlacedLikeTheMainGraph) {
  FlowSetup setup = on_device();
  setup.placement["inner"] = "cpu";
  FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
    g (int64 m, float[8] x) => (float[8] y) {
      [outer] y = Loop (m, , x) <body = b (int64 i, bool go, float[8] v) => (bool go, float[8] w) {
        [first] u = Neg (v)
        [inner] t = Abs (u)
        [last] w = Add (t, t)
      }>
    })",
                      setup);
  const Values results =
      session.run({{"m", int64s({}, {3})}, {"x", floats({8}, std::vector<float>(8, 1))}});
  EXPECT_THAT(floats_of(*results.at("y")), Each(8));
  std::map<std::string, std::string> providers;
  const auto explanation = nlohmann::json::parse(session.core().explain());
  for (const auto& row : explanation["nodes"])
    providers[row["name"]] = row["provider"].is_null() ? "" : row["provider"].get<std::string>();
  EXPECT_EQ(providers["outer/body/first"], "fakegpu:0");
  EXPECT_EQ(providers["outer/body/inner"], "cpu");
  EXPECT_EQ(providers["outer/body/last"], "fakegpu:0");
}

TEST_F(DeviceLoops, T4NestedBodiesOnTheDeviceWithPinnedStaging) {
  for (const char* mode : {"none", "sync", "async"}) {
    FlowSetup setup = on_device();
    setup.fakegpu_options = {{"host_copy", mode}};
    FlowSession session(R"(<ir_version: 8, opset_import: ["" : 17]>
      g (int64 m, float[4] x) => (float[4] y, float[A, 4] s) <float[4] one = {1, 1, 1, 1}> {
        y, s = Loop (m, , x) <body = outer (int64 i, bool go, float[4] v) => (bool go, float[4] w, float[4] w2) {
          k = Cast <to = 9> (i)
          w = If (k) <
            then_branch = t () => (float[4] r) {
              r = Loop (m, , v) <body = inner (int64 j, bool go_on, float[4] u) => (bool go_on, float[4] q) { q = Add (u, x) }>
            },
            else_branch = e () => (float[4] v2) { v2 = Add (v, one) }>
          w2 = Neg (w)
        }>
      })",
                        setup);
    // m = 2: x + 1, then twice + x.
    for (int round = 0; round < 2; ++round) {
      const Values results =
          session.run({{"m", int64s({}, {2})}, {"x", floats({4}, {1, 2, 3, 4})}});
      EXPECT_THAT(floats_of(*results.at("y")), ElementsAre(4, 7, 10, 13)) << mode;
      EXPECT_THAT(floats_of(*results.at("s")), ElementsAre(-2, -3, -4, -5, -4, -7, -10, -13));
    }
  }
}

}  // namespace
}  // namespace backplane::core::flow

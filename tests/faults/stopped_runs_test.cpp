// Runs that a deadline or somebody ends while devices work: soon, and without harm to what comes later or goes on beside.
#include <chrono>
#include <thread>

#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using namespace std::chrono_literals;

constexpr int kNodes = 100;

/// node_0, node_1, ...
std::string long_chain(int length = kNodes) {
  ModelMaker maker;
  maker.input("x", {4, 8});
  std::string last = "x";
  for (int i = 0; i < length; ++i) {
    const std::string made = text("v", i);
    maker.node(text("node_", i), i % 2 == 0 ? "Neg" : "Tanh", {last}, made);
    last = made;
  }
  return maker.output(last).bytes();
}

const Tensors kGiven{{"x", random_tensor({4, 8}, 1)}};

/// Some milliseconds for each piece of work.
ProviderOptions slow_device(const ProviderOptions& others = {}) {
  ProviderOptions options{{"delay_us", "4000"}, {"rewrite", "false"}};
  options.insert(options.end(), others.begin(), others.end());
  return options;
}

RunOptions with_timeout(std::chrono::nanoseconds timeout) {
  RunOptions options;
  options.timeout = timeout;
  return options;
}

Error stop_of(MixedSession& session, const RunOptions& options) {
  try {
    session.run(kGiven, &options);
  } catch (const Error& error) {
    return error;
  }
  return {Code::Ok, "it did not fail"};
}

class StoppedRuns : public FaultTest {
 protected:
  /// The run of a chain ends, and the device was given less than half of it; then the session is as it was.
  static void expect_soon(MixedSession& session, const RunOptions& options, Code code,
                          const std::string& why) {
    const std::uint64_t before = counters().computes;
    const Error error = stop_of(session, options);
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_NE(error.message().find(why), std::string::npos) << error.message();
    EXPECT_LT(counters().computes - before, kNodes / 2u);
    EXPECT_EQ(counters().open_runs, 0u);
    EXPECT_EQ(findings(), "");
  }
};

TEST_F(StoppedRuns, ADeadlineEndsOneBeforeMostOfItIsOnTheDevice) {
  const Tensors want = run_on_cpu(long_chain(), kGiven);
  for (const ProviderOptions& way :
       {slow_device({{"host_copy", "none"}}), slow_device({{"host_copy", "async"}}),
        slow_device({{"integrated", "true"}})}) {
    MixedSession session(long_chain(), {}, way);
    expect_soon(session, with_timeout(20ms), Code::Timeout, "timeout_ms is 20");
    EXPECT_EQ(difference(session.run(kGiven), want), "");
    expect_soon(session, with_timeout(20ms), Code::Timeout, "node 'node_");
    const RunOptions enough = with_timeout(10min);
    EXPECT_EQ(difference(session.run(kGiven, &enough), want), "");
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(StoppedRuns, ACancellationDoesToo) {
  MixedSession session(long_chain(), {}, slow_device());
  RunOptions options;
  options.cancel = std::make_shared<CancelFlag>();
  std::thread canceller([&] {
    const auto begun = counters().computes;
    while (counters().computes < begun + 3) std::this_thread::yield();
    options.cancel->requested = true;
  });
  expect_soon(session, options, Code::Cancelled, "the run was cancelled");
  canceller.join();
  options.cancel->requested = false;
  EXPECT_EQ(difference(session.run(kGiven, &options), run_on_cpu(long_chain(), kGiven)), "");
}

TEST_F(StoppedRuns, OfTwoDevicesBothStop) {
  for (const int turns : {2, kNodes / 2}) {  // nodes in a row on one device
    Placement placement;
    for (int i = 0; i < kNodes; ++i)
      placement[text("node_", i)] = i / turns % 2 == 0 ? "fakegpu:0" : "fakegpu:1";
    MixedSession session(long_chain(), placement, slow_device());
    expect_soon(session, with_timeout(30ms), Code::Timeout, "timeout_ms is 30");
    EXPECT_EQ(difference(session.run(kGiven), run_on_cpu(long_chain(), kGiven)), "");
  }
}

TEST_F(StoppedRuns, WorkThatIsAllOnTheDeviceIsWaitedForAndTooLate) {
  MixedSession session(long_chain(1), {}, {{"delay_us", "50000"}});
  const Error error = stop_of(session, with_timeout(1ms));
  EXPECT_EQ(error.code(), Code::Timeout) << error.message();
  EXPECT_EQ(difference(session.run(kGiven), run_on_cpu(long_chain(1), kGiven)), "");
}

TEST_F(StoppedRuns, WhatIsRecordedIsPutOnTheStreamInStepsWhereItTakesLong) {
  MixedSession session(long_chain(), {}, slow_device());
  for (int i = 0; i < 3; ++i) session.run(kGiven);
  ASSERT_EQ(counters().replays, 2u);
  expect_soon(session, with_timeout(20ms), Code::Timeout, "timeout_ms is 20");
  EXPECT_EQ(counters().replays, 2u);
  session.run(kGiven);
  EXPECT_EQ(counters().replays, 3u) << "a run that nobody ends is replayed as before";
}

TEST_F(StoppedRuns, WhatIsRecordedAndShortIsReplayedAllTheSame) {
  MixedSession session(long_chain(4), {}, {{"delay_us", "5"}, {"rewrite", "false"}});
  const RunOptions enough = with_timeout(10min);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(difference(session.run(kGiven, &enough), run_on_cpu(long_chain(4), kGiven)), "");
  EXPECT_GE(counters().replays, 2u);
  const Error error = stop_of(session, with_timeout(0ms));
  EXPECT_EQ(error.code(), Code::Timeout) << error.message();
}

TEST_F(StoppedRuns, RunsBesideThemAreAsTheyWere) {
  const Tensors want = run_on_cpu(long_chain(), kGiven);
  MixedSession session(long_chain(), {}, {{"delay_us", "300"}, {"rewrite", "false"}});
  std::string wrong;
  std::thread beside([&] {
    for (int i = 0; i < 8; ++i) wrong += difference(session.run(kGiven), want);
  });
  for (int i = 0; i < 20; ++i) {
    const Error error = stop_of(session, with_timeout(std::chrono::milliseconds(i % 4)));
    EXPECT_EQ(error.code(), Code::Timeout) << error.message();
  }
  beside.join();
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(findings(), "");
}

TEST_F(StoppedRuns, OneThatNothingEndsHasNoFences) {
  MixedSession session(long_chain(), {}, {{"delay_us", "1"}, {"rewrite", "false"}},
                       {"fakegpu:0", "cpu"},
                       [](SessionOptions& options) { options.capture = false; });
  session.run(kGiven);
  const std::uint64_t before = counters().fence_signals;
  session.run(kGiven);
  const std::uint64_t usual = counters().fence_signals - before;
  const RunOptions enough = with_timeout(10min);
  for (int i = 0; i < 5; ++i) session.run(kGiven, &enough);
  const std::uint64_t bounded = counters().fence_signals;
  session.run(kGiven);
  EXPECT_EQ(counters().fence_signals - bounded, usual);
  EXPECT_LE(usual, 1u);
  EXPECT_GT(bounded - before, 5 * (usual + kNodes / 16 - 1)) << "a mark for 16 steps at the most";
}

}  // namespace
}  // namespace backplane::core::faults

// Every call of a run fails once: the error says where, the next run is right, nothing is left over.
#include <functional>

#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

struct Fault {
  bp_code code;
  Code seen;
  bool asynchronous;
};

std::string describe(const Fault& fault, std::uint64_t position) {
  return text("call ", position, " fails with code ", fault.code,
              fault.asynchronous ? " on its stream" : "");
}

/// Two branches over both devices that meet on the cpu, with a product whose weight is packed on neither.
std::string branches() {
  ModelMaker maker;
  maker.input("x", {3, 4}).weight("w", random_tensor({4, 4}, 5));
  maker.node("left", "MatMul", {"x", "w"}, "a")
      .node("right", "Tanh", {"x"}, "b")
      .node("cross", "Add", {"a", "b"}, "c");
  maker.node("join", "Concat", {"a", "c"}, "d", 1).node("last", "Relu", {"d"}, "y");
  return maker.output("y").output("c").bytes();
}
const Placement kBranches{{"left", "fakegpu:0"},
                          {"right", "fakegpu:1"},
                          {"cross", "fakegpu:1"},
                          {"join", "fakegpu:0"},
                          {"last", "cpu"}};
const Tensors kFeeds{{"x", random_tensor({3, 4}, 6)}};

class FaultPositions : public FaultTest, public ::testing::WithParamInterface<Fault> {
 protected:
  static void arm(std::uint64_t position) {
    fakegpu().fail_call(position, GetParam().code, GetParam().asynchronous ? 1 : 0);
  }
  static void disarm() { fakegpu().fail_call(0, BP_OK, 0); }

  /// Runs with the fault at one position; true when the run failed, as it should.
  static bool fails_at(MixedSession& session, std::uint64_t position) {
    arm(position);
    try {
      session.run(kFeeds);
      disarm();
      return false;
    } catch (const Error& error) {
      disarm();
      EXPECT_EQ(error.code(), GetParam().seen) << error.what();
      EXPECT_NE(error.message().find("fakegpu:"), std::string::npos)
          << "names no device: " << error.what();
      last_message = error.message();
      return true;
    }
  }
  static inline std::string last_message;
};

/// True when a message says which step of the run it was.
bool names_a_step(const std::string& message) {
  return message.find("node '") != std::string::npos || message.find("copy '") != std::string::npos;
}

TEST_P(FaultPositions, OfAWarmRun) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  // A recording that fails is no failure of the run: see capture_test.cpp.
  MixedSession session(branches(), kBranches, {{"delay_us", "5"}},
                       {"fakegpu:0", "fakegpu:1", "cpu"},
                       [](SessionOptions& options) { options.capture = false; });
  session.run(kFeeds);
  fakegpu().reset();
  session.run(kFeeds);
  const std::uint64_t calls = counters().fallible_calls;
  ASSERT_GT(calls, 8u);
  std::uint64_t failures = 0, named = 0;
  for (std::uint64_t position = 1; position <= calls; ++position) {
    SCOPED_TRACE(describe(GetParam(), position));
    fakegpu().reset();
    if (!fails_at(session, position)) {
      ADD_FAILURE() << "nobody noticed";
      continue;
    }
    ++failures;
    if (names_a_step(last_message)) ++named;
    EXPECT_TRUE(names_a_step(last_message) ||
                last_message.find("begin the run") != std::string::npos)
        << last_message;
    EXPECT_EQ(counters().open_runs, 0u);
    EXPECT_EQ(difference(session.run(kFeeds), want), "") << "the run after " << last_message;
    EXPECT_EQ(findings(), "") << "after " << last_message;
  }
  EXPECT_EQ(failures, calls);
  EXPECT_GT(named, 0u);
}

TEST_P(FaultPositions, OfAFirstRun) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  for (std::uint64_t position = 1; position < 200; ++position) {
    SCOPED_TRACE(describe(GetParam(), position));
    MixedSession session(branches(), kBranches, {{"delay_us", "5"}});
    fakegpu().reset();
    const bool failed = fails_at(session, position);
    const std::uint64_t calls = counters().fallible_calls;
    EXPECT_EQ(difference(session.run(kFeeds), want), "") << "the run after " << last_message;
    EXPECT_EQ(findings(), "");
    if (!failed) {
      EXPECT_LT(calls, position) << "nobody noticed";
      EXPECT_GT(position, 10u);
      return;
    }
  }
  ADD_FAILURE() << "a run makes 200 calls?";
}

TEST_P(FaultPositions, OfLoading) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  std::uint64_t refused = 0;
  for (std::uint64_t position = 1; position < 200; ++position) {
    SCOPED_TRACE(describe(GetParam(), position));
    fakegpu().reset();
    arm(position);
    try {
      MixedSession session(branches(), kBranches, {{"delay_us", "5"}});
      const std::uint64_t calls = counters().fallible_calls;
      disarm();
      // A refused rewrite is a remark and no error: the session then works without it.
      EXPECT_EQ(difference(session.run(kFeeds), want), "");
      if (calls < position) {
        EXPECT_GT(refused, 3u);
        return;
      }
    } catch (const Error& error) {
      disarm();
      ++refused;
      EXPECT_NE(error.message().find("fakegpu"), std::string::npos) << error.what();
    }
    EXPECT_EQ(alive(), "");
  }
  ADD_FAILURE() << "loading makes 200 calls?";
}

INSTANTIATE_TEST_SUITE_P(Codes, FaultPositions,
                         ::testing::Values(Fault{BP_FAILED, Code::Failed, false},
                                           Fault{BP_OUT_OF_MEMORY, Code::OutOfMemory, false},
                                           Fault{BP_FAILED, Code::Failed, true}),
                         [](const auto& fault) {
                           return text("code_", fault.param.code,
                                       fault.param.asynchronous ? "_async" : "");
                         });

class LostDevice : public FaultTest {};

void expect_lost(MixedSession& session) {
  try {
    session.run(kFeeds);
    ADD_FAILURE() << "ran on a lost device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::DeviceLost) << error.what();
    EXPECT_NE(error.message().find("fakegpu:1"), std::string::npos) << error.what();
  }
}

TEST_F(LostDevice, RefusesUntilItIsOpenedAgain) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  {
    MixedSession session(branches(), kBranches);
    EXPECT_EQ(difference(session.run(kFeeds), want), "");
    fakegpu().lose_device(1);
    expect_lost(session);
    expect_lost(session);
  }
  EXPECT_EQ(alive(), "");
  MixedSession session(branches(), kBranches);
  EXPECT_EQ(difference(session.run(kFeeds), want), "");
}

TEST_F(LostDevice, ANewSessionOpensItAgainWhileTheOldOneLives) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  MixedSession old(branches(), kBranches);
  old.run(kFeeds);
  fakegpu().lose_device(1);
  expect_lost(old);
  MixedSession session(branches(), kBranches);
  EXPECT_EQ(difference(session.run(kFeeds), want), "");
  expect_lost(old);
}

TEST_F(LostDevice, AtAnyCallOfARun) {
  const Tensors want = run_on_cpu(branches(), kFeeds);
  std::uint64_t position = 0;
  for (bool failed = true; failed && position < 200;) {
    SCOPED_TRACE(text("call ", ++position));
    {
      MixedSession session(branches(), kBranches, {{"delay_us", "5"}});
      fakegpu().reset();
      fakegpu().fail_call(position, BP_DEVICE_LOST, 0);
      try {
        EXPECT_EQ(difference(session.run(kFeeds), want), "");
        failed = false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::DeviceLost) << error.what();
        EXPECT_NE(error.message().find("fakegpu:"), std::string::npos) << error.what();
        try {
          session.run(kFeeds);
          ADD_FAILURE() << "ran on a lost device";
        } catch (const Error& second) {
          EXPECT_EQ(second.code(), Code::DeviceLost) << second.what();
        }
      }
      fakegpu().reset();
    }
    EXPECT_EQ(alive(), "");
  }
  EXPECT_GT(position, 10u);
}

}  // namespace
}  // namespace backplane::core::faults

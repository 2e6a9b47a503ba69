// Feeds and fetches in ordinary host memory on their way by pinned memory: large ones piece by piece, small ones recorded with
// the rest, and nobody waits who need not.
#include <cmath>
#include <thread>

#include <nlohmann/json.hpp>

#include "core/plugin_host/host_copy.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLarge = static_cast<std::int64_t>(kLargeCopyBytes / sizeof(float));
constexpr std::int64_t kPiece = static_cast<std::int64_t>(CopyPieces::kLeastBytes / sizeof(float));
constexpr const char* kReason = "it goes piece by piece";

const ProviderOptions kFastDevices{{"delay_us", "5"}, {"rewrite", "false"}};

/// Neg and Tanh of a row of any length.
std::string two_nodes() {
  ModelMaker maker;
  maker.input("x", {-1}).node("neg", "Neg", {"x"}, "a").node("tanh", "Tanh", {"a"}, "y");
  return maker.output("y").bytes();
}

Tensors feed_of(std::int64_t count, std::uint64_t seed = 1) {
  return {{"x", random_tensor({count}, seed)}};
}

std::uint64_t pieces_of(std::int64_t count) {
  return CopyPieces(static_cast<std::uint64_t>(count) * sizeof(float)).count();
}

std::function<void(SessionOptions&)> with(bool capture, bool profile = false) {
  return [=](SessionOptions& options) {
    options.capture = capture;
    options.profile = profile;
  };
}

class HostCopies : public FaultTest {};

TEST_F(HostCopies, OfLargeValuesGoPieceByPiece) {
  for (const bool capture : {true, false}) {
    MixedSession session(two_nodes(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(capture));
    // Ends of pieces, of what a thread copies at a time, and neither.
    for (const std::int64_t count : {kLarge, kLarge + 1, kLarge + kPiece, kLarge + kPiece - 1,
                                     kLarge + 32 * 1024, 3 * kLarge + 12345}) {
      fakegpu().reset();
      const Tensors feeds = feed_of(count);
      EXPECT_EQ(difference(session.run(feeds), run_on_cpu(two_nodes(), feeds)), "") << count;
      EXPECT_EQ(counters().copies_h2d, pieces_of(count)) << count;
      EXPECT_EQ(counters().copies_d2h, pieces_of(count)) << count;
      EXPECT_EQ(counters().bytes_h2d, static_cast<std::uint64_t>(count) * sizeof(float));
      EXPECT_EQ(counters().bytes_d2h, static_cast<std::uint64_t>(count) * sizeof(float));
      EXPECT_GE(pieces_of(count), 2u);
      const Json told = Json::parse(session.core().explain());
      for (const Json& copy : told["copies"])
        EXPECT_EQ(copy["pieces"], pieces_of(count)) << copy.dump(1);
      EXPECT_EQ(findings(), "");
    }
  }
}

TEST_F(HostCopies, OfSmallAndEmptyValuesAreOne) {
  MixedSession session(two_nodes(), {}, kFastDevices);
  for (const std::int64_t count : {kLarge - 1, std::int64_t{1}, std::int64_t{0}}) {
    const Tensors feeds = feed_of(count), want = run_on_cpu(two_nodes(), feeds);
    fakegpu().reset();
    for (int run = 0; run < 3; ++run) EXPECT_EQ(difference(session.run(feeds), want), "") << count;
    EXPECT_EQ(counters().copies_h2d, count > 0 ? 3u : 0u);
    EXPECT_EQ(counters().copies_d2h, count > 0 ? 3u : 0u);
    const Json told = Json::parse(session.core().explain());
    for (const Json& copy : told["copies"]) EXPECT_EQ(copy["pieces"], 1) << copy.dump(1);
    EXPECT_EQ(told["capture"].dump().find(kReason), std::string::npos);
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(HostCopies, OfLargeValuesAreNotRecordedAndTheWorkBetweenThemIs) {
  MixedSession session(two_nodes(), {}, kFastDevices);
  constexpr std::int64_t kCount = kLarge + 999;
  constexpr std::uint64_t kRuns = 5;
  for (std::uint64_t run = 0; run < kRuns;
       ++run) {  // the feed and the fetch lie elsewhere each time
    const Tensors feeds = feed_of(kCount, 10 + run);
    EXPECT_EQ(difference(session.run(feeds), run_on_cpu(two_nodes(), feeds)), "") << run;
  }
  EXPECT_EQ(counters().recorded, 1u);
  EXPECT_EQ(counters().replays, kRuns - 1);
  EXPECT_EQ(counters().copies_h2d, kRuns * pieces_of(kCount));
  const Json told = Json::parse(session.core().explain())["capture"];
  ASSERT_EQ(told["ranges"].size(), 1u) << told.dump(1);
  EXPECT_EQ(told["ranges"][0]["steps"], 2) << told.dump(1);
  EXPECT_NE(told["outside"].dump().find(kReason), std::string::npos) << told.dump(1);
  EXPECT_EQ(findings(), "");
}

TEST_F(HostCopies, OfLargeValuesAreRightForSeveralCallers) {
  for (const bool capture : {true, false}) {
    MixedSession session(two_nodes(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(capture));
    std::vector<std::string> wrong(4);
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < wrong.size(); ++caller) {
      callers.emplace_back([&, caller] {
        const Tensors feeds = feed_of(kLarge + static_cast<std::int64_t>(1001 * caller), caller);
        Tensors want{{"y", feeds.at("x")}};
        for (float& element : want["y"].elements) element = std::tanh(-element);
        for (int run = 0; run < 5; ++run) wrong[caller] += difference(session.run(feeds), want);
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, std::vector<std::string>(4));
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(HostCopies, BetweenDevicesThatReachEachOtherByTheHostAloneAreRight) {
  const Placement placement{{"neg", "fakegpu:0"}, {"tanh", "fakegpu:1"}};
  for (const char* const peer : {"false", "true"}) {
    MixedSession session(two_nodes(), placement,
                         {{"delay_us", "20"}, {"rewrite", "false"}, {"peer", peer}});
    for (std::uint64_t run = 0; run < 4; ++run) {
      const Tensors feeds = feed_of(2 * kLarge + 77, run);
      EXPECT_EQ(difference(session.run(feeds), run_on_cpu(two_nodes(), feeds)), "") << peer;
    }
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(HostCopies, AreWholeWhereTheRunIsWatched) {
  MixedSession session(two_nodes(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(true, true));
  const Tensors feeds = feed_of(kLarge + 5);
  EXPECT_EQ(difference(session.run(feeds), run_on_cpu(two_nodes(), feeds)), "");
  EXPECT_EQ(counters().copies_h2d, 1u);
  EXPECT_EQ(counters().copies_d2h, 1u);
  EXPECT_EQ(findings(), "");
}

TEST_F(HostCopies, EndWithTheRunThatIsOverItsTime) {
  constexpr std::int64_t kCount = 32 * kLarge;
  MixedSession session(two_nodes(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(false));
  const Tensors feeds = feed_of(kCount);
  const Tensors want = session.run(feeds);
  const std::uint64_t all = counters().copies_h2d;
  ASSERT_EQ(all, pieces_of(kCount));
  fakegpu().reset();
  RunOptions options;
  options.timeout = std::chrono::microseconds(1500);
  try {
    session.run(feeds, &options);
    ADD_FAILURE() << "64 MiB in 1.5 ms";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Timeout) << error.what();
  }
  EXPECT_LT(counters().copies_h2d, all);
  EXPECT_EQ(difference(session.run(feeds), want), "");
  EXPECT_EQ(findings(), "");
}

/// Two feeds, two fetches.
std::string two_of_each() {
  ModelMaker maker;
  maker.input("x", {-1}).input("z", {-1}).node("add", "Add", {"x", "z"}, "s");
  return maker.node("neg", "Neg", {"s"}, "t").output("s").output("t").bytes();
}

Tensors feeds_of_two(std::int64_t count, std::uint64_t seed) {
  return {{"x", random_tensor({count}, seed)}, {"z", random_tensor({count}, seed + 1)}};
}

TEST_F(HostCopies, OfFeedsWaitForNoneAndOfFetchesForTheirOwn) {
  MixedSession plain(two_of_each(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(false));
  const Tensors feeds = feeds_of_two(32, 5);
  plain.run(feeds);
  fakegpu().reset();
  EXPECT_EQ(difference(plain.run(feeds), run_on_cpu(two_of_each(), feeds)), "");
  EXPECT_EQ(counters().host_waits, 2u) << "one for each fetch";

  MixedSession session(two_of_each(), {}, kFastDevices);
  for (std::uint64_t run = 0; run < 4; ++run) {
    const Tensors given = feeds_of_two(32, run);
    EXPECT_EQ(difference(session.run(given), run_on_cpu(two_of_each(), given)), "");
  }
  const Json told = Json::parse(session.core().explain())["capture"];
  ASSERT_EQ(told["ranges"].size(), 1u) << told.dump(1);
  EXPECT_EQ(told["ranges"][0]["steps"], 6) << "all copies and both nodes: " << told.dump(1);
  EXPECT_EQ(findings(), "");
}

TEST_F(HostCopies, OfSeveralLargeFeedsAndFetchesAreRight) {
  MixedSession session(two_of_each(), {}, kFastDevices);
  for (std::uint64_t run = 0; run < 4; ++run) {
    const Tensors given = feeds_of_two(kLarge + 4321, run);
    EXPECT_EQ(difference(session.run(given), run_on_cpu(two_of_each(), given)), "");
  }
  EXPECT_EQ(counters().copies_h2d, 4 * 2 * pieces_of(kLarge + 4321));
  EXPECT_EQ(findings(), "");
}

struct CopyFault {
  bp_code code;
  Code seen;
  bool asynchronous;
};

class HostCopyFaults : public FaultTest, public ::testing::WithParamInterface<CopyFault> {};

// Among the calls of a run are the copy of each piece, and the mark of each that is fetched.
TEST_P(HostCopyFaults, AtEveryCallOfARunNameTheCopyAndLeaveTheNextRunRight) {
  MixedSession session(two_nodes(), {}, kFastDevices, {"fakegpu:0", "cpu"}, with(false));
  const Tensors feeds = feed_of(2 * kLarge + 777);
  const Tensors want = session.run(feeds);
  fakegpu().reset();
  session.run(feeds);
  const std::uint64_t calls = counters().fallible_calls;
  ASSERT_GE(calls, 3 * pieces_of(2 * kLarge + 777));
  std::uint64_t of_copies = 0;
  for (std::uint64_t position = 1; position <= calls; ++position) {
    fakegpu().fail_call(position, GetParam().code, GetParam().asynchronous ? 1 : 0);
    try {
      session.run(feeds);
      ADD_FAILURE() << "call " << position << " of " << calls << " failed and nobody was told";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), GetParam().seen) << error.what();
      EXPECT_NE(error.message().find("fakegpu:0"), std::string::npos) << error.what();
      if (error.message().find("copy '") != std::string::npos) ++of_copies;
    }
    fakegpu().fail_call(0, BP_OK, 0);
    EXPECT_EQ(difference(session.run(feeds), want), "") << "after call " << position;
  }
  EXPECT_GE(of_copies, 2 * pieces_of(2 * kLarge + 777));
  EXPECT_EQ(findings(), "");
}

INSTANTIATE_TEST_SUITE_P(Codes, HostCopyFaults,
                         ::testing::Values(CopyFault{BP_OUT_OF_MEMORY, Code::OutOfMemory, false},
                                           CopyFault{BP_FAILED, Code::Failed, false},
                                           CopyFault{BP_FAILED, Code::Failed, true}),
                         [](const auto& row) {
                           return text("code_", row.param.code,
                                       row.param.asynchronous ? "_async" : "");
                         });

}  // namespace
}  // namespace backplane::core::faults

// Copies and work of different streams go on at the same time: seen in the trace, and in the time that a run takes.
#include <algorithm>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

constexpr int kLength = 8;  ///< nodes of a branch

/// Two chains from one input to an output each.
std::string two_chains() {
  ModelMaker maker;
  maker.input("x", {8, 16});
  for (const char* chain : {"a", "b"}) {
    std::string last = "x";
    for (int i = 0; i < kLength; ++i) {
      const std::string made = text(chain, i);
      maker.node(text("node_", made), i % 2 == 0 ? "Neg" : "Tanh", {last}, made);
      last = made;
    }
    maker.output(last);
  }
  return maker.bytes();
}

Placement chains_on(const char* first, const char* second) {
  Placement placement;
  for (int i = 0; i < kLength; ++i) {
    placement[text("node_a", i)] = first;
    placement[text("node_b", i)] = second;
  }
  return placement;
}

const Tensors kFeeds{{"x", random_tensor({8, 16}, 1)}};

class Overlap : public FaultTest {};

/// The fastest of some runs, in milliseconds.
double fastest(MixedSession& session) {
  double least = 1e9;
  for (int turn = 0; turn < 6; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    session.run(kFeeds);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

TEST_F(Overlap, TwoDevicesOfOneRunWorkAtTheSameTime) {
  const ProviderOptions slow{{"delay_us", "10000"}, {"rewrite", "false"}};
  const Tensors want = run_on_cpu(two_chains(), kFeeds);
  MixedSession together(two_chains(), chains_on("fakegpu:0", "fakegpu:0"), slow);
  MixedSession apart(two_chains(), chains_on("fakegpu:0", "fakegpu:1"), slow);
  EXPECT_EQ(difference(apart.run(kFeeds), want), "");
  EXPECT_LT(fastest(apart), 0.8 * fastest(together))
      << "a chain and its copies wait for the other device's";
  EXPECT_EQ(findings(), "");
}

struct Piece {
  std::string lane, category;
  double begin, end;
};

std::vector<Piece> pieces_of(const std::string& trace) {
  std::map<int, std::string> lanes;
  std::vector<Piece> pieces;
  const Json events = Json::parse(trace)["traceEvents"];
  for (const Json& event : events) {
    if (event["ph"] == "M" && event["name"] == "thread_name")
      lanes[event["tid"]] = event["args"]["name"];
  }
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], took = event["dur"];
    pieces.push_back({lanes[event["tid"]], event["cat"], begin, begin + took});
  }
  return pieces;
}

/// Copies of one lane that go on while a node of another one does.
std::size_t overlaps(const std::vector<Piece>& pieces) {
  std::size_t count = 0;
  for (const Piece& copy : pieces) {
    count +=
        static_cast<std::size_t>(std::any_of(pieces.begin(), pieces.end(), [&](const Piece& node) {
          return copy.category == "copy" && node.category == "node" && copy.lane != node.lane &&
                 node.lane.find("fakegpu") != std::string::npos && copy.begin < node.end &&
                 node.begin < copy.end;
        }));
  }
  return count;
}

// Timing a step makes its stream wait, so that within a run the trace shows one after the other: two runs overlap.
TEST_F(Overlap, TheTraceShowsCopiesOfOneRunDuringNodesOfAnother) {
  const Tensors want = run_on_cpu(two_chains(), kFeeds);
  MixedSession session(two_chains(), chains_on("fakegpu:0", "fakegpu:1"),
                       {{"delay_us", "2000"}, {"rewrite", "false"}},
                       {"fakegpu:0", "fakegpu:1", "cpu"},
                       [](SessionOptions& options) { options.profile = true; });
  session.run(kFeeds);
  EXPECT_EQ(overlaps(pieces_of(session.core().trace())), 0u);
  std::vector<std::string> wrong(2);
  std::vector<std::thread> callers;
  for (std::string& mine : wrong) {
    callers.emplace_back([&session, &want, &mine] {
      for (int turn = 0; turn < 5; ++turn) mine += difference(session.run(kFeeds), want);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<std::string>(2));
  EXPECT_GT(overlaps(pieces_of(session.core().trace())), 0u);
  EXPECT_EQ(findings(), "");
}

}  // namespace
}  // namespace backplane::core::faults

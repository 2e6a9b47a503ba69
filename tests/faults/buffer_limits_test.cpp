// Devices whose buffers are limited: what a run needs lies in as many as it takes, and none is larger than it may be.
#include <set>

#include <nlohmann/json.hpp>

#include "tests/faults/arena_audit.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class BufferLimits : public FaultTest {};

/// y = the sum of `count` values made of x, each of the one before; [n,8].
std::string fan(int count) {
  ModelMaker maker;
  maker.input("x", {-1, 8});
  for (int i = 0; i < count; ++i)
    maker.node(text("node_", i), i % 2 == 0 ? "Tanh" : "Neg", {i < 2 ? "x" : text("v", i - 1)},
               text("v", i));
  std::string sum = "v0";
  for (int i = 1; i < count; ++i) {
    maker.node(text("add_", i), "Add", {sum, text("v", i)}, text("s", i));
    sum = text("s", i);
  }
  return maker.output(sum).bytes();
}

Tensors rows(std::int64_t count) { return {{"x", random_tensor({count, 8}, 7)}}; }

ProviderOptions limited(std::uint64_t most, const char* host_copy = "none") {
  return {{"delay_us", "5"},
          {"rewrite", "false"},
          {"host_copy", host_copy},
          {"max_buffer", text(most)}};
}

std::string failure_of_run(MixedSession& session, const Tensors& feeds, Code code) {
  try {
    session.run(feeds);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.message();
  }
  return "it did not fail";
}

std::shared_ptr<Executable> executable_of(MixedSession& session, const Tensors& feeds,
                                          const Tensors& fetches) {
  std::vector<std::string> fed, fetched;
  for (const auto& [name, tensor] : feeds) fed.push_back(name);
  for (const auto& [name, tensor] : fetches) fetched.push_back(name);
  return session.core().route(fed, fetched).executable;
}

TEST_F(BufferLimits, ARunHasAsManyBuffersAsItTakes) {
  const std::string model = fan(8);
  for (const char* const way : {"none", "sync", "async"}) {
    MixedSession session(model, {}, limited(1024, way));
    for (int turn = 0; turn < 3; ++turn) {
      // Values of 256, 64 and 1024 bytes.
      for (const std::int64_t count : {8, 2, 32})
        EXPECT_EQ(difference(session.run(rows(count)), run_on_cpu(model, rows(count))), "")
            << count;
    }
    EXPECT_EQ(findings(), "");
    std::set<int> buffers;
    const Json memory = Json::parse(session.core().memory());
    for (const Json& plan : memory["plans"]) {
      for (const Json& value : plan["values"]) {
        if (value["place"] != "arena" || value["memory"] != "fakegpu:0") continue;
        EXPECT_LE(value["offset"].get<int>() + value["bytes"].get<int>(), 1024);
        buffers.insert(value["buffer"].get<int>());
      }
    }
    EXPECT_GT(buffers.size(), 2u) << "values that are there at once, each as large as a buffer";
  }
}

TEST_F(BufferLimits, RunsOfOtherSizesGrowAndAddBuffers) {
  const std::string model = fan(6);
  MixedSession session(model, {}, limited(4096));
  for (const std::int64_t count : {4, 20, 60, 100, 128, 90, 3})
    EXPECT_EQ(difference(session.run(rows(count)), run_on_cpu(model, rows(count))), "") << count;
  EXPECT_EQ(findings(), "");
}

TEST_F(BufferLimits, AValueThatNoBufferHoldsIsAnErrorThatNamesIt) {
  MixedSession session(fan(4), {}, limited(1024));
  const std::string why = failure_of_run(session, rows(33), Code::OutOfMemory);
  EXPECT_NE(why.find("no buffers of 1056 bytes; the largest are 1024"), std::string::npos) << why;
  EXPECT_NE(why.find("'x'"), std::string::npos) << why;
  EXPECT_EQ(difference(session.run(rows(32)), run_on_cpu(fan(4), rows(32))), "");
  EXPECT_EQ(findings(), "");
}

TEST_F(BufferLimits, RandomGraphsRunWithBuffersAsLargeAsTheirLargestValue) {
  std::size_t split = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    fakegpu().reset();
    const RandomGraph graph(seed);
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    std::uint64_t largest = 1;
    {
      MixedSession session(graph.model(), graph.placement(),
                           {{"delay_us", "0"}, {"rewrite", "false"}});
      const Json memory = Json::parse(session.core().memory());
      for (const Json& value : memory["plans"][0]["values"])
        largest = std::max(largest, value["bytes"].get<std::uint64_t>());
      for (const Json& weight : memory["weights"]["list"])
        largest = std::max(largest, weight["bytes"].get<std::uint64_t>());
    }
    MixedSession session(graph.model(), graph.placement(),
                         limited(largest, seed % 3 == 0 ? "async" : "none"));
    for (int turn = 0; turn < 3; ++turn)
      ASSERT_EQ(difference(session.run(graph.feeds()), want), "") << graph.describe();
    EXPECT_EQ(findings(), "") << graph.describe();
    const std::shared_ptr<Executable> executable = executable_of(session, graph.feeds(), want);
    EXPECT_EQ(PlanAudit(*executable).overlap(), "") << graph.describe();
    for (const auto& segment : executable->segments()) split += segment->split_arenas.size();
  }
  EXPECT_GT(split, 20u);
}

}  // namespace
}  // namespace backplane::core::faults

// M1: several paths through one model.
#include <thread>

#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class Paths : public SessionTest {};

/// x [2,4] -> h -> a (Relu), and h -> b (Tanh -> Softplus, which fakegpu does not have).
std::string two_heads() {
  ModelMaker maker;
  maker.input("x", {2, 4}).weight("w", {4, 3}, numbers(12, 1)).weight("b0", {3}, numbers(3, 2));
  maker.node("product", "Gemm", {"x", "w", "b0"}, "h")
      .node("left", "Relu", {"h"}, "a")
      .node("middle", "Tanh", {"h"}, "t")
      .node("right", "Softplus", {"t"}, "b");
  return maker.output("a").output("b").bytes();
}

std::vector<float> path_output(TestSession& session, const std::string& path,
                               const std::string& output) {
  const Value x = Value::tensor<float>({2, 4}, numbers(8, 3));
  return elements(session->run_path(path, {{"x", x}}, {output})[0]);
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

const Settings kTwoPaths = {{"providers", "cpu"},
                            {"path.fast.outputs", "a"},
                            {"path.fast.providers", "fakegpu:0"},
                            {"path.fast.backup", "none"},
                            {"path.whole.providers", "fakegpu:0"},
                            {"path.whole.backup", "cpu"},
                            {"path.whole.threads", "1"}};

TEST_F(Paths, M1EachHasItsOwnOutputsProvidersAndThreads) {
  TestSession session(two_heads(), kTwoPaths);
  EXPECT_EQ(session->paths(), (std::vector<std::string>{"fast", "whole"}));
  const std::vector<float> a = session.run(numbers(8, 3), {2, 4}, "a");
  const std::vector<float> b = session.run(numbers(8, 3), {2, 4}, "b");
  EXPECT_EQ(counters().computes, 0u) << "the session itself is on the cpu";
  expect_near(path_output(session, "fast", "a"), a);
  EXPECT_GT(counters().computes, 0u);
  expect_near(path_output(session, "whole", "a"), a);
  expect_near(path_output(session, "whole", "b"), b);
  const Json paths = session.explain()["paths"];
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0]["outputs"], Json::array({"a"}));
  EXPECT_EQ(paths[0]["providers"], Json::array({"fakegpu:0"}));
  EXPECT_TRUE(paths[0]["backup"].is_null()) << paths[0];
  EXPECT_EQ(paths[1]["backup"], "cpu");
  EXPECT_EQ(paths[1]["threads"], 1);
}

TEST_F(Paths, M1WithNoNamesAllOutputsOfThePathAreGiven) {
  TestSession session(two_heads(), kTwoPaths);
  const Value x = Value::tensor<float>({2, 4}, numbers(8, 3));
  EXPECT_EQ(session->run_path("fast", {{"x", x}}).size(), 1u);
  EXPECT_EQ(session->run_path("whole", {{"x", x}}).size(), 2u);
}

TEST_F(Paths, M1APathMayStartAtAnInnerValue) {
  TestSession session(
      two_heads(), {{"providers", "cpu"}, {"path.tail.inputs", "h"}, {"path.tail.outputs", "a"}});
  const Value h = Value::tensor<float>({2, 3}, std::vector<float>{-1, 2, -3, 4, -5, 6});
  EXPECT_EQ(elements(session->run_path("tail", {{"h", h}})[0]),
            (std::vector<float>{0, 2, 0, 4, 0, 6}));
}

TEST_F(Paths, M1APathThroughInnerValuesIsCutFromTheModelAsItWas) {
  ModelMaker maker;
  maker.input("x", {3});
  maker.node("one", "Relu", {"x"}, "left")
      .node("two", "Relu", {"x"}, "right")  // equal to the first, as long as nobody feeds it
      .node("three", "Sub", {"left", "right"}, "y")
      .node("four", "Identity", {"x"}, "same");
  const std::string model = maker.output("y").bytes();
  TestSession session(model, {{"providers", "cpu"},
                              {"path.feeds.inputs", "x,right"},
                              {"path.feeds.outputs", "y"},
                              {"path.ends.inputs", "x"},
                              {"path.ends.outputs", "same"}});
  const Value x = Value::tensor<float>({3}, std::vector<float>{1, 2, 3});
  const Value right = Value::tensor<float>({3}, std::vector<float>{10, 20, 30});
  EXPECT_EQ(elements(session->run_path("feeds", {{"x", x}, {"right", right}})[0]),
            (std::vector<float>{-9, -18, -27}));
  EXPECT_EQ(elements(session->run_path("ends", {{"x", x}})[0]), (std::vector<float>{1, 2, 3}));
}

TEST_F(Paths, M1WeightsAreSharedBetweenPaths) {
  TestSession session(two_heads(), {{"providers", "fakegpu:0,cpu"},
                                    {"path.one.providers", "fakegpu:0"},
                                    {"path.two.providers", "fakegpu:0"}});
  EXPECT_EQ(counters().packs, 1u);
  path_output(session, "one", "a");
  path_output(session, "two", "a");
  EXPECT_EQ(counters().packs, 1u) << "packed once for the session and both paths";
  EXPECT_EQ(counters().open_devices, 1u);
}

TEST_F(Paths, M1NoBackupAndNoKernelIsAnErrorWithTheReasons) {
  const Failure failure = failure_of([&] {
    TestSession(
        two_heads(),
        {{"providers", "cpu"}, {"path.all.providers", "fakegpu:0"}, {"path.all.backup", "none"}});
  });
  EXPECT_EQ(failure.code, BACKPLANE_UNSUPPORTED);
  EXPECT_HOLDS(failure.text, "path 'all'");
  EXPECT_HOLDS(failure.text, "node 'right/");  // of its function body
  EXPECT_HOLDS(failure.text, "fakegpu:0 has no kernel");
}

TEST_F(Paths, M1LowPowerHalvesTheThreadsAndLowMemoryKeepsNothing) {
  TestSession session(two_heads(), {{"providers", "cpu"},
                                    {"threads", "2"},
                                    {"path.low.providers", "fakegpu:0"},
                                    {"path.low.power", "low"},
                                    {"path.low.memory", "low"}});
  EXPECT_EQ(session.explain()["paths"][0]["threads"], 1);
  path_output(session, "low", "a");
  const std::uint64_t idle = counters().buffer_bytes;
  path_output(session, "low", "a");
  EXPECT_EQ(counters().buffer_bytes, idle);
  EXPECT_EQ(counters().streams, 0u) << "a run's streams and memory end with it";
}

TEST_F(Paths, M1WrongNamesAreToldWithTheRightOnes) {
  TestSession session(two_heads(), kTwoPaths);
  const Value x = Value::tensor<float>({2, 4}, numbers(8, 3));
  const auto text_of = [&](const std::string& path, const Feeds& feeds,
                           const std::vector<std::string>& fetches) {
    const Failure failure = failure_of([&] { session->run_path(path, feeds, fetches); });
    EXPECT_NE(failure.code, 0);
    return failure.text;
  };
  EXPECT_HOLDS(text_of("fats", {{"x", x}}, {"a"}), "did you mean 'fast'");
  EXPECT_HOLDS(text_of("fast", {}, {"a"}), "'x'");
  EXPECT_HOLDS(text_of("fast", {{"x", x}, {"h", x}}, {"a"}), "1 feeds");
  EXPECT_HOLDS(text_of("fast", {{"x", x}}, {"b"}), "no output 'b'");
  EXPECT_HOLDS(failure_of([&] { TestSession(two_heads(), {{"path.p.inputs", "y"}}); }).text, "'y'");
  EXPECT_HOLDS(failure_of([&] {
                 TestSession(two_heads(), {{"path.p.precision", "tf32"}});
               }).text,
               "tf32");
}

TEST_F(Paths, M1PathsRunAtTheSameTime) {
  TestSession session(two_heads(), kTwoPaths);
  const std::vector<float> want = session.run(numbers(8, 3), {2, 4}, "a");
  std::vector<std::thread> threads;
  for (const char* path : {"fast", "whole", "fast", "whole"}) {
    threads.emplace_back([&session, &want, path] {
      for (int i = 0; i < 20; ++i) expect_near(path_output(session, path, "a"), want);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace backplane::session_test

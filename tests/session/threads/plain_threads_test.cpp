// L4, T3: many threads over plain kernels: what the thread sanitizer watches.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "tests/session/threads/generated_graph.hpp"

namespace backplane::session_test {
namespace {

/// Of the runs, one in so many is enough for the thread sanitizer: it tells a race by what is not ordered, and need not wait for
/// one to happen. The others find out what comes of as many as a test says.
#ifdef BACKPLANE_SANITIZED_THREAD
constexpr int kShare = 4;
#else
constexpr int kShare = 1;
#endif

const Environment& plain_environment() {
  static const Environment shared = threaded_environment(BACKPLANE_TEST_PLAIN_PLUGINS);
  return shared;
}

class Threads : public ::testing::TestWithParam<const char*> {};

TEST_P(Threads, L4EightThreadsMakeTenThousandRunsEachOnOneSession) {
  constexpr int kThreads = 8;
  constexpr int kRuns = 10000 / kShare;
  ModelMaker model;
  model.input("x", {"n", 4}).output("y").output("z");
  model.node("Relu", {"x"}, {"z"}).node("Add", {"x", "z"}, {"s"}).node("Add", {"s", "s"}, {"y"});
  const std::string bytes = model.bytes();
  Options options;
  options.set("providers", "null").set("execution_mode", GetParam());
  const Session session(plain_environment(), bytes.data(), bytes.size(), options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const std::int64_t rows = 1 + thread % 3;  // plans come and go meanwhile
      const auto count = static_cast<std::size_t>(rows * 4);
      for (int run = 0; run < kRuns; ++run) {
        const auto number = static_cast<float>((thread + 1) * (run % 2 == 0 ? 1 : -1));
        const Value x = Value::tensor<float>({rows, 4}, std::vector<float>(count, number));
        const std::vector<Value> made = session.run({{"x", x}});
        const float z = number > 0 ? number : 0;
        if (made[0].data<float>()[count - 1] != 2 * (number + z) || made[1].data<float>()[0] != z)
          ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Threads, M2PlansAreResizedWhileOthersRun) {
  constexpr int kThreads = 4;
  constexpr int kRuns = 1000 / kShare;  // each number of rows several times
  ModelMaker model;
  model.input("x", {"n", 4}).output("y");
  model.node("Relu", {"x"}, {"z"}).node("Add", {"x", "z"}, {"s"}).node("Add", {"s", "s"}, {"y"});
  const std::string bytes = model.bytes();
  Options options;
  options.set("providers", "null").set("execution_mode", GetParam()).set("plan_cache", "2");
  const Session session(plain_environment(), bytes.data(), bytes.size(), options);
  std::atomic<int> wrong{0}, running{kThreads};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int run = 0; run < kRuns; ++run) {
        const std::int64_t rows = 20 + 64 * (thread % 3) + run % 50;
        const auto count = static_cast<std::size_t>(rows * 4);
        const Value x = Value::tensor<float>({rows, 4}, std::vector<float>(count, 1.5f));
        const std::vector<Value> made = session.run({{"x", x}});
        if (made[0].dims() != x.dims() || made[0].data<float>()[count - 1] != 6) ++wrong;
      }
      --running;
    });
  }
  while (running > 0) {
    if (session.explain().empty() || session.memory().empty()) ++wrong;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, Threads, ::testing::Values("sequential", "parallel"));

TEST(PlainParallel, T3GeneratedGraphsGiveTheSameBits) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const GeneratedGraph graph(seed, true);
    EXPECT_EQ(difference_of_modes(plain_environment(), graph, "null"), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace backplane::session_test

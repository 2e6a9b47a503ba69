// Runs one after the other and at a time: a failure leaves the session as it was, threads do not see each other.
#include <atomic>
#include <thread>

#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

using Indices = std::vector<std::int64_t>;

/// y = 2 * x[i], fails for an index that is out of range; also z, which is ready by then.
ModelMaker gathering() {
  ModelMaker maker;
  maker.input("x", {"n"}).input("i", {"m"}, ModelMaker::kInt64);
  maker.node("Neg", {"x"}, "z").node("Gather", {"x", "i"}, "taken", 0);
  return maker.node("Add", {"taken", "taken"}, "y").output("y").output("z");
}

class FailedRuns : public SessionTest {
 protected:
  static std::vector<float> run(const Session& session, const Indices& indices) {
    const Value x = tensor<float>({3}, {10, 20, 30});
    const Value i = tensor<std::int64_t>({static_cast<std::int64_t>(indices.size())}, indices);
    return elements(session.run({{"x", x}, {"i", i}})[0]);
  }
  static std::string failing(const Session& session, const Indices& indices) {
    return failure([&] { run(session, indices); }, BACKPLANE_FAILED);
  }
};

TEST_F(FailedRuns, NameTheNodeAndLeaveTheSessionUsable) {
  const Session session = open(gathering());
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(run(session, {2, 0}), (std::vector<float>{60, 20})) << round;
    expect_words(failing(session, {0, 7}), {"'make_taken'", "Gather", "7"});
  }
  EXPECT_EQ(run(session, {-1}), (std::vector<float>{60}));
}

TEST_F(FailedRuns, MayBeTheFirst) {
  const Session session = open(gathering());
  failing(session, {5});
  EXPECT_EQ(run(session, {1}), (std::vector<float>{40}));
}

TEST_F(FailedRuns, LeaveABindingUsable) {
  const Session session = open(gathering());
  const Value x = tensor<float>({3}, {10, 20, 30});
  Value i = tensor<std::int64_t>({1}, {1});
  Binding binding(session);
  binding.bind_input("x", x);
  binding.bind_input("i", i);
  binding.bind_output("y");
  for (int round = 0; round < 3; ++round) {
    i.data<std::int64_t>()[0] = 1;
    binding.run();
    EXPECT_EQ(elements(binding.output("y")), (std::vector<float>{40})) << round;
    i.data<std::int64_t>()[0] = 9;
    failure([&] { binding.run(); }, BACKPLANE_FAILED);
  }
}

/// A failed plan (shapes that do not fit) is no plan: the next feeds are planned anew.
TEST_F(FailedRuns, OfShapesThatDoNotFitLeaveNoPlan) {
  ModelMaker maker;
  maker.input("a", {"n", "?"}).input("b", {"m", "?"}).node("MatMul", {"a", "b"}, "y").output("y");
  const Session session = open(maker);
  const auto product = [&](const Dims& a, const Dims& b) {
    return session.run({{"a", Value::tensor<float>(a)}, {"b", Value::tensor<float>(b)}})[0].dims();
  };
  for (int round = 0; round < 2; ++round) {
    expect_words(failure([&] { product({2, 3}, {4, 5}); }), {"'make_y'", "MatMul"});
    EXPECT_EQ(product({2, 3}, {3, 5}), (Dims{2, 5}));
  }
}

class Threads : public SessionTest {
 protected:
  /// Calls `body(thread)` on four threads.
  static void on_threads(const std::function<void(int thread)>& body) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) threads.emplace_back([&, thread] { body(thread); });
    for (std::thread& thread : threads) thread.join();
  }

  /// One run of gathering() with shapes and values of the thread's own, `bad` with an index out of range.
  /// True when y is right; a failed run throws.
  static bool gathers(const Session& session, int thread, int round, bool bad) {
    const std::int64_t n = 1 + (thread * 7 + round) % 9, m = 1 + round % 4;
    const Value x = Value::tensor<float>({n}), i = Value::tensor<std::int64_t>({m});
    Value fill_x = Value::borrow<float>({n}, const_cast<float*>(x.data<float>()),
                                        static_cast<std::uint64_t>(n));
    for (std::int64_t k = 0; k < n; ++k)
      fill_x.data<float>()[k] = static_cast<float>(thread * 1000 + round + k);
    auto* indices = const_cast<std::int64_t*>(i.data<std::int64_t>());
    for (std::int64_t k = 0; k < m; ++k) indices[k] = (round + k) % n;
    if (bad) indices[0] = n + 3;
    std::vector<float> want;
    for (std::int64_t k = 0; k < m; ++k) want.push_back(bad ? 0 : 2 * x.data<float>()[indices[k]]);
    return elements(session.run({{"x", x}, {"i", i}}, {"y"})[0]) == want;
  }
};

/// Every thread with shapes and values of its own, failing now and then, more shapes than the cache of plans holds.
TEST_F(Threads, RunOneSessionAtATime) {
  const Session session = open(gathering(), on_cpu().set("plan_cache", "2"));
  std::atomic<int> wrong{0}, failed{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 60; ++round) {
      const bool bad = round % 13 == 5;
      try {
        wrong += gathers(session, thread, round, bad) && !bad ? 0 : 1;
      } catch (const Error&) {
        ++(bad ? failed : wrong);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 4 * 5);
}

TEST_F(Threads, RunBindingsOfOneSession) {
  ModelMaker maker;
  maker.input("x", {"n", "8"}).weight("w", {8, 8}, std::vector<float>(64, 0.5f));
  maker.node("MatMul", {"x", "w"}, "product").node("Relu", {"product"}, "y").output("y");
  const Session session = open(maker);
  std::atomic<int> wrong{0};
  on_threads([&](int thread) {
    Binding binding(session);
    const std::vector<float> ones(static_cast<std::size_t>(thread + 1) * 8,
                                  static_cast<float>(thread + 1));
    const Value x = tensor<float>({thread + 1, 8}, ones);
    binding.bind_input("x", x);
    binding.bind_output("y");
    for (int round = 0; round < 100; ++round) {
      binding.run();
      for (const float y : elements(binding.output("y")))
        wrong += y != 4 * static_cast<float>(thread + 1) ? 1 : 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(Threads, OpenAndRunSessionsOfOneEnvironment) {
  const std::string model = gathering().bytes();
  std::atomic<int> wrong{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 5; ++round) {
      const Session session(environment(), model.data(), model.size(), on_cpu());
      const Value x = tensor<float>({2}, {1, static_cast<float>(thread)});
      const Value i = tensor<std::int64_t>({1}, {1});
      wrong += elements(session.run({{"x", x}, {"i", i}})[0])[0] != 2 * static_cast<float>(thread);
      wrong += session.explain().empty() || session.statistics().empty() ? 1 : 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

/// What a run needs of inner values is found on the way; several threads ask for different ones.
TEST_F(Threads, FetchDifferentValues) {
  const Session session = open(gathering(), on_cpu().set("optimization", "none"));
  std::atomic<int> wrong{0};
  on_threads([&](int thread) {
    const char* const names[] = {"y", "z", "taken", "i"};
    const Value x = tensor<float>({3}, {10, 20, 30});
    const Value i = tensor<std::int64_t>({1}, {2});
    for (int round = 0; round < 20; ++round) {
      const Value got =
          std::move(session.run({{"x", x}, {"i", i}}, {names[(thread + round) % 4]})[0]);
      const double value = got.element_type() == ElementType::Int64
                               ? static_cast<double>(got.data<std::int64_t>()[0])
                               : static_cast<double>(got.data<float>()[0]);
      const double want[] = {60, -10, 30, 2};
      wrong += value != want[(thread + round) % 4] ? 1 : 0;
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace backplane::runtime_test

// Many threads at a time: runs of one session, sessions that come and go, failures meanwhile.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <thread>

#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

/// Fake devices, and the null provider as the host's: no cpu plugin.
class Threads : public FaultTest {
 protected:
  static constexpr int kThreads = 4;

  static const std::vector<std::string>& providers() {
    static const std::vector<std::string> names{"fakegpu:0", "fakegpu:1", "null"};
    environment()->plugins().load(BACKPLANE_TEST_FIXTURES_DIR "/null_provider.so");
    return names;
  }
  static void on_threads(const std::function<void(int thread)>& body) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] { body(thread); });
    for (std::thread& thread : threads) thread.join();
  }
  static Tensors feeds(int seed) {
    return {{"x", random_tensor({6, 8}, 100 + static_cast<std::uint64_t>(seed))}};
  }

  /// y = relu(tanh(x w) + sigmoid(x)), z = tanh(x w): over both devices and the host.
  static std::string model() {
    ModelMaker maker;
    maker.input("x", {6, 8}).weight("w", random_tensor({8, 8}, 9));
    maker.node("product", "MatMul", {"x", "w"}, "p").node("tanh", "Tanh", {"p"}, "z");
    maker.node("sigmoid", "Sigmoid", {"x"}, "s").node("sum", "Add", {"z", "s"}, "a");
    return maker.node("relu", "Relu", {"a"}, "y").output("y").output("z").bytes();
  }
  static const Placement& placement() {
    static const Placement places{{"product", "fakegpu:0"},
                                  {"tanh", "fakegpu:1"},
                                  {"sigmoid", "fakegpu:0"},
                                  {"sum", "null"},
                                  {"relu", "fakegpu:1"}};
    return places;
  }
  /// Straight from the definitions.
  static Tensors wanted(const Tensors& fed) {
    const Tensor w = random_tensor({8, 8}, 9);
    const Tensor& x = fed.at("x");
    Tensors want{{"y", {{6, 8}, {}}}, {"z", {{6, 8}, {}}}};
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        float product = 0;
        for (std::size_t k = 0; k < 8; ++k)
          product += x.elements[row * 8 + k] * w.elements[k * 8 + column];
        const float z = std::tanh(product);
        want["z"].elements.push_back(z);
        want["y"].elements.push_back(
            std::max(0.0f, z + 1 / (1 + std::exp(-x.elements[row * 8 + column]))));
      }
    }
    return want;
  }
};

TEST_F(Threads, RunOneSession) {
  for (const char* const peer : {"false", "true"}) {
    MixedSession session(model(), placement(), {{"peer", peer}, {"delay_us", "100"}}, providers());
    std::atomic<int> wrong{0};
    on_threads([&](int thread) {
      for (int round = 0; round < 15; ++round) {
        const Tensors fed = feeds(thread * 100 + round);
        wrong += difference(session.run(fed), wanted(fed)).empty() ? 0 : 1;
      }
    });
    EXPECT_EQ(wrong, 0) << "peer=" << peer;
    EXPECT_EQ(findings(), "") << "peer=" << peer;
  }
}

TEST_F(Threads, OpenSessionsThatShareWeights) {
  std::atomic<int> wrong{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 8; ++round) {
      MixedSession session(model(), placement(), {{"delay_us", "20"}}, providers());
      const Tensors fed = feeds(thread * 100 + round);
      wrong += difference(session.run(fed), wanted(fed)).empty() ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(findings(), "");
}

/// Some calls fail while others run: every run is right or fails with what was injected, and afterwards all is well.
TEST_F(Threads, SurviveFailuresOfOthers) {
  for (const std::uint32_t asynchronous : {0u, 1u}) {
    MixedSession session(model(), placement(), {{"delay_us", "20"}}, providers());
    std::atomic<int> wrong{0}, failed{0};
    on_threads([&](int thread) {
      for (int round = 0; round < 20; ++round) {
        const Tensors fed = feeds(thread * 100 + round);
        if (thread == 0)
          fakegpu().fail_call(1 + 3 * static_cast<std::uint64_t>(round), BP_FAILED, asynchronous);
        try {
          wrong += difference(session.run(fed), wanted(fed)).empty() ? 0 : 1;
        } catch (const Error& error) {
          ++failed;
          wrong += error.code() == Code::Failed ? 0 : 1;
        }
      }
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(failed, 0);
    fakegpu().reset();
    EXPECT_EQ(difference(session.run(feeds(1)), wanted(feeds(1))), "");
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(Threads, ALostDeviceFailsEveryRunAndNothingHangs) {
  MixedSession session(model(), placement(), {{"delay_us", "50"}}, providers());
  std::atomic<int> wrong{0}, lost{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 12; ++round) {
      const Tensors fed = feeds(thread * 100 + round);
      if (thread == 0 && round == 4) fakegpu().lose_device(1);
      try {
        wrong += difference(session.run(fed), wanted(fed)).empty() ? 0 : 1;
      } catch (const Error& error) {
        ++lost;
        wrong += error.code() == Code::DeviceLost ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(lost, 8) << "all of the thread that lost it";
}

TEST_F(Threads, ClaimsAndRewritesOfRandomGraphs) {
  for (std::uint64_t seed = 401; seed <= 404; ++seed) {
    const RandomGraph graph(seed);
    Placement places = graph.placement();
    std::erase_if(places, [](const auto& entry) { return entry.second == "cpu"; });
    MixedSession session(graph.model(), places,
                         {{"delay_us", "20"},
                          {"seed", std::to_string(seed)},
                          {"compile", seed % 2 == 0 ? "all" : "off"}},
                         providers());
    const Tensors want = session.run(graph.feeds());
    std::atomic<int> wrong{0};
    on_threads([&](int) {
      for (int round = 0; round < 5; ++round)
        wrong += difference(session.run(graph.feeds()), want).empty() ? 0 : 1;
    });
    EXPECT_EQ(wrong, 0) << "seed " << seed << "\n" << graph.describe();
    EXPECT_EQ(findings(), "");
  }
}

/// x + b0 + b1 + ..., each of which the null provider adds only to what has its dims.
class Sums {
 public:
  static constexpr int kNodes = 32;

  Sums() : session_(model(), {}, {}, {"null", "fakegpu:0"}) {
    std::vector<std::string> feeds{"x"};
    for (int node = 0; node < kNodes; ++node) feeds.push_back(text("b", node));
    executable_ = session_.core().route(feeds, {text("s", kNodes - 1)}).executable;
  }
  const Executable& executable() const { return *executable_; }
  /// The first element of a sum of ones. `narrow`: the node whose second summand has one row; -1: none.
  float run(int narrow, PlanMemo* memo) const {
    std::vector<RuntimeValue> values(executable_->cut().feeds.size());
    RunValues feeds;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_narrow = executable_->cut().feeds[i] == text("b", narrow);
      values[i].set_owned_tensor(DataType::Float, {is_narrow ? 1 : 2, 4});
      std::fill_n(static_cast<float*>(values[i].description.host_ptr), is_narrow ? 4 : 8, 1.0f);
      feeds.push_back(&values[i]);
    }
    RuntimeValue sum;
    RunSettings settings;
    settings.memo = memo;
    executable_->run(feeds, {&sum}, settings);
    return *static_cast<const float*>(sum.description.host_ptr);
  }

 private:
  static std::string model() {
    ModelMaker maker;
    maker.input("x", {-1, 4});
    for (int node = 0; node < kNodes; ++node) {
      maker.input(text("b", node), {-1, 4});
      maker.node(text("add", node), "Add", {node == 0 ? "x" : text("s", node - 1), text("b", node)},
                 text("s", node));
    }
    return maker.output(text("s", kNodes - 1)).bytes();
  }

  MixedSession session_;
  std::shared_ptr<Executable> executable_;
};

/// Nodes leave their provider, one after another, for shapes that it refuses. Whoever runs meanwhile with what it knows of
/// its last run goes on with the program that has come of it.
TEST_F(Threads, RunWhileTheProgramIsReplaced) {
  providers();
  const Sums sums;
  std::barrier round_begins(kThreads), round_ends(kThreads);
  std::atomic<int> wrong{0}, left_behind{0};
  std::atomic<int> replaced{-1};  // the last node that has left
  on_threads([&](int thread) {
    PlanMemo memo;
    const auto run = [&](int narrow) {
      wrong += sums.run(narrow, &memo) != 1 + Sums::kNodes ? 1 : 0;
    };
    for (int node = 0; node < Sums::kNodes; ++node) {
      run(-1);
      round_begins.arrive_and_wait();
      if (thread == 0) {
        run(node);
        replaced = node;
      }
      while (replaced < node) run(-1);
      run(-1);
      left_behind += memo.generation != sums.executable().generation() ? 1 : 0;
      round_ends.arrive_and_wait();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(left_behind, 0);
  EXPECT_EQ(findings(), "");
}

/// Branches at the same time, on the null provider alone: several runs share the pool.
TEST_F(Threads, RunBranchesOfOneGraphAtATime) {
  providers();
  constexpr int kBranches = 6, kDepth = 4;
  ModelMaker maker;
  maker.input("x", {64, 64}).weight("w", random_tensor({64, 64}, 2));
  std::string sum = "x";
  for (int branch = 0; branch < kBranches; ++branch) {
    std::string last = "x";
    for (int i = 0; i < kDepth; ++i) {
      const std::string made = text("v", branch, "_", i);
      maker.node("add_" + made, "Add", {last, "w"}, made + "_a");
      maker.node("relu_" + made, "Relu", {made + "_a"}, made);
      last = made;
    }
    maker.node(text("join", branch), "Add", {sum, last}, text("s", branch));
    sum = text("s", branch);
  }
  const std::string model = maker.output(sum).bytes();
  SessionOptions options;
  options.providers = {{"null", {}}};
  options.optimization = OptimizationLevel::None;
  options.parallel = true;
  Session session(environment(), "", std::as_bytes(std::span(model)), options);
  const Tensor w = random_tensor({64, 64}, 2);
  std::atomic<int> wrong{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 40; ++round) {
      const int seed = thread * 100 + round;
      const Tensor fed = random_tensor({64, 64}, static_cast<std::uint64_t>(seed));
      RuntimeValue x, y;
      x.set_owned_tensor(DataType::Float, fed.dims);
      std::copy(fed.elements.begin(), fed.elements.end(),
                static_cast<float*>(x.description.host_ptr));
      session.run({{"x", &x}}, {{sum, &y}});
      for (std::size_t i = 0; i < fed.elements.size(); ++i) {
        float branch = fed.elements[i], want = fed.elements[i];
        for (int k = 0; k < kDepth; ++k) branch = std::max(0.0f, branch + w.elements[i]);
        for (int k = 0; k < kBranches; ++k) want += branch;
        wrong += static_cast<const float*>(y.description.host_ptr)[i] != want ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

/// Each caller's context records its own work; faults strike recordings and replays as anything else.
TEST_F(Threads, ReplayWhatTheyRecorded) {
  ModelMaker maker;
  maker.input("x", {6, 8}).node("one", "Tanh", {"x"}, "a").node("two", "Neg", {"a"}, "b");
  const std::string chain = maker.node("three", "Tanh", {"b"}, "y").output("y").bytes();
  MixedSession session(chain, {}, {{"delay_us", "20"}}, providers());
  std::atomic<int> wrong{0}, failed{0};
  on_threads([&](int thread) {
    for (int round = 0; round < 60; ++round) {
      if (thread == 0 && round % 8 == 7) fakegpu().fail_call(3, BP_FAILED, round % 16 == 7 ? 1 : 0);
      const Tensors fed = feeds(thread * 100 + round);
      try {
        const Tensors got = session.run(fed);
        for (std::size_t i = 0; i < 6 * 8; ++i) {
          const float want = std::tanh(-std::tanh(fed.at("x").elements[i]));
          wrong += std::abs(got.at("y").elements[i] - want) > 1e-5f ? 1 : 0;
        }
      } catch (const Error&) {
        ++failed;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(failed, 8);
  EXPECT_GT(counters().replays, 0u);
  EXPECT_EQ(findings(), "");
}

/// Two devices that cannot reach each other, and no device on the host: values still go over its memory.
TEST_F(Threads, NoDeviceOnTheHostIsNeeded) {
  EnvironmentOptions options;
  options.threads = 1;
  options.log_level = "error";
  const auto alone = std::make_shared<Environment>(options, Logger::Sink());
  alone->plugins().load(BACKPLANE_TEST_FIXTURES_DIR "/fakegpu.so");
  ModelMaker maker;
  maker.input("x", {2, 3}).node("one", "Tanh", {"x"}, "a").node("two", "Neg", {"a"}, "y");
  const std::string model = maker.output("y").bytes();
  SessionOptions session_options;
  session_options.providers = {{"fakegpu:0", {}}, {"fakegpu:1", {}}};
  session_options.placement = {{"two", "fakegpu:1"}};
  for (const char* const host_copy : {"none", "sync", "async"}) {
    const bool pinned = host_copy == std::string("none");
    session_options.provider_options["fakegpu"] = {{"host_copy", host_copy},
                                                   {"pinned", pinned ? "true" : "false"}};
    Session session(alone, "", std::as_bytes(std::span(model)), session_options);
    RuntimeValue x, y;
    x.set_owned_tensor(DataType::Float, {2, 3});
    std::fill_n(static_cast<float*>(x.description.host_ptr), 6, 1.0f);
    for (int round = 0; round < 2; ++round) {
      session.run({{"x", &x}}, {{"y", &y}});
      EXPECT_NEAR(static_cast<const float*>(y.description.host_ptr)[5], -std::tanh(1.0f), 1e-6);
    }
    EXPECT_EQ(findings(), "");
  }
}

}  // namespace
}  // namespace backplane::core::faults

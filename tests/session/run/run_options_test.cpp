// L4, L6: how runs are asked for, cancelled, and what is left of a failed one.
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// x -> Probe -> Probe -> y
struct TwoProbes {
  Probe first, second;
  ModelMaker model =
      ModelMaker().input("x", {2}).output("y").probe("x", "a", first).probe("a", "y", second);
};

Value two_floats() { return Value::tensor<float>({2}, std::vector<float>{1, 2}); }

TEST(RunOptions, L6KeysAreReadBackAndUnknownOnesNameTheNearest) {
  RunOptions options;
  EXPECT_EQ(options.get("synchronize"), "true");
  EXPECT_EQ(options.get("only_path_to_fetches"), "true");
  options.set("tag", "night shift").set("log_level", "debug").set("shrink_arenas", "true");
  options.set("entry.request", "17");
  EXPECT_EQ(options.get("tag"), "night shift");
  EXPECT_EQ(options.get("log_level"), "debug");
  EXPECT_EQ(options.get("shrink_arenas"), "true");
  EXPECT_EQ(options.get("entry.request"), "17");
  EXPECT_EQ(failure_of([&] { options.get("entry.other"); }).first, BACKPLANE_NOT_FOUND);
  const auto [code, message] = failure_of([&] { options.set("shrink_arena", "true"); });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("shrink_arenas"));
  EXPECT_THAT(failure_of([&] { options.set("synchronize", "maybe"); }).second,
              HasSubstr("is not true or false"));
  EXPECT_THAT(failure_of([&] { options.set("log_level", "loud"); }).second, HasSubstr("warning"));
}

TEST(RunOptions, L4CancelEndsARunWithinTheKernelThatIsRunning) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  Cancel cancel;
  RunOptions options;
  options.set_cancel(cancel);
  net.first.hold = true;
  std::pair<std::int32_t, std::string> result;
  std::thread runner([&] { result = failure_of([&] { session->run({{"x", x}}, {}, options); }); });
  net.first.await(1);  // it is inside the first kernel now
  cancel.request();
  net.first.hold = false;
  runner.join();
  EXPECT_EQ(result.first, BACKPLANE_CANCELLED);
  EXPECT_THAT(result.second, HasSubstr("cancelled"));
  EXPECT_EQ(net.second.computes, 0u) << "a kernel ran after the run was cancelled";

  EXPECT_TRUE(cancel.is_requested());
  EXPECT_EQ(failure_of([&] { session->run({{"x", x}}, {}, options); }).first, BACKPLANE_CANCELLED);
  EXPECT_EQ(net.first.computes, 1u) << "a run began after it was cancelled";
  cancel.reset();
  EXPECT_THAT(session->run({{"x", x}}, {}, options).at(0).numbers(), ElementsAre(3, 4));
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(3, 4));
}

TEST(RunOptions, L4AKernelThatAsksIsToldOfTheCancellation) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  Binding binding(*session);
  binding.bind_input("x", x);
  Cancel cancel;
  net.first.hold = net.first.heeds_cancel = true;
  std::pair<std::int32_t, std::string> result;
  std::thread runner(
      [&] { result = failure_of([&] { binding.run(RunOptions().set_cancel(cancel)); }); });
  net.first.await(1);
  cancel.request();
  runner.join();
  EXPECT_NE(result.first, BACKPLANE_OK);
  EXPECT_EQ(net.second.computes, 0u);
  // The flag of an earlier run is forgotten: this run has none, although that one is still on.
  net.first.hold = false;
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(3, 4));
}

TEST(RunOptions, L4ADeadlineEndsARunWithinTheKernelThatIsRunning) {
  using namespace std::chrono_literals;
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  RunOptions options;
  options.set_timeout(50ms);
  net.first.hold = true;
  std::pair<std::int32_t, std::string> result;
  std::thread runner([&] { result = failure_of([&] { session->run({{"x", x}}, {}, options); }); });
  net.first.await(1);
  std::this_thread::sleep_for(60ms);  // the run began before this
  net.first.hold = false;
  runner.join();
  EXPECT_EQ(result.first, BACKPLANE_TIMEOUT) << result.second;
  EXPECT_THAT(result.second, HasSubstr("node 'y'"));
  EXPECT_THAT(result.second, HasSubstr("timeout_ms is 50"));
  EXPECT_EQ(net.second.computes, 0u) << "a kernel ran past the deadline";
  // Every run has the whole time; and the session is as it was.
  options.set_timeout(10min);
  EXPECT_THAT(session->run({{"x", x}}, {}, options).at(0).numbers(), ElementsAre(3, 4));
  EXPECT_THAT(session->run({{"x", x}}, {}, options).at(0).numbers(), ElementsAre(3, 4));
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(3, 4));
}

TEST(RunOptions, L4AKernelThatAsksIsToldOfTheDeadline) {
  using namespace std::chrono_literals;
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  Binding binding(*session);
  binding.bind_input("x", x);
  net.first.hold = net.first.heeds_cancel = true;  // nobody lets it go
  const auto result = failure_of([&] { binding.run(RunOptions().set_timeout(20ms)); });
  EXPECT_EQ(result.first, BACKPLANE_TIMEOUT) << result.second;
  EXPECT_THAT(result.second, HasSubstr("node 'a'"));
  EXPECT_THAT(result.second, HasSubstr("timeout_ms is 20"));
  net.first.hold = false;
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(3, 4));
}

TEST(RunOptions, L4TimeThatIsOverAlreadyEndsARunBeforeItsFirstKernel) {
  using namespace std::chrono_literals;
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  for (const auto left : {0ns, -5000ns}) {
    const RunOptions options = std::move(RunOptions().set_timeout(left));
    const auto result = failure_of([&] { session->run({{"x", x}}, {}, options); });
    EXPECT_EQ(result.first, BACKPLANE_TIMEOUT) << result.second;
    EXPECT_THAT(result.second, HasSubstr("node 'a'"));
  }
  EXPECT_EQ(net.first.computes, 0u);
}

TEST(RunOptions, L4DeadlinesAreReadBackAndWhatIsNoneIsRefused) {
  using namespace std::chrono_literals;
  RunOptions options;
  EXPECT_EQ(options.get("timeout_ms"), "");
  EXPECT_EQ(options.set("timeout_ms", "0.25").get("timeout_ms"), "0.25");
  EXPECT_EQ(options.set_timeout(1500us).get("timeout_ms"), "1.5");
  EXPECT_EQ(options.set("timeout_ms", "").get("timeout_ms"), "");
  for (const char* wrong : {"-1", "soon", "nan", "inf", "1e300", "5 ", "5ms"}) {
    const auto [code, message] = failure_of([&] { options.set("timeout_ms", wrong); });
    EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT) << wrong;
    EXPECT_THAT(message, HasSubstr("is not a number of milliseconds")) << wrong;
  }
}

TEST(RunOptions, L4AFailedRunLeavesTheSessionUsable) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  net.second.fails = true;
  for (int i = 0; i < 3; ++i) {
    const auto [code, message] = failure_of([&] { session->run({{"x", x}}); });
    EXPECT_EQ(code, BACKPLANE_FAILED);
    EXPECT_THAT(message, HasSubstr("node 'y'"));
  }
  net.second.fails = false;
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(3, 4));
}

TEST(RunOptions, L4FeedsAreCheckedAndTheErrorSaysWhatWasExpected) {
  const ModelMaker model = ModelMaker()
                               .input("a", {"n", 3})
                               .input("b", {"n", 3})
                               .output("y")
                               .node("Add", {"a", "b"}, {"y"});
  TestSession session(model);
  const Value good = Value::tensor<float>({2, 3});
  const auto message = [&](const char* name, const Value& value) {
    return failure_of([&] { session->run({{"a", good}, {name, value}}); }).second;
  };
  EXPECT_THAT(message("b", Value::tensor<double>({2, 3})), HasSubstr("tensor(float)"));
  EXPECT_THAT(message("b", Value::tensor<float>({2})), HasSubstr("[n,3]"));
  EXPECT_THAT(message("b", Value::tensor<float>({2, 4})), HasSubstr("[2,4]"));
  EXPECT_THAT(message("b", Value::tensor<float>({5, 3})), HasSubstr("the dimension 'n' is 2"));
  EXPECT_THAT(message("bb", good), HasSubstr("did you mean 'b'"));
  Binding binding(*session);
  const Value other = Value::tensor<float>({5, 3});
  binding.bind_input("a", good);
  binding.bind_input("b", other);
  EXPECT_THAT(failure_of([&] { binding.run(); }).second, HasSubstr("the dimension 'n' is 2"));
  Value small = Value::tensor<float>({1, 3});
  std::vector<Value> results(1);
  results[0] = std::move(small);
  EXPECT_THAT(failure_of([&] {
                session->run({{"a", good}, {"b", good}}, {}, results);
              }).second,
              HasSubstr("[2,3]"));
}

TEST(RunOptions, L6OnlyWhatTheFetchesNeedIsRunUnlessAskedOtherwise) {
  Probe wanted, other;
  const ModelMaker model = ModelMaker()
                               .input("x", {2})
                               .output("y")
                               .output("z")
                               .probe("x", "y", wanted)
                               .probe("x", "z", other);
  TestSession session(model);
  const Value x = two_floats();
  RunOptions options;
  EXPECT_THAT(session->run({{"x", x}}, {"y"}, options).at(0).numbers(), ElementsAre(2, 3));
  EXPECT_EQ(other.computes, 0u);
  options.set("only_path_to_fetches", "false");
  EXPECT_THAT(session->run({{"x", x}}, {"y"}, options).at(0).numbers(), ElementsAre(2, 3));
  EXPECT_EQ(other.computes, 1u);
  EXPECT_EQ(wanted.computes, 2u);
  Binding binding(*session);
  binding.bind_input("x", x);
  binding.bind_output("y");
  binding.run();
  EXPECT_EQ(other.computes, 1u);
  binding.run(options);
  EXPECT_EQ(other.computes, 2u);
  binding.run();
  EXPECT_EQ(other.computes, 2u);
}

TEST(RunOptions, L6ShrinkGivesTheArenasBack) {
  // Probes write where they do not read, so that the value between them needs an arena.
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  const auto arena_bytes = [&] {
    return nlohmann::json::parse(session->memory())["arenas"]["bytes"].get<int>();
  };
  session->run({{"x", x}});
  EXPECT_GT(arena_bytes(), 0);
  session->run({{"x", x}}, {}, RunOptions().set("shrink_arenas", "true"));
  EXPECT_EQ(arena_bytes(), 0);
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(3, 4));
  EXPECT_GT(arena_bytes(), 0);
}

TEST(RunOptions, L6ChangingThemDuringARunIsAnError) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  RunOptions options;
  net.first.hold = true;
  std::thread runner([&] { session->run({{"x", x}}, {}, options); });
  net.first.await(1);
  const auto [code, message] = failure_of([&] { options.set("tag", "late"); });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("in use"));
  EXPECT_EQ(options.get("tag"), "");  // reading is all right
  net.first.hold = false;
  runner.join();
  options.set("tag", "later");
  EXPECT_EQ(options.get("tag"), "later");
}

TEST(RunOptions, L4ABindingIsUsedByOneThreadAtATime) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  Binding binding(*session);
  binding.bind_input("x", x);
  net.first.hold = true;
  std::thread runner([&] { binding.run(); });
  net.first.await(1);
  EXPECT_THAT(failure_of([&] { binding.run(); }).second, HasSubstr("in use"));
  EXPECT_THAT(failure_of([&] { binding.bind_input("x", x); }).second, HasSubstr("in use"));
  net.first.hold = false;
  runner.join();
  binding.run();
}

TEST(RunOptions, L6RunsThatAreNotSynchronizedAreWaitedFor) {
  TwoProbes net;
  TestSession session(net.model);
  const Value x = two_floats();
  Binding binding(*session);
  binding.bind_input("x", x);
  const RunOptions options = std::move(RunOptions().set("synchronize", "false"));
  for (int i = 0; i < 3; ++i) {
    binding.run(options);
    session->synchronize();
    EXPECT_THAT(binding.output("y").numbers(), ElementsAre(3, 4));
  }
}

}  // namespace
}  // namespace backplane::session_test

// Work that devices record and do again as one: results, recording anew, faults, and the reasons for not doing it.
#include <nlohmann/json.hpp>

#include "core/runtime/binding.hpp"
#include "core/runtime/download.hpp"
#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class Capture : public FaultTest {};

const ProviderOptions kQuickDevices{{"delay_us", "5"}, {"rewrite", "false"}};
constexpr int kChainLength = 6;

/// node_0 to node_5, of which the one at `cut` is a Softplus, which fakegpu does not have.
std::string tanh_chain(int cut = -1) {
  ModelMaker maker;
  maker.input("x", {4, 8}).weight("w", random_tensor({8, 8}, 3));
  std::string last = "x";
  for (int i = 0; i < kChainLength; ++i) {
    const std::string made = text("v", i), node = text("node_", i);
    if (i == cut) {
      maker.node(node, "Softplus", {last}, made);
    } else if (i % 3 == 0) {
      maker.node(node, "MatMul", {last, "w"}, made);
    } else {
      maker.node(node, i % 3 == 1 ? "Tanh" : "Neg", {last}, made);
    }
    last = made;
  }
  return maker.output(last).bytes();
}

Tensors feeds_of(std::uint64_t seed) { return {{"x", random_tensor({4, 8}, seed)}}; }

Json report(MixedSession& session) { return Json::parse(session.core().explain())["capture"]; }

/// Runs with other elements each time.
void run_often(MixedSession& session, const std::string& model, int runs) {
  for (int i = 0; i < runs; ++i) {
    const Tensors given = feeds_of(100 + static_cast<std::uint64_t>(i));
    EXPECT_EQ(difference(session.run(given), run_on_cpu(model, given)), "") << "run " << i;
  }
}

std::function<void(SessionOptions&)> without_capture() {
  return [](SessionOptions& options) { options.capture = false; };
}

TEST_F(Capture, IsDoneOnceAndReplayedInEveryLaterRun) {
  MixedSession session(tanh_chain(), {}, kQuickDevices);
  run_often(session, tanh_chain(), 6);
  EXPECT_EQ(counters().recorded, 1u);
  EXPECT_EQ(counters().replays, 5u);
  EXPECT_EQ(counters().computes, 6u * kChainLength);
  const Json told = report(session);
  ASSERT_EQ(told["ranges"].size(), 1u) << told.dump(1);
  EXPECT_EQ(told["ranges"][0]["state"], "replayed");
  EXPECT_EQ(told["ranges"][0]["steps"], kChainLength + 2) << "with both copies: " << told.dump(1);
  EXPECT_EQ(told["ranges"][0]["plain"], 1u);
  EXPECT_EQ(findings(), "");
}

TEST_F(Capture, IsLeftAloneWhereTheOptionSaysSo) {
  MixedSession session(tanh_chain(), {}, kQuickDevices, {"fakegpu:0", "cpu"}, without_capture());
  run_often(session, tanh_chain(), 4);
  EXPECT_EQ(counters().recorded + counters().replays, 0u);
  EXPECT_EQ(report(session)["mode"], "off");
}

TEST_F(Capture, IsSplitAtStepsOnTheHost) {
  MixedSession session(tanh_chain(3), {}, kQuickDevices);
  run_often(session, tanh_chain(3), 4);
  const Json told = report(session);
  ASSERT_EQ(told["ranges"].size(), 2u) << told.dump(1);
  EXPECT_EQ(told["ranges"][0]["last"], "copy 'v2' fakegpu:0 to host");
  EXPECT_EQ(told["ranges"][1]["last"], "copy 'v5' fakegpu:0 to host");
  EXPECT_NE(told["outside"].dump().find("\"node_3\""), std::string::npos) << told.dump(1);
  EXPECT_NE(told["outside"].dump().find("it runs on host memory"), std::string::npos);
  EXPECT_EQ(counters().recorded, 2u);
  EXPECT_EQ(counters().replays, 6u);
  EXPECT_EQ(findings(), "");
}

TEST_F(Capture, OfTwoDevicesIsOneOfEach) {
  Placement placement;
  for (int i = 0; i < kChainLength; ++i)
    placement[text("node_", i)] = i < kChainLength / 2 ? "fakegpu:0" : "fakegpu:1";
  for (const char* const peer : {"false", "true"}) {
    fakegpu().reset();
    MixedSession session(tanh_chain(), placement, {{"delay_us", "20"}, {"peer", peer}});
    run_often(session, tanh_chain(), 5);
    EXPECT_EQ(counters(0).replays, 4u);
    EXPECT_EQ(counters(1).replays, 4u);
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(Capture, OfAnotherPlanHasRecordingsOfItsOwn) {
  ModelMaker maker;
  maker.input("x", {-1, 8});
  maker.node("a", "Tanh", {"x"}, "u").node("b", "Neg", {"u"}, "v").node("c", "Tanh", {"v"}, "y");
  const std::string model = maker.output("y").bytes();
  MixedSession session(model, {}, kQuickDevices);
  for (int turn = 0; turn < 6; ++turn) {
    for (const std::int64_t rows : {2, 16, 5}) {
      const Tensors given{{"x", random_tensor({rows, 8}, static_cast<std::uint64_t>(rows + turn))}};
      ASSERT_EQ(difference(session.run(given), run_on_cpu(model, given)), "") << rows;
    }
  }
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(counters().recorded, 3u) << "the arena grew in the first round alone";
  EXPECT_EQ(counters().replays, 14u)
      << "all but the first of each, and one more of what ran before it";
}

TEST_F(Capture, IsDoneAnewWhenTheArenaMoved) {
  ModelMaker maker;
  maker.input("x", {-1, 8});
  maker.node("a", "Tanh", {"x"}, "u").node("b", "Neg", {"u"}, "v").node("c", "Tanh", {"v"}, "y");
  const std::string model = maker.output("y").bytes();
  MixedSession session(model, {}, kQuickDevices);
  const auto run = [&](std::int64_t rows, int times) {
    for (int i = 0; i < times; ++i) {
      const Tensors given{{"x", random_tensor({rows, 8}, static_cast<std::uint64_t>(rows + i))}};
      EXPECT_EQ(difference(session.run(given), run_on_cpu(model, given)), "") << rows;
    }
  };
  run(2, 3);
  EXPECT_EQ(counters().recorded, 1u);
  run(64, 3);
  EXPECT_EQ(counters().recorded, 2u);
  run(2, 3);
  EXPECT_EQ(counters().recorded, 3u) << "its first recording was of the smaller arena";
  EXPECT_EQ(counters().replays, 6u);
  EXPECT_EQ(findings(), "") << "nothing is replayed on memory that is gone";
}

/// A binding whose output stays on the device.
class BoundChain {
 public:
  explicit BoundChain(MixedSession& session)
      : binding_(std::shared_ptr<Session>(&session.core(), [](Session*) {})) {
    x_->set_owned_tensor(DataType::Float, {4, 8});
    binding_.bind_input("x", x_);
    binding_.bind_output_to("v5", "fakegpu:0");
  }
  /// From here on the output is made in other memory.
  void move_output() { binding_.take_output("v5"); }
  void read_from(const BoundChain& other) {
    binding_.bind_input("x", other.binding_.output("v5"), other.binding_.output_device("v5"));
  }
  Tensors run(const Tensors& given) {
    const std::vector<float>& elements = given.at("x").elements;
    std::copy(elements.begin(), elements.end(), static_cast<float*>(x_->description.host_ptr));
    binding_.run(nullptr);
    const RuntimeValuePtr y = download(*binding_.output_device("v5"), *binding_.output("v5"));
    const auto* first = static_cast<const float*>(y->description.host_ptr);
    return {{"v5", {{4, 8}, std::vector<float>(first, first + 4 * 8)}}};
  }

 private:
  Binding binding_;
  RuntimeValuePtr x_ = std::make_shared<RuntimeValue>();
};

TEST_F(Capture, OfValuesThatAreBoundOnTheDeviceIsDoneForEachPlace) {
  MixedSession session(tanh_chain(), {}, kQuickDevices, {"fakegpu:0", "cpu"});
  BoundChain one(session), two(session);
  const auto check = [&](BoundChain& bound, std::uint64_t seed) {
    const Tensors given = feeds_of(seed);
    EXPECT_EQ(difference(bound.run(given), run_on_cpu(tanh_chain(), given)), "") << seed;
  };
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    check(one, turn);
    check(two, 50 + turn);
  }
  EXPECT_EQ(counters().recorded, 2u) << "turns with two places need two";
  EXPECT_EQ(counters().replays, 8u);
  for (std::uint64_t place = 0; place < 7; ++place) {
    one.move_output();
    for (std::uint64_t turn = 0; turn < 3; ++turn) check(one, 10 * place + turn);
  }
  EXPECT_EQ(counters().recorded, 9u);
  EXPECT_EQ(counters().replays, 8u + 7 * 2);
  EXPECT_EQ(findings(), "") << "nothing is replayed on memory that is gone";
}

TEST_F(Capture, OfWhatOneRunLeavesForTheNextFollowsItsPlace) {
  MixedSession session(tanh_chain(), {}, kQuickDevices, {"fakegpu:0", "cpu"});
  BoundChain one(session), two(session);
  for (std::uint64_t turn = 0; turn < 6; ++turn) {
    if (turn == 3) one.move_output();
    const Tensors given = feeds_of(turn);
    const Tensors between = run_on_cpu(tanh_chain(), given);
    EXPECT_EQ(difference(one.run(given), between), "");
    two.read_from(one);
    EXPECT_EQ(difference(two.run(given), run_on_cpu(tanh_chain(), {{"x", between.at("v5")}})), "");
  }
  EXPECT_EQ(counters().recorded, 4u) << "each of the two again when the place between them moved";
  EXPECT_EQ(findings(), "");
}

TEST_F(Capture, IsGivenUpWithTheReasonThatTheDeviceHas) {
  for (const char* const fault : {"refuse", "refuse_end", "fail_replay"}) {
    fakegpu().reset();
    ProviderOptions options = kQuickDevices;
    options.emplace_back("capture", fault);
    MixedSession session(tanh_chain(), {}, options);
    run_often(session, tanh_chain(), 5);
    const Json told = report(session)["ranges"][0];
    EXPECT_EQ(told["state"], "refused") << told.dump(1);
    EXPECT_NE(told["reason"].get<std::string>().find("option 'capture'"), std::string::npos);
    EXPECT_EQ(told["plain"], 5u);
    EXPECT_EQ(counters().replays, 0u);
    EXPECT_LE(counters().recorded, 1u) << "it is not tried again";
    EXPECT_EQ(counters().recordings, 0u);
    EXPECT_EQ(findings(), "");
  }
}

TEST_F(Capture, IsTriedAgainAfterWhatMayBeOverInTheNextRun) {
  const auto run_with = [](const char* fault) {
    fakegpu().reset();
    ProviderOptions options = kQuickDevices;
    options.emplace_back("capture", fault);
    MixedSession session(tanh_chain(), {}, options);
    run_often(session, tanh_chain(), 8);
    EXPECT_EQ(findings(), "");
    return report(session)["ranges"][0];
  };
  const Json disturbed = run_with("disturbed_twice");
  EXPECT_EQ(disturbed["state"], "replayed") << disturbed.dump(1);
  EXPECT_EQ(disturbed["plain"], 3u) << "the first run, and two that were disturbed";
  EXPECT_EQ(counters().recorded, 1u);
  EXPECT_EQ(counters().replays, 5u);
  const Json full = run_with("full");
  EXPECT_EQ(full["state"], "refused") << full.dump(1);
  EXPECT_NE(full["reason"].get<std::string>().find("has no memory"), std::string::npos);
  EXPECT_EQ(full["plain"], 8u);
}

TEST_F(Capture, SurvivesAFaultOfAnyCallOfTheRunThatRecords) {
  for (const auto& [code, asynchronous] :
       {std::pair(BP_FAILED, 0u), std::pair(BP_FAILED, 1u), std::pair(BP_OUT_OF_MEMORY, 0u)}) {
    int failed = 0, passed = 0;
    for (std::uint64_t position = 1;; ++position) {
      fakegpu().reset();
      MixedSession session(tanh_chain(), {}, kQuickDevices, {"fakegpu:0", "cpu"});
      run_often(session, tanh_chain(), 1);
      const std::uint64_t before = counters().fallible_calls;
      fakegpu().fail_call(position, code, asynchronous);
      try {
        run_often(session, tanh_chain(), 1);
        ++passed;
      } catch (const Error& error) {
        ++failed;
        EXPECT_NE(error.message().find("fakegpu:0"), std::string::npos) << error.what();
      }
      const bool was_last = counters().fallible_calls - before < position;
      fakegpu().fail_call(0, BP_OK, 0);
      run_often(session, tanh_chain(), 3);
      ASSERT_EQ(findings(), "") << "a fault at call " << position;
      if (was_last) break;
    }
    EXPECT_GE(passed, kChainLength) << "a fault while recording is no fault of the run";
    EXPECT_GE(failed, asynchronous != 0 ? 3 : 2);
  }
}

TEST_F(Capture, OfALostDeviceIsAnErrorAndNoFallback) {
  for (std::uint64_t position = 1; position < 14; ++position) {
    MixedSession session(tanh_chain(), {}, kQuickDevices);
    run_often(session, tanh_chain(), 1);
    fakegpu().fail_call(position, BP_DEVICE_LOST, 0);
    try {
      session.run(feeds_of(1));
      session.run(feeds_of(1));
      ADD_FAILURE() << "nobody noticed call " << position;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::DeviceLost) << error.what();
    }
    fakegpu().fail_call(0, BP_OK, 0);
    EXPECT_THROW(session.run(feeds_of(1)), Error);
  }
}

TEST_F(Capture, IsNotUsedByAProfile) {
  MixedSession session(tanh_chain(), {}, kQuickDevices, {"fakegpu:0", "cpu"},
                       [](SessionOptions& options) { options.profile = true; });
  run_often(session, tanh_chain(), 3);
  EXPECT_EQ(counters().replays, 0u);
  EXPECT_EQ(report(session)["runs_with_profile_or_observer"], 3u);
}

TEST_F(Capture, OfOneStepIsNone) {
  ModelMaker maker;
  maker.input("x", {4, 8});
  maker.node("only", "Softplus", {"x"}, "y");
  const std::string model = maker.output("y").bytes();
  MixedSession session(model, {}, kQuickDevices);
  run_often(session, model, 2);
  EXPECT_FALSE(report(session).contains("ranges") && !report(session)["ranges"].empty());
}

}  // namespace
}  // namespace backplane::core::faults

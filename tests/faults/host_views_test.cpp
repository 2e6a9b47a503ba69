// Feeds and fetches that devices work on where they lie: results, bytes that move, visibility, lifetimes, faults. The fake
// device works on bytes of its own between hand_over and hand_back, so what a host gets wrong changes results.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "core/runtime/binding.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

const ProviderOptions kIntegratedDevice{{"integrated", "true"}, {"delay_us", "20"}};

/// Host memory that is aligned to `offset` bytes behind a page.
class HostMemoryBlock {
 public:
  HostMemoryBlock(const Dims& dims, std::size_t offset)
      : bytes_(static_cast<std::size_t>(element_count(dims)) * sizeof(float)),
        block_(std::aligned_alloc(4096, (bytes_ + offset + 4095) / 4096 * 4096), std::free) {
    value.set_tensor(DataType::Float, dims);
    value.description.host_ptr = static_cast<std::byte*>(block_.get()) + offset;
  }
  void fill(const Tensor& tensor) {
    std::memcpy(value.description.host_ptr, tensor.elements.data(), bytes_);
  }
  Tensor tensor() const {
    const auto* first = static_cast<const float*>(value.description.host_ptr);
    return {value.dims, {first, first + bytes_ / sizeof(float)}};
  }
  RuntimeValue value;

 private:
  std::size_t bytes_;
  std::unique_ptr<void, void (*)(void*)> block_;
};

const Dims kViewDims{4, 64};

/// y = Tanh(Neg(x)), all on the first fake device.
std::string viewed_chain() {
  ModelMaker maker;
  maker.input("x", kViewDims).node("neg", "Neg", {"x"}, "a").node("tanh", "Tanh", {"a"}, "y");
  return maker.output("y").bytes();
}
const Placement kViewedChain{{"neg", "fakegpu:0"}, {"tanh", "fakegpu:0"}};
const Tensors kViewFeeds{{"x", random_tensor(kViewDims, 3)}};

class HostViewsTest : public FaultTest {
 protected:
  static std::vector<std::string> routes(MixedSession& session) {
    std::vector<std::string> all;
    const Json explanation = Json::parse(session.core().explain());
    for (const Json& copy : explanation["copies"]) {
      all.push_back(copy["route"]);
      EXPECT_EQ(copy["bytes"], copy["route"] == "view" ? Json(0) : copy["value_bytes"]) << copy;
    }
    return all;
  }

  /// Runs with the feed and fetch at the given places.
  static void run(MixedSession& session, HostMemoryBlock& x, HostMemoryBlock& y) {
    session.core().run({{"x", &x.value}}, {{"y", &y.value}});
  }
};

TEST_F(HostViewsTest, NothingMovesWhereTheDeviceSharesMemory) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice);
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(counters().copies_h2d + counters().copies_d2h + counters().copies_d2d, 0u);
  EXPECT_EQ(counters().hand_overs, 2u);
  EXPECT_EQ(counters().hand_backs, 2u);
  EXPECT_EQ(counters().views, 0u) << "the memory is the caller's again, and may go";
  EXPECT_EQ(routes(session), (std::vector<std::string>{"view", "view"}));
  const Json statistics = Json::parse(session.core().statistics());
  EXPECT_EQ(statistics["copies"], 0);
  EXPECT_EQ(statistics["views"], 2);
  EXPECT_EQ(findings(), "");
}

TEST_F(HostViewsTest, TheOptionTurnsItOff) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice, {"fakegpu:0", "cpu"},
                       [](SessionOptions& options) { options.zero_copy = false; });
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(counters().views_made, 0u);
  EXPECT_EQ(counters().copies_h2d, 1u);
  EXPECT_EQ(counters().copies_d2h, 1u);
  EXPECT_EQ(routes(session), (std::vector<std::string>{"staged", "staged"}));
}

TEST_F(HostViewsTest, GeneratedGraphsGiveWhatTheyGiveWithCopies) {
  std::uint64_t views = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    const RandomGraph graph(5000 + seed);
    SCOPED_TRACE(text("seed ", seed, "\n", graph.describe()));
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    MixedSession session(graph.model(), graph.placement(),
                         {{"integrated", "true"},
                          {"seed", text(seed)},
                          {"delay_us", "10"},
                          {"view_least", seed % 3 == 0 ? "64" : "1"},
                          {"host_copy", seed % 2 == 0 ? "async" : "none"}});
    EXPECT_EQ(difference(session.run(graph.feeds()), want), "");
    fakegpu().reset();
    EXPECT_EQ(difference(session.run(graph.feeds()), want), "") << "second run";
    EXPECT_EQ(findings(), "");
    const std::vector<std::string> how = routes(session);
    const auto viewed = static_cast<std::uint64_t>(std::count(how.begin(), how.end(), "view"));
    EXPECT_EQ(how.size(), graph.copies(false).count());
    EXPECT_EQ(counters().views_made, viewed);
    EXPECT_EQ(counters().copies_h2d + counters().copies_d2h, how.size() - viewed);
    EXPECT_EQ(counters().views, 0u);
    views += viewed;
  }
  EXPECT_GT(views, 60u);
}

TEST_F(HostViewsTest, EachEndIsViewedWhereItIsAligned) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice);
  for (const std::size_t feed_offset : {0u, 4u, 64u}) {
    for (const std::size_t fetch_offset : {0u, 32u, 128u}) {
      SCOPED_TRACE(text("feed at ", feed_offset, ", fetch at ", fetch_offset));
      HostMemoryBlock x(kViewDims, feed_offset), y(kViewDims, fetch_offset);
      x.fill(kViewFeeds.at("x"));
      run(session, x, y);
      fakegpu().reset();
      run(session, x, y);
      EXPECT_EQ(difference({{"y", y.tensor()}}, want), "");
      EXPECT_EQ(counters().copies_h2d, feed_offset % 64 == 0 ? 0u : 1u);
      EXPECT_EQ(counters().copies_d2h, fetch_offset % 64 == 0 ? 0u : 1u);
      EXPECT_EQ(findings(), "");
    }
  }
}

TEST_F(HostViewsTest, MemoryThatTheRuntimeMakesIsAlignedAsTheDeviceNeedsIt) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain,
                       {{"integrated", "true"}, {"view_alignment", "4096"}});
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(counters().copies_d2h, 0u);
}

TEST_F(HostViewsTest, AFetchInTheMemoryOfAFeedIsRefused) {
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice);
  for (const std::size_t offset : {0u, 512u}) {
    HostMemoryBlock both({8, 64}, 0), x(kViewDims, 0);
    RuntimeValue y;
    y.set_tensor(DataType::Float, kViewDims);
    x.value.description.host_ptr = both.value.description.host_ptr;
    x.fill(kViewFeeds.at("x"));
    y.description.host_ptr = static_cast<std::byte*>(both.value.description.host_ptr) + offset;
    fakegpu().reset();
    try {
      session.core().run({{"x", &x.value}}, {{"y", &y}});
      ADD_FAILURE() << "an output was written over an input";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'y' and the input 'x'"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(counters().views_made, 0u);
  }
}

TEST_F(HostViewsTest, TheHostAndOtherDevicesReadAFeedThatADeviceHas) {
  ModelMaker maker;
  maker.input("x", kViewDims).node("here", "Neg", {"x"}, "a").node("there", "Tanh", {"x"}, "b");
  maker.node("host", "Abs", {"x"}, "c").node("ab", "Add", {"a", "b"}, "d");
  maker.node("all", "Add", {"d", "c"}, "y").output("y").output("d");
  const Placement placement{{"here", "fakegpu:0"},
                            {"there", "fakegpu:1"},
                            {"host", "cpu"},
                            {"ab", "fakegpu:0"},
                            {"all", "fakegpu:0"}};
  const Tensors want = run_on_cpu(maker.bytes(), kViewFeeds);
  MixedSession session(maker.bytes(), placement, kIntegratedDevice);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(findings(), "");
  const std::vector<std::string> how = routes(session);
  EXPECT_EQ(std::count(how.begin(), how.end(), "view"), 4)
      << "x twice, y, and d, whose reader is there";
}

TEST_F(HostViewsTest, WhatIsMadeInsideAnOutputIsMadeInTheView) {
  ModelMaker maker;
  maker.input("x", {2, 64}).input("z", {2, 64});
  maker.node("a", "Neg", {"x"}, "a").node("b", "Tanh", {"z"}, "b");
  maker.node("join", "Concat", {"a", "b"}, "y", 0).output("y");
  const Tensors feeds{{"x", random_tensor({2, 64}, 1)}, {"z", random_tensor({2, 64}, 2)}};
  const Tensors want = run_on_cpu(maker.bytes(), feeds);
  MixedSession session(maker.bytes(), {}, kIntegratedDevice, {"fakegpu:0", "cpu"});
  for (int turn = 0; turn < 2; ++turn) EXPECT_EQ(difference(session.run(feeds), want), "");
  EXPECT_EQ(routes(session), std::vector<std::string>(3, "view"));
  EXPECT_EQ(findings(), "");
}

TEST_F(HostViewsTest, ABindingKeepsItsViewsWhileItsMemoryStays) {
  const std::string model = viewed_chain();
  SessionOptions options;
  options.providers = {{"fakegpu:0", {}}, {"cpu", {}}};
  options.provider_options["fakegpu"] = kIntegratedDevice;
  const auto session =
      std::make_shared<Session>(environment(), "", std::as_bytes(std::span(model)), options);
  const auto other = std::make_shared<RuntimeValue>();
  other->set_owned_tensor(DataType::Float, kViewDims);
  std::memcpy(other->description.host_ptr, kViewFeeds.at("x").elements.data(), 1024);
  const Tensors want = run_on_cpu(model, kViewFeeds);
  {
    Binding binding(session);
    const RuntimeValuePtr x = binding.input("x");
    std::memcpy(x->description.host_ptr, kViewFeeds.at("x").elements.data(), 1024);
    fakegpu().reset();
    binding.plan();
    EXPECT_EQ(counters().views_made, 2u) << "before the first run";
    for (int turn = 0; turn < 4; ++turn) {
      binding.run(nullptr);
      const auto* first = static_cast<const float*>(binding.output("y")->description.host_ptr);
      EXPECT_EQ(difference({{"y", {kViewDims, {first, first + 256}}}}, want), "");
    }
    EXPECT_EQ(counters().views_made, 2u);
    EXPECT_EQ(counters().views, 2u);
    binding.bind_input("x", other);
    EXPECT_EQ(counters().views, 0u) << "what was bound may go";
    binding.run(nullptr);
    EXPECT_EQ(counters().views_made, 4u);
    static_cast<float*>(other->description.host_ptr)[0] = 0.5f;
    binding.run(nullptr);
    EXPECT_EQ(counters().views_made, 4u);
    EXPECT_FLOAT_EQ(static_cast<const float*>(binding.output("y")->description.host_ptr)[0],
                    std::tanh(-0.5f))
        << "what the host wrote between two runs is seen";
  }
  EXPECT_EQ(counters().views, 0u);
  EXPECT_EQ(findings(), "");
}

TEST_F(HostViewsTest, TouchingWhatTheDeviceHasIsFoundByTheFakeDevice) {
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice);
  for (const bool feed : {true, false}) {
    HostMemoryBlock x(kViewDims, 0), y(kViewDims, 0);
    x.fill(kViewFeeds.at("x"));
    RunOptions options;
    options.observer = [&](const NodeView&) {
      static_cast<float*>((feed ? x : y).value.description.host_ptr)[7] = 1;
      return true;
    };
    fakegpu().reset();
    EXPECT_THROW(session.core().run({{"x", &x.value}}, {{"y", &y.value}}, &options), Error);
    EXPECT_NE(findings().find("the host changed memory that it had handed over"), std::string::npos)
        << findings();
  }
  EXPECT_EQ(difference(session.run(kViewFeeds), run_on_cpu(viewed_chain(), kViewFeeds)), "");
}

TEST_F(HostViewsTest, ADeviceThatViewsNothingAfterAllGetsCopies) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain, kIntegratedDevice, {"fakegpu:0", "cpu"});
  session.run(kViewFeeds);
  fakegpu().reset();
  fakegpu().fail_call(2, BP_UNSUPPORTED, 0);  // run_begin, view
  EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(counters().copies_h2d, 1u);
  EXPECT_EQ(counters().views_made, 0u);
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(kViewFeeds), want), "");
  EXPECT_EQ(counters().copies_h2d, 1u) << "it is not asked again";
  EXPECT_EQ(findings(), "");
}

struct ViewFault {
  bp_code code;
  Code seen;
  bool asynchronous;
};

class HostViewFaults : public HostViewsTest, public ::testing::WithParamInterface<ViewFault> {};

TEST_P(HostViewFaults, AtEveryCallOfAWarmRun) {
  const Tensors want = run_on_cpu(viewed_chain(), kViewFeeds);
  MixedSession session(viewed_chain(), kViewedChain, {{"integrated", "true"}, {"delay_us", "5"}},
                       {"fakegpu:0", "cpu"});
  session.run(kViewFeeds);
  fakegpu().reset();
  session.run(kViewFeeds);
  const std::uint64_t calls = counters().fallible_calls;
  ASSERT_GE(calls, 8u) << "run_begin, 2 views, 2 hand_overs, 2 computes, 2 hand_backs, sync";
  std::uint64_t of_views = 0;
  for (std::uint64_t position = 1; position <= calls; ++position) {
    SCOPED_TRACE(text("call ", position));
    fakegpu().reset();
    fakegpu().fail_call(position, GetParam().code, GetParam().asynchronous ? 1 : 0);
    try {
      session.run(kViewFeeds);
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), GetParam().seen) << error.what();
      EXPECT_NE(error.message().find("fakegpu:0"), std::string::npos) << error.what();
      if (error.message().find("view '") != std::string::npos) ++of_views;
    }
    fakegpu().fail_call(0, BP_OK, 0);
    EXPECT_EQ(counters().open_runs, 0u);
    EXPECT_EQ(counters().views, 0u);
    EXPECT_EQ(difference(session.run(kViewFeeds), want), "") << "the run after";
    EXPECT_EQ(findings(), "");
  }
  EXPECT_GT(of_views, 0u);
}

TEST_P(HostViewFaults, AtEveryCallOfABindingThatKeepsItsViews) {
  const std::string model = viewed_chain();
  SessionOptions options;
  options.providers = {{"fakegpu:0", {}}, {"cpu", {}}};
  options.provider_options["fakegpu"] = {{"integrated", "true"}, {"delay_us", "5"}};
  const Tensors want = run_on_cpu(model, kViewFeeds);
  Binding binding(
      std::make_shared<Session>(environment(), "", std::as_bytes(std::span(model)), options));
  std::memcpy(binding.input("x")->description.host_ptr, kViewFeeds.at("x").elements.data(), 1024);
  binding.run(nullptr);
  fakegpu().reset();
  binding.run(nullptr);
  const std::uint64_t calls = counters().fallible_calls;
  for (std::uint64_t position = 1; position <= calls; ++position) {
    SCOPED_TRACE(text("call ", position));
    fakegpu().fail_call(position, GetParam().code, GetParam().asynchronous ? 1 : 0);
    EXPECT_THROW(binding.run(nullptr), Error);
    fakegpu().fail_call(0, BP_OK, 0);
    for (int turn = 0; turn < 2; ++turn) {
      binding.run(nullptr);
      const auto* first = static_cast<const float*>(binding.output("y")->description.host_ptr);
      EXPECT_EQ(difference({{"y", {kViewDims, {first, first + 256}}}}, want), "");
    }
    EXPECT_EQ(counters().views, 2u);
    EXPECT_EQ(findings(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, HostViewFaults,
                         ::testing::Values(ViewFault{BP_FAILED, Code::Failed, false},
                                           ViewFault{BP_OUT_OF_MEMORY, Code::OutOfMemory, false},
                                           ViewFault{BP_FAILED, Code::Failed, true}),
                         [](const auto& fault) {
                           return text("code_", fault.param.code,
                                       fault.param.asynchronous ? "_async" : "");
                         });

}  // namespace
}  // namespace backplane::core::faults

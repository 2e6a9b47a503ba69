// Plans and algorithms of which the fastest is taken: what is run for that, when nothing is, and what is kept.
#include <algorithm>
#include <filesystem>
#include <unistd.h>

#include "plugins/cuda/convolution_work.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000, kLong = 1'000'000 * kSecond;

Convolution small_form() {
  Convolution form;
  form.channels = 2;
  form.filters = 3;
  form.in = form.out = {4, 5, 1};
  form.has_bias = form.has_addend = true;
  return form;
}

LibraryProduct small_product() {
  Product product;
  product.rows = 3;
  product.depth = product.a.step = 4;
  product.columns = product.b.step = 5;
  product.has_bias = product.has_addend = true;
  return to_library(product, kLibraryAlignment);
}

Attention small_attention() {
  Attention form;
  form.rows = form.columns = 2;
  form.q = form.k = form.v = form.y = {16, 16, 8};
  form.has_mask = true;
  return form;
}

/// Devices on the stand-in that share a folder, each as a new process would open it.
class TrialsTest : public CudaTest {
 protected:
  TrialsTest() {
    settings_.cache_dir = folder_.string();
    settings_.trials = {kLong, kLong};
  }
  ~TrialsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Device> new_process() {
    engines_.push_back(load_stand_in_engine());
    return std::make_unique<Device>(driver_, *engines_.back(), 0, settings_);
  }
  /// The plan's number; -1: none, and `why_` says why.
  int plan_of(Device& device, Choosing choosing = Choosing::kByTime) {
    const ConvolutionStore::Found found = device.convolutions().find(small_form(), choosing);
    why_ = found.why;
    return found.plan == nullptr ? -1 : std::stoi(found.plan->kept());
  }
  int plan_of_new_process(Choosing choosing = Choosing::kByTime) {
    return plan_of(*new_process(), choosing);
  }
  /// With plans that take so long.
  static void set_ways(const std::vector<std::uint64_t>& takes_ns) {
    stand_in().ways.clear();
    for (const std::uint64_t each : takes_ns) stand_in().ways.push_back({each, 0, ""});
  }
  static std::size_t runs() { return stand_in().count("convolution"); }

  DeviceSettings settings_;
  std::string why_;

 private:
  class OneDriver final : public Driver {
   public:
    int device_count() override { return driver_->device_count(); }
    DeviceTraits traits(int ordinal) override { return driver_->traits(ordinal); }
    std::unique_ptr<Context> open(int ordinal) override { return driver_->open(ordinal); }

   private:
    std::unique_ptr<Driver> driver_ = load_stand_in();
  } driver_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / sdk::message("cuda_trials_", ::getpid());
};

TEST_F(TrialsTest, TheFastestPlanIsTakenAndWhatItTookIsFreed) {
  set_ways({3 * kSecond, kSecond, 2 * kSecond});
  stand_in().ways[2].workspace_bytes = 1000;
  const std::unique_ptr<Device> device = new_process();
  EXPECT_EQ(plan_of(*device), 1);
  for (const char* const run : {"convolution 1", "convolution 2"})
    EXPECT_EQ(stand_in().count(run), 6u) << "one, and five that are timed: " << run;
  EXPECT_EQ(stand_in().count("convolution 0"), 12u) << "again, since another seemed faster";
  EXPECT_EQ(stand_in().live_bytes, 0u);
  EXPECT_EQ(device->used_bytes(), 0u);
  EXPECT_EQ(stand_in().live_streams + stand_in().live_events, 0);
  EXPECT_EQ(plan_of(*device), 1);
  EXPECT_EQ(runs(), 24u) << "once for a form";
}

TEST_F(TrialsTest, ADeviceThatIsFasterByNowIsNoReasonToLeaveTheFirst) {
  set_ways({kSecond, kSecond, kSecond});
  // What is run first is slower than the same is later, as on a device whose clocks rise.
  stand_in().rises_ns = 9 * kSecond;
  EXPECT_EQ(plan_of_new_process(), 0);
  stand_in().library_version = "stand-in 2";
  set_ways({kSecond, kSecond / 2, kSecond});
  stand_in().rises_ns = 9 * kSecond;
  EXPECT_EQ(plan_of_new_process(), 1);
}

TEST_F(TrialsTest, ShortRunsAreTimedInReplaysWhichTheHostHasNoPartIn) {
  set_ways({2000, 1000});
  stand_in().has_own_clock = true;
  stand_in().host_takes_ns = 9000;
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(stand_in().count("copy"), 0u);
  EXPECT_GT(stand_in().count("launch_graph"), 2u);
  EXPECT_EQ(stand_in().live_graphs + stand_in().live_execs + stand_in().live_streams, 0);
}

TEST_F(TrialsTest, InReplaysANeighbourOfTheProvidersOwnIsBehindEachRun) {
  const auto neighbours = [this](const char* version) {
    stand_in().library_version = version;
    stand_in().calls.clear();
    std::size_t count = 0;
    stand_in().kernel = [&count](const std::string&, const Extent& groups, const Extent& group,
                                 void**) {
      EXPECT_EQ(groups, (Extent{1, 1, 1}));
      EXPECT_EQ(group, (Extent{1, 1, 1}));
      ++count;
    };
    EXPECT_EQ(plan_of_new_process(), 1);
    return count;
  };
  set_ways({2000, 1000});
  stand_in().has_own_clock = true;
  stand_in().host_takes_ns = 9000;
  const std::size_t count = neighbours("stand-in 2"), replays = stand_in().count("launch_graph");
  EXPECT_GT(replays, 0u);
  EXPECT_EQ(count, 8 * replays);
  // As it is kept, and compiled anew.
  stand_in().failures["load"].assign(2, "CUDA_ERROR_INVALID_IMAGE");
  EXPECT_EQ(neighbours("stand-in 3"), 0u) << "without one that can be made";
  EXPECT_EQ(stand_in().count("launch_graph"), replays);
}

TEST_F(TrialsTest, WhatCannotBeCapturedIsTimedBehindCopiesThatTheHostCanBeAheadOf) {
  const auto begin = [this](const char* version) {
    stand_in().library_version = version;
    stand_in().failures["instantiate"].assign(8, "CUDA_ERROR_NOT_SUPPORTED");
    return plan_of_new_process();
  };
  set_ways({2000, 1000});
  stand_in().has_own_clock = true;
  stand_in().host_takes_ns = 9000;
  stand_in().copy_takes_ns = 12'000;
  EXPECT_EQ(begin("stand-in 2"), 1);
  EXPECT_EQ(stand_in().count("launch_graph"), 0u);
  EXPECT_EQ(stand_in().live_bytes, 0u);
  EXPECT_EQ(stand_in().live_graphs + stand_in().live_execs + stand_in().live_streams, 0);
  settings_.memory_limit_bytes = 1 << 20;
  EXPECT_EQ(begin("stand-in 3"), 0) << "without memory for copies they seem alike";
}

TEST_F(TrialsTest, AWayThatSpoilsACaptureIsTimedWithoutAndLeavesItsStream) {
  set_ways({2000, 1000});
  stand_in().has_own_clock = true;
  stand_in().host_takes_ns = 9000;
  stand_in().copy_takes_ns = 12'000;
  stand_in().failures["end_capture"].assign(8, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(stand_in().count("launch_graph"), 0u);
  EXPECT_EQ(stand_in().live_graphs + stand_in().live_execs + stand_in().live_streams, 0);
}

TEST_F(TrialsTest, WhatTimesDifferByAnywayIsNoReasonToLeaveTheFirst) {
  set_ways({100 * kSecond, 98 * kSecond});
  EXPECT_EQ(plan_of_new_process(), 0);
}

TEST_F(TrialsTest, NoMoreThanTenPlansAreCompared) {
  set_ways(std::vector<std::uint64_t>(12, kSecond));
  stand_in().ways[3].error = "fails";
  plan_of_new_process();
  EXPECT_EQ(stand_in().count("convolution 10"), 6u) << "one that fails is not one of them";
  EXPECT_EQ(stand_in().count("convolution 11"), 0u);
}

TEST_F(TrialsTest, APlanThatFailsWhenItIsRunIsNone) {
  set_ways({kSecond, 2 * kSecond, 3 * kSecond});
  stand_in().ways[0].error = "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED (the first)";
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(stand_in().count("convolution 0"), 1u);
}

TEST_F(TrialsTest, WhereAllFailTheNodeIsRefusedWithTheLibrarysReason) {
  set_ways({0, 0});
  stand_in().ways[0].error = "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED (the first)";
  stand_in().ways[1].error = "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED (the last)";
  EXPECT_EQ(plan_of_new_process(), -1);
  EXPECT_NE(why_.find("its plans, 2, fail when they are run"), std::string::npos) << why_;
  const OpenDevice device = open();
  NodeUnderTest node("", "Conv", 11);
  node.input(BP_FLOAT, {1, 2, 4, 3}).input(BP_FLOAT, {3, 2, 1, 1}).outputs(1);
  try {
    const NodeOnDevice refused(device, node, device.kernel("Conv"),
                               {numbers({1, 2, 4, 3}, 1), numbers({3, 2, 1, 1}, 2)});
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("CUDNN_STATUS_EXECUTION_FAILED (the last)"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(TrialsTest, ADeviceThatIsLostIsNoPlansFault) {
  set_ways({0, 0});
  stand_in().failures["convolution"] = {"CUDA_ERROR_ILLEGAL_ADDRESS"};
  const std::unique_ptr<Device> device = new_process();
  try {
    plan_of(*device);
    FAIL();
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), BP_DEVICE_LOST);
  }
}

TEST_F(TrialsTest, AChoiceIsKeptOnDiskAndNotMadeAgain) {
  set_ways({2 * kSecond, kSecond});
  EXPECT_EQ(plan_of_new_process(), 1);
  const std::size_t before = runs();
  set_ways({kSecond, 2 * kSecond});
  const std::unique_ptr<Device> device = new_process();
  EXPECT_EQ(plan_of(*device), 1);
  EXPECT_EQ(device->convolutions().counts().read, 1u);
  EXPECT_EQ(runs(), before);
}

TEST_F(TrialsTest, WhatWasChosenByRuleAndByTimeAreKeptApart) {
  set_ways({2 * kSecond, kSecond});
  settings_.tuning = false;
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(runs(), 1u);
  settings_.tuning = true;
  EXPECT_EQ(plan_of_new_process(Choosing::kByRule), 0);
  EXPECT_EQ(plan_of_new_process(), 1);
  settings_.tuning = false;
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(stand_in().count("plan"), 2u);
}

TEST_F(TrialsTest, ByRuleTheFirstThatWorksIsTakenWhateverTheOthersTake) {
  settings_.tuning = false;
  set_ways({0, 2 * kSecond, kSecond});
  stand_in().ways[0].error = "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED";
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(runs(), 2u);
  EXPECT_EQ(stand_in().live_bytes, 0u);
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(runs(), 2u) << "it is kept";
}

TEST_F(TrialsTest, ByRuleAPlanForWhichThereIsNoMemoryNowIsTakenUnseen) {
  settings_.tuning = false;
  set_ways({kSecond, kSecond});
  stand_in().ways[0].workspace_bytes = 1 << 20;
  settings_.memory_limit_bytes = 1 << 20;
  EXPECT_EQ(plan_of_new_process(), 0) << "which one it is does not depend on what else is there";
  EXPECT_EQ(runs(), 0u);
}

TEST_F(TrialsTest, NothingIsRunWhileWorkIsCapturedAndTheChoiceIsMadeLater) {
  set_ways({2 * kSecond, kSecond});
  {
    const std::unique_ptr<Device> device = new_process();
    Stream stream(*device, nullptr);
    stream.begin_capture();
    EXPECT_EQ(plan_of(*device), 0);
    device->context().destroy_graph(device->context().end_capture(stream.end_capture().captured));
  }
  EXPECT_EQ(runs(), 0u);
  EXPECT_EQ(plan_of_new_process(), 1);
}

TEST_F(TrialsTest, NothingIsRunWhileTheProgramCapturesItsStream) {
  stand_in().shares_contexts = true;
  set_ways({2 * kSecond, kSecond});
  const std::unique_ptr<Context> context = load_stand_in()->open(0);
  settings_.user_stream = context->create_stream();
  const std::unique_ptr<Device> device = new_process();
  context->begin_capture(settings_.user_stream);
  EXPECT_EQ(plan_of(*device), 0);
  EXPECT_EQ(runs(), 0u);
  context->destroy_graph(context->end_capture(settings_.user_stream));
  EXPECT_EQ(plan_of_new_process(), 1);
  context->destroy_stream(settings_.user_stream);
}

TEST_F(TrialsTest, WithoutMemoryForTheOperandsTheFirstStays) {
  set_ways({2 * kSecond, kSecond});
  const std::string none = "CUDA_ERROR_OUT_OF_MEMORY";
  stand_in().failures["allocate"] = {none, none};
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(runs(), 0u);
  EXPECT_EQ(stand_in().live_bytes, 0u);
  settings_.memory_limit_bytes = 256;
  EXPECT_EQ(plan_of_new_process(), 0);
  settings_.memory_limit_bytes = 0;
  EXPECT_EQ(plan_of_new_process(), 1) << "it was not kept as a choice by time";
}

TEST_F(TrialsTest, APlanForWhoseWorkspaceThereIsNoMemoryIsNotCompared) {
  set_ways({3 * kSecond, kSecond, 2 * kSecond});
  stand_in().ways[1].workspace_bytes = 1 << 20;
  settings_.memory_limit_bytes = 1 << 20;
  EXPECT_EQ(plan_of_new_process(), 2);
  EXPECT_EQ(stand_in().count("convolution 1"), 0u);
  stand_in().ways = {{0, 1 << 20, ""}, {0, 0, "fails"}};
  stand_in().library_version = "stand-in 2";
  EXPECT_EQ(plan_of_new_process(), 0) << "it may work, and the other does not";
}

TEST_F(TrialsTest, WhenTheTimeIsSpentThePlanIsOneThatWorks) {
  settings_.trials.form_ns = 0;
  set_ways({2 * kSecond, kSecond, kSecond});
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(runs(), 1u);
  stand_in().library_version = "stand-in 2";
  stand_in().ways[0].error = "fails";
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(stand_in().count("convolution 2"), 0u);
}

TEST_F(TrialsTest, WhenTheTimeOfAllFormsIsSpentNothingIsCompared) {
  settings_.trials.all_ns = 0;
  set_ways({2 * kSecond, kSecond});
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(runs(), 1u);
  settings_.trials.all_ns = 1;
  const std::unique_ptr<Device> device = new_process();
  EXPECT_EQ(plan_of(*device), 1);
  Convolution other = small_form();
  other.filters = 4;
  EXPECT_EQ(std::stoi(device->convolutions().find(other, Choosing::kByTime).plan->kept()), 0);
}

TEST_F(TrialsTest, WhatALibraryMakesOnItsFirstUseIsMadeBeforeItOffersPlans) {
  set_ways({2 * kSecond, kSecond});
  EXPECT_EQ(plan_of_new_process(), 1);
  const auto& calls = stand_in().calls;
  const auto begin = std::find(calls.begin(), calls.end(), "begin");
  EXPECT_NE(std::find(begin, calls.end(), "plan"), calls.end());
  EXPECT_EQ(plan_of_new_process(), 1);
  EXPECT_EQ(stand_in().count("begin"), 1u) << "not where a plan was kept";
}

TEST_F(TrialsTest, APlanForAnyAddressIsChosenByRule) {
  set_ways({2 * kSecond, kSecond});
  const std::unique_ptr<Device> device = new_process();
  std::string why;
  EXPECT_NE(ConvolutionWork::find(*device, "", small_form(), {}, Choosing::kByTime, why), nullptr);
  EXPECT_EQ(stand_in().count("plan"), 2u) << "aligned, and not";
  EXPECT_EQ(runs(), 18u) << "those of one";
}

TEST_F(TrialsTest, TheOnlyPlanOfAFormIsRunOnceAndIsNoneWhereItFails) {
  EXPECT_EQ(plan_of_new_process(), 0);
  EXPECT_EQ(runs(), 1u);
  stand_in().library_version = "stand-in 2";
  stand_in().ways[0].error = "cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED";
  EXPECT_EQ(plan_of_new_process(), -1);
  EXPECT_NE(why_.find("CUDNN_STATUS_EXECUTION_FAILED"), std::string::npos) << why_;
}

TEST_F(CudaTest, WhatComesAfterAConvolutionIsAKernelWherePlansWithItFailWhenTheyAreRun) {
  for (const std::string tuning : {"on", "off"}) {
    stand_in().ways = {StandInWay()};
    stand_in().plans = [](const Convolution& form) {
      stand_in().ways[0].error = form.is_fused() ? "CUDNN_STATUS_EXECUTION_FAILED" : "";
      return true;
    };
    const OpenDevice device = open({{"tuning", tuning}});
    NodeUnderTest node("", "Conv", 11);
    node.input(BP_FLOAT, {1, 2, 4, 3}).input(BP_FLOAT, {3, 2, 1, 1}).input(BP_FLOAT, {3});
    node.outputs(1);
    NodeOnDevice run(device, node, device.kernel("Conv"),
                     {numbers({1, 2, 4, 3}, 1), numbers({3, 2, 1, 1}, 2), numbers({3}, 3)});
    EXPECT_EQ(run.kernel().variant(), "cudnn, then pointwise");
  }
}

TEST_F(TrialsTest, TheFastestAlgorithmOfAProductIsTakenAndKept) {
  stand_in().proposals = {{{1}, 0}, {{2}, 512}, {{3}, 0}, {{4}, 0}};
  stand_in().algorithm_ways = {{1, {3 * kSecond, 0, ""}},
                               {2, {2 * kSecond, 0, ""}},
                               {3, {kSecond, 0, ""}},
                               {4, {0, 0, "fails"}}};
  const auto chosen = [](Device& device) {
    return device.products().choose(small_product(), Choosing::kByTime).words[0];
  };
  EXPECT_EQ(chosen(*new_process()), 3u);
  EXPECT_EQ(stand_in().count("product 1"), 12u) << "again, since another seemed faster";
  EXPECT_EQ(stand_in().live_bytes, 0u);
  const std::size_t before = stand_in().count("product");
  EXPECT_EQ(chosen(*new_process()), 3u);
  EXPECT_EQ(stand_in().count("product"), before);
}

TEST_F(TrialsTest, AProductForAnyAddressIsChosenByRule) {
  stand_in().proposals = {{{1}, 0}, {{2}, 0}};
  LibraryProduct product = small_product();
  product.alignment = 4;
  EXPECT_EQ(new_process()->products().choose(product, Choosing::kByTime).words[0], 1u);
  EXPECT_EQ(stand_in().count("product"), 0u);
}

TEST_F(TrialsTest, WhereAllAlgorithmsOfAProductFailTheReasonIsTheLibrarys) {
  stand_in().proposals = {{{1}, 0}, {{2}, 0}};
  stand_in().algorithm_ways = {{1, {0, 0, "fails"}}, {2, {0, 0, "CUBLAS_STATUS_EXECUTION_FAILED"}}};
  const std::unique_ptr<Device> device = new_process();
  EXPECT_FALSE(device->products().find(small_product(), Choosing::kByTime));
  try {
    device->products().choose(small_product(), Choosing::kByTime);
    FAIL();
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("CUBLAS_STATUS_EXECUTION_FAILED"), std::string::npos)
        << error.what();
  }
}

TEST_F(TrialsTest, ARunThatDoesNotEndIsALostDevice) {
  settings_.trials.form_ns = 400'000;  // a fiftieth
  stand_in().proposals = {{{1}, 0}, {{2}, 0}};
  const std::unique_ptr<Device> device = new_process();
  stand_in().holds = true;
  try {
    device->products().choose(small_product(), Choosing::kByTime);
    ADD_FAILURE() << "it came back";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.code(), BP_DEVICE_LOST);
    EXPECT_NE(std::string(error.what()).find("did not end in 20 ms"), std::string::npos)
        << error.what();
  }
  stand_in().holds = false;
}

TEST_F(TrialsTest, TheFastestPlanOfAnAttentionIsTakenAndWhereAllFailItIsRefused) {
  set_ways({2 * kSecond, kSecond});
  const auto find = [](Device& device) {
    return device.attentions().find(small_attention(), Choosing::kByTime).plan;
  };
  EXPECT_EQ(find(*new_process())->kept().substr(0, 1), "1");
  EXPECT_EQ(stand_in().count("attention 0"), 12u) << "again, since another seemed faster";
  stand_in().library_version = "stand-in 2";
  for (StandInWay& way : stand_in().ways) way.error = "CUDNN_STATUS_EXECUTION_FAILED";
  const std::string why = new_process()->attentions().refusal(small_attention(), Choosing::kByTime);
  EXPECT_NE(why.find("CUDNN_STATUS_EXECUTION_FAILED"), std::string::npos) << why;
}

TEST_F(CudaTest, TheOptionTuningTurnsComparisonsOffAndDeterministicSessionsHaveNone) {
  const auto trials = [this](const OpenDevice::Options& options, std::uint64_t flags) {
    stand_in().calls.clear();
    const OpenDevice device = open(options);
    NodeUnderTest node("", "MatMul", 13);
    node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
    KernelUnderTest kernel(device.kernel("MatMul"), device.raw(), node.raw());
    kernel.prepare({numbers({3, 4}, 1), numbers({4, 5}, 2)}, {false, false}, 1, flags);
    return stand_in().count("product");
  };
  stand_in().proposals = {{{1}, 0}, {{2}, 0}};
  EXPECT_GE(trials({}, 0), 2u);
  EXPECT_EQ(trials({{"tuning", "off"}}, 0), 1u);
  EXPECT_EQ(trials({}, BP_CREATE_DETERMINISTIC), 1u);
}

}  // namespace
}  // namespace backplane::cuda

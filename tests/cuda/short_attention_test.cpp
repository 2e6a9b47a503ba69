// Which forms of the kernel for attention of few positions there are, which of them trials take, and what is kept of that.
#include "plugins/cuda/short_attention.hpp"

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cuda/cuda_test.hpp"

namespace backplane::cuda {
namespace {

/// Of a bert_base, as its products leave q, k and v.
Attention bert_form(std::int64_t batch) {
  Attention form;
  form.batch = batch;
  form.heads = form.groups = 12;
  form.rows = form.columns = 128;
  form.width = form.value_width = 64;
  form.q = form.k = form.v = form.y = {std::int64_t{128} * 768, 64, 768};
  return form;
}

DeviceTraits device_of_132() {
  DeviceTraits traits = stand_in_device();
  traits.multiprocessors = 132;
  return traits;
}

/// The parts of each form, in order.
std::vector<std::int64_t> parts_of(const Attention& form, const DeviceTraits& traits) {
  std::vector<std::int64_t> parts;
  for (const ShortAttention& each : ShortAttention::forms(form, traits))
    parts.push_back(each.parts);
  return parts;
}

using Parts = std::vector<std::int64_t>;

TEST(ShortAttention, KeysAreDividedWhereWarpsOfRowsLeaveSchedulersIdle) {
  const DeviceTraits traits = device_of_132();
  EXPECT_EQ(parts_of(bert_form(1), traits), (Parts{4, 2, 1})) << "96 warps";
  EXPECT_EQ(parts_of(bert_form(2), traits), (Parts{1, 4, 2})) << "192 warps";
  EXPECT_EQ(parts_of(bert_form(4), traits), (Parts{1, 2})) << "384 warps";
  EXPECT_EQ(parts_of(bert_form(8), traits), (Parts{1}));
  Attention form = bert_form(1);
  form.columns = 48;
  EXPECT_EQ(parts_of(form, traits), (Parts{2, 1})) << "the last of four warps would have none";
  form.columns = 32;
  EXPECT_EQ(parts_of(form, traits), (Parts{1}));
  form = bert_form(1);
  form.width = form.value_width = 128;
  EXPECT_EQ(parts_of(form, traits), (Parts{2, 1})) << "of 32 keys that there is memory for";
  form.width = 24;
  EXPECT_EQ(parts_of(form, traits), (Parts{}));
}

TEST(ShortAttention, FormsDifferInTheirTextAndWords) {
  const std::vector<ShortAttention> forms = ShortAttention::forms(bert_form(1), device_of_132());
  ASSERT_EQ(forms.size(), 3u);
  EXPECT_EQ(forms[0].words(), ", keys in 4");
  EXPECT_EQ(forms[1].words(), ", keys in 2");
  EXPECT_EQ(forms[2].words(), "");
  for (const ShortAttention& each : forms) {
    EXPECT_EQ(each.groups(), 96);
    EXPECT_NE(each.source().find(sdk::message("#define PARTS ", each.parts)), std::string::npos);
  }
}

/// Devices of which the times of the kernel's forms, by their parts, and of the library's only plan are known.
class CudaShortAttention : public CudaProcessTest {
 protected:
  CudaShortAttention() {
    stand_in().devices[0].multiprocessors = 132;
    stand_in().has_own_clock = true;
    stand_in().libraries_compute = false;
    stand_in().kernel = [this](const std::string& source, const Extent&, const Extent&, void**) {
      for (const auto& [parts, ns] : takes_ns_) {
        if (source.find(sdk::message("#define PARTS ", parts)) == std::string::npos) continue;
        stand_in().ahead_ns += ns;
        ++runs_;
      }
    };
    constexpr std::uint64_t kLong = 1'000'000'000'000'000;
    settings_.trials = {kLong, kLong};
    set_times(40'000, 40'000, 40'000, 40'000);
  }

  void set_times(std::uint64_t of_one, std::uint64_t of_two, std::uint64_t of_four,
                 std::uint64_t of_library) {
    takes_ns_ = {{1, of_one}, {2, of_two}, {4, of_four}};
    stand_in().ways = {{of_library, 0, ""}};
  }
  /// What explanations call it; empty: it is the library's.
  static std::string taken(Device& device, Choosing choosing = Choosing::kByTime) {
    const auto found = device.attentions().find(bert_form(1), choosing);
    if (found.plan == nullptr) return found.why;
    return found.plan->own_name() == nullptr ? "" : found.plan->own_name();
  }

  std::map<int, std::uint64_t> takes_ns_;
  std::size_t runs_ = 0;
};

TEST_F(CudaShortAttention, TheFastestOfItsFormsAndTheLibrarysPlansIsTakenAndKept) {
  const std::string own = "tensor cores, few positions";
  const std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::string> cases[] = {
      {40'000, 30'000, 20'000, own + ", keys in 4"},
      {40'000, 20'000, 30'000, own + ", keys in 2"},
      {20'000, 40'000, 30'000, own},
      {60'000, 70'000, 80'000, ""}};
  for (const auto& [of_one, of_two, of_four, name] : cases) {
    stand_in().library_version = "stand-in, for" + name;
    set_times(of_one, of_two, of_four, 50'000);
    EXPECT_EQ(taken(*new_process()), name);
    const std::size_t before = runs_;
    // Another would be taken now.
    set_times(50'000, 50'000, 50'000, 50'000);
    const std::unique_ptr<Device> device = new_process();
    EXPECT_EQ(taken(*device), name);
    EXPECT_EQ(device->attentions().counts().read, 1u);
    EXPECT_EQ(runs_, before);
  }
}

TEST_F(CudaShortAttention, ByRuleItsFirstFormIsTakenAndTheOthersAreNotCompiled) {
  settings_.tuning = false;
  EXPECT_EQ(taken(*new_process()), "tensor cores, few positions, keys in 4");
  EXPECT_EQ(runs_, 1u);
  EXPECT_EQ(compiled_sources().size(), 1u);
  EXPECT_EQ(taken(*new_process()), "tensor cores, few positions, keys in 4") << "it is kept";
  EXPECT_EQ(runs_, 1u);
}

TEST_F(CudaShortAttention, AFormThatTheDriverDoesNotTakeIsPassedOver) {
  settings_.tuning = false;
  // Before plans are offered, and when it is.
  stand_in().failures["load"].assign(2, "CUDA_ERROR_INVALID_IMAGE");
  EXPECT_EQ(taken(*new_process()), "tensor cores, few positions, keys in 2");
}

TEST_F(CudaShortAttention, WhatWasKeptOfOtherFormsIsNotTaken) {
  const std::unique_ptr<Device> device = new_process();
  const std::unique_ptr<AttentionLibrary> library =
      with_short_attention(*device, load_stand_in_engine()->open_attentions(device->context()));
  std::vector<std::string> kept;
  library->offer(bert_form(1), 0, [&](const auto& plan) {
    if (plan->own_name() != nullptr) kept.push_back(plan->kept());
    return false;
  });
  ASSERT_EQ(kept.size(), 3u);
  for (const std::string& each : kept) {
    const auto plan = library->restore(bert_form(1), each);
    ASSERT_NE(plan, nullptr) << each;
    EXPECT_EQ(plan->kept(), each);
  }
  EXPECT_EQ(library->restore(bert_form(1), kept[0] + "4"), nullptr);
  EXPECT_EQ(library->restore(bert_form(8), kept[0]), nullptr) << "which has but one";
}

}  // namespace
}  // namespace backplane::cuda

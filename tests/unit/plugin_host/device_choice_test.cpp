// Which device a name means, by what its provider says of them.
#include "core/plugin_host/device_choice.hpp"

#include <cstring>
#include <gtest/gtest.h>

#include "backplane/plugin_api/optional/device_state.h"
#include "core/base/error.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// Three devices: the second is the best, the third draws least, the first has the most memory and the least free.
class DeviceChoice : public ::testing::Test {
 protected:
  DeviceChoice() {
    provider_.struct_size = sizeof(provider_);
    provider_.name = "some";
    provider_.self = this;
    const char* const names[] = {"Small One", "Big One", "Thrifty"};
    const std::int32_t scores[] = {10, 90, 50};
    const std::uint64_t memory[] = {900, 300, 600};
    for (std::size_t i = 0; i < 3; ++i) {
      infos_[i].struct_size = sizeof(bp_device_info);
      infos_[i].name = names[i];
      infos_[i].score = scores[i];
      infos_[i].memory_bytes = memory[i];
      all_.push_back(&infos_[i]);
    }
    states_.struct_size = sizeof(states_);
    states_.query = [](void* self, const bp_device_info* info, bp_device_state* out) -> bp_status* {
      auto& test = *static_cast<DeviceChoice*>(self);
      const auto index = static_cast<std::size_t>(info - test.infos_);
      if (index == test.fails_at_) return status_new(BP_FAILED, "no idea", 7);
      const std::uint64_t power[] = {200, 300, 100}, free_bytes[] = {100, 250, 400};
      out->power_mw = power[index];
      out->free_bytes = free_bytes[index];
      return nullptr;
    };
  }

  void tell_states() {
    provider_.get_interface = [](void* self, const char* id, std::uint32_t) -> const void* {
      return std::strcmp(id, BP_DEVICE_STATES_INTERFACE) == 0
                 ? &static_cast<DeviceChoice*>(self)->states_
                 : nullptr;
    };
  }

  std::vector<std::size_t> choose(const std::string& wanted) {
    return choose_devices(provider_, wanted, all_);
  }
  std::string error_of(const std::string& wanted) {
    try {
      choose(wanted);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  }
  using Indices = std::vector<std::size_t>;

  bp_provider provider_{};
  bp_device_info infos_[3] = {};
  bp_device_states states_{};
  std::vector<const bp_device_info*> all_;
  std::size_t fails_at_ = 3;
};

TEST_F(DeviceChoice, NothingIsTheBestAndANumberItsDevice) {
  EXPECT_EQ(choose(""), Indices{1});
  EXPECT_EQ(choose("2"), Indices{2});
  EXPECT_NE(error_of("3").find("'some' has no device 3; it has 3"), std::string::npos);
  EXPECT_NE(error_of("fastets").find("did you mean 'fastest'"), std::string::npos)
      << error_of("fastets");
}

TEST_F(DeviceChoice, TheBestIsByScoreThenOwnMemoryThenItsSizeThenIndex) {
  EXPECT_EQ(why_best(all_), "it has the highest score, 90");
  for (bp_device_info& info : infos_) info.score = 50;
  EXPECT_EQ(choose(""), Indices{0});
  EXPECT_EQ(why_best(all_), "of the highest score, 50, it has the most memory, 900 bytes");
  infos_[0].flags = BP_DEVICE_HOST_MEMORY;
  EXPECT_EQ(choose(""), Indices{2});
  infos_[1].flags = BP_DEVICE_HOST_MEMORY;
  EXPECT_EQ(choose(""), Indices{2});
  EXPECT_EQ(why_best(all_), "of the highest score, 50, it has memory of its own");
  infos_[0].score = 0;
  infos_[1].flags = 0;
  infos_[2].memory_bytes = infos_[1].memory_bytes;
  EXPECT_EQ(choose(""), Indices{1}) << "of equals the first";
  EXPECT_EQ(why_best(all_), "of the highest score, 50, it is the first");
  all_.resize(1);
  EXPECT_EQ(choose(""), Indices{0}) << "named, it serves as well as it can";
}

TEST_F(DeviceChoice, TheFastestHasTheHighestScore) { EXPECT_EQ(choose("fastest"), Indices{1}); }

TEST_F(DeviceChoice, PowerAndFreeMemoryAreWhatTheProviderSays) {
  tell_states();
  EXPECT_EQ(choose("least_power"), Indices{2});
  EXPECT_EQ(choose("most_memory"), Indices{2});
}

TEST_F(DeviceChoice, MemoryThatNobodyKnowsToBeFreeIsCountedWhole) {
  EXPECT_EQ(choose("most_memory"), Indices{0});
  tell_states();
  fails_at_ = 1;
  EXPECT_EQ(choose("most_memory"), Indices{0});
}

TEST_F(DeviceChoice, PowerThatNobodyKnowsIsAnErrorAndNoGuess) {
  EXPECT_NE(error_of("least_power").find("does not say how much power its device 'Small One'"),
            std::string::npos);
  all_.resize(1);
  EXPECT_EQ(choose("least_power"), Indices{0}) << "there is no other";
}

TEST_F(DeviceChoice, NamesFitWhateverTheCase) {
  EXPECT_EQ(choose("name=thrifty"), Indices{2});
  EXPECT_EQ(choose("name=*one"), Indices{0});
  EXPECT_EQ(choose("name=b?g*"), Indices{1});
  EXPECT_NE(error_of("name=one").find("it has 'Small One', 'Big One', 'Thrifty'"),
            std::string::npos);
}

TEST_F(DeviceChoice, AllAreThoseThatCanServe) {
  EXPECT_EQ(choose("all"), (Indices{0, 1, 2}));
  infos_[1].score = 0;
  EXPECT_EQ(choose("all"), (Indices{0, 2}));
}

}  // namespace
}  // namespace backplane::core

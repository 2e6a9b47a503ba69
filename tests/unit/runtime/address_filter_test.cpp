#include "core/runtime/address_filter.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace backplane::core {
namespace {

TEST(AddressFilter, HoldsWhatItWasGivenAndLittleElse) {
  std::vector<float> memory(64 * 1024);
  AddressFilter filter;
  for (std::size_t i = 0; i < 64; ++i) filter.add(&memory[i * 1024]);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_TRUE(filter.may_hold(&memory[i * 1024]));
  int others = 0;
  for (std::size_t i = 0; i < 64; ++i) others += filter.may_hold(&memory[i * 1024 + 512]) ? 1 : 0;
  EXPECT_LT(others, 32);
  EXPECT_FALSE(AddressFilter().may_hold(memory.data()));
}

}  // namespace
}  // namespace backplane::core

// The fixture of this folder's tests.
#pragma once

#include <gtest/gtest.h>

#include "tests/faults/devices.hpp"

namespace backplane::core::faults {

/// Starts with clean books; ends by checking that nothing is alive on the fake devices.
class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fakegpu().reset();
    ASSERT_EQ(alive(), "") << "left by an earlier test";
  }
  void TearDown() override {
    fakegpu().reset();
    EXPECT_EQ(alive(), "");
  }
};

}  // namespace backplane::core::faults

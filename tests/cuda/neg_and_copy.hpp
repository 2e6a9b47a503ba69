// Work for tests of streams on the stand-in: a kernel and a copy, one after the other.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "tests/cuda/cuda_test.hpp"

namespace backplane::cuda {

inline constexpr std::int64_t kCount = 6;

/// Kernels that compute: x -> -x.
inline void negate() {
  stand_in().kernel = [](const std::string&, const Extent&, const Extent&, void** arguments) {
    Address x = 0, y = 0;
    std::memcpy(&x, arguments[0], sizeof(x));
    std::memcpy(&y, arguments[2], sizeof(y));
    for (std::int64_t i = 0; i < kCount; ++i) memory_at<float>(y)[i] = -memory_at<float>(x)[i];
  };
}

/// A chain x -> -x -> copy, on buffers of its own.
class NegAndCopy {
 public:
  NegAndCopy(const OpenDevice& device, const TestStream& stream, const bp_plan_capture& capture)
      : device_(device), stream_(stream), capture_(capture) {
    node_.input(BP_FLOAT, {kCount}).outputs(1);
    kernel_ = std::make_unique<test_host::KernelUnderTest>(device.kernel("Neg"), device.raw(),
                                                           node_.raw());
    kernel_->prepare({test_host::floats({kCount}, std::vector<float>(kCount))}, {false}, 1);
  }
  void put(const TestBuffer& x, const TestBuffer& y) const {
    check(
        kernel_->compute({{nullptr, x.raw()}}, {{nullptr, between_.raw()}}, {}, {}, stream_.raw()));
    check(copy_floats(device_, stream_, {nullptr, between_.raw()}, {nullptr, y.raw()}, kCount));
  }
  bp_recording* record(const TestBuffer& x, const TestBuffer& y,
                       bp_recording* former = nullptr) const {
    check(capture_.begin(device_.raw(), stream_.raw()));
    put(x, y);
    bp_recording* made = nullptr;
    check(capture_.end(device_.raw(), stream_.raw(), former, &made));
    return made;
  }
  std::vector<float> result(const TestBuffer& y) const {
    return download(device_, stream_, {nullptr, y.raw()}, kCount);
  }

 private:
  const OpenDevice& device_;
  const TestStream& stream_;
  const bp_plan_capture& capture_;
  TestBuffer between_{device_, BP_MEMORY_DEVICE, 64};
  test_host::NodeUnderTest node_{"", "Neg", 13};
  std::unique_ptr<test_host::KernelUnderTest> kernel_;
};

}  // namespace backplane::cuda

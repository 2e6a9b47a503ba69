// A kernel that reports a value it cannot compute with, for tests on the stand-in.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "tests/cuda/cuda_test.hpp"

namespace backplane::cuda {

/// What a kernel does that meets a value it cannot compute with: FAULT_WORD stands before the two hidden arguments.
inline void report_fault(const std::string& source, void** arguments) {
  const std::string text = source.substr(source.find("KERNEL run("));
  const auto commas = static_cast<std::size_t>(
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(") {")), ','));
  int* word = nullptr;
  std::memcpy(&word, arguments[commas], sizeof(word));
  std::memcpy(word, arguments[commas + 1], sizeof(int));
}

/// A Gather whose index is too large.
class FaultyGather {
 public:
  explicit FaultyGather(const OpenDevice& device) : device_(device) {
    node_.input(BP_FLOAT, {4}).input(BP_INT64, {1}).outputs(1);
    kernel_ = std::make_unique<test_host::KernelUnderTest>(device.kernel("Gather"), device.raw(),
                                                           node_.raw());
    kernel_->prepare({test_host::floats({4}, {0, 0, 0, 0}), test_host::ints({1}, {9})},
                     {false, false}, 1);
  }
  void put(const TestStream& stream) const {
    check(kernel_->compute({{nullptr, x_.raw()}, {nullptr, i_.raw()}}, {{nullptr, y_.raw()}}, {},
                           {}, stream.raw()));
  }

 private:
  const OpenDevice& device_;
  TestBuffer x_{device_, BP_MEMORY_DEVICE, 64}, i_{device_, BP_MEMORY_DEVICE, 64},
      y_{device_, BP_MEMORY_DEVICE, 64};
  test_host::NodeUnderTest node_{"", "Gather", 13};
  std::unique_ptr<test_host::KernelUnderTest> kernel_;
};

}  // namespace backplane::cuda

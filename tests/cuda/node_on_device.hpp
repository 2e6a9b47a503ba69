// A node of the CUDA provider, run on the stand-in.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda/cuda_test.hpp"

namespace backplane::cuda {

using sdk::Dims;
using test_host::floats;
using test_host::HostTensor;
using test_host::KernelUnderTest;
using test_host::NodeUnderTest;

inline constexpr char kPrivateDomain[] = "backplane.cuda";

inline std::int64_t count_of(const Dims& dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}

/// Small whole numbers, so that sums are exact in any order.
inline HostTensor numbers(const Dims& dims, int seed) {
  std::vector<float> values(static_cast<std::size_t>(count_of(dims)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<int>(i) * 7 + seed * 5) % 11 - 5);
  return floats(dims, values);
}

/// A node that is prepared and run on the stand-in, its tensors laid into buffers at some offset.
class NodeOnDevice {
 public:
  NodeOnDevice(const OpenDevice& device, const NodeUnderTest& node, const bp_kernel_def* def,
               std::vector<HostTensor> inputs)
      : device_(device), inputs_(std::move(inputs)), kernel_(def, device.raw(), node.raw()) {
    kernel_.prepare(inputs_, std::vector<bool>(inputs_.size(), false), 1);
  }
  const Dims& dims() const { return kernel_.outputs()[0].dims; }
  KernelUnderTest& kernel() { return kernel_; }

  std::vector<float> run(std::uint64_t offset = 0) {
    const TestStream stream(device_);
    std::vector<std::unique_ptr<TestBuffer>> buffers;
    std::vector<Place> places;
    for (const HostTensor& tensor : inputs_) {
      buffers.push_back(std::make_unique<TestBuffer>(device_, BP_MEMORY_DEVICE,
                                                     tensor.data.size() + offset + 16));
      places.push_back({nullptr, buffers.back()->raw(), offset});
      if (tensor.dtype != BP_NONE)
        test_host::upload(device_, stream, tensor.as<float>(), places.back());
    }
    const auto count = static_cast<std::size_t>(count_of(dims()));
    const TestBuffer y(device_, BP_MEMORY_DEVICE, count * sizeof(float) + offset + 16);
    const TestBuffer workspace(device_, BP_MEMORY_DEVICE, kernel_.workspace_bytes() + 16);
    const Place place{nullptr, y.raw(), offset};
    check(kernel_.compute(places, {place}, {}, {nullptr, workspace.raw(), 0}, stream.raw()));
    return test_host::download(device_, stream, place, count);
  }

 private:
  const OpenDevice& device_;
  std::vector<HostTensor> inputs_;
  KernelUnderTest kernel_;
};

}  // namespace backplane::cuda

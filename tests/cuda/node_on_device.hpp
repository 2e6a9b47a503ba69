// A node of the CUDA provider, run on the stand-in.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
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

/// The kernel of that name, "cuda:int8 matmul", for an operator.
inline const bp_kernel_def* kernel_named(const OpenDevice& device, const std::string& name,
                                         const std::string& op_type) {
  struct Search {
    std::string name, op_type;
    const bp_kernel_def* found = nullptr;
  } search{name, op_type};
  check(device->kernels(device.raw(), &search,
                        [](void* context, const bp_kernel_def* def) -> bp_status* {
                          auto& wanted = *static_cast<Search*>(context);
                          if (wanted.name == def->name && wanted.op_type == def->op_type)
                            wanted.found = def;
                          return nullptr;
                        }));
  if (search.found == nullptr) throw std::logic_error("there is no kernel " + name);
  return search.found;
}

/// A copy of bytes between two places.
inline void copy_bytes(const OpenDevice& device, const TestStream& stream, const Place& from,
                       const Place& to, std::uint64_t bytes) {
  const HostTensor shape{BP_UINT8, {static_cast<std::int64_t>(bytes)}, {}};
  const test_host::Grown<bp_tensor> source = describe(shape, from), target = describe(shape, to);
  check(device->copy(device.raw(), stream.raw(), &source.base, &target.base));
  stream.sync();
}

/// A node that is prepared and run on the stand-in, its tensors laid into buffers at some offset, its constants packed.
class NodeOnDevice {
 public:
  /// `constants`: which inputs are; none where it is empty.
  NodeOnDevice(const OpenDevice& device, const NodeUnderTest& node, const bp_kernel_def* def,
               std::vector<HostTensor> inputs, std::vector<bool> constants = {})
      : device_(device), inputs_(std::move(inputs)), kernel_(def, device.raw(), node.raw()) {
    constants.resize(inputs_.size());
    kernel_.prepare(inputs_, constants, 1);
  }
  const Dims& dims() const { return kernel_.outputs()[0].dims; }
  KernelUnderTest& kernel() { return kernel_; }

  std::vector<float> run(std::uint64_t offset = 0) { return run_as<float>(offset); }

  template <class T>
  std::vector<T> run_as(std::uint64_t offset = 0) {
    const TestStream stream(device_);
    std::vector<std::unique_ptr<TestBuffer>> buffers;
    std::vector<Place> places;
    for (const HostTensor& tensor : inputs_) {
      places.push_back(place(buffers, tensor.data.size(), offset));
      if (!tensor.data.empty()) upload(stream, tensor.data, places.back());
    }
    const std::vector<Place> packed = pack(stream, buffers);
    const auto count = static_cast<std::size_t>(count_of(dims()));
    const Place to = place(buffers, count * sizeof(T), offset);
    const Place workspace = place(buffers, kernel_.workspace_bytes(), 0);
    stand_in().run_began = stand_in().calls.size();
    check(kernel_.compute(places, {to}, packed, workspace, stream.raw()));
    stream.sync();
    std::vector<T> values(count);
    if (count == 0) return values;
    const TestBuffer staging(device_, BP_MEMORY_PINNED, count * sizeof(T));
    copy_bytes(device_, stream, to, {nullptr, staging.raw()}, count * sizeof(T));
    std::memcpy(values.data(), staging.host(), count * sizeof(T));
    return values;
  }

 private:
  Place place(std::vector<std::unique_ptr<TestBuffer>>& buffers, std::uint64_t bytes,
              std::uint64_t offset) const {
    constexpr std::uint64_t kSlack = 16;
    buffers.push_back(
        std::make_unique<TestBuffer>(device_, BP_MEMORY_DEVICE, bytes + offset + kSlack));
    return {nullptr, buffers.back()->raw(), offset};
  }
  void upload(const TestStream& stream, const std::vector<unsigned char>& data,
              const Place& to) const {
    const TestBuffer staging(device_, BP_MEMORY_PINNED, data.size());
    std::memcpy(staging.host(), data.data(), data.size());
    copy_bytes(device_, stream, {nullptr, staging.raw()}, to, data.size());
  }
  std::vector<Place> pack(const TestStream& stream,
                          std::vector<std::unique_ptr<TestBuffer>>& buffers) const {
    std::vector<Place> packed;
    for (const test_host::PackPlan& plan : kernel_.packs()) {
      packed.push_back(place(buffers, plan.bytes, 0));
      std::vector<HostTensor> tensors;
      for (const std::uint32_t input : plan.inputs) tensors.push_back(inputs_[input]);
      std::vector<test_host::Grown<bp_tensor>> sources;
      for (HostTensor& tensor : tensors) sources.push_back(describe(tensor, {tensor.data.data()}));
      std::vector<const bp_tensor*> pointers;
      for (const auto& source : sources) pointers.push_back(&source.base);
      const auto target =
          describe({BP_UINT8, {static_cast<std::int64_t>(plan.bytes)}, {}}, packed.back());
      test_host::Grown<bp_pack_ctx> ctx;
      ctx.base.sources = pointers.data();
      ctx.base.target = &target.base;
      ctx.base.source_count = pointers.size();
      ctx.base.stream = stream.raw();
      check(plan.pack(plan.self, &ctx.base));
    }
    return packed;
  }

  const OpenDevice& device_;
  std::vector<HostTensor> inputs_;
  KernelUnderTest kernel_;
};

}  // namespace backplane::cuda

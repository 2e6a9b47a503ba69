// The frame around this provider's own operators, and the words of the shared ones.
//
//   class MatMul {
//    public:
//     MatMul(const Device& device, const sdk::Node& node);           // attributes; may throw unsupported()
//     void prepare(sdk::PrepareContext& ctx, NodeWork& work) const;  // shapes; adds launches and products
//   };
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

using sdk::DataType;
using sdk::Dims;
using sdk::DimsView;
using sdk::KernelList;

using device_ops::input;
using device_ops::kernel_name;
using device_ops::output;
using device_ops::private_domain;

/// What a node puts on a stream: launches of kernels, and calls of libraries, in order.
class NodeWork {
 public:
  NodeWork(Device& device, std::string label, Choosing choosing)
      : device_(device), label_(std::move(label)), choosing_(choosing) {}

  Device& device() { return device_; }
  const std::string& label() const { return label_; }
  Choosing choosing() const { return choosing_; }
  /// Where launches after what was added last are put.
  device_ops::Work& launches() {
    if (launches_ == nullptr) launches_ = std::make_unique<device_ops::Work>(device_, label_);
    return *launches_;
  }
  void add(std::unique_ptr<const device_ops::PreparedWork> part) {
    close_launches();
    parts_.push_back(std::move(part));
  }
  std::vector<std::unique_ptr<const device_ops::PreparedWork>> finish() {
    close_launches();
    return std::move(parts_);
  }

 private:
  void close_launches() {
    if (launches_ != nullptr) parts_.push_back(device_.make_ready(*launches_));
    launches_.reset();
  }

  Device& device_;
  std::string label_;
  Choosing choosing_;
  std::unique_ptr<device_ops::Work> launches_;
  std::vector<std::unique_ptr<const device_ops::PreparedWork>> parts_;
};

/// What `prepare` gives the host.
struct ReadyParts {
  std::vector<std::unique_ptr<const device_ops::PreparedWork>> parts;
  void compute(const sdk::ComputeContext& ctx) const {
    for (const auto& part : parts) part->compute(ctx);
  }
};

template <class Op>
class CudaKernel {
 public:
  CudaKernel(const sdk::CreateContext& ctx, const sdk::Node& node)
      : device_(static_cast<Device&>(*ctx.device<device_ops::Device>())),
        label_(node.name()),
        op_(device_, node) {}

  ReadyParts prepare(sdk::PrepareContext& ctx) const {
    // What is measured differs from session to session.
    NodeWork work(device_, label_, ctx.deterministic() ? Choosing::kByRule : Choosing::kByTime);
    op_.prepare(ctx, work);
    return {work.finish()};
  }

 private:
  Device& device_;
  std::string label_;
  Op op_;
};

template <class Op>
sdk::KernelEntry cuda_kernel(sdk::KernelBuilder builder) {
  return builder.kernel<CudaKernel<Op>>();
}

}  // namespace backplane::cuda

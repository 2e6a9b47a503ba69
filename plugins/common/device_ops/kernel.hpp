// The frame around an operator.
//
//   class Neg {
//    public:
//     Neg(const Device& device, const sdk::Node& node);             // attributes; may throw unsupported()
//     void prepare(sdk::PrepareContext& ctx, Work& work) const;     // shapes; adds launches
//   };
//   KernelList neg_kernels() { return {device_kernel<Neg>(sdk::op("Neg").name(kernel_name("neg")))}; }
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/common/axes.hpp"
#include "plugins/common/device_ops/device.hpp"
#include "plugins/common/device_ops/provider.hpp"
#include "plugins/common/types.hpp"

namespace backplane::device_ops {

using common::normalize_axis;
using sdk::DataType;
using sdk::Dims;
using sdk::DimsView;
using sdk::KernelList;

/// A workspace, laid out piece by piece.
class WorkspacePieces {
 public:
  explicit WorkspacePieces(const Device& device) : alignment_(device.limits().alignment) {}
  MemoryRef add(std::int64_t bytes) {
    const std::uint64_t at = bytes_;
    bytes_ += (static_cast<std::uint64_t>(bytes) + alignment_ - 1) / alignment_ * alignment_;
    return workspace(at);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t alignment_, bytes_ = 0;
};

/// What `prepare` gives the host.
struct ReadyWork {
  std::unique_ptr<const PreparedWork> work;
  void compute(const sdk::ComputeContext& ctx) const { work->compute(ctx); }
};

template <class Op>
class DeviceKernel {
 public:
  DeviceKernel(const sdk::CreateContext& ctx, const sdk::Node& node)
      : device_(device_for(ctx, node)), label_(node.name()), op_(device_, node) {}

  ReadyWork prepare(sdk::PrepareContext& ctx) const {
    Work work(device_, label_);
    op_.prepare(ctx, work);
    return {device_.make_ready(work)};
  }

 private:
  static Device& device_for(const sdk::CreateContext& ctx, const sdk::Node& node) {
    Device& device = *ctx.device<Device>();
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      if (node.input(i)) device.require(node.input(i).type());
    }
    for (std::size_t i = 0; i < node.output_count(); ++i) {
      if (node.output(i)) device.require(node.output(i).type());
    }
    return device;
  }

  Device& device_;
  std::string label_;
  Op op_;
};

template <class Op>
sdk::KernelEntry device_kernel(sdk::KernelBuilder builder) {
  return builder.kernel<DeviceKernel<Op>>();
}

/// Element types that kernels compute with.
inline common::TypeList number_types() { return common::number_types(); }
inline common::TypeList float_types() { return common::float_types(); }
/// Those that can also be moved about: numbers and bools.
inline common::TypeList element_types() {
  return common::join(common::number_types(), {DataType::Bool});
}

}  // namespace backplane::device_ops

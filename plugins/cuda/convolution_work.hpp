// Convolutions as a part of what a node puts on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// Where the tensors of a node's convolution lie; bias and addend count where the form has them.
struct ConvolutionPlaces {
  device_ops::MemoryRef x = device_ops::input(0), w = device_ops::input(1),
                        bias = device_ops::input(2), addend = device_ops::input(3),
                        y = device_ops::output(0);
  device_ops::MemoryRef workspace = device_ops::workspace();  ///< where the library's begins
  bool w_is_constant = false;                                 ///< no work on a stream makes it
};

/// A convolution on a stream. Immutable.
class ConvolutionWork final : public device_ops::PreparedWork {
 public:
  using Plan = std::shared_ptr<const PreparedConvolution>;
  /// For tensors at any address: as with products, there is a second plan for addresses that are not aligned. Null: the
  /// library has no plan, and `why` says why. Errors: BP_UNSUPPORTED where there is no library.
  static std::unique_ptr<ConvolutionWork> find(Device& device, const std::string& label,
                                               Convolution form, const ConvolutionPlaces& places,
                                               Choosing choosing, std::string& why);
  /// `any` is for addresses that are not aligned; it may be the same as `aligned` where all are: pieces of a workspace, packed
  /// constants.
  ConvolutionWork(std::string label, const Convolution& form, const ConvolutionPlaces& places,
                  Plan aligned, Plan any);
  /// Of the plan for aligned addresses.
  const char* own_name() const { return aligned_->own_name(); }
  /// From the places' workspace on.
  std::uint64_t workspace_bytes() const;
  void compute(const sdk::ComputeContext& ctx) const override;

 private:
  std::string label_;
  bool has_bias_, has_addend_;
  ConvolutionPlaces places_;
  Plan aligned_, any_;
};

}  // namespace backplane::cuda

// Plans of convolutions.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/cuda/convolutions.hpp"
#include "plugins/cuda/plan_store.hpp"

namespace backplane::cuda {

/// The most workspace of a convolution.
inline constexpr std::uint64_t kConvolutionWorkspace = std::uint64_t{256} << 20;
/// Plans that are compared: the provider's own come first.
inline constexpr std::size_t kMostConvolutionPlans = 10;

class ConvolutionStore : public PlanStore<Convolution, PreparedConvolution, ConvolutionLibrary> {
 public:
  ConvolutionStore(ConvolutionLibrary* library, const DeviceTraits& traits,
                   const std::string& folder, Trials* trials)
      : PlanStore(library, traits, folder, trials, kConvolutionWorkspace, kMostConvolutionPlans) {}
};

}  // namespace backplane::cuda

// Plans of convolutions, made once for each form.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/convolutions.hpp"

namespace backplane::cuda {

/// The most workspace of a convolution.
inline constexpr std::uint64_t kConvolutionWorkspace = std::uint64_t{256} << 20;

/// Plans, shared by the nodes that have the same form. On disk they are kept by library, device and form: the
/// library takes up to seconds to make one.
/// Threads: any.
class ConvolutionStore {
 public:
  /// `library` is null where this build has none.
  ConvolutionStore(ConvolutionLibrary* library, const DeviceTraits& traits,
                   const std::string& folder);

  /// Null when the library has no plan. Errors: BP_UNSUPPORTED where there is no library.
  std::shared_ptr<const PreparedConvolution> find(const Convolution& convolution);

  struct Counts {
    std::uint64_t planned = 0, read = 0;
  };
  Counts counts() const;

 private:
  ConvolutionLibrary* library_;
  std::string device_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const PreparedConvolution>> plans_;  // by the form's key
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::cuda

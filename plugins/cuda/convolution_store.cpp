#include "plugins/cuda/convolution_store.hpp"

#include <utility>

namespace backplane::cuda {

std::string Convolution::key() const {
  std::string text =
      sdk::message(sdk::type_name(type), ' ', batch, 'x', channels, " to ", filters, " in ", groups,
                   has_bias ? ", bias" : "", has_addend ? ", addend" : "", has_relu ? ", relu" : "",
                   is_channels_last ? ", channels last" : "", ", ", precision_name(precision),
                   ", aligned ", alignment);
  for (std::size_t axis = 0; axis < rank; ++axis)
    text += sdk::message("; ", in[axis], " by ", kernel[axis], " to ", out[axis], " stride ",
                         stride[axis], " dilation ", dilation[axis], " pads ", pad_begin[axis], ' ',
                         pad_end[axis]);
  return text;
}

ConvolutionStore::ConvolutionStore(ConvolutionLibrary* library, const DeviceTraits& traits,
                                   const std::string& folder)
    : library_(library),
      device_(sdk::message(traits.name, ' ', traits.major, '.', traits.minor)),
      cache_(folder) {}

ConvolutionStore::Counts ConvolutionStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const PreparedConvolution> ConvolutionStore::find(const Convolution& convolution) {
  if (library_ == nullptr)
    sdk::unsupported("this build of the plugin has no cuDNN, which computes convolutions");
  const std::string form = convolution.key();
  // Held while a plan is made: several nodes want the same one.
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = plans_.try_emplace(form);
  if (!is_new) return place->second;
  try {
    const std::string key = sdk::message(library_->version(), '\n', device_, ", at most ",
                                         kConvolutionWorkspace, '\n', form);
    if (const std::optional<std::string> kept = cache_.read(key)) {
      place->second = library_->restore(convolution, *kept);
      if (place->second != nullptr && place->second->workspace_bytes() <= kConvolutionWorkspace) {
        ++counts_.read;
        return place->second;
      }
    }
    place->second = library_->plan(convolution, kConvolutionWorkspace);
    ++counts_.planned;
    if (place->second != nullptr) {
      const std::string kept = place->second->kept();
      if (!kept.empty()) cache_.write(key, kept);
    }
  } catch (...) {
    plans_.erase(place);
    throw;
  }
  return place->second;
}

}  // namespace backplane::cuda

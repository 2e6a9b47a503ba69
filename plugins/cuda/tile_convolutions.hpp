// Convolutions of 16 bits, channels last, by tiles (tile_form.hpp), beside those of a library: the results' pixels are the rows of a
// product with the filters. The copies of boxes bring each tap's pixels and the zeros around the image, so that nothing is written out for
// it; bias, addend and Relu are done before results are stored.
#pragma once

#include <memory>
#include <optional>

#include "plugins/cuda/convolutions.hpp"
#include "plugins/cuda/tile_form.hpp"

namespace backplane::cuda {

class Device;

/// A convolution of two spatial axes as the kernel has it.
struct TileConvolution {
  Convolution form;
  TileSizes sizes;
  TileText text;
  TilePixels pixels;

  /// None where the kernel does not do the form, or the device has no such units.
  static std::optional<TileConvolution> of(const Convolution& form, const DeviceTraits& traits);
  /// Whether it is compared with the library's plans at all: not for what leaves nearly all of a device idle.
  bool is_worthwhile() const;
  /// The image, for the copies of a form.
  BoxedPixels image(Address address, const TileForm& how) const;
};

/// A form of the kernel as a plan of the library that it stands in front of.
std::shared_ptr<const PreparedConvolution> to_plan(Device& device,
                                                   const TileConvolution& convolution,
                                                   const TileForm& form);

/// The library, and before its plans the forms of the kernel, the likeliest first. `device` outlives it.
std::unique_ptr<ConvolutionLibrary> with_tile_convolutions(
    Device& device, std::unique_ptr<ConvolutionLibrary> library);

}  // namespace backplane::cuda

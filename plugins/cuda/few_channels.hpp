// Convolutions of images of up to four channels, as the first layer of a network has, of 16 bits and channels last: a kernel of the
// provider's own on matrix units, which also adds and does Relu. It reads the image as it lies, each pixel about once, where the
// library's kernels for such images leave what follows to another one, and those that do all of it are not made for so few channels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/cuda/convolutions.hpp"

namespace backplane::cuda {

class Device;

/// How the kernel does a form: what stands in its text (kernels/few_channels.hpp), and how many groups there are. One spatial axis is
/// two, as for the library.
struct FewChannels {
  Convolution form;
  std::int64_t tiles = 1;     ///< rows of 16 results that a warp has at once
  std::int64_t slices = 1;    ///< of 16 filters, that a group has: 1, 2 or 4
  std::int64_t pitch = 0;     ///< from one line of the patch to the next, in pixels
  std::int64_t resident = 1;  ///< groups that a multiprocessor has room for

  /// None where the kernel does not do the form, or the device has no such units.
  static std::optional<FewChannels> of(const Convolution& form, const DeviceTraits& traits);
  /// Whether it is to be compared with the library's plans, and taken where nothing is: not for what does not fill a device.
  bool is_worthwhile() const;

  std::int64_t parts() const;  ///< of the filters
  std::int64_t down() const;   ///< groups' tiles of an image
  std::int64_t across() const;
  std::int64_t all_tiles() const { return form.batch * down() * across(); }
  std::int64_t local_bytes() const;
  /// Along the tiles: each group has as many as any other, or one less.
  std::int64_t groups(const DeviceTraits& traits) const;
  std::string source() const;

  static constexpr std::int64_t kWarps = 4, kColumns = 16, kSliceFilters = 16;

 private:
  std::int64_t tile_rows() const { return kWarps * tiles; }
  std::int64_t shift() const;
  std::int64_t steps() const;
  std::int64_t patch_width() const;
  std::int64_t turns_of(std::int64_t pitch) const;
  void choose_pitch();
  bool fits() const;
};

/// The library, and before its plans the kernel's for the forms that it is for: so trials compare them, and what they say is kept.
std::unique_ptr<ConvolutionLibrary> with_few_channels(Device& device,
                                                      std::unique_ptr<ConvolutionLibrary> library);

}  // namespace backplane::cuda

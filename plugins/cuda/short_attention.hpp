// Attention of few positions, as of sentences and patches of images, of 16 bits: a kernel of the provider's own on matrix units, which
// begins at once, where the library's plans are made for long rows and clear memory first, as a step of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cuda/attentions.hpp"

namespace backplane::cuda {

class Device;

/// How the kernel does a form: what stands in its text (kernels/short_attention.hpp), and how many groups there are.
struct ShortAttention {
  Attention form;
  std::int64_t warps = 1;  ///< of a group that have rows of their own, 16 each
  std::int64_t keys = 64;  ///< that are in local memory at once, and as many that are on their way
  std::int64_t parts = 1;  ///< of the keys; as many warps have the same rows

  /// With keys that are not divided. None where the kernel does not do the form, or the device has no such units.
  static std::optional<ShortAttention> of(const Attention& form, const DeviceTraits& traits);
  /// That one and those of several parts that may be faster, likeliest first.
  static std::vector<ShortAttention> forms(const Attention& form, const DeviceTraits& traits);
  /// Whether it is to be compared with the library's plans, and taken where nothing is.
  bool is_worthwhile() const;
  std::int64_t groups() const;
  /// What tells it from the others: empty, or ", keys in 4".
  std::string words() const;
  std::string source() const;
};

/// The library, and before its plans the kernel's for the forms that it is for: so trials compare them, and what they say is kept.
std::unique_ptr<AttentionLibrary> with_short_attention(Device& device,
                                                       std::unique_ptr<AttentionLibrary> library);

}  // namespace backplane::cuda

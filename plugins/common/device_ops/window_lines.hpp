// How windows over planes are cut for processors' kernels, which read lines with a border: see common/kernels/lines.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "plugins/common/device_ops/window.hpp"

namespace backplane::device_ops {

/// Whether the window moves over two axes alone, whose columns ints can number.
bool is_planar(const Window& window);

/// The parts of a plane that work items do.
struct WindowLines {
  static constexpr std::int64_t kMostColumns = 512;  ///< of a part

  std::int64_t width = 4;   ///< VW: floats of a vector
  std::int64_t height = 4;  ///< HEIGHT: lines that are folded at a time
  std::int64_t band = 1;    ///< lines of a part
  std::int64_t tile = 1;    ///< columns of a part

  /// Nothing where the device is no processor, or a part does not fit into what an item has of its own.
  static std::optional<WindowLines> over(const Device& device, const Window& window);
  /// The words of kWindowLines that the window gives.
  void define(KernelText& text, const Window& window) const;
  /// Adds the numbers that follow the memory, and the sizes.
  void set(LaunchPlan& plan, const Window& window, std::int64_t planes) const;
};

}  // namespace backplane::device_ops

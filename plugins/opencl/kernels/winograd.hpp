// Launches of Winograd's convolution: see common/kernels/winograd.hpp for what is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plugins/opencl/kernel.hpp"
#include "plugins/opencl/kernels/product.hpp"

namespace backplane::opencl {

/// A convolution of floats by 3x3 taps with stride 1, in one group.
struct Winograd {
  std::int64_t images = 1, in_channels = 0, out_channels = 0;
  Window window;
  MemoryRef x, bias, residual, y;
  bool has_bias = false, has_residual = false;
  Activation activation = Activation::make("", {});
};

/// Whether it can be done so on this device.
bool winograd_applies(const Device& device, const Winograd& conv);
/// Whether besides it is likely to be faster than the product with the spread image.
bool winograd_pays(const Device& device, const Winograd& conv);

/// The weights ([out][in][3][3]), transformed, as panels for the products of the 36 points.
struct WinogradPacker {
  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t panel = 1;
  std::int64_t point_floats() const {
    return (out_channels + panel - 1) / panel * panel * in_channels;
  }
  std::uint64_t bytes() const;
  std::string key() const;
  void pack(const sdk::PackContext& ctx) const;
};

/// How the work is cut. In steps, rows of tiles are done together, so that what lies between the steps stays in caches.
/// Whole, where a block's tiles of all channels fit into a core's cache and there are blocks for every core, work items do
/// all steps of their blocks.
struct WinogradPlan {
  std::int64_t tiles_y = 0, tiles_x = 0, rows = 0;  ///< rows: of a chunk or block
  std::int64_t columns = 0;                         ///< of a block; 0: in steps
  std::int64_t blocks = 0, items = 0;               ///< whole
  std::int64_t channel_step = 0;
  std::uint64_t workspace_bytes = 0, products_offset = 0;
  std::int64_t own_floats = 0;  ///< whole: of a work item
  Tile tile;
  /// From one point to the next: no multiple of 4 KiB, of which caches hold few.
  std::int64_t point_step(std::int64_t channels) const { return channels * channel_step + 16; }
  WinogradPlan(const Device& device, const Winograd& conv);

 private:
  void set_steps(const Device& device, const Winograd& conv);
  /// False where the convolution is better done in steps.
  bool set_whole(const Device& device, const Winograd& conv);
};

/// `weights`: what a WinogradPacker with the plan's panel packed. Needs the plan's workspace.
void add_winograd(Work& work, const Winograd& conv, const WinogradPlan& plan,
                  const MemoryRef& weights);

}  // namespace backplane::opencl

// Convolutions of elements of eight bits by a library that convolves images of int8, channels last, and gives sums of 32 bits. So an
// image is laid out once: channels last, unsigned elements less 128, the padding filled with the zero point, so that the
// convolution itself has none and what zero points add to the sums is the same everywhere (integer_lines.hpp says what that is).
// Where the weights have a zero point, the sums of windows are wanted too: a filter of ones makes them.
#pragma once

#include <cstdint>
#include <string>

#include "plugins/common/device_ops/window.hpp"
#include "plugins/cuda/integer_lines.hpp"

namespace backplane::cuda {

/// Filters [groups * filters][channels][taps] as [groups * laid_filters][taps][laid_channels], with zeros beside them, and behind
/// `filters` of a group one of ones where `has_ones`.
struct Filters {
  DataType type = DataType::Int8;
  std::int64_t groups = 1, filters = 0, channels = 0, taps = 1;
  bool has_ones = false;

  std::int64_t laid_filters() const;   ///< of a group
  std::int64_t laid_channels() const;  ///< of a group
  std::int64_t all_filters() const { return groups * laid_filters(); }
  std::int64_t line() const { return taps * laid_channels(); }  ///< of a filter, in bytes
  std::int64_t bytes() const { return all_filters() * line(); }
};

/// Constant filters, laid out, and behind them the sum of each.
struct FilterPacker {
  Filters filters;
  std::uint64_t sums_at() const;
  std::uint64_t bytes() const;
  std::string key() const;
  void pack(const sdk::PackContext& ctx) const;
};
using FilterPackers = KeptPackers<FilterPacker>;

/// Input `place` as filters: packed where it is a constant, and else in a piece of the workspace. The sums are there where they
/// are wanted.
LaidOut lay_out_filters(sdk::PrepareContext& ctx, NodeWork& work, const FilterPackers& packers,
                        std::uint32_t place, const Filters& filters, bool wants_sums,
                        WorkspacePieces& pieces);

/// The images of a convolution.
struct Image {
  DataType type = DataType::Int8;
  std::int64_t images = 1;
  device_ops::Window window;

  std::int64_t padded(std::size_t axis) const {
    return window.in[axis] + window.pad_begin[axis] + window.pad_end[axis];
  }
  std::int64_t padded_points() const { return padded(0) * padded(1) * padded(2); }
};
/// `zero` is where the zero point lies, or null.
void add_lay_image(device_ops::Work& work, const Image& image, const Filters& filters,
                   const MemoryRef& from, const MemoryRef* zero, const MemoryRef& to);

/// What the library is asked for. `rank`: of the spatial axes, 1 to 3.
Convolution library_form(const Image& image, const Filters& filters, std::size_t rank);

}  // namespace backplane::cuda

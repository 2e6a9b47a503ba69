// Convolutions of bytes on channels-last images: as products whose rows are output pixels, or channel by
// channel.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/conv_rows.hpp"
#include "plugins/cpu/dense/conv_u8_winograd.hpp"
#include "plugins/cpu/dense/product_u8.hpp"
#include "plugins/cpu/dense/sliding_u8.hpp"

namespace backplane::cpu {

/// The memory of one convolution of bytes. Nothing is owned.
struct ConvArgsU8 {
  const std::uint8_t* x = nullptr;  // dense
  std::uint8_t zero = 0;            // the byte of x that stands for the number 0
  const void* packed = nullptr;
  FinishU8 finish;
  const FinishSums* after =
      nullptr;        // what is done to sums (finish.sums) in the cache; null: nothing
  void* y = nullptr;  // dense, channels last
};

/// How x is stored.
struct BytesX {
  bool is_signed = false;
  bool channels_first = false;
  std::int32_t zero = 0;  // in x's own type

  /// The byte that stands for the number 0.
  std::uint8_t zero_byte() const { return static_cast<std::uint8_t>(zero); }
  /// The zero point of unsigned rows: signed bytes are read as 128 more.
  std::int32_t unsigned_zero() const { return is_signed ? zero + 128 : zero; }
};

/// A convolution of bytes made ready: y = finish(sum (x - x_zero) * w). Weights are signed bytes, or
/// unsigned ones of zero point 128. Immutable.
class ConvU8 {
 public:
  /// Whether there are kernels for it: channels of a group in fours, or as many groups as channels, or one
  /// group.
  static bool applies(const ConvShape& shape);
  /// Whether transforms are expected to be faster; not for sums (finish.sums).
  static bool transforms_pay(const ConvShape& shape, const BytesX& x, Isa isa);
  ConvU8(const ConvShape& shape, const BytesX& x, Isa isa, unsigned threads,
         bool transformed = false);

  std::uint64_t packed_bytes() const;
  std::uint64_t workspace_bytes() const;
  /// Weights [out_channels, in_channels / groups, kernel ...]. Where sums are wanted, of groups that are not as many as
  /// channels, there are no scales and shifts.
  void pack(const sdk::Tensor& weights, const float* scale, const float* shift, void* packed,
            const sdk::Threads& threads) const;
  void run(const ConvArgsU8& args, void* workspace, const sdk::Threads& threads) const;
  /// "depthwise", "sliding", "merged", "indirect" or "winograd", for the plan.
  const char* variant() const;

 private:
  std::uint64_t frame_bytes() const;
  void fill_frame(const ConvArgsU8& args, std::uint8_t* frame, const sdk::Threads& threads) const;
  void copy_line(const std::uint8_t* x, std::int64_t image, std::int64_t z, std::int64_t y,
                 std::uint8_t* to) const;
  bool lie_in_order() const;
  void run_depthwise(const ConvArgsU8& args, const RowSource<std::uint8_t>& source,
                     const std::uint8_t* zeros, char* scratch, const sdk::Threads& threads) const;
  /// A kernel of 3 x 3 positions, each output line by itself.
  void run_sliding(const ConvArgsU8& args, const RowSource<std::uint8_t>& source,
                   const std::uint8_t* zeros, const sdk::Threads& threads) const;
  /// What the kernels take as taps of a channel.
  std::int64_t packed_taps() const {
    return slide_ != nullptr ? kSlidingTaps : shape_.window.taps();
  }
  std::uint64_t depthwise_bytes() const;
  /// Channels with those that fill the last unit.
  std::int64_t depthwise_lanes() const;
  void pack_depthwise(const sdk::Tensor& weights, const float* scale, const float* shift,
                      void* packed) const;

  ConvShape shape_;
  BytesX x_;
  bool depthwise_;
  bool transformed_;
  // Null where it is not used; known without sizes and strides, as the packed weights are.
  SlideU8 slide_ = nullptr;
  // A copy of the image in a frame of zero points whose pixels have whole quads; where kernels are wide and
  // channels few, the pixels below one line of a kernel are read as one row ("merged").
  bool framed_ = false;
  bool merged_ = false;
  std::int64_t frame_channels_ = 0;
  // Rows are widened from pixels of four bytes, without the channels that do not exist.
  bool widens_pixels_ = false;
  std::int64_t row_channels_ = 0;  // of a pixel, in a row of the product
  Window frame_window_;            // over the frame: nothing is outside of it
  const KernelsU8* kernels_;
  unsigned threads_;
  ProductU8 product_;  // of what is neither depthwise nor transformed
  WinogradU8 winograd_;
};

}  // namespace backplane::cpu

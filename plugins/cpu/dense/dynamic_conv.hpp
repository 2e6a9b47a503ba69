// Convolutions of bytes whose zero points, x's known only while a network runs, are any numbers.
//
// With x the bytes of the image and w the weights, read as unsigned and signed ones with their zero points x0 and w0:
// sum (x - x0) (w - w0) = sum x w - x0 sum w - w0 sum (x - x0). The sum over w is known when weights are packed. The
// last one, over the window of an output pixel, is needed only where some w0 is not 0; padding adds nothing to it.
#pragma once

#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/conv_u8.hpp"
#include "plugins/cpu/dense/finish_sums.hpp"
#include "plugins/cpu/dense/product_s16.hpp"

namespace backplane::cpu {

/// The memory of one such convolution. Nothing is owned.
struct DynamicConvArgs {
  const std::uint8_t* x = nullptr;  // dense
  std::int32_t x_zero = 0;          // in x's own type
  const void* packed = nullptr;
  const std::int32_t* addend = nullptr;  // added to the sums of each channel; null: nothing
  FinishSums finish;                     // its terms are set here
  void* y = nullptr;                     // dense, channels last: floats or int32
};

/// A convolution of one group, of every combination of uint8 and int8, made ready. Sums are exact and wrap. Immutable.
class DynamicConv {
 public:
  DynamicConv(const ConvShape& shape, bool x_signed, bool x_channels_first, Isa isa,
              unsigned threads);

  std::uint64_t packed_bytes() const;
  std::uint64_t workspace_bytes() const;
  /// Weights [out_channels, in_channels, kernel ...]; `zeros` are one zero point or one for each output channel, null: 0.
  void pack(const sdk::Tensor& weights, const sdk::Tensor* zeros, void* packed,
            const sdk::Threads& threads) const;
  void run(const DynamicConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// For the plan.
  const char* variant() const { return conv_.variant(); }

 private:
  void sum_pixels(const DynamicConvArgs& args, std::int32_t* minus_pixels,
                  const sdk::Threads& threads) const;
  void sum_windows(const std::int32_t* minus_pixels, std::int32_t* minus_windows,
                   const sdk::Threads& threads) const;

  ConvShape shape_;
  bool x_signed_;
  bool x_channels_first_;
  Isa isa_;
  ConvU8 conv_;
};

}  // namespace backplane::cpu

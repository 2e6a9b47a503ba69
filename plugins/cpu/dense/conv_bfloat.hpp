// Convolution whose images and weights are rounded to bfloat16, and whose sums are floats.
#pragma once

#include "plugins/cpu/dense/pair_image.hpp"

namespace backplane::cpu {

/// Such a convolution made ready, for where has_bfloat_products(): a direct one of pairs of channels, after a rounded
/// copy of the image where more than one position of the kernel reads a pixel. Immutable.
class BFloatConv {
 public:
  static bool applies(const ConvShape& shape) { return PairImage::applies(shape); }
  /// Its speed by that of a direct convolution of floats, as those of resnet50 and vgg19 were measured; with AMX as 3x3 kernels
  /// over 64 and 128 channels were, at edges of images.
  static double rate(Isa isa) { return isa == Isa::kAmx ? 4.5 : 2.4; }

  BFloatConv(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads);

  int64_t packed_floats() const { return direct_.packed_floats(); }
  uint64_t workspace_bytes() const;
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  /// `args.x_channels_first` must be false.
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  bool single_block() const { return direct_.single_block(); }

 private:
  ConvShape shape_;
  bool rounds_rows_;  // as the product reads them; there is no copy of the image
  PairImage image_;   // otherwise
  DirectConv direct_;
};

}  // namespace backplane::cpu

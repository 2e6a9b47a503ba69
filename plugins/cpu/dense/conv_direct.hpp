// Convolution as an indirect matrix product on channels-last images: a row of the product is an output
// pixel, given by one pointer for each kernel position.
#pragma once

#include <array>
#include <cstdint>

#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/dense/layout_copy.hpp"
#include "plugins/cpu/dense/product.hpp"

namespace backplane::cpu {

/// What every convolution of the engine is told.
struct ConvShape {
  Window window;
  int64_t batch = 1;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t groups = 1;
};

/// The shape for x [batch, channels, spatial ...], or channels last, and W [output channels, channels of a group,
/// kernel ...]. Throws sdk::Error when they do not fit each other.
ConvShape conv_shape(const WindowAttributes& attributes, int64_t groups, sdk::DimsView x,
                     sdk::DimsView w, bool channels_first);
/// The result's dims: as many as x has.
sdk::Dims output_dims(const ConvShape& shape, std::size_t rank, bool channels_first);

/// Packs weights [out_channels, in_channels / groups, kernel ...], times one factor per output channel where `scales`
/// is given, for a product of this convolution.
void pack_filters(const Product& product, const ConvShape& shape, const float* weights,
                  const float* scales, float* packed, const sdk::Threads& threads);

/// The memory of one convolution. Nothing is owned.
struct ConvArgs {
  const float* x = nullptr;
  ImageStrides x_strides;
  bool x_channels_first = false;  // a dense [batch, channels, spatial ...] instead
  const float* packed = nullptr;
  const float* bias = nullptr;      // null: none
  const float* residual = nullptr;  // null: none; strides like a dense output's
  float* y = nullptr;
  ImageStrides y_strides;
};

/// What the images and weights of a direct convolution are.
enum class ConvOperands {
  kFloats,
  kPairs,    // two numbers of bfloat16 where a float would be: `in_channels` counts these pairs
  kRounded,  // weights as pairs, images as floats, which are rounded on the way; a kernel of one pixel and one group
};

/// A direct convolution made ready. Immutable.
class DirectConv {
 public:
  DirectConv(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads,
             ConvOperands operands = ConvOperands::kFloats);

  const Product& product() const { return product_; }
  int64_t packed_floats() const { return product_.packed_floats(); }
  uint64_t workspace_bytes() const;
  /// As pack_filters(); of floats.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  /// Whether a few input channels are read together with their neighbours along the width.
  bool merged() const { return merged_; }
  /// Whether sums stay in registers until they are finished.
  bool single_block() const { return product_.single_block(); }

 private:
  void run_indirect(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const;
  void run_merged(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const;
  template <class Fill>
  void run_product(const ConvArgs& args, const float* zeros, char* scratch,
                   const sdk::Threads& threads, const Fill& fill) const;

  ConvShape shape_;
  Isa isa_;
  bool merged_;
  std::array<int64_t, 3> copy_{};  // merged: extents of the padded copy
  Product product_;
};

}  // namespace backplane::cpu

// Transposed convolution of images as matrix products: one for each residue of the output position
// modulo the strides, since pixels of one residue are reached by the same kernel positions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/conv_rows.hpp"
#include "plugins/cpu/dense/conv_spread.hpp"
#include "plugins/cpu/dense/depthwise_transposed.hpp"
#include "plugins/cpu/dense/pair_image.hpp"

namespace backplane::cpu {

/// The attributes of ConvTranspose as a node gives them.
struct TransposedAttributes {
  std::vector<int64_t> kernel_shape, strides, dilations, pads, output_padding, output_shape;
  std::string auto_pad = "NOTSET";

  explicit TransposedAttributes(const sdk::Node& node);
  /// For spatial dims `in` and a kernel of `kernel`. In the result element o of an output axis gets input
  /// element i through kernel position k where o = i * stride + k * dilation - pad_begin. Throws sdk::Error
  /// when the attributes do not fit.
  Window resolve(sdk::DimsView in, sdk::DimsView kernel) const;

 private:
  void resolve_output(std::size_t axis, std::size_t axes, Window& window) const;
};

/// A transposed convolution made ready. Immutable.
class TransposedConv {
 public:
  /// `shape.window` as TransposedAttributes::resolve makes it.
  /// `rounds`: images and weights to bfloat16, where has_bfloat_products() and PairImage::applies().
  TransposedConv(const ConvShape& shape, const Activation& activation, bool rounds, Isa isa,
                 unsigned threads);

  /// Floats of the packed weights; they depend on W's dims, strides, dilations and groups alone.
  int64_t packed_floats() const { return packed_floats_; }
  /// Floats that `pack` needs beside its result.
  int64_t pack_floats() const { return pack_floats_; }
  /// Packs weights [in_channels, out_channels / groups, kernel ...], times one factor per output channel
  /// where `scales` is given.
  void pack(const float* weights, const float* scales, float* packed, float* beside,
            const sdk::Threads& threads) const;
  uint64_t workspace_bytes() const;
  /// On x and y that are channels last, without a residual.
  void run(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const;

 private:
  using Extents = std::array<int64_t, 3>;
  /// Kernel positions whose offsets have one remainder modulo the strides.
  struct Class {
    std::array<std::vector<int64_t>, 3> positions;
    int64_t packed_offset = 0;
    Product product;  // of one row: packs for those of all phases

    int64_t taps() const {
      return static_cast<int64_t>(positions[0].size() * positions[1].size() * positions[2].size());
    }
  };
  /// Output pixels first, first + stride, ... along each axis.
  struct Phase {
    Extents first{};
    Extents count{};
    std::size_t class_index = 0;
    Product product;
  };
  Class class_of(const Extents& remainder) const;
  void add_phase(const Extents& first, const Activation& activation, Isa isa, unsigned threads);
  void fill(const Phase& phase, const RowSource<float>& x, const float* zeros, const float** table,
            int64_t pitch, int64_t row, int64_t rows) const;

  ProductShape product_shape(int64_t rows, const Class& positions) const;
  /// Copies what the positions of a class have of a group's weights, `floats` each, one behind the other.
  void copy_taps(const Class& one, const float* from, int64_t floats, float* to) const;

  ConvShape shape_;
  bool rounds_;
  // Either does it all, where there is one.
  std::optional<DepthwiseTransposed> depthwise_;
  std::optional<SpreadConv> spread_;
  PairImage image_;  // where it rounds
  std::vector<Class> classes_;
  std::vector<Phase> phases_;
  int64_t packed_floats_ = 0;
  int64_t pack_floats_ = 0;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace backplane::cpu

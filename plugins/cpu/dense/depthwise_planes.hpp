// Depthwise convolution between images that are channels first: some channels at a time, and so many lines that a cache holds
// them, change their order, are convolved and change it back.
#pragma once

#include <array>

#include "plugins/cpu/dense/sliding.hpp"

namespace backplane::cpu {

/// Made ready. Immutable. Blocks of channels depend on the weights' dims alone.
class DepthwisePlanes {
 public:
  /// Whether it is faster than the change of whole images.
  static bool pays(const ConvShape& shape);
  DepthwisePlanes(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads);

  int64_t packed_floats() const;
  uint64_t workspace_bytes() const { return scratch_bytes() * threads_; }
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  /// x, y and the residual are dense and channels first.
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;

 private:
  // The last block has the channels that are left over, too.
  static constexpr int64_t kBlock = 16;

  int64_t channels_of(int64_t block) const {
    return block + 1 < blocks_ ? kBlock : shape_.out_channels - block * kBlock;
  }
  const DepthwiseConv& conv_of(int64_t block) const { return block + 1 < blocks_ ? conv_ : last_; }
  int64_t lines_in() const;
  uint64_t scratch_bytes() const;
  void run_item(const ConvArgs& args, int64_t image, int64_t block, int64_t line,
                float* scratch) const;
  /// Lines [begin, end) of some channels of an image, to channels last and back.
  void gather(const float* planes, const std::array<int64_t, 3>& extents, int64_t begin,
              int64_t end, int64_t channels, float* to) const;

  ConvShape shape_;
  Isa isa_;
  unsigned threads_;
  int64_t blocks_;
  DepthwiseConv conv_, last_;
  int64_t lines_;  // of the output that an item makes
};

}  // namespace backplane::cpu

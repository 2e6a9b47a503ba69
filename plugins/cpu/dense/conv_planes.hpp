// Convolution on images that are channels first at both ends, of few input channels in a group: vectors run along the
// lines, so that neither x nor y changes its order.
#pragma once

#include <vector>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/plane_kernels.hpp"

namespace backplane::cpu {

/// Such a convolution of a signal or an image made ready. Immutable.
///
/// Work is cut into items: so many lines of an image, pixels of a line and filters. Where windows move by one pixel and lie
/// inside of the image along the width, lines are read in place; otherwise an item copies what it reads, with its padding,
/// and lets the pixels that one position of the kernel reads lie one behind the other.
class PlanesConv {
 public:
  /// Whether it is faster than the others with their copies.
  static bool pays(const ConvShape& shape, Isa isa);
  PlanesConv(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads);

  int64_t packed_floats() const {
    return shape_.out_channels * (shape_.in_channels / shape_.groups) * shape_.window.taps();
  }
  uint64_t workspace_bytes() const { return scratch_bytes() * threads_; }
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  /// x and y are dense and channels first.
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;

 private:
  struct Item {
    int64_t image, line_begin, line_end, pixel_begin, pixel_end, block_begin, block_end;
  };

  uint64_t scratch_bytes() const;
  void find_residues();
  void cut_items();
  template <class Place>
  std::vector<int64_t> offsets(const Place& place) const;
  void find_offsets();
  Item item(int64_t index) const;
  bool in_place(const Item& item) const;
  /// Filters of a group that come before block `block` of it.
  int64_t filters_before(int64_t block) const { return filters_ * block / blocks_; }
  void run_item(const ConvArgs& args, const Item& item, float* scratch) const;
  void run_block(const ConvArgs& args, const Item& item, int64_t block, bool copied,
                 const float* x) const;
  void copy_item(const float* x, const Item& item, float* scratch) const;
  void part_residues(const float* from, int64_t count, float* to) const;

  ConvShape shape_;
  Activation activation_;
  Isa isa_;
  unsigned threads_;
  const PlaneKernels* kernels_;
  const ActivationKernels* activations_;
  int64_t depth_;    // channels of a group
  int64_t filters_;  // of a group
  int64_t blocks_;   // of these filters
  std::vector<int64_t>
      residues_;  // of the pixels that a window reads, by the stride along the width
  std::vector<int64_t> residue_places_;  // of each position of the kernel along the width
  // Of an item.
  int64_t lines_ = 1, pixels_ = 1, item_blocks_ = 1;
  // Items along each axis.
  int64_t bands_ = 1, parts_ = 1, block_items_ = 1;
  // Of a copy: [residues, channels, lines, pixels of one residue].
  int64_t run_pitch_ = 0, copied_lines_ = 0, residue_pitch_ = 0;
  std::vector<int64_t> offsets_in_place_, offsets_in_copy_;
};

}  // namespace backplane::cpu

// 3x3 convolution of stride 1 by Winograd's F(4x4, 3x3): 4 times fewer multiplications than directly.
#pragma once

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/winograd_transform.hpp"

namespace backplane::cpu {

/// A convolution by transforms made ready. Immutable.
class WinogradConv {
 public:
  /// Whether the method applies and is expected to be faster than a direct one whose products are `direct_rate` times
  /// as fast as those of floats.
  static bool pays(const ConvShape& shape, double direct_rate, Isa isa, unsigned threads);
  /// Whether the method applies at all.
  static bool applies(const ConvShape& shape);

  WinogradConv(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads);

  int64_t packed_floats() const { return kWinogradPoints * point_.packed_floats(); }
  uint64_t workspace_bytes() const;
  /// As DirectConv::pack.
  void pack(const float* weights, const float* scales, float* packed,
            const sdk::Threads& threads) const;
  /// `args.x_channels_first` must be false.
  void run(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;

 private:
  /// Where a worker, or all workers together, keep a block of tiles between the steps.
  struct Scratch {
    float* in;   // [point][tile][in_channels]
    float* out;  // [point][tile][padded out_channels]
    char* product;
  };

  /// Neighbouring filters of one input channel.
  struct Filters {
    int64_t first;
    int64_t count;
    int64_t channel;
  };

  void gather_filters(const float* weights, const float* scales, const Filters& filters,
                      float (&w)[9][kWinogradFilters]) const;
  void pack_filters(const float* weights, const float* scales, const Panels::Panel& panel,
                    float* packed) const;
  uint64_t block_bytes() const;
  Scratch scratch_at(void* workspace, unsigned worker) const;
  void transform_inputs(const ConvArgs& args, const Scratch& scratch, int64_t tile, int64_t begin,
                        int64_t end) const;
  void multiply(const ConvArgs& args, const Scratch& scratch, int64_t tiles, int64_t point,
                unsigned worker, const sdk::Threads& threads) const;
  void transform_outputs(const ConvArgs& args, const Scratch& scratch, int64_t tile, int64_t begin,
                         int64_t end) const;
  void run_blocks(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;
  void run_steps(const ConvArgs& args, void* workspace, const sdk::Threads& threads) const;

  ConvShape shape_;
  Activation activation_;
  const WinogradKernels* kernels_;
  const ActivationKernels* activations_;
  unsigned threads_;
  int64_t tiles_y_;
  int64_t tiles_x_;
  int64_t tiles_;
  int64_t block_;      // tiles worked on at a time
  bool whole_blocks_;  // threads take whole blocks; otherwise they share every step of one
  Product point_;      // the matrix product of one of the 36 points, on one thread
};

}  // namespace backplane::cpu

// Transposed convolution to a few channels, which do not fill a vector: one product gives what each input pixel adds to the
// output pixels that it reaches, all kernel positions side by side; the output is the sum of these.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/product.hpp"

namespace backplane::cpu {

/// Immutable after construction. Sums go over input pixels in their order, however many threads there are.
class SpreadConv {
 public:
  /// Judges by the weights' dims, dilations and groups alone.
  static bool pays(const ConvShape& shape, Isa isa);
  SpreadConv() = default;
  SpreadConv(const ConvShape& shape, const Activation& activation, Isa isa, unsigned threads);

  std::int64_t packed_floats() const { return product_.packed_floats(); }
  std::int64_t pack_floats() const { return shape_.in_channels * pixel_floats(); }
  /// As TransposedConv's.
  void pack(const float* weights, const float* scales, float* packed, float* beside,
            const sdk::Threads& threads) const;
  std::uint64_t workspace_bytes() const;
  void run(const ConvArgs& args, char* workspace, const sdk::Threads& threads) const;

 private:
  /// Pixels [begin, end) of an image, whose products are in memory together.
  struct Part {
    std::int64_t image, begin, end;
    const float* products;
  };
  std::int64_t pixel_floats() const { return shape_.window.taps() * shape_.out_channels; }
  float* line_of(const ConvArgs& args, std::int64_t line) const;
  void add_line(const ConvArgs& args, const Part& part, std::int64_t line) const;
  void add_pixels(const Part& part, std::int64_t in_line, std::int64_t tap, float* y,
                  std::int64_t y_step) const;

  ConvShape shape_;
  Activation activation_;
  const ActivationKernels* activations_ = nullptr;
  std::int64_t part_pixels_ = 1;
  Product product_;
};

}  // namespace backplane::cpu

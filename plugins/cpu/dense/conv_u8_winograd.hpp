// 3x3 convolution of bytes of stride 1 by Winograd's F(2x2, 3x3): 2.25 times fewer multiplications than directly, and
// the same results to the bit.
#pragma once

#include <cstdint>

#include "plugins/cpu/dense/column_table_u8.hpp"
#include "plugins/cpu/dense/conv_direct.hpp"
#include "plugins/cpu/dense/conv_rows.hpp"
#include "plugins/cpu/dense/winograd_u8.hpp"

namespace backplane::cpu {

/// The memory of such a convolution, whose image is channels last. Nothing is owned.
struct WinogradArgsU8 {
  const std::uint8_t* x = nullptr;  // dense
  bool x_signed = false;
  std::uint8_t zero = 0;  // the byte of x that stands for the number 0
  const void* packed = nullptr;
  FinishU8 finish;
  void* y = nullptr;  // dense, channels last
};

/// A convolution by transforms made ready. Immutable.
class WinogradU8 {
 public:
  /// Whether the method applies and is expected to be faster than products of windows.
  static bool pays(const ConvShape& shape, Isa isa);

  WinogradU8() = default;
  WinogradU8(const ConvShape& shape, Isa isa, unsigned threads);

  std::uint64_t packed_bytes() const;
  std::uint64_t workspace_bytes() const;
  /// weight(filter, channel, tap) is a signed byte; scale and shift [filters] are those of sums, x_zero of x as unsigned
  /// bytes.
  template <class Weight>
  void pack(const float* scale, const float* shift, std::int32_t x_zero, void* packed,
            const sdk::Threads& threads, const Weight& weight) const {
    threads.parallel_for(static_cast<std::uint64_t>(panel_count()), 1,
                         [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                           for (auto panel = static_cast<std::int64_t>(begin);
                                panel < static_cast<std::int64_t>(end); ++panel) {
                             for (int j = 0; j < kernels_->panel_columns; ++j) {
                               pack_filter(panel, j, static_cast<char*>(packed), weight, scale,
                                           shift, x_zero);
                             }
                           }
                         });
  }
  void run(const WinogradArgsU8& args, void* workspace, const sdk::Threads& threads) const;

 private:
  /// What a worker keeps of a block of tiles.
  struct Scratch {
    const std::uint8_t** table;  // [point][tile]
    std::int16_t* in;            // [point][tile][channels]
    std::int32_t* sums;          // [point][tile][columns of a panel]
  };

  static bool applies(const ConvShape& shape, Isa isa);
  std::int64_t panel_count() const {
    return ceil_div(shape_.out_channels, std::int64_t{kernels_->panel_columns});
  }
  std::int64_t panel_numbers() const {
    return kWinogradPointsU8 * shape_.in_channels * kernels_->panel_columns;
  }
  std::uint64_t weight_bytes() const {
    return static_cast<std::uint64_t>(panel_count() * panel_numbers()) * 2;
  }
  std::int64_t lanes() const { return panel_count() * kernels_->panel_columns; }
  ColumnTableU8 column_table(void* packed) const {
    return ColumnTableU8::behind(packed, weight_bytes(), lanes());
  }
  Scratch scratch_at(char* workspace, unsigned worker) const;
  std::uint64_t scratch_bytes() const;
  void transform_inputs(const WinogradArgsU8& args, const std::uint8_t* zeros,
                        const Scratch& scratch, std::int64_t tile, std::int64_t count) const;
  void multiply(const WinogradArgsU8& args, const Scratch& scratch, std::int64_t count,
                std::int64_t panel) const;
  void transform_outputs(const WinogradArgsU8& args, const Scratch& scratch, std::int64_t tile,
                         std::int64_t count, std::int64_t panel) const;

  template <class Weight>
  void pack_filter(std::int64_t panel, int column, char* packed, const Weight& weight,
                   const float* scale, const float* shift, std::int32_t x_zero) const {
    const int width = kernels_->panel_columns;
    const int lane = kernels_->lane(column, width);
    const std::int64_t filter = panel * width + column;
    const bool exists = filter < shape_.out_channels;
    auto* numbers = reinterpret_cast<std::int16_t*>(packed) + panel * panel_numbers();
    std::int32_t sum = 0;
    for (std::int64_t c = 0; c < shape_.in_channels; ++c) {
      std::int8_t w[9] = {};
      for (std::int64_t tap = 0; exists && tap < 9; ++tap) {
        w[tap] = weight(filter, c, tap);
        sum += w[tap];
      }
      std::int16_t u[kWinogradPointsU8];
      winograd_filter_u8(w, u);
      const std::int64_t at =
          c / 4 * 4 * width + kernels_->place(lane, static_cast<int>(c % 4), width);
      for (std::int64_t p = 0; p < kWinogradPointsU8; ++p) {
        numbers[p * shape_.in_channels * width + at] = u[p];
      }
    }
    // Of sums that are four times as large. A scale's product with four is exact, and so the results are those of
    // the sums themselves.
    column_table(packed).set(panel * width + lane, -4 * x_zero * sum,
                             exists ? scale[filter] / 4 : 0.0F, exists ? shift[filter] : 0.0F);
  }

  ConvShape shape_;
  Window tile_window_;  // over the image: a position is a tile
  const KernelsU8* kernels_ = nullptr;
  const WinogradKernelsU8* transforms_ = nullptr;
  unsigned threads_ = 1;
  std::int64_t tiles_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t block_ = 0;        // tiles of the largest block
  std::int64_t panel_items_ = 1;  // in which threads share the panels of a block
};

}  // namespace backplane::cpu

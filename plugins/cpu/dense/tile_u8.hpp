// The inner loops of products of bytes: unsigned or signed rows, signed weights, sums in 32 bits that are
// finished (scaled, shifted, rounded, clamped) before they leave the registers.
//
// Rows are read four numbers at a time ("quads"), as they lie in memory. Their zero point z is not taken
// off: sum (x - z) w = sum x w - z sum w, and the second sum is known when weights are packed (`start`).
// No intermediate saturates: sums are exact as long as they fit 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// What becomes of a sum: y = clamp(round(sum * scale + shift) + zero, least, most), to nearest even, or
/// where `floats` is set y = clamp(sum * scale + shift, lo, hi), or where `sums` is set the sum itself.
struct FinishU8 {
  bool floats = false;
  bool sums = false;
  float lo = 0, hi = 0;
  // Of y as an unsigned byte; `flip` (0 or 0x80) makes it the byte that is stored.
  std::int32_t zero = 0;
  std::uint8_t least = 0, most = 255, flip = 0;

  std::int64_t element_bytes() const { return floats || sums ? 4 : 1; }
};

/// The numbers of each column, in the order of the lanes.
struct ColumnsU8 {
  const std::int32_t* start;
  const float* scale;
  const float* shift;

  /// Those from a lane on.
  ColumnsU8 from(std::int64_t lane) const { return {start + lane, scale + lane, shift + lane}; }
};

/// One call of a tile kernel: sum[i][j] = start[j] + sum over taps t and quads q of the products of
/// rows[t * row_pitch + i][offset + 4q ...] and the weights of column j. Tiles of WideKernelsU8 read `wide` instead,
/// all taps as one.
struct TileU8Args {
  const std::uint8_t* const* rows;
  std::ptrdiff_t row_pitch;
  std::ptrdiff_t offset;       // bytes
  const std::int16_t* wide;    // row i is at wide + i * wide_stride
  std::ptrdiff_t wide_stride;  // numbers
  std::int64_t taps;
  std::int64_t quads;  // of a tap
  const void* panel;
  std::int16_t* kept;  // see PanelForm
  ColumnsU8 columns;
  const FinishU8* finish;
  void* out;                  // bytes, floats or int32
  std::ptrdiff_t out_stride;  // elements
  std::int64_t width;         // columns of the panel that exist
  std::int64_t more_tiles;  // of WideKernelsU8::tile: that follow this one's rows, in the same call
};

/// A block of rows that follow each other in memory, by a panel.
struct LinesU8Args {
  const std::uint8_t* lines;  // unsigned bytes; row i is at lines + i * stride
  std::ptrdiff_t stride;
  std::int64_t rows;
  std::int64_t
      bytes;  // of a row: a multiple of KernelsU8::line_bytes, with anything where weights are zeros
  const void* panel;
  int columns_of_panel;  // that it has room for
  ColumnsU8 columns;
  const FinishU8* finish;
  void* out;                  // bytes, floats or int32
  std::ptrdiff_t out_stride;  // elements
  std::int64_t width;         // columns that exist
};

/// Pixels of a convolution that keeps channels apart: sum[p][c] = start[c] + sum over taps t of
/// rows[t * row_pitch + p][c] * weight[t][c].
struct DepthwiseU8Args {
  const std::uint8_t* const* rows;
  std::ptrdiff_t row_pitch;
  std::int64_t taps;
  std::int64_t pixels;
  const void* weights;
  ColumnsU8 columns;
  const FinishU8* finish;
  void* out;  // dense
  std::int64_t channels;
};

constexpr int kMaxRowsU8 = 8;
/// Taps of DepthwiseU8Args at most.
constexpr std::int64_t kMostTapsU8 = 128;

/// Two tensors of bytes, of one scale each, added.
struct AddU8 {
  const std::uint8_t* a;
  const std::uint8_t* b;
  std::uint8_t* y;
  float a_scale, b_scale;
  std::int32_t a_zero, b_zero;  // after the flips
  std::uint8_t a_flip, b_flip;
  FinishU8 finish;
};

/// Columns of a matrix of weights [depth][...] to be packed: `width` bytes of each row, after `flip`.
struct PackRowsU8 {
  const std::uint8_t* weights;
  std::ptrdiff_t stride;
  std::int64_t depth;
  std::int64_t width;
  std::uint8_t flip;
  void* panel;
  std::int32_t* sums;  // of each column
};

/// What a tile reads as weights: bytes, bytes that it leaves as numbers of 16 bits in `kept` for the tiles below it, or
/// such numbers.
enum class PanelForm { kBytes, kBytesKept, kWide };

/// Rows of a convolution of few channels. Row i is, for each tap t, `pixels` pixels of four bytes at
/// table[t * count + i], of which the first `channels` bytes are its numbers, one behind the other.
struct PixelRowsU8 {
  const std::uint8_t* const* table;
  std::int64_t count, taps, pixels, channels;
  std::ptrdiff_t stride;  // numbers of 16 bits from row to row
};
/// So many bytes behind a row are read, and so many numbers behind it written, before the next one is.
constexpr std::int64_t kBehindRowU8 = 16;

/// Products of pairs of 16-bit numbers, where the processor has none of bytes.
struct WideKernelsU8 {
  using Tile = void (*)(const TileU8Args& args);
  /// What tiles read as rows: y[i] = x[i], of signed bytes x[i] + 128.
  void (*widen)(const std::uint8_t* x, std::int64_t n, bool x_signed, std::int16_t* y);
  /// Likewise of pixels of four bytes.
  void (*widen_pixels)(const PixelRowsU8& rows, bool x_signed, std::int16_t* y);
  /// Rows 1 to KernelsU8::max_rows, of a panel of KernelsU8::columns_for columns.
  Tile (*tile)(int rows, int columns, PanelForm form);
  /// The products' sums alone, int32 [rows][panel_columns] in the order of the lanes, of a panel of 16-bit numbers.
  Tile (*raw_tile)(int rows);
};

/// Kernels of one instruction set, and the form that they read weights in. A panel has `panel_columns`
/// columns, the last one of a matrix maybe fewer: as many as `columns_for` says.
struct KernelsU8 {
  using Tile = void (*)(const TileU8Args& args);
  int panel_columns;
  /// The columns that a panel has room for when `width` of them exist.
  int (*columns_for)(std::int64_t width);
  /// Rows of the tallest tile of a panel with `columns` columns.
  int (*max_rows)(int columns);
  /// Where the numbers of column `column` of a panel lie.
  int (*lane)(int column, int columns);
  /// The place of weight k (0 to 3) of a quad, in weights from the quad's first one on.
  int (*place)(int lane, int k, int columns);
  /// Packs a panel that has room for panel_columns of weights that lie row after row; null: there is no faster
  /// way than byte by byte.
  void (*pack_rows)(const PackRowsU8& args);
  /// Rows 1 to max_rows(columns). `x_signed`: bytes of rows are signed ones; `start` is for those as they
  /// are, plus 128.
  Tile (*tile)(int rows, int columns, bool x_signed);
  /// Where `tile` is null.
  const WideKernelsU8* wide;
  /// Channels are padded to a multiple of it.
  int depthwise_channels;
  std::int64_t (*depthwise_bytes)(std::int64_t taps, std::int64_t channels);
  /// `weights` [channels][taps].
  void (*pack_depthwise)(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                         void* packed);
  int (*depthwise_lane)(int channel);
  void (*depthwise)(const DepthwiseU8Args& args, bool x_signed);
  /// y[c] = the greatest of rows[t * row_pitch][c] over the taps, at least one; signed bytes or unsigned.
  void (*greatest)(const std::uint8_t* const* rows, std::ptrdiff_t row_pitch, std::int64_t taps,
                   std::uint8_t* y, std::int64_t channels, bool is_signed);
  /// y[i] = clamp(round((a[i] - a_zero) * a_scale + (b[i] - b_zero) * b_scale) + zero); bytes of a and b after
  /// `flip` of each.
  void (*add)(const AddU8& args, std::int64_t n);
  /// Blocks of many rows; null: there are only tiles.
  void (*lines)(const LinesU8Args& args) = nullptr;
  /// The depth of panels is a multiple of it.
  std::int64_t line_bytes = 4;
  /// Splits the weights of a packed panel of so many quads, and puts their rests behind it, which takes rest_bytes; false: they are too
  /// many. Null: nothing is split.
  bool (*split)(void* panel, std::int64_t quads) = nullptr;
  std::uint64_t (*rest_bytes)(std::int64_t quads) = nullptr;
};

// Depthwise weights for instructions that multiply four bytes: units of `columns` channels, and in each, four taps by four, the
// four weights of each lane; zeros where there are no more taps or channels.
constexpr int kTapsOfQuad = 4;
struct TapUnit {
  int columns;
  int (*lane)(int column, int columns);
};
std::int64_t tap_quad_bytes(std::int64_t taps, std::int64_t channels, int columns);
void pack_tap_quads(const std::int8_t* weights, std::int64_t taps, std::int64_t channels,
                    const TapUnit& unit, void* packed);

/// The best that this processor has and `isa` allows.
const KernelsU8& kernels_u8(Isa isa);
/// Products of pairs of 16 bits, which every instruction set has.
const KernelsU8& kernels_u8_pairs(Isa isa);
/// Tells packed weights of different kernels apart.
std::string kernels_key(Isa isa);
/// With 8-bit products of AVX-512 (VNNI); nullptr where the processor or the build has none.
const KernelsU8* kernels_u8_vnni();
/// Those, and blocks of rows by AMX; nullptr likewise.
const KernelsU8* kernels_u8_amx();
/// With those of AVX-VNNI, which processors without AVX-512 have.
const KernelsU8* kernels_u8_avxvnni();
/// For products of one tap, with weights of which few are to be split; nullptr where there is no need: see tile_u8_split.cpp.
const KernelsU8* kernels_u8_split(Isa isa);

}  // namespace backplane::cpu

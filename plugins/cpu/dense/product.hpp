// The driver of all products with fp32 sums: rows given by pointers, times packed weights, over the thread pool.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cpu/dense/activation.hpp"
#include "plugins/cpu/dense/panels.hpp"
#include "plugins/cpu/dense/tile_f32.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {

/// What a product computes: for each group g, out[r][g * columns + j] = f(sum over taps t and depth k of
/// row(r, t)[g * depth + k] * weights[g][t][k][j] + bias + residual).
struct ProductShape {
  int64_t rows = 0;
  int64_t taps = 1;
  int64_t depth = 0;    // of a tap, in a group
  int64_t columns = 0;  // of a group
  int64_t groups = 1;
  bool unpacks = false;  // see ProductArgs::unpack; one tap and one group
  sdk::DataType weight_type = sdk::DataType::Float;  // or of 16 bits: as they are packed
  /// The numbers are of bfloat16, two of them where a float would be, and `depth` counts these pairs: only where
  /// has_bfloat_products().
  bool pairs = false;
  /// Of pairs: rows are so many floats, which are rounded on the way; one tap and one group. 0: rows are pairs.
  int64_t rounded_depth = 0;
};

/// Where the rows of `out` lie if not one behind the other: in lines, these in planes, and these in images.
struct OutLines {
  int64_t rows = 0;    // of a line; 0: all rows are one
  int64_t lines = 1;   // of a plane
  int64_t planes = 1;  // of an image
  int64_t line_stride = 0, plane_stride = 0, image_stride = 0;
};

/// The memory of one product. Strides count floats. Nothing is owned.
struct ProductArgs {
  const void* packed = nullptr;  // of the shape's weight_type
  /// Instead of `packed`, where the shape says so: writes steps [first, first + steps) of a panel as floats. What it
  /// writes beyond them stays within the next multiple of 8 steps; `first` is one.
  void (*unpack)(const void* from, const Panels::Panel& panel, int64_t first, int64_t steps,
                 float* to) = nullptr;
  const void* unpack_from = nullptr;
  const float* bias = nullptr;      // null: none
  const float* residual = nullptr;  // null: none
  int64_t residual_stride = 0;
  const float* zeros = nullptr;  // what rows of padding point to; null: there are none
  float* out = nullptr;
  int64_t out_stride = 0;
  OutLines out_lines;
  /// The last weights first: they may be in a cache still, where the product before read the same ones forwards.
  bool backwards = false;
};

/// A product made ready: how it is cut into blocks for the caches and into items for the threads.
/// Immutable; may run from several threads at a time with different scratch memory.
class Product {
 public:
  Product() = default;
  Product(const ProductShape& shape, const Activation& activation, Isa isa, unsigned threads);

  const ProductShape& shape() const { return shape_; }
  const Panels& panels() const { return panels_; }
  /// Numbers of the packed weights of all groups; each group's panels follow the last one's.
  int64_t packed_floats() const { return group_floats() * shape_.groups; }
  int64_t group_floats() const { return panels_.padded_columns() * shape_.taps * shape_.depth; }
  uint64_t packed_bytes() const { return static_cast<uint64_t>(packed_floats() * weight_bytes()); }
  /// Whether `out` is written once, so that it may be the residual's memory.
  bool single_block() const { return blocks_.size() == 1; }
  /// Bytes of scratch memory that a run needs, 64-byte aligned.
  uint64_t scratch_bytes() const { return (table_bytes_ + buffer_bytes_) * threads_; }

  /// Packs the weights of a group, floats, to their place in `packed`, in the form that the shape says; not of 16 bits.
  void pack(const WeightView& weights, int64_t group, float* packed,
            const sdk::Threads& threads) const;

  /// Computes rows [row_begin, row_end), numbered so in `args` too. fill(table, pitch, row, count) writes
  /// the pointers of rows [row, row + count): table[t * pitch + i] for tap t of row + i.
  template <class Fill>
  void run(const ProductArgs& args, int64_t row_begin, int64_t row_end, const sdk::Threads& threads,
           void* scratch, const Fill& fill) const {
    const int64_t row_items = row_end - row_begin < shape_.rows ? 1 : row_items_;
    const auto item = [&](uint64_t begin, uint64_t end, uint32_t worker) {
      char* own = static_cast<char*>(scratch) + worker * (table_bytes_ + buffer_bytes_);
      auto** table = reinterpret_cast<const float**>(own);
      auto* buffer = reinterpret_cast<float*>(own + table_bytes_);
      for (uint64_t n = begin; n < end; ++n) {
        const uint64_t i = args.backwards ? end - 1 - (n - begin) : n;
        const int64_t row_item = static_cast<int64_t>(i) / panel_items_;
        const int64_t panel_item = static_cast<int64_t>(i) % panel_items_;
        const int64_t first = row_begin + (row_end - row_begin) * row_item / row_items;
        const int64_t last = row_begin + (row_end - row_begin) * (row_item + 1) / row_items;
        const int64_t parts = (last - first + cache_rows_ - 1) / cache_rows_;
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t row = first + (last - first) * part / parts;
          const int64_t count = first + (last - first) * (part + 1) / parts - row;
          fill(table, count, row, count);
          run_rows(args, table, buffer, row, count, panel_item);
        }
      }
    };
    const auto items = static_cast<uint64_t>(row_items * panel_items_);
    if (items == 1) {
      item(0, 1, 0);
    } else {
      threads.parallel_for(items, 1, item);
    }
  }

 private:
  /// A part of the depth that is worked through at a time.
  struct Block {
    int64_t tap, taps, offset, depth;
  };

  int64_t weight_bytes() const { return shape_.weight_type == sdk::DataType::Float ? 4 : 2; }
  /// Whether tiles read a copy of their weights in float.
  bool has_buffer() const { return shape_.unpacks || widening_ != nullptr; }
  const TileKernels::Function* tiles_of(int vectors) const;
  void cut_depth();
  void cut_items();
  void run_rows(const ProductArgs& args, const float* const* table, float* buffer, int64_t row,
                int64_t count, int64_t panel_item) const;
  const float* const* rounded_rows(const float* const* table, float* buffer, int64_t count,
                                   const Block& block) const;
  void run_panel(const ProductArgs& args, const float* const* table, float* buffer, int64_t row,
                 int64_t count, int64_t panel, const Block& block) const;
  /// Rows of a table from `begin` on whose results lie one behind the other, from `out` on.
  struct Run {
    int64_t begin, rows;
    float* out;
    const float* residual;
  };
  void run_tiles(const TileArgs& all, const Panels::Panel& panel, const float* const* table,
                 const Run& run, const float* zeros) const;

  ProductShape shape_;
  Isa isa_ = Isa::kBaseline;
  Activation activation_;
  const TileKernels* tiles_ = nullptr;
  const HalfConversion* widening_ = nullptr;  // of weights of 16 bits that tiles do not read
  const HalfConversion* rounding_ = nullptr;  // of rows
  const ActivationKernels* activations_ = nullptr;
  Panels panels_;
  std::vector<Block> blocks_;
  int64_t cache_rows_ = 1;
  int64_t row_items_ = 1;
  int64_t panel_items_ = 1;
  uint64_t table_bytes_ = 0;
  uint64_t buffer_bytes_ =
      0;  // of a part of a panel in float, or of rounded rows behind their table
  unsigned threads_ = 1;
};

}  // namespace backplane::cpu

// The driver of products of bytes: rows given by pointers, times packed weights, over the thread pool.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/column_table_u8.hpp"
#include "plugins/cpu/dense/finish_sums.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"

namespace backplane::cpu {

/// Numbers of a row, taps and depth together, whose sum of products of bytes surely has 32 bits.
constexpr std::int64_t kMostSummedU8 = 65'000;

/// For each group g, y[r][g * columns + j] = finish(sum over taps t and depth k of
/// (row(r, t)[g * depth + k] - x_zero) * weight(g, t, k, j)).
struct ShapeU8 {
  std::int64_t rows = 0;
  std::int64_t taps = 1;
  std::int64_t depth = 0;  // of a tap, in a group: a multiple of 4, where rows are not widened
  std::int64_t columns = 0;
  std::int64_t groups = 1;
};

/// The numbers of all columns of all groups: see FinishU8. Where sums are wanted there are none.
struct ColumnSourceU8 {
  const float* scale = nullptr;
  const float* shift = nullptr;
  std::int32_t x_zero = 0;  // of unsigned rows; of signed ones plus 128
};

/// The memory of one product. Nothing is owned.
struct ArgsU8 {
  const void* packed = nullptr;
  FinishU8 finish;
  bool x_signed = false;
  // Rows of one tap and group that lie one behind the other; null: those of run's `fill`.
  const std::uint8_t* x = nullptr;
  // Not 0: taps are pixels of four bytes with so many channels, and kBehindRowU8 bytes behind them may be read.
  std::int64_t pixel_channels = 0;
  void* out = nullptr;
  std::int64_t out_stride = 0;  // elements
  // What is done to sums (finish.sums) while they are in the cache; null: nothing.
  const FinishSums* after = nullptr;
};

/// Such a product made ready. Immutable; may run from several threads with different scratch memory.
class ProductU8 {
 public:
  ProductU8() = default;
  ProductU8(const ShapeU8& shape, Isa isa, unsigned threads)
      : ProductU8(shape, kernels_u8(isa), threads) {}
  ProductU8(const ShapeU8& shape, const KernelsU8& kernels, unsigned threads);

  const ShapeU8& shape() const { return shape_; }
  std::uint64_t packed_bytes() const {
    return group_bytes() * static_cast<std::uint64_t>(shape_.groups);
  }
  std::uint64_t scratch_bytes() const { return worker_bytes() * threads_; }

  /// weight(group, tap, depth, column) is a signed byte. Returns whether the kernels can have these weights, as pack_rows does:
  /// those of kernels_u8() can have all.
  template <class Weight>
  bool pack(const ColumnSourceU8& columns, void* packed, const sdk::Threads& threads,
            const Weight& weight) const {
    const std::int64_t panels = panel_count();
    return pack_all(shape_.groups * panels, threads, [&](std::int64_t i) {
      return pack_panel(columns, i / panels, i % panels, static_cast<char*>(packed), weight);
    });
  }

  /// Weights of one tap and group that lie row after row, `stride` bytes apart, each after `flip`; `sums` gets
  /// those of the columns. Of `depth` rows at most; the rest are zeros.
  bool pack_rows(const std::uint8_t* weights, std::int64_t stride, std::int64_t depth,
                 std::uint8_t flip, std::int32_t* sums, void* packed,
                 const sdk::Threads& threads) const;

  /// fill(table, pitch, row, count) writes the pointers of rows [row, row + count): table[t * pitch + i] for
  /// tap t of row + i.
  template <class Fill>
  void run(const ArgsU8& args, const sdk::Threads& threads, void* scratch, const Fill& fill) const {
    const auto item = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
      char* own = static_cast<char*>(scratch) + worker * worker_bytes();
      auto** table = reinterpret_cast<const std::uint8_t**>(own);
      char* const rows = own + table_bytes_;
      const Scratch memory{table, reinterpret_cast<std::int16_t*>(rows),
                           reinterpret_cast<std::uint8_t*>(rows),
                           reinterpret_cast<std::int16_t*>(rows + wide_bytes_)};
      for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i) {
        const std::int64_t block = i / panel_items_;
        const std::int64_t row = shape_.rows * block / blocks_;
        const std::int64_t count = shape_.rows * (block + 1) / blocks_ - row;
        if (args.x == nullptr || kernels_->wide == nullptr) fill(table, count, row, count);
        run_rows(args, memory, row, count, i % panel_items_);
      }
    };
    const auto items = static_cast<std::uint64_t>(blocks_ * panel_items_);
    if (items == 1) {
      item(0, 1, 0);
    } else if (items > 1) {
      threads.parallel_for(items, 1, item);
    }
  }

 private:
  /// What a worker keeps of a block of rows.
  struct Scratch {
    const std::uint8_t* const* table;
    std::int16_t* wide;   // the rows
    std::uint8_t* lines;  // the rows, where the kernels read such
    std::int16_t* kept;   // a panel
  };
  struct Place {
    std::int64_t width;   // columns that exist
    int columns;          // that the panel has room for
    std::uint64_t panel;  // bytes from the group's first
    std::int64_t lanes;   // lanes before it
  };

  std::int64_t panel_count() const {
    return (shape_.columns + kernels_->panel_columns - 1) / kernels_->panel_columns;
  }
  /// Of a column, in a panel.
  std::int64_t quads() const {
    return ceil_div(shape_.taps * shape_.depth, kernels_->line_bytes) * kernels_->line_bytes / 4;
  }
  Place place(std::int64_t panel) const;
  std::int64_t lanes() const;
  /// pack_one(i) for `count` panels, until the kernels cannot have one: then false.
  template <class PackOne>
  static bool pack_all(std::int64_t count, const sdk::Threads& threads, const PackOne& pack_one) {
    std::atomic<bool> taken = true;
    threads.parallel_for(static_cast<std::uint64_t>(count), 1,
                         [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                           for (std::uint64_t i = begin; i < end && taken; ++i) {
                             if (!pack_one(static_cast<std::int64_t>(i))) taken = false;
                           }
                         });
    return taken;
  }
  /// Of a panel whose weights are packed.
  bool split(char* panel) const {
    return kernels_->split == nullptr || kernels_->split(panel, quads());
  }
  std::uint64_t rest_bytes() const {
    return kernels_->rest_bytes == nullptr ? 0 : kernels_->rest_bytes(quads());
  }
  std::uint64_t weight_bytes() const {
    return static_cast<std::uint64_t>(lanes() * quads() * 4) +
           rest_bytes() * static_cast<std::uint64_t>(panel_count());
  }
  std::uint64_t group_bytes() const;
  /// Rows of a block, as numbers of 16 bits: those of all taps of a group follow each other.
  void widen_rows(const ArgsU8& args, const Scratch& memory, std::int64_t row, std::int64_t count,
                  std::int64_t group) const;
  /// Rows of a block as lines of unsigned bytes; those of all taps of a group follow each other.
  struct Lines {
    const std::uint8_t* first = nullptr;  // null: there are none
    std::ptrdiff_t stride = 0;
  };
  Lines find_lines(const ArgsU8& args, const Scratch& memory, std::int64_t row, std::int64_t count,
                   std::int64_t group) const;
  /// Rows of a block, and a panel's columns.
  struct PanelRun {
    std::int64_t row, rows;
    std::int64_t column;
    int columns;  // that the panel has room for
  };

  void run_panel(const ArgsU8& args, const Scratch& memory, const PanelRun& run,
                 const TileU8Args& all) const;
  void run_lines(const ArgsU8& args, const Lines& lines, const PanelRun& run,
                 const TileU8Args& all) const;
  void run_rows(const ArgsU8& args, const Scratch& memory, std::int64_t row, std::int64_t count,
                std::int64_t panel_item) const;
  std::uint64_t worker_bytes() const { return table_bytes_ + wide_bytes_ + kept_bytes_; }

  template <class Weight>
  bool pack_panel(const ColumnSourceU8& source, std::int64_t group, std::int64_t panel,
                  char* packed, const Weight& weight) const {
    const Place at = place(panel);
    char* base = packed + group_bytes() * static_cast<std::uint64_t>(group);
    char* weights = base + at.panel;
    const ColumnTableU8 table = ColumnTableU8::behind(base, weight_bytes(), lanes());
    const std::int64_t first = panel * kernels_->panel_columns;
    for (int j = 0; j < at.columns; ++j) {
      const int lane = kernels_->lane(j, at.columns);
      const bool exists = j < at.width;
      std::array<int, 4> places{};
      for (int k = 0; k < 4; ++k)
        places[static_cast<std::size_t>(k)] = kernels_->place(lane, k, at.columns);
      std::int32_t sum = 0;
      char* quad = weights;
      std::int64_t tap = 0, depth = 0;
      for (std::int64_t q = 0; q < quads(); ++q, quad += 4 * at.columns) {
        for (const int to : places) {
          const std::int8_t w =
              exists && tap < shape_.taps ? weight(group, tap, depth, first + j) : std::int8_t{0};
          sum += w;
          quad[to] = static_cast<char>(w);
          if (++depth < shape_.depth) continue;
          depth = 0;
          ++tap;
        }
      }
      const std::int64_t column = group * shape_.columns + first + j;
      const bool scaled = exists && source.scale != nullptr;
      table.set(at.lanes + lane, exists ? -source.x_zero * sum : 0,
                scaled ? source.scale[column] : 0.0F, scaled ? source.shift[column] : 0.0F);
    }
    return split(weights);
  }
  ShapeU8 shape_;
  const KernelsU8* kernels_ = nullptr;
  std::int64_t blocks_ = 0;
  std::int64_t panel_items_ = 1;
  std::uint64_t table_bytes_ = 0;
  std::uint64_t wide_bytes_ = 0;
  std::uint64_t kept_bytes_ = 0;
  unsigned threads_ = 1;
};

}  // namespace backplane::cpu

#include "plugins/cpu/dense/product_nbits.hpp"

#include <algorithm>
#include <limits>

#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr std::int64_t kMostColumns = 64;  // of a panel
constexpr std::int64_t kRowPart = 16;      // rows that a thread takes at least
constexpr std::int64_t kThinLimit = 12;    // with vectors of 8 floats or fewer

ProductShape tiled_shape(std::int64_t rows, const NBitsShape& shape) {
  ProductShape product;
  product.rows = rows;
  product.depth = shape.depth;
  product.columns = shape.columns;
  product.unpacks = true;
  return product;
}

/// Parts of a workspace, one after another on cache lines.
class Parts {
 public:
  explicit Parts(void* begin) : at_(static_cast<char*>(begin)) {}
  template <class T>
  T* take(std::int64_t count) {
    T* part = reinterpret_cast<T*>(at_);
    at_ += align64(static_cast<std::uint64_t>(count) * sizeof(T));
    return part;
  }

 private:
  char* at_;
};

std::uint64_t padded_bytes(std::int64_t count, std::uint64_t each) {
  return align64(static_cast<std::uint64_t>(count) * each);
}

}  // namespace

NBitsProduct::NBitsProduct(std::int64_t rows, const NBitsShape& shape, const Activation& activation,
                           Isa isa, unsigned threads, bool rounds)
    : rows_(rows),
      thin_limit_(isa >= Isa::kAvx512 ? std::numeric_limits<std::int64_t>::max() : kThinLimit),
      activation_(activation),
      kernels_(&nbits_kernels(isa)),
      integers_(rounds ? nbits_integer_kernels(isa, shape.bits) : nullptr),
      activations_(&activation_kernels(isa)) {
  const TileKernels& tiles = tile_kernels(isa);
  layout_ = NBitsLayout(shape, tiles.lanes, tiles.panel_vectors, integers_ != nullptr);
  if (is_tiled()) product_ = Product(tiled_shape(rows, shape), activation, isa, threads);
}

const char* NBitsProduct::variant() const {
  if (integers_ != nullptr) return "integers";
  return is_tiled() ? "tiles" : "thin";
}

std::uint64_t NBitsProduct::workspace_bytes() const {
  if (is_tiled()) return product_.scratch_bytes();
  const std::int64_t numbers = part_rows() * layout_.padded_depth();
  const std::int64_t blocks = part_rows() * layout_.blocks();
  if (integers_ != nullptr) return padded_bytes(numbers, 1) + 2 * padded_bytes(blocks, 4);
  return padded_bytes(numbers, 4) + padded_bytes(blocks, 4);
}

NBitsProduct::Items NBitsProduct::items_of(std::int64_t rows, unsigned threads) const {
  const std::int64_t panels = layout_.panels().count();
  const std::int64_t wanted =
      ceil_div(4 * std::int64_t{threads}, std::max<std::int64_t>(1, panels));
  Items items;
  items.parts = std::max<std::int64_t>(1, std::min(rows / kRowPart, wanted));
  items.count = panels * items.parts;
  // A step of a row over a column: some 64 of them a nanosecond; memory gives a quarter as many weights.
  const double weights = static_cast<double>(layout_.padded_depth() * kMostColumns);
  const double share = static_cast<double>(rows) / static_cast<double>(items.parts);
  items.ns = weights * std::max(4.0, share) / 64;
  return items;
}

void NBitsProduct::finish(const NBitsArgs& args, const Panels::Panel& panel, std::int64_t row,
                          std::int64_t count, const float* sums) const {
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * layout_.panels().lanes();
  const std::int64_t columns = layout_.shape().columns;
  const float lo = activation_.lo();
  const float hi = activation_.hi();
  for (std::int64_t i = 0; i < count; ++i, sums += pitch) {
    const std::int64_t at = (row + i) * columns + panel.column;
    float* y = args.y + at;
    for (std::int64_t j = 0; j < panel.width; ++j) {
      float value = sums[j];
      if (args.bias != nullptr) value += args.bias[panel.column + j];
      if (args.residual != nullptr) value += args.residual[at + j];
      value = value < lo ? lo : value;  // keeps a NaN
      y[j] = value > hi ? hi : value;
    }
    if (!activation_.in_registers()) activations_->apply(activation_, y, columns, 1, panel.width);
  }
}

void NBitsProduct::run_thin(const NBitsArgs& args, void* workspace,
                            const sdk::Threads& threads) const {
  Parts parts(workspace);
  ThinRows rows;
  rows.x = parts.take<float>(part_rows() * layout_.padded_depth());
  rows.sums = parts.take<float>(part_rows() * layout_.blocks());
  for (std::int64_t first = 0; first < rows_; first += part_rows())
    run_thin_part(args, first, std::min(part_rows(), rows_ - first), rows, threads);
}

void NBitsProduct::run_thin_part(const NBitsArgs& args, std::int64_t first, std::int64_t rows,
                                 const ThinRows& copy, const sdk::Threads& threads) const {
  const std::int64_t depth = layout_.shape().depth;
  const auto pass = [&](std::int64_t row) {
    return ThinRows{copy.x + row * layout_.padded_depth(), copy.sums + row * layout_.blocks()};
  };
  const auto count_of = [rows](std::int64_t row) {
    return static_cast<int>(std::min<std::int64_t>(kThinRows, rows - row));
  };
  split_loop(threads, ceil_div(rows, kThinRows), 0.5 * static_cast<double>(kThinRows * depth), 1,
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin * kThinRows; row < std::min(rows, end * kThinRows);
                    row += kThinRows)
                 kernels_->spread_rows(layout_, args.a + (first + row) * depth, depth,
                                       count_of(row), pass(row));
             });
  const Items items = items_of(rows, threads.count());
  split_loop(threads, items.count, items.ns, 1, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float sums[kThinRows * kMostColumns];
    for (std::int64_t i = begin; i < end; ++i) {
      const Panels::Panel panel = layout_.panels().at(i / items.parts);
      const std::int64_t last = items.end(i, rows);
      for (std::int64_t row = items.begin(i, rows); row < last; row += kThinRows) {
        kernels_->thin(layout_, args.packed, panel, pass(row), count_of(row), sums);
        finish(args, panel, first + row, count_of(row), sums);
      }
    }
  });
}

void NBitsProduct::run_tiles(const NBitsArgs& args, void* workspace,
                             const sdk::Threads& threads) const {
  struct Weights {
    const NBitsProduct* product;
    const void* packed;
  } weights{this, args.packed};
  ProductArgs product;
  product.unpack_from = &weights;
  product.unpack = [](const void* from, const Panels::Panel& panel, std::int64_t first,
                      std::int64_t steps, float* to) {
    const auto* self = static_cast<const Weights*>(from);
    self->product->kernels_->unpack(self->product->layout_, self->packed, panel, first, steps, to);
  };
  product.bias = args.bias;
  product.residual = args.residual;
  product.residual_stride = layout_.shape().columns;
  product.out = args.y;
  product.out_stride = layout_.shape().columns;
  const std::int64_t depth = layout_.shape().depth;
  product_.run(product, 0, rows_, threads, workspace,
               [&](const float** table, std::int64_t, std::int64_t row, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) table[i] = args.a + (row + i) * depth;
               });
}

void NBitsProduct::run_integers(const NBitsArgs& args, void* workspace,
                                const sdk::Threads& threads) const {
  Parts parts(workspace);
  RoundedRows copy;
  copy.x = parts.take<std::int8_t>(part_rows() * layout_.padded_depth());
  copy.scales = parts.take<float>(part_rows() * layout_.blocks());
  copy.sums = parts.take<std::int32_t>(part_rows() * layout_.blocks());
  for (std::int64_t first = 0; first < rows_; first += part_rows())
    run_integers_part(args, first, std::min(part_rows(), rows_ - first), copy, threads);
}

void NBitsProduct::run_integers_part(const NBitsArgs& args, std::int64_t first, std::int64_t rows,
                                     const RoundedRows& copy, const sdk::Threads& threads) const {
  const std::int64_t depth = layout_.shape().depth;
  split_loop(threads, rows, 0.2 * static_cast<double>(depth), 1,
             [&](std::int64_t begin, std::int64_t end) {
               integers_->round_rows(layout_, args.a + first * depth, depth, begin, end, copy);
             });
  const Items items = items_of(rows, threads.count());
  split_loop(threads, items.count, items.ns, 1, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float sums[kThinRows * kMostColumns];
    for (std::int64_t i = begin; i < end; ++i) {
      const Panels::Panel panel = layout_.panels().at(i / items.parts);
      const std::int64_t last = items.end(i, rows);
      for (std::int64_t row = items.begin(i, rows); row < last; row += kThinRows) {
        const auto count = static_cast<int>(std::min<std::int64_t>(kThinRows, rows - row));
        integers_->thin(layout_, args.packed, panel, copy, row, count, sums);
        finish(args, panel, first + row, count, sums);
      }
    }
  });
}

void NBitsProduct::run(const NBitsArgs& args, void* workspace, const sdk::Threads& threads) const {
  if (integers_ != nullptr) return run_integers(args, workspace, threads);
  if (is_tiled()) return run_tiles(args, workspace, threads);
  run_thin(args, workspace, threads);
}

}  // namespace backplane::cpu

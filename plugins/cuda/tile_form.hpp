// How a kernel of the provider's own multiplies matrices of 16 bits by tiles, on the warpgroups of compute capability 9.0
// (kernels/tile_product.hpp): for products (tile_products.hpp) and for convolutions (tile_convolutions.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugins/cuda/module_store.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

class Device;

/// Whether a device has the units, and its driver the copies, that the kernel is made of.
bool has_tiles(const DeviceTraits& traits);

/// What is multiplied: so many matrices of rows x depth by depth x columns.
struct TileSizes {
  std::int64_t rows = 0, columns = 0, depth = 0, matrices = 1;
};

/// What stands in a kernel's text, beside the form.
struct TileText {
  sdk::DataType type = sdk::DataType::Float16;
  bool is_apart = false;    ///< the right matrix lies as [columns][depth]
  bool has_pixels = false;  ///< the left matrix is an image's pixels, each with those around it
  Epilogue epilogue = Epilogue::kNone;
  bool has_addend = false;
};

/// How a group computes: `teams` warpgroups of `blocks` times 64 rows each, of so many columns; for so many groups a multiprocessor has
/// room. So many groups, a cluster, have a part of a tile's depth each, and may then store their results directly (1), out of registers.
struct TileForm {
  std::int64_t columns = 128, teams = 2, blocks = 1, resident = 1, parts = 1, direct = 0;

  bool operator==(const TileForm& other) const = default;
  std::int64_t rows() const { return teams * blocks * kBlockRows; }
  /// Of a box of results, and of what is added to them.
  std::int64_t result_rows() const { return parts == 1 ? kBlockRows : rows() / parts; }
  std::int64_t row_tiles(const TileSizes& sizes) const;
  std::int64_t column_tiles(const TileSizes& sizes) const;
  std::int64_t tiles(const TileSizes& sizes) const;
  /// Two steps of the depth at least are every part's.
  bool takes(const TileSizes& sizes) const;
  /// Or clusters. Each has several tiles, one after another, where there are more than the device has room for; a cluster has one.
  std::int64_t groups(const TileSizes& sizes, std::int64_t multiprocessors) const;
  std::int64_t items() const { return (teams + 1) * kTeamItems; }
  std::int64_t stages() const;  ///< steps of the depth that local memory has room for
  KernelNeeds needs() const;
  std::string source(const TileText& text) const;
  /// As a word by which it is kept: its numbers, 12 bits each, and in the rest whether it is direct.
  std::uint64_t word() const;
  static TileForm of(std::uint64_t word);

  static constexpr std::int64_t kBlockRows = 64, kTeamItems = 128;

 private:
  std::int64_t made_bytes() const;
};

/// Forms that are compared with what a library offers.
inline constexpr std::size_t kMostTileForms = 5;

/// The forms that may be the fastest, the one of the least estimated time first. Behind each of the first two that are in parts comes the
/// same one stored directly: which of both is faster is not known, and where nothing is compared none of the second kind comes first.
std::vector<TileForm> tile_forms(const TileSizes& sizes, std::int64_t multiprocessors,
                                 std::size_t most);

/// The pixels of results, for `has_pixels`: where each begins in the image, and how far its taps lie apart, as [y, x].
struct TilePixels {
  std::int64_t out_pixels = 1, out_width = 1;  ///< of an image
  std::int64_t channels = 1, taps_across = 1;
  std::array<std::int64_t, 2> stride{}, begin{}, dilation{};
};

/// One matrix, for the copies.
BoxedMatrices boxed_matrix(Address address, sdk::DataType type, std::int64_t columns,
                           std::int64_t rows, std::int64_t step, std::int64_t box_rows);

/// What a launch is given, beside its form. Steps of matrices: whether there is one to the next of a and b.
struct TileOperands {
  BoxMap a, b, c, y;
  Address bias = 0;
  std::int64_t bias_step = 0;
  bool a_moves = false, b_moves = false;
  bool has_bias = false;
  bool b_is_constant = false;  ///< nothing on the stream makes it
  double factor = 1, addend_factor = 1;
  TilePixels pixels{};
  /// Of direct forms, where what is added and the results lie: what `c` and `y` are boxes of.
  BoxedMatrices added{}, made{};
};

/// A form's kernel for one size. Immutable; threads: any.
class TileKernel {
 public:
  /// Errors: as ModuleStore's.
  TileKernel(Device& device, const TileForm& form, const TileText& text, const TileSizes& sizes);
  void enqueue(KernelQueue& queue, const TileOperands& operands) const;

 private:
  std::shared_ptr<const Kernel> kernel_;
  TileForm form_;
  TileSizes sizes_;
  bool has_relu_;
  std::int64_t groups_;
};

/// For users: "warpgroups, tiles of 128 x 192".
std::string way_of(const TileForm& form);

}  // namespace backplane::cuda

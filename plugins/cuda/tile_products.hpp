// Products of many rows of 16 bits by tiles (tile_form.hpp), beside those of a library, in about their time; what is faster is measured.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "plugins/cuda/products.hpp"
#include "plugins/cuda/tile_form.hpp"

namespace backplane::cuda {

/// y[rows][columns] = activation(factor * a[rows][depth] b[depth][columns] + addend_factor * c + bias), of so many matrices. Steps are in
/// elements, from a row to the next and from a matrix to the next; no step from a matrix: all read the same one.
struct TileProduct {
  TileSizes sizes;
  TileText text;
  std::int64_t a_step = 0, a_matrix = 0, b_step = 0, b_matrix = 0, y_step = 0, y_matrix = 0;
  std::int64_t bias_matrix = 0;
  bool has_bias = false;

  /// None where the kernel does not do the form, or the device has no such units.
  static std::optional<TileProduct> of(const LibraryProduct& product, const DeviceTraits& traits);
  /// Whether it is proposed at all: not for what leaves nearly all of a device idle.
  bool is_worthwhile() const;
};

/// A form as an algorithm of the library that it stands in front of.
ProductAlgorithm to_algorithm(const TileForm& form);

/// `library`, and behind its best the forms of the kernel. `device` outlives it.
std::unique_ptr<ProductLibrary> with_tile_products(Device& device,
                                                   std::unique_ptr<ProductLibrary> library);

}  // namespace backplane::cuda

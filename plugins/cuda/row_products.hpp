// Products of few rows by a kernel of the provider's own, beside those of a library: what stands in front of the library proposes it, too.
#pragma once

#include <memory>
#include <optional>

#include "plugins/common/device_ops/row_product.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

class Device;

/// The product as the kernel has it, without factors; none where it is of other types, or of more rows.
std::optional<device_ops::RowProduct> to_row_product(const LibraryProduct& product);
/// A form of the kernel as an algorithm of the library that it stands in front of.
ProductAlgorithm to_algorithm(const device_ops::RowProduct& product,
                              const device_ops::RowProductForm& form);

/// `library`, and before what it proposes, or behind its best, the forms of the kernel, for matrices that are large enough. `device`
/// outlives it.
std::unique_ptr<ProductLibrary> with_row_products(Device& device,
                                                  std::unique_ptr<ProductLibrary> library);

}  // namespace backplane::cuda

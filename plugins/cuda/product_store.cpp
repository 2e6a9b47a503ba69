#include "plugins/cuda/product_store.hpp"

#include <cstring>
#include <string_view>
#include <type_traits>

namespace backplane::cuda {

std::uint64_t workspace_limit(const DeviceTraits& traits) {
  return std::uint64_t{traits.major >= 9 ? 32u : 8u} * 1024 * 1024;
}

ProductStore::ProductStore(ProductLibrary& library, const DeviceTraits& traits,
                           const std::string& folder)
    : library_(library),
      device_(sdk::message(traits.name, ' ', traits.major, '.', traits.minor)),
      limit_(workspace_limit(traits)),
      cache_(folder) {}

ProductStore::Counts ProductStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::optional<ProductAlgorithm> ProductStore::find(const LibraryProduct& product) {
  static_assert(std::is_trivially_copyable_v<ProductAlgorithm>);
  const std::string form = product.key();
  const std::lock_guard lock(mutex_);
  if (const auto found = chosen_.find(form); found != chosen_.end()) return found->second;
  const std::string key =
      sdk::message(library_.version(), '\n', device_, ", at most ", limit_, '\n', form);
  ProductAlgorithm algorithm;
  const std::optional<std::string> kept = cache_.read(key);
  if (kept && kept->size() == sizeof(algorithm)) {
    std::memcpy(&algorithm, kept->data(), sizeof(algorithm));
    if (library_.serves(product, algorithm) && algorithm.workspace_bytes <= limit_) {
      ++counts_.read;
      return chosen_[form] = algorithm;
    }
  }
  ++counts_.asked;
  for (const ProductAlgorithm& proposed : library_.propose(product, limit_)) {
    if (proposed.workspace_bytes > limit_) continue;
    cache_.write(key, {reinterpret_cast<const char*>(&proposed), sizeof(proposed)});
    return chosen_[form] = proposed;
  }
  return std::nullopt;
}

ProductAlgorithm ProductStore::choose(const LibraryProduct& product) {
  if (const std::optional<ProductAlgorithm> found = find(product)) return *found;
  sdk::unsupported(library_.version(), " has no algorithm for the product ", product.key());
}

}  // namespace backplane::cuda

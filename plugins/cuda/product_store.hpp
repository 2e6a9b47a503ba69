// Which algorithm computes a matrix product, chosen once for each form of it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/products.hpp"
#include "plugins/cuda/trials.hpp"

namespace backplane::cuda {

/// The most workspace that an algorithm may want on a device: 32 MiB from compute capability 9.0 on, as the
/// library's makers advise, 8 MiB before.
std::uint64_t workspace_limit(const DeviceTraits& traits);

/// The library's choices, and which of them is the fastest. On disk they are kept by library, device and form: a choice takes
/// the library up to a millisecond, and running them more.
/// Threads: any.
class ProductStore {
 public:
  /// `trials` is null where nothing is to be chosen by time.
  ProductStore(ProductLibrary& library, const DeviceTraits& traits, const std::string& folder,
               Trials* trials);

  /// None where the library has no algorithm for it, or all fail when they are run.
  std::optional<ProductAlgorithm> find(const LibraryProduct& product, Choosing choosing);
  /// Errors: BP_UNSUPPORTED where it has none.
  ProductAlgorithm choose(const LibraryProduct& product, Choosing choosing);
  ProductLibrary& library() { return library_; }

  struct Counts {
    std::uint64_t asked = 0, read = 0;
  };
  Counts counts() const;

 private:
  /// Of no algorithm where there is none, and why.
  struct Chosen {
    std::optional<ProductAlgorithm> algorithm;
    std::string why;
  };
  Chosen chosen(const LibraryProduct& product, Choosing choosing);
  std::optional<ProductAlgorithm> read(const LibraryProduct& product, const std::string& key);
  Chosen make(const LibraryProduct& product, const std::string& key, Trials* trials);

  ProductLibrary& library_;
  Trials* trials_;
  std::string device_;
  std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::string, Chosen> chosen_;  // by the product's key
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::cuda

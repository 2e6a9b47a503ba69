// Which algorithm computes a matrix product, chosen once for each form of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cuda/plan_store.hpp"
#include "plugins/cuda/products.hpp"

namespace backplane::cuda {

/// The most workspace that an algorithm may want on a device: 32 MiB from compute capability 9.0 on, as the
/// library's makers advise, 8 MiB before.
std::uint64_t workspace_limit(const DeviceTraits& traits);

/// An algorithm, as a store of plans takes it.
struct OfferedAlgorithm {
  ProductLibrary& library;
  ProductAlgorithm algorithm;
  std::uint64_t workspace_bytes() const { return algorithm.workspace_bytes; }
  std::string kept() const;
};

/// Of a, b, c, d and the bias; 0 where there is none.
std::vector<std::uint64_t> operand_bytes(const LibraryProduct& product);
/// How many sets of operands runs take turns with, so that they find none of them in the device's cache: of few rows, whose time is
/// what the matrix takes to come from memory, as it does where a model's other weights are read before it is again.
std::size_t operand_sets(const LibraryProduct& product);
/// An algorithm on such operands; it is made ready when it is tried.
TrialRun trial_run(const LibraryProduct& product, std::shared_ptr<const OfferedAlgorithm> offered);

/// A library of products, as a store of plans asks it.
class AlgorithmOffers {
 public:
  explicit AlgorithmOffers(ProductLibrary& library) : library_(library) {}
  /// For keys: what is kept was chosen among the library's and the provider's own.
  std::string version() { return library_.version() + ", few rows 1, tiles 3"; }
  static void begin(const LibraryProduct&) {}
  void make_ready(const LibraryProduct& product) { library_.make_ready(product); }
  std::string offer(const LibraryProduct& product, std::uint64_t workspace_limit,
                    const TakePlan<OfferedAlgorithm>& take);
  std::shared_ptr<const OfferedAlgorithm> restore(const LibraryProduct& product,
                                                  const std::string& kept);

 private:
  ProductLibrary& library_;
};

/// The library's choices, and which of them is the fastest: a choice takes the library up to a millisecond, and running them more.
/// Threads: any.
class ProductStore {
 public:
  /// `trials` is null where nothing is to be run.
  ProductStore(ProductLibrary& library, const DeviceTraits& traits, const std::string& folder,
               Trials* trials);

  /// None where the library has no algorithm for it, or all fail when they are run.
  std::optional<ProductAlgorithm> find(const LibraryProduct& product, Choosing choosing);
  /// Errors: BP_UNSUPPORTED where it has none.
  ProductAlgorithm choose(const LibraryProduct& product, Choosing choosing);
  ProductLibrary& library() { return library_; }

  using Algorithms = PlanStore<LibraryProduct, OfferedAlgorithm, AlgorithmOffers>;
  using Counts = Algorithms::Counts;
  Counts counts() const { return algorithms_.counts(); }

 private:
  Algorithms::Found found(const LibraryProduct& product, Choosing choosing);

  ProductLibrary& library_;
  AlgorithmOffers offers_;
  Algorithms algorithms_;
};

}  // namespace backplane::cuda

#include "plugins/cuda/product_store.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "plugins/cuda/tile_form.hpp"

namespace backplane::cuda {
namespace {

/// Of algorithms that are compared: as many as the library is asked for, and tiles'.
constexpr std::size_t kMostAlgorithms = 16 + kMostTileForms;

}  // namespace

std::string OfferedAlgorithm::kept() const {
  static_assert(std::is_trivially_copyable_v<ProductAlgorithm>);
  return {reinterpret_cast<const char*>(&algorithm), sizeof(algorithm)};
}

std::vector<std::uint64_t> operand_bytes(const LibraryProduct& product) {
  const auto bytes = [&product](const LibraryMatrix& matrix) {
    return static_cast<std::uint64_t>(
        ((product.batch - 1) * matrix.batch_step + matrix.columns * matrix.step) *
        sdk::element_bytes(matrix.type));
  };
  const std::int64_t rows = product.d.rows + (product.batch - 1) * product.bias_batch_step;
  return {
      bytes(product.a), bytes(product.b), product.has_addend ? bytes(product.c) : 0,
      bytes(product.d),
      product.has_bias ? static_cast<std::uint64_t>(rows * sdk::element_bytes(product.d.type)) : 0};
}

std::size_t operand_sets(const LibraryProduct& product) {
  constexpr std::int64_t kFewRows = 16;
  // Twice what the largest caches keep; what is read in no time is launched in more.
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kAll = 256 * kMiB, kMost = 64;
  const std::uint64_t bytes = operand_bytes(product).front();
  if (product.d.columns > kFewRows || bytes < kMiB) return 1;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(kAll / bytes, 1, kMost));
}

TrialRun trial_run(const LibraryProduct& product, std::shared_ptr<const OfferedAlgorithm> offered) {
  // Sums are added to what was there where there is an addend, or not at all: libraries look at whether the factor is 0.
  const double addend_factor = product.has_addend ? 1 : 0;
  std::shared_ptr<const PreparedProduct> prepared;
  return [product, offered = std::move(offered), addend_factor, prepared](
             KernelQueue& queue, const std::vector<Address>& operands, Address workspace) mutable {
    if (prepared == nullptr)
      prepared = offered->library.prepare(product, offered->algorithm, 1, addend_factor);
    ProductAddresses at;
    at.a = operands[0];
    at.a_is_constant = true;
    at.b = operands[1];
    at.d = operands[3];
    at.c = product.has_addend ? operands[2] : at.d;
    at.bias = operands[4];
    at.workspace = workspace;
    prepared->enqueue(queue, at);
  };
}

std::string AlgorithmOffers::offer(const LibraryProduct& product, std::uint64_t workspace_limit,
                                   const TakePlan<OfferedAlgorithm>& take) {
  for (const ProductAlgorithm& proposed : library_.propose(product, workspace_limit)) {
    if (proposed.workspace_bytes > workspace_limit) continue;
    if (take(std::make_shared<const OfferedAlgorithm>(OfferedAlgorithm{library_, proposed}))) break;
  }
  return "";
}

std::shared_ptr<const OfferedAlgorithm> AlgorithmOffers::restore(const LibraryProduct& product,
                                                                 const std::string& kept) {
  ProductAlgorithm algorithm;
  if (kept.size() != sizeof(algorithm)) return nullptr;
  std::memcpy(&algorithm, kept.data(), sizeof(algorithm));
  if (!library_.serves(product, algorithm)) return nullptr;
  return std::make_shared<const OfferedAlgorithm>(OfferedAlgorithm{library_, algorithm});
}

std::uint64_t workspace_limit(const DeviceTraits& traits) {
  return std::uint64_t{traits.major >= 9 ? 32u : 8u} * 1024 * 1024;
}

ProductStore::ProductStore(ProductLibrary& library, const DeviceTraits& traits,
                           const std::string& folder, Trials* trials)
    : library_(library),
      offers_(library),
      algorithms_(&offers_, traits, folder, trials, workspace_limit(traits), kMostAlgorithms) {}

ProductStore::Algorithms::Found ProductStore::found(const LibraryProduct& product,
                                                    Choosing choosing) {
  // Memory that is not aligned is rare, and what is tried lies in memory that is.
  return algorithms_.find(product,
                          product.alignment == kLibraryAlignment ? choosing : Choosing::kUnseen);
}

std::optional<ProductAlgorithm> ProductStore::find(const LibraryProduct& product,
                                                   Choosing choosing) {
  const Algorithms::Found made = found(product, choosing);
  return made.plan == nullptr ? std::nullopt : std::optional(made.plan->algorithm);
}

ProductAlgorithm ProductStore::choose(const LibraryProduct& product, Choosing choosing) {
  const Algorithms::Found made = found(product, choosing);
  if (made.plan != nullptr) return made.plan->algorithm;
  sdk::unsupported(library_.version(), " has no algorithm for the product ", product.key(),
                   made.why.empty() ? "" : ": ", made.why);
}

}  // namespace backplane::cuda

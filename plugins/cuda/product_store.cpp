#include "plugins/cuda/product_store.hpp"

#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

namespace backplane::cuda {
namespace {

/// Of algorithms that are compared: as many as the library is asked for.
constexpr std::size_t kMostAlgorithms = 16;

/// Of a, b, c, d and the bias; 0 where there is none.
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

/// An algorithm on such operands; it is made ready when it is tried.
TrialRun trial_run(ProductLibrary& library, const LibraryProduct& product,
                   const ProductAlgorithm& algorithm) {
  // Sums are added to what was there where there is an addend, or not at all: libraries look at whether the factor is 0.
  const double addend_factor = product.has_addend ? 1 : 0;
  std::shared_ptr<const PreparedProduct> prepared;
  return [&library, &product, algorithm, addend_factor, prepared](
             StreamHandle stream, const std::vector<Address>& operands, Address workspace) mutable {
    if (prepared == nullptr) prepared = library.prepare(product, algorithm, 1, addend_factor);
    ProductAddresses at;
    at.a = operands[0];
    at.b = operands[1];
    at.d = operands[3];
    at.c = product.has_addend ? operands[2] : at.d;
    at.bias = operands[4];
    at.workspace = workspace;
    prepared->enqueue(stream, at);
  };
}

}  // namespace

std::uint64_t workspace_limit(const DeviceTraits& traits) {
  return std::uint64_t{traits.major >= 9 ? 32u : 8u} * 1024 * 1024;
}

ProductStore::ProductStore(ProductLibrary& library, const DeviceTraits& traits,
                           const std::string& folder, Trials* trials)
    : library_(library),
      trials_(trials),
      device_(sdk::message(traits.name, ' ', traits.major, '.', traits.minor)),
      limit_(workspace_limit(traits)),
      cache_(folder) {}

ProductStore::Counts ProductStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::optional<ProductAlgorithm> ProductStore::find(const LibraryProduct& product,
                                                   Choosing choosing) {
  return chosen(product, choosing).algorithm;
}

ProductAlgorithm ProductStore::choose(const LibraryProduct& product, Choosing choosing) {
  const Chosen found = chosen(product, choosing);
  if (found.algorithm) return *found.algorithm;
  sdk::unsupported(library_.version(), " has no algorithm for the product ", product.key(),
                   found.why);
}

ProductStore::Chosen ProductStore::chosen(const LibraryProduct& product, Choosing choosing) {
  // Memory that is not aligned is rare, and what is tried lies in memory that is.
  const bool is_timed = choosing == Choosing::kByTime && product.alignment == kLibraryAlignment;
  Trials* const trials = is_timed ? trials_ : nullptr;
  const std::string form = product.key();
  const std::string key =
      sdk::message(library_.version(), '\n', device_, ", at most ", limit_, '\n', form);
  const std::lock_guard lock(mutex_);
  const std::string name = trials != nullptr ? form + kFastestMark : form;
  if (const auto found = chosen_.find(name); found != chosen_.end()) return found->second;
  return chosen_[name] = make(product, key, trials);
}

std::optional<ProductAlgorithm> ProductStore::read(const LibraryProduct& product,
                                                   const std::string& key) {
  static_assert(std::is_trivially_copyable_v<ProductAlgorithm>);
  const std::optional<std::string> kept = cache_.read(key);
  ProductAlgorithm algorithm;
  if (!kept || kept->size() != sizeof(algorithm)) return std::nullopt;
  std::memcpy(&algorithm, kept->data(), sizeof(algorithm));
  if (!library_.serves(product, algorithm) || algorithm.workspace_bytes > limit_)
    return std::nullopt;
  ++counts_.read;
  return algorithm;
}

ProductStore::Chosen ProductStore::make(const LibraryProduct& product, const std::string& key,
                                        Trials* trials) {
  const std::string fastest_key = key + kFastestMark;
  if (trials != nullptr) {
    if (const std::optional<ProductAlgorithm> kept = read(product, fastest_key)) return {kept, ""};
  }
  if (trials == nullptr || !trials->may_begin()) {
    if (const std::optional<ProductAlgorithm> kept = read(product, key)) return {kept, ""};
  }
  ++counts_.asked;
  std::vector<ProductAlgorithm> tried;
  Comparison comparison(trials, operand_bytes(product), kMostAlgorithms);
  for (const ProductAlgorithm& proposed : library_.propose(product, limit_)) {
    if (proposed.workspace_bytes > limit_) continue;
    tried.push_back(proposed);
    if (comparison.add(proposed.workspace_bytes, trial_run(library_, product, proposed))) break;
  }
  const std::optional<std::size_t> best = comparison.best();
  if (!best)
    return {std::nullopt,
            tried.empty()
                ? ""
                : sdk::message(": those that it proposes, ", tried.size(),
                               ", fail when they are run, the last: ", comparison.failure())};
  const ProductAlgorithm& fastest = tried[*best];
  cache_.write(trials != nullptr && comparison.is_settled() ? fastest_key : key,
               {reinterpret_cast<const char*>(&fastest), sizeof(fastest)});
  return {fastest, ""};
}

}  // namespace backplane::cuda

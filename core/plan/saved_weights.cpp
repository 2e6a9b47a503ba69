#include "core/plan/saved_weights.hpp"

#define XXH_INLINE_ALL
#include <utility>
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {

ContentHash hash_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

ContentHash saved_key(const std::string& portable_key) {
  return hash_of(std::as_bytes(std::span(portable_key)));
}

SavedWeights::SavedWeights(std::string path, std::span<const std::byte> contents,
                           std::shared_ptr<const void> owner, std::map<ContentHash, Entry> entries)
    : path_(std::move(path)),
      contents_(contents),
      owner_(std::move(owner)),
      entries_(std::move(entries)) {
  for (const auto& [key, entry] : entries_) {
    if (entry.offset > contents_.size() || entry.bytes > contents_.size() - entry.offset) {
      invalid("the saved plan ", quoted(path_), " is damaged: a weight lies outside of the file");
    }
  }
}

std::optional<std::span<const std::byte>> SavedWeights::find(const ContentHash& key,
                                                             std::uint64_t bytes) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.bytes != bytes) return std::nullopt;
  const Entry& entry = found->second;
  const auto piece = contents_.subspan(static_cast<std::size_t>(entry.offset),
                                       static_cast<std::size_t>(entry.bytes));
  if (hash_of(piece) != entry.hash) {
    invalid("the saved plan ", quoted(path_),
            " is damaged: a weight is not what was written; save the plan again");
  }
  return piece;
}

}  // namespace backplane::core

// Weights that an earlier session packed, in a file that is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/graph/constant.hpp"

namespace backplane::core {

/// What a weight is found by in a file: a hash of a key that is the same in every process.
ContentHash saved_key(const std::string& portable_key);

/// The weights of a saved plan.
///
/// Lifetime: holds the file.
/// Threads:  all functions may run concurrently.
class SavedWeights {
 public:
  struct Entry {
    std::uint64_t offset = 0, bytes = 0;
    ContentHash hash;  ///< of the bytes
  };

  /// Throws InvalidArgument for an entry that is not inside of `contents`.
  SavedWeights(std::string path, std::span<const std::byte> contents,
               std::shared_ptr<const void> owner, std::map<ContentHash, Entry> entries);

  /// The weight's bytes, which live as long as owner(); nullopt when the file has none under this key, or of another
  /// size. Throws InvalidArgument for bytes that are not what was written.
  std::optional<std::span<const std::byte>> find(const ContentHash& key, std::uint64_t bytes) const;
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::string path_;
  std::span<const std::byte> contents_;
  std::shared_ptr<const void> owner_;
  std::map<ContentHash, Entry> entries_;
};

/// XXH3 of bytes.
ContentHash hash_of(std::span<const std::byte> bytes);

}  // namespace backplane::core

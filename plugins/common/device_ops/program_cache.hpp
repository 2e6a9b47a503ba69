// Entries on disk: built programs, and what a tuner chose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace backplane::device_ops {

/// FNV-1a: the same in every process.
std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed = 0);

/// 128 bits of the key in hexadecimal digits, to name a file by.
std::string file_name_of(std::string_view key);

/// A folder of entries. An entry is a file named by a hash of its key; it holds the whole key, a checksum and the
/// content. One that is foreign, cut off or altered is ignored and written anew; a file is put in its place by
/// renaming, so several processes may share a folder.
/// Threads: one at a time.
class ProgramCache {
 public:
  /// An empty `folder`: nothing is kept. `kind` is what the entries are, in their names and first lines.
  explicit ProgramCache(std::string folder, std::string kind = "program")
      : folder_(std::move(folder)), kind_(std::move(kind)) {}

  bool keeps() const { return !folder_.empty(); }
  std::optional<std::string> read(const std::string& key) const;
  /// What cannot be written is not kept: that is logged once.
  void write(const std::string& key, std::string_view binary);

 private:
  std::string path_of(const std::string& key) const;

  /// What an entry begins with.
  std::string magic() const { return "backplane " + kind_ + " 1\n"; }

  std::string folder_, kind_;
  bool warned_ = false;
};

/// What option `cache_dir` means: "auto" is $XDG_CACHE_HOME/backplane/<provider>, or ~/.cache/backplane/<provider>
/// (empty without either, which is logged once); "off" is empty; anything else a folder.
std::string cache_folder(const std::string& option);

}  // namespace backplane::device_ops

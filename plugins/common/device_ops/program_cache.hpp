// Built programs on disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace backplane::device_ops {

/// A folder of entries. An entry is a file named by a hash of its key; it holds the whole key, a checksum and the
/// binary. One that is foreign, cut off or altered is ignored and written anew; a file is put in its place by
/// renaming, so several processes may share a folder.
/// Threads: one at a time.
class ProgramCache {
 public:
  /// An empty `folder`: nothing is kept.
  explicit ProgramCache(std::string folder) : folder_(std::move(folder)) {}

  std::optional<std::string> read(const std::string& key) const;
  /// What cannot be written is not kept: that is logged once.
  void write(const std::string& key, std::string_view binary);

 private:
  std::string path_of(const std::string& key) const;

  std::string folder_;
  bool warned_ = false;
};

/// What option `cache_dir` means: "auto" is $XDG_CACHE_HOME/backplane/<provider>, or ~/.cache/backplane/<provider>
/// (empty without either); "off" is empty; anything else a folder.
std::string cache_folder(const std::string& option);

}  // namespace backplane::device_ops

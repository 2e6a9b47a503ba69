// Files in memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct stat;

namespace backplane::core {

/// A regular file, mapped read-only as a whole. An empty file has no bytes and no mapping. Opening a file that is
/// mapped already and has not changed since (by device, inode, size and time) gives the same mapping.
///
/// Lifetime: the bytes are valid as long as the object. They are the file's: whoever writes to it meanwhile changes
///           them, and whoever shortens it makes reading them fatal, as with every mapping; check_unchanged tells.
///           Replacing the file by rename is safe.
/// Threads:  all functions may run concurrently.
class MappedFile {
 public:
  /// Errors: NotFound when there is no such file; InvalidArgument for a folder, a device, a file without
  /// permission. The message names the file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  /// Whether the byte lies in a file that is mapped now.
  static bool holds(const void* byte);
  /// The file that the byte lies in; null: none that is mapped now.
  static std::shared_ptr<const MappedFile> holding(const void* byte);
  /// Whoever reads these bytes next does so after a while, or never: the pages that they fill take no memory until then.
  /// Nothing where they are no mapped file's.
  static void let_go(std::span<const std::byte> bytes);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Throws FileFailed, naming the file, when it was written to since it was opened, by its size and time. It is looked
  /// up by its path, since a descriptor for each file is more than a process has for some models; so nothing is known
  /// of a file that was renamed, nor of a write within the same tick of the file system's clock as the one before.
  void check_unchanged() const;

 private:
  /// Which contents a file had: another write, or another file under its name, is another one.
  struct Identity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    auto operator<=>(const Identity&) const = default;  // NOLINT(modernize-use-nullptr): of its 0
  };
  struct Mapped;
  static Mapped& mapped();
  static Identity identity_of(const struct stat& status);
  MappedFile(std::string path, const Identity& identity, const std::byte* data, std::size_t size);

  std::string path_;
  std::string place_;  ///< absolute, and without links
  Identity identity_;
  const std::byte* data_;
  std::size_t size_;
};

using MappedFiles = std::vector<std::shared_ptr<const MappedFile>>;
/// MappedFile::check_unchanged of each.
void check_unchanged(const MappedFiles& files);

}  // namespace backplane::core

// Files in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace backplane::core {

/// A regular file, mapped read-only as a whole. An empty file has no bytes and no mapping. Opening a file that is
/// mapped already and has not changed since (by device, inode, size and time) gives the same mapping.
///
/// Lifetime: the bytes are valid as long as the object. They are the file's: whoever shortens the file meanwhile
///           makes reading them fatal, as with every mapping; replacing it by rename is safe.
/// Threads:  all functions may run concurrently.
class MappedFile {
 public:
  /// Errors: NotFound when there is no such file; InvalidArgument for a folder, a device, a file without
  /// permission. The message names the file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  /// Whether the byte lies in a file that is mapped now.
  static bool holds(const void* byte);
  /// Whoever reads these bytes next does so after a while, or never: the pages that they fill take no memory until then.
  /// Nothing where they are no mapped file's.
  static void let_go(std::span<const std::byte> bytes);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace backplane::core

// Files that are there as a whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace backplane::core {

/// A file on its way: written beside its place under another name, then moved there in one step. Whoever looks sees the
/// old file or the new one; a writer that fails, or is not committed, leaves nothing behind.
class AtomicFile {
 public:
  /// Errors: InvalidArgument naming the path when its folder is missing or cannot be written.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Errors: Failed naming the path: a full disk, for one.
  void write(std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  /// Writes zeros up to a multiple of `alignment`.
  void pad(std::uint64_t alignment);
  /// Puts the file in its place, its contents safely on the disk. Errors: as write.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_, temporary_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace backplane::core

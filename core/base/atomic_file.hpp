// Files that are there as a whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace backplane::core {

/// Removes what AtomicFiles of this process have written and not committed; those that go on fail. For who ends the process
/// by a handler of signals: it takes no lock, allocates nothing, and calls only what a handler may call.
void remove_unfinished_files() noexcept;

/// Where writing to `path` puts a file: absolute, all links followed, also one that leads to nothing yet.
std::filesystem::path final_place(const std::filesystem::path& path);
/// Whether both lead to one file, by whatever links; or would, where there is none yet.
bool is_one_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// A file on its way: written beside its place under another name, then moved there in one step. Whoever looks sees the
/// old file or the new one; a writer that fails, or is not committed, leaves nothing behind. What a writer left that was
/// killed is removed by the next one of the same path: writers hold a lock of their temporary file, as long as they live
/// (flock; on a file system without locks it stays). A path that is a link stays one: what it leads to is written. A file
/// that is replaced hands on its permissions, and its owner where the process may do that.
class AtomicFile {
 public:
  /// Errors: InvalidArgument naming the path when its folder is missing or cannot be written, or it is there and no
  /// regular file, or one without permission to write; FileFailed where the system has no room for another file.
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Errors: FileFailed naming the path: a full disk, for one.
  void write(std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  /// The path without links, where it will be.
  const std::string& target() const { return target_; }
  /// Writes zeros up to a multiple of `alignment`.
  void pad(std::uint64_t alignment);
  /// Puts the file in its place, its contents safely on the disk. Errors: as write.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  void list();
  void unlist();

  std::string path_, target_, temporary_;
  char* listed_ = nullptr;  ///< `temporary_` among the unfinished files; null: not there
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace backplane::core

// Files that a request names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace backplane::cli {

/// A file that is read from front to back; a pipe will do. Every failure is a wrong request that names the file.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// "'x.npy'"
  const std::string& name() const { return name_; }
  /// Bytes not read yet; nothing where that is not known.
  std::optional<std::uint64_t> remaining() const;
  /// Reads at most so many bytes; fewer only at the end.
  std::size_t read(void* to, std::size_t bytes);
  /// Everything that is left.
  std::string read_all();

 private:
  std::string name_;
  int fd_ = -1;
  std::optional<std::uint64_t> size_;
  std::uint64_t position_ = 0;
};

}  // namespace backplane::cli

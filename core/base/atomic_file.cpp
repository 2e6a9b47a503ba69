#include "core/base/atomic_file.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

/// A name that no other writer of this path has, in this process or another.
std::string beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return text(path, ".", ::getpid(), ".", count.fetch_add(1), ".part");
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(beside(path_)) {
  if (path_.empty()) invalid("the path to write to is empty");
  if (std::filesystem::is_directory(path_))
    invalid(quoted(path_), " cannot be written: it is a folder");
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0)
    invalid(quoted(path_), " cannot be written: ", std::strerror(errno),
            "; the folder must exist and be writable");
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw Error(Code::Failed, text(quoted(path_), " cannot be ", what, ": ", std::strerror(errno)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("written");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    size_ += static_cast<std::uint64_t>(done);
  }
}

void AtomicFile::pad(std::uint64_t alignment) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (size_ % alignment != 0) {
    const std::uint64_t missing = alignment - size_ % alignment;
    write(std::span(kZeros).first(std::min<std::uint64_t>(missing, kZeros.size())));
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("written");
  const int file = std::exchange(file_, -1);
  const bool closed = ::close(file) == 0;
  if (!closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("put in place");
  }
}

}  // namespace backplane::core

#include "core/base/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

/// The files that are mapped now. Never destroyed: mappings may outlive every static.
struct MappedFile::Mapped {
  struct Range {
    std::size_t size = 0;
    std::weak_ptr<const MappedFile> file;
  };
  std::mutex mutex;
  std::map<Identity, std::weak_ptr<const MappedFile>> by_identity;
  std::map<const std::byte*, Range> ranges;  ///< by first byte

  /// The caller holds the mutex.
  const Range* find(const void* byte) const {
    const auto* address = static_cast<const std::byte*>(byte);
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) return nullptr;
    --after;
    return address < after->first + after->second.size ? &after->second : nullptr;
  }
};

MappedFile::Mapped& MappedFile::mapped() {
  static auto* const files = new Mapped;
  return *files;
}

MappedFile::Identity MappedFile::identity_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

MappedFile::MappedFile(std::string path, const Identity& identity, const std::byte* data,
                       std::size_t size)
    : path_(std::move(path)), identity_(identity), data_(data), size_(size) {
  std::error_code error;
  place_ = std::filesystem::canonical(path_, error).string();
  if (error)
    place_ = std::filesystem::absolute(path_, error).string();  // memory under /proc/self/fd
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](Code code, const std::string& reason) -> Error {
    return {code, text("cannot read ", quoted(path), ": ", reason)};
  };
  // O_NONBLOCK: opening a pipe must not wait for a writer; it means nothing for regular files.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    throw fail(absent ? Code::NotFound : Code::InvalidArgument, std::strerror(error));
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw fail(Code::InvalidArgument, std::strerror(errno));
  if (S_ISDIR(status.st_mode))
    throw fail(Code::InvalidArgument, "it is a folder, a file is needed");
  if (!S_ISREG(status.st_mode)) throw fail(Code::InvalidArgument, "it is no regular file");

  const std::lock_guard lock(mapped().mutex);
  std::erase_if(mapped().by_identity, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const MappedFile>& known = mapped().by_identity[identity_of(status)];
  if (auto same = known.lock()) return same;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      throw fail(error == ENOMEM ? Code::OutOfMemory : Code::InvalidArgument, std::strerror(error));
    }
  }
  std::shared_ptr<const MappedFile> made(
      new MappedFile(path, identity_of(status), static_cast<const std::byte*>(data), size));
  if (size > 0) mapped().ranges[made->data_] = {size, made};
  known = made;
  return made;
}

bool MappedFile::holds(const void* byte) {
  const std::lock_guard lock(mapped().mutex);
  return mapped().find(byte) != nullptr;
}

std::shared_ptr<const MappedFile> MappedFile::holding(const void* byte) {
  const std::lock_guard lock(mapped().mutex);
  const Mapped::Range* const range = mapped().find(byte);
  return range != nullptr ? range->file.lock() : nullptr;
}

void MappedFile::check_unchanged() const {
  struct stat now {};
  if (::stat(place_.c_str(), &now) != 0) return;
  const Identity found = identity_of(now);
  const bool is_other = found.device != identity_.device || found.inode != identity_.inode;
  if (is_other || found == identity_) return;
  throw Error(Code::FileFailed,
              text(quoted(path_),
                   " was changed since the session opened it; make a new session, and next time "
                   "write a new file and rename it"));
}

void check_unchanged(const MappedFiles& files) {
  for (const auto& file : files) file->check_unchanged();
}

void MappedFile::let_go(std::span<const std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t skipped = (page - address % page) % page;
  if (bytes.size() < skipped + page || !holds(bytes.data())) return;
  const std::size_t whole = (bytes.size() - skipped) / page * page;
  // Nothing is written to the mapping, so every page is read from the file again. A failure changes nothing.
  ::madvise(const_cast<std::byte*>(bytes.data()) + skipped, whole, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (size_ == 0) return;
  {
    const std::lock_guard lock(mapped().mutex);
    mapped().ranges.erase(data_);
  }
  // munmap takes a mutable pointer by its C signature; nothing is written.
  ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace backplane::core

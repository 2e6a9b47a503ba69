#include "core/base/atomic_file.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iomanip>
#include <random>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/base/text_stream.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".part";
constexpr std::size_t kRandomDigits = 16;
constexpr int kAttempts = 100;
constexpr int kMostLinks = 40;  // as many as Linux follows

/// Names of files on their way, for whoever ends the process. A handler of signals may take one out at any time.
constexpr std::size_t kListed = 64;  // what is written at a time beyond these is not listed
std::array<std::atomic<char*>, kListed> unfinished{};
static_assert(std::atomic<char*>::is_always_lock_free);

/// A name that hardly any other writer of this path has; numbers of processes repeat, in containers above all.
std::string beside(const std::string& path) {
  std::random_device random;
  TextOutput name;
  name << path << '.' << std::hex << std::setfill('0') << std::setw(8) << random() << std::setw(8)
       << random() << kSuffix;
  return name.str();
}

bool is_beside(const std::string& name, const std::string& file) {
  return name.size() == file.size() + 1 + kRandomDigits + kSuffix.size() &&
         name.starts_with(file + '.') && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef", file.size() + 1) ==
             name.size() - kSuffix.size();
}

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Removes a temporary file that nobody writes: its writer would hold the lock of it, which ends with the process.
void remove_if_stale(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  struct stat opened {
  }, named{};
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstat(file, &opened) == 0 &&
      ::lstat(path.c_str(), &named) == 0 && is_same_file(opened, named) && S_ISREG(opened.st_mode))
    ::unlink(path.c_str());
  ::close(file);
}

/// What writers of `path` left that were killed.
void remove_stale(const fs::path& path) {
  const std::string file = path.filename().string();
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_beside(entry->path().filename().string(), file)) remove_if_stale(entry->path().string());
  }
}

/// A new file, locked for as long as it is open; -1 and errno.
int create(const char* path) {
  const int file = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return -1;
  struct stat status {};
  // Between its creation and its lock, another writer may have taken it for a stale one.
  const bool is_taken = ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!is_taken && (::fstat(file, &status) != 0 || status.st_nlink > 0)) return file;
  ::close(file);
  errno = EEXIST;
  return -1;
}

/// Whether the path is to blame, and not what the system has left.
bool is_wrong_path(int reason) {
  return reason == ENOENT || reason == ENOTDIR || reason == EACCES || reason == EPERM ||
         reason == EROFS || reason == ENAMETOOLONG || reason == ELOOP;
}

/// Of a file that cannot be made.
[[noreturn]] void cannot_create(const std::string& path, int reason) {
  const bool is_folder =
      reason == ENOENT || reason == ENOTDIR || reason == EACCES || reason == EROFS;
  throw Error(is_wrong_path(reason) ? Code::InvalidArgument : Code::FileFailed,
              text(quoted(path), " cannot be written: ", std::strerror(reason),
                   is_folder ? "; the folder must exist and be writable" : ""));
}

/// Gives a new file the permissions of the one that it is to replace.
void take_over(int file, const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  struct stat made {};
  if (::fstat(file, &made) != 0) return;
  const bool is_owners = made.st_uid == old.st_uid && made.st_gid == old.st_gid;
  // What a group may do is not for another group.
  if (!is_owners && ::fchown(file, old.st_uid, old.st_gid) != 0 && made.st_gid != old.st_gid)
    mode &= ~static_cast<mode_t>(070);
  ::fchmod(file, mode);
}

}  // namespace

fs::path final_place(const fs::path& path) {
  std::error_code error;
  fs::path place = fs::absolute(path, error);
  if (error) return path;
  for (int i = 0; i < kMostLinks; ++i) {
    const fs::path next = fs::read_symlink(place, error);
    if (error) break;
    place = next.is_absolute() ? next : place.parent_path() / next;
  }
  const fs::path whole = fs::weakly_canonical(place, error);
  return error ? place : whole;
}

bool is_one_file(const fs::path& a, const fs::path& b) {
  std::error_code absent;
  return fs::equivalent(a, b, absent) || final_place(a) == final_place(b);
}

void remove_unfinished_files() noexcept {
  for (std::atomic<char*>& entry : unfinished) {
    char* const path = entry.exchange(nullptr);  // nobody frees it meanwhile
    if (path == nullptr) continue;
    ::unlink(path);
    char* nobody = nullptr;
    entry.compare_exchange_strong(nobody, path);
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) invalid("the path to write to is empty");
  target_ = final_place(path_).string();
  struct stat old {};
  const bool is_there = ::stat(target_.c_str(), &old) == 0;
  if (path_.back() == '/' || (is_there && S_ISDIR(old.st_mode)))
    invalid(quoted(path_), " cannot be written: it is a folder");
  if (is_there && !S_ISREG(old.st_mode))
    invalid(quoted(path_), " cannot be written: it is no regular file");
  if (is_there && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
    invalid(quoted(path_), " cannot be written: ", std::strerror(errno));
  for (int i = 0; i < kAttempts && file_ < 0; ++i) {
    unlist();
    temporary_ = beside(target_);
    list();  // before there is a file: a signal may come in between
    file_ = create(temporary_.c_str());
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) {
    const int reason = errno;
    unlist();
    cannot_create(path_, reason);
  }
  if (is_there) take_over(file_, old);
  remove_stale(target_);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(file_);
  unlist();
}

void AtomicFile::list() {
  listed_ = new char[temporary_.size() + 1];
  std::memcpy(listed_, temporary_.c_str(), temporary_.size() + 1);
  for (std::atomic<char*>& entry : unfinished) {
    char* free = nullptr;
    if (entry.compare_exchange_strong(free, listed_)) return;
  }
  delete[] std::exchange(listed_, nullptr);
}

void AtomicFile::unlist() {
  for (std::atomic<char*>& entry : unfinished) {
    char* mine = listed_;
    if (mine == nullptr || !entry.compare_exchange_strong(mine, nullptr)) continue;
    delete[] std::exchange(listed_, nullptr);
  }
  listed_ = nullptr;  // what a handler has taken out is in its use, and the process about to end
}

void AtomicFile::fail(const char* what) const {
  throw Error(Code::FileFailed,
              text(quoted(path_), " cannot be ", what, ": ", std::strerror(errno)));
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
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("put in place");
  ::close(std::exchange(
      file_, -1));  // its lock is held until it has its name; fsync has told of failed writes
  unlist();
}

}  // namespace backplane::core

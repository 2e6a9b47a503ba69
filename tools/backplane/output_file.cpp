#include "tools/backplane/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  run_failed("cannot write '", path.string(), "': ", std::strerror(error));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  /// 0, or what went wrong: a disk may be found full only now.
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

void write_bytes(int file, const fs::path& path, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) cannot_write(path, written < 0 ? errno : ENOSPC);
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void write_all(const Descriptor& file, const fs::path& path,
               const std::function<void(const Append&)>& write) {
  write([&](const void* data, std::size_t bytes) { write_bytes(file.get(), path, data, bytes); });
}

/// Gives a new file the permissions, and where that may be the owner, of the one that it is to replace. False and errno
/// when that fails.
bool take_over(int file, const fs::path& target) {
  struct stat old {
  }, made{};
  if (::stat(target.c_str(), &old) != 0) return true;
  if (::fstat(file, &made) != 0) return false;
  mode_t mode = old.st_mode & 0777;
  const bool is_owners = made.st_uid == old.st_uid && made.st_gid == old.st_gid;
  // What a group may do is not for another group.
  if (!is_owners && ::fchown(file, old.st_uid, old.st_gid) != 0 && made.st_gid != old.st_gid)
    mode &= ~static_cast<mode_t>(070);
  return ::fchmod(file, mode) == 0;
}

bool may_write(const fs::path& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

/// Where writing to `path` puts a file: all links followed, also one that leads to nothing yet.
fs::path final_place(const fs::path& path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
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

}  // namespace

OutputFiles::~OutputFiles() {
  for (const Pending& file : pending_) ::unlink(file.temporary.c_str());
}

void OutputFiles::add(const fs::path& path, const std::function<void(const Append&)>& write) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) cannot_write(path, errno);
    write_all(file, path, write);
    const int failed = file.close();
    if (failed != 0) cannot_write(path, failed);
    return;
  }
  const fs::path target = final_place(path);  // a link stays a link: what it points to is replaced
  if (fs::exists(status) && !may_write(target)) cannot_write(path, errno);
  for (const Pending& other : pending_) {
    if (is_one_file(other.path, target))
      wrong_request("'", path.string(), "' is to hold two of the files that were asked for");
  }
  std::string name = target.filename().string().substr(0, 100);
  const std::string temporary =
      (target.parent_path() / text(".", name, ".", ::getpid(), ".", std::random_device()()))
          .string();
  Removal removal(temporary);  // before there is a file: a signal may come in between
  // What replaces a file is nobody else's until it has the permissions of that one.
  const mode_t mode = fs::exists(status) ? 0600 : 0666;
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.get() < 0) cannot_write(path, errno);
  pending_.push_back({temporary, target, std::move(removal)});
  write_all(file, path, write);
  if (!take_over(file.get(), target)) cannot_write(path, errno);
  const int failed = file.close();
  if (failed != 0) cannot_write(path, failed);
}

void OutputFiles::add(const fs::path& path, const std::string& content) {
  add(path, [&](const Append& append) { append(content.data(), content.size()); });
}

void OutputFiles::commit() {
  while (!pending_.empty()) {
    const Pending& file = pending_.back();
    if (::rename(file.temporary.c_str(), file.path.c_str()) != 0) cannot_write(file.path, errno);
    pending_.pop_back();
  }
}

GrowingFile::GrowingFile(const fs::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_ < 0) cannot_write(path_, errno);
}
GrowingFile::~GrowingFile() { ::close(file_); }
void GrowingFile::append(const std::string& lines) {
  write_bytes(file_, path_, lines.data(), lines.size());
}

KnownFiles files_of(const Session& session) {
  KnownFiles files;
  const Json statistics = Json::parse(session.statistics());
  for (const Json& file : statistics.at("files"))
    files.push_back({file["what"].get<std::string>(), file["path"].get<std::string>()});
  return files;
}

void refuse_known(const fs::path& path, const std::string& option, const KnownFiles& known) {
  std::error_code absent;
  const fs::file_status status = fs::status(path, absent);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;  // nothing is lost there
  for (const KnownFile& file : known) {
    if (is_one_file(path, file.path))
      wrong_request(option, ": '", path.string(), "' is what the command reads or writes already, ",
                    file.what, "; give another file");
  }
}

void check_output_path(const fs::path& path, const std::string& option, const KnownFiles& known) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (path.empty()) wrong_request(option, ": the file name is empty");
  if (path == "-")
    wrong_request(
        option,
        ": '-' does not stand for standard output here; give a file, or ./- for one of this name");
  refuse_known(path, option, known);
  if (fs::is_directory(status)) wrong_request(option, ": '", path.string(), "' is a folder");
  if (fs::exists(status)) {
    if (!may_write(path)) {
      wrong_request(option, ": '", path.string(), "' cannot be written: ", std::strerror(errno));
    }
    return;
  }
  const fs::path folder = final_place(path).parent_path();
  if (!fs::is_directory(folder, error)) {
    wrong_request(option, ": the folder '", folder.string(), "' does not exist");
  }
  if (!may_write(folder)) {
    wrong_request(option, ": cannot write to the folder '", folder.string(),
                  "': ", std::strerror(errno));
  }
}

}  // namespace backplane::cli

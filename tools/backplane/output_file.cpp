#include "tools/backplane/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/backplane/failure.hpp"

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

void write_all(Descriptor& file, const fs::path& path,
               const std::function<void(const Append&)>& write) {
  write([&](const void* data, std::size_t bytes) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file.get(), from, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) cannot_write(path, written < 0 ? errno : ENOSPC);
      from += written;
      bytes -= static_cast<std::size_t>(written);
    }
  });
}

/// The permissions that an ordinary new file would have.
mode_t default_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
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
  // A link stays a link: what it points to is replaced.
  const fs::path target = fs::exists(status) ? fs::canonical(path, error) : path;
  const fs::path whole = fs::weakly_canonical(fs::absolute(target), error);
  for (const Pending& other : pending_) {
    if (!whole.empty() && other.whole == whole)
      wrong_request("'", path.string(), "' is to hold two of the files that were asked for");
  }
  std::string name = target.filename().string().substr(0, 100);
  const std::string temporary =
      (target.parent_path() / text(".", name, ".", ::getpid(), ".", std::random_device()()))
          .string();
  Removal removal(temporary);  // before there is a file: a signal may come in between
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) cannot_write(path, errno);
  pending_.push_back({temporary, target, whole, std::move(removal)});
  write_all(file, path, write);
  if (::fchmod(file.get(), default_mode()) != 0) cannot_write(path, errno);
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

void check_output_path(const fs::path& path, const std::string& option, const fs::path& input) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (path.empty()) wrong_request(option, ": the file name is empty");
  if (path == "-")
    wrong_request(
        option,
        ": '-' does not stand for standard output here; give a file, or ./- for one of this name");
  if (!input.empty() && fs::equivalent(path, input, error))
    wrong_request(option, ": '", path.string(), "' is what the command reads; give another file");
  if (fs::is_directory(status)) wrong_request(option, ": '", path.string(), "' is a folder");
  if (fs::exists(status)) {
    if (::access(path.c_str(), W_OK) != 0) {
      wrong_request(option, ": '", path.string(), "' cannot be written: ", std::strerror(errno));
    }
    return;
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) {
    wrong_request(option, ": the folder '", folder.string(), "' does not exist");
  }
  if (::access(folder.c_str(), W_OK) != 0) {
    wrong_request(option, ": cannot write to the folder '", folder.string(),
                  "': ", std::strerror(errno));
  }
}

}  // namespace backplane::cli

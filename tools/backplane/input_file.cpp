#include "tools/backplane/input_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

constexpr std::size_t kMaxPipeBytes = std::size_t{1} << 31;  // protobuf's own limit

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : name_("'" + path.string() + "'") {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) wrong_request("cannot read ", name_, ": ", std::strerror(errno));
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(fd_);
    wrong_request("cannot read ", name_, ": it is a folder");
  }
  if (S_ISREG(status.st_mode)) size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(fd_); }

std::optional<std::uint64_t> InputFile::remaining() const {
  if (!size_) return std::nullopt;
  return *size_ < position_ ? 0 : *size_ - position_;
}

std::size_t InputFile::read(void* to, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(fd_, static_cast<char*>(to) + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) wrong_request("cannot read ", name_, ": ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  position_ += done;
  return done;
}

std::string InputFile::read_all() {
  std::string content;
  const std::size_t step = std::max<std::size_t>(remaining().value_or(0) + 1, 1 << 16);
  for (;;) {
    const std::size_t before = content.size();
    if (before + step > kMaxPipeBytes) wrong_request(name_, " is larger than 2 GiB");
    content.resize(before + step);
    const std::size_t got = read(content.data() + before, step);
    content.resize(before + got);
    if (got < step) return content;
  }
}

}  // namespace backplane::cli

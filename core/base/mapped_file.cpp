#include "core/base/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      throw fail(error == ENOMEM ? Code::OutOfMemory : Code::InvalidArgument, std::strerror(error));
    }
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  // munmap takes a mutable pointer by its C signature; nothing is written.
  if (size_ > 0) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace backplane::core

// Format: System V ABI, chapters 4 and 5 (ELF header, program header), https://refspecs.linuxfoundation.org/elf/
#include "core/plugin_host/shared_object.hpp"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

#if defined(__x86_64__)
constexpr std::uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
#error "this processor's ELF machine number is missing here"
#endif
static_assert(std::endian::native == std::endian::little);

std::string machine_name(std::uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "Arm 64-bit";
    case EM_386:
      return "x86 32-bit";
    case EM_ARM:
      return "Arm 32-bit";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "PowerPC 64-bit";
    case EM_S390:
      return "s390";
    default:
      return text("ELF machine ", machine);
  }
}

class ElfReader {
 public:
  explicit ElfReader(const std::filesystem::path& file)
      : name_(quoted(file.native())), size_(std::filesystem::file_size(file)) {
    errno = 0;
    stream_.open(file, std::ios::binary);
    if (!stream_) invalid(name_, " cannot be read: ", std::strerror(errno));
  }

  void check() {
    if (size_ == 0) invalid(name_, " is empty");
    unsigned char ident[EI_NIDENT] = {};
    if (size_ < sizeof(ident)) not_shared("it is too short");
    read(0, ident, sizeof(ident));
    if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) not_shared("it is no ELF file");
    if (ident[EI_DATA] != ELFDATA2LSB) {
      throw Error(Code::Incompatible, text(name_, " is for a processor of other byte order"));
    }
    if (ident[EI_CLASS] != ELFCLASS64) check_machine_of_32_bits();
    Elf64_Ehdr header{};
    if (size_ < sizeof(header)) cut_off(sizeof(header));
    read(0, &header, sizeof(header));
    check_machine(header.e_machine);
    if (header.e_type != ET_DYN) {
      not_shared(header.e_type == ET_REL    ? "it is an object file (.o)"
                 : header.e_type == ET_EXEC ? "it is a program"
                                            : text("its ELF type is ", header.e_type));
    }
    check_segments(header);
  }

 private:
  [[noreturn]] void not_shared(std::string_view why) const {
    invalid(name_, " is not a shared object: ", why);
  }
  [[noreturn]] void cut_off(std::uint64_t needed) const {
    invalid(name_, " is cut off: it has ", size_, " bytes of at least ", needed,
            "; copy or build it again");
  }
  void read(std::uint64_t offset, void* to, std::size_t bytes) {
    stream_.seekg(static_cast<std::streamoff>(offset));
    stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!stream_) cut_off(offset + bytes);
  }
  void check_machine(std::uint16_t machine) const {
    if (machine == kMachine) return;
    throw Error(Code::Incompatible,
                text(name_, " is for another processor: ", machine_name(machine), ", and this is ",
                     machine_name(kMachine)));
  }
  [[noreturn]] void check_machine_of_32_bits() {
    Elf32_Ehdr header{};
    if (size_ < sizeof(header)) cut_off(sizeof(header));
    read(0, &header, sizeof(header));
    check_machine(header.e_machine);
    throw Error(Code::Incompatible, text(name_, " is a 32-bit shared object"));
  }
  /// Every segment must lie within the file: the linker maps without looking, and the first access
  /// past the end would kill the process.
  void check_segments(const Elf64_Ehdr& header) {
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0) {
      not_shared("its program header is broken");
    }
    const std::uint64_t table_bytes = std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
    if (header.e_phoff > size_ || table_bytes > size_ - header.e_phoff) {
      cut_off(header.e_phoff + table_bytes);
    }
    for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment{};
      read(header.e_phoff + i * sizeof(segment), &segment, sizeof(segment));
      if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
      if (segment.p_offset > size_ || segment.p_filesz > size_ - segment.p_offset) {
        cut_off(segment.p_offset + segment.p_filesz);
      }
    }
    // Section headers stand at the end of a file and nothing needs them at run time; a file that
    // lost them was cut off all the same.
    const std::uint64_t sections = std::uint64_t{header.e_shnum} * header.e_shentsize;
    if (header.e_shoff > size_ || sections > size_ - header.e_shoff) {
      cut_off(header.e_shoff + sections);
    }
  }

  std::string name_;
  std::uint64_t size_;
  std::ifstream stream_;
};

}  // namespace

void check_shared_object(const std::filesystem::path& file) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  const std::string name = quoted(file.native());
  if (status.type() == std::filesystem::file_type::not_found) {
    const bool link = std::filesystem::is_symlink(std::filesystem::symlink_status(file, error));
    throw Error(Code::NotFound,
                text(name, link ? " is a link to a file that does not exist" : " does not exist"));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    invalid(name, " is a folder, not a shared object");
  }
  if (status.type() == std::filesystem::file_type::none) {
    invalid(name, " cannot be read: ", error.message());
  }
  if (status.type() != std::filesystem::file_type::regular) {
    invalid(name, " is not a regular file");
  }
  ElfReader(file).check();
}

}  // namespace backplane::core

// What stands in a kernel's machine code, as far as tests ask: instructions of 16 bytes, of compute capability 7.0 on, by the
// numbers that nvdisasm (13.2) reads in them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace backplane::cuda {

struct Instruction {
  std::uint64_t low = 0, high = 0;

  /// Without the bits that say what kind of operands it has.
  unsigned operation() const { return low & 0x1ff; }
  /// PREEXIT: the next kernel may begin.
  bool lets_begin() const { return (low & 0xfff) == 0x82d; }
  /// ACQBULK: the kernels before have ended.
  bool waits() const { return (low & 0xfff) == 0x82e; }
  /// LD, LDG, ST, STG, ATOM, RED, ATOMG and LDGSTS; constants, arguments among them, and local and shared memory are none of it.
  bool is_global() const {
    constexpr unsigned kGlobal[] = {0x180, 0x181, 0x185, 0x186, 0x18a,
                                    0x18b, 0x18e, 0x1a8, 0x1a9, 0x1ae};
    return std::find(std::begin(kGlobal), std::end(kGlobal), operation()) != std::end(kGlobal);
  }
  /// LDG of what is held for constant while the kernel runs (ld.global.nc).
  bool is_read_only() const { return operation() == 0x181 && (high & 0x8000) != 0; }
  /// LDL and STL: a register that is put into memory of the item's own, or an array that has none.
  bool is_spilled() const { return operation() == 0x183 || operation() == 0x187; }
  /// HMMA.
  bool multiplies_halves() const { return operation() == 0x3c; }
  /// STG of 16 bytes.
  bool stores_16() const { return operation() == 0x186 && (high >> 9 & 7) == 6; }
  /// BRA, EXIT, CALL and RET.
  bool is_branch() const {
    constexpr unsigned kBranches[] = {0x143, 0x144, 0x147, 0x14d, 0x150};
    return std::find(std::begin(kBranches), std::end(kBranches), operation()) !=
           std::end(kBranches);
  }
};

/// A section of an image for one architecture; empty where it has none of that name.
inline std::string_view section_of(const std::string& image, std::string_view name) {
  const auto read = [&](std::size_t at, auto& into) {
    if (at + sizeof(into) > image.size()) throw std::runtime_error("the image is cut off");
    std::memcpy(&into, image.data() + at, sizeof(into));
  };
  Elf64_Ehdr header;
  read(0, header);
  const auto section = [&](std::size_t index) {
    Elf64_Shdr found;
    read(header.e_shoff + index * header.e_shentsize, found);
    return found;
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr each = section(i);
    if (image.data() + names.sh_offset + each.sh_name == name)
      return std::string_view(image).substr(each.sh_offset, each.sh_size);
  }
  return {};
}

/// Of the kernel `run`.
inline std::vector<Instruction> instructions_of(const std::string& image) {
  const std::string_view code = section_of(image, ".text.run");
  std::vector<Instruction> found(code.size() / sizeof(Instruction));
  if (!found.empty()) std::memcpy(found.data(), code.data(), found.size() * sizeof(Instruction));
  return found;
}

/// Whether it has tables of its own, as the functions of angles do, which no kernel writes.
inline bool has_tables(const std::string& image) {
  return !section_of(image, ".nv.global.init").empty();
}

}  // namespace backplane::cuda

#include "plugins/cuda/engine_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace backplane::cuda {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The bytes of an ELF file. What lies outside of it is read as zeros, and as no text.
class ElfFile {
 public:
  explicit ElfFile(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  T at(std::uint64_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T))
      std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string text(std::uint64_t offset) const {
    if (offset >= bytes_.size()) return "";
    return bytes_.substr(offset, bytes_.find('\0', offset) - offset);
  }
  std::vector<Elf64_Phdr> segments() const {
    const auto header = at<Elf64_Ehdr>(0);
    std::vector<Elf64_Phdr> segments;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
      return segments;
    for (std::uint64_t i = 0; i < header.e_phnum; ++i)
      segments.push_back(at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
    return segments;
  }

 private:
  std::string bytes_;
};

/// Of a list of folders with ':' between them, as the loader writes it.
void add_folders(std::string_view list, const std::string& origin, std::vector<std::string>& to) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    std::string folder(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    for (const std::string_view name : {"${ORIGIN}", "$ORIGIN"}) {
      if (const std::size_t at = folder.find(name); at != std::string::npos)
        folder.replace(at, name.size(), origin);
    }
    if (!folder.empty()) to.push_back(std::move(folder));
  }
}

bool exists(const std::string& file) {
  std::error_code error;
  return fs::exists(file, error);
}

/// Whether the loader's own list has a library of that name which is there. Its paths stand in the file as they are.
bool is_listed(const std::string& list, const std::string& name) {
  const std::string end = '/' + name + '\0';
  for (std::size_t at = list.find(end); at != std::string::npos; at = list.find(end, at + 1)) {
    const std::size_t begin = list.rfind('\0', at) + 1;
    if (exists(list.substr(begin, at + end.size() - 1 - begin))) return true;
  }
  return false;
}

}  // namespace

std::string engine_file() {
  // By the whole path: a sanitizer that stands in front of dlopen hides the run path of who calls.
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&engine_file), &self) != 0) {
    const auto file = fs::path(self.dli_fname).parent_path().parent_path() / "deps/cuda_engine.so";
    if (exists(file.string())) return file.string();
  }
  return "cuda_engine.so";
}

LinkedLibraries linked_libraries(const std::string& file) {
  const ElfFile elf(contents_of(file));
  const std::vector<Elf64_Phdr> segments = elf.segments();
  const auto offset_of = [&](std::uint64_t address) -> std::uint64_t {
    for (const Elf64_Phdr& segment : segments) {
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address - segment.p_vaddr < segment.p_filesz)
        return segment.p_offset + (address - segment.p_vaddr);
    }
    return ~std::uint64_t{0};
  };
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;
         at += sizeof(Elf64_Dyn))
      entries.push_back(elf.at<Elf64_Dyn>(at));
  }
  std::uint64_t texts = 0;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) texts = offset_of(entry.d_un.d_ptr);
  }
  LinkedLibraries linked;
  const std::string origin = fs::path(file).parent_path().string();
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NEEDED) linked.names.push_back(elf.text(texts + entry.d_un.d_val));
    if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH)
      add_folders(elf.text(texts + entry.d_un.d_val), origin, linked.folders);
  }
  return linked;
}

bool engine_is_there() {
  LinkedLibraries linked = linked_libraries(engine_file());
  if (const char* const more = std::getenv("LD_LIBRARY_PATH"))
    add_folders(more, "", linked.folders);
  const std::string list = contents_of("/etc/ld.so.cache");
  const auto is_there = [&](const std::string& name) {
    // This process has those of C and C++ already.
    if (void* const open = ::dlopen(name.c_str(), RTLD_NOLOAD | RTLD_LAZY))
      return ::dlclose(open) == 0;
    return is_listed(list, name) ||
           std::any_of(linked.folders.begin(), linked.folders.end(),
                       [&](const std::string& folder) { return exists(folder + '/' + name); });
  };
  return !linked.names.empty() && std::all_of(linked.names.begin(), linked.names.end(), is_there);
}

}  // namespace backplane::cuda

#include "core/plugin_host/shared_object.hpp"

#include <cstring>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

class SharedObject : public testing::Test {
 protected:
  SharedObject() {
    fs::create_directories(folder_);
    std::ifstream good(std::string(BACKPLANE_TEST_FIXTURES_DIR) + "/broken/same_provider_a.so",
                       std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(good), {});
  }
  ~SharedObject() override { fs::remove_all(folder_); }

  /// What the check says of a file with these bytes; "" when it is content.
  std::string check(const std::string& bytes, Code code = Code::InvalidArgument) {
    const fs::path file = folder_ / "plugin.so";
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    return check_file(file, code);
  }
  std::string check_file(const fs::path& file, Code code = Code::InvalidArgument) {
    try {
      check_shared_object(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      EXPECT_NE(error.message().find(file.native()), std::string::npos) << error.message();
      return error.message();
    }
    return "";
  }
  Elf64_Ehdr header() const {
    Elf64_Ehdr read{};
    std::memcpy(&read, bytes_.data(), sizeof(read));
    return read;
  }
  std::string with_header(const Elf64_Ehdr& changed) const {
    std::string copy = bytes_;
    std::memcpy(copy.data(), &changed, sizeof(changed));
    return copy;
  }

  fs::path folder_ =
      fs::path(testing::TempDir()) / ("backplane_shared_object_" + std::to_string(getpid()));
  std::string bytes_;
};

TEST_F(SharedObject, GoodOnesPass) {
  ASSERT_GT(bytes_.size(), 1000U);
  EXPECT_EQ(check(bytes_), "");
}

TEST_F(SharedObject, WhatIsNoFileIsSaid) {
  EXPECT_NE(check_file(folder_ / "none.so", Code::NotFound).find("does not exist"),
            std::string::npos);
  EXPECT_NE(check_file(folder_).find("folder"), std::string::npos);
  const fs::path pipe = folder_ / "pipe.so";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(check_file(pipe).find("not a regular file"), std::string::npos);
  const fs::path link = folder_ / "link.so";
  fs::create_symlink(folder_ / "nowhere.so", link);
  EXPECT_NE(check_file(link, Code::NotFound).find("link"), std::string::npos);
}

TEST_F(SharedObject, WhatIsNoSharedObjectIsSaid) {
  EXPECT_NE(check("").find("empty"), std::string::npos);
  EXPECT_NE(check("short").find("too short"), std::string::npos);
  EXPECT_NE(check("This is a text, and a long one at that.").find("no ELF file"),
            std::string::npos);
  Elf64_Ehdr changed = header();
  changed.e_type = ET_REL;
  EXPECT_NE(check(with_header(changed)).find("object file"), std::string::npos);
  changed.e_type = ET_EXEC;
  EXPECT_NE(check(with_header(changed)).find("program"), std::string::npos);
  changed = header();
  changed.e_phentsize = 7;
  EXPECT_NE(check(with_header(changed)).find("program header"), std::string::npos);
}

TEST_F(SharedObject, OtherProcessorsAreNamed) {
  Elf64_Ehdr changed = header();
  changed.e_machine = EM_PPC64;
  EXPECT_NE(check(with_header(changed), Code::Incompatible).find("PowerPC 64-bit"),
            std::string::npos);
  changed = header();
  changed.e_ident[EI_DATA] = ELFDATA2MSB;
  EXPECT_NE(check(with_header(changed), Code::Incompatible).find("byte order"), std::string::npos);
  changed = header();
  changed.e_ident[EI_CLASS] = ELFCLASS32;
  changed.e_machine = EM_386;
  EXPECT_NE(check(with_header(changed), Code::Incompatible).find("x86 32-bit"), std::string::npos);
}

TEST_F(SharedObject, EveryTruncationIsRefused) {
  for (std::size_t size = 16; size < bytes_.size(); size += 1 + bytes_.size() / 211) {
    EXPECT_NE(check(bytes_.substr(0, size)).find("cut off"), std::string::npos) << size;
  }
  EXPECT_NE(check(bytes_.substr(0, bytes_.size() - 1)), "");
}

TEST_F(SharedObject, WildOffsetsAreRefused) {
  Elf64_Ehdr changed = header();
  changed.e_phoff = ~std::uint64_t{0} - 8;
  EXPECT_NE(check(with_header(changed)), "");
  changed = header();
  changed.e_phnum = 0xFFFF;
  EXPECT_NE(check(with_header(changed)), "");
  changed = header();
  changed.e_shoff = ~std::uint64_t{0};
  EXPECT_NE(check(with_header(changed)), "");
  std::string copy = bytes_;
  Elf64_Phdr segment{};
  const std::size_t at = header().e_phoff;
  std::memcpy(&segment, copy.data() + at, sizeof(segment));
  segment.p_type = PT_LOAD;
  segment.p_filesz = ~std::uint64_t{0};
  std::memcpy(copy.data() + at, &segment, sizeof(segment));
  EXPECT_NE(check(copy), "");
}

}  // namespace
}  // namespace backplane::core

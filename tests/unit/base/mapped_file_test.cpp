#include "core/base/mapped_file.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "tests/fixtures/resident_pages.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ("backplane_mapped_file_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& contents) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << contents;
    return path.string();
  }

  static Error error_of(const std::string& path) {
    try {
      (void)MappedFile::open(path);
    } catch (const Error& error) {
      return error;
    }
    return {Code::Ok, "no error"};
  }

  fs::path folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesAndOutlivesTheName) {
  const std::string path = write("file", "hello");
  const auto file = MappedFile::open(path);
  fs::remove(path);
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(file->bytes().data(), "hello", 5), 0);
}

TEST_F(MappedFileTest, AFileThatDidNotChangeIsMappedOnce) {
  const std::string path = write("model", "contents");
  const auto first = MappedFile::open(path);
  EXPECT_EQ(MappedFile::open(path)->bytes().data(), first->bytes().data());
  EXPECT_TRUE(MappedFile::holds(first->bytes().data() + 7));
  EXPECT_FALSE(MappedFile::holds(first->bytes().data() + 8));
  const std::string other = write("other", "contenta");
  fs::rename(other, path);
  const auto second = MappedFile::open(path);
  EXPECT_NE(second->bytes().data(), first->bytes().data());
  EXPECT_EQ(static_cast<char>(second->bytes()[7]), 'a');
  EXPECT_EQ(static_cast<char>(first->bytes()[7]), 's');
}

TEST_F(MappedFileTest, AChangeInPlaceIsTold) {
  const std::string path = write("model", "contents");
  const auto file = MappedFile::open(path);
  file->check_unchanged();
  EXPECT_EQ(MappedFile::holding(file->bytes().data() + 7), file);
  EXPECT_EQ(MappedFile::holding(file->bytes().data() + 8), nullptr);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  file->check_unchanged();  // the contents are the same
  write("model", "con");
  EXPECT_THROW(file->check_unchanged(), Error);
  write("other", "contents");
  fs::rename(folder_ / "other", path);
  file->check_unchanged();  // what has its name now is another file
  fs::remove(path);
  file->check_unchanged();
}

TEST_F(MappedFileTest, WhatIsLetGoTakesNoMemoryAndIsReadAgain) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 512;
  const std::string contents(kPages * page, 'x');
  const auto file = MappedFile::open(write("large", contents));
  const auto read_all = [&] {
    return std::memcmp(file->bytes().data(), contents.data(), contents.size());
  };
  ASSERT_EQ(read_all(), 0);
  ASSERT_EQ(test_host::resident_pages(file->bytes()), kPages);
  // The pages at both ends are others', too.
  MappedFile::let_go(file->bytes().subspan(1, contents.size() - 2));
  EXPECT_LE(test_host::resident_pages(file->bytes()), 2u);
  EXPECT_EQ(read_all(), 0);
  MappedFile::let_go(file->bytes().subspan(page + 1, page));
  MappedFile::let_go(file->bytes().first(0));
  EXPECT_EQ(test_host::resident_pages(file->bytes()), kPages) << "no page lies wholly in these";
  std::string own = contents;
  MappedFile::let_go(std::as_bytes(std::span(own)));
  EXPECT_EQ(own, contents) << "memory that is no file's stays as it is";
}

TEST_F(MappedFileTest, EmptyFilesHaveNoBytes) {
  EXPECT_TRUE(MappedFile::open(write("empty", ""))->bytes().empty());
}

TEST_F(MappedFileTest, ErrorsNameTheFileAndTheReason) {
  const Error absent = error_of((folder_ / "absent").string());
  EXPECT_EQ(absent.code(), Code::NotFound);
  EXPECT_THAT(absent.message(), HasSubstr("absent"));
  const Error folder = error_of(folder_.string());
  EXPECT_EQ(folder.code(), Code::InvalidArgument);
  EXPECT_THAT(folder.message(), HasSubstr("folder"));
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(pipe.string()).message(), HasSubstr("no regular file"));
  EXPECT_EQ(error_of(write("file", "x") + "/below").code(), Code::NotFound);
}

}  // namespace
}  // namespace backplane::core

#include "core/base/atomic_file.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

class AtomicFiles : public ::testing::Test {
 protected:
  AtomicFiles() {
    std::string name =
        (std::filesystem::temp_directory_path() / "backplane_atomic_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~AtomicFiles() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/file"; }
  std::string contents() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  long file_count() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }
  static void write(AtomicFile& file, const std::string& text) {
    file.write(std::as_bytes(std::span(text.data(), text.size())));
  }
  std::string folder_;
};

TEST_F(AtomicFiles, AppearWhenCommitted) {
  AtomicFile file(path());
  write(file, "abc");
  file.pad(8);
  EXPECT_EQ(file.size(), 8u);
  EXPECT_FALSE(std::filesystem::exists(path()));
  file.commit();
  EXPECT_EQ(contents(), std::string("abc\0\0\0\0\0", 8));
  EXPECT_EQ(file_count(), 1);
}

TEST_F(AtomicFiles, LeaveTheOldOneWhenDropped) {
  {
    AtomicFile file(path());
    write(file, "old");
    file.commit();
  }
  {
    AtomicFile file(path());
    write(file, "new");
  }
  EXPECT_EQ(contents(), "old");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(AtomicFiles, NameWhatCannotBeWritten) {
  for (const std::string& wrong : {std::string(), folder_, folder_ + "/none/file"}) {
    try {
      const AtomicFile file(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument);
      EXPECT_THAT(error.message(), ::testing::HasSubstr(wrong));
    }
  }
}

TEST_F(AtomicFiles, AreRemovedForWhoEndsTheProcess) {
  AtomicFile first(path()), second(path() + "2");
  write(first, "half");
  EXPECT_EQ(file_count(), 2);
  remove_unfinished_files();
  EXPECT_EQ(file_count(), 0);
  EXPECT_THROW(first.commit(), Error);
  AtomicFile third(path());
  third.commit();
  remove_unfinished_files();
  EXPECT_EQ(file_count(), 1);
}

TEST_F(AtomicFiles, ManyAtATimeAreWrittenAllTheSame) {
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (int i = 0; i < 200; ++i)
    files.push_back(std::make_unique<AtomicFile>(path() + std::to_string(i)));
  for (const auto& file : files) file->commit();
  EXPECT_EQ(file_count(), 200);
}

TEST_F(AtomicFiles, OfAKilledWriterGoWithTheNextOne) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(path());
    write(file, "half");
    if (::write(ready[1], "r", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  {
    AtomicFile file(path());  // while the other one writes
    EXPECT_EQ(file_count(), 2);
  }
  EXPECT_EQ(file_count(), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(file_count(), 1);
  for (const char* other :
       {".0123456789abcdef.part2", ".0123456789abcdeg.part", ".part", "2.0123456789abcdef.part"})
    std::ofstream(path() + other) << "somebody's";
  AtomicFile file(path());
  write(file, "whole");
  file.commit();
  EXPECT_EQ(contents(), "whole");
  EXPECT_EQ(file_count(), 5);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(AtomicFiles, LinksStay) {
  std::filesystem::create_directory(folder_ + "/real");
  std::ofstream(folder_ + "/real/file") << "old";
  std::filesystem::create_symlink("real/file", path());
  AtomicFile file(path());
  write(file, "new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_EQ(contents(), "new");
  EXPECT_EQ(file_count(), 2);
}

TEST_F(AtomicFiles, GoWhereALinkLeadsThoughNothingIsThere) {
  std::filesystem::create_symlink("later", path());
  AtomicFile file(path());
  write(file, "new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path()));
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ + "/later"));
  EXPECT_TRUE(is_one_file(path(), folder_ + "/./later"));
}

TEST_F(AtomicFiles, HaveThePermissionsOfTheFileThatTheyReplace) {
  for (const mode_t mode : {0600, 0640, 0666}) {
    std::ofstream(path()) << "old";
    ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    AtomicFile file(path());
    write(file, "new");
    file.commit();
    struct stat status {};
    ASSERT_EQ(::stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
  if (::geteuid() == 0) GTEST_SKIP() << "root may write to all files";
  ASSERT_EQ(::chmod(path().c_str(), 0444), 0);
  EXPECT_THROW(AtomicFile{path()}, Error);
}

TEST_F(AtomicFiles, WhatTheSystemLacksIsNoFaultOfThePath) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::optional<Error> told;
  try {
    const AtomicFile file(path());
  } catch (const Error& error) {
    told = error;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code(), Code::FileFailed);
  EXPECT_THAT(told->message(), ::testing::Not(::testing::HasSubstr("folder must")));
}

TEST_F(AtomicFiles, ReplaceNoDeviceAndNoPipe) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  for (const std::string& there : {path(), std::string("/dev/null")}) {
    try {
      const AtomicFile file(there);
      ADD_FAILURE() << there;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), ::testing::HasSubstr("no regular file"));
    }
  }
  EXPECT_EQ(file_count(), 1);
}

}  // namespace
}  // namespace backplane::core

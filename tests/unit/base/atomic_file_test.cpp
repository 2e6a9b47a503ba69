#include "core/base/atomic_file.hpp"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

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

}  // namespace
}  // namespace backplane::core

// What the provider says of devices before a driver is opened, for systems that are made here as folders.
#include "plugins/opencl/first_look.hpp"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

namespace backplane::opencl {
namespace {

namespace fs = std::filesystem;

class FirstLook : public ::testing::Test {
 protected:
  FirstLook() {
    for (const char* name :
         {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "POCL_DEVICES"})
      ::unsetenv(name);
    fs::remove_all(root_);
    fs::create_directories(folders_.drivers);
    fs::create_directories(folders_.device_files);
    for (const char* name : {"null", "tty0", "vda", "shm"})
      std::ofstream(folders_.device_files / name);
  }
  ~FirstLook() override { fs::remove_all(root_); }

  void list(const char* file, const char* library) {
    std::ofstream(folders_.drivers / file) << library;
  }
  std::string look() const { return why_only_processors(folders_); }

  fs::path root_ = fs::path(::testing::TempDir()) / "first_look";
  SystemFolders folders_{root_ / "vendors", root_ / "dev"};
};

TEST_F(FirstLook, PoclAloneOnAMachineWithoutAcceleratorsIsTheProcessor) {
  list("pocl.icd", "libpocl.so.2.10.0");
  EXPECT_NE(look().find("PoCL"), std::string::npos) << look();
  EXPECT_NE(look().find(folders_.drivers.native()), std::string::npos);
  list("pocl_own.icd", "/opt/pocl/lib/libpocl.so\n");
  list("readme.txt", "libnvidia-opencl.so.1");
  EXPECT_NE(look(), "");
}

TEST_F(FirstLook, AnyOtherDriverMayHaveADevice) {
  EXPECT_EQ(look(), "") << "no driver: enumerate says what to install";
  list("pocl.icd", "libpocl.so.2.10.0");
  list("nvidia.icd", "libnvidia-opencl.so.1\n");
  EXPECT_EQ(look(), "");
  fs::remove_all(folders_.drivers);
  EXPECT_EQ(look(), "");
}

TEST_F(FirstLook, PoclMayServeAnAcceleratorThatIsThere) {
  list("pocl.icd", "libpocl.so.2.10.0");
  for (const char* name : {"dri", "nvidia0", "nvidiactl", "kfd", "mali0", "accel"}) {
    fs::create_directory(folders_.device_files / name);
    EXPECT_EQ(look(), "") << name;
    fs::remove(folders_.device_files / name);
  }
  EXPECT_NE(look(), "");
  fs::remove_all(folders_.device_files);
  EXPECT_EQ(look(), "") << "device files that cannot be listed say nothing";
}

TEST_F(FirstLook, TheEnvironmentMayNameOthers) {
  list("pocl.icd", "libpocl.so.2.10.0");
  for (const char* name :
       {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "POCL_DEVICES"}) {
    ::setenv(name, "anything", 1);
    EXPECT_EQ(look(), "") << name;
    ::setenv(name, "", 1);
    EXPECT_NE(look(), "") << name;
  }
}

}  // namespace
}  // namespace backplane::opencl

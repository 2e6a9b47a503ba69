// The programs that the OpenCL provider keeps on disk.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/fixtures/comma_locale.hpp"
#include "tests/opencl/opencl_device.hpp"

namespace backplane::test_host {
namespace {

std::vector<float> run_neg(const OpenClPlugin& opencl, const std::string& folder) {
  const OpenDevice device(opencl.provider, 0, {{"cache_dir", folder}});
  const TestStream stream(device);
  return NegOnDevice(device, 3).run(stream, {1, 2, 3});
}

const std::vector<float> kNegated{-1, -2, -3};

TEST(OpenClCache, KeepsAProgramAndReadsItInTheNextProcess) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("keeps");
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
  ASSERT_EQ(folder.files().size(), 1u);
  const auto written = std::filesystem::last_write_time(folder.files()[0]);
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
  ASSERT_EQ(folder.files().size(), 1u);
  EXPECT_EQ(std::filesystem::last_write_time(folder.files()[0]), written) << "it was built again";
}

TEST(OpenClCache, IgnoresAndRewritesEntriesThatAreCutOffAlteredOrForeign) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("corrupt");
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
  ASSERT_EQ(folder.files().size(), 1u);
  const std::filesystem::path path = folder.files()[0];
  const std::string good = read_file(path);
  std::string flipped = good, other_key = good;
  flipped[good.size() - 100] = static_cast<char>(flipped[good.size() - 100] ^ 1);
  other_key[60] = static_cast<char>(other_key[60] ^ 1);
  for (const std::string& bad : {std::string(), good.substr(0, 10), good.substr(0, good.size() - 1),
                                 good + "x", flipped, other_key, std::string("something else")}) {
    write_file(path, bad);
    EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
    EXPECT_EQ(folder.files().size(), 1u) << "a temporary file was left";
    EXPECT_NE(read_file(path), bad) << "the bad entry was kept, " << bad.size() << " bytes";
  }
}

/// Numbers of more than three digits stand in the text of the program.
std::vector<float> run_pool(const OpenClPlugin& opencl, const std::string& folder) {
  const OpenDevice device(opencl.provider, 0, {{"cache_dir", folder}});
  const TestStream stream(device);
  NodeUnderTest node("", "MaxPool", 12);
  node.input(BP_FLOAT, {1, 1, 4}).outputs(1);
  node.attribute("kernel_shape", std::vector<std::int64_t>{2});
  KernelUnderTest kernel(device.kernel("MaxPool"), device.raw(), node.raw());
  kernel.prepare({floats({1, 1, 4}, {1, 3, 2, 4})}, {false}, 1);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 64), y(device, BP_MEMORY_DEVICE, 64);
  upload(device, stream, {1, 3, 2, 4}, {nullptr, x.raw()});
  check(kernel.compute({{nullptr, x.raw()}}, {{nullptr, y.raw()}}, {}, {}, stream.raw()));
  return download(device, stream, {nullptr, y.raw()}, 3);
}

TEST(OpenClCache, TheProgramsLocaleChangesNeitherTextsNorNames) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("locale");
  {
    const CommaLocale commas;
    EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
    EXPECT_EQ(run_pool(opencl, folder.path()), (std::vector<float>{3, 3, 4}));
  }
  const auto files = folder.files();
  EXPECT_EQ(files.size(), 2u);
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
  EXPECT_EQ(run_pool(opencl, folder.path()), (std::vector<float>{3, 3, 4}));
  EXPECT_EQ(folder.files(), files) << "they were built again";
}

std::uint64_t context_of(const OpenDevice& device) {
  std::uint64_t handle = 0;
  check(device->native(device.raw(), BP_NATIVE_DEVICE, nullptr, nullptr, &handle));
  return handle;
}

TEST(OpenClCache, WithoutAFolderSessionsOfAProcessorShareAContextAndSoWhatIsBuiltInIt) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  if (opencl.infos[0]->type != BP_DEVICE_TYPE_CPU) GTEST_SKIP() << "the device is no processor";
  const TestFolder folder("own_context");
  const OpenDevice first(opencl.provider, 0, kNoCache);
  const OpenDevice with_folder(opencl.provider, 0, {{"cache_dir", folder.path()}});
  EXPECT_NE(context_of(with_folder), context_of(first));
  for (int opened = 0; opened < 2; ++opened) {  // one after another, and beside the first
    const OpenDevice next(opencl.provider, 0, kNoCache);
    EXPECT_EQ(context_of(next), context_of(first));
    for (const OpenDevice* device : {&first, &next}) {
      const TestStream stream(*device);
      EXPECT_EQ(NegOnDevice(*device, 3).run(stream, {1, 2, 3}), kNegated);
    }
  }
}

TEST(OpenClCache, AnEntryThatCannotBeReadIsMadeAgain) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const TestFolder folder("unreadable");
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
  ASSERT_EQ(folder.files().size(), 1u);
  const std::filesystem::path path = folder.files()[0];
  const auto replace = [&](const auto& make) {
    std::filesystem::remove_all(path);
    make();
    EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
    EXPECT_EQ(folder.files(), std::vector{path}) << "a temporary file was left";
  };
  replace([&] { std::filesystem::create_directory(path); });
  // A folder with something in it stays, and each session builds the program.
  replace([&] { std::filesystem::create_directories(path / "inner"); });
  EXPECT_TRUE(std::filesystem::is_directory(path));
  replace([&] { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); });
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  replace([&] { std::filesystem::create_symlink(path, path); });
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST(OpenClCache, WorksWithoutAFolderThatCanBeWritten) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  EXPECT_EQ(run_neg(opencl, "/proc/no_such_folder"), kNegated);
  EXPECT_EQ(run_neg(opencl, "/dev/null/below_a_file"), kNegated);
}

/// What each process does to the folder that they share.
void use_shared_folder(const OpenClPlugin& opencl, const std::string& folder) {
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(run_neg(opencl, folder), kNegated);
    // What others may do at any time.
    std::error_code ignored;
    if (round % 3 == 0) std::filesystem::remove_all(folder, ignored);
  }
  EXPECT_EQ(run_neg(opencl, folder), kNegated);
}

/// The children are this program and this test, told the folder by a variable.
TEST(OpenClCache, SeveralProcessesShareAFolder) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  if (const char* const shared = std::getenv("BACKPLANE_TEST_OPENCL_CACHE"))
    return use_shared_folder(opencl, shared);
  const TestFolder folder("shared");
  std::string command;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (int child = 0; child < 4; ++child) {
    command += "BACKPLANE_TEST_OPENCL_CACHE='" + folder.path() + "' '" + program +
               "' --gtest_filter='*SeveralProcessesShareAFolder' --gtest_output= >/dev/null & p" +
               std::to_string(child) + "=$!; ";
  }
  command += "wait $p0 && wait $p1 && wait $p2 && wait $p3";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(folder.files().size(), 1u);
  EXPECT_EQ(run_neg(opencl, folder.path()), kNegated);
}

}  // namespace
}  // namespace backplane::test_host

// What the host finds in kernels that a GPU might compute otherwise: each fault once, and the same kernel without it.
#include "tests/cuda/memory_check.hpp"

#include "plugins/common/kernels/prelude.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "tests/cuda/cuda_test.hpp"
#include "tests/cuda/host_kernels.hpp"

namespace backplane::cuda {
namespace {

class CudaMemoryCheck : public CudaTest {
 protected:
  CudaMemoryCheck() { run_kernels_on_host(); }

  /// What is found when `groups` groups of 64 items do it, with 256 floats at y; empty: nothing.
  static std::string fault_in(const std::string& body, unsigned groups = 1) {
    const std::string words =
        sdk::message("#define GROUP 64\n#define LANES 64\n#define HELD 0\n#define SHUFFLED 32\n",
                     "#define SLOT_STEP 1\n", common::kPrelude, common::kRowFunctions);
    const std::string source = sdk::message(
        words, "KERNEL run(OUT(f32, y), IN(f32, x)) {\n  int item = (int)LOCAL_ID(0);\n", body,
        "\n}\n");
    std::vector<float> floats(256);
    float* y = floats.data();
    std::uint64_t at = 0;
    void* arguments[] = {&y, &at, &y, &at, &at, &at};
    try {
      stand_in().kernel(source, {groups, 1, 1}, {64, 1, 1}, arguments);
    } catch (const std::logic_error& error) {
      const std::string text = error.what();
      return text.substr(0, text.find(", in "));
    }
    return "";
  }
  static void expect(const std::string& fault, const std::string& part) {
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  }
};

TEST_F(CudaMemoryCheck, LocalMemoryIsReadAfterABarrierAndWrittenAfterTheNext) {
  if (!are_accesses_seen()) GTEST_SKIP() << "a sanitizer watches in this program";
  const auto turns = [](const std::string& before, const std::string& after) {
    return sdk::message("LOCAL float all[64]; for (int i = 0; i < 2; ++i) { all[item] = (float)i; ",
                        before, " y[item] = all[63 - item]; ", after, " }");
  };
  EXPECT_EQ(fault_in(turns("BARRIER;", "BARRIER;")), "");
  // Items that take turns would see nothing of this: each reads what an earlier one wrote.
  expect(fault_in("LOCAL float first; if (item == 0) first = 1; y[item] = first; BARRIER;"),
         "local memory");
  expect(fault_in(turns("", "BARRIER;")), "local memory");
  expect(fault_in(turns("BARRIER;", "")), "is read by one and written by another");
  expect(fault_in("LOCAL float all[64]; BARRIER; all[item / 2] = 1;"), "is written by two");
  expect(
      fault_in("LOCAL float all[64]; if (item > 0) all[item] = 1; BARRIER; y[item] = all[item];"),
      "where nothing was written");
  EXPECT_EQ(
      fault_in("LOCAL u32 sum; if (item == 0) sum = 0; BARRIER; atomicAdd(&sum, 1u); BARRIER; "
               "y[item] = (float)sum;"),
      "");
}

TEST_F(CudaMemoryCheck, GlobalMemoryIsNotOrderedAmongGroups) {
  if (!are_accesses_seen()) GTEST_SKIP() << "a sanitizer watches in this program";
  EXPECT_EQ(fault_in("y[GROUP_ID(0) * 64 + item] = x[GROUP_ID(0) * 64 + item];", 2), "");
  expect(fault_in("y[item] = 1;", 2), "global memory");
  expect(fault_in("y[item + 1] = x[item];"), "is read by one and written by another");
  expect(fault_in("BARRIER; y[item] = x[0];"), "global memory");
  EXPECT_EQ(fault_in("float first = x[0]; BARRIER; y[item] = first;"), "");
  expect(fault_in("float first = x[0]; BARRIER; y[item] = first;", 2), "global memory");
}

TEST_F(CudaMemoryCheck, PartsOfAWordAreApartAndAWordIsAllItsParts) {
  if (!are_accesses_seen()) GTEST_SKIP() << "a sanitizer watches in this program";
  const std::string halves = "unsigned short *half = (unsigned short *)y; ";
  EXPECT_EQ(fault_in(halves + "half[item] = 1; if (item == 0) y[32] = half[0];"), "");
  expect(fault_in(halves + "half[item] = 1; if (item == 0) y[31] = 1;"), "is written by two");
  expect(fault_in(halves + "y[item] = 1; half[2 * ((item + 1) % 64) + 1] = 1;"),
         "is written by two");
  expect(fault_in(halves + "half[item] = 1; float got = x[item];"),
         "is read by one and written by another");
  expect(fault_in(halves + "float got = x[item]; half[127 - item] = 1;"),
         "is read by one and written by another");
  EXPECT_EQ(fault_in(halves + "y[item] = 1; BARRIER; half[127 - item] = 1; BARRIER; y[item] = 1;"),
            "");
}

TEST_F(CudaMemoryCheck, ItemsMeetAtOneBarrierAndInAllShuffles) {
  expect(fault_in("if (item < 32) { BARRIER; } else { BARRIER; }"), "another barrier");
  EXPECT_EQ(fault_in("if (item >= 32) return; BARRIER;"), "");
  const std::string shuffle =
      "float other; SHUFFLE(float, other, (float)item, 1); y[item] = other;";
  EXPECT_EQ(fault_in(shuffle), "");
  EXPECT_EQ(fault_in(sdk::message("if (item < 32) { ", shuffle, " }")), "");
  expect(fault_in(sdk::message("if (item < 48) { ", shuffle, " }")), "do not meet");
  expect(fault_in(sdk::message("if (item == 40) return; ", shuffle)), "do not meet");
}

TEST_F(CudaMemoryCheck, AGroupHasSoMuchLocalMemory) {
  EXPECT_EQ(fault_in("LOCAL float all[12288]; all[item] = 1;"), "");
  expect(fault_in("LOCAL float all[12289]; all[item] = 1;"), "bytes of local memory");
}

}  // namespace
}  // namespace backplane::cuda

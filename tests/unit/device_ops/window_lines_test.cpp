// How loops over windows are unrolled, in the texts of processors.
#include "plugins/common/device_ops/window_lines.hpp"

#include <gtest/gtest.h>

#include "plugins/common/device_ops/provider.hpp"

const char* backplane::device_ops::provider_name() { return "unit"; }

namespace backplane::device_ops {
namespace {

std::string words_of(std::int64_t height, std::int64_t width) {
  Window window;
  window.kernel = {1, height, width};
  KernelText text;
  WindowLines{}.define(text, window);
  return text.str();
}

/// How a loop is unrolled: what a #define says.
std::string unrolling(const std::string& words, const std::string& name) {
  const std::size_t begin = words.find("#define " + name + ' ');
  if (begin == std::string::npos) return "none";
  const std::size_t word = begin + name.size() + 9;
  return words.substr(word, words.find('\n', begin) - word);
}

TEST(WindowLines, SmallWindowsAreUnrolledAndLargeOnesAreNot) {
  const std::string all = "_Pragma(\"unroll\")", one = "_Pragma(\"unroll 1\")";
  struct Case {
    std::int64_t height, width;
    std::string down, across;
  };
  for (const Case& row : {Case{3, 3, all, all},
                          {7, 7, all, all},
                          {1, 64, all, all},
                          {64, 1, all, all},
                          {9, 9, one, all},
                          {1, 65, one, one},
                          {1, 1010, one, one},
                          {400, 400, one, one}}) {
    const std::string words = words_of(row.height, row.width);
    EXPECT_EQ(unrolling(words, "UNROLL_TAPS"), row.down) << row.height << " x " << row.width;
    EXPECT_EQ(unrolling(words, "UNROLL_ACROSS"), row.across) << row.height << " x " << row.width;
  }
}

}  // namespace
}  // namespace backplane::device_ops

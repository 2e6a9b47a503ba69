#include "core/base/quote.hpp"

#include <gtest/gtest.h>

namespace backplane::core {
namespace {

TEST(Quoted, KeepsControlCharactersOffTheLine) {
  EXPECT_EQ(quoted("conv1"), "'conv1'");
  EXPECT_EQ(quoted("a\nb\x1b[31m"), "'a\\x0ab\\x1b[31m'");
  EXPECT_EQ(quoted("größe"), "'größe'");
}

TEST(Quoted, CutsLongNamesBetweenCharacters) {
  const std::string shown = quoted(std::string(119, 'x') + "ü" + std::string(50, 'y'));
  EXPECT_EQ(shown, "'" + std::string(119, 'x') + "...'");
}

TEST(SingleLine, JoinsLinesAndCuts) {
  EXPECT_EQ(single_line("  one\n\ttwo\r\n three "), "one two three");
  EXPECT_EQ(single_line("abcdef", 3), "abc...");
  EXPECT_EQ(single_line("bell\a"), "bell");
}

}  // namespace
}  // namespace backplane::core

#include "core/base/log.hpp"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace backplane::core {
namespace {

using Messages = std::vector<std::pair<LogLevel, std::string>>;

TEST(Logger, GivesTheSinkWhatIsAtOrAboveItsLevel) {
  Messages messages;
  const Logger logger(LogLevel::Warning, [&](LogLevel level, std::string_view message) {
    messages.emplace_back(level, message);
  });
  logger.info("not this");
  logger.warning("two and ", 2, " {} %s");
  logger.error("three");
  EXPECT_EQ(messages,
            (Messages{{LogLevel::Warning, "two and 2 {} %s"}, {LogLevel::Error, "three"}}));
}

TEST(Logger, LevelCanChange) {
  Messages messages;
  Logger logger(LogLevel::Off, [&](LogLevel level, std::string_view message) {
    messages.emplace_back(level, message);
  });
  logger.error("not this");
  logger.set_level(LogLevel::Debug);
  EXPECT_EQ(logger.level(), LogLevel::Debug);
  logger.debug("this");
  EXPECT_EQ(messages, (Messages{{LogLevel::Debug, "this"}}));
}

TEST(Logger, SwallowsWhatTheSinkThrows) {
  const Logger logger(LogLevel::Trace,
                      [](LogLevel, std::string_view) { throw std::runtime_error("full disk"); });
  EXPECT_NO_THROW(logger.error("x"));
}

TEST(Logger, LevelsHaveNames) {
  EXPECT_EQ(log_level_named("warning"), LogLevel::Warning);
  EXPECT_EQ(name(LogLevel::Off), "off");
  EXPECT_THROW(log_level_named("loud"), Error);
}

}  // namespace
}  // namespace backplane::core

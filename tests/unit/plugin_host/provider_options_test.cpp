#include "core/plugin_host/provider_options.hpp"

#include <array>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

bp_option option(const char* name, std::int32_t type, const char* default_value,
                 const char* range) {
  bp_option made{};
  made.struct_size = sizeof(made);
  made.name = name;
  made.doc = "";
  made.default_value = default_value;
  made.range = range;
  made.type = type;
  return made;
}

class ProviderOptions : public testing::Test {
 protected:
  ProviderOptions() {
    for (const bp_option& one : all_) pointers_.push_back(&one);
    provider_.struct_size = sizeof(provider_);
    provider_.name = "fake";
    provider_.options = pointers_.data();
    provider_.option_count = pointers_.size();
  }
  std::string failure(const OptionList& given) {
    try {
      complete_options(provider_, given);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument);
      return error.message();
    }
    return "";
  }
  std::array<bp_option, 5> all_{option("threads", BP_OPTION_INT, "4", "1..64"),
                                option("mode", BP_OPTION_STRING, "auto", "auto|fast"),
                                option("rate", BP_OPTION_FLOAT, "0.5", "0..1"),
                                option("trace", BP_OPTION_BOOL, "false", ""),
                                option("path", BP_OPTION_STRING, "", "")};
  std::vector<const bp_option*> pointers_;
  bp_provider provider_{};
};

TEST(OptionRanges, AreRanges) {
  const struct {
    std::int32_t type;
    const char* range;
    bool is_right;
  } cases[] = {{BP_OPTION_INT, "1..64", true},     {BP_OPTION_INT, "..64", true},
               {BP_OPTION_INT, "-3..", true},      {BP_OPTION_INT, "", true},
               {BP_OPTION_INT, nullptr, true},     {BP_OPTION_INT, "5..5", true},
               {BP_OPTION_INT, "1-9", false},      {BP_OPTION_INT, "nine..one", false},
               {BP_OPTION_INT, "9..1", false},     {BP_OPTION_INT, "1..2..3", false},
               {BP_OPTION_INT, "0.5..1", false},   {BP_OPTION_FLOAT, "0.5..1", true},
               {BP_OPTION_FLOAT, "nan..1", false}, {BP_OPTION_STRING, "1-9", true}};
  for (const auto& one : cases) {
    const bp_option made = option("level", one.type, "3", one.range);
    const auto why = wrong_range(made);
    EXPECT_EQ(!why, one.is_right) << (one.range == nullptr ? "NULL" : one.range);
    if (why) {
      EXPECT_NE(why->find("is no range \"low..high\""), std::string::npos) << *why;
    }
  }
}

TEST_F(ProviderOptions, AreCompletedByDefaults) {
  const OptionList complete = complete_options(provider_, {{"mode", "fast"}, {"path", "/x y"}});
  const OptionList expected{
      {"threads", "4"}, {"mode", "fast"}, {"rate", "0.5"}, {"trace", "false"}, {"path", "/x y"}};
  EXPECT_EQ(complete, expected);
}

TEST_F(ProviderOptions, TheLastOfTwoValuesCounts) {
  EXPECT_EQ(complete_options(provider_, {{"threads", "2"}, {"threads", "3"}})[0].second, "3");
}

TEST_F(ProviderOptions, UnknownNamesGetTheNearestOne) {
  const std::string message = failure({{"thread", "2"}});
  EXPECT_NE(message.find("'fake'"), std::string::npos) << message;
  EXPECT_NE(message.find("'thread'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'threads'"), std::string::npos) << message;
  EXPECT_NE(failure({{"zzz", "2"}}).find("known: threads, mode"), std::string::npos);
}

TEST_F(ProviderOptions, ValuesAreChecked) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"threads", "0"}, {"threads", "65"}, {"threads", "2x"},
      {"threads", ""},  {"threads", " 2"}, {"threads", "99999999999999999999"},
      {"mode", "slow"}, {"mode", "AUTO"},  {"rate", "1.01"},
      {"rate", "nan"},  {"rate", "-0.1"},  {"trace", "maybe"},
      {"trace", "1"}};
  for (const auto& [name, value] : wrong) {
    const std::string message = failure({{name, value}});
    EXPECT_NE(message.find("'" + name + "'"), std::string::npos) << name << "=" << value;
    EXPECT_NE(message.find("'" + value + "'"), std::string::npos) << message;
  }
  const OptionList right{{"threads", "1"}, {"threads", "64"}, {"rate", "1"},
                         {"rate", "1e-3"}, {"mode", "auto"},  {"trace", "true"}};
  for (const auto& given : right) EXPECT_EQ(failure({given}), "") << given.first << given.second;
}

TEST_F(ProviderOptions, OpenRangesBoundOneSide) {
  EXPECT_FALSE(wrong_value(option("a", BP_OPTION_INT, "", "1.."), "1000000"));
  EXPECT_TRUE(wrong_value(option("a", BP_OPTION_INT, "", "1.."), "0"));
  EXPECT_FALSE(wrong_value(option("a", BP_OPTION_INT, "", "..8"), "-5"));
  EXPECT_TRUE(wrong_value(option("a", BP_OPTION_FLOAT, "", "..8"), "8.5"));
  EXPECT_FALSE(wrong_value(option("a", BP_OPTION_INT, "", nullptr), "-5"));
}

TEST_F(ProviderOptions, TypesOfNewerPluginsTakeEverything) {
  EXPECT_FALSE(wrong_value(option("a", 42, "", "x"), "anything"));
}

}  // namespace
}  // namespace backplane::core

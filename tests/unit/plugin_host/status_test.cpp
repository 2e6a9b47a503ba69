#include "core/plugin_host/status.hpp"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <stdexcept>
#include <string>

namespace backplane::core {
namespace {

std::string message_of(const bp_status* status) {
  bp_str text{nullptr, 0};
  status_message(status, &text);
  return {text.data, static_cast<std::size_t>(text.size)};
}

TEST(Status, CarriesCodeAndMessage) {
  bp_status* status = make_status(Code::Unsupported, "no such layout");
  EXPECT_EQ(status_code(status), BP_UNSUPPORTED);
  EXPECT_EQ(message_of(status), "no such layout");
  const Error error = take_error(status);
  EXPECT_EQ(error.code(), Code::Unsupported);
  EXPECT_EQ(error.message(), "no such layout");
}

TEST(Status, NullIsSuccess) {
  EXPECT_EQ(status_code(nullptr), BP_OK);
  EXPECT_EQ(message_of(nullptr), "");
  status_free(nullptr);
  EXPECT_NO_THROW(check_status(nullptr, "anything"));
}

TEST(Status, ThrowsWithThePlaceInFront) {
  try {
    check_status(make_status(Code::Failed, "negative size"), "node 'a'");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Failed);
    EXPECT_EQ(error.message(), "node 'a': negative size");
  }
}

TEST(Status, CutsLongMessagesBetweenCharacters) {
  std::string text(16 * 1024 - 1, 'x');
  text += "\u20ac and more";  // three bytes that would straddle the limit
  bp_status* status = status_new(BP_FAILED, text.data(), text.size());
  EXPECT_EQ(message_of(status), std::string(16 * 1024 - 1, 'x'));
  status_free(status);
}

TEST(Status, MakesMessagesOneLineOfUtf8) {
  const std::string text = "a\nb\x80\xc3\xa4\xed\xa0\x80z\xf0\x9f";
  bp_status* status = status_new(BP_FAILED, text.data(), text.size());
  EXPECT_EQ(message_of(status), "a b?\xc3\xa4???z??");
  status_free(status);
}

TEST(Status, TakesAMessageThatIsNull) {
  bp_status* status = status_new(BP_FAILED, nullptr, 12);
  EXPECT_EQ(message_of(status), "");
  EXPECT_EQ(take_error(status).message(), "no reason was given");
}

TEST(Status, UnknownCodesAreInternal) {
  for (const bp_code code : {bp_code{77}, bp_code{-1}}) {
    const Error error = take_error(status_new(code, "odd", 3));
    EXPECT_EQ(error.code(), Code::Internal);
    EXPECT_NE(error.message().find(std::to_string(code)), std::string::npos) << error.message();
  }
}

TEST(Status, OneThatSaysSuccessIsAMistake) {
  const Error error = take_error(status_new(BP_OK, "odd", 3));
  EXPECT_EQ(error.code(), Code::Internal);
  EXPECT_EQ(error.message(), "a status of code BP_OK was returned, and success is NULL: odd");
}

TEST(Status, TurnsExceptionsIntoStatuses) {
  bp_status* status = status_of([] { throw Error(Code::DeviceLost, "gone"); });
  EXPECT_EQ(status_code(status), BP_DEVICE_LOST);
  status_free(status);
  status = status_of([] { throw std::bad_alloc(); });
  EXPECT_EQ(status_code(status), BP_OUT_OF_MEMORY);
  status_free(status);
  status = status_of([] { throw std::runtime_error("odd"); });
  EXPECT_EQ(status_code(status), BP_INTERNAL);
  EXPECT_EQ(message_of(status), "odd");
  status_free(status);
  status = status_of([] { throw 3; });
  EXPECT_EQ(status_code(status), BP_INTERNAL);
  status_free(status);
  EXPECT_EQ(status_of([] {}), nullptr);
}

}  // namespace
}  // namespace backplane::core

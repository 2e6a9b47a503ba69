// Sessions through the host interface: what the tests of unit_session share.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <string>
#include <vector>

#include <backplane/backplane.hpp>

#include "tests/unit/runtime/model_maker.hpp"

namespace backplane::runtime_test {

using Dims = std::vector<std::int64_t>;

template <class T>
Value tensor(const Dims& dims, const std::vector<T>& elements) {
  return Value::tensor<T>(dims, elements);
}

template <class T = float>
std::vector<T> elements(const ValueView& value) {
  const T* first = value.data<T>();
  return value.size() == 0 ? std::vector<T>() : std::vector<T>(first, first + value.size());
}

/// Opens models in one environment of two threads.
class SessionTest : public ::testing::Test {
 protected:
  static const Environment& environment() {
    static const Environment shared(
        Options().set("environment.threads", "2").set("environment.log_level", "error"));
    return shared;
  }
  /// The bytes live as long as the test.
  Session open(const ModelMaker& maker, const Options& options = on_cpu()) {
    models_.push_back(maker.bytes());
    return {environment(), models_.back().data(), models_.back().size(), options};
  }
  static Options on_cpu() {
    Options options;
    options.set("providers", "cpu");
    return options;
  }

  /// The message of the error that `body` ends with: one line, with the code.
  static std::string failure(const std::function<void()>& body,
                             std::int32_t code = BACKPLANE_INVALID_ARGUMENT) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing failed";
    return "";
  }
  static void expect_words(const std::string& message, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_THAT(message, ::testing::HasSubstr(word));
  }

  std::deque<std::string> models_;
};

}  // namespace backplane::runtime_test

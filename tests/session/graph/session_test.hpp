// What the tests of sessions share: one environment, tensors in a line, errors as text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "backplane/backplane.hpp"

namespace backplane::session_test {

using nlohmann::json;
using Names = std::vector<std::string>;

/// One for the program; two threads, errors alone are logged.
inline const Environment& environment() {
  static const Environment shared(
      Options().set("environment.threads", "2").set("environment.log_level", "error"));
  return shared;
}

inline GraphType floats(const std::vector<std::int64_t>& dims,
                        const std::vector<std::string>& symbols = {}) {
  return GraphType::tensor(ElementType::Float, dims, symbols);
}

inline Value tensor(const std::vector<std::int64_t>& dims, const std::vector<float>& elements) {
  return Value::tensor<float>(dims, elements);
}
/// A vector.
inline Value tensor(const std::vector<float>& elements) {
  return tensor({static_cast<std::int64_t>(elements.size())}, elements);
}

inline std::vector<float> elements(const ValueView& value) {
  const auto* data = value.data<float>();
  return {data, data + value.size()};
}

inline Names names(const std::vector<ValueInfo>& infos) {
  Names result;
  for (const ValueInfo& info : infos) result.push_back(info.name);
  return result;
}

/// The message of the Error that `body` throws; its code goes to *code.
template <class Body>
std::string error_of(Body&& body, std::int32_t* code = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  }
  return "no error";
}

/// A folder of a test's own, gone with it.
class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "backplane_session_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a test");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t file_count() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace backplane::session_test

// The one exception type of the core.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "core/base/text_stream.hpp"

namespace backplane::core {

/// What the receiver of an error should do next. The numbers are those of the host interface, and up to 11 of the plugin ABI.
enum class Code : std::int32_t {
  Ok = 0,
  InvalidArgument = 1,  ///< mend the request, the model or the feeds
  Unsupported = 2,      ///< nobody handles it; the reasons are in the message
  NotFound = 3,
  OutOfMemory = 4,
  DeviceLost = 5,
  Cancelled = 6,
  Failed = 7,  ///< these input values cannot be computed with
  Internal = 8,
  Unimplemented = 9,
  Incompatible = 10,
  Timeout = 11,
  FileFailed = 12,  ///< a file could not be written, or changed while it was in use
};

/// An error: a code and one line that names the file, node, value, option or device, and what to do.
class Error : public std::exception {
 public:
  Error(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

  /// The same error with `where` in front: Error(...).within("node 'conv1'") is "node 'conv1': ...".
  Error within(const std::string& where) const { return {code_, where + ": " + message_}; }

 private:
  Code code_;
  std::string message_;
};

/// Joins the parts as a stream would.
template <class... Parts>
std::string text(const Parts&... parts) {
  TextOutput stream;
  (stream << ... << parts);
  return stream.str();
}

/// Throws InvalidArgument: the request, the model or the feeds are wrong.
template <class... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw Error(Code::InvalidArgument, text(parts...));
}

}  // namespace backplane::core

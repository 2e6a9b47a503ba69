// How a command ends.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "backplane/backplane.hpp"

namespace backplane::cli {

inline constexpr int kDone = 0;
inline constexpr int kCheckFailed = 1;  ///< a comparison found a difference
inline constexpr int kWrongRequest =
    2;  ///< usage, configuration, model, input, plugin: found before the run
inline constexpr int kRunFailed = 3;  ///< a value out of range, memory, a device, a full disk

/// The end of a command: its exit code, and the line that is printed.
class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Joins the parts as a stream would.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <class... Parts>
[[noreturn]] void wrong_request(const Parts&... parts) {
  throw Failure(kWrongRequest, text(parts...));
}

template <class... Parts>
[[noreturn]] void run_failed(const Parts&... parts) {
  throw Failure(kRunFailed, text(parts...));
}

/// What a code of backplane::Error means for the exit code, while loading and while running.
int exit_code_of_load(int code);
int exit_code_of_run(int code);

/// Calls `body`; an error of the host library in it is one of the run.
template <class Body>
auto as_run(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Error& error) {
    throw Failure(exit_code_of_run(error.code()), error.what());
  }
}

/// The text on one line, without control characters.
std::string one_line(const std::string& message);

}  // namespace backplane::cli

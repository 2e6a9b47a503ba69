// Backplane SDK: errors. Exceptions inside a plugin, statuses at its border.
#pragma once

#include <exception>
#include <locale>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#include "backplane/plugin_api.h"

namespace backplane::sdk {

/// The host's table, set by `init`. Every plugin has its own, however it was compiled: visible, the variable would be one for
/// the whole process (STB_GNU_UNIQUE), and the first plugin that ends would take it from the others.
__attribute__((visibility("hidden"))) inline const bp_host_api* host_table = nullptr;

/// The host's functions. Valid between `init` and `shutdown`.
inline const bp_host_api& host() { return *host_table; }

/// An error with one of the BP_* codes; becomes a status at the border of the plugin.
class Error : public std::exception {
 public:
  Error(bp_code code, std::string message) : code_(code), message_(std::move(message)) {}
  bp_code code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  bp_code code_;
  std::string message_;
};

/// The parts, written one after another: message("axis ", axis, " is out of range"). Numbers are C's ("1234.5"), whatever
/// locale the program has set: sources and keys are made of messages, too.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  (text << ... << parts);
  return text.str();
}

/// This node, type or shape is not handled; the text is the reason that users will read.
template <class... Parts>
[[noreturn]] void unsupported(const Parts&... parts) {
  throw Error(BP_UNSUPPORTED, message(parts...));
}

/// The model or the feeds break the operator's rules.
template <class... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw Error(BP_INVALID_ARGUMENT, message(parts...));
}

/// These input values cannot be computed with.
template <class... Parts>
[[noreturn]] void failed(const Parts&... parts) {
  throw Error(BP_FAILED, message(parts...));
}

/// Throws what a host function returned; frees the status.
inline void check(bp_status* status) {
  if (status == nullptr) return;
  bp_str text{nullptr, 0};
  host().status_message(status, &text);
  Error error(host().status_code(status), std::string(text.data, text.size));
  host().status_free(status);
  throw error;
}

inline bp_status* make_status(bp_code code, const char* text) noexcept {
  return host().status_new(code, text, std::char_traits<char>::length(text));
}

/// Runs `body` and turns whatever it throws into a status: nothing unwinds into another module.
template <class Body>
bp_status* guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (const Error& error) {
    return make_status(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return make_status(BP_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::exception& error) {
    return make_status(BP_INTERNAL, error.what());
  } catch (...) {
    return make_status(BP_INTERNAL, "an exception not derived from std::exception");
  }
}

/// A zeroed struct of the ABI with its size filled in.
template <class Struct>
Struct abi_struct() {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}

}  // namespace backplane::sdk

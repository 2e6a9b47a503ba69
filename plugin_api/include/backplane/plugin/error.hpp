// Backplane SDK: errors. Exceptions inside a plugin, statuses at its border.
#pragma once

#include <exception>
#include <initializer_list>
#include <locale>
#include <new>
#include <ostream>
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

/// A part of a message: anything that a stream takes, which must live as long as the message is made. Parts know how they
/// are written, so that a message is one function and not one for each list of types.
class MessagePart {
 public:
  MessagePart(const char* text)
      : value_(text), write_([](std::ostream& out, const void* value) {
          out << static_cast<const char*>(value);
        }) {}
  /// How numbers after it are written: std::hex.
  MessagePart(std::ios_base& (*form)(std::ios_base&))
      : value_(reinterpret_cast<const void*>(form)),
        write_([](std::ostream& out, const void* value) {
          out << reinterpret_cast<std::ios_base& (*)(std::ios_base&)>(const_cast<void*>(value));
        }) {}
  template <class Part>
  MessagePart(const Part& part)
      : value_(&part), write_([](std::ostream& out, const void* value) {
          out << *static_cast<const Part*>(value);
        }) {}
  void write(std::ostream& out) const { write_(out, value_); }

 private:
  const void* value_;
  void (*write_)(std::ostream& out, const void* value);
};

inline std::string message_of(std::initializer_list<MessagePart> parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  for (const MessagePart& part : parts) part.write(text);
  return text.str();
}

[[noreturn]] inline void throw_message(bp_code code, std::initializer_list<MessagePart> parts) {
  throw Error(code, message_of(parts));
}

/// The parts, written one after another: message("axis ", axis, " is out of range"). Numbers are C's ("1234.5"), whatever
/// locale the program has set: sources and keys are made of messages, too.
template <class... Parts>
std::string message(const Parts&... parts) {
  return message_of({parts...});
}

/// This node, type or shape is not handled; the text is the reason that users will read.
template <class... Parts>
[[noreturn]] void unsupported(const Parts&... parts) {
  throw_message(BP_UNSUPPORTED, {parts...});
}

/// The model or the feeds break the operator's rules.
template <class... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw_message(BP_INVALID_ARGUMENT, {parts...});
}

/// These input values cannot be computed with.
template <class... Parts>
[[noreturn]] void failed(const Parts&... parts) {
  throw_message(BP_FAILED, {parts...});
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

/// What is being handled, as a status. Apart from what was tried, which would be so much longer in each of its forms.
inline bp_status* status_of_exception() noexcept {
  try {
    throw;
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

/// Runs `body` and turns whatever it throws into a status: nothing unwinds into another module.
template <class Body>
bp_status* guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (...) {
    return status_of_exception();
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

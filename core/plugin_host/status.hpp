// Statuses: how errors cross the plugin ABI.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "backplane/plugin_api.h"
#include "core/base/error.hpp"

namespace backplane::core {

/// A new status; never null. The text is cut at 16 KiB; bytes that are no UTF-8 become '?', control
/// characters spaces, so that a message stays one line whoever wrote it. Short of memory, the code
/// alone survives.
bp_status* make_status(Code code, std::string_view message) noexcept;

/// The status as an error; frees it. Codes nobody knows become Internal.
Error take_error(bp_status* status);

/// Throws what a plugin returned, with `where` in front; frees it.
inline void check_status(bp_status* status, std::string_view where) {
  if (status != nullptr) throw take_error(status).within(std::string(where));
}

/// The functions that plugins get (bp_host_api). Null is success in all of them.
bp_status* status_new(bp_code code, const char* message, std::uint64_t size) noexcept;
bp_code status_code(const bp_status* status) noexcept;
void status_message(const bp_status* status, bp_str* out) noexcept;
void status_free(bp_status* status) noexcept;

/// Runs `body`, turning what it throws into a status: for host functions that plugins call.
template <class Body>
bp_status* status_of(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    return make_status(error.code(), error.message());
  } catch (const std::bad_alloc&) {
    return make_status(Code::OutOfMemory, "host memory is exhausted");
  } catch (const std::exception& error) {
    return make_status(Code::Internal, error.what());
  } catch (...) {  // a plugin's exception that came through a callback: it must not go on
    return make_status(Code::Internal, "an exception not derived from std::exception");
  }
}

}  // namespace backplane::core

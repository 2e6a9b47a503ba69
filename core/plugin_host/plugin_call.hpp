// Calls into plugins. Nothing may be thrown across the ABI; what is, all the same, must not unwind the host past work that
// goes on, nor end the process.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "backplane/plugin_api.h"
#include "core/base/error.hpp"

namespace backplane::core {

/// What is being thrown, as a status. For catch clauses.
bp_status* status_of_thrown() noexcept;

/// Logs what is being thrown. For catch clauses; `where` says who threw it, and in which function.
void log_thrown(const char* where) noexcept;

/// Runs a call into a plugin that returns a status; what it throws becomes one, too. Free where nothing is thrown.
template <class Call>
bp_status* call_for_status(Call&& call) noexcept {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    return status_of_thrown();
  }
}

/// Runs a call into a plugin that has no way to fail; what it throws is logged.
template <class Call>
void call_without_status(const char* where, Call&& call) noexcept {
  try {
    std::forward<Call>(call)();
  } catch (...) {
    log_thrown(where);
  }
}

/// Runs a call into a plugin; what it throws across the ABI becomes an Internal error, `what` in front.
template <class Call>
auto call_plugin(const std::string& what, Call&& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;  // ours: from a callback of the host
  } catch (const std::exception& error) {
    throw Error(Code::Internal,
                what + ": it threw an exception across the plugin interface: " + error.what());
  } catch (...) {
    throw Error(Code::Internal, what + ": it threw an exception across the plugin interface");
  }
}

}  // namespace backplane::core

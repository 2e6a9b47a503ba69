// The other side of the plugin ABI, without the runtime: enough of a host to drive one plugin by hand, and to see what
// it does. Everything that it gives to a plugin is larger than this header's struct and ends in bytes of 0xA5, as the
// structs of a newer host would be.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "backplane/plugin_api.h"

namespace backplane::cli::check {

/// A struct of the ABI with a tail that this header does not know.
template <class Struct>
struct Grown {
  Struct base{};
  unsigned char tail[64];
  Grown() {
    std::memset(tail, 0xA5, sizeof tail);
    base.struct_size = static_cast<std::uint32_t>(sizeof(Grown));
  }
};

/// What a call of the plugin came to.
struct Outcome {
  bp_code code = BP_OK;
  std::string message;
  bool is_ok() const { return code == BP_OK; }
};
/// The code's name and the message, for reports.
std::string described(const Outcome& outcome);

/// A function of the plugin threw: the process is in no known state any more.
class Escaped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call that has to succeed did not; the suite cannot go on with this object.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The table that the plugin gets by `init`. One for the process.
const bp_host_api* host_api();
/// The session's share of the pool, for every struct that has one.
bp_threads* host_threads();
/// Code and text of a status, which is freed.
Outcome take(bp_status* status);
bp_status* refuse(bp_code code, const std::string& message);

/// Statuses and host memory that the plugin was given and has not given back.
std::int64_t live_statuses();
std::int64_t live_host_blocks();

/// From now on `alloc` gives NULL, as when memory is short.
void fail_host_memory(bool fails);

/// Bytes of this process's heap in use, by whichever allocator it has; 0 where nobody tells.
std::uint64_t heap_bytes();

/// The step that a death of this process is reported with, and how many there were. It lies in memory that the process
/// shares with who waits for it.
struct StepRecord {
  std::atomic<std::uint64_t> count;
  char text[504];
};
/// `record` outlives every later step.
void keep_step_in(StepRecord& record);
/// What the plugin is asked to do now: "compute of Relu [2,3]".
void enter(const std::string& step);
const std::string& current_step();

/// Calls a function of the plugin. An exception that comes out of it is `Escaped`.
template <class Call>
auto across(Call&& call) -> decltype(call()) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& error) {
    throw Escaped("an exception crossed the ABI during " + current_step() + ": " + error.what());
  } catch (...) {
    throw Escaped("something was thrown across the ABI during " + current_step());
  }
}

/// `across` for a function that returns a status.
template <class Call>
Outcome ask(Call&& call) {
  return take(across(std::forward<Call>(call)));
}

/// `ask` for a call that has to succeed: else `Broken`, with the step.
template <class Call>
void need(Call&& call) {
  const Outcome outcome = ask(std::forward<Call>(call));
  if (!outcome.is_ok()) throw Broken(current_step() + " failed: " + described(outcome));
}

}  // namespace backplane::cli::check

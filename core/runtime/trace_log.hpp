// What a session did and when, for Chrome's and Perfetto's trace viewers.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace backplane::core {

/// A piece of time. Times are steady-clock nanoseconds.
struct Span {
  std::string name;
  std::string
      category;  ///< "session", "run", "node", "copy"; "device": work of one of the last two, by its device's clock
  std::string
      lane;  ///< a device's stream, its work, the host's work of a device, "host", "session", "run"
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::vector<std::pair<std::string, std::string>> details;
  std::uint64_t run = 0;  ///< which run it belongs to; 0: none
};

std::uint64_t steady_ns();

/// Collects spans.
///
/// Threads: all functions may run concurrently.
class TraceLog {
 public:
  void add(Span span);
  void add(std::vector<Span> spans);
  /// Does `step` and adds a span of the category "session" for it, also when it throws.
  template <class Step>
  void session_step(const std::string& name, const Step& step) {
    const Watch watch{*this, name, steady_ns()};
    step();
  }
  /// The trace as JSON ("traceEvents"); forgets what it has told. Runs that overlap have lanes of their own.
  std::string take();

 private:
  struct Watch {
    TraceLog& log;
    const std::string& name;
    std::uint64_t begin_ns;
    ~Watch();
  };
  std::mutex mutex_;
  std::vector<Span> spans_;
};

}  // namespace backplane::core

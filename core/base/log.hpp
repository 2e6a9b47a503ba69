// Messages to whoever watches: an object, nothing global.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace backplane::core {

enum class LogLevel { Trace, Debug, Info, Warning, Error, Off };

/// The level's name in lower case, and back; throws InvalidArgument naming the known levels.
std::string_view name(LogLevel level);
LogLevel log_level_named(std::string_view name);

/// A logger. Messages below its level cost a comparison.
///
/// Threads: all functions may run concurrently; the sink is called by one thread at a time.
class Logger {
 public:
  using Sink = std::function<void(LogLevel level, std::string_view message)>;

  /// Without a sink, messages go to standard error as "backplane: warning: ...". What a sink throws is swallowed.
  explicit Logger(LogLevel level = LogLevel::Warning, Sink sink = {});
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  LogLevel level() const;
  void set_level(LogLevel level);
  bool enabled(LogLevel level) const;

  void log(LogLevel level, std::string_view message) const;

  template <class... Parts>
  void debug(const Parts&... parts) const {
    write(LogLevel::Debug, parts...);
  }
  template <class... Parts>
  void info(const Parts&... parts) const {
    write(LogLevel::Info, parts...);
  }
  template <class... Parts>
  void warning(const Parts&... parts) const {
    write(LogLevel::Warning, parts...);
  }
  template <class... Parts>
  void error(const Parts&... parts) const {
    write(LogLevel::Error, parts...);
  }

 private:
  template <class... Parts>
  void write(LogLevel level, const Parts&... parts) const {
    if (enabled(level)) log(level, text(parts...));
  }

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace backplane::core

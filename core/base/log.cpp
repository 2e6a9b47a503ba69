#include "core/base/log.hpp"

#include <array>
#include <mutex>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <utility>

#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace",   "debug", "info",
                                                    "warning", "error", "off"};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::Trace:
      return spdlog::level::trace;
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      break;
  }
  return spdlog::level::off;
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return LogLevel::Trace;
    case spdlog::level::debug:
      return LogLevel::Debug;
    case spdlog::level::info:
      return LogLevel::Info;
    case spdlog::level::warn:
      return LogLevel::Warning;
    case spdlog::level::err:
    case spdlog::level::critical:
      return LogLevel::Error;
    default:
      return LogLevel::Off;
  }
}

class CallbackSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit CallbackSink(Logger::Sink receiver) : receiver_(std::move(receiver)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    receiver_(from_spdlog(message.level), {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}

 private:
  Logger::Sink receiver_;
};

std::shared_ptr<spdlog::sinks::sink> make_sink(Logger::Sink sink) {
  if (sink) return std::make_shared<CallbackSink>(std::move(sink));
  auto standard_error = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  standard_error->set_pattern("backplane: %l: %v");
  return standard_error;
}

}  // namespace

std::string_view name(LogLevel level) { return kNames.at(static_cast<std::size_t>(level)); }

LogLevel log_level_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  invalid("unknown log level ", quoted(name), "; known: trace, debug, info, warning, error, off");
}

class Logger::Impl {
 public:
  Impl(LogLevel level, Sink sink) : logger("backplane", make_sink(std::move(sink))) {
    logger.set_level(to_spdlog(level));
    // The default handler prints to standard error about every failing sink.
    logger.set_error_handler([](const std::string&) {});
  }
  spdlog::logger logger;
};

Logger::Logger(LogLevel level, Sink sink) : impl_(std::make_unique<Impl>(level, std::move(sink))) {}
Logger::~Logger() = default;

LogLevel Logger::level() const { return from_spdlog(impl_->logger.level()); }
void Logger::set_level(LogLevel level) { impl_->logger.set_level(to_spdlog(level)); }
bool Logger::enabled(LogLevel level) const {
  return level != LogLevel::Off && impl_->logger.should_log(to_spdlog(level));
}

void Logger::log(LogLevel level, std::string_view message) const {
  if (!enabled(level)) return;
  impl_->logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace backplane::core

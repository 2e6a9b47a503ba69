// The program's end from outside (an interrupt) and from below (a crash): one line, exit code 3, no half-made file.
#pragma once

#include <string>

namespace backplane::cli {

/// From now on SIGINT, SIGTERM, SIGHUP and the signals of a crash end the program as any failed run ends. A signal that is
/// ignored, or that a sanitizer takes, stays as it is.
void end_as_failed_run_at_signals();

/// For a child process, whose parent tells how it ended: signals do what they did before, and an interrupt is the parent's.
void leave_signals_to_parent();

struct RemovalEntry;

/// A file or an empty folder that a sudden end removes as long as this lives. Of several, the latest goes first.
class Removal {
 public:
  /// To be made before the file is.
  explicit Removal(const std::string& path);
  Removal(Removal&& other) noexcept;
  Removal& operator=(Removal&&) = delete;
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  ~Removal();

 private:
  RemovalEntry* entry_;
};

}  // namespace backplane::cli

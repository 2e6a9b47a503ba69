#include "tools/backplane/sudden_end.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <unistd.h>
#include <utility>

#include "backplane/backplane.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli {

/// Of a list that only grows: a handler on another thread may be walking along it.
struct RemovalEntry {
  std::atomic<char*> path;  ///< whoever takes it out frees it; null: nothing to remove any more
  RemovalEntry* next;
};

namespace {

std::atomic<RemovalEntry*> newest_removal{nullptr};

struct Ending {
  int signal;
  const char* line;
};

constexpr std::array<Ending, 8> kEndings = {{
    {SIGINT, "interrupted (SIGINT)"},
    {SIGTERM, "ended from outside (SIGTERM)"},
    {SIGHUP, "the terminal was closed (SIGHUP)"},
    {SIGSEGV, "crashed: segmentation fault (SIGSEGV)"},
    {SIGBUS, "crashed: bus error (SIGBUS)"},
    {SIGFPE, "crashed: arithmetic exception (SIGFPE)"},
    {SIGILL, "crashed: illegal instruction (SIGILL)"},
    {SIGABRT, "crashed: aborted (SIGABRT)"},
}};

constexpr const char* kCrash =
    "; a plugin or a library of custom operators may be at fault: `backplane check FILE.so` tries "
    "one";

constexpr const char* kLostFile =
    "; a file that was mapped (the model, its weights, a saved plan) was shortened meanwhile, or "
    "could "
    "not be read: write a new file and rename it, instead of changing one that is in use";

bool is_crash(int signal) { return signal != SIGINT && signal != SIGTERM && signal != SIGHUP; }

std::array<struct sigaction, kEndings.size()> actions_before;
std::array<bool, kEndings.size()> is_ours;
bool is_terminal = false;
std::atomic<bool> is_ending{false};

// What handlers call takes no lock and allocates nothing.

void tell(const char* words) {
  if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) return;  // nobody is left to be told
}

void remove_files() {
  for (RemovalEntry* entry = newest_removal; entry != nullptr; entry = entry->next) {
    const char* path = entry->path.exchange(nullptr);
    if (path != nullptr && ::unlink(path) != 0) ::rmdir(path);
  }
  remove_unfinished_files();  // the library's
}

void on_signal(int signal) {
  while (is_ending.exchange(true)) ::pause();  // another thread ends the program
  remove_files();
  if (is_terminal) tell("\r\033[K");  // a line of progress may stand there
  tell("backplane: ");
  for (const Ending& ending : kEndings) {
    if (ending.signal == signal) tell(ending.line);
  }
  if (is_crash(signal)) {
    std::array<char, 512> work;
    describe_work(work.data(), work.size());
    if (work[0] != '\0') tell(" in ");
    tell(work.data());
    tell(signal == SIGBUS ? kLostFile : kCrash);
  }
  tell("\n");
  ::_exit(kRunFailed);
}

/// Handlers' stack on this thread, whose own may be what is used up.
void use_another_stack() {
  static std::array<std::byte, 1 << 16> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  stack_t there{};
  if (::sigaltstack(nullptr, &there) == 0 &&
      (there.ss_flags & SS_DISABLE) != 0)  // a sanitizer brings its own
    ::sigaltstack(&stack, nullptr);
}

}  // namespace

void end_as_failed_run_at_signals() {
  is_terminal = ::isatty(STDERR_FILENO) == 1;
  use_another_stack();
  for (std::size_t i = 0; i < kEndings.size(); ++i) {
    is_ours[i] = ::sigaction(kEndings[i].signal, nullptr, &actions_before[i]) == 0 &&
                 actions_before[i].sa_handler == SIG_DFL;
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (std::size_t i = 0; i < kEndings.size(); ++i) {
    if (is_ours[i]) ::sigaction(kEndings[i].signal, &action, nullptr);
  }
}

void leave_signals_to_parent() {
  for (std::size_t i = 0; i < kEndings.size(); ++i) {
    if (is_ours[i]) ::sigaction(kEndings[i].signal, &actions_before[i], nullptr);
  }
  ::signal(SIGINT, SIG_IGN);  // a terminal sends it to both
}

Removal::Removal(const std::string& path) : entry_(new RemovalEntry{nullptr, newest_removal}) {
  char* const copy = new char[path.size() + 1];
  std::memcpy(copy, path.c_str(), path.size() + 1);
  entry_->path = copy;
  while (!newest_removal.compare_exchange_weak(entry_->next, entry_)) {
  }
}

Removal::Removal(Removal&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}

Removal::~Removal() {
  if (entry_ != nullptr) delete[] entry_->path.exchange(nullptr);
}

}  // namespace backplane::cli

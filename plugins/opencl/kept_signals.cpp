#include "plugins/opencl/kept_signals.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <mutex>

namespace backplane::opencl {
namespace {

struct Disposition {
  struct sigaction action {};
  bool is_known = false;  ///< the C library keeps some numbers to itself
};

std::mutex mutex;
std::size_t holders = 0;
std::array<Disposition, NSIG> before;  // by number

bool differ(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_sigaction != b.sa_sigaction || a.sa_flags != b.sa_flags;
}

}  // namespace

KeptSignals::KeptSignals() {
  const std::lock_guard lock(mutex);
  if (holders++ > 0) return;
  for (int signal = 1; signal < NSIG; ++signal) {
    Disposition& kept = before[static_cast<std::size_t>(signal)];
    kept.is_known = ::sigaction(signal, nullptr, &kept.action) == 0;
  }
}

KeptSignals::~KeptSignals() {
  const std::lock_guard lock(mutex);
  --holders;
  for (int signal = 1; signal < NSIG; ++signal) {
    const Disposition& kept = before[static_cast<std::size_t>(signal)];
    struct sigaction now {};
    if (kept.is_known && ::sigaction(signal, nullptr, &now) == 0 && differ(now, kept.action))
      ::sigaction(signal, &kept.action, nullptr);
  }
}

}  // namespace backplane::opencl

// What tests and the kernels of backplane.tests::Probe tell each other: the node's attribute `probe` is the address of one of these.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace backplane::session_test {

struct Probe {
  std::atomic<std::uint64_t> creates{0}, destroys{0}, prepares{0}, releases{0};
  std::atomic<std::uint64_t> computes{0};  ///< begun
  std::atomic<bool> hold{false};           ///< compute() returns when this is false
  std::atomic<bool> heeds_cancel{false};   ///< ... or when it is told to stop
  std::atomic<bool> fails{false};

  /// Waits until compute() was entered so often. (std::atomic's own waiting does not reach over libraries.)
  void await(std::uint64_t count) const {
    while (computes < count) std::this_thread::yield();
  }
};

}  // namespace backplane::session_test

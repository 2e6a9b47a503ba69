#include "tools/backplane/callers.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/backplane/failure.hpp"

namespace backplane::cli {

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count == 1) {
    body(0);
    return;
  }
  enum class Start { kWait, kGo, kNever };
  std::atomic<Start> start{Start::kWait};
  std::exception_ptr failed;
  std::mutex mutex;
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::error_code error;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        start.wait(Start::kWait);
        if (start.load() == Start::kNever) return;
        try {
          body(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failed = std::current_exception();
        }
      });
    }
  } catch (const std::system_error& refused) {
    error = refused.code();
  } catch (const std::bad_alloc&) {
    error = std::make_error_code(std::errc::not_enough_memory);
  }
  start.store(error ? Start::kNever : Start::kGo);
  start.notify_all();
  const std::size_t started = threads.size();
  for (std::thread& thread : threads) thread.join();
  if (error)
    run_failed("cannot start ", count, " threads, only ", started, ": ", error.message(),
               "; a limit of processes (ulimit -u) may be in the way");
  if (failed) std::rethrow_exception(failed);
}

}  // namespace backplane::cli

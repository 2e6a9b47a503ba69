// Work in child processes, so that a crash costs one piece of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace backplane::cli {

/// A worker's side: made once in each child process.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker() = default;
  /// The answer for piece `index`; must not throw.
  virtual std::string work(std::size_t index) = 0;
};

/// Zeros at first. Made before the workers, which write there: when one is dead, the parent reads how far it was.
class SharedMemory {
 public:
  /// Throws Failure (a run that failed) when there is no memory.
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

struct PoolOptions {
  std::size_t jobs = 1;
  std::chrono::seconds timeout{600};  ///< of one piece; then its worker is killed
  /// How far a piece is: a number that grows. Where it has grown when the time is up, the piece has the same time again.
  /// Null: a piece has its time once.
  std::function<std::uint64_t(std::size_t index)> progress = nullptr;
};

/// What became of a piece: the worker's answer, or how it died.
struct PoolAnswer {
  std::string text;
  std::string death;  ///< "" when there is an answer
};

/// Does pieces 0 .. count-1, each once, in `jobs` processes. A worker that dies is replaced. `make` is called in the
/// child; when it throws Failure, so does this function, in the parent. Nothing may have started a thread before.
void run_in_workers(
    std::size_t count, const PoolOptions& options, const std::function<Worker*()>& make,
    const std::function<void(std::size_t index, const PoolAnswer& answer)>& on_answer);

}  // namespace backplane::cli

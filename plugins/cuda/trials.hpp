// Which of several ways to do a library's work is the fastest, and which works at all, by running them on the device.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cuda/driver.hpp"

namespace backplane::cuda {

class Device;
class Kernel;

/// By rule: the library's first that works when it is run. By time: the one that running them has shown to be the fastest. Unseen:
/// its first, which is not run.
enum class Choosing : std::uint8_t { kByRule, kByTime, kUnseen };

/// Behind the key of what was chosen by time, so that what was chosen by rule is not taken for it.
inline constexpr char kFastestMark[] = "\nthe fastest of those that were run";

/// How long may be spent by the host's clock, also on what a library needs to make the plans that are compared.
struct TrialLimits {
  std::uint64_t form_ns = 200'000'000;    ///< on one form, after which nothing more is begun
  std::uint64_t all_ns = 30'000'000'000;  ///< on all forms of a device: a model may have thousands
};

/// Of a way to do the work: operands in the order of the sizes that were given, none where a size is 0.
using TrialRun = std::function<void(KernelQueue& queue, const std::vector<Address>& operands,
                                    Address workspace)>;

/// What the comparisons of a device share. Threads: any; one measures at a time, so that they do not disturb each other.
class Trials {
 public:
  /// `compares`: whether anything is to be chosen by time.
  Trials(Device& device, const TrialLimits& limits, bool compares)
      : device_(device), limits_(limits), compares_(compares) {}
  Device& device() { return device_; }
  std::uint64_t form_ns() const { return limits_.form_ns; }
  bool compares() const { return compares_; }
  /// Not while a stream of the device is captured, when CUDA forbids some of the calls.
  bool may_run();
  /// Nor when all time is spent.
  bool may_compare();
  std::unique_lock<std::mutex> take_turn() { return std::unique_lock(turn_); }
  /// A kernel of the provider's own that does nothing, to stand beside what is compared as other kernels of a plan's do. Made when it
  /// is first asked for; lives as long as this. Null: it cannot be made. Errors: BP_DEVICE_LOST.
  const Kernel* neighbour();
  void spend(std::uint64_t ns);

 private:
  Device& device_;
  TrialLimits limits_;
  bool compares_;
  std::mutex turn_, mutex_;
  std::uint64_t spent_ns_ = 0;
  std::once_flag is_neighbour_made_;
  std::shared_ptr<const Kernel> neighbour_;
};

/// Compares the ways that are added, best first by the library's word. The first that works is the one to take where no other
/// is faster by more than what measurements differ by, and the first where nothing can be run now.
class Comparison {
 public:
  /// `trials` null: the first is taken unseen. Of ways that can be run, `most` are compared; without `compares` the first
  /// of them is taken. Runs take turns with so many sets of operands, where there is memory for them.
  Comparison(Trials* trials, std::vector<std::uint64_t> operand_bytes, std::size_t most,
             bool compares, std::size_t operand_sets = 1);
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// True: no more are wanted. Errors: BP_DEVICE_LOST; others are the way's, which is then none.
  bool add(std::uint64_t workspace_bytes, TrialRun run);
  /// Nothing more is added: where there is but one way, it is run once. Errors: as of `add`.
  void settle();
  /// By the order in which they were added. None: nothing was added, or all failed.
  std::optional<std::size_t> best() const;
  /// What the best one took; 0 where it was not compared with another.
  std::uint64_t best_ns() const;
  /// Whether a later comparison would find nothing new: not where there was no memory or time to begin.
  bool is_settled() const { return is_settled_; }
  /// Why the last one that failed did.
  const std::string& failure() const { return failure_; }

 private:
  class Ground;
  struct Way {
    std::uint64_t workspace_bytes = 0;
    TrialRun run;
  };
  struct Timed {
    std::size_t index = 0;
    std::uint64_t ns = std::numeric_limits<std::uint64_t>::max();
  };
  std::uint64_t passed_ns() const;
  std::uint64_t left_ns() const;
  void measure(std::size_t index, const Way& way);
  bool reach_ground();
  void leave_unseen(std::size_t index);

  Trials* trials_;  ///< null from where on nothing is run
  std::vector<std::uint64_t> operand_bytes_;
  std::size_t most_;
  bool compares_;
  std::size_t operand_sets_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::unique_ptr<Ground> ground_;  ///< made when the second way is added
  std::optional<Way> waiting_;      ///< the first, until there is another
  std::size_t added_ = 0, timed_count_ = 0;
  std::uint64_t counted_ns_ =
      0;  ///< until where what passed is the first way's, or was told to the trials
  std::optional<std::size_t> unseen_;  ///< the first for which there was no memory
  std::optional<Timed> first_, fastest_;
  Way fastest_way_;
  bool is_settled_ = true;
  std::string failure_;
};

}  // namespace backplane::cuda

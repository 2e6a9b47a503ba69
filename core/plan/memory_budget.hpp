// How much memory a session may take, and what it took.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/plan/session_device.hpp"
#include "core/plan/weight_store.hpp"

namespace backplane::core {

/// The limits of one session, by place: a device's label, or "host"; counts arenas of runs, and weights that were packed, uploaded
/// or copied. A weight that several sessions share counts in each. Not counted: what lies in the model's file, values that kernels
/// size themselves, and what providers allocate on their own.
///
/// Threads: all functions may run concurrently.
class MemoryBudget {
 public:
  /// `limits`: by device label or provider name, "host", or "" for all together.
  explicit MemoryBudget(std::map<std::string, std::uint64_t> limits);
  /// Tells of devices of the session, whose places the functions below may then name.
  void add(const DeviceSet& devices);
  /// Throws InvalidArgument for a limit whose name no device has.
  void check_names() const;
  /// The place of a memory space.
  static std::string place_of(const DeviceSet& devices, int space);

  /// Takes memory. Throws OutOfMemory, naming the place, its limit, what is taken, and `what` needed more.
  void take(const std::string& place, std::uint64_t bytes, const std::string& what);
  void give_back(const std::string& place, std::uint64_t bytes) noexcept;
  /// Counts a weight as long as it lives, once. Throws as `take`.
  void hold(const std::string& place, const WeightPtr& weight, const std::string& what);

  /// A place whose own limit is too small for `bytes` more than the weights there.
  struct Overrun {
    std::uint64_t limit, missing;
  };
  /// nullopt where they fit, or the place has no limit of its own. What runs take now does not count.
  std::optional<Overrun> overrun(const std::string& place, std::uint64_t bytes);

  /// Bytes taken now, by place: arenas, weights.
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> taken();

 private:
  static constexpr std::size_t kFewWeights = 256;
  struct Space {
    std::uint64_t limit = 0;  ///< 0: none
    std::uint64_t arenas = 0;
    std::map<const Weight*, std::pair<std::weak_ptr<const Weight>, std::uint64_t>> weights;
    std::size_t forget_at = kFewWeights;  ///< so many weights: those that ended are looked for
    std::uint64_t weight_bytes = 0;
    std::uint64_t total() const { return arenas + weight_bytes; }
  };
  void forget_ended_weights();
  Space& space(const std::string& place);
  void check(const std::string& place, std::uint64_t bytes, const std::string& what);
  bool exceeds(const Space& space, std::uint64_t bytes) const;
  std::uint64_t total() const;

  std::mutex mutex_;
  std::map<std::string, std::uint64_t> limits_;
  std::uint64_t limit_ = 0;  ///< of all together; 0: none
  std::map<std::string, Space> spaces_;
  std::set<std::string> names_ = {"host"};  ///< that limits may have
};

/// Memory taken from a budget, given back at the end.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(const std::shared_ptr<MemoryBudget>& budget, std::string place, std::uint64_t bytes,
               const std::string& what)
      : place_(std::move(place)), bytes_(bytes) {
    budget->take(place_, bytes_, what);
    budget_ = budget;
  }
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::move(other.budget_)), place_(std::move(other.place_)), bytes_(other.bytes_) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(place_, other.place_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryCharge() {
    if (budget_ != nullptr) budget_->give_back(place_, bytes_);
  }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::string place_;
  std::uint64_t bytes_ = 0;
};

}  // namespace backplane::core

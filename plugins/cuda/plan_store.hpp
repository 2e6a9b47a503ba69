// Plans or algorithms of a library's, chosen once for each form.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/driver.hpp"
#include "plugins/cuda/trials.hpp"

namespace backplane::cuda {

/// A plan of a library's, ready to be enqueued: at the addresses that `Arguments` are, and whatever else changes from run to
/// run. Nodes and sessions share it. Threads: any; they take turns, since a plan of cuDNN's is run by one thread at a time,
/// whatever the handles (https://github.com/pytorch/pytorch/pull/103939 has what its makers say).
template <class... Arguments>
class PreparedPlan {
 public:
  PreparedPlan() = default;
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;
  virtual ~PreparedPlan() = default;
  virtual std::uint64_t workspace_bytes() const = 0;
  /// What `restore` makes it from again; empty when it cannot be kept.
  virtual std::string kept() const = 0;
  /// Of a kernel of the provider's own, what explanations call it; null: it is the library's.
  virtual const char* own_name() const { return nullptr; }
  /// Errors: as Context's.
  void enqueue(KernelQueue& queue, Arguments... arguments) const {
    const std::lock_guard lock(turn_);
    put_on(queue, arguments...);
  }

 private:
  virtual void put_on(KernelQueue& queue, Arguments... arguments) const = 0;

  mutable std::mutex turn_;
};

/// Takes plans that a library offers, best first. True: no more are wanted.
template <class Prepared>
using TakePlan = std::function<bool(std::shared_ptr<const Prepared>)>;

/// A plan; or null and why there is none.
template <class Prepared>
struct FoundPlan {
  std::shared_ptr<const Prepared> plan;
  std::string why;
};

/// Plans, shared by the nodes that have the same form. On disk they are kept by library, device and form: the
/// library takes up to seconds to make one. `Form` has key(), `Prepared` has workspace_bytes() and kept(), `Library` begins, makes ready
/// what is to be compared, offers plans within a limit of workspace and restores what was kept; operand_bytes(form) and
/// trial_run(form, plan) are how to try one. Where there is operand_sets(form), it is asked before plans are compared.
/// Threads: any.
template <class Form, class Prepared, class Library>
class PlanStore {
 public:
  using Found = FoundPlan<Prepared>;
  /// `library` is null where this build has none; `trials` where nothing is to be run. Of those that can be run,
  /// `most` are compared.
  PlanStore(Library* library, const DeviceTraits& traits, const std::string& folder, Trials* trials,
            std::uint64_t workspace_limit, std::size_t most = 8)
      : library_(library),
        trials_(trials),
        device_(sdk::message(traits.name, ' ', traits.major, '.', traits.minor)),
        limit_(workspace_limit),
        most_(most),
        cache_(folder) {}

  bool has_library() const { return library_ != nullptr; }

  /// Errors: BP_UNSUPPORTED where there is no library.
  Found find(const Form& wanted, Choosing choosing) {
    if (library_ == nullptr)
      sdk::unsupported(
          "this build of the plugin has no cuDNN, which computes convolutions and attention");
    const bool is_by_time = chooses_by_time(choosing);
    const std::string form = wanted.key(), key = disk_key(form);
    // Held while a plan is made: several nodes want the same one.
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = plans_.try_emplace(is_by_time ? form + kFastestMark : form);
    if (!is_new) return place->second;
    try {
      place->second =
          make(wanted, key, choosing == Choosing::kUnseen ? nullptr : trials_, is_by_time);
    } catch (...) {
      plans_.erase(place);
      throw;
    }
    return place->second;
  }

  /// What the fastest of a form's plans took when they were compared; 0: they were not, or times are not to count.
  std::uint64_t fastest_ns(const Form& form, Choosing choosing) {
    if (!chooses_by_time(choosing)) return 0;
    const std::string key = disk_key(form.key()) + kFastestMark;
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = fastest_ns_.try_emplace(key, 0);
    if (is_new) {
      const std::string text = cache_.read(key + kTimeMark).value_or("");
      std::from_chars(text.data(), text.data() + text.size(), place->second);
    }
    return place->second;
  }

  struct Counts {
    std::uint64_t planned = 0, read = 0;
  };
  Counts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  /// A plan that was kept, or null.
  std::shared_ptr<const Prepared> read(const Form& form, const std::string& key) {
    const std::optional<std::string> kept = cache_.read(key);
    if (!kept) return nullptr;
    std::shared_ptr<const Prepared> plan = library_->restore(form, *kept);
    if (plan == nullptr || plan->workspace_bytes() > limit_) return nullptr;
    ++counts_.read;
    return plan;
  }

  Found make(const Form& form, const std::string& key, Trials* trials, bool is_by_time) {
    const std::string fastest_key = key + kFastestMark;
    if (is_by_time) {
      if (std::shared_ptr<const Prepared> plan = read(form, fastest_key)) return {plan, ""};
    }
    const bool compares = is_by_time && trials->may_compare();
    if (!compares) {
      if (std::shared_ptr<const Prepared> plan = read(form, key)) return {plan, ""};
    }
    library_->begin(form);
    std::size_t sets = 1;
    if (compares) trials->neighbour();  // which is to take none of the form's time
    if (compares) library_->make_ready(form);
    if constexpr (requires { operand_sets(form); }) {
      if (compares) sets = operand_sets(form);
    }
    std::vector<std::shared_ptr<const Prepared>> offered;
    Comparison comparison(trials, operand_bytes(form), most_, compares, sets);
    const std::string why =
        library_->offer(form, limit_, [&](std::shared_ptr<const Prepared> plan) {
          offered.push_back(plan);
          return comparison.add(plan->workspace_bytes(), trial_run(form, plan));
        });
    comparison.settle();
    ++counts_.planned;
    const std::optional<std::size_t> best = comparison.best();
    if (!best)
      return {nullptr,
              offered.empty()
                  ? why
                  : sdk::message("its plans, ", offered.size(),
                                 ", fail when they are run, the last: ", comparison.failure())};
    const std::string kept = offered[*best]->kept();
    const bool is_fastest = compares && comparison.is_settled();
    if (!kept.empty()) cache_.write(is_fastest ? fastest_key : key, kept);
    if (const std::uint64_t ns = is_fastest ? comparison.best_ns() : 0; ns > 0) {
      fastest_ns_[fastest_key] = ns;
      if (!kept.empty()) cache_.write(fastest_key + kTimeMark, std::to_string(ns));
    }
    return {std::move(offered[*best]), ""};
  }

  bool chooses_by_time(Choosing choosing) const {
    return choosing == Choosing::kByTime && trials_ != nullptr && trials_->compares();
  }
  std::string disk_key(const std::string& form) {
    return sdk::message(library_->version(), '\n', device_, ", at most ", limit_, '\n', form);
  }

  static constexpr char kTimeMark[] = "\nits nanoseconds";

  Library* library_;
  Trials* trials_;
  std::string device_;
  std::uint64_t limit_;
  std::size_t most_;
  mutable std::mutex mutex_;
  std::map<std::string, Found> plans_;               // by the form's key
  std::map<std::string, std::uint64_t> fastest_ns_;  // by the key on disk
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::cuda

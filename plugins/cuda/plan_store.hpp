// Plans of a library's, made once for each form.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "plugins/common/device_ops/program_cache.hpp"
#include "plugins/cuda/driver.hpp"

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
  /// Errors: as Context's.
  void enqueue(StreamHandle stream, Arguments... arguments) const {
    const std::lock_guard lock(turn_);
    put_on(stream, arguments...);
  }

 private:
  virtual void put_on(StreamHandle stream, Arguments... arguments) const = 0;

  mutable std::mutex turn_;
};

/// Plans, shared by the nodes that have the same form. On disk they are kept by library, device and form: the
/// library takes up to seconds to make one. `Form` has key(), `Prepared` has workspace_bytes() and kept(), `Library` makes plans
/// within a limit of workspace and restores what was kept.
/// Threads: any.
template <class Form, class Prepared, class Library>
class PlanStore {
 public:
  /// `library` is null where this build has none.
  PlanStore(Library* library, const DeviceTraits& traits, const std::string& folder,
            std::uint64_t workspace_limit)
      : library_(library),
        device_(sdk::message(traits.name, ' ', traits.major, '.', traits.minor)),
        limit_(workspace_limit),
        cache_(folder) {}

  bool has_library() const { return library_ != nullptr; }

  /// Null when the library has no plan. Errors: BP_UNSUPPORTED where there is no library.
  std::shared_ptr<const Prepared> find(const Form& wanted) {
    if (library_ == nullptr)
      sdk::unsupported(
          "this build of the plugin has no cuDNN, which computes convolutions and attention");
    const std::string form = wanted.key();
    // Held while a plan is made: several nodes want the same one.
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = plans_.try_emplace(form);
    if (!is_new) return place->second;
    try {
      place->second = make(wanted, sdk::message(library_->version(), '\n', device_, ", at most ",
                                                limit_, '\n', form));
    } catch (...) {
      plans_.erase(place);
      throw;
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
  std::shared_ptr<const Prepared> make(const Form& form, const std::string& key) {
    if (const std::optional<std::string> kept = cache_.read(key)) {
      std::shared_ptr<const Prepared> plan = library_->restore(form, *kept);
      if (plan != nullptr && plan->workspace_bytes() <= limit_) {
        ++counts_.read;
        return plan;
      }
    }
    std::shared_ptr<const Prepared> plan = library_->plan(form, limit_);
    ++counts_.planned;
    if (plan != nullptr) {
      const std::string kept = plan->kept();
      if (!kept.empty()) cache_.write(key, kept);
    }
    return plan;
  }

  Library* library_;
  std::string device_;
  std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Prepared>> plans_;  // by the form's key
  Counts counts_;
  device_ops::ProgramCache cache_;
};

}  // namespace backplane::cuda

// A library, and before its plans one of the provider's own, or several, for the forms that they are for: so trials compare them, and what
// they say is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// `Plan` is the provider's, a `Plan::Prepared` made of the device and a `Plan::How`: how its kernel does a form, which has of(form,
/// traits), is_worthwhile() and source(). Where there are several ways it has forms(form, traits), likeliest first, and words(), which tell
/// them apart. `Plan::kKept` and those words are kept on disk in the place of the library's, and it stands in keys with the number of the
/// kernel's text, as a choice between its ways and the library's plans is one for all. Threads: any.
template <class Library, class Plan>
class WithOwnPlan final : public Library {
 public:
  using How = typename Plan::How;
  using Prepared = typename Plan::Prepared;
  using Form = decltype(How::form);

  WithOwnPlan(Device& device, std::unique_ptr<Library> library)
      : device_(device), library_(std::move(library)) {}
  std::string version() override {
    return sdk::message(library_->version(), ", ", Plan::kKept, ' ', Plan::kTextNumber);
  }
  void begin(const Form& form) override {
    library_->begin(form);
    // What is taken where nothing is compared.
    if (const std::vector<How> hows = find(form); !hows.empty()) prepared(hows.front());
  }
  void make_ready(const Form& form) override {
    library_->make_ready(form);
    for (const How& how : find(form)) prepared(how);
  }
  std::string offer(const Form& form, std::uint64_t workspace_limit,
                    const typename Library::Taker& take) override {
    for (const How& how : find(form)) {
      const std::shared_ptr<const Plan> plan = prepared(how);
      if (plan != nullptr && take(plan)) return "";
    }
    return library_->offer(form, workspace_limit, take);
  }
  std::shared_ptr<const Prepared> restore(const Form& form, const std::string& kept) override {
    if (kept.rfind(Plan::kKept, 0) != 0) return library_->restore(form, kept);
    for (const How& how : find(form)) {
      if (kept == Plan::kKept + words_of(how)) return prepared(how);
    }
    return nullptr;
  }

 private:
  std::vector<How> find(const Form& form) const {
    std::vector<How> found;
    if constexpr (requires { How::forms(form, device_.traits()); }) {
      found = How::forms(form, device_.traits());
    } else if (const std::optional<How> how = How::of(form, device_.traits())) {
      found.push_back(*how);
    }
    std::erase_if(found, [](const How& how) { return !how.is_worthwhile(); });
    return found;
  }
  static std::string words_of(const How& how) {
    if constexpr (requires { how.words(); }) return how.words();
    return "";
  }
  /// Null where the compiler or the driver does not take it: then others are left.
  std::shared_ptr<const Plan> prepared(const How& how) const {
    try {
      return std::make_shared<const Plan>(device_, how);
    } catch (const sdk::Error& error) {
      if (error.code() != BP_INTERNAL) throw;
    }
    return nullptr;
  }

  Device& device_;
  std::unique_ptr<Library> library_;
};

}  // namespace backplane::cuda

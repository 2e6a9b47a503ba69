// A library, and before its plans one of the provider's own for the forms that it is for: so trials compare them, and what they say is
// kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// `Plan` is the provider's, a `Plan::Prepared` made of the device and a `Plan::How`: how its kernel does a form, which has of(form,
/// traits), is_worthwhile() and source(). `Plan::kKept` is kept on disk in the place of the library's words, and stands in keys with the
/// number of the kernel's text, as a choice between it and the library's plans is one for both. Threads: any.
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
    if (const std::optional<How> how = find(form)) device_.modules().get(how->source());
  }
  std::string offer(const Form& form, std::uint64_t workspace_limit,
                    const typename Library::Taker& take) override {
    if (const std::optional<How> how = find(form)) {
      if (take(std::make_shared<const Plan>(device_, *how))) return "";
    }
    return library_->offer(form, workspace_limit, take);
  }
  std::shared_ptr<const Prepared> restore(const Form& form, const std::string& kept) override {
    if (kept != Plan::kKept) return library_->restore(form, kept);
    const std::optional<How> how = find(form);
    return how ? std::make_shared<const Plan>(device_, *how) : nullptr;
  }

 private:
  std::optional<How> find(const Form& form) const {
    const std::optional<How> how = How::of(form, device_.traits());
    return how && how->is_worthwhile() ? how : std::nullopt;
  }

  Device& device_;
  std::unique_ptr<Library> library_;
};

}  // namespace backplane::cuda

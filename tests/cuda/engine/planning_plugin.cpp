// The CUDA provider for a device that is only described, as a plugin: all that it decides about a whole network, with
// the real cuDNN and NVRTC; cuBLASLt says nothing without a device. A run goes through and computes nothing.
#include <cstdlib>
#include <iostream>

#include "backplane/plugin.hpp"
#include "plugins/cuda/engine/cudnn.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"
#include "plugins/cuda/engine/nvrtc.hpp"
#include "plugins/cuda/provider.hpp"
#include "tests/cuda/engine/described_device.hpp"
#include "tests/cuda/stand_in.hpp"

namespace backplane::cuda {
namespace {

/// The one whose compute capability, "90", is in BACKPLANE_TEST_CAPABILITY.
const DescribedDevice& chosen_device() {
  const char* wanted = std::getenv("BACKPLANE_TEST_CAPABILITY");
  for (const DescribedDevice& each : kDescribedDevices) {
    if (wanted != nullptr && std::to_string(each.version / 10) == wanted) return each;
  }
  sdk::invalid("BACKPLANE_TEST_CAPABILITY is none of 80, 90, 100");
}

const Target& target() {
  static const Description device = describe(chosen_device());
  static const Target made(device);
  return made;
}

/// A plan of either kind, which does nothing.
template <class... Arguments>
class Planned final : public PreparedPlan<Arguments...> {
 public:
  explicit Planned(FinishedPlan plan) : plan_(std::move(plan)) {}
  std::uint64_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  std::string kept() const override { return plan_.kept(); }

 private:
  void put_on(KernelQueue&, Arguments...) const override {}

  FinishedPlan plan_;
};
using PlannedConvolution = Planned<const ConvolutionAddresses&>;
using PlannedAttention = Planned<const AttentionAddresses&, float>;

/// cuDNN for the described device, of which each answer is a line on stderr.
template <class Library, class Form, class Prepared, class Made>
class Planning final : public Library {
 public:
  std::string version() override { return cudnn_version(); }
  std::string offer(const Form& form, std::uint64_t limit,
                    const TakePlan<Prepared>& take) override {
    std::string why;
    std::shared_ptr<const Prepared> plan = told(form, first_plan(form, target(), limit, why));
    if (plan == nullptr) return why;
    return take(std::move(plan)) ? "" : "one plan is enough here";
  }
  std::shared_ptr<const Prepared> restore(const Form& form, const std::string& kept) override {
    return told(form, restored_plan(target(), kept));
  }

 private:
  static std::shared_ptr<const Prepared> told(const Form& form, std::optional<FinishedPlan> plan) {
    std::cerr << (plan ? "plan: " : "no plan: ") << form.key() << '\n';
    if (!plan) return nullptr;
    return std::make_shared<const Made>(std::move(*plan));
  }
};

class PlannedProduct final : public PreparedProduct {
 public:
  void enqueue(KernelQueue&, const ProductAddresses&) const override {}
};

/// Any product, by the one algorithm that there is.
class AllProducts final : public ProductLibrary {
 public:
  std::string version() override { return "no cuBLASLt"; }
  std::vector<ProductAlgorithm> propose(const LibraryProduct&, std::uint64_t) override {
    return {ProductAlgorithm()};
  }
  bool serves(const LibraryProduct&, ProductAlgorithm&) override { return true; }
  std::unique_ptr<const PreparedProduct> prepare(const LibraryProduct&, const ProductAlgorithm&,
                                                 double, double) override {
    return std::make_unique<const PlannedProduct>();
  }
};

class PlanningEngine final : public Engine {
 public:
  Compiler& compiler() override { return *compiler_; }
  std::unique_ptr<ProductLibrary> open_products(Context&) override {
    return std::make_unique<AllProducts>();
  }
  std::unique_ptr<ConvolutionLibrary> open_convolutions(Context&) override {
    return std::make_unique<
        Planning<ConvolutionLibrary, Convolution, PreparedConvolution, PlannedConvolution>>();
  }
  std::unique_ptr<AttentionLibrary> open_attentions(Context&) override {
    return std::make_unique<
        Planning<AttentionLibrary, Attention, PreparedAttention, PlannedAttention>>();
  }

 private:
  std::unique_ptr<Compiler> compiler_ = open_nvrtc();
};

}  // namespace
}  // namespace backplane::cuda

BP_PLUGIN("cuda", "0.1.0", [](backplane::sdk::Plugin& plugin) {
  using namespace backplane::cuda;
  const DescribedDevice& device = chosen_device();
  StandInState& state = stand_in();
  state.devices = {stand_in_device(device.version / 100, device.version / 10 % 10)};
  state.devices[0].multiprocessors = device.multiprocessors;
  state.devices[0].memory_bytes = std::uint64_t{40} << 30;
  static auto* const provider =
      new Provider({load_stand_in,
                    []() -> std::unique_ptr<Engine> { return std::make_unique<PlanningEngine>(); },
                    [] { return true; }});
  plugin.vendor("Backplane");
  plugin.provider(provider->raw());
});

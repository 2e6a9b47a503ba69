// A node made ready: kernels loaded, and everything of a launch set but its memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "plugins/cuda/device.hpp"

namespace backplane::cuda {

/// Immutable; the arguments of a launch are put together on the calling thread's stack.
class Launches final : public device_ops::PreparedWork {
 public:
  Launches(Device& device, const device_ops::Work& work);
  ~Launches() override;
  void compute(const sdk::ComputeContext& ctx) const override;

  /// The most arguments that a launch may have.
  static constexpr std::size_t kMaxArguments = 96;

 private:
  struct Launch {
    std::shared_ptr<const Kernel> kernel;
    std::vector<device_ops::LaunchPlan::MemoryArgument> memory;
    std::vector<std::uint64_t>
        values;  ///< of all arguments; those of memory are filled in by a run
    Extent groups, group;
    bool may_fault = false;
  };
  struct Loop {
    std::vector<Launch> launches;
    std::int64_t times = 0;
  };
  struct Step {
    std::variant<Launch, device_ops::CopyPlan, Loop> work;
    int unless_inside = -1;
  };
  Launch make_launch(const device_ops::LaunchPlan& plan);
  void add_tables(const std::vector<std::vector<unsigned char>>& tables);
  Address address_of(const device_ops::MemoryRef& ref, const sdk::ComputeContext& ctx) const;
  /// `time`: the number of a loop's time; null: it is none of a loop.
  void enqueue(const Launch& launch, const sdk::ComputeContext& ctx, Stream& stream,
               const std::int64_t* time = nullptr) const;
  void enqueue(const Loop& loop, const sdk::ComputeContext& ctx, Stream& stream) const;
  void enqueue(const device_ops::CopyPlan& copy, const sdk::ComputeContext& ctx,
               Stream& stream) const;

  Device& device_;
  std::string label_;
  std::vector<Step> steps_;
  std::vector<int> faults_;
  std::unique_ptr<Buffer> tables_;  ///< one after another; null: there are none
  std::vector<std::uint64_t> table_offsets_;
};

}  // namespace backplane::cuda

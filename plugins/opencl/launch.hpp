// What a prepared node puts on a stream: launches of kernels and copies, with all that does not change from
// run to run set beforehand.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "plugins/opencl/device.hpp"

namespace backplane::opencl {

/// Kernel objects of one launch. clSetKernelArg changes the object, so a run takes one for itself, sets the
/// memory of that run, enqueues and gives it back: a compare-and-swap, and never a wait for the device.
class KernelPool {
 public:
  /// `where` is for messages.
  KernelPool(std::shared_ptr<const BuiltProgram> program, const std::string& where);
  KernelPool(KernelPool&&) noexcept = default;
  KernelPool& operator=(KernelPool&&) = delete;
  ~KernelPool();
  /// Sets an argument that stays.
  void set(cl_uint index, std::size_t size, const void* value);
  std::size_t take() const;
  void give_back(std::size_t slot) const;
  cl_kernel kernel(std::size_t slot) const { return slots_[slot].kernel.get(); }

 private:
  static constexpr std::size_t kSlots = 4;
  struct Slot {
    mutable std::atomic<bool> is_taken{false};
    Kernel kernel;
  };
  std::shared_ptr<const BuiltProgram> program_;
  std::unique_ptr<Slot[]> slots_;
};

/// A node made ready. Immutable.
class Launches final : public device_ops::PreparedWork {
 public:
  Launches(Device& device, const device_ops::Work& work);
  ~Launches() override;
  void compute(const sdk::ComputeContext& ctx) const override;

 private:
  struct Launch {
    KernelPool kernels;
    std::vector<device_ops::LaunchPlan::MemoryArgument> memory;
    std::array<std::size_t, 3> global, local;
    cl_uint fault_argument;  // 0: none
    std::string name;        // in traces
  };
  struct Loop {
    std::vector<Launch> launches;
    std::int64_t times;
  };
  struct Step {
    std::variant<Launch, device_ops::CopyPlan, Loop> work;
    int unless_inside = -1;
  };
  /// The node and its device, for messages.
  std::string where() const;
  Launch make_launch(const device_ops::LaunchPlan& plan);
  void add_table(const std::vector<unsigned char>& bytes);
  /// `time`: the number of a loop's time; null: it is none of a loop.
  void enqueue(const Launch& launch, const sdk::ComputeContext& ctx, Stream& stream,
               const cl_long* time = nullptr) const;
  void enqueue(const Loop& loop, const sdk::ComputeContext& ctx, Stream& stream) const;
  void enqueue(const device_ops::CopyPlan& copy, const sdk::ComputeContext& ctx,
               Stream& stream) const;

  Device& device_;
  std::string label_;
  std::vector<Step> steps_;
  std::vector<int> faults_;
  std::vector<Memory> tables_;
};

}  // namespace backplane::opencl

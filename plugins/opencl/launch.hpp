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

enum class Place : std::uint8_t { Input, Output, Packed, Workspace, Table };

/// A tensor of the node, or a part of one from byte `offset` on.
struct MemoryRef {
  Place place = Place::Input;
  std::uint32_t index = 0;
  std::uint64_t offset = 0;
};

inline MemoryRef input(std::uint32_t index, std::uint64_t offset = 0) {
  return {Place::Input, index, offset};
}
inline MemoryRef output(std::uint32_t index, std::uint64_t offset = 0) {
  return {Place::Output, index, offset};
}
inline MemoryRef packed(std::uint32_t index) { return {Place::Packed, index, 0}; }
inline MemoryRef workspace(std::uint64_t offset = 0) { return {Place::Workspace, 0, offset}; }

/// The prelude, definitions, and the text of a kernel.
class KernelText {
 public:
  KernelText();
  template <class Value>
  KernelText& define(const char* name, const Value& value) {
    text_ += sdk::message("#define ", name, ' ', value, '\n');
    return *this;
  }
  KernelText& add(const std::string& text) { return text_ += text, *this; }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

/// "f32" for Float: the name of an element type in kernels. Errors: BP_UNSUPPORTED for one that they lack.
const char* type_code(sdk::DataType type);

using Scalar = std::variant<std::int32_t, std::int64_t, float, double>;

/// A launch, before its kernel is built. The kernel is called `run`; its arguments are the memory ones
/// (pointer, first element), the scalars, and, with `fault` not empty, FAULT_WORD.
struct LaunchPlan {
  struct MemoryArgument {
    MemoryRef memory;
    std::uint32_t element_bytes = 1;
  };
  std::string source;
  std::vector<MemoryArgument> memory;
  std::vector<Scalar> scalars;
  std::array<std::size_t, 3> items{1, 1, 1};  ///< rounded up to whole groups
  std::array<std::size_t, 3> group{1, 1, 1};
  std::string fault;       ///< what it means when the kernel reports a fault
  int unless_inside = -1;  ///< left out where the host produces this input inside the output

  LaunchPlan& arg(const MemoryRef& ref, sdk::DataType type) {
    memory.push_back({ref, static_cast<std::uint32_t>(sdk::element_bytes(type))});
    return *this;
  }
  LaunchPlan& scalar(Scalar value) { return scalars.push_back(value), *this; }
};

/// Kernel objects of one launch. clSetKernelArg changes the object, so a run takes one for itself, sets the
/// memory of that run, enqueues and gives it back: a compare-and-swap, and never a wait for the device.
class KernelPool {
 public:
  KernelPool(std::shared_ptr<const Program> program, const std::string& label);
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
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Slot[]> slots_;
};

/// A node made ready. Immutable once prepared.
class Work {
 public:
  Work(Device& device, std::string label);
  ~Work();
  Work(Work&&) = default;
  Work& operator=(Work&&) = delete;

  Device& device() const { return *device_; }
  /// Of no items: nothing is added.
  void add(const LaunchPlan& plan);
  void add_copy(const MemoryRef& from, const MemoryRef& to, std::uint64_t bytes,
                int unless_inside = -1);
  /// A small constant of the node's own, on the device as long as the work.
  MemoryRef add_table(const void* data, std::size_t bytes);
  void compute(const sdk::ComputeContext& ctx) const;

 private:
  struct Launch {
    KernelPool kernels;
    std::vector<LaunchPlan::MemoryArgument> memory;
    std::array<std::size_t, 3> global, local;
    cl_uint fault_argument;  // 0: none
  };
  struct Copy {
    MemoryRef from, to;
    std::uint64_t bytes;
  };
  struct Step {
    std::variant<Launch, Copy> work;
    int unless_inside;
  };
  void enqueue(const Launch& launch, const sdk::ComputeContext& ctx, Stream& stream) const;
  void enqueue(const Copy& copy, const sdk::ComputeContext& ctx, Stream& stream) const;

  Device* device_;
  std::string label_;
  std::vector<Step> steps_;
  std::vector<int> faults_;
  std::vector<Memory> tables_;
};

}  // namespace backplane::opencl

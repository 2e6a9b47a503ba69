// What a prepared node puts on a stream, as data: launches of kernels by their text, and copies. A provider
// builds the kernels and enqueues them; nothing here knows how.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::device_ops {

class Device;

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

/// The run's tensor for a place other than a table.
const bp_tensor& tensor_of(const sdk::ComputeContext& ctx, const MemoryRef& ref);

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
  std::string name = "kernel";  ///< in traces
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

struct CopyPlan {
  MemoryRef from, to;
  std::uint64_t bytes = 0;
  int unless_inside = -1;
};

/// Launches one after the other, and that `times` over. The first scalar of each is an i64, and becomes the number of the time: so
/// what repeats is prepared once.
struct LoopPlan {
  std::vector<LaunchPlan> launches;
  std::int64_t times = 0;
};

/// The steps of a node, in order.
class Work {
 public:
  Work(const Device& device, std::string label) : device_(&device), label_(std::move(label)) {}

  const Device& device() const { return *device_; }
  const std::string& label() const { return label_; }
  /// Of no items: nothing is added.
  void add(LaunchPlan plan);
  void add_loop(std::vector<LaunchPlan> launches, std::int64_t times);
  void add_copy(const MemoryRef& from, const MemoryRef& to, std::uint64_t bytes,
                int unless_inside = -1);
  /// A small constant of the node's own, on the device as long as the node is prepared.
  MemoryRef add_table(const void* data, std::size_t bytes);

  using Step = std::variant<LaunchPlan, CopyPlan, LoopPlan>;
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<std::vector<unsigned char>>& tables() const { return tables_; }

 private:
  const Device* device_;
  std::string label_;
  std::vector<Step> steps_;
  std::vector<std::vector<unsigned char>> tables_;
};

}  // namespace backplane::device_ops

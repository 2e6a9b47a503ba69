#include "plugins/common/device_ops/work.hpp"

#include <utility>

#include "plugins/common/kernels/prelude.hpp"

namespace backplane::device_ops {

const bp_tensor& tensor_of(const sdk::ComputeContext& ctx, const MemoryRef& ref) {
  switch (ref.place) {
    case Place::Input:
      return *ctx.raw()->inputs[ref.index]->tensor;
    case Place::Output:
      return *ctx.raw()->outputs[ref.index]->tensor;
    case Place::Packed:
      return *ctx.raw()->packed[ref.index];
    case Place::Workspace:
    case Place::Table:
      break;
  }
  return *ctx.raw()->workspace;
}

KernelText::KernelText() : text_(common::kPrelude) {}

const char* type_code(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Float:
      return "f32";
    case sdk::DataType::Double:
      return "f64";
    case sdk::DataType::Float16:
      return "f16";
    case sdk::DataType::BFloat16:
      return "bf16";
    case sdk::DataType::Int8:
      return "i8";
    case sdk::DataType::UInt8:
      return "u8";
    case sdk::DataType::Int16:
      return "i16";
    case sdk::DataType::UInt16:
      return "u16";
    case sdk::DataType::Int32:
      return "i32";
    case sdk::DataType::UInt32:
      return "u32";
    case sdk::DataType::Int64:
      return "i64";
    case sdk::DataType::UInt64:
      return "u64";
    case sdk::DataType::Bool:
      return "b8";
    default:
      sdk::unsupported("kernels of devices have no elements of type ", sdk::type_name(type));
  }
}

void Work::add(LaunchPlan plan) {
  for (const std::size_t items : plan.items) {
    if (items == 0) return;
  }
  steps_.emplace_back(std::move(plan));
}

void Work::add_loop(std::vector<LaunchPlan> launches, std::int64_t times) {
  if (times > 0) steps_.emplace_back(LoopPlan{std::move(launches), times});
}

void Work::add_copy(const MemoryRef& from, const MemoryRef& to, std::uint64_t bytes,
                    int unless_inside) {
  if (bytes > 0) steps_.emplace_back(CopyPlan{from, to, bytes, unless_inside});
}

MemoryRef Work::add_table(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(data);
  tables_.emplace_back(first, first + bytes);
  return {Place::Table, static_cast<std::uint32_t>(tables_.size() - 1), 0};
}

}  // namespace backplane::device_ops

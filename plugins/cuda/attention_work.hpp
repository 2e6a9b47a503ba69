// An attention of the library's, on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plugins/cuda/attentions.hpp"
#include "plugins/cuda/kernel.hpp"

namespace backplane::cuda {

/// An operand as the library reads or writes it: in its place, or, where its address is not aligned, by way of a spare one.
struct PlacedOperand {
  device_ops::MemoryRef memory, spare;
  std::uint64_t bytes = 0;  ///< of the spare; none where the memory is aligned for certain
};

class AttentionWork final : public device_ops::PreparedWork {
 public:
  struct Plan {
    std::shared_ptr<const PreparedAttention> prepared;
    PlacedOperand q, k, v, mask, y;
    device_ops::MemoryRef workspace;
    bool has_mask = false;
    float scale = 1;
  };
  AttentionWork(Device& device, std::string label, Plan plan)
      : device_(device), label_(std::move(label)), plan_(std::move(plan)) {}

  void compute(const sdk::ComputeContext& ctx) const override;

 private:
  Address read(const PlacedOperand& operand, const sdk::ComputeContext& ctx, Stream& stream) const;

  Device& device_;
  std::string label_;
  Plan plan_;
};

}  // namespace backplane::cuda

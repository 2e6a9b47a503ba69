// Attention with keys and values of before, a length for each sequence, or a softcap:
// https://onnx.ai/onnx/operators/onnx__Attention.html
//
// Others are computed by their parts, whose products are the provider's best.
#pragma once

#include <cstdint>
#include <optional>

#include "plugins/common/device_ops/row_attention.hpp"

namespace backplane::device_ops {

class CachedAttention {
 public:
  enum Input : std::uint32_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths };
  enum Output : std::uint32_t { kY, kPresentKey, kPresentValue, kScores };

  CachedAttention(const Device& device, const sdk::Node& node);
  void prepare(sdk::PrepareContext& ctx, Work& work) const;

  /// Sets the outputs and adds what joins keys and values: what is left is the attention that is returned. `end`: bytes of the
  /// workspace that are taken.
  RowAttention begin(sdk::PrepareContext& ctx, Work& work, std::uint64_t& end) const;

 private:
  std::optional<double> scale_;
  double softcap_;
  bool is_causal_;
  std::optional<std::int64_t> before_, after_;
  std::int64_t q_heads_, kv_heads_;
};

/// The operator, for a provider to register with a kernel of its own.
sdk::KernelBuilder cached_attention_op();

}  // namespace backplane::device_ops

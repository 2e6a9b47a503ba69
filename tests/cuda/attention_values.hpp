// Tensors for the tests of attention.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/common/half.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {

/// Numbers that half types hold exactly.
inline float number_at(std::int64_t index, int seed) {
  return static_cast<float>((index * 7 + seed * 5) % 11 - 5) / 8;
}

inline HostTensor halves(const Dims& dims, int seed, bp_dtype type) {
  std::vector<std::uint16_t> bits;
  for (std::int64_t i = 0; i < count_of(dims); ++i)
    bits.push_back(type == BP_FLOAT16 ? common::to_half(number_at(i, seed)).bits
                                      : common::to_bfloat16(number_at(i, seed)).bits);
  return test_host::tensor<std::uint16_t>(type, dims, bits);
}

inline HostTensor attention_tensor(const Dims& dims, int seed, bp_dtype type) {
  if (type != BP_FLOAT) return halves(dims, seed, type);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count_of(dims); ++i) values.push_back(number_at(i, seed));
  return floats(dims, values);
}

/// Of a mask: with enough of it a row attends to nothing.
inline bool is_seen(std::int64_t index) { return index % 7 > 3; }

inline HostTensor mask_of_bools(const Dims& dims) {
  std::vector<std::uint8_t> seen;
  for (std::int64_t i = 0; i < count_of(dims); ++i) seen.push_back(is_seen(i) ? 1 : 0);
  return test_host::tensor<std::uint8_t>(BP_BOOL, dims, seen);
}

/// What a node makes, its tensors laid at an offset.
inline std::vector<double> run_attention(NodeOnDevice& node, bp_dtype type, std::uint64_t offset) {
  std::vector<double> got;
  if (type == BP_FLOAT) {
    for (const float value : node.run(offset)) got.push_back(static_cast<double>(value));
    return got;
  }
  for (const std::uint16_t bits : node.run_as<std::uint16_t>(offset))
    got.push_back(static_cast<double>(type == BP_FLOAT16 ? common::to_float(sdk::Half{bits})
                                                         : common::to_float(sdk::BFloat16{bits})));
  return got;
}

}  // namespace backplane::cuda

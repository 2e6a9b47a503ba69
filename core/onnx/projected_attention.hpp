// Attention whose queries, keys and values are one product with merged weights: Attention and QAttention.
#pragma once

#include <cstdint>
#include <optional>

#include "core/onnx/body_writer.hpp"

namespace backplane::core {

/// What is added to the scores of hidden keys where an operator does not say it.
inline constexpr float kHiddenKey = -10000;

/// Where the node has what such operators share; inputs of 0 are none.
struct ProjectedAttention {
  std::size_t mask_input = 0, past_input = 0, bias_input = 0;
  /// Of queries, keys and values together; nullopt: known in a run alone.
  std::optional<std::int64_t> projected_width;
  DataType type = DataType::None;  ///< of `projected`; None: that of input 0
};

/// How many columns the weights, input 1, or the bias, input 2, are known to have.
std::optional<std::int64_t> projected_width(const BodyWriter& body);

/// Writes outputs 0 (the attention) and 1 (present keys and values). `projected` is [batch, positions, width].
void write_projected_attention(BodyWriter& body, const BodyWriter::Name& projected,
                               const ProjectedAttention& attention);

}  // namespace backplane::core

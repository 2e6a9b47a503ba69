// Attention whose queries, keys and values are one product with merged weights: Attention and QAttention.
#pragma once

#include <cstdint>

#include "core/onnx/body_writer.hpp"

namespace backplane::core {

/// What is added to the scores of hidden keys where an operator does not say it.
inline constexpr float kHiddenKey = -10000;

/// Where the node has what such operators share; inputs of 0 are none.
struct ProjectedAttention {
  std::size_t mask_input = 0, past_input = 0, bias_input = 0;
  std::int64_t projected_width = 0;  ///< of queries, keys and values together
  DataType type = DataType::None;    ///< of `projected`; None: that of input 0
};

/// Writes outputs 0 (the attention) and 1 (present keys and values). `projected` is [batch, positions, width].
void write_projected_attention(BodyWriter& body, const BodyWriter::Name& projected,
                               const ProjectedAttention& attention);

}  // namespace backplane::core

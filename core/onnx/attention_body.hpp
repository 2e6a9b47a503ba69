// What the attention operators' bodies share: parts in the form in which providers fuse them.
#pragma once

#include <cstdint>

#include "core/onnx/body_writer.hpp"

namespace backplane::core {

/// Rows of heads: [batch, positions, heads, width], or [batch, heads, positions, width].
struct HeadRows {
  BodyWriter::Name value;
  bool is_by_head = false;  ///< the latter
};

/// A width that is known in a run alone.
inline constexpr std::int64_t kOpenWidth = -1;

/// One attention: Softmax(scale * q k' + mask) v.
struct AttentionParts {
  DataType type = DataType::None;  ///< None: that of input 0
  HeadRows q, k, v;
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t width = 1;    ///< of a head of q and k; kOpenWidth where heads == kv_heads
  std::int64_t v_width = 1;  ///< of v; likewise
  BodyWriter::Name scale;    ///< of the scores, see scale_of; "": 1
  float softcap = 0;         ///< scores are bent to stay below; 0: not
  BodyWriter::Names masks;   ///< added to the scores, broadcast to [batch, heads, queries, keys]
  BodyWriter::Name
      sink;  ///< a score per head, [heads, 1, 1], that takes weight and has no value; "": none
};

/// [batch, queries, heads * v_width].
BodyWriter::Name attention(BodyWriter& body, const AttentionParts& parts);

/// The node's attribute `scale`, or 1 / sqrt(width).
BodyWriter::Name scale_of(BodyWriter& body, std::int64_t width, DataType type);
/// The same of rows, whose width may be kOpenWidth.
BodyWriter::Name scale_of(BodyWriter& body, const HeadRows& rows, std::int64_t width,
                          DataType type);

/// [batch, positions, heads * width] as rows.
HeadRows rows_of(BodyWriter& body, const BodyWriter::Name& value, std::int64_t heads,
                 std::int64_t width);
/// Rows as [batch, heads, positions, width].
BodyWriter::Name by_head(BodyWriter& body, const HeadRows& rows);

/// What is added where a query may not see a key: `seen` is bool.
BodyWriter::Name mask_of(BodyWriter& body, const BodyWriter::Name& seen, DataType type,
                         double hidden);
/// int64 [0, 1, ..., count - 1]; `count` is int64 [1].
BodyWriter::Name counted(BodyWriter& body, const BodyWriter::Name& count);
/// Which keys the queries see, [queries, keys], where each sees itself and those before it. Sizes are int64 [1].
BodyWriter::Name seen_before(BodyWriter& body, const BodyWriter::Name& past,
                             const BodyWriter::Name& queries, const BodyWriter::Name& keys);

/// What masks of keys look like: which input it is, and what the sizes around it are, int64 [1].
struct KeyMask {
  std::size_t input;
  std::size_t query_input;  ///< whose first dimension is the batch
  BodyWriter::Name queries, keys;
  double hidden;           ///< is added where nothing is to be seen
  bool may_start = false;  ///< the vector of lengths may have starts after it
};

/// The mask of keys as it is added to scores: of lengths [batch], ends and starts [2 * batch], or of ones and zeros of
/// [batch, keys], [batch, queries, keys] or [batch, 1, most, most].
BodyWriter::Name key_mask(BodyWriter& body, const KeyMask& mask, DataType type);

/// Rows turned by the angles of their positions.
struct Rotation {
  BodyWriter::Name cos, sin;  ///< for each row, already broadcast to heads
  std::int64_t width = 0;     ///< of a head; what is beyond `turned` is left as it is
  std::int64_t turned = 0;
  bool is_interleaved = false;  ///< pairs stand side by side, not in halves
};
BodyWriter::Name rotated(BodyWriter& body, const BodyWriter::Name& rows, const Rotation& rotation);

}  // namespace backplane::core

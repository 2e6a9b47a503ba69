#include "core/onnx/attention_body.hpp"

#include <cstdint>

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

/// [batch, heads, width, positions].
Name turned_keys(BodyWriter& body, const HeadRows& rows) {
  if (rows.is_by_head) return body.transpose(rows.value, {0, 1, 3, 2});
  return body.transpose(rows.value, {0, 2, 3, 1});
}

/// Rows for each head of queries, written as exporters do: providers see through it.
HeadRows repeated(BodyWriter& body, const AttentionParts& parts, const HeadRows& rows,
                  std::int64_t width) {
  const std::int64_t copies = parts.heads / parts.kv_heads;
  if (copies == 1) return rows;
  const Name once = by_head(body, rows);
  const Name many = body.op("Expand", {body.unsqueeze(once, {2}), body.ints({1, 1, copies, 1, 1})});
  const Name sizes = body.concat(
      {body.size_of(once, 0), body.ints({parts.heads}), body.size_of(once, 2), body.ints({width})},
      0);
  return {body.reshape_to(many, sizes), true};
}

/// Scores with one more key of which all that is known is its score.
Name with_sink(BodyWriter& body, const Name& scores, const Name& unmasked, const Name& sink,
               DataType type) {
  const Name first = body.slice(unmasked, 3, 0, 1);
  const Name column = body.add(body.mul(first, body.scalar(type, 0)), sink);
  return body.concat({scores, column}, 3);
}

/// 1 / sqrt(width), of a width in float.
Name inverse_root(BodyWriter& body, const Name& width, DataType type) {
  const Name scale = body.op("Reciprocal", {body.op("Sqrt", {width})});
  return type == DataType::Float ? scale : body.cast(scale, type);
}

}  // namespace

Name scale_of(BodyWriter& body, std::int64_t width, DataType type) {
  const float given = body.float_of("scale", 0);
  if (given == 1) return "";
  if (given != 0) return body.scalar(type, given);
  // Computed once, with everything that depends on constants alone.
  return inverse_root(body, body.scalar(DataType::Float, static_cast<double>(width)), type);
}

Name scale_of(BodyWriter& body, const HeadRows& rows, std::int64_t width, DataType type) {
  if (width != kOpenWidth || body.float_of("scale", 0) != 0) return scale_of(body, width, type);
  return inverse_root(body, body.cast(body.size_of(rows.value, -1), DataType::Float), type);
}

HeadRows rows_of(BodyWriter& body, const Name& value, std::int64_t heads, std::int64_t width) {
  static_assert(kOpenWidth == -1, "what Reshape finds out by itself");
  return {body.reshape(value, {0, 0, heads, width}), false};
}

Name by_head(BodyWriter& body, const HeadRows& rows) {
  return rows.is_by_head ? rows.value : body.transpose(rows.value, {0, 2, 1, 3});
}

Name attention(BodyWriter& body, const AttentionParts& parts) {
  const DataType type = parts.type == DataType::None ? body.type(0) : parts.type;
  const HeadRows k = repeated(body, parts, parts.k, parts.width),
                 v = repeated(body, parts, parts.v, parts.v_width);
  Name scores = body.op("MatMul", {by_head(body, parts.q), turned_keys(body, k)});
  if (!parts.scale.empty()) scores = body.mul(scores, parts.scale);
  if (parts.softcap > 0) {
    const Name cap = body.scalar(type, parts.softcap);
    scores = body.mul(body.op("Tanh", {body.op("Div", {scores, cap})}), cap);
  }
  const Name unmasked = scores;
  Name mask;  // one addition, which providers take into the softmax
  for (const Name& one : parts.masks) mask = mask.empty() ? one : body.add(mask, one);
  if (!mask.empty()) scores = body.add(scores, mask);
  if (!parts.sink.empty()) scores = with_sink(body, scores, unmasked, parts.sink, type);
  Name weights = body.op("Softmax", {scores}, {{"axis", -1}});
  if (!parts.sink.empty()) weights = body.slice(weights, 3, 0, -1);
  const Name y = body.op("MatMul", {weights, by_head(body, v)});
  const std::int64_t hidden = parts.v_width == kOpenWidth ? -1 : parts.heads * parts.v_width;
  return body.reshape(body.transpose(y, {0, 2, 1, 3}), {0, 0, hidden});
}

Name mask_of(BodyWriter& body, const Name& seen, DataType type, double hidden) {
  return body.op("Where", {seen, body.scalar(type, 0), body.scalar(type, hidden)});
}

Name counted(BodyWriter& body, const Name& count) {
  const Name end = body.op("Squeeze", {count, body.ints({0})});
  const Name range = body.op("Range", {body.index(0), end, body.index(1)});
  return body.reshape_to(range, count);  // which names its size, where the count is that of an axis
}

Name seen_before(BodyWriter& body, const Name& past, const Name& queries, const Name& keys) {
  Name own = body.unsqueeze(counted(body, queries), {1});
  if (!past.empty()) own = body.add(own, past);
  return body.op("LessOrEqual", {counted(body, keys), own});
}

namespace {

/// Where a key is within its batch's length: `lengths` are [batch], or the ends and then the starts.
Name mask_by_lengths(BodyWriter& body, const KeyMask& mask, DataType type) {
  const Name lengths = body.cast(body.in(mask.input), DataType::Int64);
  const Name keys = counted(body, mask.keys);
  const std::optional<std::int64_t> batch = body.dim(mask.query_input, 0),
                                    given = body.dim(mask.input, 0);
  if (batch && given && *given != *batch && (!mask.may_start || *given != 2 * *batch)) {
    body.refuse("its mask of keys has ", *given, " elements for a batch of ", *batch,
                mask.may_start ? "; lengths [batch] or ends and starts [2 * batch] are supported"
                               : "; lengths [batch] are supported");
  }
  const bool may_start = mask.may_start && !(batch && given && *batch == *given && *batch != 0);
  if (!may_start) {
    const Name seen = body.op("Less", {keys, body.unsqueeze(lengths, {1, 2, 3})});
    return mask_of(body, seen, type, mask.hidden);
  }
  const Name count = body.input_size(mask.query_input, 0);
  const Name ends = body.slice(lengths, 0, body.ints({0}), count);
  const Name zeros = body.op("Expand", {body.index(0), count});
  // Without starts, these are the zeros that follow.
  const Name starts =
      body.slice(body.concat({body.slice(lengths, 0, count, body.ints({INT64_MAX})), zeros}, 0), 0,
                 body.ints({0}), count);
  const Name before_end = body.op("Less", {keys, body.unsqueeze(ends, {1, 2, 3})});
  const Name after_start = body.op("GreaterOrEqual", {keys, body.unsqueeze(starts, {1, 2, 3})});
  return mask_of(body, body.op("And", {before_end, after_start}), type, mask.hidden);
}

}  // namespace

Name key_mask(BodyWriter& body, const KeyMask& mask, DataType type) {
  const std::int64_t rank = body.rank(mask.input);
  if (rank == 1) return mask_by_lengths(body, mask, type);
  Name ones = body.in(mask.input);
  if (rank == 2) {
    ones = body.unsqueeze(ones, {1, 2});
  } else if (rank == 3) {
    ones = body.unsqueeze(ones, {1});
  } else if (rank == 4) {
    const Name from = body.op("Sub", {mask.keys, mask.queries});
    ones = body.slice(body.slice(ones, 2, from, mask.keys), 3, body.ints({0}), mask.keys);
  } else {
    invalid("its mask of keys has ", rank, " dimensions");
  }
  const Name seen = body.op("Greater", {ones, body.scalar(body.type(mask.input), 0)});
  return mask_of(body, seen, type, mask.hidden);
}

Name rotated(BodyWriter& body, const Name& rows, const Rotation& rotation) {
  Name turning = rows, rest;
  if (rotation.turned < rotation.width) {
    const auto parts =
        body.ops("Split", {rows, body.ints({rotation.turned, rotation.width - rotation.turned})},
                 {true, true}, {{"axis", -1}});
    turning = parts[0];
    rest = parts[1];
  }
  BodyWriter::Names halves;
  if (rotation.is_interleaved) {
    const Name pairs = body.reshape(turning, {0, 0, 0, rotation.turned / 2, 2});
    halves = body.ops("Split", {pairs}, {true, true}, {{"axis", -1}, {"num_outputs", 2}});
    for (Name& half : halves) half = body.op("Squeeze", {half, body.ints({-1})});
  } else {
    halves = body.ops("Split", {turning}, {true, true}, {{"axis", -1}, {"num_outputs", 2}});
  }
  const Name &cos = rotation.cos, &sin = rotation.sin;
  const Name real = body.op("Sub", {body.mul(halves[0], cos), body.mul(halves[1], sin)});
  const Name other = body.add(body.mul(halves[0], sin), body.mul(halves[1], cos));
  Name turned;
  if (rotation.is_interleaved) {
    turned = body.concat({body.unsqueeze(real, {-1}), body.unsqueeze(other, {-1})}, -1);
    turned = body.reshape(turned, {0, 0, 0, rotation.turned});
  } else {
    turned = body.concat({real, other}, -1);
  }
  return rest.empty() ? turned : body.concat({turned, rest}, -1);
}

}  // namespace backplane::core

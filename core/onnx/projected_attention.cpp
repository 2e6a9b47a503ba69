#include "core/onnx/projected_attention.hpp"

#include "core/onnx/attention_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

std::int64_t head_count(const BodyWriter& body) {
  const std::int64_t heads = body.int_of("num_heads");
  if (heads < 1) invalid("num_heads is ", heads);
  return heads;
}

/// The widths of queries, keys and values: those that the node gives, or thirds of `all`.
std::vector<std::int64_t> projected_widths(const BodyWriter& body,
                                           std::optional<std::int64_t> all) {
  std::vector<std::int64_t> widths = body.ints_of("qkv_hidden_sizes");
  if (widths.empty()) widths = {*all / 3, *all / 3, *all / 3};
  std::int64_t sum = 0;
  for (const std::int64_t width : widths) sum += width;
  if (widths.size() != 3 || widths[0] != widths[1] || widths[0] < 1)
    invalid("its qkv_hidden_sizes are not two that are the same and a third");
  if (all && sum != *all)
    invalid("its weights have ", *all, " columns, which qkv_hidden_sizes do not add up to");
  for (const std::int64_t width : widths) {
    if (width % head_count(body) != 0)
      invalid("its ", head_count(body), " heads do not divide the width ", width);
  }
  return widths;
}

/// Queries, keys and values as rows, and how wide they are.
void take_apart(BodyWriter& body, const Name& projected, std::optional<std::int64_t> all,
                AttentionParts& parts) {
  if (all || !body.ints_of("qkv_hidden_sizes").empty()) {
    const std::vector<std::int64_t> widths = projected_widths(body, all);
    parts.width = widths[0] / parts.heads;
    parts.v_width = widths[2] / parts.heads;
    const auto thirds =
        body.ops("Split", {projected, body.ints(widths)}, {true, true, true}, {{"axis", -1}});
    parts.q = rows_of(body, thirds[0], parts.heads, parts.width);
    parts.k = rows_of(body, thirds[1], parts.heads, parts.width);
    parts.v = rows_of(body, thirds[2], parts.heads, parts.v_width);
    return;
  }
  // A run fails where heads do not divide a third of the width.
  parts.width = parts.v_width = kOpenWidth;
  const auto thirds = body.ops("Split", {body.reshape(projected, {0, 0, 3, parts.heads, -1})},
                               {true, true, true}, {{"axis", 2}, {"num_outputs", 3}});
  const auto rows = [&](const Name& third) {
    return HeadRows{body.op("Squeeze", {third, body.ints({2})}), false};
  };
  parts.q = rows(thirds[0]);
  parts.k = rows(thirds[1]);
  parts.v = rows(thirds[2]);
}

/// What is before the keys and values of this run, and what both are together.
Name add_past(BodyWriter& body, std::size_t past_input, AttentionParts& parts) {
  Name past;
  if (past_input != 0 && body.has_input(past_input)) {
    const auto both =
        body.ops("Split", {body.in(past_input)}, {true, true}, {{"axis", 0}, {"num_outputs", 2}});
    const auto before = [&](const Name& half) {
      return body.op("Squeeze", {half, body.ints({0})});
    };
    past = body.input_size(past_input, 3);
    parts.k = {body.concat({before(both[0]), by_head(body, parts.k)}, 2), true};
    parts.v = {body.concat({before(both[1]), by_head(body, parts.v)}, 2), true};
  }
  if (body.has_output(1)) {
    parts.k = {by_head(body, parts.k), true};
    parts.v = {by_head(body, parts.v), true};
    body.output(
        1,
        body.concat({body.unsqueeze(parts.k.value, {0}), body.unsqueeze(parts.v.value, {0})}, 0));
  }
  return past;
}

}  // namespace

std::optional<std::int64_t> projected_width(const BodyWriter& body) {
  if (body.rank(1) != 2) invalid("its weights have ", body.rank(1), " dimensions, not 2");
  const std::optional<std::int64_t> columns = body.dim(1, 1);
  return columns ? columns : body.dim(2, 0);
}

void write_projected_attention(BodyWriter& body, const Name& projected,
                               const ProjectedAttention& attention) {
  if (body.int_of("do_rotary") != 0) body.refuse("do_rotary is ", body.int_of("do_rotary"));
  if (body.int_of("past_present_share_buffer") != 0)
    body.refuse("past_present_share_buffer is ", body.int_of("past_present_share_buffer"));
  const DataType type = attention.type == DataType::None ? body.type(0) : attention.type;
  AttentionParts parts;
  parts.type = type;
  parts.heads = parts.kv_heads = head_count(body);
  take_apart(body, projected, attention.projected_width, parts);
  parts.scale = scale_of(body, parts.q, parts.width, type);
  const Name past = add_past(body, attention.past_input, parts);
  const Name queries = body.input_size(0, 1);
  const auto keys = [&] { return past.empty() ? queries : body.add(past, queries); };
  if (attention.bias_input != 0 && body.has_input(attention.bias_input))
    parts.masks.push_back(body.in(attention.bias_input));
  if (body.has_input(attention.mask_input)) {
    const double hidden = body.float_of("mask_filter_value", kHiddenKey);
    parts.masks.push_back(
        key_mask(body, {attention.mask_input, 0, queries, keys(), hidden, true}, type));
  }
  if (body.int_of("unidirectional") != 0) {
    const Name seen = seen_before(body, past, queries, keys());
    parts.masks.push_back(mask_of(body, seen, type, lowest_of(type)));
  }
  body.output(0, core::attention(body, parts));
}

}  // namespace backplane::core

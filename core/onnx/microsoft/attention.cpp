// Attention, MultiHeadAttention: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <cstdint>
#include <optional>

#include "core/onnx/attention_body.hpp"
#include "core/onnx/function_operator.hpp"
#include "core/onnx/projected_attention.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

void write_attention(BodyWriter& body) {
  ProjectedAttention attention;
  attention.mask_input = 3;
  attention.past_input = 4;
  attention.bias_input = 5;
  attention.projected_width = projected_width(body);
  if (body.has_input(6))
    body.refuse("its input past_sequence_length is given, for buffers of past and present in one");
  const Name product = body.op("MatMul", {body.in(0), body.in(1)});
  write_projected_attention(body, body.add_if(product, body.in(2)), attention);
}

/// The inputs of a MultiHeadAttention as rows of heads; widths may be kOpenWidth.
struct MultiHeads {
  HeadRows q, k, v;
  std::int64_t width, v_width;
};

/// What comes of `hidden` for each head.
std::int64_t head_width(std::optional<std::int64_t> hidden, std::int64_t heads) {
  return hidden ? *hidden / heads : kOpenWidth;
}

MultiHeads packed_heads(BodyWriter& body, std::int64_t heads) {
  const bool is_all = body.rank(0) == 5;
  MultiHeads result{};
  const std::size_t packed = is_all ? 0 : 1;
  result.width = body.dim(packed, 4).value_or(kOpenWidth);
  result.v_width = result.width;
  if (body.has_input(3)) body.refuse("it has a bias, and its inputs are packed");
  const auto parts =
      body.ops("Split", {body.in(packed)},
               is_all ? std::vector<bool>{true, true, true} : std::vector<bool>{true, true},
               {{"axis", 3}, {"num_outputs", is_all ? 3 : 2}});
  const auto rows = [&](const Name& part) {
    return HeadRows{body.op("Squeeze", {part, body.ints({3})}), false};
  };
  result.q = is_all ? rows(parts[0]) : rows_of(body, body.in(0), heads, result.width);
  result.k = rows(parts[parts.size() - 2]);
  result.v = rows(parts[parts.size() - 1]);
  return result;
}

/// The parts of the bias, to be added to [batch, positions, heads * width].
struct BiasParts {
  Name q, k, v;  ///< "": none
};

BiasParts bias_parts(BodyWriter& body, std::optional<std::int64_t> hidden,
                     std::optional<std::int64_t> v_hidden, bool has_keys) {
  if (!body.has_input(3)) return {};
  const auto part = [&](const Name& from, const Name& to) {
    return body.slice(body.in(3), 0, from, to);
  };
  const Name one = hidden ? body.ints({*hidden}) : body.input_size(0, -1);
  const Name q = part(body.ints({0}), one);
  if (!has_keys) return {q, "", ""};
  const Name two = hidden ? body.ints({2 * *hidden}) : body.add(one, one);
  const Name end = body.ints({hidden && v_hidden ? 2 * *hidden + *v_hidden : INT64_MAX});
  return {q, part(one, two), part(two, end)};
}

MultiHeads apart_heads(BodyWriter& body, std::int64_t heads) {
  if (!body.has_input(1) || !body.has_input(2))
    invalid("key and value are left out, though query is not packed");
  const bool is_made = body.rank(1) == 4;  // keys of somewhere else
  std::optional<std::int64_t> hidden = body.dim(0, -1);
  if (!hidden && !is_made) hidden = body.dim(1, -1);
  const std::optional<std::int64_t> v_last = body.dim(2, -1);
  MultiHeads result{};
  result.width = head_width(hidden, heads);
  result.v_width = is_made ? v_last.value_or(kOpenWidth) : head_width(v_last, heads);
  const BiasParts bias = bias_parts(body, hidden, v_last, !is_made);
  result.q = rows_of(body, body.add_if(body.in(0), bias.q), heads, result.width);
  if (is_made) {
    result.k = {body.in(1), true};
    result.v = {body.in(2), true};
    return result;
  }
  result.k = rows_of(body, body.add_if(body.in(1), bias.k), heads, result.width);
  result.v = rows_of(body, body.add_if(body.in(2), bias.v), heads, result.v_width);
  return result;
}

void write_multi_head_attention(BodyWriter& body) {
  const std::int64_t heads = body.int_of("num_heads");
  if (heads < 1) invalid("num_heads is ", heads);
  if (body.has_input(8) || body.has_input(9))
    body.refuse(
        "past_sequence_length or cache_indirection is given, for buffers of past and "
        "present in one");
  if (body.has_output(3)) body.refuse("its output 3 (qk) is read");
  const std::int64_t rank = body.rank(0);
  const bool is_packed = rank == 5 || (body.has_input(1) && body.rank(1) == 5);
  if (rank != 3 && rank != 5) invalid("its query has ", rank, " dimensions, not 3 or 5");
  MultiHeads in = is_packed ? packed_heads(body, heads) : apart_heads(body, heads);
  AttentionParts parts;
  parts.heads = parts.kv_heads = heads;
  parts.width = in.width;
  parts.v_width = in.v_width;
  parts.q = in.q;
  parts.k = in.k;
  parts.v = in.v;
  Name past;
  if (body.has_input(6) != body.has_input(7))
    invalid("past_key and past_value are to be given together");
  if (body.has_input(6)) {
    past = body.input_size(6, 2);
    parts.k = {body.concat({body.in(6), by_head(body, in.k)}, 2), true};
    parts.v = {body.concat({body.in(7), by_head(body, in.v)}, 2), true};
  }
  if (body.has_output(1)) {
    parts.k = {by_head(body, parts.k), true};
    body.output(1, parts.k.value);
  }
  if (body.has_output(2)) {
    parts.v = {by_head(body, parts.v), true};
    body.output(2, parts.v.value);
  }
  const DataType type = body.type(0);
  const Name queries = body.input_size(0, 1);
  const auto keys = [&] { return body.size_of(parts.k.value, parts.k.is_by_head ? 2 : 1); };
  parts.scale = scale_of(body, in.q, in.width, type);
  if (body.has_input(5)) parts.masks.push_back(body.in(5));
  if (body.has_input(4)) {
    const double hidden = body.float_of("mask_filter_value", kHiddenKey);
    parts.masks.push_back(key_mask(body, {4, 0, queries, keys(), hidden, false}, type));
  }
  if (body.int_of("unidirectional") != 0) {
    const Name seen = seen_before(body, past, queries, keys());
    parts.masks.push_back(mask_of(body, seen, type, lowest_of(type)));
  }
  body.output(0, attention(body, parts));
}

}  // namespace

OperatorList attention_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("Attention", write_attention)
                     .input("input")
                     .input("weights")
                     .optional_input("bias")
                     .optional_input("mask_index", "M")
                     .optional_input("past")
                     .optional_input("attention_bias")
                     .optional_input("past_sequence_length", "M")
                     .output("output")
                     .optional_output("present")
                     .required_int("num_heads")
                     .int_or("unidirectional", 0)
                     .ints("qkv_hidden_sizes")
                     .optional_float("mask_filter_value")
                     .optional_float("scale")
                     .optional_int("do_rotary")
                     .optional_int("rotary_embedding_dim")
                     .optional_int("past_present_share_buffer")
                     .types("T", {"float", "float16", "bfloat16"})
                     .types("M", {"int32"})
                     .done());
  list.push_back(OperatorDraft("MultiHeadAttention", write_multi_head_attention)
                     .input("query")
                     .optional_input("key")
                     .optional_input("value")
                     .optional_input("bias")
                     .optional_input("key_padding_mask", "M")
                     .optional_input("attention_bias")
                     .optional_input("past_key")
                     .optional_input("past_value")
                     .optional_input("past_sequence_length", "M")
                     .optional_input("cache_indirection", "M")
                     .output("output")
                     .optional_output("present_key")
                     .optional_output("present_value")
                     .optional_output("qk")
                     .required_int("num_heads")
                     .int_or("unidirectional", 0)
                     .optional_float("mask_filter_value")
                     .optional_float("scale")
                     .types("T", {"float", "float16", "bfloat16"})
                     .types("M", {"int32"})
                     .done());
  return list;
}

}  // namespace backplane::core

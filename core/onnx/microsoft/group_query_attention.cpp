// GroupQueryAttention: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
//
// Each sequence of a batch has a length of its own: `seqlens_k` + 1 with the new positions. What it has of the past stands
// at the front of `past_key` and `past_value`, whose room may be longer; the new positions follow it in the present. A sliding
// cache has the last positions there, and its room stays as it is.
// Attention itself is over the past's room and the new positions side by side, and the mask hides what is not used.
#include "core/onnx/attention_body.hpp"
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

constexpr float kNormEpsilon = 1e-6F;

enum Input : std::size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLengths,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm,
};

class GroupQuery {
 public:
  explicit GroupQuery(BodyWriter& body) : body_(body), type_(body.type(kQuery)) {}

  void write() {
    check();
    find_heads();
    queries_ = body_.input_size(kQuery, 1);
    has_past_ = body_.has_input(kPastKey);
    if (has_past_) find_past();
    normalize();
    rotate();
    parts_.softcap = body_.float_of("softcap", 0);
    parts_.scale = scale_of(body_, parts_.width, type_);
    add_sink();
    join_past();
    add_masks();
    body_.output(0, attention(body_, parts_));
  }

 private:
  void check() {
    const auto refuse_input = [&](std::size_t index, const char* name) {
      if (body_.has_input(index)) body_.refuse("its input ", name, " is given");
    };
    refuse_input(kKeyScale, "k_scale (a quantized cache)");
    refuse_input(kValueScale, "v_scale (a quantized cache)");
    if (body_.has_input(kQueryNorm) != body_.has_input(kKeyNorm))
      invalid("q_norm_weight and k_norm_weight are to be given together");
    if (body_.has_output(3)) body_.refuse("its output 3 (output_qk) is read");
    is_sliding_ = body_.int_of("sliding_window_cache") != 0;
    if (is_sliding_) check_sliding();
    if (body_.has_input(kPastKey) && body_.type(kPastKey) != type_)
      body_.refuse("its past is of another type than its queries");
    if (body_.has_input(kPastKey) != body_.has_input(kPastValue))
      invalid("past_key and past_value are to be given together");
    if (body_.has_input(kKey) != body_.has_input(kValue))
      invalid("key and value are to be given together");
  }

  void check_sliding() const {
    const std::int64_t window = body_.int_of("local_window_size");
    if (window < 1 || body_.int_of("causal") == 0)
      invalid("sliding_window_cache is 1, but local_window_size ", window, " or causal 0");
    if (!body_.has_input(kPastKey)) invalid("sliding_window_cache is 1, but past_key is left out");
    if (body_.has_input(kBias))
      body_.refuse(
          "sliding_window_cache is 1 and attention_bias is given; export the model without one of "
          "them");
    const auto room = body_.dim(kPastKey, 2);
    if (room && *room < window)
      invalid("past_key has room for ", *room, " positions, fewer than local_window_size ", window);
  }

  void find_heads() {
    parts_.heads = body_.int_of("num_heads");
    parts_.kv_heads = body_.int_of("kv_num_heads");
    if (parts_.heads < 1 || parts_.kv_heads < 1 || parts_.heads % parts_.kv_heads != 0)
      invalid("num_heads is ", parts_.heads, " and kv_num_heads ", parts_.kv_heads,
              ", which does not divide it");
    const std::int64_t hidden = body_.needed_dim(kQuery, 2, "the width of its heads");
    const bool is_packed = !body_.has_input(kKey);
    const std::int64_t all = is_packed ? parts_.heads + 2 * parts_.kv_heads : parts_.heads;
    if (hidden % all != 0) invalid("its query of ", hidden, " columns is not ", all, " heads");
    parts_.width = parts_.v_width = hidden / all;
    BodyWriter::Names three{body_.in(kQuery), body_.in(kKey), body_.in(kValue)};
    if (is_packed) {
      const std::int64_t kv = parts_.kv_heads * parts_.width;
      three = body_.ops("Split", {three[0], body_.ints({parts_.heads * parts_.width, kv, kv})},
                        {true, true, true}, {{"axis", -1}});
    }
    parts_.q = rows_of(body_, three[0], parts_.heads, parts_.width);
    parts_.k = rows_of(body_, three[1], parts_.kv_heads, parts_.width);
    parts_.v = rows_of(body_, three[2], parts_.kv_heads, parts_.width);
  }

  /// How much of the past's room each sequence uses, int64 [batch]: nothing when the new positions are all there are.
  void find_past() {
    room_ = body_.input_size(kPastKey, 2);
    total_ = body_.cast(body_.reshape(body_.in(kTotal), {1}), DataType::Int64);
    const Name lengths = body_.cast(given_lengths(), DataType::Int64);
    const Name before = body_.op("Sub", {body_.add(lengths, body_.ints({1})), queries_});
    used_ = body_.op("Where", {body_.op("Equal", {total_, queries_}), body_.ints({0}), before});
    resident_ = used_;
    if (!is_sliding_) return;
    const Name window = body_.ints({body_.int_of("local_window_size")});
    // A room that is smaller than the window is an index out of range here: no other node would mind.
    const Name is_short = body_.cast(body_.op("Less", {room_, window}), DataType::Int64);
    room_ = body_.add(room_, body_.op("Gather", {body_.ints({0}), is_short}));
    resident_ = resident(used_);
  }

  /// How many of so many positions a sliding cache still has: what is too much goes in steps of the room beside the window.
  Name resident(const Name& positions) {
    const Name window = body_.ints({body_.int_of("local_window_size")});
    const Name step = body_.add(body_.op("Sub", {room_, window}), body_.ints({1}));
    const Name steps = body_.op("Div", {body_.op("Sub", {positions, window}), step});
    return body_.op("Sub", {positions, body_.mul(step, body_.op("Max", {steps, body_.ints({0})}))});
  }

  /// One per sequence. Where they are a vector they stay one, whose size inference knows to be the batch's.
  Name given_lengths() {
    if (body_.known_rank(kLengths) == 1) return body_.in(kLengths);
    if (body_.known_rank(kLengths) == 2 && body_.dim(kLengths, 1) == 1)
      return body_.op("Squeeze", {body_.in(kLengths), body_.ints({1})});
    return body_.reshape(body_.in(kLengths), {-1});
  }

  /// Each head of queries and keys by itself, before it is turned.
  void normalize() {
    if (!body_.has_input(kQueryNorm)) return;
    const float epsilon = body_.float_of("qk_norm_epsilon", kNormEpsilon);
    const auto normal = [&](const Name& rows, std::size_t weight) {
      return body_.op("RMSNormalization", {rows, body_.in(weight)},
                      {{"axis", -1}, {"epsilon", epsilon}});
    };
    parts_.q.value = normal(parts_.q.value, kQueryNorm);
    parts_.k.value = normal(parts_.k.value, kKeyNorm);
  }

  /// Angles of the new positions' rows, [batch or 1, positions, 1, width / 2].
  void rotate() {
    if (body_.int_of("do_rotary") == 0) return;
    if (!body_.has_input(kCos) || !body_.has_input(kSin))
      invalid("do_rotary is 1, but cos_cache or sin_cache is left out");
    Name positions;
    if (body_.has_input(kPositions)) {
      positions = body_.in(kPositions);
    } else {
      positions = body_.unsqueeze(counted(body_, queries_), {0});
      if (has_past_) positions = body_.add(positions, body_.unsqueeze(used_, {1}));
    }
    Rotation rotation;
    rotation.width = parts_.width;
    rotation.turned = 2 * body_.needed_dim(kCos, 1, "how much of a head is turned");
    rotation.is_interleaved = body_.int_of("rotary_interleaved") != 0;
    const auto angles = [&](std::size_t cache) {
      return body_.unsqueeze(body_.op("Gather", {body_.in(cache), positions}), {2});
    };
    rotation.cos = angles(kCos);
    rotation.sin = angles(kSin);
    parts_.q.value = rotated(body_, parts_.q.value, rotation);
    parts_.k.value = rotated(body_, parts_.k.value, rotation);
  }

  void add_sink() {
    if (body_.has_input(kSink)) {
      parts_.sink = body_.reshape(body_.in(kSink), {-1, 1, 1});
    } else if (body_.int_of("smooth_softmax") == 1) {
      parts_.sink = body_.scalar(type_, 0);
    }
  }

  /// Past and new keys and values side by side; the present outputs.
  void join_past() {
    if (!has_past_) {
      if (body_.has_output(1)) parts_.k = {by_head(body_, parts_.k), true};
      if (body_.has_output(2)) parts_.v = {by_head(body_, parts_.v), true};
      body_.output(1, parts_.k.value);
      body_.output(2, parts_.v.value);
      return;
    }
    parts_.k = {body_.concat({body_.in(kPastKey), by_head(body_, parts_.k)}, 2), true};
    parts_.v = {body_.concat({body_.in(kPastValue), by_head(body_, parts_.v)}, 2), true};
    is_in_order_ = body_.has_input(kBias);  // which is by position
    if (!is_in_order_ && !body_.has_output(1) && !body_.has_output(2)) return;
    const Name rows = present_rows();
    const Name k = in_order(parts_.k.value, rows), v = in_order(parts_.v.value, rows);
    body_.output(1, k);
    body_.output(2, v);
    if (is_in_order_) {
      parts_.k.value = k;
      parts_.v.value = v;
    }
  }

  /// For each row of the present, where it is in past and new ones side by side: int64 [batch, rows].
  Name present_rows() {
    const Name length = is_sliding_ ? room_ : body_.op("Max", {total_, room_});
    Name rows = body_.unsqueeze(counted(body_, length), {0});  // their positions
    const Name used = body_.unsqueeze(used_, {1});
    if (is_sliding_) {
      const Name end = body_.add(used_, queries_);
      rows = body_.add(rows, body_.unsqueeze(body_.op("Sub", {end, resident(end)}), {1}));
    }
    const Name from_new = body_.op("Sub", {rows, used});  // index among the new ones
    const Name is_new = body_.op("And", {body_.op("GreaterOrEqual", {from_new, body_.index(0)}),
                                         body_.op("Less", {from_new, queries_})});
    if (is_sliding_) rows = body_.op("Sub", {rows, body_.unsqueeze(gone(), {1})});
    // What is beyond a sequence's end is what the past's room had there, if it had.
    const Name kept = body_.op(
        "Max",
        {body_.op("Min", {rows, body_.op("Sub", {room_, body_.ints({1})})}), body_.index(0)});
    return body_.op("Where", {is_new, body_.add(from_new, room_), kept});
  }

  /// Positions that the past had and its room no longer has, int64 [batch].
  Name gone() { return body_.op("Sub", {used_, resident_}); }

  /// [batch, heads, rows, width] with the rows chosen.
  Name in_order(const Name& value, const Name& rows) {
    if (body_.dim(kQuery, 0) == 1)
      return body_.op("Gather", {value, body_.reshape(rows, {-1})}, {{"axis", 2}});
    const Name batch = body_.input_size(kQuery, 0);
    const Name heads = body_.ints({parts_.kv_heads});
    const Name flat = body_.reshape_to(
        value,
        body_.concat({body_.ints({-1}), body_.size_of(value, 2), body_.ints({parts_.width})}, 0));
    const Name of_heads = body_.op(
        "Expand", {body_.unsqueeze(rows, {1}), body_.concat({batch, heads, body_.ints({1})}, 0)});
    const Name indices = body_.reshape_to(
        of_heads, body_.concat({body_.ints({-1}), body_.size_of(rows, 1), body_.ints({1})}, 0));
    const Name chosen = body_.op("GatherND", {flat, indices}, {{"batch_dims", 1}});
    return body_.reshape_to(chosen,
                            body_.concat({batch, heads, body_.ints({-1, parts_.width})}, 0));
  }

  void add_masks() {
    const std::int64_t window = body_.int_of("local_window_size");
    const bool is_causal = body_.int_of("causal") != 0;
    if (body_.has_input(kBias)) {
      Name bias = body_.in(kBias);
      if (has_past_) {  // it may be shorter than the room
        bias = body_.op(
            "Pad",
            {bias,
             body_.concat({body_.ints({0}), body_.op("Sub", {body_.size_of(parts_.k.value, 2),
                                                             body_.size_of(bias, 3)})},
                          0),
             body_.scalar(type_, 0), body_.ints({3})});
      }
      parts_.masks.push_back(bias);
    }
    if (!is_causal && !has_past_) return;
    const Name keys = parts_.k.is_by_head ? body_.size_of(parts_.k.value, 2) : queries_;
    const Name columns = counted(body_, keys);                        // [keys]
    const Name own = body_.unsqueeze(counted(body_, queries_), {1});  // [queries, 1]
    Name place = columns, query_place = own, seen;
    if (has_past_) {
      const Name used = body_.unsqueeze(used_, {1, 2, 3});  // [batch, 1, 1, 1]
      query_place = body_.add(own, used);
      if (!is_in_order_) {
        const Name is_past = body_.op("Less", {columns, room_});
        const Name moved = body_.add(body_.op("Sub", {columns, room_}), used);
        Name kept = columns;
        if (is_sliding_) kept = body_.add(columns, body_.unsqueeze(gone(), {1, 2, 3}));
        place = body_.op("Where", {is_past, kept, moved});
        seen = body_.op("Or", {body_.op("Less", {columns, body_.unsqueeze(resident_, {1, 2, 3})}),
                               body_.op("GreaterOrEqual", {columns, room_})});
      }
    }
    const auto also = [&](const Name& more) {
      seen = seen.empty() ? more : body_.op("And", {seen, more});
    };
    if (is_causal) also(body_.op("LessOrEqual", {place, query_place}));
    if (!is_causal && is_in_order_)
      also(body_.op("Less", {place, body_.add(body_.unsqueeze(used_, {1, 2, 3}), queries_)}));
    if (window > 0)
      also(body_.op("Greater", {place, body_.op("Sub", {query_place, body_.index(window)})}));
    parts_.masks.push_back(mask_of(body_, seen, type_, lowest_of(type_)));
  }

  BodyWriter& body_;
  DataType type_;
  AttentionParts parts_;
  Name queries_, room_, total_;  ///< int64 [1]
  Name used_;                    ///< positions before the new ones, int64 [batch]
  Name resident_;                ///< those of them that the room has: all, but in a sliding cache
  bool is_sliding_ = false;
  bool has_past_ = false;
  bool is_in_order_ = false;  ///< keys stand at their positions
};

void write_group_query_attention(BodyWriter& body) { GroupQuery(body).write(); }

OperatorDraft& group_query_inputs(OperatorDraft& draft) {
  return draft.input("query")
      .optional_input("key")
      .optional_input("value")
      .optional_input("past_key", "TC")
      .optional_input("past_value", "TC")
      .input("seqlens_k", "M")
      .input("total_sequence_length", "M")
      .optional_input("cos_cache")
      .optional_input("sin_cache")
      .optional_input("position_ids", "int64")
      .optional_input("attention_bias")
      .optional_input("head_sink")
      .optional_input("k_scale", "TS")
      .optional_input("v_scale", "TS")
      .optional_input("q_norm_weight")
      .optional_input("k_norm_weight")
      .output("output")
      .optional_output("present_key", "TC")
      .optional_output("present_value", "TC")
      .optional_output("output_qk");
}

}  // namespace

OperatorList group_query_attention_operators() {
  OperatorDraft draft("GroupQueryAttention", write_group_query_attention);
  group_query_inputs(draft)
      .required_int("num_heads")
      .required_int("kv_num_heads")
      .optional_float("scale")
      .optional_float("softcap")
      .int_or("local_window_size", -1)
      .int_or("causal", 1)
      .optional_int("do_rotary")
      .optional_int("rotary_interleaved")
      .int_or("smooth_softmax", -1)
      .int_or("qk_output", 0)
      .int_or("sliding_window_cache", 0)
      .float_or("qk_norm_epsilon", kNormEpsilon)
      .optional_int("kv_cache_bit_width")
      .string_or("k_quant_type", "NONE")
      .string_or("v_quant_type", "NONE")
      .types("T", {"float", "float16", "bfloat16"})
      .types("TC", {"float", "float16", "bfloat16", "uint8", "int8", "float8e4m3fn"})
      .types("TS", {"float"})
      .types("M", {"int32"});
  OperatorList list;
  list.push_back(draft.done());
  return list;
}

}  // namespace backplane::core

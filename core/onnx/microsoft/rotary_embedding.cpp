// RotaryEmbedding, MRotaryEmbedding: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/attention_body.hpp"
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

/// The rows of a cache for each position, [batch, positions, turned / 2].
Name angles_of(BodyWriter& body, std::size_t cache, const Name& positions) {
  return body.op("Gather", {body.in(cache), positions});
}

/// int64 [batch or 1, positions]: given, or counted from a first one.
Name positions_of(BodyWriter& body, bool is_by_head) {
  if (body.rank(1) == 2) return body.in(1);
  if (body.rank(1) > 2) invalid("its position_ids have ", body.rank(1), " dimensions");
  const Name rows = counted(body, body.input_size(0, is_by_head ? 2 : 1));
  return body.unsqueeze(body.add(rows, body.in(1)), {0});
}

/// What both operators do once it is known which angles a position has.
class Rotary {
 public:
  explicit Rotary(BodyWriter& body) : body_(body) {
    if (body.int_of("is_packed_batching") != 0)
      body.refuse("is_packed_batching is ", body.int_of("is_packed_batching"));
    if (body.float_of("scale", 1) != 1) body.refuse("scale is ", body.float_of("scale"));
    const std::int64_t rank = body.rank(0);
    if (rank != 3 && rank != 4) invalid("its input has ", rank, " dimensions, not 3 or 4");
    is_by_head_ = rank == 4;
    last_ = body.needed_dim(0, -1, "the width of its heads");
    half_ = body.needed_dim(2, 1, "how much of a head is turned");
    rotation_.turned = 2 * half_;
    rotation_.is_interleaved = body.int_of("interleaved") != 0;
    const std::int64_t given = body.int_of("rotary_embedding_dim");
    const std::int64_t heads = body.int_of("num_heads");
    if (given > 0 && given != rotation_.turned)
      invalid("rotary_embedding_dim is ", given, ", but its caches are for ", rotation_.turned);
    if (given > 0 && heads < 1 && !is_by_head_) invalid("rotary_embedding_dim needs num_heads");
    rotation_.width = is_by_head_ ? last_ : heads > 0 ? last_ / heads : rotation_.turned;
    if (rotation_.width < rotation_.turned || last_ % rotation_.width != 0)
      invalid("its heads of ", rotation_.width, " cannot be turned by caches for ",
              rotation_.turned);
  }

  bool is_by_head() const { return is_by_head_; }
  std::int64_t half() const { return half_; }

  /// Cosines and sines are [batch or 1, positions, half].
  void write(const Name& cos, const Name& sin) {
    const std::vector<std::int64_t> heads_axis{is_by_head_ ? 1 : 2};
    rotation_.cos = body_.unsqueeze(cos, heads_axis);
    rotation_.sin = body_.unsqueeze(sin, heads_axis);
    if (is_by_head_) {
      body_.output(0, rotated(body_, body_.in(0), rotation_));
      return;
    }
    const Name rows = body_.reshape(body_.in(0), {0, 0, last_ / rotation_.width, rotation_.width});
    body_.output(0, body_.reshape(rotated(body_, rows, rotation_), {0, 0, last_}));
  }

 private:
  BodyWriter& body_;
  Rotation rotation_;
  bool is_by_head_ = false;
  std::int64_t last_ = 0, half_ = 0;
};

void write_rotary_embedding(BodyWriter& body) {
  Rotary rotary(body);
  const Name positions = positions_of(body, rotary.is_by_head());
  rotary.write(angles_of(body, 2, positions), angles_of(body, 3, positions));
}

/// Of three positions (time, row, column) of a token, which one gives each of its angles: 0, 1 or 2.
std::vector<int> position_of_angles(BodyWriter& body, std::int64_t half) {
  const std::vector<std::int64_t> sections = body.ints_of("mrope_section");
  if (sections.size() != 3 || sections[0] < 0 || sections[1] < 0 || sections[2] < 0 ||
      sections[0] + sections[1] + sections[2] != half)
    invalid("mrope_section must be three numbers that sum up to ", half);
  const std::int64_t layout = body.int_of("mrope_layout");
  if (layout != 0 && layout != 1) invalid("mrope_layout is ", layout, "; it is 0 or 1");
  std::vector<int> result(static_cast<std::size_t>(half), 0);
  for (std::int64_t i = 0; i < half; ++i) {
    int& of_angle = result[static_cast<std::size_t>(i)];
    if (layout == 0) {
      of_angle = i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    } else {
      const auto turn = static_cast<int>(i % 3);
      if (turn > 0 && i < 3 * sections[static_cast<std::size_t>(turn)]) of_angle = turn;
    }
  }
  return result;
}

void write_multimodal_rotary_embedding(BodyWriter& body) {
  Rotary rotary(body);
  if (body.rank(1) != 3) invalid("its position_ids have ", body.rank(1), " dimensions, not 3");
  const std::vector<int> of_angles = position_of_angles(body, rotary.half());
  const auto angles = [&](std::size_t cache) {
    const auto three = body.ops("Split", {angles_of(body, cache, body.in(1))}, {true, true, true},
                                {{"axis", 0}, {"num_outputs", 3}});
    Name mixed = body.op("Squeeze", {three[0], body.ints({0})});
    for (const int which : {1, 2}) {
      std::vector<double> is_taken;
      for (const int one : of_angles) is_taken.push_back(one == which ? 1 : 0);
      const Name own = body.op("Squeeze", {three[static_cast<std::size_t>(which)], body.ints({0})});
      mixed = body.op("Where", {body.numbers(DataType::Bool, is_taken), own, mixed});
    }
    return mixed;
  };
  rotary.write(angles(2), angles(3));
}

/// What both have.
OperatorDraft rotary_draft(const char* name, void (*write)(BodyWriter&)) {
  OperatorDraft draft(name, write);
  draft.input("input")
      .input("position_ids", "M")
      .input("cos_cache")
      .input("sin_cache")
      .output("output")
      .optional_float("scale")
      .optional_int("interleaved")
      .optional_int("num_heads")
      .optional_int("rotary_embedding_dim")
      .optional_int("is_packed_batching")
      .types("T", {"float", "float16", "bfloat16"})
      .types("M", {"int64"})
      .keeps_shape();
  return draft;
}

}  // namespace

OperatorList rotary_embedding_operators() {
  OperatorList list;
  list.push_back(rotary_draft("RotaryEmbedding", write_rotary_embedding).done());
  list.push_back(rotary_draft("MRotaryEmbedding", write_multimodal_rotary_embedding)
                     .required_ints("mrope_section")
                     .int_or("mrope_layout", 0)
                     .done());
  return list;
}

}  // namespace backplane::core

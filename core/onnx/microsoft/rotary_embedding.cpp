// RotaryEmbedding: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
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

void write_rotary_embedding(BodyWriter& body) {
  if (body.int_of("is_packed_batching") != 0)
    body.refuse("is_packed_batching is ", body.int_of("is_packed_batching"));
  if (body.float_of("scale", 1) != 1) body.refuse("scale is ", body.float_of("scale"));
  const std::int64_t rank = body.rank(0);
  if (rank != 3 && rank != 4) invalid("its input has ", rank, " dimensions, not 3 or 4");
  const bool is_by_head = rank == 4;
  const std::int64_t last = body.needed_dim(0, -1, "the width of its heads");
  const std::int64_t half = body.needed_dim(2, 1, "how much of a head is turned");
  Rotation rotation;
  rotation.turned = 2 * half;
  rotation.is_interleaved = body.int_of("interleaved") != 0;
  const std::int64_t given = body.int_of("rotary_embedding_dim");
  const std::int64_t heads = body.int_of("num_heads");
  if (given > 0 && given != rotation.turned)
    invalid("rotary_embedding_dim is ", given, ", but its caches are for ", rotation.turned);
  if (given > 0 && heads < 1 && !is_by_head) invalid("rotary_embedding_dim needs num_heads");
  rotation.width = is_by_head ? last : heads > 0 ? last / heads : rotation.turned;
  if (rotation.width < rotation.turned || last % rotation.width != 0)
    invalid("its heads of ", rotation.width, " cannot be turned by caches for ", rotation.turned);
  const Name positions = positions_of(body, is_by_head);
  const std::vector<std::int64_t> heads_axis{is_by_head ? 1 : 2};
  rotation.cos = body.unsqueeze(angles_of(body, 2, positions), heads_axis);
  rotation.sin = body.unsqueeze(angles_of(body, 3, positions), heads_axis);
  if (is_by_head) {
    body.output(0, rotated(body, body.in(0), rotation));
    return;
  }
  const Name rows = body.reshape(body.in(0), {0, 0, last / rotation.width, rotation.width});
  body.output(0, body.reshape(rotated(body, rows, rotation), {0, 0, last}));
}

}  // namespace

OperatorList rotary_embedding_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("RotaryEmbedding", write_rotary_embedding)
                     .input("input")
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
                     .keeps_shape()
                     .done());
  return list;
}

}  // namespace backplane::core

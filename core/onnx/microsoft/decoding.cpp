// NGramRepeatBlock: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <limits>
#include <optional>

#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

/// A token that stood behind the last n - 1 ones before gets -inf. Tokens of all places are scattered with the least of
/// their scores, since one may stand at a place that forbids it and at another that does not.
void write_ngram_repeat_block(BodyWriter& body) {
  const std::int64_t size = body.int_of("ngram_size");
  if (size < 1) invalid("ngram_size is ", size, "; it must be at least 1");
  const std::optional<std::int64_t> length = body.dim(0, 1);
  if (length && size > *length) {
    body.output(0, body.op("Identity", {body.in(1)}));
    return;
  }
  constexpr std::int64_t kMostSize = 256;  // each has nodes of its own
  if (size > kMostSize)
    body.refuse("ngram_size is ", size, ", where up to ", kMostSize, " are handled");
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto tokens = body.in(0);
  const auto part = [&](std::int64_t from, std::int64_t to) {  // to the end: 0
    return body.slice(tokens, 1, from, to == 0 ? kEnd : to);
  };
  const auto after = part(size - 1, 0);
  BodyWriter::Name is_repeated;
  for (std::int64_t i = 0; i + 1 < size; ++i) {
    const std::int64_t back = i - (size - 1);
    const auto same = body.op("Equal", {part(i, back), part(back, back + 1)});
    is_repeated = is_repeated.empty() ? same : body.op("And", {is_repeated, same});
  }
  const auto forbidden = body.scalar(DataType::Float, -kInfinity);
  const auto updates =
      is_repeated.empty()
          ? body.op("Expand", {forbidden, body.op("Shape", {after})})
          : body.op("Where", {is_repeated, forbidden, body.scalar(DataType::Float, kInfinity)});
  body.output(0, body.op("ScatterElements", {body.in(1), after, updates},
                         {{"axis", 1}, {"reduction", "min"}}));
}

}  // namespace

OperatorList decoding_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("NGramRepeatBlock", write_ngram_repeat_block)
                     .input("input_ids", "Tid")
                     .input("scores")
                     .output("scores_out")
                     .required_int("ngram_size")
                     .types("Tid", {"int64"})
                     .types("T", {"float"})
                     .done());
  return list;
}

}  // namespace backplane::core

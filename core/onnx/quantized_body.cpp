#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

}  // namespace

Name one_number(BodyWriter& body, std::size_t index) {
  if (!body.has_input(index)) return "";
  if (body.known_rank(index) == 0) return body.in(index);
  return body.reshape(body.in(index), {});
}

Name real_of(BodyWriter& body, std::size_t index, std::size_t scale, std::size_t zero) {
  return body.op("DequantizeLinear",
                 {body.in(index), one_number(body, scale), one_number(body, zero)});
}

Name bytes_of(BodyWriter& body, const Name& value, std::size_t scale, std::size_t zero,
              DataType type) {
  return body.op("QuantizeLinear", {value, one_number(body, scale), one_number(body, zero)},
                 {{"output_dtype", static_cast<int>(type)}});
}

Name unpacked(BodyWriter& body, const Name& bytes, std::int64_t bits) {
  if (bits == kByteBits) return body.unsqueeze(bytes, {-1});
  const auto mask = body.scalar(DataType::UInt8, static_cast<double>((1 << bits) - 1));
  BodyWriter::Names parts;
  for (std::int64_t shift = 0; shift < kByteBits; shift += bits) {
    auto part = bytes;
    if (shift > 0) {
      part = body.op("BitShift", {part, body.scalar(DataType::UInt8, static_cast<double>(shift))},
                     {{"direction", "RIGHT"}});
    }
    if (shift + bits < kByteBits) part = body.op("BitwiseAnd", {part, mask});
    parts.push_back(body.unsqueeze(part, {-1}));
  }
  return body.concat(parts, -1);
}

std::int64_t counted_axis(std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank)
    invalid("axis is ", axis, ", but its input has ", rank, " dimensions");
  return axis < 0 ? axis + rank : axis;
}

std::vector<std::int64_t> channels_second(std::int64_t rank) {
  std::vector<std::int64_t> perm{0, rank - 1};
  for (std::int64_t axis = 1; axis + 1 < rank; ++axis) perm.push_back(axis);
  return perm;
}

std::vector<std::int64_t> channels_last(std::int64_t rank) {
  std::vector<std::int64_t> perm{0};
  for (std::int64_t axis = 2; axis < rank; ++axis) perm.push_back(axis);
  perm.push_back(1);
  return perm;
}

}  // namespace backplane::core

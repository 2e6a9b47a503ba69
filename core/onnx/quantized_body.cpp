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

// MatMulNBits: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

constexpr std::int64_t kByteBits = 8;

/// Bytes [..., n] as their numbers of `bits` bits, uint8 [..., n, 8 / bits], the lowest bits first.
BodyWriter::Name unpacked(BodyWriter& body, const BodyWriter::Name& bytes, std::int64_t bits) {
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

/// What MatMulNBits says of its weights.
struct BlockWeights {
  std::int64_t columns, depth, block, bits, blocks;
};

BlockWeights block_weights(const BodyWriter& body) {
  BlockWeights weights{body.int_of("N"), body.int_of("K"), body.int_of("block_size"),
                       body.int_of("bits"), 0};
  constexpr std::int64_t kLeastBlock = 16, kMost = std::int64_t{1} << 31;
  if (weights.columns < 1 || weights.columns > kMost || weights.depth < 1 || weights.depth > kMost)
    invalid("K is ", weights.depth, " and N is ", weights.columns, "; both must be at least 1");
  if (weights.block < kLeastBlock || weights.block > kMost ||
      (weights.block & (weights.block - 1)) != 0)
    invalid("block_size is ", weights.block, "; it must be a power of two and at least 16");
  if (weights.bits != 2 && weights.bits != 4 && weights.bits != kByteBits)
    body.refuse("bits is ", weights.bits, "; 2, 4 and 8 are supported");
  weights.blocks = (weights.depth + weights.block - 1) / weights.block;
  return weights;
}

/// Zero points as float [N, blocks].
BodyWriter::Name block_zero_points(BodyWriter& body, const BlockWeights& weights) {
  if (!body.has_input(3))
    return body.scalar(DataType::Float, static_cast<double>(1 << (weights.bits - 1)));
  if (body.type(3) != DataType::UInt8) {
    return body.cast(body.reshape(body.in(3), {weights.columns, weights.blocks}), DataType::Float);
  }
  const std::int64_t bytes = (weights.blocks * weights.bits + kByteBits - 1) / kByteBits;
  auto numbers = unpacked(body, body.reshape(body.in(3), {weights.columns, bytes}), weights.bits);
  numbers = body.reshape(numbers, {weights.columns, bytes * kByteBits / weights.bits});
  if (bytes * kByteBits / weights.bits != weights.blocks)
    numbers = body.slice(numbers, 1, 0, weights.blocks);
  return body.cast(numbers, DataType::Float);
}

/// The weights as a matrix [K, N] of the type of A.
BodyWriter::Name dequantized(BodyWriter& body, const BlockWeights& weights) {
  const std::int64_t blob = weights.block * weights.bits / kByteBits;
  auto numbers = unpacked(body, body.reshape(body.in(1), {weights.columns, weights.blocks, blob}),
                          weights.bits);
  auto scales =
      body.cast(body.reshape(body.in(2), {weights.columns, weights.blocks}), DataType::Float);
  auto zeros = block_zero_points(body, weights);
  const std::int64_t padded = weights.blocks * weights.block;
  const auto cut = [&](const BodyWriter::Name& matrix) {
    return padded == weights.depth ? matrix : body.slice(matrix, 1, 0, weights.depth);
  };
  BodyWriter::Name real;
  if (body.has_input(4)) {  // the block of each row is given
    const auto of_rows = [&](const BodyWriter::Name& value) {
      return body.op("Gather", {value, body.in(4)}, {{"axis", 1}});
    };
    numbers = cut(body.reshape(numbers, {weights.columns, padded}));
    if (body.has_input(3)) zeros = of_rows(zeros);
    real = body.mul(body.op("Sub", {body.cast(numbers, DataType::Float), zeros}), of_rows(scales));
  } else {
    numbers = body.reshape(numbers, {weights.columns, weights.blocks, weights.block});
    if (body.has_input(3)) zeros = body.unsqueeze(zeros, {-1});
    real = body.mul(body.op("Sub", {body.cast(numbers, DataType::Float), zeros}),
                    body.unsqueeze(scales, {-1}));
    real = cut(body.reshape(real, {weights.columns, padded}));
  }
  if (body.type(0) != DataType::Float) real = body.cast(real, body.type(0));
  return body.transpose(real, {1, 0});
}

void write_matmul_nbits(BodyWriter& body) {
  if (body.int_of("weight_prepacked") != 0)
    body.refuse("weight_prepacked is ", body.int_of("weight_prepacked"),
                ": its weights are packed for one kind of processor; export the model without it");
  const auto product = body.op("MatMul", {body.in(0), dequantized(body, block_weights(body))});
  body.output(0, body.add_if(product, body.in(5)));
}

}  // namespace

OperatorList block_quantized_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("MatMulNBits", write_matmul_nbits)
                     .input("A", "T1")
                     .input("B", "T2")
                     .input("scales", "T1")
                     .optional_input("zero_points", "T3")
                     .optional_input("g_idx", "T4")
                     .optional_input("bias", "T1")
                     .output("Y", "T1")
                     .types("T1", {"float", "float16", "bfloat16"})
                     .types("T2", {"uint8"})
                     .types("T3", {"uint8", "float", "float16", "bfloat16"})
                     .types("T4", {"int32"})
                     .required_int("K")
                     .required_int("N")
                     .required_int("block_size")
                     .int_or("bits", 4)
                     .int_or("accuracy_level", 0)
                     .int_or("weight_prepacked", 0)
                     .done());
  return list;
}

}  // namespace backplane::core

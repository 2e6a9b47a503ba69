// MatMulNBits, MatMulBnb4, GatherBlockQuantized: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"
#include "core/onnx/quantized_body.hpp"

namespace backplane::core {
namespace {

using Name = BodyWriter::Name;

constexpr std::int64_t kMost = std::int64_t{1} << 31;  // columns, depth, elements of a block

void check_size(std::int64_t depth, std::int64_t columns) {
  if (columns < 1 || columns > kMost || depth < 1 || depth > kMost)
    invalid("K is ", depth, " and N is ", columns, "; both must be from 1 to ", kMost);
}

/// What MatMulNBits says of its weights.
struct BlockWeights {
  std::int64_t columns, depth, block, bits, blocks;
};

BlockWeights block_weights(const BodyWriter& body) {
  BlockWeights weights{body.int_of("N"), body.int_of("K"), body.int_of("block_size"),
                       body.int_of("bits"), 0};
  constexpr std::int64_t kLeastBlock = 16;
  check_size(weights.depth, weights.columns);
  if (weights.block < kLeastBlock || weights.block > kMost ||
      (weights.block & (weights.block - 1)) != 0)
    invalid("block_size is ", weights.block, "; it must be a power of two from ", kLeastBlock,
            " to ", kMost);
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

/// What the 4 bits of bitsandbytes' two types stand for.
const std::vector<double>& code_values(BodyWriter& body) {
  static const std::vector<double> kFloats{
      0, 0.0625 / 12,  8 / 12.0,  1,  4 / 12.0,  0.5,  2 / 12.0,  0.25,
      0, -0.0625 / 12, -8 / 12.0, -1, -4 / 12.0, -0.5, -2 / 12.0, -0.25};
  static const std::vector<double> kNormal{-1.0,
                                           -0.6961928009986877,
                                           -0.5250730514526367,
                                           -0.39491748809814453,
                                           -0.28444138169288635,
                                           -0.18477343022823334,
                                           -0.09105003625154495,
                                           0.0,
                                           0.07958029955625534,
                                           0.16093020141124725,
                                           0.24611230194568634,
                                           0.33791524171829224,
                                           0.44070982933044434,
                                           0.5626170039176941,
                                           0.7229568362236023,
                                           1.0};
  const std::int64_t kind = body.int_of("quant_type");
  if (kind != 0 && kind != 1)
    body.refuse("quant_type is ", kind, "; 0 (FP4) and 1 (NF4) are supported");
  return kind == 0 ? kFloats : kNormal;
}

/// The numbers lie one after another whatever the matrix's rows, and so do the blocks; the higher bits come first.
void write_matmul_bnb4(BodyWriter& body) {
  const std::int64_t columns = body.int_of("N"), depth = body.int_of("K");
  const std::int64_t block = body.int_of("block_size");
  check_size(depth, columns);
  if (block < 1 || block > kMost)
    invalid("block_size is ", block, "; it must be from 1 to ", kMost);
  const std::int64_t count = columns * depth, blocks = (count + block - 1) / block;
  const Name low = body.op("BitwiseAnd", {body.in(1), body.scalar(DataType::UInt8, 15)});
  const Name high =
      body.op("BitShift", {body.in(1), body.scalar(DataType::UInt8, 4)}, {{"direction", "RIGHT"}});
  const Name pairs = body.concat({body.unsqueeze(high, {-1}), body.unsqueeze(low, {-1})}, -1);
  Name codes = body.cast(body.reshape(pairs, {-1}), DataType::Int32);
  const std::int64_t bytes = (count + 1) / 2;
  if (blocks * block > 2 * bytes)
    codes = body.op("Pad", {codes, body.ints({0, blocks * block - 2 * bytes})});
  else if (blocks * block < 2 * bytes)
    codes = body.slice(codes, 0, 0, blocks * block);
  const Name values = body.op("Gather", {body.numbers(DataType::Float, code_values(body)), codes});
  const Name scales = body.cast(body.reshape(body.in(2), {blocks, 1}), DataType::Float);
  Name real = body.reshape(body.mul(body.reshape(values, {blocks, block}), scales), {-1});
  if (blocks * block > count) real = body.slice(real, 0, 0, count);
  real = body.reshape(real, {columns, depth});
  if (body.type(0) != DataType::Float) real = body.cast(real, body.type(0));
  if (body.int_of("transB", 1) != 0) real = body.transpose(real, {1, 0});
  body.output(0, body.op("MatMul", {body.in(0), real}));
}

/// Rows of a table of small integers: the rows first, since a table is large, and then their real values.
class GatheredBlocks {
 public:
  explicit GatheredBlocks(BodyWriter& body)
      : body_(body), type_(body.type(0)), rank_(body.rank(0)) {
    bits_ = type_ == DataType::UInt8 ? body.int_of("bits") : kByteBits;
    if (bits_ != 2 && bits_ != 4 && bits_ != kByteBits)
      body.refuse("bits is ", bits_, "; 2, 4 and 8 are supported");
    if (type_ != DataType::UInt8 && type_ != DataType::Int4 && type_ != DataType::UInt4)
      body.refuse("its table is of type ", name(type_), "; uint8, int4 and uint4 are supported");
    gathered_ = counted(body.int_of("gather_axis"));
    quantized_ = counted(body.int_of("quantize_axis"));
    block_ = body.int_of("block_size");
    if (block_ < 1) invalid("block_size is ", block_);
    if (gathered_ == quantized_) invalid("gather_axis and quantize_axis are the same");
  }

  void write() {
    const DataType real = body_.type(2);
    std::int64_t size = body_.needed_dim(0, quantized_, "how many blocks there are");
    if (quantized_ == rank_ - 1) size *= kByteBits / bits_;
    const std::int64_t added = body_.rank(1) - 1;
    const std::int64_t axis = quantized_ + (quantized_ > gathered_ ? added : 0);
    std::vector<std::int64_t> blocks;
    for (std::int64_t i = 0; i < size; ++i) blocks.push_back(i / block_);
    const auto repeated = [&](const BodyWriter::Name& value) {
      return body_.op("Gather", {value, body_.ints(blocks)}, {{"axis", axis}});
    };
    auto zeros = body_.scalar(real, type_ == DataType::UInt8 ? 1 << (bits_ - 1) : 0);
    if (body_.has_input(3)) zeros = repeated(body_.cast(numbers(3), real));
    const auto numbers_as_real = body_.cast(numbers(0), real);
    body_.output(0, body_.mul(body_.op("Sub", {numbers_as_real, zeros}), repeated(rows(2))));
  }

 private:
  std::int64_t counted(std::int64_t axis) const {
    if (axis < -rank_ || axis >= rank_)
      invalid("an axis is ", axis, ", but its table has ", rank_, " dimensions");
    return axis < 0 ? axis + rank_ : axis;
  }

  BodyWriter::Name rows(std::size_t table) {
    auto values = body_.in(table);
    if (body_.type(table) == DataType::Int4) values = body_.cast(values, DataType::Int8);
    if (body_.type(table) == DataType::UInt4) values = body_.cast(values, DataType::UInt8);
    return body_.op("Gather", {values, body_.in(1)}, {{"axis", gathered_}});
  }

  /// The chosen rows, one number an element.
  BodyWriter::Name numbers(std::size_t table) {
    auto bytes = rows(table);
    if (bits_ == kByteBits) return bytes;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank_ + body_.rank(1) - 2), 0);
    sizes.push_back(-1);
    return body_.reshape(unpacked(body_, bytes, bits_), sizes);
  }

  BodyWriter& body_;
  DataType type_;
  std::int64_t rank_, bits_, gathered_, quantized_, block_;
};

void write_gather_block_quantized(BodyWriter& body) { GatheredBlocks(body).write(); }

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
  list.push_back(OperatorDraft("MatMulBnb4", write_matmul_bnb4)
                     .input("A", "T1")
                     .input("B", "T2")
                     .input("absmax", "T1")
                     .output("Y", "T1")
                     .required_int("K")
                     .required_int("N")
                     .required_int("block_size")
                     .required_int("quant_type")
                     .int_or("training_mode", 0)
                     .int_or("transB", 1)
                     .types("T1", {"float", "float16", "bfloat16"})
                     .types("T2", {"uint8"})
                     .done());
  list.push_back(OperatorDraft("GatherBlockQuantized", write_gather_block_quantized)
                     .input("data", "T1")
                     .input("indices", "TI")
                     .input("scales", "T2")
                     .optional_input("zero_points", "T1")
                     .output("output", "T2")
                     .int_or("bits", 4)
                     .int_or("block_size", 128)
                     .int_or("gather_axis", 0)
                     .int_or("quantize_axis", 1)
                     .types("T1", {"uint8", "int4", "uint4", "float8e4m3fn", "float8e4m3fnuz",
                                   "float8e5m2", "float8e5m2fnuz", "float4e2m1"})
                     .types("T2", {"float", "float16", "bfloat16"})
                     .types("TI", {"int32", "int64"})
                     .done());
  return list;
}

}  // namespace backplane::core

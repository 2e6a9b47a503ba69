// MatMul, Gemm: https://onnx.ai/onnx/operators/onnx__MatMul.html
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "RowsTimesColumns",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), constant(f32({2, 1}, {10, 1}))},
     .outputs = {f32({2, 1}, {12, 34})}},
    {.name = "VectorTimesVectorIsAScalar",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({3}, {1, 2, 3}), f32({3}, {4, 5, 6})},
     .outputs = {f32({}, {32})}},
    {.name = "VectorTimesBatch",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({2}, {1, 1}), f32({2, 2, 1}, {1, 2, 3, 4})},
     .outputs = {f32({2, 1}, {3, 7})}},
    {.name = "SumsOfNothingAreZero",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({2, 0}, {}), f32({0, 3}, {})},
     .outputs = {f32({2, 3}, {0, 0, 0, 0, 0, 0})}},
    {.name = "AConstantWithoutElements",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({2, 1, 0}, {}), constant(f32({0, 3}, {}))},
     .outputs = {f32({2, 1, 3}, {0, 0, 0, 0, 0, 0})}},
    {.name = "AConstantBatchOfNothing",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({1, 1, 2}, {1, 2}), constant(f32({0, 2, 3}, {}))},
     .outputs = {f32({0, 1, 3}, {})}},
    {.name = "NoRows",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({0, 2}, {}), f32({2, 3}, {1, 2, 3, 4, 5, 6})},
     .outputs = {f32({0, 3}, {})}},
    {.name = "NoRowsAndColumnsOfAnyDepth",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {f32({0, std::int64_t{1} << 40}, {}), f32({std::int64_t{1} << 40, 0}, {})},
     .outputs = {f32({0, 0}, {})}},
    {.name = "IntegersWrap",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {i32({1, 2}, {2147483647, 2}), i32({2, 1}, {1, 1})},
     .outputs = {i32({1, 1}, {-2147483647.0})}},
    {.name = "Int64ProductsAreExact",
     .node = {.op_type = "MatMul", .opset = 13},
     .inputs = {i64({1, 1}, {3037000499}), i64({1, 1}, {3037000499})},
     .outputs = {i64({1, 1}, {9223372030926249001})}},
    {.name = "GemmWithAllAttributes",
     .node = {.op_type = "Gemm",
              .opset = 13,
              .attributes = {{"alpha", 2.0f}, {"beta", 0.5f}, {"transA", 1}, {"transB", 1}}},
     .inputs = {f32({2, 1}, {1, 2}), constant(f32({2, 2}, {1, 2, 3, 4})),
                constant(f32({2}, {10, 20}))},
     .outputs = {f32({1, 2}, {15, 32})}},
    {.name = "GemmOfIntegersIsCutOffOnce",
     .node = {.op_type = "Gemm", .opset = 13, .attributes = {{"alpha", 0.5f}, {"beta", 2.0f}}},
     .inputs = {i32({1, 1}, {1}), i32({1, 2}, {1, 5}), i32({2}, {-1, 3})},
     .outputs = {i32({1, 2}, {-1, 8})}},
    {.name = "GemmWithoutC",
     .node = {.op_type = "Gemm", .opset = 13},
     .inputs = {f32({1, 2}, {1, 2}), constant(f32({2, 1}, {3, 4}))},
     .outputs = {f32({1, 1}, {11})}},
    {.name = "GemmWithAColumnAsC",
     .node = {.op_type = "Gemm", .opset = 13},
     .inputs = {f32({2, 1}, {1, 2}), f32({1, 2}, {1, 1}), f32({2, 1}, {10, 20})},
     .outputs = {f32({2, 2}, {11, 11, 22, 22})}},
};
const Rows kMatMulRows("MatMul", kRows);

ElementType matmul_type(Random& random) {
  return random.pick({ElementType::Float, ElementType::Float, ElementType::Float,
                      ElementType::Double, ElementType::Float16, ElementType::Int32,
                      ElementType::Int64, ElementType::UInt32, ElementType::UInt64});
}

OpCase any_batch(Random& random) {
  OpCase row;
  row.node = {.op_type = "MatMul", .opset = 13};
  const ElementType type = matmul_type(random);
  const Dims batch = random.dims(random.integer(0, 3), 12);
  const std::int64_t m = random.size();
  const std::int64_t k = random.size();
  const std::int64_t n = random.size();
  Dims a = random.broadcastable(batch);
  Dims b = random.one_in(2) ? Dims{} : random.broadcastable(batch);
  if (random.one_in(8)) a.clear();
  const bool vector_a = a.empty() && random.one_in(4);
  if (!vector_a) a.push_back(m);
  a.push_back(k);
  b.push_back(k);
  if (b.size() > 1 || !random.one_in(4)) b.push_back(n);
  const bool is_unsigned = type == ElementType::UInt32 || type == ElementType::UInt64;
  row.inputs = {random.tensor(type, a, is_unsigned ? 0 : -2, 2),
                random.tensor(type, b, is_unsigned ? 0 : -2, 2)};
  row.inputs[1].is_constant = random.one_in(2);
  row.tolerance = {32, 256};
  return row;
}
const Sweep kAnyBatch("MatMul", "AnyBatch", 120, any_batch);

/// Sizes around the blocks of matrix kernels, and some that several threads share.
OpCase blocks(Random& random) {
  OpCase row;
  const std::vector<std::int64_t> sizes = {1, 6, 15, 16, 17, 31, 48, 63, 64, 65, 100, 129, 200};
  const std::int64_t m = random.pick(sizes);
  const std::int64_t k = random.pick(sizes) + random.integer(0, 300);
  const std::int64_t n = random.pick(sizes);
  row.node = {.op_type = "MatMul", .opset = 13};
  row.inputs = {random.tensor(ElementType::Float, {m, k}, -1, 1),
                random.tensor(ElementType::Float, {k, n}, -1, 1)};
  row.inputs[1].is_constant = !random.one_in(3);
  row.tolerance = {64, 1024};
  return row;
}
const Sweep kBlocks("MatMul", "Blocks", 24, blocks);

/// Doubles have blocks of their own: of rows, columns and steps of the depth; both matrices may be turned.
OpCase double_blocks(Random& random) {
  OpCase row;
  const std::vector<std::int64_t> sizes = {1, 4, 6, 7, 8, 15, 16, 17, 33, 64, 67, 129};
  const std::int64_t m = random.pick(sizes);
  const std::int64_t k = random.pick({1, 16, 255, 256, 257, 520});
  const std::int64_t n = random.pick(sizes);
  const bool is_gemm = random.one_in(2);
  const bool a_turned = is_gemm && random.one_in(2), b_turned = is_gemm && random.one_in(2);
  row.node = {.op_type = is_gemm ? "Gemm" : "MatMul", .opset = 13};
  if (a_turned) row.node.attributes.push_back({"transA", 1});
  if (b_turned) row.node.attributes.push_back({"transB", 1});
  row.inputs = {random.tensor(ElementType::Double, a_turned ? Dims{k, m} : Dims{m, k}, -1, 1),
                random.tensor(ElementType::Double, b_turned ? Dims{n, k} : Dims{k, n}, -1, 1)};
  if (is_gemm && random.one_in(2))
    row.inputs.push_back(random.tensor(ElementType::Double, {n}, -1, 1));
  row.tolerance = {64, 1024};
  return row;
}
const Sweep kDoubleBlocks("MatMul", "DoubleBlocks", 32, double_blocks);

OpCase gemm(Random& random) {
  OpCase row;
  const std::int64_t m = random.size();
  const std::int64_t k = random.size() * random.integer(1, 4);
  const std::int64_t n = random.size() * random.integer(1, 3);
  const bool a_turned = random.one_in(2);
  const bool b_turned = random.one_in(2);
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Float, ElementType::Float, ElementType::Double,
                   ElementType::Float16, ElementType::Int32});
  row.node = {.op_type = "Gemm", .opset = 13};
  if (a_turned) row.node.attributes.push_back({"transA", 1});
  if (b_turned) row.node.attributes.push_back({"transB", 1});
  const bool whole =
      type == ElementType::Int32;  // a fraction as alpha would depend on who rounds when
  if (random.one_in(3)) row.node.attributes.push_back({"alpha", whole ? 2.0 : random.real(-2, 2)});
  if (random.one_in(3)) row.node.attributes.push_back({"beta", whole ? 3.0 : random.real(-2, 2)});
  row.inputs = {random.tensor(type, a_turned ? Dims{k, m} : Dims{m, k}, -2, 2),
                random.tensor(type, b_turned ? Dims{n, k} : Dims{k, n}, -2, 2)};
  if (!random.one_in(4)) {
    const Dims c = random.pick({Dims{n}, Dims{1, n}, Dims{m, 1}, Dims{m, n}, Dims{1}, Dims{}});
    row.inputs.push_back(random.tensor(type, c, -2, 2));
  }
  const bool is_constant = random.one_in(2);
  for (std::size_t i = 1; i < row.inputs.size(); ++i) row.inputs[i].is_constant = is_constant;
  row.tolerance = {64, 512};
  // C may be scaled, or added, in the type itself.
  if (type == ElementType::Float16) row.tolerance = {2 * 8192, 8 * 8192};
  return row;
}
const Sweep kGemm("MatMul", "Gemm", 80, gemm);

}  // namespace
}  // namespace backplane::ops_test

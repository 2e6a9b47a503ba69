// Gather, Scatter, OneHot, Compress, NonZero, TopK:
// https://onnx.ai/onnx/operators/onnx__Gather.html
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "GatherByAScalarDropsTheAxis",
     .node = {.op_type = "Gather", .opset = 13, .attributes = {{"axis", 1}}},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6}), constant(i64({}, {-1}))},
     .outputs = {f32({2}, {3, 6})}},
    {.name = "GatherOfOnePlaceKeepsTheAxis",
     .node = {.op_type = "Gather", .opset = 13},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), constant(i32({1}, {-1}))},
     .outputs = {f32({1, 2}, {3, 4})}},
    {.name = "GatherOfRows",
     .node = {.op_type = "Gather", .opset = 13},
     .inputs = {f32({3, 2}, {1, 2, 3, 4, 5, 6}), i64({1, 2}, {2, 0})},
     .outputs = {f32({1, 2, 2}, {5, 6, 1, 2})}},
    {.name = "GatherWithInt32",
     .node = {.op_type = "Gather", .opset = 13},
     .inputs = {text({3}, {"a", "b", "c"}), i32({2}, {2, -2})},
     .outputs = {text({2}, {"c", "b"})}},
    {.name = "GatherElementsAlongAnAxis",
     .node = {.op_type = "GatherElements", .opset = 13, .attributes = {{"axis", 1}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), i64({2, 2}, {0, 0, 1, -2})},
     .outputs = {f32({2, 2}, {1, 1, 4, 3})}},
    {.name = "GatherNdOfSlices",
     .node = {.op_type = "GatherND", .opset = 13},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), i64({2, 1}, {1, 0})},
     .outputs = {f32({2, 2}, {3, 4, 1, 2})}},
    {.name = "GatherNdByBatch",
     .node = {.op_type = "GatherND", .opset = 13, .attributes = {{"batch_dims", 1}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), i64({2, 1}, {1, 0})},
     .outputs = {f32({2}, {2, 3})}},
    {.name = "ScatterElementsAdds",
     .node = {.op_type = "ScatterElements", .opset = 18, .attributes = {{"reduction", "add"}}},
     .inputs = {f32({3}, {1, 2, 3}), i64({2}, {1, 1}), f32({2}, {10, 20})},
     .outputs = {f32({3}, {1, 32, 3})}},
    {.name = "ScatterNdReplacesRows",
     .node = {.op_type = "ScatterND", .opset = 18},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), i64({1, 1}, {1}), f32({1, 2}, {8, 9})},
     .outputs = {f32({2, 2}, {1, 2, 8, 9})}},
    {.name = "OneHotCountsNegativeIndicesFromTheEnd",
     .node = {.op_type = "OneHot", .opset = 11},
     .inputs = {i64({2}, {0, -1}), constant(i64({1}, {3})), constant(f32({2}, {0, 5}))},
     .outputs = {f32({2, 3}, {5, 0, 0, 0, 0, 5})}},
    {.name = "OneHotOutOfRangeIsOff",
     .node = {.op_type = "OneHot", .opset = 11},
     .inputs = {i64({2}, {3, -4}), constant(i64({}, {3})), constant(f32({2}, {-1, 5}))},
     .outputs = {f32({2, 3}, {-1, -1, -1, -1, -1, -1})}},
    {.name = "TensorScatterGoesAroundFromFarAway",  // 2^63 - 1 is one more than a multiple of 3
     .node = {.op_type = "TensorScatter", .opset = 24, .attributes = {{"mode", "circular"}}},
     .inputs = {f32({1, 3, 1}, {1, 2, 3}), f32({1, 2, 1}, {8, 9}), i64({1}, {kGreatest})},
     .outputs = {f32({1, 3, 1}, {1, 8, 9})}},
    {.name =
         "CompressByAMaskShapedLikeTheInput",  // not of the standard, but as PaddlePaddle's converter writes it
     .node = {.op_type = "Compress", .opset = 11},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6}), boolean({2, 3}, {0, 1, 0, 1, 1, 0})},
     .outputs = {f32({3}, {2, 4, 5})}},
    {.name = "CompressWithoutAxisFlattens",
     .node = {.op_type = "Compress", .opset = 11},
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), boolean({3}, {0, 1, 1})},
     .outputs = {f32({2}, {2, 3})}},
    {.name = "NonZeroOfAMatrix",
     .node = {.op_type = "NonZero", .opset = 13},
     .inputs = {f32({2, 2}, {1, 0, 1, 1})},
     .outputs = {i64({2, 3}, {0, 1, 1, 0, 0, 1})}},
    {.name = "NonZeroOfZeros",
     .node = {.op_type = "NonZero", .opset = 13},
     .inputs = {boolean({3}, {0, 0, 0})},
     .outputs = {i64({1, 0}, {})}},
    {.name = "NonZeroOfTwoFourthsAndNan",
     .node = {.op_type = "NonZero", .opset = 13},
     .inputs = {f32({4}, {0.25, -0.0, kNan, 0})},
     .outputs = {i64({1, 2}, {0, 2})}},
    {.name = "TopKOfEqualOnesTakesTheFirst",
     .node = {.op_type = "TopK", .opset = 11},
     .inputs = {f32({4}, {1, 3, 3, 2}), constant(i64({2}))},
     .outputs = {f32({2}, {3, 3}), i64({2}, {1, 2})}},
    {.name = "TopKOfTheSmallest",
     .node = {.op_type = "TopK", .opset = 11, .attributes = {{"largest", 0}, {"axis", 0}}},
     .inputs = {i64({3, 1}, {5, -7, 2}), constant(i64({2}))},
     .outputs = {i64({2, 1}, {-7, 2}), i64({2, 1}, {1, 2})}},
    {.name = "TopKByAttribute",
     .node = {.op_type = "TopK", .opset = 9, .attributes = {{"k", 1}}},
     .inputs = {f32({2, 2}, {1, 2, 4, 3})},
     .outputs = {f32({2, 1}, {2, 4}), i64({2, 1}, {1, 0})}},
    {.name = "TopOneOfRowsOfThree",
     .node = {.op_type = "TopK", .opset = 11},
     .inputs = {f32({4, 3}, {1, 3, 3, kNan, 1, 2, 2, kNan, kNan, -1, -2, -1}), constant(i64({1}))},
     .outputs = {f32({4, 1}, {3, kNan, kNan, -1}), i64({4, 1}, {1, 0, 1, 0})}},
    {.name = "LeastOneOfRowsOfThree",
     .node = {.op_type = "TopK", .opset = 11, .attributes = {{"largest", 0}}},
     .inputs = {f32({4, 3}, {1, 1, 3, kNan, 1, 2, 2, kNan, kNan, -1, -2, -2}), constant(i64({1}))},
     .outputs = {f32({4, 1}, {1, 1, 2, -2}), i64({4, 1}, {0, 1, 0, 1})}},
    {.name = "TopOfHalvesKnowsNanAsTheLargest",
     .node = {.op_type = "TopK", .opset = 11},
     .inputs = {f16({2, 4}, {1, kNan, 3, kNan, -0.0, 0, -1, 65504}), constant(i64({1}, {3}))},
     .outputs = {f16({2, 3}, {kNan, kNan, 3, 65504, -0.0, 0}), i64({2, 3}, {1, 3, 2, 3, 0, 1})}},
    {.name = "TopZero",
     .node = {.op_type = "TopK", .opset = 11},
     .inputs = {f32({3}, {1, 2, 3}), constant(i64({0}))},
     .outputs = {f32({0}, {}), i64(Dims{0}, {})}},
    {.name = "TopKOfNoRowsOfManyColumns",
     .node = {.op_type = "TopK", .opset = 11},
     .inputs = {f32({0, std::int64_t{1} << 40}, {}), constant(i64({1}))},
     .outputs = {f32({0, 1}, {}), i64({0, 1}, {})}},
};
const Rows kIndexingRows("Indexing", kRows);

const OpCase kRefusals[] = {
    {.name = "OneHotOfADepthThatCannotBeCounted",
     .node = {.op_type = "OneHot", .opset = 11},
     .inputs = {i64({2}, {0, 1}), f32({1}, {1e30}), constant(f32({2}, {0, 1}))},
     .outputs = {f32({0, 0}, {})},
     .refusal = "too large"},
    {.name = "TensorScatterFarBehindTheCache",
     .node = {.op_type = "TensorScatter", .opset = 24},
     .inputs = {f32({1, 2, 1}, {1, 2}), f32({1, 1, 1}, {3}), i64({1}, {kGreatest})},
     .outputs = {f32({0, 0, 0}, {})},
     .refusal = "write index"},
};
const Rows kIndexingRefusals("Indexing", kRefusals);

/// Indices as they are mostly fed, sometimes constant.
Input indices_input(Random& random, const Dims& dims, std::int64_t size) {
  Input input(
      random.indices(dims, -size, size - 1,
                     random.pick({ElementType::Int64, ElementType::Int64, ElementType::Int32})));
  input.is_constant = random.one_in(3);
  return input;
}

OpCase gather(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t axis = random.axis(rank);
  const Dims dims = random.dims(rank, 1000, false);
  row.node = {.op_type = "Gather", .opset = 13, .attributes = {{"axis", axis}}};
  const std::int64_t size = dims[axis < 0 ? axis + rank : axis];
  row.inputs = {random.tensor(random.pick(all_types()), dims),
                indices_input(random, random.dims(random.integer(0, 2), 20), size)};
  return row;
}
const Sweep kGather("Indexing", "Gather", 80, gather);

OpCase gather_elements(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t axis = random.axis(rank);
  const Dims dims = random.dims(rank, 1000, false);
  row.node = {.op_type = "GatherElements", .opset = 13, .attributes = {{"axis", axis}}};
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  Dims index_dims;
  for (const std::int64_t dim : dims) index_dims.push_back(random.integer(1, dim));
  index_dims[at] = random.integer(0, 12);
  row.inputs = {random.tensor(random.pick(all_types()), dims),
                indices_input(random, index_dims, dims[at])};
  return row;
}
const Sweep kGatherElements("Indexing", "GatherElements", 40, gather_elements);

/// Tuples of indices of the first `width` axes after `batch` ones; distinct ones where `distinct`,
/// as plain scatter needs.
Tensor tuples(Random& random, const Dims& front, const Dims& dims, std::int64_t batch,
              std::int64_t width, bool distinct) {
  const std::int64_t count = reference::element_count(front);
  std::int64_t cells = 1;
  for (std::int64_t a = 0; a < width; ++a) cells *= dims[batch + a];
  const Dims order = random.permutation(cells);
  std::vector<std::int64_t> values;
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t cell = distinct ? order[n] : random.integer(0, cells - 1);
    std::vector<std::int64_t> tuple(static_cast<std::size_t>(width));
    for (std::int64_t a = width; a > 0; --a) {
      const std::int64_t size = dims[batch + a - 1];
      tuple[a - 1] = cell % size - (random.one_in(4) ? size : 0);
      cell /= size;
    }
    values.insert(values.end(), tuple.begin(), tuple.end());
  }
  Dims index_dims = front;
  index_dims.push_back(width);
  return i64(index_dims, values);
}

OpCase gather_nd(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t batch = random.integer(0, rank - 1);
  const std::int64_t width = random.integer(1, rank - batch);
  const Dims dims = random.dims(rank, 600, false);
  row.node = {.op_type = "GatherND", .opset = 13, .attributes = {{"batch_dims", batch}}};
  Dims front(dims.begin(), dims.begin() + batch);
  front.push_back(random.integer(1, 5));
  row.inputs = {random.tensor(random.pick(all_types()), dims),
                tuples(random, front, dims, batch, width, false)};
  return row;
}
const Sweep kGatherNd("Indexing", "GatherNd", 40, gather_nd);

OpCase scatter_nd(Random& random) {
  OpCase row;
  const std::string reduction = random.pick({"none", "none", "add", "mul", "max", "min"});
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t width = random.integer(1, rank);
  const Dims dims = random.dims(rank, 600, false);
  std::int64_t cells = 1;
  for (std::int64_t a = 0; a < width; ++a) cells *= dims[a];
  const bool plain = reduction == "none";
  const std::int64_t count = random.integer(1, plain ? std::min<std::int64_t>(cells, 9) : 9);
  row.node = {.op_type = "ScatterND", .opset = 18, .attributes = {{"reduction", reduction}}};
  Dims update_dims = {count};
  update_dims.insert(update_dims.end(), dims.begin() + width, dims.end());
  const ElementType type =
      plain ? random.pick(all_types())
            : random.pick({ElementType::Float, ElementType::Int64, ElementType::Double});
  row.inputs = {random.tensor(type, dims), tuples(random, {count}, dims, 0, width, plain),
                random.tensor(type, update_dims)};
  row.tolerance = {32, 32};
  return row;
}
const Sweep kScatterNd("Indexing", "ScatterNd", 50, scatter_nd);

OpCase scatter_elements(Random& random) {
  OpCase row;
  const std::string reduction = random.pick({"none", "none", "add", "mul", "max", "min"});
  const bool plain = reduction == "none";
  const std::int64_t rank = random.integer(1, 4);
  const std::int64_t axis = random.axis(rank);
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  const Dims dims = random.dims(rank, 600, false);
  Dims index_dims;
  for (const std::int64_t dim : dims) index_dims.push_back(random.integer(1, dim));
  if (plain) index_dims[at] = 1;  // every line is written once, so that the order does not matter
  row.node = {
      .op_type = "ScatterElements", .opset = plain ? 13 : 18, .attributes = {{"axis", axis}}};
  if (!plain) row.node.attributes.push_back({"reduction", reduction});
  const ElementType type =
      plain ? random.pick(all_types())
            : random.pick({ElementType::Float, ElementType::Int32, ElementType::Double});
  row.inputs = {random.tensor(type, dims), indices_input(random, index_dims, dims[at]),
                random.tensor(type, index_dims)};
  row.tolerance = {32, 32};
  return row;
}
const Sweep kScatterElements("Indexing", "ScatterElements", 50, scatter_elements);

OpCase tensor_scatter(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(2, 4);
  const Dims cache = random.dims(rank, 600, false);
  const std::int64_t axis = random.integer(1, rank - 1);
  Dims update = cache;
  update[axis] = random.integer(0, cache[axis]);
  const bool goes_around = random.one_in(2);
  row.node = {.op_type = "TensorScatter",
              .opset = 24,
              .attributes = {{"axis", random.one_in(2) ? axis : axis - rank},
                             {"mode", goes_around ? "circular" : "linear"}}};
  const ElementType type = random.pick(all_types());
  row.inputs = {random.tensor(type, cache), random.tensor(type, update)};
  const std::int64_t most = goes_around ? 3 * cache[axis] : cache[axis] - update[axis];
  if (!random.one_in(4)) {
    std::vector<std::int64_t> starts;
    for (std::int64_t b = 0; b < cache[0]; ++b) starts.push_back(random.integer(0, most));
    row.inputs.push_back(i64(starts));
  }
  return row;
}
const Sweep kTensorScatter("Indexing", "TensorScatter", 40, tensor_scatter);

OpCase one_hot(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 3);
  const std::int64_t depth = random.integer(1, 9);
  row.node = {.op_type = "OneHot", .opset = 11, .attributes = {{"axis", random.axis(rank + 1)}}};
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Int64, ElementType::Int32});
  row.inputs = {random.indices(random.dims(rank, 300), -depth - 2, depth + 2),
                constant(i64({depth})), constant(random.tensor(type, {2}))};
  return row;
}
const Sweep kOneHot("Indexing", "OneHot", 30, one_hot);

OpCase compress(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  const Dims dims = random.dims(rank, 1000, false);
  row.node = {.op_type = "Compress", .opset = 11};
  std::int64_t most = reference::element_count(dims);
  if (!random.one_in(3)) {
    const std::int64_t axis = random.axis(rank);
    row.node.attributes = {{"axis", axis}};
    most = dims[axis < 0 ? axis + rank : axis];
  }
  const ElementType type = random.pick(all_types());
  // The operator has not been declared for bfloat16 in any opset.
  row.inputs = {random.tensor(type == ElementType::BFloat16 ? ElementType::Float : type, dims),
                random.tensor(ElementType::Bool, {random.integer(1, most)})};
  return row;
}
const Sweep kCompress("Indexing", "Compress", 30, compress);

OpCase non_zero(Random& random) {
  OpCase row;
  row.node = {.op_type = "NonZero", .opset = 13};
  const ElementType type = random.pick({ElementType::Float, ElementType::Bool, ElementType::Int64,
                                        ElementType::Int32, ElementType::UInt8});
  row.inputs = {random.tensor(type, random.dims(random.integer(1, 4)),
                              reference::is_float(type) ? -1 : 0, 2)};
  return row;
}
const Sweep kNonZero("Indexing", "NonZero", 30, non_zero);

OpCase top_k(Random& random) {
  OpCase row;
  const std::int64_t rank = random.integer(1, 4);
  const Dims dims = random.one_in(10) ? Dims{3, 4000} : random.dims(rank, 2000, false);
  const std::int64_t axis = random.axis(static_cast<std::int64_t>(dims.size()));
  const std::int64_t size = dims[axis < 0 ? axis + static_cast<std::int64_t>(dims.size()) : axis];
  row.node = {.op_type = "TopK", .opset = 11, .attributes = {{"axis", axis}}};
  if (random.one_in(2)) row.node.attributes.push_back({"largest", random.integer(0, 1)});
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Float, ElementType::Double, ElementType::Int64,
                   ElementType::Int32, ElementType::Float16});
  const std::int64_t most = random.one_in(2) ? std::min<std::int64_t>(size, 20) : size;
  row.inputs = {random.tensor(type, dims, -50, 50), i64({random.integer(0, most)})};
  row.inputs[1].is_constant = random.one_in(2);
  row.output_count = 2;
  return row;
}
const Sweep kTopK("Indexing", "TopK", 60, top_k);

}  // namespace
}  // namespace backplane::ops_test

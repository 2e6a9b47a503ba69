// Reductions, ArgMax and ArgMin, CumSum: https://onnx.ai/onnx/operators/onnx__ReduceSum.html
#include <algorithm>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "AllAxesByDefault",
     .node = {.op_type = "ReduceSum", .opset = 13},
     .inputs = {f32({2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({1, 1}, {10})}},
    {.name = "AllAxesAndNoneKept",
     .node = {.op_type = "ReduceMean", .opset = 18, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({}, {2.5})}},
    {.name = "NoAxesMayMeanNoReduction",
     .node = {.op_type = "ReduceSum", .opset = 13, .attributes = {{"noop_with_empty_axes", 1}}},
     .inputs = {f32({2, 2}, {1, 2, 3, 4})},
     .outputs = {f32({2, 2}, {1, 2, 3, 4})}},
    {.name = "AxesAsAnAttribute",
     .node = {.op_type = "ReduceMax",
              .opset = 11,
              .attributes = {{"axes", ints({-1})}, {"keepdims", 0}}},
     .inputs = {f32({2, 2}, {1, 2, 4, 3})},
     .outputs = {f32({2}, {2, 4})}},
    {.name = "AxesAsAnInput",
     .node = {.op_type = "ReduceMax", .opset = 18, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({2, 2}, {1, 2, 4, 3}), constant(i64({0}))},
     .outputs = {f32({2}, {4, 3})}},
    {.name = "MaxOfBools",
     .node = {.op_type = "ReduceMax", .opset = 20, .attributes = {{"keepdims", 0}}},
     .inputs = {boolean({2, 2}, {0, 0, 1, 0}), constant(i64({1}))},
     .outputs = {boolean({2}, {0, 1})}},
    {.name = "SumOfLargeInt64IsExact",
     .node = {.op_type = "ReduceSum", .opset = 13, .attributes = {{"keepdims", 0}}},
     .inputs = {i64({2}, {9007199254740993, 2}), constant(i64({0}))},
     .outputs = {i64({}, {9007199254740995})}},
    {.name = "EmptySumsAreZero",
     .node = {.op_type = "ReduceSum", .opset = 13, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({2, 0, 3}, {}), constant(i64({1}))},
     .outputs = {f32({2, 3}, {0, 0, 0, 0, 0, 0})}},
    {.name = "EmptyMinIsInfinite",
     .node = {.op_type = "ReduceMin", .opset = 20, .attributes = {{"keepdims", 1}}},
     .inputs = {f32({2, 0}, {}), constant(i64({1}))},
     .outputs = {f32({2, 1}, {kInf, kInf})}},
    {.name = "RowsOfThreeHaveTheirNansAndInfinities",
     .node = {.op_type = "ReduceMax", .opset = 18, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({9, 3},
                    {kNan,  1,     2,  1,     kNan, 2,    1, 2,  kNan, kInf, kNan, 2,  -kInf, -kInf,
                     -kInf, -kInf, -3, -kInf, 4,    kInf, 1, -7, -5,   -6,   3,    -1, 2}),
                constant(i64({1}))},
     .outputs = {f32({9}, {kNan, kNan, kNan, kNan, -kInf, -3, kInf, -5, 3})}},
    {.name = "LogSumExpOfInfinitiesAndNans",
     .node = {.op_type = "ReduceLogSumExp", .opset = 18, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({5, 2}, {-kInf, -kInf, kInf, 1, kInf, kNan, 1, kNan, -kInf, 2}),
                constant(i64({1}))},
     .outputs = {f32({5}, {-kInf, kInf, kNan, kNan, 2})}},
    {.name = "LogSumExpOfLargeValues",
     .node = {.op_type = "ReduceLogSumExp", .opset = 18, .attributes = {{"keepdims", 0}}},
     .inputs = {f32({2, 2}, {1000, 1000, -1000, -1000}), constant(i64({1}))},
     .outputs = {f32({2}, {1000.6931471805599, -999.3068528194401})}},
    {.name = "SumsOfHalvesDoNotStopAt2048",
     .node = {.op_type = "ReduceSum", .opset = 13},
     .inputs = {f16({4096}, std::vector<double>(4096, 1))},
     .outputs = {f16({1}, {4096})}},
    {.name = "AScalarIsItsOwnSum",
     .node = {.op_type = "ReduceSum", .opset = 13},
     .inputs = {f32({}, {3})},
     .outputs = {f32({}, {3})}},
    {.name = "ArgMaxTakesTheFirst",
     .node = {.op_type = "ArgMax", .opset = 13, .attributes = {{"axis", 1}, {"keepdims", 0}}},
     .inputs = {f32({2, 3}, {1, 5, 5, 7, 7, 2})},
     .outputs = {i64({2}, {1, 0})}},
    {.name = "ArgMaxTakesTheLastIfAsked",
     .node = {.op_type = "ArgMax",
              .opset = 13,
              .attributes = {{"axis", -1}, {"select_last_index", 1}}},
     .inputs = {f32({2, 3}, {1, 5, 5, 7, 7, 2})},
     .outputs = {i64({2, 1}, {2, 1})}},
    {.name = "CumSumExclusiveAndReverse",
     .node = {.op_type = "CumSum", .opset = 14, .attributes = {{"exclusive", 1}, {"reverse", 1}}},
     .inputs = {f32({4}, {1, 2, 3, 4}), constant(i64({}, {0}))},
     .outputs = {f32({4}, {9, 7, 4, 0})}},
    {.name = "CumSumOfLargeInt64IsExact",
     .node = {.op_type = "CumSum", .opset = 14},
     .inputs = {i64({2}, {9007199254740993, 2}), constant(i32({}, {0}))},
     .outputs = {i64({2}, {9007199254740993, 9007199254740995})}},
    {.name = "CumSumOfNoRowsOfManyColumns",
     .node = {.op_type = "CumSum", .opset = 14},
     .inputs = {f32({0, std::int64_t{1} << 40}, {}), constant(i64({}, {0}))},
     .outputs = {f32({0, std::int64_t{1} << 40}, {})}},
};
const Rows kReduceRows("Reduce", kRows);

const std::vector<std::string> kReductions = {
    "ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
    "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"};

/// A random subset of the axes, half of them negative; never empty unless rank is 0.
Dims some_axes(Random& random, std::int64_t rank) {
  Dims axes;
  for (std::int64_t axis = 0; axis < rank; ++axis) {
    if (random.one_in(2)) axes.push_back(random.one_in(2) ? axis : axis - rank);
  }
  if (axes.empty() && rank > 0) axes.push_back(random.axis(rank));
  return axes;
}

/// Axes are an input of ReduceSum from opset 13 on, and of the others from 18 on.
OpCase reduction(const std::string& op, ElementType type, const Dims& dims, Random& random) {
  OpCase row;
  const bool old = random.one_in(3);
  row.node = {.op_type = op, .opset = old ? 11 : random.pick<std::int64_t>({18, 20})};
  if (old && type == ElementType::BFloat16) row.node.opset = op == "ReduceSum" ? 13 : 18;
  if ((type == ElementType::Int8 || type == ElementType::UInt8) && row.node.opset < 18)
    row.node.opset = 18;
  const double low = op == "ReduceLogSum" ? 0.5 : op == "ReduceProd" ? 0.8 : -3;
  row.inputs = {random.tensor(type, dims, low, op == "ReduceProd" ? 1.25 : 3)};
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (rank > 0 && !random.one_in(5)) {
    const Dims axes = some_axes(random, rank);
    const bool by_input = row.node.opset >= (op == "ReduceSum" ? 13 : 18);
    if (by_input) {
      row.inputs.push_back(constant(i64(axes)));
    } else {
      row.node.attributes.push_back({"axes", axes});
    }
  }
  if (random.one_in(2)) row.node.attributes.push_back({"keepdims", random.integer(0, 1)});
  row.tolerance = {64, 256};
  return row;
}

OpCase any_axes(Random& random) {
  const std::string op = random.pick(kReductions);
  const bool real =
      op == "ReduceLogSum" || op == "ReduceLogSumExp" || op == "ReduceL2" || op == "ReduceMean";
  std::vector<ElementType> types = float_types();
  if (!real)
    types.insert(types.end(), {ElementType::Int32, ElementType::Int64, ElementType::UInt32,
                               ElementType::UInt64});
  if (op == "ReduceMax" || op == "ReduceMin")
    types.insert(types.end(), {ElementType::Int8, ElementType::UInt8});
  // What an empty mean or product of extremes is differs between implementations: zero-size dims
  // have rows.
  const Dims dims = random.dims(random.integer(0, 5), 4000, op == "ReduceSum");
  return reduction(op, random.one_in(2) ? ElementType::Float : random.pick(types), dims, random);
}
const Sweep kAnyAxes("Reduce", "AnyAxes", 200, any_axes);

OpCase large(Random& random) {
  const std::string op = random.pick({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"});
  const Dims dims = random.pick({Dims{3, 70000}, Dims{300, 700}, Dims{70000, 3}, Dims{40, 70, 50}});
  OpCase row = reduction(op, ElementType::Float, dims, random);
  row.tolerance = {256, 4096};
  return row;
}
const Sweep kLarge("Reduce", "Large", 6, large);

/// A kept axis has no elements: there is nothing to make, and nothing to divide by.
OpCase without_results(Random& random) {
  const std::int64_t rank = random.integer(2, 4);
  Dims dims;
  for (std::int64_t i = 0; i < rank; ++i) dims.push_back(random.integer(1, 5));
  const std::int64_t empty = random.one_in(2) ? rank - 1 : random.integer(0, rank - 1);
  dims[static_cast<std::size_t>(empty)] = 0;
  const std::int64_t folded = (empty + random.integer(1, rank - 1)) % rank;
  OpCase row;
  row.node = {.op_type = random.pick(kReductions), .opset = 18};
  row.node.attributes = {{"keepdims", random.integer(0, 1)}};
  const ElementType type = random.pick({ElementType::Float, ElementType::Double});
  row.inputs = {tensor(type, dims, {}), constant(i64({folded}))};
  return row;
}
const Sweep kWithoutResults("Reduce", "WithoutResults", 80, without_results);

/// Rows of a few numbers and of many, a vector of rows and less than one, with what is no number or has no size in some.
OpCase rows_along_the_last_axis(Random& random) {
  const std::string op = random.pick(kReductions);
  const std::int64_t n = random.one_in(2)
                             ? random.integer(1, 9)
                             : random.pick<std::int64_t>(
                                   {15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 300});
  const std::int64_t rows = random.pick<std::int64_t>({1, 2, 7, 8, 9, 15, 16, 17, 35, 300});
  const ElementType type = random.one_in(3) ? ElementType::Double : ElementType::Float;
  // Kept axes around a folded one, too, and folded ones before a short axis.
  const bool more = rows < 300 && random.one_in(3);
  const bool columns = rows < 300 && !more && random.one_in(3);
  const Dims dims = more      ? Dims{2, 3, rows, n}
                    : columns ? Dims{rows, n, random.integer(1, 17)}
                              : Dims{rows, n};
  OpCase row;
  row.node = {.op_type = op, .opset = 18, .attributes = {{"keepdims", 0}}};
  const double low = op == "ReduceLogSum" ? 0.5 : op == "ReduceProd" ? 0.97 : -3;
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * n * (more ? 6 : columns ? dims[2] : 1); ++i) {
    const double value = random.real(low, op == "ReduceProd" ? 1.03 : 3);
    const double special = random.pick({kNan, kInf, -kInf, -0.0});
    const bool takes = i % 3 == 0 && random.one_in(static_cast<int>(5 * n));
    values.push_back(takes && (op != "ReduceLogSum" || special > 0) ? special : value);
  }
  row.inputs = {tensor(type, dims, std::move(values)), constant(i64(more ? Dims{1, 3} : Dims{1}))};
  row.tolerance = {64, 256};
  return row;
}
const Sweep kRowsAlongTheLastAxis("Reduce", "RowsAlongTheLastAxis", 200, rows_along_the_last_axis);

OpCase argument(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"ArgMax", "ArgMin"}), .opset = 13};
  const std::int64_t rank = random.integer(1, 5);
  row.node.attributes = {{"axis", random.axis(rank)}};
  if (random.one_in(2)) row.node.attributes.push_back({"keepdims", 0});
  if (random.one_in(2)) row.node.attributes.push_back({"select_last_index", random.integer(0, 1)});
  row.inputs = {random.tensor(random.pick(number_types()), random.dims(rank, 2000, false), -4, 4)};
  return row;
}
const Sweep kArgument("Reduce", "ArgMaxAndArgMin", 80, argument);

/// Rows of some vectors and a rest, in which many elements are equal.
OpCase argument_of_a_long_row(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"ArgMax", "ArgMin", "Hardmax"}), .opset = 13};
  row.node.attributes = {{"axis", -1}};
  if (row.node.op_type != "Hardmax")
    row.node.attributes.push_back({"select_last_index", random.integer(0, 1)});
  const ElementType type =
      row.node.op_type == "Hardmax"
          ? random.pick({ElementType::Float, ElementType::Double, ElementType::Float16})
          : random.pick(number_types());
  const std::int64_t n = random.pick<std::int64_t>({15, 16, 17, 31, 33, 40, 47, 64, 65, 100, 257});
  std::vector<double> values;
  for (std::int64_t i = 0; i < 5 * n; ++i)
    values.push_back(static_cast<double>(random.integer(3, 30)));
  row.inputs = {tensor(type, {5, n}, std::move(values))};
  return row;
}
const Sweep kArgumentOfALongRow("Reduce", "ArgumentOfALongRow", 60, argument_of_a_long_row);

OpCase cumulative_sum(Random& random) {
  OpCase row;
  row.node = {.op_type = "CumSum", .opset = 14};
  const std::int64_t rank = random.integer(1, 4);
  if (random.one_in(2)) row.node.attributes.push_back({"exclusive", random.integer(0, 1)});
  if (random.one_in(2)) row.node.attributes.push_back({"reverse", random.integer(0, 1)});
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Int32, ElementType::Int64,
                   ElementType::UInt32, ElementType::UInt64});
  row.inputs = {random.tensor(type, random.dims(rank), 0, 5)};
  const std::int64_t axis = random.axis(rank);
  row.inputs.push_back(constant(
      random.indices({}, axis, axis, random.pick({ElementType::Int32, ElementType::Int64}))));
  row.tolerance = {64, 64};
  return row;
}
const Sweep kCumSum("Reduce", "CumSum", 60, cumulative_sum);

}  // namespace
}  // namespace backplane::ops_test

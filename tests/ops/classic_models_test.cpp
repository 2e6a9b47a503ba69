// Linear models, support vectors, encoders and dictionaries of ai.onnx.ml:
// https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html and the others.
#include <cmath>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

Node ml(const char* op_type, std::vector<reference::Attribute> attributes, std::int64_t opset = 3) {
  return {.op_type = op_type,
          .domain = "ai.onnx.ml",
          .opset = opset,
          .attributes = std::move(attributes)};
}

const double kHalf = 0.62245933120185456;    // 1 / (1 + e^-0.5)
const double kOneInE = 0.36787944117144233;  // e^-1
const double kTanhHalf = 0.46211715726000979;

const OpCase kLinear[] = {
    {.name = "TwoTargets",
     .node = ml("LinearRegressor", {{"targets", 2},
                                    {"coefficients", floats({1, 2, 3, -1, 0, 1})},
                                    {"intercepts", floats({10, 20})}}),
     .inputs = {f32({2, 3}, {1, 1, 1, 1, 2, 3})},
     .outputs = {f32({2, 2}, {16, 20, 24, 22})}},
    {.name = "IntegersWithoutABatch",
     .node = ml("LinearRegressor", {{"coefficients", floats({2, 3})}}),
     .inputs = {i64({2}, {5, 7})},
     .outputs = {f32({1, 1}, {31})}},
    {.name = "ThreeClassesOfDoubles",
     .node = ml("LinearClassifier", {{"coefficients", floats({1, 0, 0, 1, -1, -1})},
                                     {"intercepts", floats({0, 0, 0.5f})},
                                     {"classlabels_strings", strings({"a", "b", "c"})}}),
     .inputs = {f64({3, 2}, {2, 1, 1, 2, -1, -1})},
     .outputs = {text({3}, {"a", "b", "c"}), f32({3, 3}, {2, 1, -2.5, 1, 2, -2.5, -1, -1, 2.5})}},
    {.name = "OneScoreForTwoClasses",
     .node = ml("LinearClassifier", {{"coefficients", floats({1})},
                                     {"intercepts", floats({0})},
                                     {"post_transform", "LOGISTIC"},
                                     {"classlabels_ints", ints({-5, 5})}}),
     .inputs = {f32({2, 1}, {0.5, -0.5})},
     .outputs = {i64({2}, {5, -5}), f32({2, 2}, {1 - kHalf, kHalf, kHalf, 1 - kHalf})}},
    {.name = "NoRows",
     .node = ml("LinearClassifier", {{"coefficients", floats({1, 2, 3, 4})},
                                     {"intercepts", floats({0, 0})},
                                     {"classlabels_ints", ints({0, 1})}}),
     .inputs = {f32({0, 2}, {})},
     .outputs = {i64({0}, {}), f32({0, 2}, {})}},
};
const Rows kLinearRows("LinearModels", kLinear);

/// Vectors [1, 0], [0, 1] and [1, 1], with coefficients 1, -1 and 2, and 0.5 added.
OpCase regression(const char* name, const char* kernel, std::vector<double> y, int one_class = 0) {
  return {.name = name,
          .node = ml("SVMRegressor", {{"kernel_type", kernel},
                                      {"kernel_params", floats({0.5f, 1, 3})},
                                      {"n_supports", 3},
                                      {"support_vectors", floats({1, 0, 0, 1, 1, 1})},
                                      {"coefficients", floats({1, -1, 2})},
                                      {"one_class", one_class},
                                      {"rho", floats({0.5f})}}),
          .inputs = {f32({2, 2}, {1, 0, -1, -1})},
          .outputs = {f32({2, 1}, std::move(y))},
          .tolerance = {16, 16}};
}

const double kTanh32 = 0.90514825364486644;  // tanh of 1.5
const double kE52 = 0.0820849986238988;      // e^-2.5
const double kE4 = 0.01831563888873418;      // e^-4

const OpCase kVectors[] = {
    regression("Linear", "LINEAR", {1 - 0 + 2 + 0.5, -1 + 1 - 4 + 0.5}),
    regression("Polynomial", "POLY", {3.375 - 1 + 6.75 + 0.5, 0.125 - 0.125 + 0 + 0.5}),
    regression("Radial", "RBF",
               {1 - kOneInE + 2 * 0.60653065971263342 + 0.5, kE52 - kE52 + 2 * kE4 + 0.5}),
    regression("Sigmoid", "SIGMOID",
               {kTanh32 - 0.76159415595576489 + 2 * kTanh32 + 0.5, kTanhHalf - kTanhHalf + 0.5}),
    regression("OneClass", "LINEAR", {1, -1}, 1),
    {.name = "RegressionWithoutVectors",
     .node = ml("SVMRegressor", {{"coefficients", floats({2, 3})}, {"rho", floats({1})}}),
     .inputs = {f32({2, 2}, {1, 1, 0, 2})},
     .outputs = {f32({2, 1}, {6, 7})}},
    {.name = "DecisionsBetweenThreeClasses",
     .node = ml("SVMClassifier", {{"kernel_type", "LINEAR"},
                                  {"vectors_per_class", ints({1, 1, 1})},
                                  {"support_vectors", floats({1, 0, 0, 1, -1, -1})},
                                  {"coefficients", floats({1, -1, -1, 2, 1, -3})},
                                  {"rho", floats({0.5f, 0, 0})},
                                  {"classlabels_ints", ints({7, 8, 9})}}),
     .inputs = {f32({3, 2}, {2, 0, 0, 2, -1, -1})},
     // Between 0 and 1: k0 - k1 + 0.5; 0 and 2: 2 k0 - k2; 1 and 2: k1 - 3 k2.
     .outputs = {i64({3}, {7, 8, 9}), f32({3, 3}, {2.5, 6, 6, -1.5, 2, 8, 0.5, -4, -7})}},
    {.name = "TwoClasses",
     .node = ml("SVMClassifier", {{"vectors_per_class", ints({1, 1})},
                                  {"support_vectors", floats({1, 0, 0, 1})},
                                  {"coefficients", floats({1, -1})},
                                  {"rho", floats({0})},
                                  {"classlabels_strings", strings({"no", "yes"})}}),
     .inputs = {i32({2, 2}, {3, 1, 1, 3})},
     .outputs = {text({2}, {"no", "yes"}), f32({2, 2}, {-2, 2, 2, -2})}},
    {.name = "ProbabilitiesOfTwoClasses",
     .node = ml("SVMClassifier", {{"vectors_per_class", ints({1, 1})},
                                  {"support_vectors", floats({1, 0, 0, 1})},
                                  {"coefficients", floats({1, -1})},
                                  {"rho", floats({0})},
                                  {"prob_a", floats({-0.25f})},
                                  {"prob_b", floats({0})},
                                  {"classlabels_ints", ints({0, 1})}}),
     .inputs = {f32({1, 2}, {3, 1})},
     .outputs = {i64({1}, {0}), f32({1, 2}, {kHalf, 1 - kHalf})},
     .tolerance = {0, 5e4}},  // the iteration stops at 0.005 / 2
};
const Rows kVectorRows("SupportVectors", kVectors);

/// The plain formula for many rows and vectors: in blocks of rows, and in panels with a rest.
OpCase radial(Random& random) {
  const std::int64_t features = random.integer(1, 40), vectors = random.integer(1, 150);
  const std::int64_t rows = random.pick<std::int64_t>({1, 3, 4, 17, 64, 65, 130});
  const Tensor support = random.tensor(ElementType::Float, {vectors, features}, -1, 1);
  const Tensor x = random.tensor(ElementType::Float, {rows, features}, -1, 1);
  const Tensor weights = random.tensor(ElementType::Float, {vectors}, -1, 1);
  const Array s = to_array(support), a = to_array(x), w = to_array(weights);
  const auto as_floats = [](const Array& array) {
    return std::vector<float>(array.values.begin(), array.values.end());
  };
  std::vector<double> y;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t v = 0; v < vectors; ++v) {
      double square = 0;
      for (std::int64_t f = 0; f < features; ++f) {
        const double d = a.values[static_cast<std::size_t>(row * features + f)] -
                         s.values[static_cast<std::size_t>(v * features + f)];
        square += d * d;
      }
      sum += w.values[static_cast<std::size_t>(v)] * std::exp(-0.125 * square);
    }
    y.push_back(sum);
  }
  return {.node = ml("SVMRegressor", {{"kernel_type", "RBF"},
                                      {"kernel_params", floats({0.125f, 0, 0})},
                                      {"n_supports", vectors},
                                      {"support_vectors", as_floats(s)},
                                      {"coefficients", as_floats(w)},
                                      {"rho", floats({0})}}),
          .inputs = {x},
          .outputs = {f32({rows, 1}, y)},
          .tolerance = {64, 200}};
}
const Sweep kRadial("SupportVectors", "RadialSweep", 40, radial);

const OpCase kEncoders[] = {
    {.name = "TextsToNumbers",
     .node = ml("LabelEncoder", {{"keys_strings", strings({"a", "b", ""})},
                                 {"values_int64s", ints({10, 20, 30})},
                                 {"default_int64", 7}}),
     .inputs = {text({2, 2}, {"b", "", "A", "a"})},
     .outputs = {i64({2, 2}, {20, 30, 7, 10})}},
    {.name = "FloatsToTextsAndNaNIsAKey",
     .node = ml("LabelEncoder", {{"keys_floats", floats({1.5f, static_cast<float>(kNan)})},
                                 {"values_strings", strings({"x", "nan"})}}),
     .inputs = {f32({3}, {kNan, 1.5, 2})},
     .outputs = {text({3}, {"nan", "x", "_Unused"})}},
    {.name = "TensorsAsAttributes",
     .node = ml("LabelEncoder",
                {{"keys_tensor", to_array(tensor(ElementType::Int16, {2}, {3, -4}))},
                 {"values_tensor", to_array(f64({2}, {0.5, 0.25}))},
                 {"default_tensor", to_array(f64({1}, {9}))}},
                4),
     .inputs = {tensor(ElementType::Int16, {3}, {-4, 5, 3})},
     .outputs = {f64({3}, {0.25, 9, 0.5})}},
    {.name = "OldestNumbersToTexts",
     .node = ml("LabelEncoder", {{"classes_strings", strings({"p", "q"})}}, 1),
     .inputs = {i64({3}, {1, 0, 2})},
     .outputs = {text({3}, {"q", "p", "_Unused"})}},
    {.name = "OldestTextsToNumbers",
     .node = ml("LabelEncoder", {{"classes_strings", strings({"p", "q"})}}, 1),
     .inputs = {text({2}, {"q", "r"})},
     .outputs = {i64({2}, {1, -1})}},
    {.name = "Categories",
     .node = ml("CategoryMapper",
                {{"cats_int64s", ints({4, 5})}, {"cats_strings", strings({"four", "five"})}}),
     .inputs = {text({3}, {"five", "six", "four"})},
     .outputs = {i64({3}, {5, -1, 4})}},
    {.name = "OneHotOfTexts",
     .node = ml("OneHotEncoder", {{"cats_strings", strings({"a", "b"})}}),
     .inputs = {text({1, 3}, {"b", "c", "a"})},
     .outputs = {f32({1, 3, 2}, {0, 1, 0, 0, 1, 0})}},
    {.name = "OneHotOfFloatsCutToIntegers",
     .node = ml("OneHotEncoder", {{"cats_int64s", ints({0, 2})}}),
     .inputs = {f32({4}, {2.7, 0, kNan, kInf})},
     .outputs = {f32({4, 2}, {0, 1, 1, 0, 0, 0, 0, 0})}},
    {.name = "SomeColumns",
     .node = ml("ArrayFeatureExtractor", {}),
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 5, 6}), constant(i64({1, 2}, {2, 0}))},
     .outputs = {f32({2, 2}, {3, 1, 6, 4})}},
    {.name = "SomeColumnsOfOneRow",
     .node = ml("ArrayFeatureExtractor", {}),
     .inputs = {text({3}, {"a", "b", "c"}), i64({2}, {1, 1})},
     .outputs = {text({1, 2}, {"b", "b"})}},
    {.name = "AboveAThreshold",
     .node = ml("Binarizer", {{"threshold", 1.0f}}),
     .inputs = {f64({4}, {1, 1 + 1e-12, -3, kNan})},
     .outputs = {f64({4}, {0, 1, 0, 0})}},
    {.name = "ImputedByColumn",
     .node = ml("Imputer", {{"imputed_value_floats", floats({7, 8})},
                            {"replaced_value_float", static_cast<float>(kNan)}}),
     .inputs = {f32({2, 2}, {kNan, 1, 2, kNan})},
     .outputs = {f32({2, 2}, {7, 1, 2, 8})}},
    {.name = "ImputedIntegers",
     .node = ml("Imputer", {{"imputed_value_int64s", ints({9})}, {"replaced_value_int64", -1}}),
     .inputs = {i64({3}, {-1, 4, -1})},
     .outputs = {i64({3}, {9, 4, 9})}},
    {.name = "ScaledByColumn",
     .node = ml("Scaler", {{"offset", floats({1, 2})}, {"scale", floats({10, 0.5f})}}),
     .inputs = {i32({2, 2}, {1, 4, 3, 2})},
     .outputs = {f32({2, 2}, {0, 1, 20, 0})}},
    {.name = "DividedByTheGreatest",
     .node = ml("Normalizer", {{"norm", "MAX"}}),
     .inputs = {f32({2, 2}, {-8, 4, 0, 0})},
     .outputs = {f32({2, 2}, {-2, 1, 0, 0})}},
    {.name = "DividedByTheSum",
     .node = ml("Normalizer", {{"norm", "L1"}}),
     .inputs = {i64({2, 2}, {-3, 1, 0, 0})},
     .outputs = {f32({2, 2}, {-0.75, 0.25, 0, 0})}},
    {.name = "DividedByTheLength",
     .node = ml("Normalizer", {{"norm", "L2"}}),
     .inputs = {f64({2}, {-3, 4})},
     .outputs = {f32({2}, {-0.6, 0.8})}},
    {.name = "SideBySide",
     .node = ml("FeatureVectorizer", {{"inputdimensions", ints({2, 1, 2})}}),
     .inputs = {f32({2, 2}, {1, 2, 3, 4}), f32({2, 2}, {5, 6, 7, 8}), f32({2, 1}, {9, 10})},
     .outputs = {f32({2, 5}, {1, 2, 5, 9, 0, 3, 4, 7, 10, 0})}},
};
const Rows kEncoderRows("Encoders", kEncoders);

const OpCase kRefusals[] = {
    {.name = "WidthsThatOnlySeemToBeFew",
     .node = ml("FeatureVectorizer", {{"inputdimensions", ints({kGreatest, kGreatest, 4})}}),
     .inputs = {f32({1, 1}, {1}), f32({1, 1}, {2}), f32({1, 1}, {3})},
     .outputs = {f32({0, 0}, {})},
     .refusal = "too large"},
    {.name = "VectorsThatOnlySeemToBeFew",
     .node = ml("SVMClassifier", {{"vectors_per_class", ints({kGreatest, kGreatest, 4})},
                                  {"support_vectors", floats({1, 0, 0, 1})},
                                  {"coefficients", floats({1, -1, 1, -1})},
                                  {"rho", floats({0, 0, 0})},
                                  {"classlabels_ints", ints({0, 1, 2})}}),
     .inputs = {f32({1, 2}, {3, 1})},
     .outputs = {i64(Dims{0}, {}), f32({0, 0}, {})},
     .refusal = "too large"},
};
const Rows kClassicRefusals("ClassicModels", kRefusals);

}  // namespace
}  // namespace backplane::ops_test

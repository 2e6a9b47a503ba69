// Forests of ai.onnx.ml: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html and the others.
#include <cmath>
#include <limits>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

const char* const kMl = "ai.onnx.ml";
const char* const kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                              "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};

/// A tree of one comparison of feature 0: 1 where it is true, else 2.
OpCase one_split(const char* name, const std::string& mode, bool missing, float value, Tensor x,
                 Tensor y) {
  return {.name = name,
          .node = {.op_type = "TreeEnsembleRegressor",
                   .domain = kMl,
                   .opset = 3,
                   .attributes = {{"n_targets", 1},
                                  {"nodes_treeids", ints({0, 0, 0})},
                                  {"nodes_nodeids", ints({0, 1, 2})},
                                  {"nodes_featureids", ints({0, 0, 0})},
                                  {"nodes_modes", strings({mode, "LEAF", "LEAF"})},
                                  {"nodes_values", floats({value, 0, 0})},
                                  {"nodes_truenodeids", ints({1, 0, 0})},
                                  {"nodes_falsenodeids", ints({2, 0, 0})},
                                  {"nodes_missing_value_tracks_true", ints({missing, 0, 0})},
                                  {"target_treeids", ints({0, 0})},
                                  {"target_nodeids", ints({1, 2})},
                                  {"target_ids", ints({0, 0})},
                                  {"target_weights", floats({1, 2})}}},
          .inputs = {std::move(x)},
          .outputs = {std::move(y)}};
}

const double kTiny = 0x1p-149;
const Dims kSeven{7, 1};
const Tensor kAround = f32(kSeven, {-kInf, -1, -kTiny, 0, kTiny, kInf, kNan});

const OpCase kSplits[] = {
    one_split("LessOrEqual", "BRANCH_LEQ", false, 0, kAround, f32(kSeven, {1, 1, 1, 1, 2, 2, 2})),
    one_split("Less", "BRANCH_LT", false, 0, kAround, f32(kSeven, {1, 1, 1, 2, 2, 2, 2})),
    one_split("GreaterOrEqual", "BRANCH_GTE", false, 0, kAround,
              f32(kSeven, {2, 2, 2, 1, 1, 1, 2})),
    one_split("Greater", "BRANCH_GT", false, 0, kAround, f32(kSeven, {2, 2, 2, 2, 1, 1, 2})),
    one_split("Equal", "BRANCH_EQ", false, 0, kAround, f32(kSeven, {2, 2, 2, 1, 2, 2, 2})),
    one_split("NotEqual", "BRANCH_NEQ", false, 0, kAround, f32(kSeven, {1, 1, 1, 2, 1, 1, 1})),
    one_split("LessOrEqualOrMissing", "BRANCH_LEQ", true, 0, kAround,
              f32(kSeven, {1, 1, 1, 1, 2, 2, 1})),
    one_split("LessOrMissing", "BRANCH_LT", true, 0, kAround, f32(kSeven, {1, 1, 1, 2, 2, 2, 1})),
    one_split("GreaterOrEqualOrMissing", "BRANCH_GTE", true, 0, kAround,
              f32(kSeven, {2, 2, 2, 1, 1, 1, 1})),
    one_split("GreaterOrMissing", "BRANCH_GT", true, 0, kAround,
              f32(kSeven, {2, 2, 2, 2, 1, 1, 1})),
    one_split("EqualOrMissing", "BRANCH_EQ", true, 0, kAround, f32(kSeven, {2, 2, 2, 1, 2, 2, 1})),
    one_split("NotEqualOrMissing", "BRANCH_NEQ", true, 0, kAround,
              f32(kSeven, {1, 1, 1, 2, 1, 1, 1})),
};
const Rows kSplitRows("TreeSplit", kSplits);

const float kInfinity = std::numeric_limits<float>::infinity();

const OpCase kThresholds[] = {
    one_split("NothingIsBelowMinusInfinity", "BRANCH_LT", false, -kInfinity,
              f32({2, 1}, {-kInf, 0}), f32({2, 1}, {2, 2})),
    one_split("AllButInfinityIsBelowIt", "BRANCH_LT", false, kInfinity, f32({2, 1}, {kInf, 3e38}),
              f32({2, 1}, {2, 1})),
    one_split("InfinityIsNotBelowItself", "BRANCH_GTE", false, kInfinity, f32({2, 1}, {kInf, 3e38}),
              f32({2, 1}, {1, 2})),
    one_split("DoublesAreComparedAsDoubles", "BRANCH_LEQ", false, 1.0f, f64({2, 1}, {1, 1 + 1e-12}),
              f32({2, 1}, {1, 2})),
    one_split("Int64", "BRANCH_LEQ", false, 2.5f, i64({2, 1}, {2, 3}), f32({2, 1}, {1, 2})),
    one_split("Int32", "BRANCH_LEQ", false, 2.5f, i32({2, 1}, {2, 3}), f32({2, 1}, {1, 2})),
    one_split("NoRows", "BRANCH_LEQ", false, 0, f32({0, 1}, {}), f32({0, 1}, {})),
};
const Rows kThresholdRows("TreeThreshold", kThresholds);

/// Nodes as the attributes have them.
struct Nodes {
  std::vector<std::int64_t> trees, ids, features, yes, no, missing;
  std::vector<std::string> modes;
  std::vector<float> values;
  std::vector<std::int64_t> weight_trees, weight_ids, weight_targets;
  std::vector<float> weights;

  /// Adds a node and all below it; its number in the tree.
  std::int64_t grow(Random& random, std::int64_t tree, std::int64_t& next, std::int64_t columns,
                    std::int64_t targets, bool dense, std::int64_t depth, double low) {
    const std::int64_t id = next++;
    const std::size_t at = ids.size();
    trees.push_back(tree);
    ids.push_back(id);
    const bool leaf = depth == 0 || random.one_in(6);
    features.push_back(leaf ? 0 : random.integer(0, columns - 1));
    modes.emplace_back(leaf ? "LEAF" : kModes[random.one_in(2) ? 0 : random.integer(0, 5)]);
    values.push_back(static_cast<float>(random.integer(-4, 4)) / 2);
    missing.push_back(random.integer(0, 1));
    yes.push_back(0);
    no.push_back(0);
    for (std::int64_t t = 0; leaf && t < targets; ++t) {
      if (!dense && !random.one_in(3)) continue;
      weight_trees.push_back(tree);
      weight_ids.push_back(id);
      weight_targets.push_back(t);
      weights.push_back(static_cast<float>(random.real(low, 1)));
    }
    if (leaf) return id;
    yes[at] = grow(random, tree, next, columns, targets, dense, depth - 1, low);
    no[at] = grow(random, tree, next, columns, targets, dense, depth - 1, low);
    return id;
  }

  std::vector<reference::Attribute> attributes(const std::string& of) const {
    return {{"nodes_treeids", trees},        {"nodes_nodeids", ids},
            {"nodes_featureids", features},  {"nodes_modes", modes},
            {"nodes_values", values},        {"nodes_truenodeids", yes},
            {"nodes_falsenodeids", no},      {"nodes_missing_value_tracks_true", missing},
            {of + "_treeids", weight_trees}, {of + "_nodeids", weight_ids},
            {of + "_ids", weight_targets},   {of + "_weights", weights}};
  }
};

/// Features in halves, so that they meet thresholds; some are NaN.
Tensor features(Random& random, std::int64_t rows, std::int64_t columns, ElementType type) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const bool nan = type != ElementType::Int64 && random.one_in(10);
    values.push_back(nan ? kNan : static_cast<double>(random.integer(-5, 5)) / 2);
  }
  if (type == ElementType::Int64) {
    for (double& value : values) value = std::trunc(value);
  }
  return tensor(type, {rows, columns}, values);
}

OpCase forest(Random& random, bool classifier) {
  const std::int64_t columns = random.integer(1, 6), trees = random.integer(1, 20);
  const std::int64_t targets = classifier ? random.integer(2, 4) : random.integer(1, 3);
  const bool dense = random.one_in(2), one_class = classifier && random.one_in(2);
  const double low = random.one_in(2) ? 0 : -1;
  Nodes nodes;
  for (std::int64_t tree = 0; tree < trees; ++tree) {
    std::int64_t next = 0;
    nodes.grow(random, tree, next, columns, one_class ? 1 : targets, dense, random.integer(0, 7),
               low);
  }
  if (nodes.weights.empty()) return forest(random, classifier);
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Double, ElementType::Int64});
  OpCase result;
  result.node.domain = kMl;
  result.node.opset = 3;
  result.node.attributes = nodes.attributes(classifier ? "class" : "target");
  auto& attributes = result.node.attributes;
  attributes.emplace_back("post_transform", random.pick({"NONE", "NONE", "LOGISTIC", "SOFTMAX"}));
  result.inputs = {
      features(random, random.pick<std::int64_t>({0, 1, 7, 8, 13, 16, 29, 200}), columns, type)};
  if (classifier) {
    result.node.op_type = "TreeEnsembleClassifier";
    result.output_count = 2;
    std::vector<std::int64_t> labels;
    for (std::int64_t c = 0; c < targets; ++c) labels.push_back(10 - 3 * c);
    attributes.emplace_back("classlabels_int64s", labels);
    return result;
  }
  result.node.op_type = "TreeEnsembleRegressor";
  attributes.emplace_back("n_targets", targets);
  attributes.emplace_back("aggregate_function", random.pick({"SUM", "AVERAGE", "MIN", "MAX"}));
  if (random.one_in(2)) {
    attributes.emplace_back("base_values",
                            std::vector<float>(static_cast<std::size_t>(targets), 0.25f));
  }
  return result;
}

OpCase regressors(Random& random) { return forest(random, false); }
OpCase classifiers(Random& random) { return forest(random, true); }
const Sweep kRegressors("Trees", "Regressors", 60, regressors);
const Sweep kClassifiers("Trees", "Classifiers", 60, classifiers);

/// Splits of x0 at 1 and x1 in {2, 5}, as version 5 writes them; both leaves of the second one are one.
const OpCase kEnsembles[] = {
    {.name = "PlacesMembersAndSharedLeaves",
     .node = {.op_type = "TreeEnsemble",
              .domain = kMl,
              .opset = 5,
              .attributes = {{"tree_roots", ints({0, 2})},
                             {"n_targets", 2},
                             {"aggregate_function", 1},
                             {"nodes_modes", to_array(u8({3}, {0, 6, 3}))},
                             {"nodes_featureids", ints({0, 1, 1})},
                             {"nodes_splits", to_array(f32({3}, {1, 0, 7}))},
                             {"nodes_truenodeids", ints({0, 1, 3})},
                             {"nodes_trueleafs", ints({1, 1, 1})},
                             {"nodes_falsenodeids", ints({1, 2, 3})},
                             {"nodes_falseleafs", ints({0, 1, 1})},
                             {"membership_values", to_array(f32({3}, {5, 2, kNan}))},
                             {"leaf_targetids", ints({0, 1, 0, 1})},
                             {"leaf_weights", to_array(f32({4}, {1, 2, 4, 8}))}}},
     .inputs = {f32({5, 2}, {1, 0, 3, 2, 3, 5, 3, 4, kNan, kNan})},
     .outputs = {f32({5, 2}, {1, 8, 0, 10, 0, 10, 4, 8, 4, 8})}},
};
const Rows kEnsembleRows("TreeEnsemble", kEnsembles);

}  // namespace
}  // namespace backplane::ops_test

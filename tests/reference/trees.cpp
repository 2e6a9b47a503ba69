// Forests of ai.onnx.ml: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html and the others.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

using Words = std::vector<std::string>;

template <class T>
T attribute(const Call& call, const std::string& name) {
  const AttributeValue* found = call.find(name);
  return found == nullptr ? T() : std::get<T>(*found);
}

bool goes_yes(const std::string& mode, double x, double value) {
  if (mode == "BRANCH_LEQ") return x <= value;
  if (mode == "BRANCH_LT") return x < value;
  if (mode == "BRANCH_GTE") return x >= value;
  if (mode == "BRANCH_GT") return x > value;
  if (mode == "BRANCH_EQ") return x == value;
  if (mode == "BRANCH_NEQ") return x != value;
  throw std::logic_error("no mode " + mode);
}

/// The weights of the leaves that a row of features comes to: target -> weights, in the order of the trees.
struct Trees {
  explicit Trees(const Call& call, const std::string& of)
      : trees(call.list("nodes_treeids")),
        ids(call.list("nodes_nodeids")),
        features(call.list("nodes_featureids")),
        yes(call.list("nodes_truenodeids")),
        no(call.list("nodes_falsenodeids")),
        missing(call.list("nodes_missing_value_tracks_true")),
        modes(attribute<Words>(call, "nodes_modes")),
        values(attribute<std::vector<float>>(call, "nodes_values")),
        weight_trees(call.list(of + "_treeids")),
        weight_ids(call.list(of + "_nodeids")),
        weight_targets(call.list(of + "_ids")),
        weights(attribute<std::vector<float>>(call, of + "_weights")) {
    for (std::size_t i = 0; i < ids.size(); ++i) places[{trees[i], ids[i]}] = i;
  }

  std::map<std::int64_t, std::vector<double>> weights_of(const double* row) const {
    std::map<std::int64_t, std::vector<double>> result;
    for (std::size_t root = 0; root < ids.size(); ++root) {
      if (root > 0 && trees[root] == trees[root - 1]) continue;  // the first of each tree
      std::size_t at = root;
      while (modes[at] != "LEAF") {
        const double x = row[features[at]];
        const bool flag = !missing.empty() && missing[at] != 0;
        const bool side = (flag && std::isnan(x)) || goes_yes(modes[at], x, double{values[at]});
        at = places.at({trees[at], side ? yes[at] : no[at]});
      }
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weight_trees[i] == trees[at] && weight_ids[i] == ids[at])
          result[weight_targets[i]].push_back(double{weights[i]});
      }
    }
    return result;
  }

  std::size_t tree_count() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < trees.size(); ++i) count += i == 0 || trees[i] != trees[i - 1];
    return count;
  }

  std::vector<std::int64_t> trees, ids, features, yes, no, missing;
  Words modes;
  std::vector<float> values;
  std::vector<std::int64_t> weight_trees, weight_ids, weight_targets;
  std::vector<float> weights;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> places;
};

double fold(const std::string& how, const std::vector<double>& weights, std::size_t trees) {
  if (weights.empty()) return 0;
  if (how == "MIN") return *std::min_element(weights.begin(), weights.end());
  if (how == "MAX") return *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (const double weight : weights) sum += weight;
  return how == "AVERAGE" ? sum / static_cast<double>(trees) : sum;
}

void transform(const std::string& how, std::vector<double>& scores) {
  if (how == "LOGISTIC") {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  } else if (how == "SOFTMAX") {
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    for (double& score : scores) score /= sum;
  }
}

Arrays regressor(const Call& call) {
  const Array& x = call.input(0);
  const Trees trees(call, "target");
  const std::int64_t targets = call.integer("n_targets", 1), columns = x.dims.back();
  const auto base = attribute<std::vector<float>>(call, "base_values");
  const std::int64_t rows = x.rank() == 1 ? 1 : x.dims[0];
  Array y = filled(ElementType::Float, {rows, targets});
  for (std::int64_t row = 0; row < rows; ++row) {
    auto weights = trees.weights_of(x.values.data() + row * columns);
    std::vector<double> scores;
    for (std::int64_t t = 0; t < targets; ++t) {
      scores.push_back(
          fold(call.text("aggregate_function", "SUM"), weights[t], trees.tree_count()));
      if (!base.empty()) scores.back() += double{base[static_cast<std::size_t>(t)]};
    }
    transform(call.text("post_transform", "NONE"), scores);
    std::copy(scores.begin(), scores.end(), y.values.begin() + row * targets);
  }
  return {y};
}

Arrays classifier(const Call& call) {
  const Array& x = call.input(0);
  const Trees trees(call, "class");
  const std::vector<std::int64_t> labels = call.list("classlabels_int64s");
  const auto classes = static_cast<std::int64_t>(labels.size());
  const std::string how = call.text("post_transform", "NONE");
  const auto one = [&](std::int64_t id) { return id == trees.weight_targets[0]; };
  const bool binary =
      classes == 2 && std::all_of(trees.weight_targets.begin(), trees.weight_targets.end(), one);
  const bool shares = how == "NONE" && std::all_of(trees.weights.begin(), trees.weights.end(),
                                                   [](float weight) { return weight >= 0; });
  const std::int64_t rows = x.dims[0], columns = x.dims[1];
  Array y = filled(ElementType::Int64, {rows}), z = filled(ElementType::Float, {rows, classes});
  for (std::int64_t row = 0; row < rows; ++row) {
    auto weights = trees.weights_of(x.values.data() + row * columns);
    std::vector<double> scores;
    for (std::int64_t c = 0; c < classes; ++c) scores.push_back(fold("SUM", weights[c], 1));
    auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    if (binary) {
      const double score = fold("SUM", weights[trees.weight_targets[0]], 1);
      scores = {shares ? 1 - score : -score, score};
      best = score > (shares ? 0.5 : 0) ? 1 : 0;
    }
    transform(how, scores);
    y.values[static_cast<std::size_t>(row)] =
        static_cast<double>(labels[static_cast<std::size_t>(best)]);
    std::copy(scores.begin(), scores.end(), z.values.begin() + row * classes);
  }
  return {y, z};
}

const Registration kRegressor({"TreeEnsembleRegressor"}, regressor);
const Registration kClassifier({"TreeEnsembleClassifier"}, classifier);

}  // namespace
}  // namespace backplane::reference

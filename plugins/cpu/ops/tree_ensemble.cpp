// TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor:
// https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html and the others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/class_scores.hpp"
#include "plugins/cpu/kernels/feature_rows.hpp"
#include "plugins/cpu/kernels/forest.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerScore = 10;

/// The elements of a tensor attribute of a floating-point type.
std::vector<double> doubles_of(const sdk::Value& value) {
  std::vector<double> numbers(static_cast<std::size_t>(value.tensor().size()));
  common::with_float(value.tensor().type(), [&](auto tag) {
    const auto* data = value.tensor().data<typename decltype(tag)::type>();
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<double>(common::widen(data[i]));
  });
  return numbers;
}

/// Attribute `name`, or `name`_as_tensor where that is given.
std::vector<double> read_doubles(const sdk::Node& node, const std::string& name) {
  const sdk::Value tensor = node.get_tensor((name + "_as_tensor").c_str());
  if (tensor) return doubles_of(tensor);
  const std::vector<float> numbers = node.get_floats(name.c_str());
  return {numbers.begin(), numbers.end()};
}

template <class Values>
void require_count(const char* name, const Values& values, std::size_t count) {
  if (values.size() != count)
    sdk::invalid("attribute '", name, "' has ", values.size(), " entries, ", count, " are needed");
}

void require_target(std::int64_t target, std::int64_t targets) {
  if (target < 0 || target >= targets)
    sdk::invalid("a leaf has a weight for target ", target, " of ", targets);
}

/// Where flags are left out, none is set.
bool flag_at(const std::vector<std::int64_t>& flags, std::size_t index) {
  return !flags.empty() && flags[index] != 0;
}

/// The comparison of a node; nothing for a leaf.
std::optional<Branch> branch_of(const std::string& mode) {
  static const std::pair<const char*, Branch> kModes[] = {
      {"BRANCH_LEQ", Branch::kLessOrEqual},    {"BRANCH_LT", Branch::kLess},
      {"BRANCH_GTE", Branch::kGreaterOrEqual}, {"BRANCH_GT", Branch::kGreater},
      {"BRANCH_EQ", Branch::kEqual},           {"BRANCH_NEQ", Branch::kNotEqual}};
  for (const auto& [word, branch] : kModes) {
    if (mode == word) return branch;
  }
  if (mode != "LEAF") sdk::invalid("attribute 'nodes_modes' has the entry '", mode, "'");
  return std::nullopt;
}

/// The attributes of TreeEnsembleClassifier ("class") and TreeEnsembleRegressor ("target"): nodes by the number of their
/// tree and their own.
class NumberedTrees {
 public:
  NumberedTrees(const sdk::Node& node, const std::string& weights, std::int64_t targets)
      : trees_(node.get_ints("nodes_treeids")), ids_(node.get_ints("nodes_nodeids")) {
    text_.targets = targets;
    require_count("nodes_nodeids", ids_, trees_.size());
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (!places_.emplace(std::pair(trees_[i], ids_[i]), i).second)
        sdk::invalid("node ", ids_[i], " of tree ", trees_[i], " is there twice");
    }
    read_nodes(node);
    read_weights(node, weights);
  }

  const ForestText& text() const { return text_; }
  /// The classes or targets that leaves have weights for.
  const std::vector<std::int64_t>& weighted() const { return weighted_; }

 private:
  std::size_t place_of(std::int64_t tree, std::int64_t id) const {
    const auto found = places_.find({tree, id});
    if (found == places_.end()) sdk::invalid("tree ", tree, " has no node ", id);
    return found->second;
  }

  void read_nodes(const sdk::Node& node) {
    const std::size_t count = ids_.size();
    const auto features = node.get_ints("nodes_featureids");
    const auto modes = node.get_strings("nodes_modes");
    const auto yes = node.get_ints("nodes_truenodeids"), no = node.get_ints("nodes_falsenodeids");
    const auto values = read_doubles(node, "nodes_values");
    const auto missing = node.get_ints("nodes_missing_value_tracks_true");
    require_count("nodes_featureids", features, count);
    require_count("nodes_modes", modes, count);
    require_count("nodes_truenodeids", yes, count);
    require_count("nodes_falsenodeids", no, count);
    require_count("nodes_values", values, count);
    if (!missing.empty()) require_count("nodes_missing_value_tracks_true", missing, count);
    std::vector<bool> is_child(count, false);
    text_.nodes.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::optional<Branch> branch = branch_of(modes[i]);
      if (!branch) continue;
      ForestText::Node& entry = text_.nodes[i];
      entry.is_leaf = false;
      entry.branch = *branch;
      entry.missing_goes_yes = flag_at(missing, i);
      entry.feature = features[i];
      entry.value = values[i];
      entry.yes = place_of(trees_[i], yes[i]);
      entry.no = place_of(trees_[i], no[i]);
      is_child[entry.yes] = is_child[entry.no] = true;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_child[i]) text_.roots.push_back(i);
    }
    require_trees();
  }

  /// Each node is reached from the roots in one way; those of a cycle are no roots and not reached.
  void require_trees() const {
    std::vector<std::size_t> open = text_.roots;
    std::size_t reached = 0;
    for (; !open.empty() && reached <= text_.nodes.size(); ++reached) {
      const ForestText::Node& entry = text_.nodes[open.back()];
      open.pop_back();
      if (!entry.is_leaf) open.insert(open.end(), {entry.yes, entry.no});
    }
    if (reached != text_.nodes.size())
      sdk::invalid("the nodes are no trees: some lead to each other, or two to one");
  }

  void read_weights(const sdk::Node& node, const std::string& of) {
    const auto trees = node.get_ints((of + "_treeids").c_str());
    const auto ids = node.get_ints((of + "_nodeids").c_str());
    weighted_ = node.get_ints((of + "_ids").c_str());
    const auto weights = read_doubles(node, of + "_weights");
    require_count((of + "_treeids").c_str(), trees, weights.size());
    require_count((of + "_nodeids").c_str(), ids, weights.size());
    require_count((of + "_ids").c_str(), weighted_, weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      require_target(weighted_[i], text_.targets);
      text_.nodes[place_of(trees[i], ids[i])].weights.emplace_back(weighted_[i], weights[i]);
    }
  }

  std::vector<std::int64_t> trees_, ids_, weighted_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> places_;
  ForestText text_;
};

/// The attributes of TreeEnsemble: nodes and leaves by their places in the lists.
class PlacedTrees {
 public:
  explicit PlacedTrees(const sdk::Node& node)
      : weights_(doubles_of(node.get_tensor("leaf_weights"))),
        targets_(node.get_ints("leaf_targetids")) {
    text_.targets = node.get_int("n_targets", 1);
    require_count("leaf_targetids", targets_, weights_.size());
    for (const std::int64_t target : targets_) require_target(target, text_.targets);
    read_nodes(node);
    for (const std::int64_t root : node.get_ints("tree_roots"))
      text_.roots.push_back(checked(root, count_));
  }

  ForestText text() && { return std::move(text_); }

 private:
  static std::size_t checked(std::int64_t index, std::size_t count) {
    if (index < 0 || index >= static_cast<std::int64_t>(count))
      sdk::invalid("an attribute names node or leaf ", index, " of ", count);
    return static_cast<std::size_t>(index);
  }

  /// A child; each mention of a leaf becomes a node of its own.
  std::size_t child(std::int64_t index, bool leaf) {
    if (!leaf) return checked(index, count_);
    const std::size_t at = checked(index, weights_.size());
    text_.nodes.emplace_back().weights.emplace_back(targets_[at], weights_[at]);
    return text_.nodes.size() - 1;
  }

  void read_nodes(const sdk::Node& node) {
    const sdk::Tensor modes = node.get_tensor("nodes_modes").tensor();
    const auto features = node.get_ints("nodes_featureids");
    const auto values = doubles_of(node.get_tensor("nodes_splits"));
    const auto yes = node.get_ints("nodes_truenodeids"), no = node.get_ints("nodes_falsenodeids");
    const auto yes_leaf = node.get_ints("nodes_trueleafs"),
               no_leaf = node.get_ints("nodes_falseleafs");
    const auto missing = node.get_ints("nodes_missing_value_tracks_true");
    count_ = static_cast<std::size_t>(modes.size());
    if (modes.type() != sdk::DataType::UInt8) sdk::invalid("attribute 'nodes_modes' is no uint8");
    require_count("nodes_featureids", features, count_);
    require_count("nodes_splits", values, count_);
    require_count("nodes_truenodeids", yes, count_);
    require_count("nodes_falsenodeids", no, count_);
    require_count("nodes_trueleafs", yes_leaf, count_);
    require_count("nodes_falseleafs", no_leaf, count_);
    if (!missing.empty()) require_count("nodes_missing_value_tracks_true", missing, count_);
    text_.nodes.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint8_t mode = modes.data<std::uint8_t>()[i];
      if (mode > static_cast<std::uint8_t>(Branch::kMember))
        sdk::invalid("attribute 'nodes_modes' has the entry ", int{mode});
      const std::size_t first = child(yes[i], yes_leaf[i] != 0);
      const std::size_t second = child(no[i], no_leaf[i] != 0);
      ForestText::Node& entry = text_.nodes[i];
      entry.is_leaf = false;
      entry.branch = static_cast<Branch>(mode);
      entry.missing_goes_yes = flag_at(missing, i);
      entry.feature = features[i];
      entry.value = values[i];
      entry.yes = first;
      entry.no = second;
    }
    read_members(node);
  }

  /// The sets of the nodes that compare with one, in the order of the nodes, a NaN behind each.
  void read_members(const sdk::Node& node) {
    const sdk::Value value = node.get_tensor("membership_values");
    const std::vector<double> members = value ? doubles_of(value) : std::vector<double>();
    std::size_t at = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (text_.nodes[i].branch != Branch::kMember) continue;
      for (; at < members.size() && !std::isnan(members[at]); ++at)
        text_.nodes[i].members.push_back(members[at]);
      if (at++ >= members.size())
        sdk::invalid("attribute 'membership_values' has fewer sets than there are nodes");
    }
  }

  std::vector<double> weights_;
  std::vector<std::int64_t> targets_;
  std::size_t count_ = 0;
  ForestText text_;
};

/// How the weights that trees give become scores.
struct Aggregation {
  ForestFold fold = ForestFold::kSum;
  bool average = false;
  std::vector<double> base;  // by target; empty: none
  PostTransform transform = PostTransform::kNone;

  template <class Score>
  void add_base(Score* scores, std::int64_t targets, std::int64_t trees) const {
    for (std::int64_t t = 0; t < targets; ++t) {
      if (average && trees > 0) scores[t] /= static_cast<Score>(trees);
      if (!base.empty()) scores[t] += static_cast<Score>(base[static_cast<std::size_t>(t)]);
    }
  }
};

/// Bytes of the parts of a workspace: features as T, leaves, scores, classes.
template <class T, class Score>
struct ForestMemory {
  std::uint64_t features, leaves, scores, classes;

  ForestMemory(const Forest<T>& forest, sdk::DataType type, const FeatureRows& shape)
      : features(align64(rows_bytes<T>(type, shape))),
        leaves(align64(forest.leaves_bytes(shape.rows))),
        scores(align64(sizeof(Score) * static_cast<std::uint64_t>(shape.rows * forest.targets()))),
        classes(align64(4 * static_cast<std::uint64_t>(shape.rows))) {}
  std::uint64_t bytes() const { return features + leaves + scores + classes; }
  /// The scores of all rows.
  Score* run(const sdk::ComputeContext& ctx, const Forest<T>& forest, const FeatureRows& shape,
             ForestFold fold) const {
    auto* begin = ctx.workspace().template mutable_data<char>();
    auto* scores_begin = reinterpret_cast<Score*>(begin + features + leaves);
    forest.run(rows_as<T>(ctx.input(0), begin), shape.rows, shape.columns, fold, scores_begin,
               reinterpret_cast<std::int32_t*>(begin + features), ctx.threads());
    return scores_begin;
  }
  std::int32_t* classes_in(const sdk::ComputeContext& ctx) const {
    auto* begin = ctx.workspace().template mutable_data<char>();
    return reinterpret_cast<std::int32_t*>(begin + features + leaves + scores);
  }
};

template <class T>
FeatureRows checked_rows(const char* op, const sdk::Tensor& x, const Forest<T>& forest) {
  const FeatureRows shape = FeatureRows::of(op, x);
  if (shape.columns < forest.feature_count()) {
    sdk::invalid(op, ": the input has dims ", sdk::to_string(x.dims()), ", the trees read ",
                 forest.feature_count(), " features");
  }
  return shape;
}

/// TreeEnsembleRegressor, and TreeEnsemble, whose output has the input's type.
template <class T>
class TreeRegressor {
 public:
  struct Prepared {
    const TreeRegressor* kernel;
    FeatureRows shape;
    ForestMemory<T, double> memory;

    void compute(const sdk::ComputeContext& ctx) const {
      const Forest<T>& forest = kernel->forest_;
      const Aggregation& how = kernel->aggregation_;
      double* scores = memory.run(ctx, forest, shape, how.fold);
      const std::int64_t targets = forest.targets();
      common::with_float(ctx.output(0).type(), [&](auto tag) {
        using Y = typename decltype(tag)::type;
        Y* y = ctx.output(0).mutable_data<Y>();
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          double* own = scores + row * targets;
          how.add_base(own, targets, forest.tree_count());
          transform_scores(how.transform, own, targets);
          for (std::int64_t t = 0; t < targets; ++t)
            y[row * targets + t] = common::narrow<Y>(own[t]);
        }
      });
    }
  };

  TreeRegressor(const ForestText& text, Aggregation aggregation, const char* op)
      : forest_(text), aggregation_(std::move(aggregation)), op_(op) {}
  TreeRegressor(const TreeRegressor&) = delete;
  TreeRegressor& operator=(const TreeRegressor&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const FeatureRows shape = checked_rows(op_, x, forest_);
    const bool keeps_type = std::string(op_) == "TreeEnsemble";
    ctx.set_output(0, keeps_type ? x.type() : sdk::DataType::Float,
                   sdk::Dims{shape.rows, forest_.targets()});
    const ForestMemory<T, double> memory(forest_, x.type(), shape);
    ctx.set_workspace(memory.bytes());
    return {this, shape, memory};
  }

 private:
  Forest<T> forest_;
  Aggregation aggregation_;
  const char* op_;
};

/// Whether there are two classes and weights for only one of them, which then are the second one's.
struct TwoClasses {
  bool one_weighted = false;
  bool probabilities = false;  // no weight is negative

  /// From one score to two, which are yet to be transformed; which of the classes it is.
  template <class Score>
  std::int32_t finish(PostTransform transform, Score score, float* y) const {
    const bool share = transform == PostTransform::kNone && probabilities;
    y[0] = static_cast<float>(share ? 1 - score : -score);
    y[1] = static_cast<float>(score);
    return score > (share ? Score{0.5} : Score{0}) ? 1 : 0;
  }
};

template <class T>
class TreeClassifier {
 public:
  struct Prepared {
    const TreeClassifier* kernel;
    FeatureRows shape;
    ForestMemory<T, T> memory;

    void compute(const sdk::ComputeContext& ctx) const {
      T* scores = memory.run(ctx, kernel->forest_, shape, ForestFold::kSum);
      std::int32_t* classes = memory.classes_in(ctx);
      float* y = ctx.output(1).mutable_data<float>();
      const std::int64_t targets = kernel->forest_.targets(), columns = kernel->labels_.count();
      split_loop(ctx.threads(), shape.rows, kNsPerScore * static_cast<double>(columns), 16,
                 [&](std::int64_t begin, std::int64_t end) {
                   float* to = y + begin * columns;
                   for (std::int64_t i = begin; i < end; ++i)
                     classes[i] = kernel->finish(scores + i * targets, y + i * columns);
                   transform_rows(kernel->isa_, kernel->aggregation_.transform, to, columns,
                                  end - begin);
                 });
      kernel->labels_.write(ctx, classes, shape.rows);
    }
  };

  TreeClassifier(const ClassLabels& labels, const ForestText& text, Aggregation aggregation,
                 const TwoClasses& two, Isa isa)
      : labels_(labels),
        forest_(text),
        aggregation_(std::move(aggregation)),
        two_(two),
        isa_(isa) {}
  TreeClassifier(const TreeClassifier&) = delete;
  TreeClassifier& operator=(const TreeClassifier&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const FeatureRows shape = checked_rows("TreeEnsembleClassifier", x, forest_);
    ctx.set_output(0, labels_.type(), sdk::Dims{shape.rows});
    ctx.set_output(1, sdk::DataType::Float, sdk::Dims{shape.rows, labels_.count()});
    const ForestMemory<T, T> memory(forest_, x.type(), shape);
    ctx.set_workspace(memory.bytes());
    return {this, shape, memory};
  }

 private:
  /// Writes the scores of a row, which are yet to be transformed; which of the classes it is.
  std::int32_t finish(T* scores, float* y) const {
    if (two_.one_weighted) {
      const T base = aggregation_.base.empty() ? T{0} : static_cast<T>(aggregation_.base.back());
      return two_.finish(aggregation_.transform, scores[0] + base, y);
    }
    const std::int64_t targets = forest_.targets();
    aggregation_.add_base(scores, targets, forest_.tree_count());
    std::transform(scores, scores + targets, y, [](T score) { return static_cast<float>(score); });
    return static_cast<std::int32_t>(std::max_element(scores, scores + targets) - scores);
  }

  ClassLabels labels_;
  Forest<T> forest_;
  Aggregation aggregation_;
  TwoClasses two_;
  Isa isa_;
};

template <class T>
std::unique_ptr<TreeClassifier<T>> make_classifier(const sdk::CreateContext& ctx,
                                                   const sdk::Node& node) {
  const ClassLabels labels(node, "classlabels_int64s", "classlabels_strings");
  if (labels.count() == 0) sdk::invalid("TreeEnsembleClassifier: there are no class labels");
  NumberedTrees trees(node, "class", labels.count());
  Aggregation aggregation;
  aggregation.transform = post_transform_of(node);
  aggregation.base = read_doubles(node, "base_values");
  TwoClasses two;
  const std::vector<std::int64_t>& weighted = trees.weighted();
  two.one_weighted =
      labels.count() == 2 && !weighted.empty() &&
      std::all_of(weighted.begin(), weighted.end(), [&](auto id) { return id == weighted[0]; });
  ForestText text = trees.text();
  if (two.one_weighted) text.targets = 1;
  two.probabilities = true;
  for (ForestText::Node& entry : text.nodes) {
    for (auto& [target, weight] : entry.weights) {
      two.probabilities = two.probabilities && weight >= 0;
      if (two.one_weighted) target = 0;
    }
  }
  const std::size_t bases = aggregation.base.size();
  if (bases != 0 && bases != static_cast<std::size_t>(labels.count()) &&
      !(bases == 1 && two.one_weighted)) {
    sdk::invalid("attribute 'base_values' has ", bases, " entries for ", labels.count(),
                 " classes");
  }
  return std::make_unique<TreeClassifier<T>>(labels, text, std::move(aggregation), two,
                                             isa_of(ctx));
}

void check_base(const Aggregation& aggregation, std::int64_t targets) {
  if (!aggregation.base.empty())
    require_count("base_values", aggregation.base, static_cast<std::size_t>(targets));
}

template <class T>
std::unique_ptr<TreeRegressor<T>> make_regressor(const sdk::CreateContext&, const sdk::Node& node) {
  const std::string fold = node.get_string("aggregate_function", "SUM");
  if (fold != "SUM" && fold != "AVERAGE" && fold != "MIN" && fold != "MAX")
    sdk::invalid("attribute 'aggregate_function' is '", fold,
                 "'; it may be SUM, AVERAGE, MIN or MAX");
  Aggregation aggregation;
  aggregation.average = fold == "AVERAGE";
  aggregation.fold = fold == "MIN"   ? ForestFold::kLeast
                     : fold == "MAX" ? ForestFold::kGreatest
                                     : ForestFold::kSum;
  aggregation.transform = post_transform_of(node);
  aggregation.base = read_doubles(node, "base_values");
  const NumberedTrees trees(node, "target", node.get_int("n_targets", 1));
  check_base(aggregation, trees.text().targets);
  return std::make_unique<TreeRegressor<T>>(trees.text(), std::move(aggregation),
                                            "TreeEnsembleRegressor");
}

template <class T>
std::unique_ptr<TreeRegressor<T>> make_ensemble(const sdk::CreateContext&, const sdk::Node& node) {
  static constexpr PostTransform kTransforms[] = {
      PostTransform::kNone, PostTransform::kSoftmax, PostTransform::kLogistic,
      PostTransform::kSoftmaxZero, PostTransform::kProbit};
  const std::int64_t fold = node.get_int("aggregate_function", 1);
  const std::int64_t transform = node.get_int("post_transform", 0);
  if (fold < 0 || fold > 3 || transform < 0 || transform > 4)
    sdk::invalid("attribute 'aggregate_function' ", fold, " or 'post_transform' ", transform,
                 " is out of range");
  Aggregation aggregation;
  aggregation.average = fold == 0;
  aggregation.fold = fold == 2   ? ForestFold::kLeast
                     : fold == 3 ? ForestFold::kGreatest
                                 : ForestFold::kSum;
  aggregation.transform = kTransforms[transform];
  return std::make_unique<TreeRegressor<T>>(PlacedTrees(node).text(), std::move(aggregation),
                                            "TreeEnsemble");
}

const common::TypeList& narrow_types() {
  static const common::TypeList kTypes{sdk::DataType::Float, sdk::DataType::Int32,
                                       sdk::DataType::Int64};
  return kTypes;
}

}  // namespace

// Integers are compared as floats, as the estimators are that models are made of.
sdk::KernelList tree_ensemble_kernels() {
  const common::TypeList wide{sdk::DataType::Double};
  return {sdk::op("TreeEnsembleClassifier", kMlDomain)
              .name("cpu:tree_classifier")
              .types("T1", narrow_types())
              .kernel_of(make_classifier<float>),
          sdk::op("TreeEnsembleClassifier", kMlDomain)
              .name("cpu:tree_classifier_double")
              .types("T1", wide)
              .kernel_of(make_classifier<double>),
          sdk::op("TreeEnsembleRegressor", kMlDomain)
              .name("cpu:tree_regressor")
              .types("T", narrow_types())
              .kernel_of(make_regressor<float>),
          sdk::op("TreeEnsembleRegressor", kMlDomain)
              .name("cpu:tree_regressor_double")
              .types("T", wide)
              .kernel_of(make_regressor<double>),
          sdk::op("TreeEnsemble", kMlDomain)
              .name("cpu:tree_ensemble")
              .types("T", {sdk::DataType::Float, sdk::DataType::Float16})
              .kernel_of(make_ensemble<float>),
          sdk::op("TreeEnsemble", kMlDomain)
              .name("cpu:tree_ensemble_double")
              .types("T", wide)
              .kernel_of(make_ensemble<double>)};
}

}  // namespace backplane::cpu

// Forests of decision trees: what the TreeEnsemble operators compute with.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// How a node compares the feature x that it reads with its value v.
enum class Branch : std::uint8_t {
  kLessOrEqual,
  kLess,
  kGreaterOrEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kMember,  // x is one of the node's members
};

/// Trees as models write them down: nodes by number, in any order.
struct ForestText {
  struct Node {
    bool is_leaf = true;
    Branch branch = Branch::kLessOrEqual;
    bool missing_goes_yes = false;  // NaN, whatever the comparison says
    std::int64_t feature = 0;
    double value = 0;
    std::size_t yes = 0, no = 0;                           // children
    std::vector<double> members;                           // of kMember
    std::vector<std::pair<std::int64_t, double>> weights;  // of a leaf: target, weight
  };
  std::vector<Node> nodes;
  std::vector<std::size_t> roots;
  std::int64_t targets = 1;
};

/// What is made of the weights that the trees give a target; 0 where none gives one.
enum class ForestFold : std::uint8_t { kSum, kLeast, kGreatest };

/// Trees made ready for rows of T, float or double. Every comparison is x <= v, with children side by side, and a
/// leaf leads to itself: a step is the same few instructions wherever a row stands, and several rows walk at once, each
/// of which alone would wait for memory. Immutable.
template <class T>
class Forest {
 public:
  Forest() = default;
  /// Errors: BP_INVALID_ARGUMENT where nodes are no trees.
  explicit Forest(const ForestText& text);

  std::int64_t tree_count() const { return static_cast<std::int64_t>(roots_.size()); }
  std::int64_t targets() const { return targets_; }
  /// One more than the greatest feature that a node reads, 1 at least: rows must be as wide.
  std::int64_t feature_count() const { return feature_count_; }

  /// scores[row * targets() + target], of rows that are `columns` wide. `leaves` has leaves_bytes(rows). Score is float
  /// or double; weights are added in the order of the trees, so that rows come to the same side of a tie as in the
  /// estimators that models are made of.
  template <class Score>
  void run(const T* x, std::int64_t rows, std::int64_t columns, ForestFold fold, Score* scores,
           std::int32_t* leaves, const sdk::Threads& threads) const;
  std::uint64_t leaves_bytes(std::int64_t rows) const {
    return rows < kManyRows ? 4 * static_cast<std::uint64_t>(rows * tree_count()) : 0;
  }

 private:
  // Fewer rows walk through several trees at once instead of several rows through one.
  static constexpr std::int64_t kManyRows = 16;
  static constexpr std::int64_t kBlockRows = 64;  // go through all trees together
  static constexpr int kLanes = 8;

  struct Step {
    T value;
    std::int32_t feature;
    std::int32_t first;  // the first child; the second one is behind it
  };
  template <class Type>
  friend class ForestBuilder;

  bool needs_missing(const T* x, std::int64_t count) const;
  template <bool missing, int lanes>
  void walk(const T* x, std::int64_t pitch, std::int32_t* at) const;
  template <bool missing, class Score>
  void run_block(const T* x, std::int64_t rows, std::int64_t columns, ForestFold fold,
                 Score* scores) const;
  template <bool missing>
  void find_leaves(const T* x, std::int64_t first, std::int64_t end, std::int32_t* leaves) const;
  template <class Score>
  void add(std::int32_t step, ForestFold fold, Score* scores) const;

  std::vector<Step> steps_;
  std::vector<std::int32_t> roots_;
  std::vector<std::int32_t> leaf_of_;   // by step; -1: none
  std::vector<std::int32_t> nan_back_;  // by step: 1 where NaN goes to the first child
  // Leaf l has weights [begins_[l], begins_[l + 1]).
  std::vector<std::int32_t> begins_, weight_targets_;
  std::vector<T> weights_;
  std::vector<T> value_of_;  // by step, where every leaf has one weight and there is one target
  bool dense_ = true;        // every leaf has one weight for each target, in order
  bool missing_ = false;
  std::int64_t targets_ = 1, feature_count_ = 1;
  double ns_each_ = 0;  // of a row, roughly
};

}  // namespace backplane::cpu

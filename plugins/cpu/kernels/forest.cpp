#include "plugins/cpu/kernels/forest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

constexpr double kNsPerStep = 1.5;

/// The greatest T that is not above `value`: x <= value and x <= at_most(value) are the same for every T x.
template <class T>
T at_most(double value) {
  const auto rounded = static_cast<T>(value);
  return static_cast<double>(rounded) > value
             ? std::nextafter(rounded, -std::numeric_limits<T>::infinity())
             : rounded;
}

/// The greatest T below `value`; NaN, which nothing is at most, where there is none.
template <class T>
T below(double value) {
  const T most = at_most<T>(value);
  if (static_cast<double>(most) < value) return most;
  if (std::isinf(most))
    return value > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::quiet_NaN();
  return std::nextafter(most, -std::numeric_limits<T>::infinity());
}

// NaN stands for no weight until all trees have been asked.
template <class Score>
void begin_fold(ForestFold fold, Score* scores, std::int64_t count) {
  std::fill_n(scores, count,
              fold == ForestFold::kSum ? Score{0} : std::numeric_limits<Score>::quiet_NaN());
}

template <class Score>
void end_fold(ForestFold fold, Score* scores, std::int64_t count) {
  if (fold == ForestFold::kSum) return;
  std::replace_if(
      scores, scores + count, [](Score score) { return std::isnan(score); }, Score{0});
}

}  // namespace

/// Turns nodes as models have them into steps.
template <class T>
class ForestBuilder {
 public:
  ForestBuilder(const ForestText& text, Forest<T>& forest)
      : text_(text), forest_(forest), slot_of_(text.nodes.size(), -1) {}

  void build() {
    forest_.targets_ = text_.targets;
    forest_.begins_.push_back(0);
    for (const std::size_t root : text_.roots) {
      forest_.roots_.push_back(add_slots(1));
      open_.push_back({root, forest_.roots_.back(), 0});
      while (!open_.empty()) {
        const Item item = open_.back();
        open_.pop_back();
        write(item);
      }
    }
    for (const auto& [slot, node] : copies_) {
      const auto from = static_cast<std::size_t>(slot_of_[node]);
      forest_.steps_[static_cast<std::size_t>(slot)] = forest_.steps_[from];
      forest_.leaf_of_[static_cast<std::size_t>(slot)] = forest_.leaf_of_[from];
      forest_.nan_back_[static_cast<std::size_t>(slot)] = forest_.nan_back_[from];
    }
    if (forest_.dense_ && text_.targets == 1) {
      forest_.value_of_.resize(forest_.steps_.size());
      for (std::size_t i = 0; i < forest_.leaf_of_.size(); ++i) {
        if (forest_.leaf_of_[i] >= 0)
          forest_.value_of_[i] = forest_.weights_[static_cast<std::size_t>(forest_.leaf_of_[i])];
      }
    }
    if (leaves_ > 0)
      forest_.ns_each_ = kNsPerStep * static_cast<double>(depths_) / static_cast<double>(leaves_) *
                         static_cast<double>(text_.roots.size());
  }

 private:
  /// A node that is to be written to a slot.
  struct Item {
    std::size_t node;
    std::int32_t slot;
    std::int64_t depth;
  };

  std::int32_t add_slots(std::size_t count) {
    const std::size_t first = forest_.steps_.size();
    if (first + count > std::numeric_limits<std::int32_t>::max())
      sdk::unsupported("a forest of more than 2^31 nodes");
    forest_.steps_.resize(first + count);
    forest_.leaf_of_.resize(first + count, -1);
    forest_.nan_back_.resize(first + count, 0);
    return static_cast<std::int32_t>(first);
  }

  void write(const Item& item) {
    const ForestText::Node& node = text_.nodes[item.node];
    if (slot_of_[item.node] >= 0)
      sdk::invalid("node ", item.node, " of the attributes is reached in two ways, as in no tree");
    slot_of_[item.node] = item.slot;
    if (node.is_leaf) return write_leaf(node, item);
    switch (node.branch) {
      case Branch::kLessOrEqual:
        return write_split(item, at_most<T>(node.value), node.missing_goes_yes, node.yes, node.no);
      case Branch::kLess:
        return write_split(item, below<T>(node.value), node.missing_goes_yes, node.yes, node.no);
      case Branch::kGreater:  // not at most
        return write_split(item, at_most<T>(node.value), !node.missing_goes_yes, node.no, node.yes);
      case Branch::kGreaterOrEqual:  // not below
        return write_split(item, below<T>(node.value), !node.missing_goes_yes, node.no, node.yes);
      case Branch::kEqual:
        return write_member(item, {node.value}, node.missing_goes_yes, node.yes, node.no);
      case Branch::kNotEqual:  // so is NaN
        return write_member(item, {node.value}, false, node.no, node.yes);
      case Branch::kMember:
        return write_member(item, node.members, node.missing_goes_yes, node.yes, node.no);
    }
  }

  void write_leaf(const ForestText::Node& node, const Item& item) {
    write_step(item.slot, std::numeric_limits<T>::quiet_NaN(), 0, false, item.slot - 1);
    forest_.leaf_of_[static_cast<std::size_t>(item.slot)] = static_cast<std::int32_t>(leaves_);
    auto weights = node.weights;
    std::stable_sort(weights.begin(), weights.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    bool whole = static_cast<std::int64_t>(weights.size()) == text_.targets;
    for (const auto& [target, weight] : weights) {
      const std::size_t at =
          forest_.weights_.size() - static_cast<std::size_t>(forest_.begins_.back());
      whole = whole && target == static_cast<std::int64_t>(at);
      forest_.weights_.push_back(static_cast<T>(weight));
      forest_.weight_targets_.push_back(static_cast<std::int32_t>(target));
    }
    forest_.dense_ = forest_.dense_ && whole;
    forest_.begins_.push_back(static_cast<std::int32_t>(forest_.weights_.size()));
    ++leaves_;
    depths_ += item.depth;
  }

  void write_split(const Item& item, T value, bool missing_goes_first, std::size_t first,
                   std::size_t second) {
    const std::int32_t children = add_slots(2);
    write_step(item.slot, value, text_.nodes[item.node].feature, missing_goes_first, children);
    open_.push_back({second, children + 1, item.depth + 1});
    open_.push_back({first, children, item.depth + 1});
  }

  /// Two comparisons for each member, smallest first: below it nothing else can fit, and at most it is a hit. Only
  /// one of the ways to `yes` and `no` leads to the child itself, others to copies of its step.
  void write_member(const Item& item, std::vector<double> members, bool missing_goes_yes,
                    std::size_t yes, std::size_t no) {
    std::sort(members.begin(), members.end());
    const std::int64_t feature = text_.nodes[item.node].feature;
    std::int32_t slot = item.slot;
    const std::int64_t depth = item.depth + 2 * static_cast<std::int64_t>(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::int32_t sides = add_slots(2), hits = add_slots(2);
      write_step(slot, below<T>(members[i]), feature, false, sides);
      copies_.emplace_back(sides, no);
      write_step(sides + 1, at_most<T>(members[i]), feature, missing_goes_yes, hits);
      if (i == 0)
        open_.push_back({yes, hits, depth});
      else
        copies_.emplace_back(hits, yes);
      slot = hits + 1;
    }
    open_.push_back({no, slot, depth});
  }

  void write_step(std::int32_t slot, T value, std::int64_t feature, bool missing_goes_first,
                  std::int32_t first) {
    if (feature < 0 || feature >= std::numeric_limits<std::int32_t>::max())
      sdk::invalid("a node reads feature ", feature);
    forest_.feature_count_ = std::max(forest_.feature_count_, feature + 1);
    forest_.missing_ = forest_.missing_ || missing_goes_first;
    const auto at = static_cast<std::size_t>(slot);
    forest_.steps_[at] = {value, static_cast<std::int32_t>(feature), first};
    forest_.nan_back_[at] = missing_goes_first ? 1 : 0;
  }

  const ForestText& text_;
  Forest<T>& forest_;
  std::vector<std::int32_t> slot_of_;  // by node; -1: not met yet
  std::vector<Item> open_;
  std::vector<std::pair<std::int32_t, std::size_t>> copies_;  // slot, node
  std::int64_t leaves_ = 0, depths_ = 0;
};

template <class T>
Forest<T>::Forest(const ForestText& text) {
  ForestBuilder<T>(text, *this).build();
}

/// Whether any of the features is NaN, and some step cares.
template <class T>
bool Forest<T>::needs_missing(const T* x, std::int64_t count) const {
  if (!missing_) return false;
  bool any = false;
  for (std::int64_t i = 0; i < count; ++i) any |= std::isnan(x[i]);
  return any;
}

/// Leads `lanes` walks to their leaves; the row of walk l begins at x[l * pitch].
template <class T>
template <bool missing, int lanes>
void Forest<T>::walk(const T* x, std::int64_t pitch, std::int32_t* at) const {
  std::int32_t here[lanes], moved = 1;
  std::copy_n(at, lanes, here);
  const Step* const steps = steps_.data();
  while (moved != 0) {
    moved = 0;
    for (int l = 0; l < lanes; ++l) {
      const Step& step = steps[here[l]];
      const T value = x[l * pitch + step.feature];
      std::int32_t next = step.first + (value <= step.value ? 0 : 1);
      if constexpr (missing) {
        if (std::isnan(value)) next -= nan_back_[static_cast<std::size_t>(here[l])];
      }
      moved |= next ^ here[l];
      here[l] = next;
    }
  }
  std::copy_n(here, lanes, at);
}

template <class T>
template <class Score>
void Forest<T>::add(std::int32_t step, ForestFold fold, Score* scores) const {
  if (fold == ForestFold::kSum && !value_of_.empty()) {
    *scores += static_cast<Score>(value_of_[static_cast<std::size_t>(step)]);
    return;
  }
  const auto leaf = static_cast<std::size_t>(leaf_of_[static_cast<std::size_t>(step)]);
  if (fold == ForestFold::kSum && dense_) {
    const T* weights = weights_.data() + leaf * static_cast<std::size_t>(targets_);
    for (std::int64_t t = 0; t < targets_; ++t) scores[t] += static_cast<Score>(weights[t]);
    return;
  }
  const auto first = static_cast<std::size_t>(begins_[leaf]);
  const auto end = static_cast<std::size_t>(begins_[leaf + 1]);
  for (std::size_t i = first; i < end; ++i) {
    const auto weight = static_cast<Score>(weights_[i]);
    Score& score = scores[weight_targets_[i]];
    if (fold == ForestFold::kSum)
      score += weight;
    else if (std::isnan(score) || (fold == ForestFold::kLeast ? weight < score : weight > score))
      score = weight;
  }
}

template <class T>
template <bool missing, class Score>
void Forest<T>::run_block(const T* x, std::int64_t rows, std::int64_t columns, ForestFold fold,
                          Score* scores) const {
  begin_fold(fold, scores, rows * targets_);
  std::int32_t at[kLanes];
  for (const std::int32_t root : roots_) {
    std::int64_t row = 0;
    const auto group = [&](auto lanes) {
      for (; row + lanes() <= rows; row += lanes()) {
        std::fill_n(at, lanes(), root);
        walk<missing, lanes()>(x + row * columns, columns, at);
        for (int l = 0; l < lanes(); ++l) add(at[l], fold, scores + (row + l) * targets_);
      }
    };
    group(std::integral_constant<int, kLanes>());
    group(std::integral_constant<int, kLanes / 2>());
    group(std::integral_constant<int, 1>());
  }
  end_fold(fold, scores, rows * targets_);
}

/// Where a row ends in trees [first, end).
template <class T>
template <bool missing>
void Forest<T>::find_leaves(const T* x, std::int64_t first, std::int64_t end,
                            std::int32_t* leaves) const {
  std::copy(roots_.begin() + first, roots_.begin() + end, leaves + first);
  for (; first + kLanes <= end; first += kLanes) walk<missing, kLanes>(x, 0, leaves + first);
  for (; first < end; ++first) walk<missing, 1>(x, 0, leaves + first);
}

template <class T>
template <class Score>
void Forest<T>::run(const T* x, std::int64_t rows, std::int64_t columns, ForestFold fold,
                    Score* scores, std::int32_t* leaves, const sdk::Threads& threads) const {
  if (rows >= kManyRows) {
    split_loop(threads, rows, ns_each_, kLanes, [&](std::int64_t begin_row, std::int64_t end_row) {
      for (std::int64_t row = begin_row; row < end_row; row += kBlockRows) {
        const std::int64_t count = std::min(kBlockRows, end_row - row);
        const T* own = x + row * columns;
        const auto block = needs_missing(own, count * columns) ? &Forest::run_block<true, Score>
                                                               : &Forest::run_block<false, Score>;
        (this->*block)(own, count, columns, fold, scores + row * targets_);
      }
    });
    return;
  }
  const auto find =
      needs_missing(x, rows * columns) ? &Forest::find_leaves<true> : &Forest::find_leaves<false>;
  const std::int64_t trees = tree_count();
  const double ns_tree = trees > 0 ? ns_each_ / static_cast<double>(trees) : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int32_t* own = leaves + row * trees;
    split_loop(threads, trees, ns_tree, kLanes, [&](std::int64_t first, std::int64_t last) {
      (this->*find)(x + row * columns, first, last, own);
    });
    begin_fold(fold, scores + row * targets_, targets_);
    for (std::int64_t tree = 0; tree < trees; ++tree) add(own[tree], fold, scores + row * targets_);
    end_fold(fold, scores + row * targets_, targets_);
  }
}

template class Forest<float>;
template class Forest<double>;
template void Forest<float>::run(const float*, std::int64_t, std::int64_t, ForestFold, float*,
                                 std::int32_t*, const sdk::Threads&) const;
template void Forest<float>::run(const float*, std::int64_t, std::int64_t, ForestFold, double*,
                                 std::int32_t*, const sdk::Threads&) const;
template void Forest<double>::run(const double*, std::int64_t, std::int64_t, ForestFold, double*,
                                  std::int32_t*, const sdk::Threads&) const;

}  // namespace backplane::cpu

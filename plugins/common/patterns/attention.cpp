#include "plugins/common/patterns/attention.hpp"

#include <array>
#include <cmath>

#include "plugins/common/patterns/attention_products.hpp"

namespace backplane::patterns {
namespace {

bool has_perm(const sdk::Node& node, const sdk::Dims& perm) {
  return node && node.is("Transpose") && node.get_ints("perm") == perm;
}

/// Those of a value before, or after, a transposition of heads and positions.
std::string turned(const std::string& axes) { return axes == "bhs" ? "bsh" : "bhs"; }

/// What is found on the way. What may turn out to be something else is tried on a copy.
class AttentionMatch {
 public:
  AttentionMatch(const sdk::Node& softmax, const NodeSet& taken, HalfCaches caches)
      : taken_(taken), caches_(caches) {
    found_.softmax = softmax;
  }

  bool match() {
    const int rank = found_.softmax.output(0).rank();
    const std::int64_t axis =
        found_.softmax.get_int("axis", found_.softmax.since_version() < 13 ? 1 : -1);
    if ((rank != 3 && rank != 4) || (axis != -1 && axis != rank - 1)) return false;
    const sdk::ValueInfo weights = take_weights();
    values_ = product_of_values(only_consumer(weights, taken_), weights);
    found_.product = values_.node;
    if (!found_.product || !take_scores()) return false;
    take_operands(rank);
    return true;
  }

  DecomposedAttention& found() { return found_; }

 private:
  sdk::Node maker(const sdk::ValueInfo& value) const { return only_producer(value, taken_); }
  void take(std::initializer_list<sdk::Node> nodes) {
    found_.nodes.insert(found_.nodes.end(), nodes);
  }

  /// The weights of the values: those of the Softmax, or of a Where after it that replaces NaN by 0.
  sdk::ValueInfo take_weights() {
    take({found_.softmax});
    const sdk::ValueInfo weights = found_.softmax.output(0);
    if (weights.is_output() || weights.consumer_count() != 2) return weights;
    for (const std::size_t i : {0, 1}) {
      const sdk::Node test = weights.consumer(i), choice = weights.consumer(1 - i);
      float number = 1;
      if (!test.is("IsNaN") || !choice.is("Where") || taken_.count(test.raw()) > 0 ||
          only_consumer(test.output(0), taken_) != choice || choice.input(0) != test.output(0) ||
          choice.input(2) != weights || !number_beside(choice.input(1), weights, number) ||
          number != 0)
        continue;
      found_.is_nan_zero = true;
      take({test, choice});
      return choice.output(0);
    }
    return weights;
  }

  /// The value that a product with, or a quotient by, one number is made of; `value` where it is none.
  sdk::ValueInfo take_scale(const sdk::ValueInfo& value) {
    const sdk::Node node = maker(value);
    if (!node || !(node.is("Mul") || node.is("Div"))) return value;
    float number = 0;
    const std::size_t at = number_beside(node.input(1), value, number) ? 1 : 0;
    if (at == 0 && (node.is("Div") || !number_beside(node.input(0), value, number))) return value;
    if (number == 0) return value;
    found_.scale *= node.is("Mul") ? number : 1 / number;
    take({node});
    return node.input(1 - at);
  }

  /// The value that is bounded by cap * tanh(value / cap); `value` where it is not.
  sdk::ValueInfo take_softcap(const sdk::ValueInfo& value) {
    const DecomposedAttention before = found_;
    found_.scale = 1;
    const sdk::Node bound = maker(take_scale(value));
    const float cap = found_.scale;
    if (bound && bound.is("Tanh")) {
      take({bound});
      found_.scale = 1;
      const sdk::ValueInfo bounded = take_scale(bound.input(0));
      if (cap > 0 && std::fabs(cap * found_.scale - 1) <= 1e-6f) {
        found_.softcap = cap;
        found_.scale = before.scale;
        return bounded;
      }
    }
    found_ = before;
    return value;
  }

  bool take_product(const sdk::ValueInfo& value) {
    keys_ = product_of_keys(maker(take_scale(take_softcap(value))));
    if (!keys_.node) return false;
    found_.scores = keys_.node;
    take({found_.scores});
    return true;
  }

  /// The product of queries and keys, which is scaled, and has a mask added or is chosen by one: masked_fill, where.
  bool take_scores() {
    const sdk::ValueInfo value = found_.softmax.input(0);
    const sdk::Node node = maker(value);
    if (!node || !(node.is("Add") || node.is("Where"))) return take_product(value);
    const std::size_t first = node.is("Where") ? 1 : 0;
    for (const std::size_t i : {first, first + 1}) {
      const DecomposedAttention before = found_;
      const sdk::ValueInfo other = node.input(2 * first + 1 - i);
      if (first == 1 && !number_beside(other, value, found_.otherwise)) continue;
      take({node});
      found_.mask = first == 1 ? node.input(0) : other;
      if (first == 1) found_.chosen = i == 1;
      if (take_product(node.input(i))) return true;
      found_ = before;
    }
    return false;
  }

  void take_operands(int rank) {
    found_.q = seen_rows(take_scale(keys_.left.value), keys_.left.axes);
    if (!keys_.has_columns) {
      found_.k = seen_heads(take_scale(keys_.right.value), keys_.right.axes);
    } else if (!take_keys(keys_.right.value)) {
      found_.why = "its keys are not the transpose of rows that lie together";
    }
    found_.v = seen_heads(values_.right.value, values_.right.axes);
    if (found_.k.group != found_.v.group)
      found_.why = "its keys and values are repeated differently";
    take({found_.product});
    found_.y = {found_.product.output(0), values_.axes};
    const sdk::Node next = only_consumer(found_.y.value, taken_);
    if (rank == 4 && has_perm(next, {0, 2, 1, 3})) {
      found_.y = {next.output(0), turned(values_.axes)};
      take({next});
    }
    for (const SeenHeads& operand : {found_.q, found_.k, found_.v}) {
      if (found_.why.empty() && operand.value.rank() != rank)
        found_.why = "its operands have different numbers of axes";
    }
    if (found_.mask && (found_.mask.rank() < 0 || found_.mask.rank() > rank))
      found_.why = "its mask has other axes than its scores";
    for (const AttentionProduct& product : {keys_, values_}) {
      if (!product.why.empty()) found_.why = product.why;
    }
  }

  /// Rows that lie so, seen through a transposition of heads and positions.
  SeenHeads seen_rows(const sdk::ValueInfo& value, const std::string& axes) {
    const sdk::Node node = maker(value);
    if (!has_perm(node, {0, 2, 1, 3})) return {value, axes};
    take({node});
    return {node.input(0), turned(axes)};
  }

  SeenHeads seen_cache(const sdk::ValueInfo& value, const std::string& axes) {
    SeenHeads heads = seen_rows(value, axes);
    heads.value = take_cast(heads.value);
    return heads;
  }

  /// What becomes floats by a Cast from 16 bits, where that is not to be; otherwise `value`.
  sdk::ValueInfo take_cast(const sdk::ValueInfo& value) {
    if (caches_ == HalfCaches::AreCast) return value;
    const sdk::Node node = maker(value);
    if (!node || !node.is("Cast") || value.type() != sdk::DataType::Float) return value;
    const sdk::DataType from = node.input(0).type();
    if (from != sdk::DataType::Float16 && from != sdk::DataType::BFloat16) return value;
    take({node});
    return node.input(0);
  }

  bool take_keys(const sdk::ValueInfo& value) {
    const sdk::Node node = maker(take_cast(take_scale(value)));
    if (has_perm(node, {0, 2, 3, 1})) {
      take({node});
      found_.k = {take_cast(node.input(0)), "bsh"};
    } else if (has_perm(node, {0, 1, 3, 2})) {
      take({node});
      found_.k = seen_heads(take_scale(node.input(0)));
    } else if (has_perm(node, {0, 2, 1})) {
      take({node});
      found_.k = {take_cast(take_scale(node.input(0)))};
    } else {
      return take_flat_keys(node);
    }
    return true;
  }

  /// Keys whose last two axes change over by way of three, as PyTorch's exporters write it: heads and batches as one axis.
  bool take_flat_keys(const sdk::Node& last) {
    const sdk::Node turn = last && last.is("Reshape") ? maker(last.input(0)) : sdk::Node();
    if (!has_perm(turn, {0, 2, 1})) return false;
    const sdk::Node first = maker(turn.input(0));
    const sdk::ValueInfo flat = turn.input(0), to = last.output(0);
    if (!first || !first.is("Reshape") || flat.rank() != 3 || to.rank() != 4 ||
        !same_size(flat, 1, to, 3) || !same_size(flat, 2, to, 2))
      return false;
    const sdk::ValueInfo from = first.input(0);
    take({first, turn, last});
    if (from.rank() == 5) return take_copies(from, to, {0, 1, 3, 2}, found_.k);
    if (from.rank() != 4) return false;
    for (const int axis : {0, 1, 2, 3}) {
      if (!same_size(to, axis, from, axis < 2 ? axis : 5 - axis)) return false;
    }
    found_.k = seen_heads(take_scale(from));
    return true;
  }

  /// Rows of heads, seen through what repeats the heads.
  SeenHeads seen_heads(const sdk::ValueInfo& cast, const std::string& axes = "bhs") {
    const sdk::ValueInfo value = take_cast(cast);
    const sdk::Node merge = maker(value);
    SeenHeads heads;
    if (axes != "bhs" || !merge || !merge.is("Reshape") ||
        !take_copies(merge.input(0), value, {0, 1, 2, 3}, heads))
      return seen_cache(value, axes);
    take({merge});
    return heads;
  }

  /// Takes [batch, heads, copies, positions, width], which repeats heads side by side and becomes [batch, heads * copies, ...]: `axes`
  /// of `after`, of the operand's own four.
  bool take_copies(const sdk::ValueInfo& copies, const sdk::ValueInfo& after,
                   const std::array<int, 4>& axes, SeenHeads& heads) {
    const sdk::Node expand = maker(copies);
    const sdk::Node split = expand && expand.is("Expand") ? maker(expand.input(0)) : sdk::Node();
    if (!split || !(split.is("Unsqueeze") || split.is("Reshape"))) return false;
    const sdk::ValueInfo before = split.input(0), apart = expand.input(0);
    if (before.rank() != 4 || apart.rank() != 5 || copies.rank() != 5 || after.rank() != 4 ||
        apart.dims()[2] != 1 || copies.dims()[2] <= 0 || before.dims()[1] <= 0 ||
        after.dims()[1] != before.dims()[1] * copies.dims()[2])
      return false;
    for (const int axis : {0, 1, 2, 3}) {
      const int spread = axis < 2 ? axis : axis + 1;
      if (!same_size(before, axis, apart, spread) || !same_size(before, axis, copies, spread) ||
          (axis != 1 && !same_size(before, axis, after, axes[static_cast<std::size_t>(axis)])))
        return false;
    }
    take({split, expand});
    heads = seen_cache(before, "bhs");
    heads.group = copies.dims()[2];
    return true;
  }

  const NodeSet& taken_;
  HalfCaches caches_;
  DecomposedAttention found_;
  AttentionProduct keys_, values_;
};

}  // namespace

DecomposedAttention find_attention(const sdk::Node& softmax, const NodeSet& taken,
                                   HalfCaches caches) {
  if (!softmax.is("Softmax") || taken.count(softmax.raw()) > 0) return DecomposedAttention();
  AttentionMatch match(softmax, taken, caches);
  return match.match() ? std::move(match.found()) : DecomposedAttention();
}

}  // namespace backplane::patterns

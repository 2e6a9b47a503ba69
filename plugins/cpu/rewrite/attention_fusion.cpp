#include <array>
#include <cmath>

#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// An operand of attention: where its elements come from, and how its first three axes lie there.
struct SeenHeads {
  std::string value;
  const char* axes = "bhs";
  std::int64_t group = 1;  // heads of queries that share one
};

/// The nodes of an attention around its Softmax.
struct AttentionMatch {
  WorkNode* softmax = nullptr;
  WorkNode* product = nullptr;      // of the weights and the values
  std::vector<WorkNode*> replaced;  // all but the last one
  SeenHeads q, k, v, y;
  std::string mask;
  float scale = 1;
  float softcap = 0;
  bool is_nan_zero = false;
  // A mask of bools: scores whose element is `chosen` stay, others become `otherwise`.
  std::int64_t chosen = 1;
  float otherwise = 0;
  WorkNode* last = nullptr;  // makes the result
};

bool has_perm(const WorkNode* node, const std::vector<std::int64_t>& perm) {
  return node != nullptr && node->is("Transpose") && node->original.get_ints("perm") == perm;
}

int rank_of(const WorkingGraph& graph, const std::string& value) {
  const sdk::ValueInfo info = graph.info(value);
  return info ? info.rank() : -1;
}

class AttentionFusion {
 public:
  explicit AttentionFusion(WorkingGraph& graph) : graph_(graph) {}

  /// Fuses the attention around a Softmax, if there is one.
  void fuse(WorkNode* softmax) {
    AttentionMatch match;
    if (find(softmax, match)) replace(match);
  }

 private:
  /// The node that makes a value for one reader alone; nullptr otherwise.
  WorkNode* own_producer(const std::string& value) const {
    WorkNode* node = value.empty() ? nullptr : graph_.producer(value);
    const bool is_own = node != nullptr && !node->changed && node->domain.empty() &&
                        graph_.only_consumer(value) != nullptr;
    return is_own ? node : nullptr;
  }

  bool find(WorkNode* softmax, AttentionMatch& match) const {
    const int rank = rank_of(graph_, softmax->outputs[0]);
    const std::int64_t axis =
        softmax->original.get_int("axis", softmax->original.since_version() < 13 ? 1 : -1);
    if ((rank != 3 && rank != 4) || (axis != -1 && axis != rank - 1)) return false;
    match.softmax = softmax;
    const std::string weights = take_weights(match);
    match.product = graph_.only_consumer(weights);
    if (match.product == nullptr || match.product->changed || !match.product->is("MatMul") ||
        match.product->input(0) != weights || match.product->input(1) == weights)
      return false;
    WorkNode* scores = take_scores(match);
    if (scores == nullptr || !take_keys(scores->input(1), match)) return false;
    match.q = seen_rows(take_scale(scores->input(0), match), match);
    match.v = take_repeated(match.product->input(1), match);
    match.last = match.product;
    match.y = {match.product->outputs[0], "bhs"};
    if (WorkNode* next = graph_.only_consumer(match.y.value);
        rank == 4 && next != nullptr && !next->changed && has_perm(next, {0, 2, 1, 3})) {
      match.y = {next->outputs[0], "bsh"};
      match.replaced.push_back(match.product);
      match.last = next;
    }
    for (const std::string& value : {match.q.value, match.k.value, match.v.value}) {
      if (!graph_.is_float(value) || rank_of(graph_, value) != rank) return false;
    }
    if (match.k.group != match.v.group) return false;
    const int mask_rank = match.mask.empty() ? rank : rank_of(graph_, match.mask);
    return mask_rank >= 1 && mask_rank <= rank && graph_.is_float(match.y.value);
  }

  /// The weights of the values: those of the Softmax, or of a Where after it that replaces NaN by 0.
  std::string take_weights(AttentionMatch& match) const {
    std::string weights = match.softmax->outputs[0];
    const std::vector<WorkNode*> readers = graph_.consumers(weights);
    if (readers.size() != 2 || graph_.is_output(weights)) return weights;
    for (const std::size_t i : {0, 1}) {
      WorkNode *test = readers[i], *choice = readers[1 - i];
      float number = 1;
      if (!test->is("IsNaN") || !choice->is("Where") || test->changed || choice->changed ||
          graph_.only_consumer(test->outputs[0]) != choice ||
          choice->input(0) != test->outputs[0] || choice->input(2) != weights ||
          !graph_.scalar(choice->input(1), number) || number != 0 ||
          rank_of(graph_, choice->input(1)) > rank_of(graph_, weights))
        continue;
      match.is_nan_zero = true;
      match.replaced.insert(match.replaced.end(), {test, choice});
      return choice->outputs[0];
    }
    return weights;
  }

  /// The value that a product with, or a quotient by, one number is made of; `value` where it is none.
  std::string take_scale(const std::string& value, AttentionMatch& match) const {
    WorkNode* node = own_producer(value);
    if (node == nullptr || node->inputs.size() != 2 || !(node->is("Mul") || node->is("Div")))
      return value;
    float number = 0;
    std::size_t at = 1;
    if (!graph_.scalar(node->input(1), number)) {
      at = 0;
      if (node->is("Div") || !graph_.scalar(node->input(0), number)) return value;
    }
    // A constant of more axes than the value would add some.
    if (number == 0 || rank_of(graph_, node->input(at)) > rank_of(graph_, value)) return value;
    match.scale *= node->is("Mul") ? number : 1 / number;
    match.replaced.push_back(node);
    return node->input(1 - at);
  }

  /// The value that is bounded by cap * tanh(value / cap); `value` where it is not.
  std::string take_softcap(const std::string& value, AttentionMatch& match) const {
    AttentionMatch outer = match, inner = match;
    outer.scale = inner.scale = 1;
    WorkNode* bound = own_producer(take_scale(value, outer));
    if (bound == nullptr || !bound->is("Tanh")) return value;
    inner.replaced = outer.replaced;
    inner.replaced.push_back(bound);
    std::string result = take_scale(bound->input(0), inner);
    if (std::fabs(outer.scale * inner.scale - 1) > 1e-6f || outer.scale <= 0) return value;
    inner.softcap = outer.scale;
    inner.scale = match.scale;
    match = inner;
    return result;
  }

  WorkNode* take_product(const std::string& value, AttentionMatch& match) const {
    WorkNode* node = own_producer(take_scale(take_softcap(value, match), match));
    if (node == nullptr || !node->is("MatMul")) return nullptr;
    match.replaced.push_back(node);
    return node;
  }

  /// Scores that a mask of bools chooses, others being one number: masked_fill, where.
  WorkNode* take_chosen(WorkNode* choice, AttentionMatch& match) const {
    for (const std::size_t i : {1, 2}) {
      AttentionMatch tried = match;
      const std::string& number = choice->input(3 - i);
      if (!graph_.scalar(number, tried.otherwise) ||
          rank_of(graph_, number) > rank_of(graph_, choice->outputs[0]))
        continue;
      WorkNode* product = take_product(choice->input(i), tried);
      if (product == nullptr) continue;
      match = tried;
      match.chosen = i == 1 ? 1 : 0;
      match.mask = choice->input(0);
      match.replaced.push_back(choice);
      return product;
    }
    return nullptr;
  }

  /// The product of queries and keys, which is scaled, and has a mask added or is chosen by one.
  WorkNode* take_scores(AttentionMatch& match) const {
    const std::string value = match.softmax->input(0);
    WorkNode* addition = own_producer(value);
    if (addition != nullptr && addition->is("Where")) return take_chosen(addition, match);
    if (addition == nullptr || !addition->is("Add")) return take_product(value, match);
    for (const std::size_t i : {0, 1}) {
      AttentionMatch tried = match;
      WorkNode* product = take_product(addition->input(i), tried);
      if (product == nullptr) continue;
      match = tried;
      match.mask = addition->input(1 - i);
      match.replaced.push_back(addition);
      return product;
    }
    return nullptr;
  }

  /// [batch, heads, positions, width], seen through a transposition from [batch, positions, heads, width].
  SeenHeads seen_rows(const std::string& value, AttentionMatch& match) const {
    WorkNode* node = own_producer(value);
    if (!has_perm(node, {0, 2, 1, 3})) return {value, "bhs"};
    match.replaced.push_back(node);
    return {node->input(0), "bsh"};
  }

  bool take_keys(const std::string& value, AttentionMatch& match) const {
    const std::string keys = take_scale(value, match);
    WorkNode* node = own_producer(keys);
    if (has_perm(node, {0, 2, 3, 1})) {
      match.replaced.push_back(node);
      match.k = {node->input(0), "bsh"};
      return true;
    }
    if (has_perm(node, {0, 1, 3, 2})) {
      match.replaced.push_back(node);
      match.k = take_repeated(take_scale(node->input(0), match), match);
      return true;
    }
    if (has_perm(node, {0, 2, 1})) {
      match.replaced.push_back(node);
      match.k = {take_scale(node->input(0), match), "bhs"};
      return true;
    }
    return take_flat_keys(node, match);
  }

  /// Keys whose last two axes change over by way of three, as PyTorch's exporters write it: heads and batches as one axis.
  bool take_flat_keys(WorkNode* last, AttentionMatch& match) const {
    WorkNode* turn =
        last != nullptr && last->is("Reshape") ? own_producer(last->input(0)) : nullptr;
    if (!has_perm(turn, {0, 2, 1})) return false;
    const sdk::ValueInfo flat = graph_.info(turn->input(0)), to = graph_.info(last->outputs[0]);
    if (flat.rank() != 3 || to.rank() != 4 || !same_dim(flat, 1, to, 3) ||
        !same_dim(flat, 2, to, 2))
      return false;
    WorkNode* first = own_producer(turn->input(0));
    if (first == nullptr || !first->is("Reshape")) return false;
    const std::string& rows = first->input(0);
    const sdk::ValueInfo from = graph_.info(rows);
    match.replaced.insert(match.replaced.end(), {first, turn, last});
    if (from.rank() == 5) return take_expanded(rows, to, {0, 1, 3, 2}, match.k, match);
    if (from.rank() != 4) return false;
    for (const int axis : {0, 1, 2, 3}) {
      if (!same_dim(to, axis, from, axis < 2 ? axis : 5 - axis)) return false;
    }
    match.k = take_repeated(take_scale(rows, match), match);
    return true;
  }

  /// Heads that several heads of queries share, seen through what repeats them, copies side by side.
  SeenHeads take_repeated(const std::string& value, AttentionMatch& match) const {
    WorkNode* merge = own_producer(value);
    if (merge == nullptr || !merge->is("Reshape")) return seen_rows(value, match);
    AttentionMatch tried = match;
    SeenHeads heads;
    tried.replaced.push_back(merge);
    if (!take_expanded(merge->input(0), graph_.info(value), {0, 1, 2, 3}, heads, tried))
      return seen_rows(value, match);
    match = tried;
    return heads;
  }

  /// The same from [batch, heads, copies, positions, width] on, which becomes [batch, heads * copies, ...]: `axes` of
  /// `after`.
  bool take_expanded(const std::string& value, const sdk::ValueInfo& after,
                     const std::array<int, 4>& axes, SeenHeads& heads,
                     AttentionMatch& match) const {
    WorkNode* repeat = own_producer(value);
    WorkNode* split =
        repeat != nullptr && repeat->is("Expand") ? own_producer(repeat->input(0)) : nullptr;
    if (split == nullptr || !(split->is("Unsqueeze") || split->is("Reshape"))) return false;
    const sdk::ValueInfo before = graph_.info(split->input(0)),
                         apart = graph_.info(split->outputs[0]), many = graph_.info(value);
    if (before.rank() != 4 || apart.rank() != 5 || many.rank() != 5 || after.rank() != 4 ||
        apart.dims()[2] != 1 || many.dims()[2] <= 0 || before.dims()[1] <= 0 ||
        after.dims()[1] != before.dims()[1] * many.dims()[2])
      return false;
    for (const int axis : {0, 1, 2, 3}) {
      const int spread = axis < 2 ? axis : axis + 1;
      if (!same_dim(before, axis, apart, spread) || !same_dim(before, axis, many, spread) ||
          (axis != 1 && !same_dim(before, axis, after, axes[static_cast<std::size_t>(axis)])))
        return false;
    }
    match.replaced.insert(match.replaced.end(), {repeat, split});
    heads = seen_rows(split->input(0), match);
    heads.group = many.dims()[2];
    return true;
  }

  void replace(AttentionMatch& match) {
    WorkNode* node = match.last;
    const std::string result = match.y.value;
    graph_.remove(match.softmax, node);
    for (WorkNode* each : match.replaced) graph_.remove(each, node);
    graph_.change(node);
    node->domain = kPrivateDomain;
    node->op = "Attention";
    node->attributes.clear();
    node->attributes["scale"] = match.scale;
    node->attributes["axes"] =
        std::string(match.q.axes) + match.k.axes + match.v.axes + match.y.axes;
    node->attributes["softcap"] = match.softcap;
    node->attributes["group"] = match.k.group;
    node->attributes["chosen"] = match.chosen;
    node->attributes["otherwise"] = match.otherwise;
    if (match.is_nan_zero) node->attributes["is_nan_zero"] = std::int64_t{1};
    std::vector<std::string> inputs{match.q.value, match.k.value, match.v.value};
    if (!match.mask.empty()) inputs.push_back(match.mask);
    graph_.set_inputs(node, inputs);
  }

  WorkingGraph& graph_;
};

}  // namespace

void fuse_attention(WorkingGraph& graph) {
  AttentionFusion fusion(graph);
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node != nullptr && !node->changed && node->is("Softmax")) fusion.fuse(node);
  }
}

}  // namespace backplane::cpu

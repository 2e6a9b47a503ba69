// Queries and keys that decoders turn by their positions' angles, as exporters write it: x * cos + concat(-x2, x1) * sin,
// where x1 and x2 are the halves of x's last axis, becomes one node, FusedRotation. So does the Transpose that makes x, where nobody
// else reads that. The node broadcasts its operands in each run anew, which comes to what the nodes' broadcasting
// comes to whatever the dims are: only the last axes have to be known.
#include <algorithm>
#include <array>

#include "plugins/common/device_ops/rewrite/chain.hpp"

namespace backplane::device_ops {
namespace {

/// The size of the last axis; -1 where it is not known.
std::int64_t last_size(const sdk::ValueInfo& value) {
  return value && value.rank() > 0 ? value.dims().back() : -1;
}

/// The constant's only number; `otherwise` where there is no such input, and false where it is something else.
bool one_number(const sdk::ValueInfo& value, std::int64_t otherwise, std::int64_t& number) {
  number = otherwise;
  if (!value) return true;
  if (!value.is_constant() || value.constant().size() != 1 ||
      value.constant().bytes_data() == nullptr)
    return false;
  number = value.constant().to_ints()[0];
  return true;
}

/// The nodes around an Add, which is their last.
class RotationMatch {
 public:
  RotationMatch(const sdk::Node& sum, const NodeSet& taken) : sum_(sum), taken_(taken) {}

  std::vector<sdk::Node> nodes;
  sdk::ValueInfo x, cos, sin;
  Dims perm;  ///< of the Transpose, which x is the input of then; else empty

  bool match() {
    if (!is_binary(sum_, "Add") || !is_chained(sum_.output(0).type())) return false;
    for (const std::size_t i : {0, 1}) {
      const sdk::Node plain = only_producer(sum_.input(i), taken_),
                      across = only_producer(sum_.input(1 - i), taken_);
      if (!plain || !across || plain == across || !is_binary(plain, "Mul") ||
          !is_binary(across, "Mul"))
        continue;
      for (const std::size_t k : {0, 1}) {
        nodes.clear();
        sin = across.input(1 - k);
        if (!take_turned(across.input(k)) || !take_cos(plain) || !fits()) continue;
        nodes.insert(nodes.end(), {plain, across, sum_});
        take_transpose();
        return true;
      }
    }
    return false;
  }

 private:
  static bool is_binary(const sdk::Node& node, std::string_view op_type) {
    return node.is(op_type) && node.since_version() >= 7;
  }

  /// concat(-x2, x1).
  bool take_turned(const sdk::ValueInfo& value) {
    const sdk::Node joined = only_producer(value, taken_);
    if (!joined || !joined.is("Concat") || joined.input_count() != 2 ||
        !is_last(joined.get_int("axis", 0), value))
      return false;
    const sdk::Node negated = only_producer(joined.input(0), taken_);
    if (!negated || !negated.is("Neg")) return false;
    const sdk::ValueInfo first = joined.input(1), second = negated.input(0);
    const sdk::Node low = only_producer(first, taken_), high = only_producer(second, taken_);
    if (!low || !high) return false;
    x = low.input(0);
    if (low == high) {
      if (!is_split(low, first, second)) return false;
      nodes = {low, negated, joined};
      return true;
    }
    const std::int64_t width = last_size(x);
    if (high.input(0) != x || !cuts(low, 0, width / 2) || !cuts(high, width / 2, width))
      return false;
    nodes = {low, high, negated, joined};
    return true;
  }

  static bool is_last(std::int64_t axis, const sdk::ValueInfo& value) {
    return value.rank() > 0 && (axis == -1 || axis == value.rank() - 1);
  }

  /// Whether a Slice takes [begin, end) of x's last axis.
  bool cuts(const sdk::Node& slice, std::int64_t begin, std::int64_t end) const {
    const std::int64_t width = last_size(x);
    std::array<std::int64_t, 4> numbers{};  // start, end, axis, step
    if (!slice.is("Slice") || slice.since_version() < 10 || width <= 0) return false;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t otherwise = i == 2 ? 0 : 1;
      if (!one_number(slice.input(i + 1), otherwise, numbers[i])) return false;
    }
    const auto place = [width](std::int64_t index) {
      return std::clamp<std::int64_t>(index < 0 ? index + width : index, 0, width);
    };
    return is_last(numbers[2], x) && numbers[3] == 1 && place(numbers[0]) == begin &&
           place(numbers[1]) == end;
  }

  static bool is_split(const sdk::Node& split, const sdk::ValueInfo& first,
                       const sdk::ValueInfo& second) {
    const std::int64_t width = last_size(split.input(0));
    return split.is("Split") && split.output_count() == 2 && split.output(0) == first &&
           split.output(1) == second && is_last(split.get_int("axis", 0), split.input(0)) &&
           width > 0 && 2 * last_size(first) == width && 2 * last_size(second) == width;
  }

  bool take_cos(const sdk::Node& plain) {
    const bool is_first = plain.input(0) == x;
    if (!is_first && plain.input(1) != x) return false;
    cos = plain.input(is_first ? 1 : 0);
    return true;
  }

  bool fits() const {
    const std::int64_t width = last_size(x);
    return width > 0 && width % 2 == 0 && last_size(cos) == width && last_size(sin) == width;
  }

  void take_transpose() {
    const sdk::Node node = x.producer();
    if (!node || !node.is("Transpose") || taken_.count(node.raw()) > 0 ||
        is_read_by_others(x, nodes) || cos == x || sin == x)
      return;
    const Dims order = node.get_ints("perm");
    if (static_cast<int>(order.size()) != x.rank() || !is_last(order.back(), x)) return;
    perm = order;
    x = node.input(0);
    nodes.insert(nodes.begin(), node);
  }

  sdk::Node sum_;
  const NodeSet& taken_;
};

}  // namespace

void fuse_rotations(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    RotationMatch found(node, taken);
    if (taken.count(node.raw()) > 0 || !found.match()) continue;
    sdk::NodeDraft draft = edit.node(private_domain(), "FusedRotation");
    draft.name(std::string(node.name()));
    draft.input(found.x.name()).input(found.cos.name()).input(found.sin.name());
    draft.output(node.output(0).name());
    draft.attribute("type", static_cast<std::int64_t>(node.output(0).type()));
    if (!found.perm.empty()) draft.attribute("perm", found.perm);
    for (const sdk::Node& each : found.nodes) {
      draft.replaces(each);
      taken.insert(each.raw());
    }
    draft.add();
  }
}

}  // namespace backplane::device_ops

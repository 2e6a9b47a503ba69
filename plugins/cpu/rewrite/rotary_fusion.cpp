#include <algorithm>

#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

/// The nodes of x * cos + concat(-x2, x1) * sin around their Add; x1 and x2 are the halves of x's last axis.
class RotaryMatch {
 public:
  explicit RotaryMatch(const WorkingGraph& graph) : graph_(graph) {}

  std::vector<WorkNode*> nodes;  // all but the Add
  std::string x, cos, sin;

  bool match(const WorkNode& sum) {
    if (!sum.is("Add") || !graph_.is_float(sum.outputs[0])) return false;
    for (const std::size_t i : {0, 1}) {
      WorkNode *plain = own(sum.input(i), "Mul"), *turned = own(sum.input(1 - i), "Mul");
      if (plain == nullptr || turned == nullptr || plain == turned) continue;
      for (const std::size_t k : {0, 1}) {
        nodes = {plain, turned};
        sin = turned->input(1 - k);
        if (take_halves(turned->input(k)) && take_cos(*plain) && fits(sum)) return true;
      }
    }
    return false;
  }

 private:
  WorkNode* own(const std::string& value, std::string_view op) const {
    WorkNode* node = value.empty() ? nullptr : graph_.producer(value);
    const bool is_own =
        node != nullptr && !node->changed && node->is(op) && graph_.only_consumer(value) != nullptr;
    return is_own ? node : nullptr;
  }

  bool take_cos(const WorkNode& plain) {
    for (const std::size_t i : {0, 1}) {
      if (plain.input(i) != x) continue;
      cos = plain.input(1 - i);
      return true;
    }
    return false;
  }

  /// concat(-x2, x1): finds x.
  bool take_halves(const std::string& value) {
    WorkNode* joined = own(value, "Concat");
    if (joined == nullptr || joined->inputs.size() != 2) return false;
    const sdk::ValueInfo info = graph_.info(value);
    const std::int64_t axis = joined->original.get_int("axis", 0);
    if (!info || info.rank() < 1 || (axis != -1 && axis != info.rank() - 1)) return false;
    WorkNode* negated = own(joined->input(0), "Neg");
    if (negated == nullptr) return false;
    nodes.insert(nodes.end(), {joined, negated});
    return take_slices(joined->input(1), negated->input(0)) ||
           take_split(joined->input(1), negated->input(0));
  }

  /// The width of x's last axis, where it is known and even; otherwise 0.
  std::int64_t width_of(const std::string& value) const {
    const sdk::ValueInfo info = graph_.info(value);
    if (!info || info.rank() < 1) return 0;
    const std::int64_t width = info.dims().back();
    return width > 0 && width % 2 == 0 ? width : 0;
  }

  bool take_slices(const std::string& first, const std::string& second) {
    WorkNode *low = own(first, "Slice"), *high = own(second, "Slice");
    if (low == nullptr || high == nullptr || low->input(0) != high->input(0)) return false;
    x = low->input(0);
    const std::int64_t width = width_of(x);
    nodes.insert(nodes.end(), {low, high});
    return width > 0 && cuts(*low, 0, width / 2, width) && cuts(*high, width / 2, width, width);
  }

  /// Whether a Slice takes [begin, end) of the last axis of `width`.
  bool cuts(const WorkNode& slice, std::int64_t begin, std::int64_t end, std::int64_t width) const {
    std::vector<std::int64_t> starts, ends, axes, steps;
    if (slice.original.since_version() < 10 || !graph_.integers(slice.input(1), starts) ||
        !graph_.integers(slice.input(2), ends) || !graph_.integers(slice.input(3), axes) ||
        !graph_.integers(slice.input(4), steps))
      return false;
    const std::int64_t rank = graph_.info(slice.input(0)).rank();
    if (starts.size() != 1 || ends.size() != 1 || axes.size() != 1 ||
        (axes[0] != -1 && axes[0] != rank - 1) || (!steps.empty() && steps[0] != 1))
      return false;
    const auto position = [width](std::int64_t index) {
      return std::clamp<std::int64_t>(index < 0 ? index + width : index, 0, width);
    };
    return position(starts[0]) == begin && position(ends[0]) == end;
  }

  bool take_split(const std::string& first, const std::string& second) {
    WorkNode* split = graph_.producer(first);
    if (split == nullptr || split->changed || !split->is("Split") || split->outputs.size() != 2 ||
        split->outputs[0] != first || split->outputs[1] != second ||
        graph_.only_consumer(first) == nullptr || graph_.only_consumer(second) == nullptr)
      return false;
    x = split->input(0);
    const std::int64_t width = width_of(x);
    const std::int64_t axis = split->original.get_int("axis", 0);
    if (width == 0 || (axis != -1 && axis != graph_.info(x).rank() - 1)) return false;
    nodes.push_back(split);
    return width_of_part(first) == width / 2 && width_of_part(second) == width / 2;
  }

  std::int64_t width_of_part(const std::string& value) const {
    const sdk::ValueInfo info = graph_.info(value);
    return info && info.rank() > 0 ? info.dims().back() : -1;
  }

  /// Cosines and sines have x's last axis, and broadcasting them makes nothing larger.
  bool fits(const WorkNode& sum) const {
    for (const std::string& angles : {cos, sin}) {
      if (!graph_.is_float(angles) || width_of(angles) != width_of(x)) return false;
    }
    return graph_.same_dims(sum.outputs[0], x);
  }

  const WorkingGraph& graph_;
};

}  // namespace

void fuse_rotations(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    RotaryMatch rotary(graph);
    if (!rotary.match(*node)) continue;
    for (WorkNode* part : rotary.nodes) graph.remove(part, node);
    graph.change(node);
    node->domain = kPrivateDomain;
    node->op = "Rotate";
    node->attributes.clear();
    graph.set_inputs(node, {rotary.x, rotary.cos, rotary.sin});
  }
}

}  // namespace backplane::cpu

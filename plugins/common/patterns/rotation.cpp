#include "plugins/common/patterns/rotation.hpp"

#include <algorithm>
#include <array>

namespace backplane::patterns {
namespace {

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

/// Operators that broadcast, since ONNX's seventh version.
bool is_binary(const sdk::Node& node, std::string_view op_type) {
  return node.is(op_type) && node.since_version() >= 7;
}

bool is_last(std::int64_t axis, const sdk::ValueInfo& value) {
  return value.rank() > 0 && (axis == -1 || axis == value.rank() - 1);
}

/// The nodes around an Add, which is their last.
class RotationMatch {
 public:
  explicit RotationMatch(const NodeSet& taken) : taken_(taken) {}

  bool match(const sdk::Node& sum) {
    for (const std::size_t i : {0, 1}) {
      const sdk::Node plain = maker(sum.input(i)), across = maker(sum.input(1 - i));
      if (!plain || !across || plain == across || !is_binary(plain, "Mul") ||
          !is_binary(across, "Mul"))
        continue;
      for (const std::size_t k : {0, 1}) {
        found_.sin = across.input(1 - k);
        if (!take_turned(across.input(k)) || !take_cos(plain) || !fits()) continue;
        found_.nodes.insert(found_.nodes.end(), {plain, across, sum});
        see_transpose();
        return true;
      }
    }
    return false;
  }

  DecomposedRotation& found() { return found_; }

 private:
  sdk::Node maker(const sdk::ValueInfo& value) const { return only_producer(value, taken_); }

  /// concat(-x2, x1).
  bool take_turned(const sdk::ValueInfo& value) {
    const sdk::Node joined = maker(value);
    if (!joined || !joined.is("Concat") || joined.input_count() != 2 ||
        !is_last(joined.get_int("axis", 0), value))
      return false;
    const sdk::Node negated = maker(joined.input(0));
    if (!negated || !negated.is("Neg")) return false;
    const sdk::ValueInfo first = joined.input(1), second = negated.input(0);
    const sdk::Node low = maker(first), high = maker(second);
    if (!low || !high) return false;
    found_.x = low.input(0);
    if (low == high) {
      found_.nodes = {low, negated, joined};
      return is_split(low, first, second);
    }
    found_.nodes = {low, high, negated, joined};
    const std::int64_t width = last_size(found_.x);
    return high.input(0) == found_.x && cuts(low, 0, width / 2) && cuts(high, width / 2, width);
  }

  /// Whether a Slice takes [begin, end) of x's last axis.
  bool cuts(const sdk::Node& slice, std::int64_t begin, std::int64_t end) const {
    const std::int64_t width = last_size(found_.x);
    std::array<std::int64_t, 4> numbers{};  // start, end, axis, step
    if (!slice.is("Slice") || slice.since_version() < 10 || width <= 0) return false;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t otherwise = i == 2 ? 0 : 1;
      if (!one_number(slice.input(i + 1), otherwise, numbers[i])) return false;
    }
    const auto place = [width](std::int64_t index) {
      return std::clamp<std::int64_t>(index < 0 ? index + width : index, 0, width);
    };
    return is_last(numbers[2], found_.x) && numbers[3] == 1 && place(numbers[0]) == begin &&
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
    const bool is_first = plain.input(0) == found_.x;
    if (!is_first && plain.input(1) != found_.x) return false;
    found_.cos = plain.input(is_first ? 1 : 0);
    return true;
  }

  bool fits() const {
    const std::int64_t width = last_size(found_.x);
    return width > 0 && width % 2 == 0 && last_size(found_.cos) == width &&
           last_size(found_.sin) == width;
  }

  void see_transpose() {
    const sdk::ValueInfo& x = found_.x;
    const sdk::Node node = x.producer();
    if (!node || !node.is("Transpose") || taken_.count(node.raw()) > 0 ||
        is_read_by_others(x, found_.nodes) || found_.cos == x || found_.sin == x)
      return;
    const sdk::Dims perm = node.get_ints("perm");
    if (static_cast<int>(perm.size()) == x.rank() && is_last(perm.back(), x))
      found_.transpose = node;
  }

  const NodeSet& taken_;
  DecomposedRotation found_;
};

}  // namespace

DecomposedRotation find_rotation(const sdk::Node& last, const NodeSet& taken) {
  if (!is_binary(last, "Add") || taken.count(last.raw()) > 0) return DecomposedRotation();
  RotationMatch match(taken);
  return match.match(last) ? std::move(match.found()) : DecomposedRotation();
}

}  // namespace backplane::patterns

#include "plugins/common/patterns/normalization.hpp"

#include <algorithm>

namespace backplane::patterns {
namespace {

class NormalizationMatch {
 public:
  explicit NormalizationMatch(const NodeSet& taken) : taken_(taken) {}

  /// Whether `last` is the scaling's product, or the bias's addition after it.
  bool match(const sdk::Node& last) {
    found_.y = last.output(0);
    if (last.is("Mul")) return take_scaled(last) && fits();
    if (!last.is("Add")) return false;
    for (const std::size_t i : {0, 1}) {
      found_.nodes = {last};
      const sdk::Node scaled = maker(last.input(1 - i), "Mul");
      found_.bias = last.input(i);
      if (scaled && take_scaled(scaled) && fits()) return true;
    }
    return false;
  }

  const DecomposedNormalization& found() const { return found_; }

 private:
  /// What makes the value, where it is a node of ONNX's operator that no other rewriting has.
  sdk::Node maker(const sdk::ValueInfo& value, std::string_view op_type) const {
    const sdk::Node node = value ? value.producer() : sdk::Node();
    return node && node.is(op_type) && taken_.count(node.raw()) == 0 ? node : sdk::Node();
  }

  bool take_scaled(const sdk::Node& product) {
    const std::vector<sdk::Node> before = found_.nodes;
    for (const std::size_t i : {0, 1}) {
      found_.nodes = before;
      found_.nodes.push_back(product);
      found_.scale = product.input(i);
      sdk::ValueInfo normalized = product.input(1 - i);
      const sdk::Node narrowing = maker(normalized, "Cast");
      if (narrowing) {
        found_.nodes.push_back(narrowing);
        normalized = narrowing.input(0);
      }
      if (take_quotient(normalized) && (!narrowing || take_widening())) return true;
    }
    return false;
  }

  /// distance / root, or distance * (1 / root).
  bool take_quotient(const sdk::ValueInfo& value) {
    if (const sdk::Node quotient = maker(value, "Div"); quotient) {
      found_.nodes.push_back(quotient);
      return take_root(quotient.input(1), quotient.input(0));
    }
    const sdk::Node product = maker(value, "Mul");
    if (!product) return false;
    found_.nodes.push_back(product);
    for (const std::size_t i : {0, 1}) {
      const sdk::ValueInfo inverse = product.input(i);
      const sdk::Node reciprocal = maker(inverse, "Reciprocal"), division = maker(inverse, "Div");
      float one = 0;
      const bool divides = division && number_beside(division.input(0), inverse, one) && one == 1;
      if (!reciprocal && !divides) continue;
      found_.nodes.push_back(reciprocal ? reciprocal : division);
      return take_root(reciprocal ? reciprocal.input(0) : division.input(1), product.input(1 - i));
    }
    return false;
  }

  /// The root of the mean of the distance's squares.
  bool take_root(const sdk::ValueInfo& value, const sdk::ValueInfo& distance) {
    const sdk::Node root = maker(value, "Sqrt");
    const sdk::Node sum = root ? maker(root.input(0), "Add") : sdk::Node();
    if (!sum) return false;
    const std::size_t at = number_beside(sum.input(0), value, found_.epsilon) ? 0 : 1;
    if (!number_beside(sum.input(at), value, found_.epsilon)) return false;
    const sdk::Node mean = maker(sum.input(1 - at), "ReduceMean");
    const sdk::Node square = mean && is_over_last(mean) ? mean.input(0).producer() : sdk::Node();
    if (!square || taken_.count(square.raw()) > 0 || !is_square_of(square, distance)) return false;
    found_.nodes.insert(found_.nodes.end(), {root, sum, mean, square});
    take_distance(distance);
    return true;
  }

  static bool is_square_of(const sdk::Node& node, const sdk::ValueInfo& value) {
    float exponent = 0;
    if (node.is("Pow"))
      return node.input(0) == value && number_beside(node.input(1), value, exponent) &&
             exponent == 2;
    return node.is("Mul") && node.input(0) == value && node.input(1) == value;
  }

  /// Whether the node's mean is over the last axis alone, which it keeps.
  static bool is_over_last(const sdk::Node& mean) {
    const int rank = mean.input(0).rank();
    sdk::Dims axes;
    return rank > 0 && mean.get_int("keepdims", 1) != 0 && read_axes(mean, rank, axes) &&
           axes == sdk::Dims{rank - 1};
  }

  /// x, or what it is where that is a difference from its mean that nobody else reads.
  void take_distance(const sdk::ValueInfo& distance) {
    found_.x = distance;
    const sdk::Node difference = maker(distance, "Sub");
    const sdk::Node mean = difference ? maker(difference.input(1), "ReduceMean") : sdk::Node();
    found_.has_mean = mean && mean.input(0) == difference.input(0) && is_over_last(mean) &&
                      !is_read_by_others(distance, found_.nodes) &&
                      !is_read_by_others(mean.output(0), {difference});
    if (found_.has_mean) {
      found_.x = difference.input(0);
      found_.nodes.insert(found_.nodes.end(), {difference, mean});
    }
  }

  /// The cast to float32 of what is narrowed again; it stays for its other readers.
  bool take_widening() {
    const sdk::Node widening = maker(found_.x, "Cast");
    if (!widening || found_.x.type() != sdk::DataType::Float) return false;
    if (!is_read_by_others(found_.x, found_.nodes)) found_.nodes.push_back(widening);
    found_.x = widening.input(0);
    return true;
  }

  /// Whether the operands are of one type, and scale and bias lie along the last axis.
  bool fits() const {
    const sdk::DataType type = found_.x.type();
    if (found_.x.rank() < 1 || found_.y.type() != type) return false;
    const std::int64_t width = found_.x.dims().back();
    for (const sdk::ValueInfo& value : {found_.scale, found_.bias}) {
      if (!value) continue;
      if (value.type() != type || !value.is_static() || value.rank() < 1 ||
          value.rank() > found_.x.rank() || value.dims().back() != width ||
          sdk::element_count(value.dims()) != width)
        return false;
    }
    return std::none_of(found_.nodes.begin() + 1, found_.nodes.end(), [&](const sdk::Node& node) {
      return is_read_by_others(node.output(0), found_.nodes);
    });
  }

  const NodeSet& taken_;
  DecomposedNormalization found_;
};

}  // namespace

DecomposedNormalization find_normalization(const sdk::Node& last, const NodeSet& taken) {
  if (!last.domain().empty() || last.output_count() != 1 || taken.count(last.raw()) > 0)
    return DecomposedNormalization();
  NormalizationMatch match(taken);
  return match.match(last) ? match.found() : DecomposedNormalization();
}

}  // namespace backplane::patterns

#include "plugins/common/patterns/gelu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace backplane::patterns {
namespace {

/// Where what the nodes compute is compared with Gelu. All that they may be are analytic, of few constants: what agrees
/// here agrees everywhere.
constexpr std::array kPlaces = {-5.5, -4.0, -3.1, -2.3, -1.7, -1.2, -0.8, -0.45, -0.1,
                                0.05, 0.3,  0.7,  1.1,  1.6,  2.2,  3.0,  4.2,   5.7};
using Numbers = std::array<double, kPlaces.size()>;

/// The form with tanh has eight nodes; ten where the cube is two products and a factor stands apart.
constexpr std::size_t kMostNodes = 10;
/// From x to the Erf or Tanh, and from there to the result.
constexpr int kMostSteps = 6;

double gelu(double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }

double gelu_by_tanh(double x) {
  const double pi = std::acos(-1.0);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

/// How far constants of the type may be off, by their rounding.
double tolerance_of(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Float16:
      return 1e-3;
    case sdk::DataType::BFloat16:
      return 8e-3;
    default:
      return 2e-5;
  }
}

bool is_gate(const sdk::Node& node) {
  return node && node.domain().empty() && (node.is("Erf") || node.is("Tanh"));
}

/// What an operator of two inputs makes of them; none of an operator that the forms do not have.
std::optional<double> combine(const sdk::Node& node, double a, double b) {
  if (node.is("Add")) return a + b;
  if (node.is("Sub")) return a - b;
  if (node.is("Mul")) return a * b;
  if (node.is("Div")) return a / b;
  if (node.is("Pow")) return std::pow(a, b);
  return std::nullopt;
}

/// The nodes between x and a result.
class GeluMatch {
 public:
  GeluMatch(const sdk::ValueInfo& x, const sdk::Node& gate, const NodeSet& taken)
      : gate_(gate), taken_(taken) {
    found_.x = x;
    found_.has_tanh = gate.is("Tanh");
  }

  /// From the gate on, each value that one node reads may be the result of it.
  bool match() {
    sdk::Node last = only_consumer(gate_.output(0), taken_);
    for (int step = 0; last && step < kMostSteps; ++step) {
      found_.nodes.clear();
      values_.clear();
      Numbers numbers;
      if (!compute(last, numbers)) return false;
      if (is_gelu(numbers) && is_apart()) {
        found_.result = last.output(0);
        return true;
      }
      last = only_consumer(last.output(0), taken_);
    }
    return false;
  }
  DecomposedGelu& found() { return found_; }

 private:
  /// What a node makes of x and of numbers, at each place; false where it reads anything else.
  bool compute(const sdk::Node& node, Numbers& made) {
    if (!node.domain().empty() || taken_.count(node.raw()) > 0 || node.output_count() != 1 ||
        node.input_count() != (is_gate(node) ? 1u : 2u) || found_.nodes.size() >= kMostNodes ||
        (is_gate(node) && !(node == gate_)))
      return false;
    std::array<Numbers, 2> inputs{};
    for (std::size_t i = 0; i < node.input_count(); ++i) {
      if (!read(node.input(i), inputs[i])) return false;
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double a = inputs[0][i];
      const std::optional<double> number = node.is("Erf")    ? std::erf(a)
                                           : node.is("Tanh") ? std::tanh(a)
                                                             : combine(node, a, inputs[1][i]);
      if (!number) return false;
      made[i] = *number;
    }
    found_.nodes.push_back(node);
    values_.emplace_back(node.output(0), made);
    return true;
  }

  bool read(const sdk::ValueInfo& input, Numbers& numbers) {
    if (input == found_.x) {
      std::copy(kPlaces.begin(), kPlaces.end(), numbers.begin());
      return true;
    }
    for (const auto& [value, made] : values_) {
      if (!(value == input)) continue;
      numbers = made;
      return true;
    }
    float number = 0;
    if (number_beside(input, found_.x, number)) {
      numbers.fill(static_cast<double>(number));
      return true;
    }
    const sdk::Node maker = input ? input.producer() : sdk::Node();
    return maker && compute(maker, numbers);
  }

  bool is_gelu(const Numbers& numbers) const {
    const double tolerance = tolerance_of(found_.x.type());
    for (std::size_t i = 0; i < kPlaces.size(); ++i) {
      const double want = found_.has_tanh ? gelu_by_tanh(kPlaces[i]) : gelu(kPlaces[i]);
      if (!(std::fabs(numbers[i] - want) <= tolerance * (1 + std::fabs(kPlaces[i])))) return false;
    }
    return true;
  }

  /// Whether nobody else reads what is made on the way.
  bool is_apart() const {
    return std::none_of(values_.begin(), values_.end() - 1, [&](const auto& value) {
      return is_read_by_others(value.first, found_.nodes);
    });
  }

  const sdk::Node gate_;
  const NodeSet& taken_;
  std::vector<std::pair<sdk::ValueInfo, Numbers>> values_;  ///< that nodes make, in their order
  DecomposedGelu found_;
};

/// The Erf or Tanh that is reached first from a value.
sdk::Node gate_behind(const sdk::ValueInfo& value, int steps) {
  for (std::size_t i = 0; i < value.consumer_count(); ++i) {
    const sdk::Node node = value.consumer(i);
    if (is_gate(node)) return node;
  }
  if (steps == 0) return sdk::Node();
  for (std::size_t i = 0; i < value.consumer_count(); ++i) {
    const sdk::Node node = value.consumer(i);
    if (!node.domain().empty() || node.output_count() != 1 || !combine(node, 1, 1)) continue;
    if (const sdk::Node gate = gate_behind(node.output(0), steps - 1)) return gate;
  }
  return sdk::Node();
}

/// The Erf that a node reads, perhaps by way of others.
sdk::Node erf_before(const sdk::Node& node, int steps) {
  if (!node || node.is("Erf")) return node;
  if (steps == 0 || !node.domain().empty() || node.output_count() != 1 || !combine(node, 1, 1))
    return sdk::Node();
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (!node.input(i)) continue;
    if (const sdk::Node erf = erf_before(node.input(i).producer(), steps - 1)) return erf;
  }
  return sdk::Node();
}

/// The one of `x` around its Erf or Tanh.
DecomposedGelu find_gelu(const sdk::ValueInfo& x, const sdk::Node& gate, const NodeSet& taken) {
  if (!is_gate(gate) || !x || x.is_constant()) return DecomposedGelu();
  GeluMatch match(x, gate, taken);
  return match.match() ? std::move(match.found()) : DecomposedGelu();
}

}  // namespace

DecomposedGelu find_gelu_around(const sdk::Node& gate, const NodeSet& taken) {
  if (!is_gate(gate)) return DecomposedGelu();
  // Before the gate, the nearest first: which value is x is found by trying.
  std::vector<sdk::ValueInfo> before{gate.input(0)};
  for (std::size_t next = 0; next < before.size() && next < kMostNodes; ++next) {
    const sdk::Node maker = before[next] ? before[next].producer() : sdk::Node();
    if (!maker || !maker.domain().empty() || taken.count(maker.raw()) > 0 || !combine(maker, 1, 1))
      continue;
    for (std::size_t i = 0; i < maker.input_count(); ++i) {
      const sdk::ValueInfo input = maker.input(i);
      if (!input || input.is_constant()) continue;
      DecomposedGelu found = find_gelu(input, gate, taken);
      if (!found.nodes.empty()) return found;
      before.push_back(input);
    }
  }
  return DecomposedGelu();
}

DecomposedGelu find_gelu_ending(const sdk::Node& last, const NodeSet& taken) {
  constexpr int kStepsBehind = 3;  // a sum and two products
  const sdk::Node erf = last.is("Mul") ? erf_before(last, kStepsBehind) : sdk::Node();
  if (!erf) return DecomposedGelu();
  DecomposedGelu found = find_gelu_around(erf, taken);
  return !found.nodes.empty() && found.result == last.output(0) ? found : DecomposedGelu();
}

DecomposedGelu find_gelu_behind(const sdk::ValueInfo& x, const NodeSet& taken) {
  if (x.is_output() || x.consumer_count() < 2 || x.consumer_count() > 4) return DecomposedGelu();
  DecomposedGelu found = find_gelu(x, gate_behind(x, kMostSteps), taken);
  return is_read_by_others(x, found.nodes) ? DecomposedGelu() : found;
}

}  // namespace backplane::patterns

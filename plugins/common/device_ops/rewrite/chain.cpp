// Trees of element-wise nodes as the text of one expression.
#include "plugins/common/device_ops/rewrite/chain.hpp"

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "plugins/common/kernels/elementwise.hpp"
#include "plugins/common/patterns/gelu.hpp"

namespace backplane::device_ops {
namespace {

using common::ElementwiseRow;

constexpr std::size_t kMostNodes = 32;
constexpr std::size_t kMostOperands = 8;

/// A number that a kernel's text can hold, exactly.
std::string literal(double value) {
  const auto narrow = static_cast<float>(value);
  if (std::isnan(narrow)) return "((float)NAN)";
  if (std::isinf(narrow)) return narrow < 0 ? "(-INFINITY)" : "INFINITY";
  return sdk::message("(", std::hexfloat, narrow, "f)");
}

/// The expression with its names (v0, p1 ...) replaced by what they stand for.
std::string substitute(const std::string& expression, const std::vector<std::string>& operands,
                       const std::vector<std::string>& parameters) {
  std::string text;
  for (std::size_t i = 0; i < expression.size();) {
    const char letter = expression[i];
    const bool begins =
        i == 0 || (std::isalnum(static_cast<unsigned char>(expression[i - 1])) == 0 &&
                   expression[i - 1] != '_' && expression[i - 1] != '.');
    std::size_t end = i + 1;
    while (end < expression.size() &&
           std::isdigit(static_cast<unsigned char>(expression[end])) != 0)
      ++end;
    const bool ends =
        end == expression.size() ||
        (std::isalnum(static_cast<unsigned char>(expression[end])) == 0 && expression[end] != '_');
    if (begins && ends && end > i + 1 && (letter == 'v' || letter == 'p')) {
      const auto index = static_cast<std::size_t>(std::atoi(expression.c_str() + i + 1));
      text += (letter == 'v' ? operands : parameters).at(index);
      i = end;
      continue;
    }
    text += letter;
    ++i;
  }
  return text;
}

/// Whether the node makes one tensor of a known number of axes of tensors that have its type.
bool is_of_floats(const sdk::Node& node) {
  if (!node.domain().empty() || node.output_count() != 1) return false;
  const DataType type = node.output(0).type();
  if (!is_chained(type) || node.output(0).rank() < 0) return false;
  for (std::size_t i = 0; i < node.input_count(); ++i) {
    if (!node.input(i) || node.input(i).type() != type) return false;
  }
  return true;
}

/// A row's expression with the node's parameters, or what they are by default, as literals.
std::string expression_of(const sdk::Node& node, const ElementwiseRow& row) {
  std::vector<std::string> parameters;
  for (const common::ElementwiseParameter& parameter : row.parameters) {
    if (parameter.name == nullptr) break;
    parameters.push_back(literal(node.has(parameter.name)
                                     ? static_cast<double>(node.get_float(parameter.name, 0))
                                     : parameter.otherwise));
  }
  return substitute(row.of_floats, {"v0", "v1"}, parameters);
}

/// The expression of an element-wise node of floats, with its parameters as literals; empty for other nodes.
std::string expression_of(const sdk::Node& node) {
  if (!is_of_floats(node)) return "";
  const ElementwiseRow* row = common::find_elementwise(common::kUnaryRows, node.op_type());
  if (row == nullptr && node.since_version() >= 7)
    row = common::find_elementwise(common::kBinaryRows, node.op_type());
  if (row != nullptr && row->of_floats != nullptr) return expression_of(node, *row);
  if (node.is("Gelu"))
    return node.get_string("approximate", "none") == "tanh" ? "gelu_tanh_of(v0)" : "gelu_of(v0)";
  if (node.is("Clip") && node.since_version() < 11)
    return sdk::message("clip_of(v0, ", literal(node.get_float("min", -INFINITY)), ", ",
                        literal(node.get_float("max", INFINITY)), ")");
  if (node.input_count() != 2) return "";
  float exponent = 0;
  if (node.is("Pow") && scalar_of(node.input(1), exponent) && exponent == 2) return "v0 * v0";
  if (node.is("Pow")) return "pow(v0, v1)";
  if (node.since_version() < 8) return "";
  if (node.is("Sum")) return "v0 + v1";
  if (node.is("Max")) return "greater_of(v0, v1)";
  return node.is("Min") ? "less_of(v0, v1)" : "";
}

bool is_float_constant(const sdk::ValueInfo& value) {
  return value && value.is_constant() && value.type() == DataType::Float;
}

/// A normalisation by constants, which is a product and a sum for each channel.
bool is_scaling(const sdk::Node& node) {
  if (!node.is("BatchNormalization") || !is_of_floats(node) ||
      node.output(0).type() != DataType::Float || node.output(0).rank() < 2 ||
      node.get_int("training_mode", 0) != 0 || node.get_int("spatial", 1) == 0 ||
      node.since_version() < 7)
    return false;
  const std::int64_t channels = node.output(0).dims()[1];
  for (std::size_t i = 1; i < 5; ++i) {
    if (!is_float_constant(node.input(i)) || node.input(i).rank() != 1 ||
        node.input(i).dims()[0] != channels)
      return false;
  }
  return true;
}

/// The factors, or what is added, of a scaling, as a constant of dims [channels, 1 ...].
void add_scaling(const sdk::Node& node, bool is_factor, const std::string& name,
                 sdk::Rewrite& edit) {
  Dims dims(static_cast<std::size_t>(node.output(0).rank()) - 1, 1);
  dims[0] = node.input(1).dims()[0];
  const std::int64_t channels = dims[0];
  const float epsilon = node.get_float("epsilon", 1e-5f);
  const std::vector<std::string> sources{
      std::string(node.input(1).name()), std::string(node.input(2).name()),
      std::string(node.input(3).name()), std::string(node.input(4).name())};
  edit.lazy_constant(name, DataType::Float, dims, sources,
                     sdk::message("scaling ", std::hexfloat, epsilon,
                                  is_factor ? " factor " : " offset ", dims.size()),
                     [=](const sdk::PackContext& ctx) {
                       const auto read = [&](std::size_t source) {
                         return ctx.source(source).data<float>();
                       };
                       auto* const to = ctx.target().mutable_data<float>();
                       for (std::int64_t c = 0; c < channels; ++c) {
                         const float factor = read(0)[c] / std::sqrt(read(3)[c] + epsilon);
                         to[c] = is_factor ? factor : read(1)[c] - read(2)[c] * factor;
                       }
                     });
}

/// Operators of an instruction or a few, beside which reading an element counts.
constexpr std::string_view kCheap[] = {"Add",  "Sub", "Mul", "Neg", "Abs",   "Relu",
                                       "Clip", "Sum", "Max", "Min", "PRelu", "LeakyRelu"};

bool is_cheap_node(const sdk::Node& node) {
  float divisor = 0;
  if (node.is("Div") && scalar_of(node.input(1), divisor)) return true;
  return is_scaling(node) || expression_of(node) == "v0 * v0" ||
         std::find(std::begin(kCheap), std::end(kCheap), node.op_type()) != std::end(kCheap);
}

std::string factor_name(const sdk::Node& node) {
  return sdk::message(node.output(0).name(), "/", private_domain(), "_factor");
}

std::string offset_name(const sdk::Node& node) {
  return sdk::message(node.output(0).name(), "/", private_domain(), "_offset");
}

}  // namespace

bool is_elementwise(const sdk::Node& node) {
  return is_scaling(node) || !expression_of(node).empty();
}

Chain::Chain(const sdk::Node& root, const NodeSet& taken) : root_(root), taken_(taken) {
  result_ = visit(root_);
}

bool Chain::is_more_than_root() const { return nodes_.size() > 1 || is_scaling(root_); }

bool Chain::is_cheap() const { return std::all_of(nodes_.begin(), nodes_.end(), is_cheap_node); }

void Chain::add_to(sdk::NodeDraft& draft, sdk::Rewrite& edit) const {
  for (const sdk::Node& node : nodes_) {
    if (!is_scaling(node)) continue;
    add_scaling(node, true, factor_name(node), edit);
    add_scaling(node, false, offset_name(node), edit);
  }
  for (const std::string& operand : operands_) draft.input(operand);
  draft.attribute("statements", statements_).attribute("result", result_);
  const DataType type = root_.output(0).type();
  if (type != DataType::Float) draft.attribute("type", static_cast<std::int64_t>(type));
  // Without them, they are what the operands broadcast to: then one that is no literal has as many axes.
  const DimsView dims = root_.output(0).dims();
  if (root_.output(0).is_static()) draft.attribute("dims", Dims(dims.begin(), dims.end()));
  for (const sdk::Node& node : nodes_) draft.replaces(node);
}

/// The name of the node's value in the text.
std::string Chain::visit(const sdk::Node& node) {
  ++visited_;
  std::vector<std::string> operands;
  std::string expression = expression_of(node);
  const patterns::DecomposedGelu gelu = patterns::find_gelu_ending(node, taken_);
  if (!gelu.nodes.empty()) {
    operands = {operand(gelu.x)};
    expression = "gelu_of(v0)";
    nodes_.insert(nodes_.end(), gelu.nodes.begin(), gelu.nodes.end() - 1);
  } else if (is_scaling(node)) {
    operands = {operand(node.input(0)), new_operand(factor_name(node)),
                new_operand(offset_name(node))};
    expression = "v0 * v1 + v2";
  } else {
    for (std::size_t i = 0; i < node.input_count(); ++i) operands.push_back(operand(node.input(i)));
  }
  std::string name = sdk::message("t", nodes_.size());
  statements_ += sdk::message("  REAL ", name, " = ", substitute(expression, operands, {}), ";\n");
  nodes_.push_back(node);
  return name;
}

/// Whether the value's maker becomes part of the expression.
bool Chain::is_inner(const sdk::ValueInfo& value) const {
  const sdk::Node maker = value.producer();
  if (!maker || taken_.count(maker.raw()) > 0 || visited_ >= kMostNodes ||
      operands_.size() + maker.input_count() >= kMostOperands || !only_consumer(value, taken_) ||
      !is_elementwise(maker))
    return false;
  const DimsMatch match = match_dims(value, root_.output(0));
  return match == DimsMatch::kSame || (match == DimsMatch::kPerhaps && is_cheap_node(maker));
}

std::string Chain::operand(const sdk::ValueInfo& value) {
  float number = 0;
  if (scalar_of(value, number)) return literal(static_cast<double>(number));
  if (is_inner(value)) return visit(value.producer());
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i] == value.name()) return sdk::message("v", i);
  }
  if (match_dims(value, root_.output(0)) != DimsMatch::kOther) ++whole_operands_;
  return new_operand(std::string(value.name()));
}

std::string Chain::new_operand(std::string name) {
  operands_.push_back(std::move(name));
  return sdk::message("v", operands_.size() - 1);
}

}  // namespace backplane::device_ops

#include "plugins/cpu/dense/recurrent_node.hpp"

#include <cctype>
#include <string>
#include <vector>

namespace backplane::cpu {
namespace {

struct NamedFunction {
  const char* name;
  GateFunction function;  // with the defaults of the operator of that name
  bool takes_alpha, takes_beta;
};
constexpr NamedFunction kFunctions[] = {
    {"affine", {GateFunction::kAffine, 1, 0}, true, true},
    {"relu", {GateFunction::kRelu, 0, 0}, false, false},
    {"leakyrelu", {GateFunction::kLeakyRelu, 0.01f, 0}, true, false},
    {"thresholdedrelu", {GateFunction::kThresholdedRelu, 1, 0}, true, false},
    {"tanh", {GateFunction::kTanh, 0, 0}, false, false},
    {"scaledtanh", {GateFunction::kScaledTanh, 1, 1}, true, true},
    {"sigmoid", {GateFunction::kSigmoid, 0, 0}, false, false},
    {"hardsigmoid", {GateFunction::kHardSigmoid, 0.2f, 0.5f}, true, true},
    {"elu", {GateFunction::kElu, 1, 0}, true, false},
    {"softsign", {GateFunction::kSoftsign, 0, 0}, false, false},
    {"softplus", {GateFunction::kSoftplus, 0, 0}, false, false},
};

const NamedFunction& find_function(const std::string& given) {
  std::string name;
  for (const char c : given) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const NamedFunction& one : kFunctions) {
    if (name == one.name) return one;
  }
  sdk::unsupported("attribute 'activations' names '", given, "', which is not handled");
}

std::vector<GateFunction> read_functions(const sdk::Node& node, const RecurrentShape& shape) {
  std::vector<std::string> names = node.get_strings("activations");
  const auto count = static_cast<std::size_t>(shape.directions * shape.function_count());
  if (names.empty()) {
    for (std::int64_t d = 0; d < shape.directions; ++d) {
      if (shape.cell != Cell::kRnn) names.emplace_back("Sigmoid");
      names.emplace_back("Tanh");
      if (shape.cell == Cell::kLstm) names.emplace_back("Tanh");
    }
  }
  if (names.size() != count) {
    sdk::invalid("attribute 'activations' has ", names.size(), " names; ", count, " are needed");
  }
  // The values are taken in order by those functions that have such a parameter.
  const std::vector<float> alphas = node.get_floats("activation_alpha");
  const std::vector<float> betas = node.get_floats("activation_beta");
  std::size_t alpha = 0;
  std::size_t beta = 0;
  std::vector<GateFunction> functions;
  for (const std::string& name : names) {
    const NamedFunction& found = find_function(name);
    functions.push_back(found.function);
    if (found.takes_alpha && alpha < alphas.size()) functions.back().alpha = alphas[alpha++];
    if (found.takes_beta && beta < betas.size()) functions.back().beta = betas[beta++];
  }
  return functions;
}

}  // namespace

RecurrentShape recurrent_shape(const sdk::Node& node, Cell cell) {
  RecurrentShape shape;
  shape.cell = cell;
  shape.hidden = node.get_int("hidden_size", 0);
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    sdk::invalid("attribute 'direction' is '", direction,
                 "'; it may be forward, reverse or bidirectional");
  }
  shape.directions = direction == "bidirectional" ? 2 : 1;
  shape.first_is_reverse = direction == "reverse";
  shape.batch_first = node.get_int("layout", 0) != 0;
  shape.linear_before_reset = node.get_int("linear_before_reset", 0) != 0;
  shape.input_forget = node.get_int("input_forget", 0) != 0;
  shape.clip = node.get_float("clip", 0);
  shape.functions = read_functions(node, shape);
  return shape;
}

void check_recurrent_dims(const sdk::PrepareContext& ctx, std::uint32_t index, const char* name,
                          const sdk::Dims& wanted) {
  const sdk::Tensor tensor = ctx.input(index);
  if (!tensor.present() || sdk::to_string(tensor.dims()) == sdk::to_string(wanted)) return;
  sdk::invalid(name, " has dims ", sdk::to_string(tensor.dims()), ", expected ",
               sdk::to_string(wanted));
}

void set_recurrent_dims(sdk::PrepareContext& ctx, std::int64_t hidden, RecurrentShape& shape) {
  using In = RecurrentInput;
  const sdk::Tensor x = ctx.input(In::kX);
  if (x.rank() != 3) sdk::invalid("X has rank ", x.rank(), ", expected 3");
  shape.steps = x.dim(shape.batch_first ? 1 : 0);
  shape.batch = x.dim(shape.batch_first ? 0 : 1);
  shape.input = x.dim(2);
  if (shape.hidden != 0 && shape.hidden != hidden) {
    sdk::invalid("attribute 'hidden_size' is ", shape.hidden, ", but R has dims ",
                 sdk::to_string(ctx.input(In::kR).dims()));
  }
  shape.hidden = hidden;
  sdk::Dims states{shape.directions, shape.batch, shape.hidden};
  sdk::Dims y{shape.steps, shape.directions, shape.batch, shape.hidden};
  if (shape.batch_first) {
    states = {shape.batch, shape.directions, shape.hidden};
    y = {shape.batch, shape.steps, shape.directions, shape.hidden};
  }
  check_recurrent_dims(ctx, In::kBiases, "B", {shape.directions, 2 * shape.gates() * hidden});
  check_recurrent_dims(ctx, In::kLengths, "sequence_lens", {shape.batch});
  check_recurrent_dims(ctx, In::kH, "initial_h", states);
  check_recurrent_dims(ctx, In::kC, "initial_c", states);
  check_recurrent_dims(ctx, In::kP, "P", {shape.directions, 3 * hidden});
  const sdk::DataType type = x.type();
  if (ctx.output_wanted(0)) ctx.set_output(0, type, y);
  if (ctx.output_wanted(1)) ctx.set_output(1, type, states);
  if (ctx.output_wanted(2)) ctx.set_output(2, type, states);
}

void check_lengths(const sdk::Tensor& lengths, std::int64_t steps) {
  const auto* length = lengths.data<std::int32_t>();
  for (std::int64_t b = 0; b < lengths.size(); ++b) {
    if (length[b] < 0 || length[b] > steps) {
      sdk::failed("sequence_lens has ", length[b], " for batch entry ", b, ", which is not in [0, ",
                  steps, "]");
    }
  }
}

}  // namespace backplane::cpu

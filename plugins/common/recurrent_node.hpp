// What a recurrent node says of its layer: https://onnx.ai/onnx/operators/onnx__RNN.html, onnx__GRU.html, onnx__LSTM.html
#pragma once

#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::common {

enum class Cell { kRnn, kGru, kLstm };

/// A function that gates go through.
struct GateFunction {
  enum Kind {
    kAffine,  // alpha * x + beta
    kRelu,
    kLeakyRelu,        // x < 0 ? alpha * x : x
    kThresholdedRelu,  // x > alpha ? x : 0
    kTanh,
    kScaledTanh,  // alpha * tanh(beta * x)
    kSigmoid,
    kHardSigmoid,  // clamp(alpha * x + beta, 0, 1)
    kElu,          // x < 0 ? alpha * (exp(x) - 1) : x
    kSoftsign,
    kSoftplus,
  };
  Kind kind = kTanh;
  float alpha = 0;
  float beta = 0;
};

/// Inputs of RNN, GRU and LSTM.
struct RecurrentInput {
  static constexpr std::uint32_t kX = 0, kW = 1, kR = 2, kBiases = 3, kLengths = 4, kH = 5, kC = 6,
                                 kP = 7;
};

/// What is the same for all directions of a layer.
struct RecurrentLayer {
  Cell cell = Cell::kRnn;
  std::int64_t steps = 0;
  std::int64_t batch = 0;
  std::int64_t input = 0;
  std::int64_t hidden = 0;
  std::int64_t directions = 1;
  bool first_is_reverse = false;
  bool batch_first = false;  // X is [batch, steps, input], states [batch, directions, hidden]
  bool linear_before_reset = false;
  bool input_forget = false;
  float clip = 0;                       // 0: none
  std::vector<GateFunction> functions;  // function_count() for each direction

  std::int64_t gates() const { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
  std::int64_t function_count() const {
    return cell == Cell::kLstm ? 3 : cell == Cell::kGru ? 2 : 1;
  }
  /// Whether the last gate's product is of what the reset gate leaves of the state.
  bool two_products() const { return cell == Cell::kGru && !linear_before_reset; }
  /// Multiplications and additions of the products.
  std::uint64_t operations() const {
    const std::int64_t lines = directions * gates() * hidden;
    return 2 * static_cast<std::uint64_t>(steps * batch * lines * (input + hidden));
  }
};

struct NamedGateFunction {
  const char* name;
  GateFunction function;  // with the defaults of the operator of that name
  bool takes_alpha, takes_beta;
};

inline const NamedGateFunction& find_gate_function(const std::string& given) {
  static constexpr std::array<NamedGateFunction, 11> kFunctions{{
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
  }};
  std::string name;
  for (const char c : given) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const NamedGateFunction& one : kFunctions) {
    if (name == one.name) return one;
  }
  sdk::unsupported("attribute 'activations' names '", given, "', which is not handled");
}

inline std::vector<GateFunction> read_gate_functions(const sdk::Node& node,
                                                     const RecurrentLayer& layer) {
  std::vector<std::string> names = node.get_strings("activations");
  const auto count = static_cast<std::size_t>(layer.directions * layer.function_count());
  if (names.empty()) {
    for (std::int64_t d = 0; d < layer.directions; ++d) {
      if (layer.cell != Cell::kRnn) names.emplace_back("Sigmoid");
      names.emplace_back("Tanh");
      if (layer.cell == Cell::kLstm) names.emplace_back("Tanh");
    }
  }
  if (names.size() != count)
    sdk::invalid("attribute 'activations' has ", names.size(), " names; ", count, " are needed");
  // The values are taken in order by those functions that have such a parameter.
  const std::vector<float> alphas = node.get_floats("activation_alpha");
  const std::vector<float> betas = node.get_floats("activation_beta");
  std::size_t alpha = 0;
  std::size_t beta = 0;
  std::vector<GateFunction> functions;
  for (const std::string& name : names) {
    const NamedGateFunction& found = find_gate_function(name);
    functions.push_back(found.function);
    if (found.takes_alpha && alpha < alphas.size()) functions.back().alpha = alphas[alpha++];
    if (found.takes_beta && beta < betas.size()) functions.back().beta = betas[beta++];
  }
  return functions;
}

/// The attributes; `hidden` is 0 where the node does not say it.
inline RecurrentLayer recurrent_layer(const sdk::Node& node, Cell cell) {
  RecurrentLayer layer;
  layer.cell = cell;
  layer.hidden = node.get_int("hidden_size", 0);
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    sdk::invalid("attribute 'direction' is '", direction,
                 "'; it may be forward, reverse or bidirectional");
  layer.directions = direction == "bidirectional" ? 2 : 1;
  layer.first_is_reverse = direction == "reverse";
  layer.batch_first = node.get_int("layout", 0) != 0;
  layer.linear_before_reset = node.get_int("linear_before_reset", 0) != 0;
  layer.input_forget = node.get_int("input_forget", 0) != 0;
  layer.clip = node.get_float("clip", 0);
  layer.functions = read_gate_functions(node, layer);
  return layer;
}

/// Of an input that may be absent.
inline void check_recurrent_dims(const sdk::PrepareContext& ctx, std::uint32_t index,
                                 const char* name, const sdk::Dims& wanted) {
  const sdk::Tensor tensor = ctx.input(index);
  if (!tensor.present() || sdk::to_string(tensor.dims()) == sdk::to_string(wanted)) return;
  sdk::invalid(name, " has dims ", sdk::to_string(tensor.dims()), ", expected ",
               sdk::to_string(wanted));
}

/// Takes the other sizes from X, `hidden` from R; checks the dims of what has no weights, and sets those of the outputs.
inline void set_recurrent_dims(sdk::PrepareContext& ctx, std::int64_t hidden,
                               RecurrentLayer& layer) {
  using In = RecurrentInput;
  const sdk::Tensor x = ctx.input(In::kX);
  if (x.rank() != 3) sdk::invalid("X has rank ", x.rank(), ", expected 3");
  layer.steps = x.dim(layer.batch_first ? 1 : 0);
  layer.batch = x.dim(layer.batch_first ? 0 : 1);
  layer.input = x.dim(2);
  if (layer.hidden != 0 && layer.hidden != hidden)
    sdk::invalid("attribute 'hidden_size' is ", layer.hidden, ", but R has dims ",
                 sdk::to_string(ctx.input(In::kR).dims()));
  layer.hidden = hidden;
  sdk::Dims states{layer.directions, layer.batch, layer.hidden};
  sdk::Dims y{layer.steps, layer.directions, layer.batch, layer.hidden};
  if (layer.batch_first) {
    states = {layer.batch, layer.directions, layer.hidden};
    y = {layer.batch, layer.steps, layer.directions, layer.hidden};
  }
  check_recurrent_dims(ctx, In::kBiases, "B", {layer.directions, 2 * layer.gates() * hidden});
  check_recurrent_dims(ctx, In::kLengths, "sequence_lens", {layer.batch});
  check_recurrent_dims(ctx, In::kH, "initial_h", states);
  check_recurrent_dims(ctx, In::kC, "initial_c", states);
  check_recurrent_dims(ctx, In::kP, "P", {layer.directions, 3 * hidden});
  const sdk::DataType type = x.type();
  if (ctx.output_wanted(0)) ctx.set_output(0, type, y);
  if (ctx.output_wanted(1)) ctx.set_output(1, type, states);
  if (ctx.output_wanted(2)) ctx.set_output(2, type, states);
}

}  // namespace backplane::common

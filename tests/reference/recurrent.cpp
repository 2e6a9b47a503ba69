// RNN, GRU, LSTM: one sequence, one direction, one step at a time, from the specification's formulas.
// com.microsoft::DynamicQuantizeLSTM: the LSTM of the weights that its bytes stand for, of inputs that are not rounded.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

using Vector = std::vector<double>;

/// A function of a gate, by ONNX's name and with the attributes given for it.
struct Curve {
  std::string name;
  double alpha = 0;
  double beta = 0;

  double operator()(double x) const {
    if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
    if (name == "Tanh") return std::tanh(x);
    if (name == "Relu") return std::fmax(x, 0);
    if (name == "Affine") return alpha * x + beta;
    if (name == "LeakyRelu") return x < 0 ? alpha * x : x;
    if (name == "ThresholdedRelu") return x > alpha ? x : 0;
    if (name == "ScaledTanh") return alpha * std::tanh(beta * x);
    if (name == "HardSigmoid") return std::fmin(1, std::fmax(0, alpha * x + beta));
    if (name == "Elu") return x < 0 ? alpha * (std::exp(x) - 1) : x;
    if (name == "Softsign") return x / (1 + std::abs(x));
    if (name == "Softplus") return std::log(1 + std::exp(x));
    throw std::logic_error("the reference knows no gate function " + name);
  }
};

/// How many of alpha and beta a function has, and their values where the node gives none.
struct Parameters {
  int count;
  double alpha, beta;
};
Parameters parameters_of(const std::string& name) {
  if (name == "Affine") return {2, 1, 0};
  if (name == "LeakyRelu") return {1, static_cast<double>(0.01f), 0};
  if (name == "ThresholdedRelu") return {1, 1, 0};
  if (name == "ScaledTanh") return {2, 1, 1};
  if (name == "HardSigmoid") return {2, static_cast<double>(0.2f), 0.5};
  if (name == "Elu") return {1, 1, 0};
  return {0, 0, 0};
}

std::vector<Curve> curves_of(const Call& call, std::int64_t directions, const Dims& defaults) {
  const char* const kNames[] = {"Sigmoid", "Tanh"};
  std::vector<std::string> names;
  if (const AttributeValue* given = call.find("activations")) {
    names = std::get<std::vector<std::string>>(*given);
  } else {
    for (std::int64_t d = 0; d < directions; ++d)
      for (const std::int64_t which : defaults) names.emplace_back(kNames[which]);
  }
  const auto floats_of = [&](const char* name) {
    const AttributeValue* given = call.find(name);
    return given == nullptr ? std::vector<float>{} : std::get<std::vector<float>>(*given);
  };
  const std::vector<float> alphas = floats_of("activation_alpha");
  const std::vector<float> betas = floats_of("activation_beta");
  std::size_t alpha = 0;
  std::size_t beta = 0;
  std::vector<Curve> curves;
  for (const std::string& name : names) {
    const Parameters p = parameters_of(name);
    Curve curve{name, p.alpha, p.beta};
    if (p.count > 0 && alpha < alphas.size()) curve.alpha = static_cast<double>(alphas[alpha++]);
    if (p.count > 1 && beta < betas.size()) curve.beta = static_cast<double>(betas[beta++]);
    curves.push_back(curve);
  }
  return curves;
}

/// One direction of a layer.
struct Layer {
  const Call& call;
  std::int64_t gates, hidden, inputs, direction;
  std::vector<Curve> f;  // of this direction
  double clip;

  /// A gate before its function: x W^T + h R^T + Wb + Rb; `h_factor` multiplies h R^T + Rb afterwards.
  double gate(std::int64_t g, std::int64_t j, const Vector& x, const Vector& h,
              double h_factor = 1) const {
    const std::int64_t row = (direction * gates + g) * hidden + j;
    double from_x = 0;
    double from_h = 0;
    for (std::int64_t k = 0; k < inputs; ++k)
      from_x += x[k] * call.input(1).values[row * inputs + k];
    for (std::int64_t k = 0; k < hidden; ++k)
      from_h += h[k] * call.input(2).values[row * hidden + k];
    if (const Array* b = call.optional(3)) {
      const std::int64_t start = direction * 2 * gates * hidden;
      from_x += b->values[start + g * hidden + j];
      from_h += b->values[start + (gates + g) * hidden + j];
    }
    return from_x + h_factor * from_h;
  }
  double clipped(double v) const { return clip > 0 ? std::fmin(clip, std::fmax(-clip, v)) : v; }
  double peephole(std::int64_t which, std::int64_t j) const {
    const Array* p = call.optional(7);
    return p == nullptr ? 0 : p->values[(direction * 3 + which) * hidden + j];
  }

  void step(const Vector& x, Vector& h, Vector& c) const {
    if (call.node.op_type == "LSTM") return lstm(x, h, c);
    if (call.node.op_type == "GRU") return gru(x, h);
    Vector next(h.size());
    for (std::int64_t j = 0; j < hidden; ++j) next[j] = f[0](clipped(gate(0, j, x, h)));
    h = next;
  }

  void gru(const Vector& x, Vector& h) const {
    Vector reset(h.size());
    Vector scaled(h.size());
    for (std::int64_t j = 0; j < hidden; ++j) {
      reset[j] = f[0](clipped(gate(1, j, x, h)));
      scaled[j] = reset[j] * h[j];
    }
    const bool linear_first = call.integer("linear_before_reset", 0) != 0;
    Vector next(h.size());
    for (std::int64_t j = 0; j < hidden; ++j) {
      const double update = f[0](clipped(gate(0, j, x, h)));
      const double before = linear_first ? gate(2, j, x, h, reset[j]) : gate(2, j, x, scaled);
      next[j] = (1 - update) * f[1](clipped(before)) + update * h[j];
    }
    h = next;
  }

  void lstm(const Vector& x, Vector& h, Vector& c) const {
    Vector next_h(h.size());
    Vector next_c(c.size());
    for (std::int64_t j = 0; j < hidden; ++j) {
      const double in = f[0](clipped(gate(0, j, x, h) + peephole(0, j) * c[j]));
      double forget = f[0](clipped(gate(2, j, x, h) + peephole(2, j) * c[j]));
      if (call.integer("input_forget", 0) != 0) forget = 1 - in;
      next_c[j] = forget * c[j] + in * f[1](clipped(gate(3, j, x, h)));
      const double out = f[0](clipped(gate(1, j, x, h) + peephole(1, j) * next_c[j]));
      next_h[j] = out * f[2](next_c[j]);
    }
    h = next_h;
    c = next_c;
  }
};

/// The dims of a call in both layouts, and where in X, Y and the states the parts of a sequence stand.
struct Places {
  explicit Places(const Call& call)
      : batch_first(call.integer("layout", 0) != 0),
        steps(call.input(0).dims[batch_first ? 1 : 0]),
        batch(call.input(0).dims[batch_first ? 0 : 1]),
        inputs(call.input(0).dims[2]),
        hidden(call.input(2).dims[2]),
        directions(call.input(1).dims[0]) {}

  Dims states() const {
    return batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  }
  Dims outputs() const {
    return batch_first ? Dims{batch, steps, directions, hidden}
                       : Dims{steps, directions, batch, hidden};
  }
  std::int64_t state(std::int64_t d, std::int64_t b) const {
    return (batch_first ? b * directions + d : d * batch + b) * hidden;
  }
  std::int64_t input(std::int64_t b, std::int64_t t) const {
    return (batch_first ? b * steps + t : t * batch + b) * inputs;
  }
  std::int64_t output(std::int64_t d, std::int64_t b, std::int64_t t) const {
    return (batch_first ? (b * steps + t) * directions + d : (t * directions + d) * batch + b) *
           hidden;
  }

  bool batch_first;
  std::int64_t steps, batch, inputs, hidden, directions;
};

/// Y, Y_h and Y_c.
struct Results {
  Array y, y_h, y_c;
};

Vector initial_state(const Call& call, std::size_t input, const Places& places, std::int64_t at) {
  Vector state(static_cast<std::size_t>(places.hidden), 0);
  if (const Array* given = call.optional(input))
    std::copy_n(given->values.begin() + at, places.hidden, state.begin());
  return state;
}

/// One sequence of the batch in one direction.
void run_sequence(const Layer& layer, const Places& places, std::int64_t b, Results& results) {
  const Call& call = layer.call;
  const std::int64_t d = layer.direction;
  const std::int64_t at = places.state(d, b);
  Vector h = initial_state(call, 5, places, at);
  Vector c = initial_state(call, 6, places, at);
  const Array* lengths = call.optional(4);
  const auto length =
      lengths == nullptr ? places.steps : static_cast<std::int64_t>(lengths->values[b]);
  const bool reverse = d == 1 || call.text("direction", "forward") == "reverse";
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t t = reverse ? length - 1 - i : i;
    const auto from = call.input(0).values.begin() + places.input(b, t);
    layer.step(Vector(from, from + places.inputs), h, c);
    std::copy(h.begin(), h.end(), results.y.values.begin() + places.output(d, b, t));
  }
  std::copy(h.begin(), h.end(), results.y_h.values.begin() + at);
  std::copy(c.begin(), c.end(), results.y_c.values.begin() + at);
}

Arrays recurrent(const Call& call) {
  const std::string& op = call.node.op_type;
  const Places places(call);
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const Dims defaults = op == "LSTM" ? Dims{0, 1, 1} : op == "GRU" ? Dims{0, 1} : Dims{1};
  const std::vector<Curve> curves = curves_of(call, places.directions, defaults);
  const auto type = call.input(0).type;
  Results results{filled(type, places.outputs()), filled(type, places.states()),
                  filled(type, places.states())};
  for (std::int64_t d = 0; d < places.directions; ++d) {
    const auto functions = static_cast<std::int64_t>(defaults.size());
    const auto first = curves.begin() + d * functions;
    const Layer layer{call,
                      gates,
                      places.hidden,
                      places.inputs,
                      d,
                      {first, first + functions},
                      call.number("clip", 0)};
    for (std::int64_t b = 0; b < places.batch; ++b) run_sequence(layer, places, b, results);
  }
  Arrays arrays = {results.y, results.y_h, results.y_c};
  arrays.resize(std::min<std::size_t>(call.output_count, op == "LSTM" ? 3 : 2));
  return arrays;
}

/// [directions, columns, depth] from bytes [directions, depth, columns] with scales and zero points for each direction or column.
Array lines_of_bytes(const Array& bytes, const Array& scales, const Array& zeros) {
  const std::int64_t depth = bytes.dims[1], columns = bytes.dims[2];
  Array lines = filled(ElementType::Float, {bytes.dims[0], columns, depth});
  for_each_index(bytes.dims, [&](const Dims& at) {
    const auto number = [&](const Array& of) {
      return of.values[of.rank() == 1 ? at[0] : at[0] * columns + at[2]];
    };
    lines.values[offset_of(lines.dims, {at[0], at[2], at[1]})] =
        (bytes.values[offset_of(bytes.dims, at)] - number(zeros)) * number(scales);
  });
  return lines;
}

Arrays dynamic_quantize_lstm(const Call& call) {
  const Array w = lines_of_bytes(call.input(1), call.input(8), call.input(9));
  const Array r = lines_of_bytes(call.input(2), call.input(10), call.input(11));
  const Node node{.op_type = "LSTM", .attributes = call.node.attributes};
  Call of_floats{node, {call.inputs.begin(), call.inputs.begin() + 8}, call.output_count};
  of_floats.inputs[1] = &w;
  of_floats.inputs[2] = &r;
  return recurrent(of_floats);
}

const Registration kRecurrent({"RNN", "GRU", "LSTM"}, recurrent);
const Registration kDynamicQuantizeLstm({"DynamicQuantizeLSTM"}, dynamic_quantize_lstm);

}  // namespace
}  // namespace backplane::reference

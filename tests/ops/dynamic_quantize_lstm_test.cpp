// com.microsoft::DynamicQuantizeLSTM: weights of bytes, inputs and states that are rounded to bytes.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/cases.hpp"
#include "tests/ops/explained.hpp"
#include "tests/ops/runner.hpp"
#include "tests/reference/reference.hpp"

namespace backplane::ops_test {
namespace {

using reference::Arrays;
using reference::Call;

struct Sizes {
  std::int64_t directions, steps, batch, inputs, hidden;
};

Sizes any_layer(Random& random) {
  return {random.one_in(3) ? 2 : 1, random.pick<std::int64_t>({1, 2, 3, 5}),
          random.pick<std::int64_t>({1, 1, 2, 3, 7}),
          random.pick<std::int64_t>({1, 3, 4, 8, 17, 40}),
          random.pick<std::int64_t>({1, 2, 5, 16, 33, 64})};
}

/// Scales that keep sums near 1, and zero points: none, the middle, or any.
void add_parameters(Random& random, OpCase& row, std::size_t weights, std::int64_t depth) {
  const Dims& dims = row.inputs[weights].tensor.dims;
  const ElementType type = row.inputs[weights].tensor.type;
  const Dims each = random.one_in(2) ? Dims{dims[0]} : Dims{dims[0], dims[2]};
  const double size = 1 / (96 * std::sqrt(static_cast<double>(std::max<std::int64_t>(1, depth))));
  row.inputs.push_back(constant(random.tensor(ElementType::Float, each, size / 4, size)));
  const double middle = type == ElementType::Int8 ? 0 : 128;
  const double reach = random.one_in(2) ? 0 : 40;
  const Dims zeros = random.one_in(3) ? Dims{dims[0]} : each;
  row.inputs.push_back(constant(random.tensor(type, zeros, middle - reach, middle + reach)));
}

void add_attributes(Random& random, OpCase& row, const Sizes& s) {
  auto& attributes = row.node.attributes;
  attributes = {{"hidden_size", s.hidden}};
  if (s.directions == 2) {
    attributes.emplace_back("direction", "bidirectional");
  } else if (random.one_in(3)) {
    attributes.emplace_back("direction", "reverse");
  }
  if (random.one_in(4)) attributes.emplace_back("input_forget", 1);
  const bool has_clip = random.one_in(4);
  if (has_clip) attributes.emplace_back("clip", 0.75f);
  if (!random.one_in(4)) return;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < 3 * s.directions; ++i)
    names.push_back(random.pick({"Tanh", "Sigmoid", "HardSigmoid", "Softsign", "ScaledTanh"}));
  attributes.emplace_back("activations", names);
}

OpCase layer(Random& random, const Sizes& s) {
  OpCase row{.node = {.op_type = "DynamicQuantizeLSTM", .domain = "com.microsoft", .opset = 1}};
  add_attributes(random, row, s);
  const auto floats_of = [&](const Dims& dims) {
    return random.tensor(ElementType::Float, dims, -1, random.one_in(5) ? -0.5 : 1);
  };
  const ElementType type = random.pick({ElementType::Int8, ElementType::UInt8});
  const auto bytes_of = [&](const Dims& dims) {
    return constant(random.tensor(type, dims, reference::lowest(type), reference::highest(type)));
  };
  const std::int64_t columns = 4 * s.hidden;
  const Dims states{s.directions, s.batch, s.hidden};
  row.inputs = {floats_of({s.steps, s.batch, s.inputs}),
                bytes_of({s.directions, s.inputs, columns}),
                bytes_of({s.directions, s.hidden, columns})};
  const auto maybe = [&](const Input& input) {
    row.inputs.push_back(random.one_in(2) ? absent() : input);
  };
  maybe(constant(floats_of({s.directions, 2 * columns})));
  maybe(random.indices({s.batch}, 0, s.steps, ElementType::Int32));
  maybe(floats_of(states));
  maybe(floats_of(states));
  maybe(constant(floats_of({s.directions, 3 * s.hidden})));
  add_parameters(random, row, 1, s.inputs);
  add_parameters(random, row, 2, s.hidden);
  row.output_count = 3;
  // tests/reference rounds nothing to bytes, and neither does the body.
  row.tolerance = {0.02 / 0x1p-23, 0.06 / 0x1p-23};
  return row;
}

OpCase any_form(Random& random) { return layer(random, any_layer(random)); }
const Sweep kAny("DynamicQuantizeLSTM", "AnyForm", 60, any_form);

OpCase nothing_of_one(Random& random) {
  Sizes s = any_layer(random);
  switch (random.integer(0, 3)) {
    case 0:
      s.steps = 0;
      break;
    case 1:
      s.batch = 0;
      break;
    case 2:
      s.inputs = 0;
      break;
    default:
      s.hidden = 0;
      break;
  }
  return layer(random, s);
}
const Sweep kNothing("DynamicQuantizeLSTM", "NothingOfOne", 16, nothing_of_one);

/// The numbers that floats become by the range of those that count: DynamicQuantizeLinear's arithmetic, of floats.
class Rounding {
 public:
  void count(float x) {
    least_ = std::min(least_, x);
    greatest_ = std::max(greatest_, x);
  }
  double operator()(double x) const {
    const float scale = least_ == greatest_ ? 1.0f : (greatest_ - least_) / 255.0f;
    const float zero = std::clamp(std::nearbyint(-least_ / scale), 0.0f, 255.0f);
    const float byte =
        std::clamp(std::nearbyint(static_cast<float>(x) / scale) + zero, 0.0f, 255.0f);
    return static_cast<double>(byte - zero) * static_cast<double>(scale);
  }

 private:
  float least_ = 0;
  float greatest_ = 0;
};

/// One direction of a layer, judged step by step: each begins with the state that the one before gave, so that no difference
/// moves a number over the edge between two bytes.
class Direction {
 public:
  Direction(const OpCase& row, std::int64_t direction) : direction_(direction) {
    for (const Input& input : row.inputs)
      inputs_.push_back(input.is_absent ? Array{} : to_array(input.tensor));
    steps_ = inputs_[0].dims[0];
    batch_ = inputs_[0].dims[1];
    hidden_ = inputs_[2].dims[1];
    node_ = {.op_type = "LSTM"};
    for (const reference::Attribute& given : row.node.attributes) {
      if (given.name == "direction") {
        is_reverse_ = std::get<std::string>(given.value) == "reverse";
      } else if (given.name == "activations") {
        const auto names = std::get<std::vector<std::string>>(given.value);
        const auto first = names.begin() + 3 * direction;
        node_.attributes.emplace_back("activations", std::vector<std::string>(first, first + 3));
      } else {
        node_.attributes.push_back(given);
      }
    }
    is_reverse_ = is_reverse_ || direction == 1;
    w_ = real_weights(1, 8);
    r_ = real_weights(2, 10);
    b_ = part(3, {1, 8 * hidden_});
    p_ = part(7, {1, 3 * hidden_});
    h_ = part(5, {1, batch_, hidden_});
    c_ = part(6, {1, batch_, hidden_});
    if (h_.dims.empty()) h_ = filled(ElementType::Float, {1, batch_, hidden_});
    if (c_.dims.empty()) c_ = filled(ElementType::Float, {1, batch_, hidden_});
  }

  void expect(const std::vector<Tensor>& results) {
    const Array y = to_array(results[0]);
    Rounding of_x;
    for (std::int64_t t = 0; t < longest(); ++t) {
      for (std::int64_t i = 0; i < batch_ * inputs_[0].dims[2]; ++i)
        of_x.count(static_cast<float>(inputs_[0].values[t * batch_ * inputs_[0].dims[2] + i]));
    }
    for (std::int64_t i = 0; i < longest(); ++i) step(i, of_x, y);
    for (std::int64_t i = 0; i < steps_; ++i) {
      for (std::int64_t b = 0; b < batch_; ++b) {
        if (i < length(b)) continue;
        for (std::int64_t j = 0; j < hidden_; ++j) EXPECT_EQ(y.values[at(y, i, b) + j], 0);
      }
    }
    const std::int64_t state = batch_ * hidden_;
    for (std::int64_t k = 0; k < state; ++k) {
      EXPECT_EQ(to_array(results[1]).values[direction_ * state + k], h_.values[k]);
      near(to_array(results[2]).values[direction_ * state + k], c_.values[k], "Y_c", k);
    }
  }

 private:
  void step(std::int64_t index, const Rounding& of_x, const Array& y) {
    const std::int64_t width = inputs_[0].dims[2];
    Array x = filled(ElementType::Float, {1, batch_, width});
    Array h = h_;
    Rounding of_h;
    for (std::int64_t b = 0; b < batch_; ++b) {
      if (index >= length(b)) continue;
      const std::int64_t from = (time(index, b) * batch_ + b) * width;
      for (std::int64_t k = 0; k < width; ++k)
        x.values[b * width + k] = of_x(inputs_[0].values[from + k]);
      for (std::int64_t j = 0; j < hidden_; ++j)
        of_h.count(static_cast<float>(h_.values[b * hidden_ + j]));
    }
    for (double& value : h.values) value = of_h(value);
    const Call call{node_, {&x, &w_, &r_, given(b_), nullptr, &h, &c_, given(p_)}, 3};
    const Arrays wanted = evaluate(call);
    for (std::int64_t b = 0; b < batch_; ++b) {
      if (index >= length(b)) continue;
      for (std::int64_t j = 0; j < hidden_; ++j) {
        const std::int64_t k = b * hidden_ + j;
        const double got = y.values[at(y, time(index, b), b) + j];
        near(got, wanted[0].values[k], "Y", at(y, time(index, b), b) + j);
        h_.values[k] = got;
        c_.values[k] = wanted[2].values[k];
      }
    }
  }

  static void near(double got, double wanted, const char* output, std::int64_t index) {
    EXPECT_NEAR(got, wanted, (64 + 64 * std::abs(wanted)) * 0x1p-23) << output << " at " << index;
  }
  static const Array* given(const Array& array) { return array.dims.empty() ? nullptr : &array; }
  std::int64_t length(std::int64_t b) const {
    return inputs_[4].dims.empty() ? steps_ : static_cast<std::int64_t>(inputs_[4].values[b]);
  }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < batch_; ++b) most = std::max(most, length(b));
    return most;
  }
  std::int64_t time(std::int64_t index, std::int64_t b) const {
    return is_reverse_ ? length(b) - 1 - index : index;
  }
  std::int64_t at(const Array& y, std::int64_t t, std::int64_t b) const {
    return ((t * y.dims[1] + direction_) * batch_ + b) * hidden_;
  }

  /// What an input has of this direction; nothing of one that is absent.
  Array part(std::size_t input, const Dims& dims) const {
    const Array& all = inputs_[input];
    if (all.dims.empty()) return {};
    Array one = filled(ElementType::Float, dims);
    std::copy_n(all.values.begin() + direction_ * one.size(), one.size(), one.values.begin());
    return one;
  }
  /// [1, columns, depth].
  Array real_weights(std::size_t input, std::size_t scale) const {
    const Array &bytes = inputs_[input], &scales = inputs_[scale], &zeros = inputs_[scale + 1];
    const std::int64_t depth = bytes.dims[1], columns = bytes.dims[2];
    Array lines = filled(ElementType::Float, {1, columns, depth});
    const auto number = [&](const Array& of, std::int64_t column) {
      return of.values[of.rank() == 1 ? direction_ : direction_ * columns + column];
    };
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t k = 0; k < depth; ++k) {
        const double byte = bytes.values[(direction_ * depth + k) * columns + j];
        lines.values[j * depth + k] = (byte - number(zeros, j)) * number(scales, j);
      }
    }
    return lines;
  }

  std::int64_t direction_;
  std::int64_t steps_ = 0, batch_ = 0, hidden_ = 0;
  bool is_reverse_ = false;
  Arrays inputs_;
  Node node_;
  Array w_, r_, b_, p_, h_, c_;
};

std::vector<Target> instruction_sets() {
  std::vector<Target> found;
  for (const Target& target : find_targets()) {
    if (target.provider == "cpu") found.push_back(target);
  }
  return found;
}

TEST(DynamicQuantizeLSTM, RoundsWhatItMultipliesByTheRangeOfWhatIsLive) {
  for (const Target& target : instruction_sets()) {
    Random random(7);
    const int count = is_full() ? 400 : 40;
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      const OpCase row = any_form(random);
      const GraphCase graph = to_graph(row);
      Options options = target.options;
      options.emplace_back("providers", "cpu");
      Session session(model_of(graph, Form::Fixed), options);
      const std::vector<Tensor> results = session.run(graph.feeds, graph.outputs);
      SCOPED_TRACE(target.name + ", case " + std::to_string(i) + ": " + describe(graph));
      for (std::int64_t d = 0; d < row.inputs[1].tensor.dims[0]; ++d)
        Direction(row, d).expect(results);
    }
  }
}

std::string kernel_of(const OpCase& row) {
  const Session session(model_of(to_graph(row), Form::Fixed), {{"providers", "cpu"}});
  return nlohmann::json::parse(session.explain())["nodes"][0]["kernel"];
}

TEST(DynamicQuantizeLSTM, ConstantWeightsHaveAKernelAndOthersTheBody) {
  Random random(1);
  OpCase row = layer(random, {1, 3, 2, 8, 16});
  EXPECT_EQ(kernel_of(row), "cpu:dynamic_quantize_lstm");
  for (const std::size_t input : {1, 2, 8, 9, 10, 11}) {
    row.inputs[input].is_constant = false;
    EXPECT_NE(kernel_of(row), "cpu:dynamic_quantize_lstm") << input;
    row.inputs[input].is_constant = true;
  }
}

TEST(DynamicQuantizeLSTM, HoldsItsWeightsInBytesAlone) {
  constexpr std::int64_t kSize = 256, kColumns = 4 * kSize;
  Random random(2);
  const OpCase row = layer(random, {1, 2, 1, kSize, kSize});
  const GraphCase graph = to_graph(row);
  Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  (void)session.run(graph.feeds, graph.outputs);
  // Each column of both has some numbers of its own.
  EXPECT_LE(explained(session).device_weight_bytes, 2 * kColumns * (kSize + 64));
}

/// All is known while planning, and the host evaluates what it can then; but it packs no weights.
TEST(DynamicQuantizeLSTM, RunsWhereAllItsInputsAreConstant) {
  Random random(1);
  GraphCase graph = to_graph(layer(random, {1, 3, 2, 5, 4}));
  Session fed(model_of(graph, Form::Fixed), {{"providers", "cpu"}});
  const std::vector<Tensor> expected = fed.run(graph.feeds, graph.outputs);
  graph.constants.insert(graph.constants.end(), graph.feeds.begin(), graph.feeds.end());
  graph.feeds.clear();
  Session session(model_of(graph, Form::Fixed), {{"providers", "cpu"}, {"optimization", "none"}});
  const std::vector<Tensor> got = session.run({}, graph.outputs);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i].bytes, expected[i].bytes) << i;
}

}  // namespace
}  // namespace backplane::ops_test

// RNN, GRU, LSTM: https://onnx.ai/onnx/operators/onnx__LSTM.html
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

const OpCase kRows[] = {
    {.name = "RnnSumsItsInputsAndState",
     .node = {.op_type = "RNN",
              .opset = 14,
              .attributes = {{"hidden_size", 1}, {"activations", strings({"Relu"})}}},
     .inputs = {f32({3, 1, 1}, {1, 2, 3}), constant(f32({1, 1, 1}, {1})),
                constant(f32({1, 1, 1}, {1})), constant(f32({1, 2}, {0.25, 0.25}))},
     .outputs = {f32({3, 1, 1, 1}, {1.5, 4, 7.5}), f32({1, 1, 1}, {7.5})}},
    {.name = "ReverseBeginsAtTheEndOfEachSequence",
     .node = {.op_type = "RNN",
              .opset = 14,
              .attributes = {{"hidden_size", 1},
                             {"direction", "reverse"},
                             {"activations", strings({"Relu"})}}},
     .inputs = {f32({3, 2, 1}, {1, 1, 2, 2, 4, 4}), constant(f32({1, 1, 1}, {1})),
                constant(f32({1, 1, 1}, {1})), absent(), i32({2}, {3, 2})},
     .outputs = {f32({3, 1, 2, 1}, {7, 3, 6, 2, 4, 0}), f32({1, 2, 1}, {7, 3})}},
    {.name = "StepsBehindTheLongestSequenceAreZero",
     .node = {.op_type = "RNN",
              .opset = 14,
              .attributes = {{"hidden_size", 1}, {"activations", strings({"Relu"})}}},
     .inputs = {f32({4, 2, 1}, {1, 1, 2, 9, 9, 9, 9, 9}), constant(f32({1, 1, 1}, {1})),
                constant(f32({1, 1, 1}, {1})), absent(), i32({2}, {2, 1})},
     .outputs = {f32({4, 1, 2, 1}, {1, 1, 3, 0, 0, 0, 0, 0}), f32({1, 2, 1}, {3, 1})}},
    {.name = "LstmOfZeroWeightsKeepsHalfOfItsCell",
     .node = {.op_type = "LSTM", .opset = 14, .attributes = {{"hidden_size", 1}}},
     .inputs = {f32({1, 1, 1}, {5}), constant(f32({1, 4, 1}, {0, 0, 0, 0})),
                constant(f32({1, 4, 1}, {0, 0, 0, 0})), absent(), absent(), absent(),
                f32({1, 1, 1}, {4})},
     .outputs = {f32({1, 1, 1, 1}, {0.48201379003790845}), f32({1, 1, 1}, {0.48201379003790845}),
                 f32({1, 1, 1}, {2})}},
    {.name = "LayersWithoutInputsHaveTheirBiases",
     .node = {.op_type = "RNN",
              .opset = 14,
              .attributes = {{"hidden_size", 1}, {"activations", strings({"Relu"})}}},
     .inputs = {f32({2, 1, 0}, {}), constant(f32({1, 1, 0}, {})), constant(f32({1, 1, 1}, {1})),
                constant(f32({1, 2}, {0.5, 0.25}))},
     .outputs = {f32({2, 1, 1, 1}, {0.75, 1.5}), f32({1, 1, 1}, {1.5})}},
    {.name = "NoSequencesGiveNothing",
     .node = {.op_type = "LSTM", .opset = 14, .attributes = {{"hidden_size", 1}}},
     .inputs = {f32({3, 0, 2}, {}), constant(f32({1, 4, 2}, {1, 1, 1, 1, 1, 1, 1, 1})),
                constant(f32({1, 4, 1}, {1, 1, 1, 1}))},
     .outputs = {f32({3, 1, 0, 1}, {}), f32({1, 0, 1}, {}), f32({1, 0, 1}, {})}},
    {.name = "NoStepsGiveTheInitialState",
     .node = {.op_type = "GRU", .opset = 14, .attributes = {{"hidden_size", 1}}},
     .inputs = {f32({0, 1, 1}, {}), constant(f32({1, 3, 1}, {1, 1, 1})),
                constant(f32({1, 3, 1}, {1, 1, 1})), absent(), absent(), f32({1, 1, 1}, {0.5})},
     .outputs = {f32({0, 1, 1, 1}, {}), f32({1, 1, 1}, {0.5})}},
};
const Rows kRecurrentRows("Recurrent", kRows);

/// A layer over two steps of two batch entries.
OpCase refusal(const char* name, const char* op, std::int64_t gates, std::vector<double> lengths,
               const char* words) {
  const auto zeros = [](const Dims& dims) {
    return f32(dims, std::vector<double>(static_cast<std::size_t>(dims[0] * dims[1] * dims[2]), 0));
  };
  return {.name = name,
          .node = {.op_type = op, .opset = 14, .attributes = {{"hidden_size", 1}}},
          .inputs = {zeros({2, 2, 1}), constant(zeros({1, gates, 1})),
                     constant(zeros({1, gates, 1})), absent(), i32({2}, std::move(lengths))},
          .outputs = {f32({0, 0, 0, 0}, {}), zeros({1, 2, 1})},
          .refusal = words,
          .device_refusal = "sequence_lens has a number which is not in [0, 2]"};
}

const OpCase kRefusals[] = {
    refusal("LstmPastTheLastStep", "LSTM", 4, {2, 9}, "sequence_lens has 9 for batch entry 1"),
    refusal("GruOfFewerStepsThanNone", "GRU", 3, {-9, 2}, "sequence_lens has -9 for batch entry 0"),
    refusal("RnnPastTheLastStep", "RNN", 1, {2, 3}, "sequence_lens has 3 for batch entry 1"),
};
const Rows kRecurrentRefusals("Recurrent", kRefusals);

/// Attributes and inputs that all three have.
OpCase layer(Random& random, const std::string& op, std::int64_t gates) {
  OpCase row;
  row.node = {.op_type = op, .opset = 14};
  const bool both = random.one_in(3);
  const std::int64_t directions = both ? 2 : 1;
  const std::int64_t steps = random.integer(1, 5);
  const std::int64_t batch = random.pick<std::int64_t>({1, 2, 3, 7});
  const std::int64_t inputs = random.pick<std::int64_t>({1, 3, 8, 17});
  const std::int64_t hidden = random.pick<std::int64_t>({1, 2, 5, 16, 33});
  const bool batch_first = random.one_in(4);
  row.node.attributes = {{"hidden_size", hidden}};
  if (batch_first) row.node.attributes.push_back({"layout", 1});
  if (both) {
    row.node.attributes.push_back({"direction", "bidirectional"});
  } else if (random.one_in(3)) {
    row.node.attributes.push_back({"direction", "reverse"});
  }
  if (random.one_in(4)) row.node.attributes.push_back({"clip", 0.75f});
  const ElementType type = random.pick(
      {ElementType::Float, ElementType::Float, ElementType::Float, ElementType::Double});
  const auto tensor = [&](const Dims& dims, double most) {
    return random.tensor(type, dims, -most, most);
  };
  const Dims states =
      batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  row.inputs = {tensor(batch_first ? Dims{batch, steps, inputs} : Dims{steps, batch, inputs}, 1),
                tensor({directions, gates * hidden, inputs}, 0.5),
                tensor({directions, gates * hidden, hidden}, 0.3)};
  const bool are_constant = !random.one_in(3);
  row.inputs[1].is_constant = are_constant;
  row.inputs[2].is_constant = are_constant;
  row.inputs.push_back(random.one_in(2) ? absent()
                                        : constant(tensor({directions, 2 * gates * hidden}, 0.5)));
  row.inputs.push_back(random.one_in(2) ? absent()
                                        : random.indices({batch}, 1, steps, ElementType::Int32));
  row.inputs.push_back(random.one_in(2) ? absent() : tensor(states, 1));
  if (op == "LSTM") {
    row.inputs.push_back(random.one_in(2) ? absent() : tensor(states, 1));
    if (random.one_in(2)) row.inputs.push_back(constant(tensor({directions, 3 * hidden}, 0.5)));
  }
  row.output_count = op == "LSTM" ? 3 : 2;
  row.tolerance = {64, 256};
  return row;
}

/// Other gate functions than the usual ones, with as many names as the layer needs.
void choose_functions(Random& random, OpCase& row, std::int64_t per_direction) {
  std::int64_t directions = row.inputs[1].tensor.dims[0];
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < directions * per_direction; ++i) {
    names.push_back(
        random.pick({"Affine", "Relu", "LeakyRelu", "ThresholdedRelu", "Tanh", "ScaledTanh",
                     "Sigmoid", "HardSigmoid", "Elu", "Softsign", "Softplus"}));
  }
  row.node.attributes.push_back({"activations", names});
  if (random.one_in(2)) {
    row.node.attributes.push_back({"activation_alpha", floats({0.5f, 0.25f, 0.75f})});
    row.node.attributes.push_back({"activation_beta", floats({0.5f, 0.125f})});
  }
  // Keeps what the unbounded functions let grow.
  std::erase_if(row.node.attributes, [](const auto& given) { return given.name == "clip"; });
  row.node.attributes.push_back({"clip", 1.5f});
}

OpCase rnn(Random& random) {
  OpCase row = layer(random, "RNN", 1);
  if (random.one_in(3)) choose_functions(random, row, 1);
  return row;
}
const Sweep kRnn("Recurrent", "Rnn", 24, rnn);

OpCase gru(Random& random) {
  OpCase row = layer(random, "GRU", 3);
  if (random.one_in(2)) row.node.attributes.push_back({"linear_before_reset", 1});
  return row;
}
const Sweep kGru("Recurrent", "Gru", 40, gru);

OpCase lstm(Random& random) {
  OpCase row = layer(random, "LSTM", 4);
  if (random.one_in(5)) row.node.attributes.push_back({"input_forget", 1});
  return row;
}
const Sweep kLstm("Recurrent", "Lstm", 40, lstm);

OpCase half(Random& random) {
  OpCase row = layer(random, "LSTM", 4);
  for (Input& input : row.inputs) {
    if (input.is_absent || input.tensor.type == ElementType::Int32) continue;
    input.tensor = random.tensor(ElementType::Float16, input.tensor.dims, -0.25, 0.25);
  }
  row.tolerance = {64, 1024};
  return row;
}
const Sweep kHalf("Recurrent", "HalfPrecision", 8, half);

/// Turns all floats of a case into some of another type, which are small.
void retype(Random& random, OpCase& row, ElementType type) {
  for (Input& input : row.inputs) {
    if (!input.is_absent && input.tensor.type != ElementType::Int32)
      input.tensor = random.tensor(type, input.tensor.dims, -0.25, 0.25);
  }
}

OpCase any_form(Random& random) {
  OpCase row = random.pick({rnn, gru, lstm})(random);
  if (random.one_in(3)) {
    const bool is_half = random.one_in(2);
    retype(random, row, is_half ? ElementType::Float16 : ElementType::BFloat16);
    row.tolerance = {64, is_half ? 1024.0 : 8192.0};
    row.node.opset = 22;
  } else if (row.node.op_type != "RNN" && random.one_in(3)) {
    choose_functions(random, row, row.node.op_type == "LSTM" ? 3 : 2);
  }
  return row;
}
const Sweep kAnyForm("Recurrent", "LayersInAnyForm", 240, any_form);

/// A layer that devices divide among many items.
struct Layer {
  const char* op;
  std::int64_t steps, batch, inputs, hidden, directions;
  ElementType type = ElementType::Float;
  bool resets_products = false;  // linear_before_reset
  bool is_constant = true;
};

OpCase written(Random& random, const Layer& layer) {
  const std::string op = layer.op;
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const auto tensor = [&](const Dims& dims, double most) {
    return random.tensor(layer.type, dims, -most, most);
  };
  OpCase row;
  row.node = {.op_type = op, .opset = 22, .attributes = {{"hidden_size", layer.hidden}}};
  if (layer.directions == 2) row.node.attributes.push_back({"direction", "bidirectional"});
  if (layer.resets_products) row.node.attributes.push_back({"linear_before_reset", 1});
  const Dims states{layer.directions, layer.batch, layer.hidden};
  row.inputs = {tensor({layer.steps, layer.batch, layer.inputs}, 1),
                tensor({layer.directions, gates * layer.hidden, layer.inputs}, 0.25),
                tensor({layer.directions, gates * layer.hidden, layer.hidden}, 0.1),
                constant(tensor({layer.directions, 2 * gates * layer.hidden}, 0.5)),
                absent(),
                tensor(states, 1)};
  row.inputs[1].is_constant = row.inputs[2].is_constant = layer.is_constant;
  row.output_count = op == "LSTM" ? 3 : 2;
  const bool is_half = layer.type == ElementType::Float16 || layer.type == ElementType::BFloat16;
  row.tolerance = {64, is_half ? 65536.0 : 256.0};
  return row;
}

/// One launch for all steps and one for each, rows that several items share and that an item has, R that is read 16 bytes at a time
/// and one by one, weights that are packed and that are not.
constexpr Layer kLayers[] = {
    {"LSTM", 3, 1, 24, 200, 1},
    {"LSTM", 3, 9, 8, 64, 2, ElementType::Float, false, false},
    {"LSTM", 1000, 1, 2, 3, 1},
    {"LSTM", 2, 2, 8, 72, 1, ElementType::Float16},
    {"LSTM", 2, 1, 3, 36, 2, ElementType::Double},
    {"GRU", 3, 1, 8, 256, 1},
    {"GRU", 2, 3, 8, 260, 1, ElementType::Float, true, false},
    {"GRU", 3, 5, 16, 32, 2, ElementType::BFloat16},
    {"GRU", 2, 17, 5, 13, 2, ElementType::Double},
    {"RNN", 3, 2, 8, 400, 1},
    {"RNN", 4, 40, 8, 24, 2, ElementType::Float, false, false},
};

TEST(Recurrent, LayersOfDevicesAreRightInEveryForm) {
  const std::vector<Target> targets = form_targets();
  Random random(1);
  for (const Layer& layer : kLayers) {
    const GraphCase graph = to_graph(written(random, layer));
    for (const Target& target : targets) {
      const Form form = layer.is_constant ? Form::Fixed : Form::Open;
      const Outcome outcome = run_case(graph, expected_of(graph), target, form, "all");
      EXPECT_EQ(outcome.kind, Outcome::Kind::Passed)
          << target.name << ": " << layer.op << " of " << layer.hidden << ": " << outcome.text;
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test

// RNN, GRU, LSTM: https://onnx.ai/onnx/operators/onnx__LSTM.html
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

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
          .refusal = words};
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

}  // namespace
}  // namespace backplane::ops_test

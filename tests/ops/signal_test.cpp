// DFT, STFT, window functions: https://onnx.ai/onnx/operators/onnx__DFT.html
#include <cmath>
#include <string>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 28;  // transform

const OpCase kRows[] = {
    {.name = "SpectrumOfAnImpulseIsFlat",
     .node = {.op_type = "DFT", .opset = 20},
     .inputs = {f32({1, 3, 1}, {2, 0, 0})},
     .outputs = {f32({1, 3, 2}, {2, 0, 2, 0, 2, 0})}},
    {.name = "OneSidedSpectrumOfAnAlternation",
     .node = {.op_type = "DFT", .opset = 20, .attributes = {{"onesided", 1}}},
     .inputs = {f32({1, 4, 1}, {1, -1, 1, -1})},
     .outputs = {f32({1, 3, 2}, {0, 0, 0, 0, 4, 0})}},
    {.name = "InverseOfAOneSidedSpectrumIsReal",
     .node = {.op_type = "DFT", .opset = 20, .attributes = {{"onesided", 1}, {"inverse", 1}}},
     .inputs = {f32({1, 3, 2}, {0, 0, 0, 0, 4, 0})},
     .outputs = {f32({1, 4, 1}, {1, -1, 1, -1})}},
    {.name = "FramesOverlap",
     .node = {.op_type = "STFT", .opset = 17, .attributes = {{"onesided", 1}}},
     .inputs = {f32({1, 4, 1}, {1, 2, 3, 4}), constant(i64({}, {1})), constant(f32({2}, {1, 1}))},
     .outputs = {f32({1, 3, 2, 2}, {3, 0, -1, 0, 5, 0, -1, 0, 7, 0, -1, 0})}},
    {.name = "FramesOfASignalWithoutAnAxisOfParts",
     .node = {.op_type = "STFT", .opset = 17, .attributes = {{"onesided", 1}}},
     .inputs = {f32({2, 3}, {1, 2, 3, 4, 6, 8}), constant(i64({}, {1})),
                constant(f32({2}, {1, 1}))},
     .outputs = {f32({2, 2, 2, 2}, {3, 0, -1, 0, 5, 0, -1, 0, 10, 0, -2, 0, 14, 0, -2, 0})}},
    {.name = "NoTransformsOfAnyLength",
     .node = {.op_type = "DFT", .opset = 20},
     .inputs = {f32({0, 4, 1}, {}), constant(i64({}, {kLongest - 1}))},
     .outputs = {f32({0, kLongest - 1, 2}, {})}},
    {.name = "NoFramesOfAnyLength",
     .node = {.op_type = "STFT", .opset = 17, .attributes = {{"onesided", 1}}},
     .inputs = {f32({1, 4, 1}, {1, 2, 3, 4}), constant(i64({}, {1})), absent(),
                constant(i64({}, {kLongest - 1}))},
     .outputs = {f32({1, 0, kLongest / 2, 2}, {})}},
    {.name = "SymmetricHannWindow",
     .node = {.op_type = "HannWindow", .opset = 17, .attributes = {{"periodic", 0}}},
     .inputs = {constant(i64({}, {3}))},
     .outputs = {f32({3}, {0, 1, 0})}},
    {.name = "TrianglesOfAMelWeightMatrix",
     .node = {.op_type = "MelWeightMatrix", .opset = 17},
     .inputs = {constant(i64({}, {2})), constant(i64({}, {8})), constant(i64({}, {8000})),
                constant(f32({}, {0})), constant(f32({}, {4000}))},
     .outputs = {f32({5, 2}, {1, 0, 0, 1, 0, 0, 0, 0, 0, 0})}},
};
const Rows kSignalRows("Signal", kRows);

const OpCase kRefusals[] = {
    {.name = "TransformLongerThanItsTables",
     .node = {.op_type = "DFT", .opset = 20},
     .inputs = {f32({0, 4, 1}, {}), constant(i64({}, {kGreatest / 2}))},
     .outputs = {f32({0, 0, 0}, {})},
     .refusal = "too large"},
    {.name = "FramesLongerThanTheirTables",
     .node = {.op_type = "STFT", .opset = 17},
     .inputs = {f32({1, 16, 1}, std::vector<double>(16, 1)), constant(i64({}, {2})), absent(),
                constant(i64({}, {kGreatest / 2}))},
     .outputs = {f32({0, 0, 0, 0}, {})},
     .refusal = "too large"},
    {.name = "TransformOfMoreThanTheLongest",
     .node = {.op_type = "DFT", .opset = 20},
     .inputs = {f32({1, 4, 1}, {1, 2, 3, 4}), constant(i64({}, {kLongest + 1}))},
     .outputs = {f32({0, 0, 0}, {})},
     .refusal = "the transform's length is too large: 268435457"},
    {.name = "FrameOfMoreThanTheLongest",
     .node = {.op_type = "STFT", .opset = 17},
     .inputs = {f32({1, 16, 1}, std::vector<double>(16, 1)), constant(i64({}, {2})), absent(),
                constant(i64({}, {kLongest + 1}))},
     .outputs = {f32({0, 0, 0, 0}, {})},
     .refusal = "frame_length is too large: 268435457"},
    {.name = "WindowThatCannotBeCounted",
     .node = {.op_type = "HannWindow", .opset = 17},
     .inputs = {constant(i64({}, {kGreatest}))},
     .outputs = {f32({0}, {})},
     .refusal = "too large"},
    {.name = "MoreMelBandsThanAnyoneHears",
     .node = {.op_type = "MelWeightMatrix", .opset = 17},
     .inputs = {constant(i64({}, {std::int64_t{1} << 31})),
                constant(i64({}, {std::int64_t{1} << 20})), constant(i64({}, {8000})),
                constant(f32({}, {0})), constant(f32({}, {4000}))},
     .outputs = {f32({0, 0}, {})},
     .refusal = "num_mel_bins is 2147483648"},
};
const Rows kSignalRefusals("Signal", kRefusals);

OpCase dft(Random& random) {
  OpCase row;
  const bool old = random.one_in(3);
  const bool inverse = random.one_in(2);
  const bool onesided = random.one_in(2);
  const bool is_complex = onesided ? inverse : random.one_in(2);
  const std::int64_t signal_axes = random.integer(1, 3);
  Dims dims;
  for (std::int64_t i = 0; i < signal_axes; ++i)
    dims.push_back(random.pick<std::int64_t>({2, 3, 5, 8, 9, 16, 17, 31}));
  dims.push_back(is_complex ? 2 : 1);
  row.node = {.op_type = "DFT", .opset = old ? 17 : 20};
  if (inverse) row.node.attributes.push_back({"inverse", 1});
  if (onesided) row.node.attributes.push_back({"onesided", 1});
  const ElementType type =
      random.pick({ElementType::Float, ElementType::Float, ElementType::Double});
  row.inputs = {random.tensor(type, dims, -1, 1)};
  std::int64_t axis = random.integer(0, signal_axes - 1);
  if (random.one_in(2)) axis -= signal_axes + 1;
  if (random.one_in(2)) {
    row.inputs.push_back(constant(i64({}, {random.integer(2, 20)})));
  } else if (!old) {
    row.inputs.push_back(absent());
  }
  if (old) {
    row.node.attributes.push_back({"axis", axis});
  } else {
    row.inputs.push_back(constant(i64({}, {axis})));
  }
  row.tolerance = {16, 64};
  return row;
}
const Sweep kDft("Signal", "Dft", 60, dft);

OpCase stft(Random& random) {
  OpCase row;
  const bool onesided = random.one_in(2);
  const std::int64_t length = random.pick<std::int64_t>({1, 4, 7, 16, 25});
  const std::int64_t parts = !onesided && random.one_in(2) ? 2 : 1;
  row.node = {.op_type = "STFT", .opset = 17, .attributes = {{"onesided", onesided ? 1 : 0}}};
  row.inputs = {random.tensor(ElementType::Float,
                              {random.integer(1, 3), length + random.integer(0, 40), parts}, -1, 1),
                constant(i64({}, {random.integer(1, 9)}))};
  const bool has_window = random.one_in(2);
  row.inputs.push_back(has_window ? constant(random.tensor(ElementType::Float, {length}, 0, 1))
                                  : absent());
  if (!has_window || random.one_in(2)) row.inputs.push_back(constant(i64({}, {length})));
  row.tolerance = {16, 64};
  return row;
}
const Sweep kStft("Signal", "Stft", 24, stft);

OpCase window(Random& random) {
  OpCase row;
  row.node = {.op_type = random.pick({"HannWindow", "HammingWindow", "BlackmanWindow"}),
              .opset = 17};
  if (random.one_in(2)) row.node.attributes.push_back({"periodic", 0});
  if (random.one_in(2)) {
    row.node.attributes.push_back(
        {"output_datatype", static_cast<std::int64_t>(random.pick(
                                {ElementType::Double, ElementType::Float16, ElementType::Float}))});
  }
  row.inputs = {constant(random.one_in(2) ? i64({}, {random.integer(2, 40)})
                                          : random.tensor(ElementType::Int32, {}, 2, 40))};
  return row;
}
const Sweep kWindow("Signal", "Windows", 16, window);

}  // namespace
}  // namespace backplane::ops_test

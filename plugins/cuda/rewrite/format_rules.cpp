#include "plugins/cuda/rewrite/format_rules.hpp"

namespace backplane::cuda {
namespace {

constexpr auto kAsked = Storage::kAsked;
constexpr auto kFollow = Storage::kFollow;
constexpr auto kMakes = Storage::kMakes;
constexpr auto kRead = Storage::kRead;
constexpr auto kFloat = Storage::kFloat;
constexpr auto kElements = Layout::kElements;

constexpr const char* kRange = "what it makes leaves the range of fp16";
constexpr const char* kTotal = "sums of many elements leave the range of fp16";
constexpr const char* kSmall = "differences of its operands are below what 16 bits resolve";

constexpr FormatRule kRules[] = {
    {"Conv", kAsked, Layout::kConvolution},
    {"FusedConv", kAsked, Layout::kConvolution},
    {"ConvTranspose", kAsked, Layout::kConvolution},
    {"MatMul", kAsked},
    {"Gemm", kAsked},
    {"Einsum", kAsked},
    {"FusedMatMul", kAsked},
    {"FusedGemm", kAsked},
    {"JoinedMatMul", kAsked},
    {"JoinedGemm", kAsked},
    {"Attention", kAsked},
    {"FusedAttention", kAsked},
    {"QuantizedConv", kMakes, Layout::kPlain, 0},
    {"QuantizedMatMul", kMakes, Layout::kPlain, 0},

    {"MaxPool", kFollow, Layout::kWindow},
    {"AveragePool", kFollow, Layout::kWindow},
    {"GlobalAveragePool", kFollow, Layout::kMean},
    {"GlobalMaxPool", kFollow, Layout::kMean},
    {"ReduceMean", kFollow, Layout::kMean, 1},
    {"ReduceMax", kFollow, Layout::kMean, 1},
    {"ReduceMin", kFollow, Layout::kPlain, 1},
    {"Softmax", kFollow},
    {"LayerNormalization", kFollow},
    {"RMSNormalization", kFollow},
    {"InstanceNormalization", kFollow},
    {"GroupNormalization", kFollow},
    {"BatchNormalization", kFollow, Layout::kPlain, 1},

    {"FusedPointwise", kFollow, kElements},
    {"FusedRotation", kFollow},
    {"FusedSoftmax", kFollow},
    {"FusedNormalization", kFollow},
    {"FusedReduce", kFollow},
    {"Abs", kFollow, kElements},
    {"Neg", kFollow, kElements},
    {"Sign", kFollow, kElements},
    {"Floor", kFollow, kElements},
    {"Ceil", kFollow, kElements},
    {"Round", kFollow, kElements},
    {"Erf", kFollow, kElements},
    {"Tanh", kFollow, kElements},
    {"Sigmoid", kFollow, kElements},
    {"Softsign", kFollow, kElements},
    {"Relu", kFollow, kElements},
    {"LeakyRelu", kFollow, kElements},
    {"ThresholdedRelu", kFollow, kElements},
    {"Elu", kFollow, kElements},
    {"Celu", kFollow, kElements},
    {"Selu", kFollow, kElements},
    {"HardSigmoid", kFollow, kElements},
    {"HardSwish", kFollow, kElements},
    {"Mish", kFollow, kElements},
    {"Swish", kFollow, kElements},
    {"Gelu", kFollow, kElements},
    {"Clip", kFollow, kElements, 1},
    {"PRelu", kFollow, kElements},
    {"Add", kFollow, kElements},
    {"Sub", kFollow, kElements},
    {"Mul", kFollow, kElements},
    {"Div", kFollow, kElements},
    {"Max", kFollow, kElements},
    {"Min", kFollow, kElements},
    {"Sum", kFollow, kElements},
    {"Mean", kFollow, kElements},
    {"Where", kFollow},

    {"Identity", kFollow, kElements},
    {"Dropout", kFollow, kElements, 1},
    {"Concat", kFollow, Layout::kAxis},
    {"Split", kFollow, Layout::kAxis, 1},
    {"Pad", kFollow, Layout::kAxes},
    {"Resize", kFollow, Layout::kAxes, 1},
    {"Upsample", kFollow, Layout::kAxes, 1},
    {"GridSample", kFollow, Layout::kPlain, 1},
    {"Slice", kFollow, Layout::kPlain, 1},
    {"Transpose", kFollow},
    {"Reshape", kFollow, Layout::kPlain, 1},
    {"Flatten", kFollow},
    {"Squeeze", kFollow, Layout::kPlain, 1},
    {"Unsqueeze", kFollow, Layout::kPlain, 1},
    {"Expand", kFollow, Layout::kPlain, 1},
    {"Tile", kFollow, Layout::kPlain, 1},
    {"Gather", kFollow, Layout::kPlain, 1},
    {"DepthToSpace", kFollow},
    {"SpaceToDepth", kFollow},

    {"Cast", kRead},
    {"ArgMax", kRead},
    {"ArgMin", kRead},
    {"IsNaN", kRead},
    {"Shape", kRead},
    {"Size", kRead},

    {"Exp", kFloat, Layout::kPlain, kAllInputs, kRange},
    {"Pow", kFloat, Layout::kPlain, kAllInputs, kRange},
    {"Sqrt", kFloat, Layout::kPlain, kAllInputs, "it is taken of variances, which are small"},
    {"Reciprocal", kFloat, Layout::kPlain, kAllInputs, kRange},
    {"Softplus", kFloat, Layout::kPlain, kAllInputs, kRange},
    {"Log", kFloat, Layout::kPlain, kAllInputs, kSmall},
    {"LogSoftmax", kFloat, Layout::kPlain, kAllInputs, kSmall},
    {"ReduceSum", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"ReduceSumSquare", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"ReduceProd", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"ReduceL1", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"ReduceL2", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"ReduceLogSum", kFloat, Layout::kPlain, kAllInputs, kSmall},
    {"ReduceLogSumExp", kFloat, Layout::kPlain, kAllInputs, kSmall},
    {"CumSum", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"LRN", kFloat, Layout::kPlain, kAllInputs, kTotal},
    {"RoiAlign", kFloat, Layout::kPlain, kAllInputs,
     "its boxes have places that 16 bits do not resolve"},
};

}  // namespace

const FormatRule& format_rule(std::string_view op_type) {
  static constexpr FormatRule kOther{"", kFloat};
  for (const FormatRule& rule : kRules) {
    if (op_type == rule.op_type) return rule;
  }
  return kOther;
}

}  // namespace backplane::cuda

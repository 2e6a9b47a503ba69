// Products and convolutions of eight bits, by the library's int8 and by the plain kernel, against their definition. Kernels
// are run by the processor.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

using Bytes = std::vector<std::int32_t>;  // what elements of eight bits mean

struct Bits {
  bp_dtype type = BP_INT8;
  Dims dims;
  Bytes values;

  HostTensor tensor() const {
    HostTensor made{type, dims, {}};
    for (const std::int32_t value : values) made.data.push_back(static_cast<unsigned char>(value));
    return made;
  }
  std::int32_t at(std::int64_t index) const { return values[static_cast<std::size_t>(index)]; }
};

class CudaIntegers : public CudaTest {
 protected:
  CudaIntegers() { run_kernels_on_host(); }

  Bits random_bits(bp_dtype type, const Dims& dims) {
    Bits bits{type, dims, {}};
    std::uniform_int_distribution<std::int32_t> any(type == BP_INT8 ? -128 : 0,
                                                    type == BP_INT8 ? 127 : 255);
    for (std::int64_t i = 0; i < count_of(dims); ++i) bits.values.push_back(any(random_));
    return bits;
  }
  std::mt19937 random_{7};
};

const Bits kNoBits{BP_NONE, {}, {}};

/// A zero point of one element, or one for each line.
std::int32_t zero_at(const Bits& zero, std::int64_t line) {
  if (zero.type == BP_NONE) return 0;
  return zero.at(zero.values.size() == 1 ? 0 : line);
}

/// Sums of MatMul of matrices a [.., rows, depth] and b [.., depth, columns] whose batches are the same, or of one.
Bytes sums_of(const Bits& a, const Bits& b, const Bits& a_zero, const Bits& b_zero) {
  const std::int64_t rows = a.dims[a.dims.size() - 2], depth = a.dims.back(),
                     columns = b.dims.back();
  const std::int64_t a_matrices = depth == 0 ? 1 : count_of(a.dims) / (rows * depth),
                     b_matrices = depth == 0 ? 1 : count_of(b.dims) / (depth * columns);
  Bytes sums;
  for (std::int64_t m = 0; m < std::max(a_matrices, b_matrices); ++m) {
    const std::int64_t a_at = m % a_matrices * rows * depth,
                       b_at = m % b_matrices * depth * columns;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += (a.at(a_at + i / columns * depth + k) - zero_at(a_zero, i / columns)) *
               (b.at(b_at + k * columns + i % columns) - zero_at(b_zero, i % columns));
      sums.push_back(sum);
    }
  }
  return sums;
}

struct MatMulCase {
  Dims a, b;
  bp_dtype a_type = BP_INT8, b_type = BP_INT8;
  Dims a_zero{-1}, b_zero{-1};  ///< -1: there is none
  bool is_constant = true;      ///< b and the zero points are
};

std::vector<MatMulCase> matmul_cases() {
  std::vector<MatMulCase> cases;
  for (const auto& [a, b] : std::vector<std::pair<Dims, Dims>>{{{3, 5}, {5, 7}},
                                                               {{3, 8}, {8, 4}},
                                                               {{4, 16}, {16, 12}},
                                                               {{1, 33}, {33, 1}},
                                                               {{20, 70}, {70, 18}},
                                                               {{2, 3, 4}, {4, 5}},
                                                               {{2, 3, 4}, {2, 4, 5}},
                                                               {{3, 8}, {2, 8, 4}},
                                                               {{2, 2, 3, 4}, {2, 2, 4, 4}}}) {
    for (const auto& [a_type, b_type] : std::vector<std::pair<bp_dtype, bp_dtype>>{
             {BP_INT8, BP_INT8}, {BP_UINT8, BP_INT8}, {BP_UINT8, BP_UINT8}}) {
      const bool is_constant = cases.size() % 2 == 0;
      cases.push_back({a, b, a_type, b_type, {-1}, {-1}, !is_constant});
      cases.push_back({a, b, a_type, b_type, {}, {}, is_constant});
      if (a.size() == 2 && b.size() == 2)
        cases.push_back({a, b, a_type, b_type, {a[0]}, {b[1]}, is_constant});
    }
  }
  return cases;
}

TEST_F(CudaIntegers, MatMulIntegerIsExactOfAllTypesAndZeroPoints) {
  for (const bool has_algorithms : {true, false}) {
    if (!has_algorithms) stand_in().proposals.clear();
    const OpenDevice device = open();
    for (const MatMulCase& each : matmul_cases()) {
      const Bits a = random_bits(each.a_type, each.a), b = random_bits(each.b_type, each.b);
      const auto zero = [&](bp_dtype type, const Dims& dims) {
        return dims == Dims{-1} ? kNoBits : random_bits(type, dims);
      };
      const Bits a_zero = zero(each.a_type, each.a_zero), b_zero = zero(each.b_type, each.b_zero);
      NodeUnderTest node("", "MatMulInteger", 10);
      std::vector<HostTensor> inputs;
      for (const Bits& bits : {a, b, a_zero, b_zero}) {
        node.input(bits.type, bits.dims);
        inputs.push_back(bits.tensor());
      }
      node.outputs(1);
      const std::vector<bool> constants{false, each.is_constant, each.is_constant,
                                        each.is_constant};
      NodeOnDevice run(device, node, kernel_named(device, "cuda:int8 matmul", "MatMulInteger"),
                       inputs, constants);
      const Bytes want = sums_of(a, b, a_zero, b_zero);
      EXPECT_EQ(run.run_as<std::int32_t>(), want)
          << sdk::to_string(each.a) << ' ' << sdk::to_string(each.b) << each.a_type << each.b_type;
      EXPECT_EQ(run.run_as<std::int32_t>(4), want);
      EXPECT_EQ(run.kernel().variant(), has_algorithms ? "cublaslt, int8" : "plain, int8");
    }
  }
}

/// Scales of one element or one for each line, of which products are exact.
HostTensor scales(const Dims& dims) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count_of(dims); ++i) values.push_back(i % 2 == 0 ? 0.25f : 0.03125f);
  return floats(dims, values);
}

/// What QLinear operators make of a sum.
std::int32_t quantized(std::int32_t sum, float scale, std::int32_t zero, bp_dtype type) {
  const float value = std::nearbyint(static_cast<float>(sum) * scale) + static_cast<float>(zero);
  return static_cast<std::int32_t>(
      std::clamp(value, type == BP_INT8 ? -128.0f : 0.0f, type == BP_INT8 ? 127.0f : 255.0f));
}

/// Bytes as what they mean.
Bytes values_of(const std::vector<std::uint8_t>& bytes, bp_dtype type) {
  Bytes values;
  for (const std::uint8_t byte : bytes)
    values.push_back(type == BP_INT8 ? static_cast<std::int8_t>(byte) : byte);
  return values;
}

TEST_F(CudaIntegers, QLinearMatMulScalesByTensorRowAndColumn) {
  const OpenDevice device = open();
  for (const bp_dtype type : {BP_INT8, BP_UINT8}) {
    for (const bool by_line : {false, true}) {
      const Dims row = by_line ? Dims{5} : Dims{}, column = by_line ? Dims{6} : Dims{};
      const Bits a = random_bits(type, {5, 9}), b = random_bits(BP_INT8, {9, 6}),
                 a_zero = random_bits(type, row), b_zero = random_bits(BP_INT8, column),
                 y_zero = random_bits(type, {});
      const HostTensor a_scale = scales(row), b_scale = scales(column), y_scale = floats({}, {4});
      NodeUnderTest node("", "QLinearMatMul", 21);
      node.input(type, a.dims).input(BP_FLOAT, row).input(type, row).input(BP_INT8, b.dims);
      node.input(BP_FLOAT, column).input(BP_INT8, column).input(BP_FLOAT, {}).input(type, {});
      node.outputs(1);
      NodeOnDevice run(device, node, kernel_named(device, "cuda:int8 matmul", "QLinearMatMul"),
                       {a.tensor(), a_scale, a_zero.tensor(), b.tensor(), b_scale, b_zero.tensor(),
                        y_scale, y_zero.tensor()},
                       {false, true, true, true, true, true, true, true});
      const Bytes sums = sums_of(a, b, a_zero, b_zero);
      Bytes want;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const float scale =
            a_scale.as<float>()[by_line ? i / 6 : 0] * b_scale.as<float>()[by_line ? i % 6 : 0] / 4;
        want.push_back(quantized(sums[i], scale, y_zero.at(0), type));
      }
      EXPECT_EQ(values_of(run.run_as<std::uint8_t>(), type), want) << type << by_line;
    }
  }
}

TEST_F(CudaIntegers, AProductWithoutDepthIsZeroAndAnEmptyOneNothing) {
  const OpenDevice device = open();
  for (const Dims& a_dims : std::vector<Dims>{{3, 0}, {0, 4}}) {
    const Bits a = random_bits(BP_UINT8, a_dims), b = random_bits(BP_INT8, {a_dims[1], 5}),
               a_zero = random_bits(BP_UINT8, {}), b_zero = random_bits(BP_INT8, {5});
    NodeUnderTest node("", "MatMulInteger", 10);
    node.input(BP_UINT8, a.dims).input(BP_INT8, b.dims).input(BP_UINT8, {}).input(BP_INT8, {5});
    node.outputs(1);
    NodeOnDevice run(device, node, kernel_named(device, "cuda:int8 matmul", "MatMulInteger"),
                     {a.tensor(), b.tensor(), a_zero.tensor(), b_zero.tensor()});
    EXPECT_EQ(run.run_as<std::int32_t>(), Bytes(static_cast<std::size_t>(a_dims[0] * 5), 0));
  }
}

TEST_F(CudaIntegers, AnOperandThatLiesRightIsMultipliedInPlaceWhereItsAddressAllows) {
  const OpenDevice device = open();
  const Bits a = random_bits(BP_INT8, {6, 16}), b = random_bits(BP_INT8, {16, 8});
  NodeUnderTest node("", "MatMulInteger", 10);
  node.input(BP_INT8, a.dims).input(BP_INT8, b.dims).outputs(1);
  NodeOnDevice run(device, node, kernel_named(device, "cuda:int8 matmul", "MatMulInteger"),
                   {a.tensor(), b.tensor()}, {false, true});
  const std::size_t before = stand_in().count("copy");
  EXPECT_EQ(run.run_as<std::int32_t>(), sums_of(a, b, kNoBits, kNoBits));
  EXPECT_EQ(stand_in().count("launch"), 0u) << "b is packed, a is as it is, y takes the sums";
  const std::size_t aligned = stand_in().count("copy") - before;
  // The stand-in throws for an address that is less aligned than was promised; y is of int32.
  const TestStream stream(device);
  const TestBuffer x(device, BP_MEMORY_DEVICE, 200), w(device, BP_MEMORY_DEVICE, 2000),
      y(device, BP_MEMORY_DEVICE, 200), space(device, BP_MEMORY_DEVICE, 4096);
  const std::size_t copies = stand_in().count("copy");
  check(run.kernel().compute({{nullptr, x.raw(), 3}, {nullptr, w.raw()}}, {{nullptr, y.raw()}},
                             {{nullptr, w.raw()}}, {nullptr, space.raw()}, stream.raw()));
  EXPECT_EQ(stand_in().count("copy"), copies + 1);
  EXPECT_GT(aligned, 0u);
}

struct IntegerConvCase {
  Dims x, w;
  Dims strides{}, dilations{}, pads{};
  std::int64_t group = 1;
};

std::int64_t entry(const Dims& list, std::size_t at, std::int64_t otherwise) {
  return at < list.size() ? list[at] : otherwise;
}

/// The dims of the result, and the sums by their definition, of images with up to three axes.
Bytes conv_sums(const IntegerConvCase& each, const Bits& x, const Bits& w, const Bits& x_zero,
                const Bits& w_zero, Dims& dims) {
  const std::size_t rank = each.x.size() - 2;
  dims = {each.x[0], each.w[0]};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t reach = (each.w[axis + 2] - 1) * entry(each.dilations, axis, 1) + 1;
    dims.push_back(
        (each.x[axis + 2] + entry(each.pads, axis, 0) + entry(each.pads, axis + rank, 0) - reach) /
            entry(each.strides, axis, 1) +
        1);
  }
  const Dims spatial(dims.begin() + 2, dims.end()), taps(each.w.begin() + 2, each.w.end());
  Bytes sums;
  for (std::int64_t i = 0; i < count_of(dims); ++i) {
    const std::int64_t point = i % count_of(spatial), filter = i / count_of(spatial) % dims[1],
                       image = i / count_of(spatial) / dims[1];
    const std::int64_t first = filter / (dims[1] / each.group) * each.w[1];
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < each.w[1] * count_of(taps); ++k) {
      std::int64_t p = point, t = k % count_of(taps), at = 0, step = 1;
      bool is_inside = true;
      for (std::size_t axis = rank; axis-- > 0;) {
        const std::int64_t place = p % spatial[axis] * entry(each.strides, axis, 1) +
                                   t % taps[axis] * entry(each.dilations, axis, 1) -
                                   entry(each.pads, axis, 0);
        p /= spatial[axis];
        t /= taps[axis];
        is_inside = is_inside && place >= 0 && place < each.x[axis + 2];
        at += place * step;
        step *= each.x[axis + 2];
      }
      if (!is_inside) continue;
      const std::int64_t channel = image * each.x[1] + first + k / count_of(taps);
      sum += (x.at(channel * step + at) - zero_at(x_zero, 0)) *
             (w.at(filter * each.w[1] * count_of(taps) + k) - zero_at(w_zero, filter));
    }
    sums.push_back(sum);
  }
  return sums;
}

NodeUnderTest& describe_conv(NodeUnderTest& node, const IntegerConvCase& each) {
  if (!each.strides.empty()) node.attribute("strides", each.strides);
  if (!each.dilations.empty()) node.attribute("dilations", each.dilations);
  if (!each.pads.empty()) node.attribute("pads", each.pads);
  if (each.group != 1) node.attribute("group", each.group);
  return node.outputs(1);
}

const std::vector<IntegerConvCase>& conv_cases() {
  static const std::vector<IntegerConvCase> cases = {
      {{1, 3, 5, 6}, {4, 3, 3, 3}},
      {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 1}, {}, {1, 0, 2, 1}},
      {{1, 2, 9, 8}, {2, 2, 3, 3}, {1, 2}, {2, 1}, {0, 1, 0, 1}},
      {{2, 4, 5, 5}, {6, 2, 3, 3}, {}, {}, {1, 1, 1, 1}, 2},
      {{1, 16, 4, 4}, {8, 16, 1, 1}},
      {{2, 3, 8}, {5, 3, 3}, {2}, {2}, {1, 2}},
      {{1, 2, 4, 5, 3}, {3, 2, 2, 3, 1}, {1, 2, 1}, {}, {1, 0, 0, 0, 1, 2}},
      {{2, 37, 7, 11}, {21, 37, 3, 2}, {}, {}, {0, 1, 2, 0}},
      {{1, 15, 6, 5}, {24, 5, 2, 2}, {}, {2, 2}, {2, 0, 0, 1}, 3},
      {{1, 20, 4, 4}, {8, 10, 2, 2}, {}, {}, {}, 2},
  };
  return cases;
}

/// By what convolutions are computed.
enum class Way { kConvolved, kNoPlan, kNoLibrary, kNothing };
constexpr Way kWays[] = {Way::kConvolved, Way::kNoPlan, Way::kNoLibrary, Way::kNothing};

void set_way(Way way) {
  stand_in().has_convolutions = way != Way::kNoLibrary;
  stand_in().plans = [way](const Convolution&) { return way == Way::kConvolved; };
  stand_in().proposals.assign(way == Way::kNothing ? 0 : 1, ProductAlgorithm{{1}, 0});
}

/// A window of one element is a line as it is.
std::string variant_of(Way way, const IntegerConvCase& each) {
  const bool has_windows = count_of(Dims(each.w.begin() + 2, each.w.end())) > 1;
  if (way == Way::kConvolved && has_windows) return "cudnn, int8";
  return way == Way::kNothing ? "plain, int8" : "cublaslt, int8";
}

TEST_F(CudaIntegers, ConvIntegerIsExactOfAllTypesAndZeroPoints) {
  for (const Way way : {Way::kConvolved, Way::kNoPlan}) {
    set_way(way);
    const OpenDevice device = open();
    for (std::size_t i = 0; i < conv_cases().size() * 8; ++i) {
      if ((i + i / 2 + i / 4 + i / 8) % 2 != 0) continue;  // neighbours have the other half
      const IntegerConvCase& each = conv_cases()[i / 8];
      const bp_dtype x_type = i % 2 == 0 ? BP_INT8 : BP_UINT8;
      const bp_dtype w_type = i / 2 % 2 == 0 ? BP_INT8 : BP_UINT8;
      const bool has_zeros = i / 4 % 2 != 0, is_constant = x_type == w_type;
      const Bits x = random_bits(x_type, each.x), w = random_bits(w_type, each.w);
      const Bits x_zero = has_zeros ? random_bits(x_type, {}) : kNoBits;
      const Bits w_zero = has_zeros ? random_bits(w_type, {each.w[0]}) : kNoBits;
      NodeUnderTest node("", "ConvInteger", 10);
      std::vector<HostTensor> inputs;
      for (const Bits& bits : {x, w, x_zero, w_zero}) {
        node.input(bits.type, bits.dims);
        inputs.push_back(bits.tensor());
      }
      NodeOnDevice run(device, describe_conv(node, each),
                       kernel_named(device, "cuda:int8 conv", "ConvInteger"), inputs,
                       {false, is_constant, is_constant, is_constant});
      Dims dims;
      const Bytes want = conv_sums(each, x, w, x_zero, w_zero, dims);
      EXPECT_EQ(run.dims(), dims);
      EXPECT_EQ(run.run_as<std::int32_t>(), want)
          << sdk::to_string(each.x) << ' ' << sdk::to_string(each.w) << x_type << w_type;
      EXPECT_EQ(run.run_as<std::int32_t>(4), want);
      EXPECT_EQ(run.kernel().variant(), variant_of(way, each));
    }
  }
}

TEST_F(CudaIntegers, AnImageIsLaidOutOnceAndTheConvolutionHasNoPadding) {
  constexpr std::uint64_t kOfLibrary = 5000;
  stand_in().convolution_workspace = kOfLibrary;
  const OpenDevice device = open();
  const IntegerConvCase each{{2, 3, 9, 8}, {20, 3, 3, 3}, {2, 1}, {1, 2}, {1, 0, 2, 3}};
  const Bits x = random_bits(BP_UINT8, each.x), w = random_bits(BP_INT8, each.w),
             x_zero = random_bits(BP_UINT8, {});
  NodeUnderTest node("", "ConvInteger", 10);
  node.input(BP_UINT8, each.x).input(BP_INT8, each.w).input(BP_UINT8, {});
  NodeOnDevice run(device, describe_conv(node, each),
                   kernel_named(device, "cuda:int8 conv", "ConvInteger"),
                   {x.tensor(), w.tensor(), x_zero.tensor()}, {false, true, true});
  ASSERT_EQ(stand_in().convolutions.size(), 1u);
  const Convolution& form = stand_in().convolutions[0];
  EXPECT_EQ(form.type, sdk::DataType::Int8);
  EXPECT_EQ(form.result_type(), sdk::DataType::Int32);
  EXPECT_TRUE(form.is_channels_last);
  EXPECT_EQ(form.channels, 4) << "whole words";
  EXPECT_EQ(form.filters, 32) << "whole vectors, no filter of ones";
  EXPECT_EQ(form.in, (std::array<std::int64_t, 3>{12, 11, 1}));
  EXPECT_EQ(form.pad_begin, (std::array<std::int64_t, 3>{0, 0, 0}));
  EXPECT_EQ(form.pad_end, form.pad_begin);
  Dims dims;
  EXPECT_EQ(run.run_as<std::int32_t>(), conv_sums(each, x, w, x_zero, kNoBits, dims));
  EXPECT_EQ(stand_in().count("launch"), 2u) << "the image, and what the sums become";
  EXPECT_EQ(stand_in().count_of_run("convolution"), 1u);
  EXPECT_NE(form.key().find("int8"), std::string::npos) << form.key();
  constexpr std::uint64_t kImages = 2 * 12 * 11 * 4, kSums = 2 * 5 * 7 * 32 * 4;
  EXPECT_GE(run.kernel().workspace_bytes(), kImages + kSums + kOfLibrary);
}

TEST_F(CudaIntegers, QLinearConvAddsItsBiasAndScalesByFilter) {
  for (std::size_t turn = 0; turn < 4 * conv_cases().size(); ++turn) {
    const Way way = kWays[turn / conv_cases().size()];
    set_way(way);
    const OpenDevice device = open();
    const IntegerConvCase& each = conv_cases()[turn % conv_cases().size()];
    const bp_dtype x_type = turn % 3 == 0 ? BP_INT8 : BP_UINT8;
    const Dims filters{each.w[0]};
    const Bits x = random_bits(x_type, each.x), w = random_bits(BP_INT8, each.w),
               x_zero = random_bits(x_type, {}), y_zero = random_bits(x_type, {});
    Bytes bias;
    for (std::int64_t i = 0; i < each.w[0]; ++i)
      bias.push_back(static_cast<std::int32_t>(i * 50 - 60));
    const HostTensor w_scale = scales(filters);
    NodeUnderTest node("", "QLinearConv", 10);
    node.input(x_type, each.x).input(BP_FLOAT, {}).input(x_type, {}).input(BP_INT8, each.w);
    node.input(BP_FLOAT, filters).input(BP_INT8, {}).input(BP_FLOAT, {}).input(x_type, {});
    node.input(BP_INT32, filters);
    NodeOnDevice run(device, describe_conv(node, each),
                     kernel_named(device, "cuda:int8 conv", "QLinearConv"),
                     {x.tensor(), floats({}, {0.5f}), x_zero.tensor(), w.tensor(), w_scale,
                      Bits{BP_INT8, {}, {0}}.tensor(), floats({}, {8}), y_zero.tensor(),
                      test_host::tensor<std::int32_t>(BP_INT32, filters, bias)},
                     {false, true, true, true, true, true, true, true, true});
    Dims dims;
    const Bytes sums = conv_sums(each, x, w, x_zero, kNoBits, dims);
    Bytes want;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t filter = i / (sums.size() / static_cast<std::size_t>(dims[0] * dims[1])) %
                                 static_cast<std::size_t>(dims[1]);
      want.push_back(quantized(sums[i] + bias[filter], 0.5f * w_scale.as<float>()[filter] / 8,
                               y_zero.at(0), x_type));
    }
    EXPECT_EQ(values_of(run.run_as<std::uint8_t>(), x_type), want) << sdk::to_string(each.x);
    EXPECT_EQ(run.kernel().variant(), variant_of(way, each));
  }
}

TEST_F(CudaIntegers, ManyGroupsAreConvolvedWhereTheyFillWords) {
  const OpenDevice device = open();
  const IntegerConvCase each{{1, 85, 3, 3}, {34, 5, 2, 2}, {}, {}, {0, 1, 0, 0}, 17};
  const Bits x = random_bits(BP_UINT8, each.x), w = random_bits(BP_UINT8, each.w);
  NodeUnderTest node("", "ConvInteger", 10);
  node.input(BP_UINT8, each.x).input(BP_UINT8, each.w);
  NodeOnDevice run(device, describe_conv(node, each),
                   kernel_named(device, "cuda:int8 conv", "ConvInteger"), {x.tensor(), w.tensor()});
  Dims dims;
  EXPECT_EQ(run.run_as<std::int32_t>(), conv_sums(each, x, w, kNoBits, kNoBits, dims));
  EXPECT_EQ(run.kernel().variant(), "cudnn, int8");
}

TEST_F(CudaIntegers, ManyGroupsAreLeftToThePlainKernelWithTheReason) {
  const OpenDevice device = open();
  const IntegerConvCase each{{1, 32, 4, 4}, {32, 1, 3, 3}, {}, {}, {}, 32};
  NodeUnderTest node("", "ConvInteger", 10);
  node.input(BP_INT8, each.x).input(BP_INT8, each.w);
  try {
    const NodeOnDevice prepared(
        device, describe_conv(node, each), kernel_named(device, "cuda:int8 conv", "ConvInteger"),
        {random_bits(BP_INT8, each.x).tensor(), random_bits(BP_INT8, each.w).tensor()});
    FAIL() << "it was prepared";
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("32 groups"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace backplane::cuda

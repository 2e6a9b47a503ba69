// Attention: its form for the library, casts, masks, addresses, what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <tuple>

#include "tests/cuda/attention_values.hpp"
#include "tests/cuda/host_kernels.hpp"

namespace backplane::cuda {
namespace {

struct AttentionCase {
  Dims q, k, v;
  Dims mask{-1};  ///< -1: there is none
  bool is_causal = false;
  std::int64_t heads = 0, groups = 0;  ///< of three dims
  bool is_mask_of_bools = false;
  std::int64_t before = -1, after = -1;  ///< of a window; -1: without an end
  std::vector<float> masked{};           ///< the mask's numbers, where they are not number_at()'s
};

/// ONNX's Attention by its definition, in doubles.
class AttentionReference {
 public:
  AttentionReference(const AttentionCase& each, float scale)
      : case_(each),
        has_mask_(each.mask != Dims{-1}),
        is_flat_(each.q.size() == 3),
        scale_(static_cast<double>(scale)),
        heads_(is_flat_ ? each.heads : each.q[1]),
        groups_(is_flat_ ? each.groups : each.k[1]),
        rows_(each.q[is_flat_ ? 1 : 2]),
        columns_(each.k[is_flat_ ? 1 : 2]),
        width_(is_flat_ ? each.q[2] / heads_ : each.q[3]),
        value_width_(is_flat_ ? each.v[2] / groups_ : each.v[3]) {}

  std::vector<double> compute() const {
    const std::int64_t all = case_.q[0] * heads_ * rows_;
    std::vector<double> y(static_cast<std::size_t>(all * value_width_));
    for (std::int64_t n = 0; n < all; ++n) compute_row(n, y);
    return y;
  }

 private:
  void compute_row(std::int64_t n, std::vector<double>& y) const {
    const std::int64_t b = n / rows_ / heads_, h = n / rows_ % heads_, i = n % rows_;
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    std::vector<double> weights;
    for (std::int64_t j = 0; j < columns_; ++j) {
      const bool is_in = (!case_.is_causal || j <= i) &&
                         (case_.before < 0 || j >= i - case_.before) &&
                         (case_.after < 0 || j <= i + case_.after);
      weights.push_back(is_in ? score(b, h, i, j) : kNone);
    }
    double most = kNone, sum = 0;
    for (const double weight : weights) most = std::max(most, weight);
    for (double& weight : weights) sum += weight = weight == kNone ? 0 : std::exp(weight - most);
    for (std::int64_t e = 0; e < value_width_; ++e) {
      double value = 0;
      for (std::int64_t j = 0; j < columns_; ++j)
        value += weights[static_cast<std::size_t>(j)] / (sum > 0 ? sum : 1) *
                 number(at(b, group_of(h), j, e, groups_, columns_, value_width_), 3);
      y[static_cast<std::size_t>(at(b, h, i, e, heads_, rows_, value_width_))] = value;
    }
  }

  double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t e = 0; e < width_; ++e)
      sum += number(at(b, h, i, e, heads_, rows_, width_), 1) *
             number(at(b, group_of(h), j, e, groups_, columns_, width_), 2);
    return sum * scale_ + (has_mask_ ? mask({b, h, i, j}) : 0);
  }

  /// The mask broadcasts from its end.
  double mask(const std::array<std::int64_t, 4>& place) const {
    const Dims& dims = case_.mask;
    // What the mask's last axis does not reach does not count.
    if (place.back() >= dims.back()) return -std::numeric_limits<double>::infinity();
    std::int64_t index = 0;
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      const std::int64_t at_axis = place[place.size() - dims.size() + axis];
      index = index * dims[axis] + (dims[axis] == 1 ? 0 : at_axis);
    }
    if (case_.is_mask_of_bools)
      return is_seen(index) ? 0 : -std::numeric_limits<double>::infinity();
    if (!case_.masked.empty())
      return static_cast<double>(case_.masked[static_cast<std::size_t>(index)]);
    return number(index, 4);
  }

  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t e, std::int64_t all,
                  std::int64_t positions, std::int64_t size) const {
    return is_flat_ ? ((b * positions + i) * all + h) * size + e
                    : ((b * all + h) * positions + i) * size + e;
  }
  std::int64_t group_of(std::int64_t h) const { return h / (heads_ / groups_); }
  static double number(std::int64_t index, int seed) {
    return static_cast<double>(number_at(index, seed));
  }

  const AttentionCase& case_;
  bool has_mask_, is_flat_;
  double scale_;
  std::int64_t heads_, groups_, rows_, columns_, width_, value_width_;
};

/// Of half types; finite numbers stay finite.
HostTensor rounded(const Dims& dims, const std::vector<float>& values, bp_dtype type) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    const float most = type == BP_FLOAT16 ? 65504 : 3.38953139e38f;
    const float kept = std::isinf(value) ? value : std::clamp(value, -most, most);
    bits.push_back(type == BP_FLOAT16 ? common::to_half(kept).bits
                                      : common::to_bfloat16(kept).bits);
  }
  return test_host::tensor<std::uint16_t>(type, dims, bits);
}

class CudaAttention : public CudaTest {
 protected:
  CudaAttention() { run_kernels_on_host(); }

  static std::unique_ptr<NodeOnDevice> prepare(const OpenDevice& device, const AttentionCase& each,
                                               bp_dtype type) {
    NodeUnderTest node("", "Attention", 23);
    std::vector<HostTensor> inputs{attention_tensor(each.q, 1, type),
                                   attention_tensor(each.k, 2, type),
                                   attention_tensor(each.v, 3, type)};
    if (each.mask != Dims{-1})
      inputs.push_back(each.is_mask_of_bools ? mask_of_bools(each.mask)
                       : each.masked.empty() ? attention_tensor(each.mask, 4, type)
                                             : rounded(each.mask, each.masked, type));
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("is_causal", std::int64_t{each.is_causal});
    node.attribute("left_window_size", each.before).attribute("right_window_size", each.after);
    if (each.heads > 0)
      node.attribute("q_num_heads", each.heads).attribute("kv_num_heads", each.groups);
    return std::make_unique<NodeOnDevice>(device, node, device.kernel("Attention"), inputs);
  }

  static void expect_right(const AttentionCase& each, NodeOnDevice& run, bp_dtype type,
                           std::uint64_t offset, Precision precision = Precision::kFp16) {
    const std::int64_t width = each.heads > 0 ? each.q[2] / each.heads : each.q[3];
    const std::vector<double> want =
        AttentionReference(each, 1 / std::sqrt(static_cast<float>(width))).compute();
    const std::vector<double> got = run_attention(run, type, offset);
    ASSERT_EQ(got.size(), want.size());
    const double limit = type == BP_FLOAT && precision == Precision::kFp32 ? 1e-5
                         : type == BP_BFLOAT16                             ? 2e-2
                                                                           : 4e-3;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], limit) << i;
  }
};

const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> cases = {
      {{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 16}},
      {{2, 4, 5, 8}, {2, 2, 5, 8}, {2, 2, 5, 8}, {2, 1, 1, 5}},
      {{2, 2, 4, 24}, {2, 2, 4, 24}, {2, 2, 4, 24}, {-1}, true},
      {{1, 2, 4, 8}, {1, 2, 6, 8}, {1, 2, 6, 8}, {4, 6}, true},
      {{2, 3, 32}, {2, 5, 16}, {2, 5, 16}, {1, 4, 3, 5}, false, 4, 2},
  };
  return cases;
}

TEST_F(CudaAttention, OfHalfTypesIsRightInEveryForm) {
  const OpenDevice device = open();
  for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16}) {
    for (const AttentionCase& each : attention_cases()) {
      const auto run = prepare(device, each, type);
      expect_right(each, *run, type, 0);
      expect_right(each, *run, type, 2);  // an address that is not aligned
      EXPECT_EQ(run->kernel().variant(), type == BP_FLOAT16 ? "cudnn, float16" : "cudnn, bfloat16");
    }
  }
  // Where there is a mask, the step that makes rows without any position 0, and one that raises the lowest numbers of bfloat16.
  EXPECT_EQ(stand_in().count("launch"), 18u);
}

TEST_F(CudaAttention, ARowWithoutAnyPositionIsZeroInTheLibrarysTypesToo) {
  const OpenDevice device = open();
  const AttentionCase each{{1, 1, 2, 8}, {1, 1, 3, 8}, {1, 1, 3, 8}, {2, 3}};
  for (const auto& [type, none] : {std::pair{BP_FLOAT16, 0xFC00}, std::pair{BP_BFLOAT16, 0xFF80}}) {
    NodeUnderTest node("", "Attention", 23);
    const auto bits = static_cast<std::uint16_t>(none);
    const std::vector<HostTensor> inputs{
        attention_tensor(each.q, 1, type), attention_tensor(each.k, 2, type),
        attention_tensor(each.v, 3, type),
        test_host::tensor<std::uint16_t>(type, each.mask, {bits, bits, bits, 0, bits, 0})};
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1);
    NodeOnDevice run(device, node, device.kernel("Attention"), inputs);
    const std::vector<double> y = run_attention(run, type, 0);
    ASSERT_EQ(y.size(), 16u);
    EXPECT_EQ(std::count(y.begin(), y.begin() + 8, 0.0), 8);
    EXPECT_EQ(std::count_if(y.begin() + 8, y.end(), [](double v) { return v != v; }), 0);
  }
}

TEST_F(CudaAttention, WhatIsNanForAnotherReasonThanItsMaskStaysSo) {
  const AttentionCase each{{1, 2, 2, 8}, {1, 2, 3, 8}, {1, 2, 3, 8}, {2, 1, 3}};
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (const std::string precision : {"fp16", "bf16"}) {
    const OpenDevice device = open({{"precision", precision}});
    for (const bp_dtype type : {BP_FLOAT, precision == "fp16" ? BP_FLOAT16 : BP_BFLOAT16}) {
      NodeUnderTest node("", "Attention", 23);
      // The first head has no position, the second two, of which the value of one is NaN.
      const std::vector<float> mask{kNone, kNone, kNone, 0, kNone, 0};
      std::vector<float> values(48, 1.0f);
      values[24 + 16 + 3] = std::numeric_limits<float>::quiet_NaN();
      const auto tensor_of = [type = type](const Dims& dims, const std::vector<float>& numbers) {
        return type == BP_FLOAT ? floats(dims, numbers) : rounded(dims, numbers, type);
      };
      const std::vector<HostTensor> inputs{attention_tensor(each.q, 1, type),
                                           attention_tensor(each.k, 2, type),
                                           tensor_of(each.v, values), tensor_of(each.mask, mask)};
      for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
      node.outputs(1);
      NodeOnDevice run(device, node, device.kernel("Attention"), inputs);
      const std::vector<double> y = run_attention(run, type, 0);
      ASSERT_EQ(y.size(), 32u);
      EXPECT_EQ(std::count(y.begin(), y.begin() + 16, 0.0), 16);
      for (std::size_t i = 16; i < 32; ++i) EXPECT_EQ(std::isnan(y[i]), i % 8 == 3) << i;
    }
  }
}

/// The first of two rows has no position where the mask has its `least` number; the second has.
void expect_as_the_mask_says(const OpenDevice& device, bp_dtype type, float least, double limit) {
  const AttentionCase each{{1, 1, 2, 8}, {1, 1, 3, 8}, {1, 1, 3, 8}, {2, 3}};
  const bool has_none = least == -std::numeric_limits<float>::infinity();
  NodeUnderTest node("", "Attention", 23);
  std::vector<HostTensor> inputs{attention_tensor(each.q, 1, type),
                                 attention_tensor(each.k, 2, type),
                                 attention_tensor(each.v, 3, type)};
  const std::vector<float> mask{least, least, least, 0, least, 0};
  inputs.push_back(type == BP_FLOAT ? floats(each.mask, mask) : rounded(each.mask, mask, type));
  for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
  node.outputs(1);
  NodeOnDevice run(device, node, device.kernel("Attention"), inputs);
  const std::vector<double> y = run_attention(run, type, 0);
  ASSERT_EQ(y.size(), 16u);
  for (std::int64_t e = 0; e < 8; ++e) {
    double mean = 0;
    for (const std::int64_t row : {0, 1, 2})
      mean += static_cast<double>(number_at(row * 8 + e, 3)) / 3;
    EXPECT_NEAR(y[static_cast<std::size_t>(e)], has_none ? 0 : mean, has_none ? 0 : limit);
    EXPECT_FALSE(std::isnan(y[static_cast<std::size_t>(8 + e)]));
  }
}

/// The lowest float is added by masks of models that were exported from float32; it is no infinity.
TEST_F(CudaAttention, ARowWithoutAnyPositionIsWhatTheMaskSaysInEveryType) {
  constexpr float kNone = -std::numeric_limits<float>::infinity(),
                  kLowest = std::numeric_limits<float>::lowest();
  for (const std::string precision : {"fp16", "bf16"}) {
    const OpenDevice device = open({{"precision", precision}});
    // Scores count beside the lowest number of float16.
    const double limit = precision == "fp16" ? 0.5 : 2e-2;
    for (const bp_dtype type : {BP_FLOAT, precision == "fp16" ? BP_FLOAT16 : BP_BFLOAT16}) {
      for (const float least : {kNone, kLowest, type == BP_FLOAT ? kLowest : -3e38f})
        expect_as_the_mask_says(device, type, least, limit);
    }
  }
}

TEST_F(CudaAttention, OfFloatsIsRoundedWhereThePrecisionAllows) {
  const OpenDevice device = open({{"precision", "fp16"}});
  for (const AttentionCase& each : attention_cases())
    expect_right(each, *prepare(device, each, BP_FLOAT), BP_FLOAT, 0);
  EXPECT_GT(stand_in().count("launch"), 0u);
}

/// Such as the provider's own kernel has: positions that fill no tile and several, heads of every width, groups of them, masks.
struct ShortCase {
  AttentionCase each;
  int multiprocessors;
  std::string words{};  ///< of the form that the rule takes
};

/// Of groups of one warp, two and four that have rows of their own, and of two and four that divide the keys of the same rows; among
/// these of parts that are not whole, and of parts that causality leaves nothing.
const std::vector<ShortCase>& short_cases() {
  static const std::vector<ShortCase> cases = {
      {{{1, 1, 1, 16}, {1, 1, 1, 16}, {1, 1, 1, 16}}, 1},
      {{{1, 2, 16, 64}, {1, 2, 64, 64}, {1, 2, 64, 64}}, 3, ", keys in 4"},
      {{{2, 4, 17, 64}, {2, 2, 65, 64}, {2, 2, 65, 64}, {2, 1, 1, 65}}, 132, ", keys in 4"},
      {{{1, 2, 70, 32}, {1, 2, 70, 32}, {1, 2, 70, 32}, {-1}, true}, 1},
      {{{1, 3, 40, 48}, {1, 3, 130, 48}, {1, 3, 130, 48}, {40, 130}, true}, 3},
      {{{1, 2, 33, 128}, {1, 1, 40, 128}, {1, 1, 40, 128}, {2, 1, 40}}, 132, ", keys in 2"},
      {{{2, 9, 240}, {2, 100, 80}, {2, 100, 80}, {2, 3, 9, 100}, false, 3, 1}, 1},
      {{{1, 2, 5, 96}, {1, 2, 31, 96}, {1, 2, 31, 96}, {5, 1}}, 3},  // one position
      {{{1, 1, 30, 16}, {1, 1, 9, 16}, {1, 1, 9, 16}}, 1},
      {{{1, 2, 70, 32}, {1, 1, 130, 32}, {1, 1, 130, 32}, {-1}, true}, 132, ", keys in 4"},
      {{{2, 21, 32}, {2, 50, 32}, {2, 50, 32}, {2, 2, 21, 50}, true, 2, 2}, 132, ", keys in 4"},
      {{{1, 1, 20, 48}, {1, 1, 45, 48}, {1, 1, 45, 48}, {-1}, true}, 132, ", keys in 2"},
  };
  return cases;
}

TEST_F(CudaAttention, OfFewPositionsIsTheProvidersOwn) {
  for (const auto& [each, multiprocessors, words] : short_cases()) {
    stand_in().devices[0].multiprocessors = multiprocessors;
    const OpenDevice device = open({{"tuning", "off"}});
    SCOPED_TRACE(sdk::to_string(each.q) + sdk::to_string(each.k));
    for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16}) {
      const auto run = prepare(device, each, type);
      expect_right(each, *run, type, type == BP_FLOAT16 ? 0 : 2);
      EXPECT_EQ(run->kernel().variant(), sdk::message("tensor cores, few positions", words, ", ",
                                                      type == BP_FLOAT16 ? "float16" : "bfloat16"));
    }
  }
  EXPECT_EQ(stand_in().count("attention"), 0u);
}

TEST_F(CudaAttention, APartOfTheKeysThatARowDoesNotSeeLeavesTheOthersAsTheyAre) {
  constexpr float kNone = -std::numeric_limits<float>::infinity(), kLowest = -65504;
  AttentionCase each{{1, 1, 17, 16}, {1, 1, 130, 16}, {1, 1, 130, 16}, {17, 130}};
  // Nothing; what one of four warps has, or has at last; the lowest number everywhere, and with it before what counts.
  const auto masked = [](std::int64_t i, std::int64_t j) {
    const bool is_of_one = j / 16 % 4 == 2;
    const float first[] = {kNone, is_of_one ? 0.5f : kNone, j == 129 ? 0 : kNone, kLowest,
                           is_of_one ? 0 : kLowest};
    return i < 5 ? first[i] : static_cast<float>((i + j) % 3);
  };
  for (std::int64_t i = 0; i < 17; ++i) {
    for (std::int64_t j = 0; j < 130; ++j) each.masked.push_back(masked(i, j));
  }
  // Of one part, and of four.
  for (const int multiprocessors : {1, 132}) {
    stand_in().devices[0].multiprocessors = multiprocessors;
    const OpenDevice device = open({{"tuning", "off"}});
    const auto run = prepare(device, each, BP_FLOAT16);
    expect_right(each, *run, BP_FLOAT16, 0);
    EXPECT_EQ(run->kernel().variant().find("keys in 4") != std::string::npos,
              multiprocessors == 132);
  }
}

TEST_F(CudaAttention, RowsOfManyPositionsOrOddWidthsAreTheLibrarys) {
  stand_in().devices[0].multiprocessors = 4;
  const OpenDevice device = open({{"tuning", "off"}});
  for (const AttentionCase& each :
       std::vector<AttentionCase>{{{1, 1, 2, 16}, {1, 1, 513, 16}, {1, 1, 513, 16}},
                                  {{1, 1, 3, 24}, {1, 1, 4, 24}, {1, 1, 4, 24}},
                                  {{1, 1, 3, 16}, {1, 1, 4, 16}, {1, 1, 4, 32}},
                                  {{1, 1, 3, 144}, {1, 1, 4, 144}, {1, 1, 4, 144}}}) {
    const auto run = prepare(device, each, BP_FLOAT16);
    expect_right(each, *run, BP_FLOAT16, 0);
    EXPECT_EQ(run->kernel().variant(), "cudnn, float16");
  }
  stand_in().devices = {stand_in_device(7, 5)};
  const OpenDevice old = open({{"tuning", "off"}});
  const AttentionCase each{{1, 1, 3, 16}, {1, 1, 4, 16}, {1, 1, 4, 16}};
  EXPECT_EQ(prepare(old, each, BP_FLOAT16)->kernel().variant().rfind("by parts", 0), 0u);
}

/// Those that have no form for the library, and such as its parts treat apart from others.
const std::vector<AttentionCase>& other_cases() {
  static const std::vector<AttentionCase> cases = {
      {{1, 6, 1, 8}, {1, 2, 9, 8}, {1, 2, 9, 8}},
      {{2, 1, 48}, {2, 5, 16}, {2, 5, 16}, {-1}, false, 6, 2},
      {{2, 6, 3, 5}, {2, 3, 4, 5}, {2, 3, 4, 7}, {6, 3, 4}, true},
      {{3, 4, 24}, {3, 6, 12}, {3, 6, 8}, {6}, true, 4, 2},
      {{1, 4, 3, 8}, {1, 1, 4, 8}, {1, 1, 4, 8}, {1, 4, 1, 4}},
      {{1, 2, 3, 8}, {1, 2, 70, 8}, {1, 2, 70, 8}, {3, 70}, true, 0, 0, true},
      {{2, 2, 5, 8}, {2, 2, 5, 8}, {2, 2, 5, 8}, {2, 1, 5, 5}, true, 0, 0, true},
      {{1, 2, 2, 4}, {1, 2, 3000, 4}, {1, 2, 3000, 4}, {-1}, true},
      {{1, 2, 9, 8}, {1, 2, 9, 8}, {1, 2, 9, 8}, {-1}, false, 0, 0, false, 2, 3},
      {{1, 4, 9, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {9, 5}, true, 0, 0, true, 1, 3},
      {{1, 2, 9, 8}, {1, 2, 9, 8}, {1, 2, 9, 8}, {-1}, false, 0, 0, false, -1, 0},
      {{1, 2, 3, 8}, {1, 2, 0, 8}, {1, 2, 0, 8}},
      {{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {3, 2}},
      {{2, 4, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 8}, {2, 1, 3, 1}, true, 0, 0, true},
      {{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {1, 1, 3, 0}},
  };
  return cases;
}

TEST_F(CudaAttention, OfFloatsIsExactByParts) {
  const OpenDevice device = open();
  for (const std::vector<AttentionCase>& cases : {attention_cases(), other_cases()}) {
    for (const AttentionCase& each : cases) {
      SCOPED_TRACE(sdk::to_string(each.q) + sdk::to_string(each.k));
      const auto run = prepare(device, each, BP_FLOAT);
      expect_right(each, *run, BP_FLOAT, 0, Precision::kFp32);
      EXPECT_EQ(run->kernel().variant().rfind("by parts: float32", 0), 0u);
    }
  }
  EXPECT_EQ(stand_in().count("attention"), 0u);
}

TEST_F(CudaAttention, WhatTheLibraryDoesNotTakeIsComputedByPartsAndSaysWhy) {
  const OpenDevice device = open();
  for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16}) {
    for (const AttentionCase& each : other_cases()) {
      SCOPED_TRACE(sdk::to_string(each.q) + sdk::to_string(each.k));
      expect_right(each, *prepare(device, each, type), type, 0);
    }
  }
  const AttentionCase small{{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}};
  const auto why = [](const OpenDevice& on, const AttentionCase& each) {
    const auto run = prepare(on, each, BP_FLOAT16);
    expect_right(each, *run, BP_FLOAT16, 0);
    return run->kernel().variant();
  };
  EXPECT_EQ(why(device, small), "cudnn, float16");
  EXPECT_NE(why(device, {{1, 2, 3, 6}, {1, 2, 5, 6}, {1, 2, 5, 6}}).find("heads of 6 elements"),
            std::string::npos);
  EXPECT_NE(why(device, other_cases()[5]).find("mask is of bools"), std::string::npos);
  stand_in().attends = [](const Attention&) { return false; };
  EXPECT_NE(why(open(), small).find("no plan"), std::string::npos);
  stand_in().devices = {stand_in_device(7, 5)};
  EXPECT_NE(why(open(), small).find("compute capability 8.0"), std::string::npos);
}

TEST_F(CudaAttention, ScoresOfManyRowsAreComputedSomeRowsAtATime) {
  const OpenDevice device = open({{"attention_mb", "1"}}), roomy = open();
  struct Long {
    AttentionCase each;
    std::size_t times;
  };
  const std::vector<Long> cases = {
      {{{1, 2, 700, 2}, {1, 1, 700, 2}, {1, 1, 700, 2}, {-1}, true}, 6},
      {{{1, 1, 1100, 2},
        {1, 1, 1100, 2},
        {1, 1, 1100, 3},
        {1100, 1100},
        false,
        0,
        0,
        false,
        100,
        60},
       9},
      {{{1, 1, 70, 2}, {1, 1, 4200, 2}, {1, 1, 4200, 2}, {4100}, false, 0, 0, true}, 2},
      {{{2, 300, 4}, {2, 600, 2}, {2, 600, 2}, {2, 2, 300, 600}, true, 2, 1, true}, 5},
  };
  const auto products = [](const AttentionCase& each, NodeOnDevice& run) {
    const std::size_t before = stand_in().count("product");
    expect_right(each, run, BP_FLOAT, 0, Precision::kFp32);
    return stand_in().count("product") - before;
  };
  for (const auto& [each, times] : cases) {
    SCOPED_TRACE(sdk::to_string(each.q) + sdk::to_string(each.k));
    const auto in_parts = prepare(device, each, BP_FLOAT), at_once = prepare(roomy, each, BP_FLOAT);
    EXPECT_EQ(products(each, *in_parts), times * products(each, *at_once));
    EXPECT_LT(in_parts->kernel().workspace_bytes(), at_once->kernel().workspace_bytes());
  }
}

TEST_F(CudaAttention, WhatItsPartsDoNotComputeEitherIsRefusedWithTheReason) {
  const OpenDevice device = open();
  const auto reason = [&](const AttentionCase& each, int code) {
    try {
      prepare(device, each, BP_FLOAT);
    } catch (const test_host::StatusError& error) {
      EXPECT_EQ(error.code(), code);
      return std::string(error.what());
    }
    return std::string("it is taken");
  };
  EXPECT_NE(reason({{1, 2, 3, 0}, {1, 2, 4, 0}, {1, 2, 4, 3}}, BP_UNSUPPORTED).find("no elements"),
            std::string::npos);
  EXPECT_NE(reason({{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {}}, BP_INVALID_ARGUMENT)
                .find("a mask of no axis"),
            std::string::npos);
}

TEST_F(CudaAttention, AnEmptyOneEnqueuesNothingAndAFailureNamesTheNode) {
  const OpenDevice device = open();
  prepare(device, {{0, 2, 3, 8}, {0, 2, 5, 8}, {0, 2, 5, 8}}, BP_FLOAT16)->run_as<std::uint16_t>();
  EXPECT_EQ(stand_in().count("attention"), 0u);
  stand_in().attention_workspace = 4096;
  const auto run = prepare(device, {{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}}, BP_FLOAT16);
  EXPECT_GE(run->kernel().workspace_bytes(), 4096u);
  stand_in().failures["attention"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  try {
    run->run_as<std::uint16_t>();
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(error.what()).rfind("node '", 0), 0u) << error.what();
  }
}

TEST(CudaAttentionVersions, FaultsThatAreKnownAreNotAskedFor) {
  Attention form;
  form.rows = 1;
  for (const auto& [version, plain, causal] : {std::tuple{90900, false, true},
                                               {90901, false, false},
                                               {91000, true, true},
                                               {91001, true, true},
                                               {91002, false, false},
                                               {91900, false, false}}) {
    form.is_causal = false;
    EXPECT_EQ(has_known_fault(form, static_cast<std::size_t>(version)), plain) << version;
    form.is_causal = true;
    EXPECT_EQ(has_known_fault(form, static_cast<std::size_t>(version)), causal) << version;
  }
  form.rows = 2;
  EXPECT_FALSE(has_known_fault(form, 90900));
  form.has_mask = true;
  EXPECT_TRUE(has_known_fault(form, 90901));
  EXPECT_FALSE(has_known_fault(form, 91002));
}

TEST_F(CudaTest, OneRowWithFewHeadsOfKeysIsNotAskedForWhereItIsWrong) {
  const std::unique_ptr<Engine> engine = load_stand_in_engine();
  const std::unique_ptr<Context> context = load_stand_in()->open(0);
  const std::unique_ptr<AttentionLibrary> library = engine->open_attentions(*context);
  Attention form;
  form.heads = 28;
  form.groups = 4;
  const auto is_asked_for = [&](int major) {
    AttentionStore store(library.get(), stand_in_device(major), "", nullptr);
    return store.refusal(form, Choosing::kByRule).empty();
  };
  EXPECT_FALSE(is_asked_for(10));
  EXPECT_TRUE(is_asked_for(9));
  form.groups = 14;
  EXPECT_TRUE(is_asked_for(10));
}

TEST(CudaAttentionKey, TellsEveryFormFromEveryOther) {
  const std::vector<std::function<void(Attention&)>> changes = {
      [](auto& a) { a.type = sdk::DataType::BFloat16; },
      [](auto& a) { a.batch = 2; },
      [](auto& a) { a.heads = 2; },
      [](auto& a) { a.groups = 2; },
      [](auto& a) { a.rows = 2; },
      [](auto& a) { a.columns = 2; },
      [](auto& a) { a.width = 16; },
      [](auto& a) { a.value_width = 16; },
      [](auto& a) { a.q.batch = 2; },
      [](auto& a) { a.k.head = 2; },
      [](auto& a) { a.v.position = 2; },
      [](auto& a) { a.y.position = 2; },
      [](auto& a) { a.is_causal = true; },
      [](auto& a) { a.has_mask = true; },
      [](auto& a) { a.has_mask = true, a.mask_dims[1] = 2; },
  };
  std::set<std::string> keys{Attention().key()};
  for (const auto& change : changes) {
    Attention form;
    change(form);
    EXPECT_TRUE(keys.insert(form.key()).second) << form.key();
  }
}

}  // namespace
}  // namespace backplane::cuda

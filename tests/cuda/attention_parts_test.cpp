// FusedAttention of a rewrite: by the library, and by parts where it has no plan; shapes that broadcast, or have no elements.
#include <cmath>
#include <limits>

#include "tests/cuda/attention_values.hpp"
#include "tests/cuda/host_kernels.hpp"

namespace backplane::cuda {
namespace {

/// Dims are [batch, heads, positions, width], however they lie.
struct PartsCase {
  Dims q, k, v;
  Dims mask{-1};                      ///< -1: there is none
  std::string axes = "bshbshbshbsh";  /// of q, k, v and y, as the node's
  std::int64_t group = 1;             /// heads of q for each of k and v
};

constexpr float kScale = 0.4f;

Dims lying(const Dims& dims, const std::string& axes) {
  return axes == "bhs" ? dims : Dims{dims[0], dims[2], dims[1], dims[3]};
}

/// The index of an element of an operand that broadcasts.
std::int64_t place_of(const Dims& dims, const std::string& axes, Dims at) {
  for (std::size_t axis = 0; axis < 4; ++axis) at[axis] = dims[axis] == 1 ? 0 : at[axis];
  const Dims order = axes == "bhs" ? Dims{0, 1, 2, 3} : Dims{0, 2, 1, 3};
  std::int64_t index = 0;
  for (const std::int64_t axis : order) {
    const auto place = static_cast<std::size_t>(axis);
    index = index * dims[place] + at[place];
  }
  return index;
}

/// The nodes' definition, in doubles.
class PartsReference {
 public:
  explicit PartsReference(const PartsCase& each) : case_(each) {
    scores_ = {most(each.q[0], each.k[0]), most(each.q[1], each.k[1] * each.group), each.q[2],
               each.k[2]};
    if (each.mask != Dims{-1}) {
      mask_ = each.mask;
      mask_.insert(mask_.begin(), 4 - mask_.size(), 1);
      for (std::size_t axis = 0; axis < 4; ++axis) scores_[axis] = most(scores_[axis], mask_[axis]);
    }
    dims_ = {most(scores_[0], each.v[0]), most(scores_[1], each.v[1] * each.group), scores_[2],
             each.v[3]};
  }
  /// Of the result, as it lies.
  Dims dims() const { return lying(dims_, case_.axes.substr(9)); }

  std::vector<double> compute() const {
    std::vector<double> y(static_cast<std::size_t>(count_of(dims_)));
    for (std::int64_t row = 0; row < dims_[0] * dims_[1] * dims_[2]; ++row)
      compute_row({row / dims_[2] / dims_[1], row / dims_[2] % dims_[1], row % dims_[2], 0}, y);
    return y;
  }

 private:
  /// Of two dims that broadcast, either may be 0.
  static std::int64_t most(std::int64_t a, std::int64_t b) { return a == 1 ? b : a; }
  double number(const Dims& dims, std::size_t operand, const Dims& at) const {
    return static_cast<double>(number_at(place_of(dims, case_.axes.substr(3 * operand, 3), at),
                                         static_cast<int>(operand) + 1));
  }

  double score(Dims at, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t e = 0; e < case_.q[3]; ++e) {
      at[3] = e;
      Dims key = at;
      key[2] = column;
      key[1] /= case_.group;
      sum += number(case_.q, 0, at) * number(case_.k, 1, key);
    }
    at[3] = column;
    sum *= static_cast<double>(kScale);
    return mask_.empty() ? sum
                         : sum + static_cast<double>(number_at(place_of(mask_, "bhs", at), 4));
  }

  void compute_row(Dims at, std::vector<double>& y) const {
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t column = 0; column < scores_[3]; ++column)
      sum += weights.emplace_back(std::exp(score(at, column)));
    for (std::int64_t e = 0; e < dims_[3]; ++e) {
      at[3] = e;
      double value = 0;
      for (std::int64_t column = 0; column < scores_[3]; ++column) {
        Dims key = at;
        key[2] = column;
        key[1] /= case_.group;
        value += weights[static_cast<std::size_t>(column)] / sum * number(case_.v, 2, key);
      }
      // Axes of the result of one element have the index 0.
      y[static_cast<std::size_t>(place_of(dims_, case_.axes.substr(9), at))] = value;
    }
  }

  const PartsCase& case_;
  Dims scores_, mask_, dims_;
};

class CudaFusedAttention : public CudaTest {
 protected:
  CudaFusedAttention() { run_kernels_on_host(); }

  static std::unique_ptr<NodeOnDevice> prepare(const OpenDevice& device, const PartsCase& each,
                                               bp_dtype type, const std::string& precision) {
    NodeUnderTest node(kPrivateDomain, "FusedAttention", 1);
    std::vector<HostTensor> inputs{
        attention_tensor(lying(each.q, each.axes.substr(0, 3)), 1, type),
        attention_tensor(lying(each.k, each.axes.substr(3, 3)), 2, type),
        attention_tensor(lying(each.v, each.axes.substr(6, 3)), 3, type)};
    if (each.mask != Dims{-1}) inputs.push_back(attention_tensor(each.mask, 4, type));
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("axes", each.axes).attribute("scale", kScale);
    node.attribute("precision", precision);
    if (each.group > 1) node.attribute("group", each.group);
    const bp_kernel_def* const def = kernel_named(device, "cuda:attention", "FusedAttention");
    return std::make_unique<NodeOnDevice>(device, node, def, inputs);
  }

  /// The variant of the kernel that was chosen.
  static std::string expect_right(const OpenDevice& device, const PartsCase& each, bp_dtype type,
                                  const std::string& precision, std::uint64_t offset = 0) {
    const auto run = prepare(device, each, type, precision);
    const PartsReference reference(each);
    EXPECT_EQ(run->dims(), reference.dims());
    const std::vector<double> want = reference.compute(), got = run_attention(*run, type, offset);
    EXPECT_EQ(got.size(), want.size());
    const double limit = type == BP_FLOAT ? 1e-5 : type == BP_FLOAT16 ? 4e-3 : 2e-2;
    for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i)
      EXPECT_NEAR(got[i], want[i], limit) << i << " of " << sdk::to_string(each.q) << each.axes;
    return run->kernel().variant();
  }
};

/// Shapes that the library could compute.
const std::vector<PartsCase>& plain_cases() {
  static const std::vector<PartsCase> cases = {
      {{1, 2, 5, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}},
      {{1, 3, 7, 8}, {1, 3, 5, 8}, {1, 3, 5, 16}, {1, 1, 7, 5}},
      {{2, 3, 5, 8}, {2, 3, 5, 8}, {2, 3, 5, 8}, {2, 1, 1, 5}},
      {{5, 4, 6, 8}, {5, 4, 3, 8}, {5, 4, 3, 8}, {5, 4, 6, 3}},
      {{3, 5, 5, 8}, {3, 5, 1, 8}, {3, 5, 1, 8}, {1}},
      {{7, 2, 5, 8}, {7, 2, 9, 8}, {7, 2, 9, 8}, {9}},
      {{4, 5, 5, 8}, {4, 5, 6, 8}, {4, 5, 6, 8}, {5, 1}, "bhsbhsbhsbhs"},
      {{4, 5, 5, 8}, {4, 5, 6, 8}, {4, 5, 6, 8}, {-1}, "bshbhsbhsbsh"},
      {{1, 1, 6, 8}, {1, 1, 6, 8}, {1, 1, 6, 8}, {-1}, "bhsbshbhsbsh"},
      {{6, 1, 5, 8}, {6, 1, 5, 8}, {6, 1, 5, 8}, {6, 1, 5, 5}},
  };
  return cases;
}

TEST_F(CudaFusedAttention, IsTheLibrarysWhereItHasAPlanAndElseByParts) {
  const OpenDevice device = open();
  for (const bp_dtype type : {BP_FLOAT16, BP_BFLOAT16}) {
    for (const PartsCase& each : plain_cases()) {
      stand_in().attends = nullptr;
      EXPECT_EQ(expect_right(device, each, type, "fp32").rfind("cudnn, ", 0), 0u);
    }
    const OpenDevice other = open();
    stand_in().attends = [](const Attention&) { return false; };
    for (const PartsCase& each : plain_cases()) {
      if (type == BP_BFLOAT16 && &each != plain_cases().data()) break;
      for (const std::uint64_t offset : {0, 2}) {
        const std::string variant = expect_right(other, each, type, "fp32", offset);
        EXPECT_EQ(variant.rfind("by parts: cuDNN has no plan", 0), 0u) << variant;
      }
    }
  }
}

TEST_F(CudaFusedAttention, OfFloatsIsExactByPartsOrRoundedByTheLibrary) {
  const OpenDevice device = open();
  for (const PartsCase& each : plain_cases()) {
    for (const char* const precision : {"fp32", "tf32"})
      EXPECT_EQ(expect_right(device, each, BP_FLOAT, precision),
                sdk::message("by parts: float32 with precision ", precision,
                             "; cuDNN's is of fp16 and bf16"));
  }
  EXPECT_EQ(stand_in().products.back().precision, Precision::kTf32);
  EXPECT_EQ(stand_in().count("attention"), 0u);
  const auto run = prepare(device, plain_cases()[0], BP_FLOAT, "fp16");
  EXPECT_EQ(run->kernel().variant(), "cudnn, float16");
}

TEST_F(CudaFusedAttention, WhatBroadcastsIsComputedAsByTheNodes) {
  const OpenDevice device = open();
  const std::vector<PartsCase> cases = {
      {{1, 2, 3, 8}, {4, 2, 5, 8}, {4, 2, 5, 8}},
      {{4, 3, 3, 8}, {4, 1, 5, 8}, {4, 1, 5, 8}},
      {{6, 5, 3, 8}, {1, 1, 5, 8}, {6, 5, 5, 8}, {6, 1, 1, 5}},
      {{1, 2, 3, 8}, {1, 2, 5, 8}, {3, 2, 5, 8}},
      {{1, 2, 1, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {3, 2, 4, 5}},
      {{2, 2, 3, 8}, {2, 2, 1, 8}, {2, 2, 4, 8}, {4}},
  };
  for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16}) {
    for (const PartsCase& each : cases)
      EXPECT_EQ(expect_right(device, each, type, "fp16"),
                "by parts: its operands are repeated along axes");
  }
}

TEST_F(CudaFusedAttention, SizesOfNoneAndRowsThatAreDividedAreRight) {
  const OpenDevice device = open();
  EXPECT_EQ(expect_right(device, {{0, 2, 3, 8}, {0, 2, 3, 8}, {0, 2, 3, 8}}, BP_FLOAT16, "fp32"),
            "");
  EXPECT_EQ(expect_right(device, {{2, 2, 3, 8}, {2, 2, 0, 8}, {2, 2, 0, 8}}, BP_FLOAT16, "fp32"),
            "by parts: it has no positions");
  EXPECT_EQ(expect_right(device, {{2, 2, 3, 0}, {2, 2, 4, 0}, {2, 2, 4, 8}}, BP_FLOAT16, "fp32"),
            "by parts: it has no positions");
  const std::string odd =
      expect_right(device, {{2, 2, 5, 6}, {2, 2, 4, 6}, {2, 2, 4, 6}}, BP_FLOAT16, "fp32");
  EXPECT_EQ(odd.rfind("by parts: heads of 6 elements", 0), 0u) << odd;
  const std::int64_t many = 9000;
  for (const bp_dtype type : {BP_FLOAT, BP_BFLOAT16})
    for (const Dims& mask : {Dims{many}, Dims{1, 1}})
      expect_right(device, {{1, 1, 1, 4}, {1, 1, many, 4}, {1, 1, many, 4}, mask}, type, "fp32");
  try {
    prepare(device, {{1, 2, 3, 8}, {1, 2, 5, 8}, {1, 2, 4, 8}}, BP_FLOAT, "fp32");
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_INVALID_ARGUMENT) << error.what();
  }
}

/// Of models that decode: nothing is planned for the number of keys, and heads that share keys read them once.
TEST_F(CudaFusedAttention, FewRowsAreComputedByRows) {
  const OpenDevice device = open();
  const std::vector<PartsCase> cases = {
      {{1, 2, 1, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}},
      {{2, 6, 1, 8}, {2, 3, 17, 8}, {2, 3, 17, 16}, {2, 1, 1, 17}, "bhsbhsbhsbsh", 2},
      {{2, 4, 4, 8}, {2, 1, 9, 8}, {2, 1, 9, 8}, {4, 4, 9}, "bshbhsbhsbsh", 4},
      {{1, 4, 6, 5}, {1, 2, 96, 5}, {1, 2, 96, 7}, {96}, "bhsbshbshbhs", 2},
      {{1, 2, 1, 8}, {1, 1, 1, 8}, {1, 1, 1, 8}, {1}, "bhsbhsbhsbhs", 2},
  };
  for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16, BP_BFLOAT16}) {
    for (const PartsCase& each : cases)
      EXPECT_EQ(expect_right(device, each, type, "fp32"), "by rows");
  }
  EXPECT_EQ(stand_in().count("attention") + stand_in().count("product"), 0u);
}

TEST_F(CudaFusedAttention, ManyRowsOfHeadsThatShareKeysAreTheLibrarysOrByParts) {
  const OpenDevice device = open();
  const PartsCase shared{{2, 6, 7, 8}, {2, 3, 9, 8},   {2, 3, 9, 16},
                         {2, 1, 7, 9}, "bhsbhsbhsbsh", 2};
  EXPECT_EQ(expect_right(device, shared, BP_FLOAT16, "fp32"), "cudnn, float16");
  EXPECT_EQ(expect_right(device, shared, BP_FLOAT, "fp32").rfind("by parts: float32", 0), 0u);
  PartsCase wrong = shared;
  wrong.group = 3;
  EXPECT_THROW(prepare(device, wrong, BP_FLOAT, "fp32"), test_host::StatusError);
}

/// As Softmax makes it of a row of infinities, unless the nodes replaced it.
TEST_F(CudaFusedAttention, AFewRowsWithoutAnyPositionAreNaNOrZero) {
  const OpenDevice device = open();
  const float none = -std::numeric_limits<float>::infinity();
  const bp_kernel_def* const def = kernel_named(device, "cuda:attention", "FusedAttention");
  for (const bool is_nan_zero : {false, true}) {
    NodeUnderTest node(kPrivateDomain, "FusedAttention", 1);
    const std::vector<HostTensor> inputs{
        attention_tensor({1, 1, 2, 4}, 1, BP_FLOAT), attention_tensor({1, 1, 3, 4}, 2, BP_FLOAT),
        attention_tensor({1, 1, 3, 4}, 3, BP_FLOAT),
        test_host::tensor<float>(BP_FLOAT, {2, 3}, {none, none, none, 0, none, 0})};
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("axes", std::string("bhsbhsbhsbhs")).attribute("scale", 1.0f);
    if (is_nan_zero) node.attribute("is_nan_zero", std::int64_t{1});
    NodeOnDevice run(device, node, def, inputs);
    const std::vector<double> y = run_attention(run, BP_FLOAT, 0);
    ASSERT_EQ(y.size(), 8u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(is_nan_zero ? y[i] == 0 : std::isnan(y[i])) << y[i];
      EXPECT_FALSE(std::isnan(y[4 + i]));
    }
  }
}

TEST_F(CudaFusedAttention, PartsAreNeverMoreThanTheNodesApart) {
  const OpenDevice device = open();
  struct Counted {
    std::int64_t batch, heads;
    std::size_t products, launches;
  };
  // Apart: four transpositions, two products, and Softmax, which reads the mask.
  for (const Counted& each : {Counted{1, 6, 2, 1}, Counted{6, 1, 2, 1}, Counted{3, 6, 6, 1},
                              Counted{6, 2, 4, 1}, Counted{4, 6, 2, 5}}) {
    const Dims dims{each.batch, each.heads, 5, 8};
    const auto run = prepare(device, {dims, dims, dims, {each.batch, 1, 1, 5}}, BP_FLOAT, "fp32");
    stand_in().calls.clear();
    run->run();
    EXPECT_EQ(stand_in().count("product"), each.products) << each.batch << ' ' << each.heads;
    EXPECT_EQ(stand_in().count("launch"), each.launches) << each.batch << ' ' << each.heads;
  }
}

TEST_F(CudaFusedAttention, WhatTheLibraryStumblesOverIsComputedByParts) {
  const OpenDevice device = open();
  stand_in().failures["plan"] = {"CUDA_ERROR_UNKNOWN"};
  const std::string variant = expect_right(device, plain_cases()[0], BP_FLOAT16, "fp32");
  EXPECT_EQ(variant.rfind("by parts: plan: CUDA_ERROR_UNKNOWN", 0), 0u) << variant;
  EXPECT_EQ(expect_right(device, plain_cases()[0], BP_FLOAT16, "fp32"), "cudnn, float16");
  stand_in().failures["plan"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  EXPECT_THROW(prepare(device, plain_cases()[1], BP_FLOAT16, "fp32"), test_host::StatusError);
}

/// A mask's lowest number, and scores below zero: their sum is less than fp16 has, and a row of infinities would be none.
TEST_F(CudaFusedAttention, ARowWithoutAnyPositionIsNoNaN) {
  const OpenDevice device = open();
  stand_in().attends = [](const Attention&) { return false; };
  const auto filled = [](const Dims& dims, float value) {
    return test_host::tensor<std::uint16_t>(
        BP_FLOAT16, dims,
        std::vector<std::uint16_t>(static_cast<std::size_t>(count_of(dims)),
                                   common::to_half(value).bits));
  };
  const bp_kernel_def* const def = kernel_named(device, "cuda:attention", "FusedAttention");
  for (const std::int64_t lines : {1, 3}) {  // with as many in the mask alone, it is added before
    NodeUnderTest node(kPrivateDomain, "FusedAttention", 1);
    const std::vector<HostTensor> inputs{filled({1, 1, 1, 8}, 8), filled({1, 2, 1, 8}, -8),
                                         filled({1, 2, 1, 8}, 3), filled({1, 1, lines, 2}, -65504)};
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("axes", std::string("bshbshbshbsh")).attribute("scale", 1.0f);
    NodeOnDevice run(device, node, def, inputs);
    for (const double value : run_attention(run, BP_FLOAT16, 0)) EXPECT_EQ(value, 3);
  }
}

}  // namespace
}  // namespace backplane::cuda

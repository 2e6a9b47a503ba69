// FusedAttention of a rewrite: by the library, and by parts where it has no plan; shapes that broadcast, or have no elements.
#include <cmath>
#include <limits>
#include <optional>

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
  float softcap = 0;
  std::optional<bool> chosen{};  /// the mask is of bools, and scores stay where it is this
  float otherwise = -9;          /// what others become
  bool is_flat = false;  /// operands have three axes: the node is not told of their one head
};

constexpr float kScale = 0.4f;

/// Of a case of three axes, without the heads.
Dims told(const PartsCase& each, Dims dims) {
  if (each.is_flat && dims.size() == 4) dims.erase(dims.begin() + 1);
  return dims;
}

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
  Dims dims() const { return told(case_, lying(dims_, case_.axes.substr(9))); }

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
    const auto cap = static_cast<double>(case_.softcap);
    if (cap != 0) sum = cap * std::tanh(sum / cap);
    if (mask_.empty()) return sum;
    const std::int64_t place = place_of(mask_, "bhs", at);
    if (case_.chosen)
      return is_seen(place) == *case_.chosen ? sum : static_cast<double>(case_.otherwise);
    return sum + static_cast<double>(number_at(place, 4));
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
    const auto operand = [&](const Dims& dims, std::size_t index) {
      return attention_tensor(told(each, lying(dims, each.axes.substr(3 * index, 3))),
                              static_cast<int>(index) + 1, type);
    };
    std::vector<HostTensor> inputs{operand(each.q, 0), operand(each.k, 1), operand(each.v, 2)};
    const Dims mask = told(each, each.mask);
    if (each.mask != Dims{-1})
      inputs.push_back(each.chosen ? mask_of_bools(mask) : attention_tensor(mask, 4, type));
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("axes", each.axes).attribute("scale", kScale);
    node.attribute("precision", precision);
    if (each.group > 1) node.attribute("group", each.group);
    if (each.softcap != 0) node.attribute("softcap", each.softcap);
    if (each.chosen)
      node.attribute("chosen", std::int64_t{*each.chosen}).attribute("otherwise", each.otherwise);
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

/// Masks that choose, bounds, and three axes: a few rows by rows, more by parts, whatever the library can do.
TEST_F(CudaFusedAttention, ChosenBoundedAndFlatOnesAreByRowsOrByParts) {
  const OpenDevice device = open();
  const float none = -std::numeric_limits<float>::infinity();
  const std::string all = "bhsbhsbhsbhs";
  std::vector<PartsCase> cases;
  for (const std::int64_t rows : {3, 7}) {
    const Dims q{2, 4, rows, 8}, k{2, 4, 9, 8}, flat_q{6, 1, rows, 8}, flat_k{6, 1, 9, 8};
    for (const bool chosen : {false, true}) {
      cases.push_back({q, k, k, {2, 1, rows, 9}, all, 1, 0, chosen});
      cases.push_back({q, k, k, {9}, "bshbhsbshbsh", 1, 0, chosen, none});
      cases.push_back({flat_q, flat_k, flat_k, {6, 1, rows, 9}, all, 1, 1.5f, chosen, -2, true});
      cases.push_back({q, {2, 2, 9, 8}, {2, 2, 9, 8}, {1, 4, 1, 9}, all, 2, 0.5f, chosen});
    }
    cases.push_back({q, k, k, {-1}, all, 1, 1.5f});
    cases.push_back({q, k, k, {2, 1, rows, 9}, all, 1, 0.75f});
    cases.push_back({flat_q, flat_k, {6, 1, 9, 5}, {-1}, all, 1, 0, {}, 0, true});
    cases.push_back({flat_q, flat_k, flat_k, {rows, 9}, all, 1, 0, {}, 0, true});
  }
  // A mask that is repeated along the keys, and one of axes that the scores have not.
  cases.push_back({{2, 4, 3, 8}, {2, 4, 9, 8}, {2, 4, 9, 8}, {3, 1}, all, 1, 0.5f, true});
  cases.push_back({{1, 2, 1, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {3, 2, 4, 5}, all, 1, 0.5f, false});
  cases.push_back({{1, 2, 1, 8}, {1, 2, 5, 8}, {1, 2, 5, 8}, {3, 2, 4, 5}, all, 1, 0.5f});
  for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16}) {
    for (const PartsCase& each : cases) {
      const std::string variant = expect_right(device, each, type, "fp32");
      const bool is_few = each.q[2] == 3 && each.mask != Dims{3, 1};
      const bool is_plain = each.softcap == 0 && !each.chosen;
      if (is_few || !is_plain) {
        EXPECT_EQ(variant.substr(0, 8), is_few ? "by rows" : "by parts") << variant;
      } else if (type == BP_FLOAT16) {
        EXPECT_EQ(variant, each.v[3] == 8 ? "cudnn, float16" : variant);
      }
    }
  }
}

/// Sums of a row's lanes meet in 48 KiB of local memory at most.
TEST_F(CudaFusedAttention, FewRowsOfAnyWidthFitAGroup) {
  const OpenDevice device = open();
  for (const std::int64_t width : {1000, 1024, 3500}) {
    const PartsCase wide{{1, 1, 1, 8}, {1, 1, 2, 8}, {1, 1, 2, width}};
    for (const bp_dtype type : {BP_FLOAT, BP_FLOAT16}) {
      const std::string variant = expect_right(device, wide, type, "fp32");
      EXPECT_EQ(variant.substr(0, 8), width > 1024 ? "by parts" : "by rows") << variant;
    }
  }
  // With a cap, which the parts of ONNX's operator do not compute.
  const auto run = [&](std::int64_t width) {
    NodeUnderTest node("", "Attention", 23);
    const std::vector<HostTensor> inputs{attention_tensor({1, 1, 1, 8}, 1, BP_FLOAT),
                                         attention_tensor({1, 1, 1, 8}, 2, BP_FLOAT),
                                         attention_tensor({1, 1, 1, width}, 3, BP_FLOAT)};
    for (const HostTensor& tensor : inputs) node.input(tensor.dtype, tensor.dims);
    node.outputs(1).attribute("softcap", 1.0f);
    NodeOnDevice made(device, node, kernel_named(device, "cuda:cached_attention", "Attention"),
                      inputs);
    const std::vector<double> y = run_attention(made, BP_FLOAT, 0);
    for (std::int64_t e = 0; e < width; ++e)
      EXPECT_EQ(y[static_cast<std::size_t>(e)], static_cast<double>(number_at(e, 3)));
  };
  run(3500);
  run(6144);
  EXPECT_THROW(run(6148), test_host::StatusError);
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
  // So with a mask that chooses and a bound, which apart would be part of the Softmax, too; of three axes all is one batch.
  const Dims dims{6, 1, 5, 8};
  for (const bool is_flat : {false, true}) {
    const PartsCase bounded{dims, dims, dims, {6, 1, 1, 5}, "bhsbhsbhsbhs",
                            1,    2,    true, -9,           is_flat};
    const auto run = prepare(device, bounded, BP_FLOAT, "fp32");
    stand_in().calls.clear();
    run->run();
    EXPECT_EQ(stand_in().count("product"), 2u);
    EXPECT_EQ(stand_in().count("launch"), 1u);
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

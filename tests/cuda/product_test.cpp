// Matrix products: their form for the library, addresses, algorithms that are kept, precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <unistd.h>

#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

/// MatMul by its definition, element by element of the broadcast output.
std::vector<float> matmul_reference(HostTensor a, HostTensor b) {
  if (a.dims.size() == 1) a.dims.insert(a.dims.begin(), 1);
  if (b.dims.size() == 1) b.dims.push_back(1);
  const std::vector<float> left = a.as<float>(), right = b.as<float>();
  const std::int64_t rows = a.dims[a.dims.size() - 2], depth = a.dims.back(),
                     columns = b.dims.back();
  const Dims a_batch(a.dims.begin(), a.dims.end() - 2), b_batch(b.dims.begin(), b.dims.end() - 2);
  const std::size_t rank = std::max(a_batch.size(), b_batch.size());
  Dims batch(rank, 1);
  const auto dim = [rank](const Dims& dims, std::size_t axis) {
    const std::size_t shift = rank - dims.size();
    return axis < shift ? std::int64_t{1} : dims[axis - shift];
  };
  for (std::size_t axis = 0; axis < rank; ++axis)
    batch[axis] = std::max(dim(a_batch, axis), dim(b_batch, axis));
  std::vector<float> result;
  for (std::int64_t at = 0; at < count_of(batch); ++at) {
    std::int64_t rest = at, a_at = 0, b_at = 0, a_step = 1, b_step = 1;
    for (std::size_t axis = rank; axis-- > 0;) {
      const std::int64_t place = rest % batch[axis];
      rest /= batch[axis];
      if (dim(a_batch, axis) > 1) a_at += place * a_step;
      if (dim(b_batch, axis) > 1) b_at += place * b_step;
      a_step *= dim(a_batch, axis);
      b_step *= dim(b_batch, axis);
    }
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      float sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += left[static_cast<std::size_t>((a_at * rows + i / columns) * depth + k)] *
               right[static_cast<std::size_t>((b_at * depth + k) * columns + i % columns)];
      result.push_back(sum);
    }
  }
  return result;
}

std::vector<float> matmul(const OpenDevice& device, const Dims& a, const Dims& b) {
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, a).input(BP_FLOAT, b).outputs(1);
  return NodeOnDevice(device, node, device.kernel("MatMul"), {numbers(a, 1), numbers(b, 2)}).run();
}

TEST_F(CudaTest, MatMulsOfAllRanksAreRight) {
  const OpenDevice device = open();
  const std::vector<std::pair<Dims, Dims>> cases = {
      {{3, 5}, {5, 7}},
      {{1, 5}, {5, 1}},
      {{5}, {5}},
      {{5}, {5, 3}},
      {{4, 5}, {5}},
      {{2, 3, 4}, {4, 5}},
      {{2, 3, 4}, {2, 4, 5}},
      {{3, 4}, {2, 4, 5}},
      {{2, 1, 3, 4}, {1, 3, 4, 2}},
      {{2, 3, 2, 4}, {3, 4, 5}},
      {{2, 3, 1, 4}, {2, 1, 4, 5}},
      {{7, 1, 3}, {3, 1}},
      {{2, 2, 2, 3, 4}, {2, 1, 2, 4, 3}},
  };
  for (const auto& [a, b] : cases) {
    EXPECT_EQ(matmul(device, a, b), matmul_reference(numbers(a, 1), numbers(b, 2)))
        << sdk::to_string(a) << ' ' << sdk::to_string(b);
  }
}

TEST_F(CudaTest, ABatchOfOneMatrixIsMoreRowsAndAnotherIsOneCall) {
  const OpenDevice device = open();
  matmul(device, {6, 3, 4}, {4, 5});
  EXPECT_EQ(stand_in().products.front().b.columns, 18);
  EXPECT_EQ(stand_in().products.front().batch, 1);
  stand_in().products.clear();
  matmul(device, {6, 3, 4}, {6, 4, 5});
  EXPECT_EQ(stand_in().products.front().batch, 6);
  EXPECT_EQ(stand_in().count_of_run("product"), 1u);
}

TEST_F(CudaTest, ABatchOfMoreMatricesThanTheLibraryTakesIsSeveralCalls) {
  const OpenDevice device = open();
  for (const Dims& a : {Dims{70000, 1, 3}, Dims{65536, 1, 3}}) {
    const Dims b{a[0], 3, 2};
    EXPECT_EQ(matmul(device, a, b), matmul_reference(numbers(a, 1), numbers(b, 2)))
        << sdk::to_string(a);
    EXPECT_EQ(stand_in().count_of_run("product"), a[0] == 65536 ? 2u : 3u);
  }
}

TEST_F(CudaTest, WhatTheLibraryDoesNotDoAfterAProductAKernelDoes) {
  run_kernels_on_host();
  const auto computed = [this](const char* activation, std::string& variant) {
    const OpenDevice device = open();
    const HostTensor a = numbers({2, 3, 4}, 1), b = numbers({4, 5}, 2), row = numbers({5}, 3);
    NodeUnderTest node(kPrivateDomain, "FusedMatMul", 1);
    node.input(BP_FLOAT, a.dims).input(BP_FLOAT, b.dims).input(BP_FLOAT, row.dims).outputs(1);
    node.attribute("activation", activation);
    NodeOnDevice run(device, node, device.kernel("FusedMatMul", kPrivateDomain), {a, b, row});
    variant = run.kernel().variant();
    return run.run();
  };
  for (const char* const activation : {"Relu", "Gelu"}) {
    std::string at_once, apart;
    stand_in().multiplies = nullptr;
    const std::vector<float> want = computed(activation, at_once);
    stand_in().multiplies = [](const LibraryProduct& product) {
      return !product.has_bias && product.epilogue == Epilogue::kNone;
    };
    const std::vector<float> got = computed(activation, apart);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
    EXPECT_EQ(at_once, "cublaslt");
    EXPECT_EQ(apart, "cublaslt, then pointwise");
  }
}

TEST_F(CudaTest, WeightsAreSaidToBeConstantWhereTheyAre) {
  const OpenDevice device = open();
  NodeUnderTest matmul("", "MatMul", 13), conv("", "Conv", 11);
  matmul.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
  conv.input(BP_FLOAT, {1, 2, 4, 4}).input(BP_FLOAT, {3, 2, 1, 1}).outputs(1);
  const auto expect = [&](const NodeUnderTest& node, const char* op_type, const Dims& a,
                          const Dims& b) {
    for (const bool is_constant : {false, true}) {
      NodeOnDevice(device, node, device.kernel(op_type), {numbers(a, 1), numbers(b, 2)},
                   {false, is_constant})
          .run();
      EXPECT_EQ(stand_in().constant_weights.back(), is_constant) << op_type;
    }
  };
  expect(matmul, "MatMul", {3, 4}, {4, 5});
  expect(conv, "Conv", {1, 2, 4, 4}, {3, 2, 1, 1});
}

TEST_F(CudaTest, AnEmptyProductEnqueuesNothing) {
  const OpenDevice device = open();
  EXPECT_EQ(matmul(device, {0, 4}, {4, 5}), std::vector<float>());
  EXPECT_EQ(stand_in().count("product") + stand_in().count("launch"), 0u);
}

TEST_F(CudaTest, AProductWithoutDepthIsWhatIsAddedToIt) {
  run_kernels_on_host();
  const OpenDevice device = open();
  EXPECT_EQ(matmul(device, {2, 0}, {0, 3}), std::vector<float>(6, 0));
  EXPECT_EQ(matmul(device, {3, 2, 0}, {0, 2}), std::vector<float>(12, 0));
  NodeUnderTest gemm("", "Gemm", 13);
  gemm.input(BP_FLOAT, {2, 0}).input(BP_FLOAT, {0, 3}).input(BP_FLOAT, {2, 1}).outputs(1);
  gemm.attribute("beta", 0.5f);
  EXPECT_EQ(NodeOnDevice(device, gemm, device.kernel("Gemm"),
                         {floats({2, 0}, {}), floats({0, 3}, {}), floats({2, 1}, {4, -6})})
                .run(),
            (std::vector<float>{2, 2, 2, -3, -3, -3}));
  NodeUnderTest fused(kPrivateDomain, "FusedMatMul", 1);
  fused.input(BP_FLOAT, {2, 0}).input(BP_FLOAT, {0, 2}).input(BP_FLOAT, {2});
  fused.input(BP_FLOAT, {2, 2}).outputs(1).attribute("activation", std::string("Relu"));
  EXPECT_EQ(NodeOnDevice(device, fused, device.kernel("FusedMatMul", kPrivateDomain),
                         {floats({2, 0}, {}), floats({0, 2}, {}), floats({2}, {1, -1}),
                          floats({2, 2}, {1, 2, -3, -4})})
                .run(),
            (std::vector<float>{2, 1, 0, 0}));
  EXPECT_EQ(stand_in().count("product"), 0u);
}

struct GemmCase {
  bool trans_a, trans_b;
  float alpha, beta;
  Dims c;
};

constexpr std::int64_t kRows = 3, kDepth = 4, kColumns = 5;

std::vector<float> gemm_of(const GemmCase& each, const HostTensor& a, const HostTensor& b,
                           const HostTensor& c) {
  std::vector<float> want;
  const std::vector<float> left = a.as<float>(), right = b.as<float>(), added = c.as<float>();
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const std::int64_t row = i / kColumns, column = i % kColumns;
    float sum = 0;
    for (std::int64_t k = 0; k < kDepth; ++k)
      sum += left[static_cast<std::size_t>(each.trans_a ? k * kRows + row : row * kDepth + k)] *
             right[static_cast<std::size_t>(each.trans_b ? column * kDepth + k
                                                         : k * kColumns + column)];
    const bool by_row = each.c.size() == 2 && each.c[0] > 1;
    const bool by_column = !each.c.empty() && each.c.back() > 1;
    const std::int64_t at =
        (by_row ? row : 0) * (by_column ? kColumns : 1) + (by_column ? column : 0);
    want.push_back(each.alpha * sum + each.beta * added[static_cast<std::size_t>(at)]);
  }
  return want;
}

TEST_F(CudaTest, GemmsAreRightInEveryOrderAndWithEveryAddend) {
  const OpenDevice device = open();
  // Spreads the addend out where the library cannot: the only kernel that a Gemm launches.
  Dims c_dims;
  stand_in().kernel = [&](const std::string&, const Extent&, const Extent&, void** arguments) {
    Address from = 0, to = 0;
    std::memcpy(&from, arguments[0], sizeof(from));
    std::memcpy(&to, arguments[2], sizeof(to));
    const bool by_row = c_dims.size() == 2 && c_dims[0] > 1,
               by_column = !c_dims.empty() && c_dims.back() > 1;
    for (std::int64_t i = 0; i < kRows * kColumns; ++i)
      memory_at<float>(to)[i] = memory_at<float>(from)[by_row      ? i / kColumns
                                                       : by_column ? i % kColumns
                                                                   : 0];
  };
  std::vector<GemmCase> cases;
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const Dims& c : std::vector<Dims>{{5}, {1, 5}, {3, 1}, {1}, {}, {3, 5}})
        cases.push_back({trans_a, trans_b, 1, 1, c});
      cases.push_back({trans_a, trans_b, 2, 3, {5}});
    }
  }
  for (const GemmCase& each : cases) {
    c_dims = each.c;
    const Dims a_dims = each.trans_a ? Dims{kDepth, kRows} : Dims{kRows, kDepth};
    const Dims b_dims = each.trans_b ? Dims{kColumns, kDepth} : Dims{kDepth, kColumns};
    const HostTensor a = numbers(a_dims, 1), b = numbers(b_dims, 2), c = numbers(each.c, 3);
    NodeUnderTest node("", "Gemm", 13);
    node.input(BP_FLOAT, a_dims).input(BP_FLOAT, b_dims).input(BP_FLOAT, each.c).outputs(1);
    node.attribute("transA", std::int64_t{each.trans_a})
        .attribute("transB", std::int64_t{each.trans_b});
    node.attribute("alpha", each.alpha).attribute("beta", each.beta);
    EXPECT_EQ(NodeOnDevice(device, node, device.kernel("Gemm"), {a, b, c}).run(),
              gemm_of(each, a, b, c))
        << each.trans_a << each.trans_b << ' ' << sdk::to_string(each.c);
  }
  EXPECT_EQ(stand_in().count("launch"), 4u * 4) << "rows and whole matrices take no launch";
}

TEST_F(CudaTest, AFusedProductAddsARowAndAMatrixAndActivates) {
  const OpenDevice device = open();
  const HostTensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2), row = numbers({5}, 3),
                   matrix = numbers({3, 5}, 4);
  const std::vector<float> product = matmul_reference(a, b);
  for (const std::string activation : {"", "Relu", "Gelu"}) {
    NodeUnderTest node(kPrivateDomain, "FusedMatMul", 1);
    node.input(BP_FLOAT, {3, 4})
        .input(BP_FLOAT, {4, 5})
        .input(BP_FLOAT, {5})
        .input(BP_FLOAT, {3, 5})
        .outputs(1);
    if (!activation.empty()) node.attribute("activation", activation);
    NodeOnDevice run(device, node, device.kernel("FusedMatMul", kPrivateDomain),
                     {a, b, row, matrix});
    const std::vector<float> got = run.run();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double sum =
          static_cast<double>(product[i] + row.as<float>()[i % 5] + matrix.as<float>()[i]);
      const double want = activation == "Relu" ? std::max(sum, 0.0)
                          : activation == "Gelu"
                              ? 0.5 * sum *
                                    (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) *
                                                   (sum + 0.044715 * std::pow(sum, 3))))
                              : sum;
      EXPECT_NEAR(static_cast<double>(got[i]), want, 1e-5) << activation << i;
    }
  }
  NodeUnderTest node(kPrivateDomain, "FusedMatMul", 1);
  node.input(BP_FLOAT, {3, 4})
      .input(BP_FLOAT, {4, 5})
      .outputs(1)
      .attribute("activation", std::string("Selu"));
  EXPECT_THROW(NodeOnDevice(device, node, device.kernel("FusedMatMul", kPrivateDomain), {a, b}),
               test_host::StatusError);
}

TEST_F(CudaTest, AddressesThatAreNotAlignedTakeTheOtherAlgorithm) {
  const OpenDevice device = open();
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
  const HostTensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2);
  NodeOnDevice run(device, node, device.kernel("MatMul"), {a, b});
  EXPECT_EQ(stand_in().products.size(), 2u);
  // The stand-in throws for an address that is less aligned than was promised.
  EXPECT_EQ(run.run(0), matmul_reference(a, b));
  EXPECT_EQ(run.run(16), matmul_reference(a, b));
  EXPECT_EQ(run.run(4), matmul_reference(a, b));
}

TEST_F(CudaTest, ABiasThatIsNotAlignedIsCopiedToAPlaceThatIs) {
  const OpenDevice device = open();
  const HostTensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2), row = numbers({5}, 3);
  NodeUnderTest node(kPrivateDomain, "FusedMatMul", 1);
  node.input(BP_FLOAT, a.dims).input(BP_FLOAT, b.dims).input(BP_FLOAT, row.dims).outputs(1);
  stand_in().proposals = {{{1}, 1000}};
  NodeOnDevice run(device, node, device.kernel("FusedMatMul", kPrivateDomain), {a, b, row});
  EXPECT_EQ(run.kernel().workspace_bytes(), 1024 + 5 * sizeof(float)) << "behind the library's";
  std::vector<float> want = matmul_reference(a, b);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += row.as<float>()[i % 5];
  for (const std::uint64_t offset : {0, 16, 4}) {
    const std::vector<float> got = run.run(offset);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << offset;
    EXPECT_EQ(stand_in().count_of_run("copy"), offset == 4 ? 2u : 1u) << "one is the result's";
  }
}

TEST_F(CudaTest, WhereTheLibraryHasNoAlgorithmForOtherAddressesOnlyTheyAreRefused) {
  stand_in().least_alignment = kLibraryAlignment;
  const OpenDevice device = open();
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
  const HostTensor a = numbers({3, 4}, 1), b = numbers({4, 5}, 2);
  NodeOnDevice run(device, node, device.kernel("MatMul"), {a, b});
  EXPECT_EQ(run.run(16), matmul_reference(a, b));
  try {
    run.run(4);
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("no multiple of 16 bytes"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(run.run(0), matmul_reference(a, b));
}

TEST_F(CudaTest, TheWorkspaceIsWhatBothAlgorithmsNeedAndWithinTheLimit) {
  const std::uint64_t limit = workspace_limit(stand_in_device(9, 0));
  EXPECT_EQ(limit, 32u << 20);
  EXPECT_EQ(workspace_limit(stand_in_device(8, 6)), 8u << 20);
  stand_in().proposals = {{{1}, limit + 1}, {{2}, 4096}, {{3}, 0}};
  const OpenDevice device = open();
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
  NodeOnDevice run(device, node, device.kernel("MatMul"), {numbers({3, 4}, 1), numbers({4, 5}, 2)});
  EXPECT_EQ(run.kernel().workspace_bytes(), 4096u);
  EXPECT_EQ(stand_in().algorithms.front().words[0], 2u) << "the best one that is small enough";
}

TEST_F(CudaTest, AProductThatTheLibraryHasNoAlgorithmForIsRefusedWithItsForm) {
  stand_in().proposals = {};
  const OpenDevice device = open();
  try {
    matmul(device, {3, 4}, {4, 5});
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("stand-in 1 has no algorithm"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("float 5x4"), std::string::npos) << error.what();
  }
}

TEST_F(CudaTest, AProductThatFailsNamesTheNode) {
  const OpenDevice device = open();
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
  NodeOnDevice run(device, node, device.kernel("MatMul"), {numbers({3, 4}, 1), numbers({4, 5}, 2)});
  stand_in().failures["product"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  try {
    run.run();
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(error.what()).rfind("node '", 0), 0u) << error.what();
  }
  EXPECT_EQ(run.run(), matmul_reference(numbers({3, 4}, 1), numbers({4, 5}, 2)));
}

TEST_F(CudaTest, ThePrecisionIsThatOfTheOptionForFloatsAlone) {
  const std::pair<const char*, Precision> rows[] = {{"fp32", Precision::kFp32},
                                                    {"tf32", Precision::kTf32},
                                                    {"fp16", Precision::kFp16},
                                                    {"bf16", Precision::kBf16}};
  for (const auto& [name, precision] : rows) {
    stand_in().products.clear();
    const OpenDevice device = open({{"precision", name}});
    matmul(device, {3, 4}, {4, 5});
    EXPECT_EQ(stand_in().products.front().precision, precision) << name;
    stand_in().products.clear();
    NodeUnderTest node("", "MatMul", 13);
    node.input(BP_FLOAT16, {3, 4}).input(BP_FLOAT16, {4, 5}).outputs(1);
    KernelUnderTest kernel(device.kernel("MatMul"), device.raw(), node.raw());
    kernel.prepare({{BP_FLOAT16, {3, 4}, {}}, {BP_FLOAT16, {4, 5}, {}}}, {false, false}, 1);
    EXPECT_EQ(stand_in().products.front().precision, Precision::kFp32) << name;
    EXPECT_EQ(stand_in().products.back().alignment, 2u);
  }
  EXPECT_THROW(open({{"precision", "fp8"}}), test_host::StatusError);
}

TEST_F(CudaTest, ThePrecisionOfSomeNodesIsAnother) {
  const auto precision_of = [this](const char* rules, const char* op_type, const char* origin) {
    stand_in().products.clear();
    const OpenDevice device = open({{"precision", "tf32"}, {"precision_of", rules}});
    NodeUnderTest node(kPrivateDomain, op_type, 1);
    node.input(BP_FLOAT, {3, 4}).input(BP_FLOAT, {4, 5}).outputs(1);
    node.attribute("origin", std::string(origin));
    KernelUnderTest kernel(device.kernel(op_type, kPrivateDomain), device.raw(), node.raw());
    kernel.prepare({floats({3, 4}, {}), floats({4, 5}, {})}, {false, false}, 1);
    return stand_in().products.front().precision;
  };
  EXPECT_EQ(precision_of("", "FusedGemm", "head"), Precision::kTf32);
  EXPECT_EQ(precision_of("op:Gemm=fp32", "FusedGemm", "head"), Precision::kFp32);
  EXPECT_EQ(precision_of("op:Gemm=fp32", "FusedMatMul", "head"), Precision::kTf32);
  EXPECT_EQ(precision_of("op:Gemm=fp32,head*=bf16", "FusedGemm", "head/0"), Precision::kBf16);
  EXPECT_EQ(precision_of("head*=bf16,op:Gemm=fp32", "FusedGemm", "head/0"), Precision::kFp32);
  for (const char* const wrong : {"head", "=fp32", "head=fp64", "head=fp32,tail"}) {
    try {
      precision_of(wrong, "FusedGemm", "head");
      ADD_FAILURE() << wrong;
    } catch (const test_host::StatusError& error) {
      EXPECT_EQ(error.code(), BP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find("precision_of"), std::string::npos) << error.what();
    }
  }
}

/// A store over the stand-in's library, in a folder of its own.
class ProductStoreTest : public CudaTest {
 protected:
  ~ProductStoreTest() override { std::filesystem::remove_all(folder_); }
  /// What a new process would do.
  std::pair<ProductAlgorithm, ProductStore::Counts> choose(const LibraryProduct& product,
                                                           const DeviceTraits& traits) const {
    const std::unique_ptr<Engine> engine = load_stand_in_engine();
    const std::unique_ptr<Context> context = load_stand_in()->open(0);
    const std::unique_ptr<ProductLibrary> library = engine->open_products(*context);
    ProductStore store(*library, traits, folder_.string(), nullptr);
    const ProductAlgorithm algorithm = store.choose(product, Choosing::kByRule);
    store.choose(product, Choosing::kByRule);
    return {algorithm, store.counts()};
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / sdk::message("cuda_products_", ::getpid());
};

LibraryProduct some_product(std::int64_t rows = 3) {
  Product product;
  product.rows = rows;
  product.depth = product.a.step = 4;
  product.columns = product.b.step = 5;
  return to_library(product, 16);
}

TEST_F(ProductStoreTest, AnAlgorithmIsChosenOnceAndKeptOnDisk) {
  stand_in().proposals = {{{41, 42}, 512}};
  EXPECT_EQ(choose(some_product(), stand_in_device()).second.planned, 1u);
  stand_in().proposals = {{{99}, 0}};
  const auto [algorithm, counts] = choose(some_product(), stand_in_device());
  EXPECT_EQ(counts.planned, 0u);
  EXPECT_EQ(counts.read, 1u);
  EXPECT_EQ(algorithm.words[1], 42u);
  EXPECT_EQ(algorithm.workspace_bytes, 512u);
}

TEST_F(ProductStoreTest, AnotherLibraryDeviceOrFormIsChosenForAnew) {
  choose(some_product(), stand_in_device());
  EXPECT_EQ(choose(some_product(7), stand_in_device()).second.planned, 1u);
  EXPECT_EQ(choose(some_product(), stand_in_device(8, 0)).second.planned, 1u);
  DeviceTraits other = stand_in_device();
  other.name = "Other";
  EXPECT_EQ(choose(some_product(), other).second.planned, 1u);
  stand_in().library_version = "stand-in 2";
  EXPECT_EQ(choose(some_product(), stand_in_device()).second.planned, 1u);
}

TEST_F(ProductStoreTest, AKeptAlgorithmThatTheLibraryRefusesIsChosenAnew) {
  choose(some_product(), stand_in_device());
  stand_in().serves_kept = false;
  EXPECT_EQ(choose(some_product(), stand_in_device()).second.planned, 1u);
}

TEST(CudaProductKey, TellsEveryFormFromEveryOther) {
  const std::vector<std::function<void(LibraryProduct&)>> changes = {
      [](auto& p) { p.a.type = sdk::DataType::Float16; },
      [](auto& p) { p.a.rows = 9; },
      [](auto& p) { p.b.columns = 9; },
      [](auto& p) { p.d.step = 9; },
      [](auto& p) { p.a.is_transposed = true; },
      [](auto& p) { p.b.batch_step = 9; },
      [](auto& p) { p.batch = 2; },
      [](auto& p) { p.has_addend = true; },
      [](auto& p) { p.has_bias = true; },
      [](auto& p) { p.epilogue = Epilogue::kRelu; },
      [](auto& p) { p.precision = Precision::kTf32; },
      [](auto& p) { p.alignment = 4; },
  };
  std::vector<std::string> keys{some_product().key()};
  for (const auto& change : changes) {
    LibraryProduct product = some_product();
    change(product);
    keys.push_back(product.key());
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

}  // namespace
}  // namespace backplane::cuda

// Products of few rows by the provider's own kernel: what it computes, of every form, and when it is taken.
#include <algorithm>

#include "plugins/cuda/row_products.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"
#include "tests/cuda/product_case.hpp"

namespace backplane::cuda {
namespace {

using device_ops::RowProduct;
using device_ops::RowProductDevice;
using device_ops::RowProductForm;
using sdk::DataType;

constexpr RowProductDevice kLarge{132, 3000};

std::string text_of(const RowProductForm& form) {
  return sdk::message(form.across, " across, ", form.lanes, " lanes of ", form.items, ", ",
                      form.per, " each, ", form.unrolled, " at once, ", form.parts, " parts");
}

class CudaRowProduct : public CudaProcessTest {
 protected:
  static void expect_right(Device& device, const ProductCase& each, const RowProductForm& form) {
    const std::optional<RowProduct> rows = to_row_product(to_library(each.product(), 16));
    ASSERT_TRUE(rows) << each.text();
    expect_product(device, each, to_algorithm(*rows, form), text_of(form));
  }
  /// All forms that are proposed for a large device, and for a small one.
  static void expect_right(Device& device, const ProductCase& each) {
    const RowProduct product = *to_row_product(to_library(each.product(), 16));
    for (const RowProductDevice& traits : {kLarge, RowProductDevice{1, 0}}) {
      for (const RowProductForm& form : device_ops::row_product_forms(product, traits))
        expect_right(device, each, form);
    }
  }
};

TEST_F(CudaRowProduct, EveryTypeAndOrderIsRightAtEveryAddress) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  for (const DataType type : {DataType::Float16, DataType::BFloat16, DataType::Float}) {
    for (const bool is_apart : {false, true}) {
      for (const std::uint64_t offset : {0, 4, 16}) {
        for (const auto& [depth, columns] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{64, 64}, {200, 72}, {129, 65}}) {
          ProductCase each;
          each.type = type;
          each.is_apart = is_apart;
          each.depth = depth;
          each.columns = columns;
          each.offset = offset;
          expect_right(*device, each);
        }
      }
    }
  }
}

TEST_F(CudaRowProduct, SmallAndOddSizesAreRight) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  for (const bool is_apart : {false, true}) {
    for (const std::int64_t depth : {1, 7, 8, 1000}) {
      for (const std::int64_t columns : {1, 3, 8, 17}) {
        ProductCase each;
        each.is_apart = is_apart;
        each.depth = depth;
        each.columns = columns;
        expect_right(*device, each);
        each.offset = 2;
        expect_right(*device, each);
      }
    }
  }
}

TEST_F(CudaRowProduct, SeveralRowsMatricesAndStepsAreRight) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  for (const bool is_apart : {false, true}) {
    for (const std::int64_t rows : {1, 2, 3, 4}) {
      for (const std::int64_t more : {0, 8, 3}) {
        ProductCase each;
        each.is_apart = is_apart;
        each.rows = rows;
        each.more = more;
        each.depth = 96;
        each.columns = 40;
        each.matrices = more == 0 ? 1 : 3;
        expect_right(*device, each);
        each.a_is_transposed = true;
        each.type = DataType::Float;
        expect_right(*device, each);
      }
    }
  }
}

TEST_F(CudaRowProduct, WhatComesAfterTheSumIsDone) {
  run_kernels_on_host();
  const std::unique_ptr<Device> device = new_process();
  for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kRelu, Epilogue::kGelu}) {
    for (const bool has_bias : {false, true}) {
      for (const bool has_addend : {false, true}) {
        ProductCase each;
        each.type = has_bias ? DataType::BFloat16 : DataType::Float16;
        each.epilogue = epilogue;
        each.has_bias = has_bias;
        each.has_addend = each.adds_in_place = has_addend;
        each.factor = -0.5;
        each.addend_factor = 3;
        each.matrices = 2;
        each.depth = 512;  // so that it is divided
        each.columns = 48;
        expect_right(*device, each);
        each.type = DataType::Float;
        each.rows = 2;
        each.adds_in_place = false;
        expect_right(*device, each);
      }
    }
  }
}

/// Forms of a product of a row on a large device.
std::vector<RowProductForm> forms_of(std::int64_t depth, std::int64_t columns, bool is_apart,
                                     DataType type = DataType::Float16) {
  ProductCase each;
  each.type = type;
  each.depth = depth;
  each.columns = columns;
  each.is_apart = is_apart;
  return device_ops::row_product_forms(*to_row_product(to_library(each.product(), 16)), kLarge);
}

TEST_F(CudaRowProduct, GroupsKeepMultiprocessorsBusyAndLaunchesAreFew) {
  // Those of a decoder: a strip is as wide as leaves enough groups.
  EXPECT_EQ(forms_of(2048, 8192, false).front(), (RowProductForm{8, 64, 512, 8, 8, 1}));
  EXPECT_EQ(forms_of(2048, 128256, false).front(), (RowProductForm{8, 32, 256, 8, 8, 1}));
  EXPECT_EQ(forms_of(2048, 2048, false).front(), (RowProductForm{2, 256, 512, 8, 8, 1}));
  EXPECT_EQ(forms_of(2048, 512, false).front(), (RowProductForm{2, 256, 512, 8, 8, 1}));
  EXPECT_EQ(forms_of(8192, 2048, false).front(), (RowProductForm{8, 32, 256, 8, 8, 8}));
  EXPECT_EQ(forms_of(8192, 2048, true).front(), (RowProductForm{1, 32, 256, 1, 8, 1}));
  EXPECT_EQ(forms_of(2048, 128256, true).front(), (RowProductForm{1, 32, 256, 4, 2, 1}));
  EXPECT_EQ(forms_of(2048, 512, true).front(), (RowProductForm{1, 32, 128, 1, 8, 1}));
  for (const bool is_apart : {false, true}) {
    for (const DataType type : {DataType::Float16, DataType::Float}) {
      for (const std::int64_t depth : {64, 2048, 14336}) {
        for (const std::int64_t columns : {64, 512, 4096, 128256}) {
          const std::vector<RowProductForm> forms = forms_of(depth, columns, is_apart, type);
          for (std::size_t i = 0; i < forms.size(); ++i) {
            EXPECT_LE(forms[i].items, 512) << text_of(forms[i]);
            EXPECT_GE(forms[i].items, 32) << text_of(forms[i]);
            EXPECT_EQ(std::count(forms.begin(), forms.end(), forms[i]), 1) << text_of(forms[i]);
          }
        }
      }
    }
  }
}

std::vector<float> row_by(const std::vector<float>& a, const std::vector<float>& b) {
  const std::size_t columns = b.size() / a.size();
  std::vector<float> y(columns, 0);
  for (std::size_t i = 0; i < b.size(); ++i) y[i % columns] += a[i / columns] * b[i];
  return y;
}

constexpr std::int64_t kLongDepth = 512,
                       kManyColumns = 520;  // a matrix of a little more than a MiB

TEST_F(CudaRowProduct, ALoneRowByALargeMatrixIsTheKernels) {
  run_kernels_on_host();
  const OpenDevice device = open({{"precision", "tf32"}, {"tuning", "off"}});
  const HostTensor a = numbers({1, kLongDepth}, 1), b = numbers({kLongDepth, kManyColumns}, 2);
  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, a.dims).input(BP_FLOAT, b.dims).outputs(1);
  NodeOnDevice run(device, node, device.kernel("MatMul"), {a, b});
  EXPECT_EQ(run.kernel().variant(), "few rows") << "and not rounded";
  const std::vector<float> want = row_by(a.as<float>(), b.as<float>());
  for (const std::uint64_t offset : {0, 16, 4}) {
    EXPECT_EQ(run.run(offset), want) << offset;
    const bool is_aligned = offset % kLibraryAlignment == 0;
    EXPECT_EQ(stand_in().count_of_run("launch"), is_aligned ? 1u : 0u) << offset;
    EXPECT_EQ(stand_in().count_of_run("product"), is_aligned ? 0u : 1u) << offset;
  }
}

TEST_F(CudaRowProduct, SmallMatricesMoreRowsAndOtherTypesAreTheLibrarys) {
  const OpenDevice device = open();
  const auto variant = [&](bp_dtype type, std::int64_t rows, std::int64_t columns) {
    NodeUnderTest node("", "MatMul", 13);
    std::vector<HostTensor> inputs;
    for (const Dims& dims : {Dims{rows, kLongDepth}, Dims{kLongDepth, columns}}) {
      node.input(type, dims);
      inputs.push_back({type, dims, {}});
      inputs.back().data.resize(static_cast<std::size_t>(count_of(dims)) *
                                test_host::element_bytes(type));
    }
    node.outputs(1);
    return NodeOnDevice(device, node, device.kernel("MatMul"), inputs).kernel().variant();
  };
  EXPECT_EQ(variant(BP_FLOAT, 1, 256), "cublaslt");
  EXPECT_EQ(variant(BP_FLOAT16, 1, kManyColumns), "cublaslt") << "half a MiB";
  EXPECT_EQ(variant(BP_FLOAT16, 1, 2 * kManyColumns), "few rows");
  EXPECT_EQ(variant(BP_DOUBLE, 1, kManyColumns), "cublaslt");
  EXPECT_EQ(variant(BP_FLOAT, 5, kManyColumns), "cublaslt");
}

LibraryProduct large_form(std::int64_t rows = 1, std::uint32_t alignment = kLibraryAlignment) {
  ProductCase each;
  each.rows = rows;
  each.depth = 1024;
  each.columns = 1024;
  return to_library(each.product(), alignment);
}

/// How the device computes it.
std::string way_of(Device& device, Choosing choosing, const LibraryProduct& form = large_form()) {
  const std::string own =
      device.products().library().own_way(device.products().choose(form, choosing));
  return own.empty() ? "library" : own;
}

TEST_F(CudaRowProduct, ByTimeTheFasterOfKernelAndLibraryIsTakenAndKept) {
  constexpr std::uint64_t kWhole = 1'000'000'000;
  settings_.trials = {1'000'000 * kWhole, 1'000'000 * kWhole};
  const auto kernels_take = [](std::uint64_t ns) {
    stand_in().kernel = [ns](const std::string&, const Extent&, const Extent&, void**) {
      stand_in().ahead_ns += ns;
    };
  };
  stand_in().algorithm_ways[1].takes_ns = 2 * kWhole;
  kernels_take(kWhole);
  EXPECT_EQ(way_of(*new_process(), Choosing::kByTime), "few rows");
  kernels_take(3 * kWhole);
  const std::unique_ptr<Device> later = new_process();
  EXPECT_EQ(way_of(*later, Choosing::kByTime), "few rows") << "as it was found before";
  EXPECT_EQ(later->products().counts().read, 1u);
  EXPECT_EQ(way_of(*later, Choosing::kByTime, large_form(2)), "library");
  EXPECT_EQ(way_of(*later, Choosing::kByRule), "few rows");
  EXPECT_EQ(way_of(*later, Choosing::kByRule, large_form(2)), "library");
  EXPECT_EQ(way_of(*later, Choosing::kByRule, large_form(1, 2)), "library");
  stand_in().library_version = "stand-in 2";
  EXPECT_EQ(way_of(*new_process(), Choosing::kByTime), "library");
  kernels_take(kWhole);
  EXPECT_EQ(way_of(*new_process(), Choosing::kByTime), "library") << "as it was found before";
  EXPECT_EQ(way_of(*new_process(), Choosing::kByTime, large_form(2)), "few rows");
}

TEST_F(CudaRowProduct, AKernelThatFailsIsNoWay) {
  stand_in().failures["launch"] =
      std::vector<std::string>(100, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  const std::unique_ptr<Device> device = new_process();
  EXPECT_EQ(way_of(*device, Choosing::kByTime), "library");
  EXPECT_EQ(way_of(*device, Choosing::kByRule), "library");
}

TEST_F(CudaRowProduct, RunsThatAreComparedFindTheMatrixInNoCache) {
  EXPECT_EQ(operand_sets(large_form()), 64u);
  EXPECT_EQ(operand_sets(large_form(17)), 1u);
  ProductCase small;
  EXPECT_EQ(operand_sets(to_library(small.product(), 16)), 1u);
  std::set<Address> read;
  stand_in().kernel = [&](const std::string&, const Extent&, const Extent& group,
                          void** arguments) {
    if (group == Extent{1, 1, 1}) return;  // the trials' neighbour
    Address matrix = 0;
    std::memcpy(&matrix, arguments[2], sizeof(matrix));
    read.insert(matrix);
  };
  const std::unique_ptr<Device> device = new_process();
  way_of(*device, Choosing::kByTime);
  EXPECT_GT(read.size(), 5u);
  EXPECT_EQ(device->used_bytes(), 0u);
  // Where there is no memory for all of them, they share one.
  read.clear();
  settings_.memory_limit_bytes = 4 << 20;
  way_of(*new_process(), Choosing::kByTime, large_form(2));
  EXPECT_EQ(read.size(), 1u);
}

}  // namespace
}  // namespace backplane::cuda

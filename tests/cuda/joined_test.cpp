// Products that are one: what the library is asked for, where each result begins, and that it is right.
#include <algorithm>
#include <cmath>

#include "plugins/common/device_ops/joined_parts.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

/// What the stand-in aligns tensors to, as the driver does.
constexpr std::uint64_t kTensorAlignment = 256;

struct JoinedCase {
  Dims a;
  std::int64_t columns, count;
  bool is_transposed = false, has_rows = true;
  std::string activation = "";

  std::int64_t depth() const { return a.back(); }
  Dims part() const {
    Dims dims = a;
    dims.back() = columns;
    return dims;
  }
  Dims weights() const {
    return is_transposed ? Dims{count, columns, depth()} : Dims{count, depth(), columns};
  }
  /// Rows begin at multiples of 16 bytes.
  std::int64_t row_step() const { return (columns + 7) / 8 * 8; }
  std::string text() const {
    return sdk::message(sdk::to_string(a), " by ", count, " of ", columns,
                        is_transposed ? " t" : "", has_rows ? " rows " : " ", activation);
  }
};

float activated(float sum, const std::string& activation) {
  if (activation == "Relu") return std::max(sum, 0.0f);
  if (activation.empty()) return sum;
  const double x = static_cast<double>(sum);
  return static_cast<float>(0.5 * x *
                            (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
}

/// Each product by its definition.
std::vector<float> joined_reference(const JoinedCase& each) {
  const std::vector<float> a = numbers(each.a, 1).as<float>(),
                           b = numbers(each.weights(), 2).as<float>(),
                           row = numbers({each.count, each.row_step()}, 3).as<float>();
  const auto at = [](const std::vector<float>& values, std::int64_t i) {
    return values[static_cast<std::size_t>(i)];
  };
  const std::int64_t depth = each.depth(), columns = each.columns;
  std::vector<float> all;
  for (std::int64_t p = 0; p < each.count; ++p) {
    for (std::int64_t i = 0; i < count_of(each.part()); ++i) {
      float sum = each.has_rows ? at(row, p * each.row_step() + i % columns) : 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t j = i % columns;
        sum += at(a, i / columns * depth + k) *
               at(b, p * depth * columns + (each.is_transposed ? j * depth + k : k * columns + j));
      }
      all.push_back(activated(sum, each.activation));
    }
  }
  return all;
}

class CudaJoined : public CudaTest {
 protected:
  /// The results, one after another, without the gaps between them.
  static std::vector<float> joined(const OpenDevice& device, const JoinedCase& each,
                                   std::uint64_t offset = 0) {
    const char* const op_type = each.is_transposed ? "JoinedGemm" : "JoinedMatMul";
    NodeUnderTest node(kPrivateDomain, op_type, 1);
    node.input(BP_FLOAT, each.a).input(BP_FLOAT, each.weights());
    std::vector<HostTensor> inputs{numbers(each.a, 1), numbers(each.weights(), 2)};
    if (each.has_rows) {
      node.input(BP_FLOAT, {each.count, each.row_step()});
      inputs.push_back(numbers({each.count, each.row_step()}, 3));
    }
    node.outputs(1);
    if (each.is_transposed) node.attribute("transB", std::int64_t{1});
    if (!each.activation.empty()) node.attribute("activation", each.activation);
    NodeOnDevice run(device, node, device.kernel(op_type, kPrivateDomain), inputs);
    const std::vector<float> all = run.run(offset);
    EXPECT_EQ(Dims(run.dims().begin() + 1, run.dims().end()), each.part());
    const std::int64_t size = count_of(each.part()),
                       step =
                           device_ops::step_of_parts(size, sdk::DataType::Float, kTensorAlignment);
    std::vector<float> parts;
    if (size == 0) return parts;
    for (std::int64_t p = 0; p < each.count; ++p)
      parts.insert(parts.end(), all.begin() + p * step, all.begin() + p * step + size);
    return parts;
  }

  static void expect_right(const OpenDevice& device, const JoinedCase& each, std::size_t calls,
                           std::uint64_t offset = 0) {
    const std::vector<float> got = joined(device, each, offset), want = joined_reference(each);
    ASSERT_EQ(got.size(), want.size()) << each.text();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), 1e-4)
          << each.text() << ' ' << i;
    EXPECT_EQ(stand_in().count_of_run("product"), calls) << each.text();
  }
};

std::vector<JoinedCase> small_cases() {
  std::vector<JoinedCase> cases;
  for (const Dims& a : std::vector<Dims>{{3, 5}, {1, 8}, {2, 3, 4}, {6}, {64, 4}, {1, 1, 1}}) {
    for (const std::int64_t columns : {1, 3, 8, 64}) {
      for (const bool is_transposed : {false, true}) {
        cases.push_back({a, columns, 3, is_transposed, true, ""});
        cases.push_back({a, columns, 2, is_transposed, false, "Relu"});
        cases.push_back({a, columns, 4, is_transposed, true, "Gelu"});
      }
    }
  }
  return cases;
}

TEST_F(CudaJoined, ProductsOfFewRowsAreOneCallThatReadsThemOnce) {
  const OpenDevice device = open();
  for (const JoinedCase& each : small_cases()) {
    stand_in().products.clear();
    expect_right(device, each, 1);
    for (const LibraryProduct& form : stand_in().products) {
      EXPECT_EQ(form.batch, each.count);
      EXPECT_EQ(form.b.batch_step, 0) << "the rows, which are the library's second operand";
      EXPECT_EQ(form.bias_batch_step, each.has_rows ? each.row_step() : 0);
    }
  }
}

TEST_F(CudaJoined, ProductsThatFillTheDeviceAreCallsOfTheirOwn) {
  const OpenDevice device = open();
  // The stand-in has four multiprocessors: tiles of 128 by 128 are four.
  expect_right(device, {{384, 2}, 7, 3}, 1);
  expect_right(device, {{385, 2}, 7, 3}, 3);
  expect_right(device, {{129, 2}, 129, 2, true, true, "Relu"}, 2);
  expect_right(device, {{5, 103, 2}, 9, 2, false, false}, 2);
}

TEST_F(CudaJoined, WhereTheLibraryHasNoAlgorithmForAllTheyAreCallsOfTheirOwn) {
  stand_in().multiplies = [](const LibraryProduct& product) { return product.batch == 1; };
  const OpenDevice device = open();
  for (const JoinedCase& each : small_cases())
    expect_right(device, each, static_cast<std::size_t>(each.count));
}

TEST_F(CudaJoined, AddressesThatAreNotAlignedTakeTheOtherAlgorithm) {
  const OpenDevice device = open();
  expect_right(device, {{3, 4}, 5, 3}, 1, 4);
  expect_right(device, {{400, 2}, 5, 3}, 3, 12);
}

TEST_F(CudaJoined, NoRowsAreNoCall) {
  const OpenDevice device = open();
  expect_right(device, {{0, 4}, 8, 3}, 0);
  expect_right(device, {{2, 0, 4}, 8, 2}, 0);
}

TEST_F(CudaJoined, APartIsAViewWhateverItsSize) {
  run_kernels_on_host();
  const OpenDevice device = open();
  for (const Dims& part : std::vector<Dims>{{3, 5}, {1, 64}, {64}, {2, 3, 7}, {1}}) {
    const Dims all = device_ops::dims_of_parts(3, part, sdk::DataType::Float, kTensorAlignment);
    const std::int64_t step =
        device_ops::step_of_parts(count_of(part), sdk::DataType::Float, kTensorAlignment);
    EXPECT_GE(count_of(all), 2 * step + count_of(part));
    for (std::int64_t place = 0; place < 3; ++place) {
      NodeUnderTest node(kPrivateDomain, "JoinedPart", 1);
      node.input(BP_FLOAT, all).outputs(1).attribute("place", place);
      const HostTensor x = numbers(all, 1);
      NodeOnDevice run(device, node, device.kernel("JoinedPart", kPrivateDomain), {x});
      EXPECT_EQ(run.kernel().outputs()[0].view_of, 0) << sdk::to_string(part);
      EXPECT_EQ(run.dims(), part);
      // Where the host does not grant it, as of an output of the graph's, it is copied.
      const std::vector<float> values = x.as<float>();
      const auto begin = values.begin() + place * step;
      EXPECT_EQ(run.run(), std::vector<float>(begin, begin + count_of(part)));
    }
  }
}

}  // namespace
}  // namespace backplane::cuda

// Element-wise kernels whose items do several elements at once, on the stand-in: every size of elements, numbers of
// elements around those of a vector, and addresses at which there are none.
#include "plugins/common/kernels/pointwise.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "plugins/common/half.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

class CudaPointwise : public CudaTest {
 protected:
  CudaPointwise() { run_kernels_on_host(); }

  template <class T>
  static HostTensor tensor_of(bp_dtype type, const Dims& dims, const std::vector<T>& values) {
    HostTensor tensor{type, dims, {}};
    tensor.data.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    return tensor;
  }

  /// Numbers of every bit, which wrap when they are added.
  template <class T>
  static std::vector<T> bits(std::int64_t count, std::uint64_t seed) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<T>(seed >> 17);
    }
    return values;
  }

  /// A sum of [rows, columns] and of what repeats along the rows, across them, or not at all, at several addresses.
  template <class T>
  void expect_sums(bp_dtype type, std::int64_t rows, std::int64_t columns, const Dims& others) {
    SCOPED_TRACE(sdk::message("type ", type, ", dims ", rows, ", ", columns, " and ",
                              sdk::to_string(others)));
    const OpenDevice device = open();
    const std::vector<T> a = bits<T>(rows * columns, 1), b = bits<T>(count_of(others), 2);
    NodeUnderTest node("", "Add", 14);
    node.input(type, {rows, columns}).input(type, others).outputs(1);
    NodeOnDevice run(device, node, device.kernel("Add"),
                     {tensor_of(type, {rows, columns}, a), tensor_of(type, others, b)});
    std::vector<T> want(a);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / columns,
                 column = static_cast<std::int64_t>(i) % columns;
      const std::int64_t at =
          (others[0] == 1 ? 0 : row * others[1]) + (others[1] == 1 ? 0 : column);
      want[i] = static_cast<T>(want[i] + b[static_cast<std::size_t>(at)]);
    }
    for (const std::uint64_t elements : {0, 1, 2, 4})
      EXPECT_EQ(run.run_as<T>(elements * sizeof(T)), want) << elements;
  }

  template <class T>
  void expect_sums_of_all_sizes(bp_dtype type) {
    const auto width = static_cast<std::int64_t>(16 / sizeof(T));
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, width - 1, width, width + 1,
                                     5 * width + 1, 300 * width})
      expect_sums<T>(type, 1, count, {1, count});
    for (const std::int64_t columns : {2 * width, width + 2}) {
      expect_sums<T>(type, 3, columns, {1, columns});
      expect_sums<T>(type, 3, columns, {3, 1});
      expect_sums<T>(type, 3, columns, {1, 1});
    }
  }
};

TEST_F(CudaPointwise, SumsOfBytes) { expect_sums_of_all_sizes<std::uint8_t>(BP_UINT8); }
TEST_F(CudaPointwise, SumsOf16Bits) { expect_sums_of_all_sizes<std::uint16_t>(BP_UINT16); }
TEST_F(CudaPointwise, SumsOf32Bits) { expect_sums_of_all_sizes<std::uint32_t>(BP_UINT32); }
TEST_F(CudaPointwise, SumsOf64Bits) { expect_sums_of_all_sizes<std::uint64_t>(BP_UINT64); }

TEST_F(CudaPointwise, FloatsKeepTheirBits) {
  // The sign is all that Neg changes, whatever the other bits are; of the 16-bit types NaN may lose some.
  const OpenDevice device = open();
  constexpr std::int64_t kElements = 301;
  const auto negate = [&](auto first, bp_dtype type) {
    using T = decltype(first);
    std::vector<T> values(kElements);
    std::iota(values.begin(), values.end(), first);
    NodeUnderTest node("", "Neg", 13);
    node.input(type, {kElements}).outputs(1);
    NodeOnDevice run(device, node, device.kernel("Neg"), {tensor_of(type, {kElements}, values)});
    for (T& value : values) value = static_cast<T>(value ^ T{1} << (8 * sizeof(T) - 1));
    for (const std::uint64_t elements : {0, 1, 8})
      EXPECT_EQ(run.run_as<T>(elements * sizeof(T)), values) << type << ' ' << elements;
  };
  negate(std::uint32_t{0x3F8000F0}, BP_FLOAT);
  negate(std::uint64_t{0x3FF00000FFFFFFF0}, BP_DOUBLE);
  negate(std::uint16_t{0x3BF0}, BP_FLOAT16);
  negate(std::uint16_t{0x3F70}, BP_BFLOAT16);
}

/// Rounded to the type, it is what doubles make; of what is less than fp16 shows, some 1e-13 may be missing.
TEST_F(CudaPointwise, GeluOfEveryNumberOf16Bits) {
  const OpenDevice device = open();
  const auto expect_right = [&](auto one, bp_dtype type, double half_a_unit) {
    using T = decltype(one);
    std::vector<std::uint16_t> bits(1 << 16);
    std::iota(bits.begin(), bits.end(), std::uint16_t{0});
    const Dims dims{static_cast<std::int64_t>(bits.size())};
    NodeUnderTest node("", "Gelu", 20);
    node.input(type, dims).outputs(1);
    NodeOnDevice run(device, node, device.kernel("Gelu"), {tensor_of(type, dims, bits)});
    const std::vector<std::uint16_t> made = run.run_as<std::uint16_t>(0);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double x = common::to_float(T{bits[i]}), y = common::to_float(T{made[i]});
      if (x == -std::numeric_limits<double>::infinity())
        continue;  // the limit, or the product of it and 0
      if (std::isnan(x) || std::isinf(x)) {
        EXPECT_TRUE(std::isnan(x) ? std::isnan(y) : y == x) << bits[i];
        continue;
      }
      const double want = 0.5 * x * std::erfc(-x * std::sqrt(0.5));
      const double least = type == BP_FLOAT16 ? 0x1p-25 : 1e-13;
      EXPECT_LE(std::fabs(y - want), least + std::fabs(want) * (half_a_unit + 1e-5)) << x;
    }
  };
  expect_right(common::Half{}, BP_FLOAT16, 0x1p-11);
  expect_right(common::BFloat16{}, BP_BFLOAT16, 0x1p-8);
}

/// Windows over images whose channels come last, which are read as many at once as there are.
TEST_F(CudaPointwise, PoolsOfEveryNumberOfChannels) {
  constexpr std::int64_t kHigh = 3, kWide = 4;
  const OpenDevice device = open();
  Dims kernel;
  const auto pooled = [&](const char* op_type, const HostTensor& x, std::uint64_t offset) {
    NodeUnderTest node(kPrivateDomain, op_type, 1);
    node.input(BP_FLOAT, x.dims).outputs(1).attribute("channels_last", std::int64_t{1});
    node.attribute("kernel_shape", std::vector<std::int64_t>{kernel[0], kernel[1]});
    node.attribute("pads", std::vector<std::int64_t>{0, 1, kernel[0] - 1, kernel[1] - 2});
    return NodeOnDevice(device, node, device.kernel(op_type, kPrivateDomain), {x}).run(offset);
  };
  // Of more taps than are read at once, too, and of more across than those.
  for (const auto& [channels, shape] : {std::pair{1, Dims{2, 3}},
                                        {2, {2, 3}},
                                        {3, {2, 3}},
                                        {4, {2, 3}},
                                        {6, {4, 3}},
                                        {8, {4, 3}},
                                        {4, {1, 10}},
                                        {8, {3, 3}}}) {
    kernel = shape;
    const std::int64_t elements = kHigh * kWide * channels;
    const HostTensor x = test_host::floats({1, kHigh, kWide, channels}, [elements] {
      std::vector<float> values(static_cast<std::size_t>(elements));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i * 37 % 23) - 11;
      return values;
    }());
    std::vector<float> most, mean;
    for (std::int64_t at = 0; at < elements; ++at) {
      const std::int64_t row = at / (kWide * channels), column = at / channels % kWide;
      float greatest = -100, sum = 0, count = 0;
      for (std::int64_t v = row; v < std::min(row + kernel[0], kHigh); ++v) {
        for (std::int64_t u = std::max<std::int64_t>(column - 1, 0);
             u < std::min(column - 1 + kernel[1], kWide); ++u) {
          const float value =
              x.as<float>()[static_cast<std::size_t>((v * kWide + u) * channels + at % channels)];
          greatest = std::max(greatest, value);
          sum += value;
          ++count;
        }
      }
      most.push_back(greatest);
      mean.push_back(sum / count);
    }
    for (const std::uint64_t offset : {0, 4}) {
      EXPECT_EQ(pooled("MaxPool", x, offset), most) << channels << " at " << offset;
      EXPECT_EQ(pooled("AveragePool", x, offset), mean) << channels << " at " << offset;
    }
  }
}

/// Images of few channels, which come to lie together or apart, at several addresses.
TEST_F(CudaPointwise, PlanesBecomePixelsAndPixelsPlanes) {
  const auto turn = [this](auto first, bp_dtype type, std::int64_t channels, std::int64_t high,
                           std::int64_t wide) {
    using T = decltype(first);
    SCOPED_TRACE(sdk::message("type ", type, ", dims ", channels, ", ", high, ", ", wide));
    constexpr std::int64_t kBatch = 2;
    const OpenDevice device = open();
    const std::int64_t pixels = high * wide;
    const std::vector<T> apart = bits<T>(kBatch * channels * pixels, 1);
    std::vector<T> together(apart.size());
    for (std::int64_t i = 0; i < kBatch * channels * pixels; ++i) {
      const std::int64_t image = i / (channels * pixels), channel = i / pixels % channels;
      together[static_cast<std::size_t>((image * pixels + i % pixels) * channels + channel)] =
          apart[static_cast<std::size_t>(i)];
    }
    const auto expect = [&](const Dims& dims, const Dims& order, const std::vector<T>& from,
                            const std::vector<T>& to) {
      NodeUnderTest node(kPrivateDomain, "Reformat", 1);
      node.input(type, dims)
          .outputs(1)
          .attribute("perm", std::vector<std::int64_t>(order.begin(), order.end()));
      NodeOnDevice run(device, node, kernel_named(device, "cuda:reformat", "Reformat"),
                       {tensor_of(type, dims, from)});
      for (const std::uint64_t elements : {0, 1, 4})
        EXPECT_EQ(run.run_as<T>(elements * sizeof(T)), to) << elements;
    };
    expect({kBatch, channels, high, wide}, {0, 2, 3, 1}, apart, together);
    expect({kBatch, high, wide, channels}, {0, 3, 1, 2}, together, apart);
  };
  for (const auto& [high, wide] : {std::pair{4, 8}, {3, 7}, {1, 2}, {5, 4}}) {
    turn(std::uint16_t{}, BP_FLOAT16, 3, high, wide);
    turn(std::uint32_t{}, BP_FLOAT, 3, high, wide);
  }
  for (const std::int64_t channels : {2, 4, 8, 16, 17})
    turn(std::uint16_t{}, BP_FLOAT16, channels, 4, 6);
  turn(std::uint8_t{}, BP_UINT8, 3, 4, 6);
  turn(std::uint64_t{}, BP_INT64, 3, 4, 6);
}

TEST_F(CudaPointwise, PlanesAreRoundedOnTheirWayToPixels) {
  const OpenDevice device = open();
  constexpr std::int64_t kPixels = 22, kChannels = 3;
  const HostTensor x = numbers({1, kChannels, 2, kPixels / 2}, 3);
  NodeUnderTest node(kPrivateDomain, "Reformat", 1);
  node.input(BP_FLOAT, x.dims).outputs(1).attribute("to", std::int64_t{BP_BFLOAT16});
  node.attribute("perm", std::vector<std::int64_t>{0, 2, 3, 1});
  std::vector<std::uint16_t> want;
  for (std::int64_t i = 0; i < kPixels * kChannels; ++i) {
    const float value =
        x.as<float>()[static_cast<std::size_t>(i % kChannels * kPixels + i / kChannels)];
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    want.push_back(static_cast<std::uint16_t>(bits >> 16));
  }
  NodeOnDevice run(device, node, kernel_named(device, "cuda:reformat", "Reformat"), {x});
  for (const std::uint64_t offset : {0, 4})
    EXPECT_EQ(run.run_as<std::uint16_t>(offset), want) << offset;
}

TEST_F(CudaPointwise, TablesOfNodesComeOverOneStreamThoseOfANodeAtOnce) {
  const OpenDevice device = open();
  std::size_t copies = stand_in().count("copy");
  const auto resized = [&device, &copies](std::int64_t width) {
    const HostTensor x = test_host::floats({1, 1, 2, 2}, {0, 4, 8, 12});
    const HostTensor none = test_host::floats({0}, {}),
                     sizes = test_host::ints({4}, {1, 1, 3, width});
    NodeUnderTest node("", "Resize", 13);
    node.input(BP_FLOAT, x.dims).input(BP_FLOAT, {0}).input(BP_FLOAT, {0}).input(BP_INT64, {4});
    node.outputs(1);
    node.attribute("mode", "linear");
    node.attribute("coordinate_transformation_mode", "align_corners");
    NodeOnDevice made(device, node, device.kernel("Resize"), {x, none, none, sizes},
                      {false, true, true, true});
    EXPECT_EQ(stand_in().count("copy"), ++copies);
    std::vector<float> y = made.run();
    copies = stand_in().count("copy");
    return y;
  };
  const std::size_t streams = stand_in().count("create_stream");
  EXPECT_EQ(resized(3), (std::vector<float>{0, 2, 4, 4, 6, 8, 8, 10, 12}));
  EXPECT_EQ(resized(2), (std::vector<float>{0, 4, 4, 8, 8, 12}));
  EXPECT_EQ(stand_in().count("create_stream"), streams + 3) << "two are those of the runs";
}

/// Rows of operands of these lengths, one of them perhaps empty, at several addresses: by one launch.
TEST_F(CudaPointwise, OperandsAreJoinedByOneLaunch) {
  const auto join = [this](auto first, bp_dtype type, const std::vector<std::int64_t>& lengths) {
    using T = decltype(first);
    SCOPED_TRACE(sdk::message("type ", type, ", lengths ", sdk::to_string(Dims(lengths))));
    constexpr std::int64_t kLines = 5;
    const OpenDevice device = open();
    NodeUnderTest node("", "Concat", 13);
    std::vector<HostTensor> inputs;
    std::vector<std::vector<T>> values;
    for (const std::int64_t length : lengths) {
      node.input(type, {kLines, length});
      values.push_back(bits<T>(kLines * length, values.size() + 1));
      inputs.push_back(tensor_of(type, {kLines, length}, values.back()));
    }
    node.outputs(1);
    node.attribute("axis", std::int64_t{-1});
    std::vector<T> want;
    for (std::int64_t row = 0; row < kLines; ++row) {
      for (std::size_t k = 0; k < lengths.size(); ++k) {
        const auto begin = values[k].begin() + row * lengths[k];
        want.insert(want.end(), begin, begin + lengths[k]);
      }
    }
    NodeOnDevice run(device, node, device.kernel("Concat"), inputs);
    for (const std::uint64_t elements : {0, 1, 4}) {
      const std::size_t before = stand_in().count("launch");
      EXPECT_EQ(run.run_as<T>(elements * sizeof(T)), want) << elements;
      EXPECT_EQ(stand_in().count("launch"), before + 1);
    }
  };
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{16, 32},
                                                   {48, 0, 16, 32},
                                                   {6, 10},
                                                   {7, 1, 3},
                                                   {8, 4, 4, 4, 4, 4, 4, 4}}) {
    join(std::uint8_t{}, BP_INT8, lengths);
    join(std::uint16_t{}, BP_BFLOAT16, lengths);
    join(std::uint32_t{}, BP_FLOAT, lengths);
    join(std::uint64_t{}, BP_INT64, lengths);
  }
}

TEST_F(CudaPointwise, AnOutputMayBeItsOperand) {
  const OpenDevice device = open();
  const TestStream stream(device);
  constexpr std::int64_t kElements = 21;
  NodeUnderTest node("", "Neg", 13);
  node.input(BP_FLOAT, {kElements}).outputs(1);
  KernelUnderTest kernel(device.kernel("Neg"), device.raw(), node.raw());
  kernel.prepare({floats({kElements}, std::vector<float>(kElements))}, {false}, 1);
  for (const std::uint64_t offset : {0, 4}) {
    const TestBuffer x(device, BP_MEMORY_DEVICE, 128);
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 1.0f);
    const Place place{nullptr, x.raw(), offset};
    test_host::upload(device, stream, values, place);
    check(kernel.compute({place}, {place}, {}, {}, stream.raw()));
    stream.sync();
    for (float& value : values) value = -value;
    EXPECT_EQ(download(device, stream, place, kElements), values) << offset;
  }
}

/// Where rewrites store values in 16 bits; Cast rounds as ONNX says.
TEST_F(CudaPointwise, FiniteNumbersAreStoredAsSuchInBothHalfTypes) {
  constexpr float kMost = std::numeric_limits<float>::max(),
                  kNone = std::numeric_limits<float>::infinity();
  const OpenDevice device = open();
  const std::vector<float> values{-kMost, kMost, -kNone, kNone, 1};
  using Halves = std::vector<std::uint16_t>;
  for (const auto& [type, want] :
       {std::pair{BP_FLOAT16, Halves{0xFBFF, 0x7BFF, 0xFC00, 0x7C00, 0x3C00}},
        std::pair{BP_BFLOAT16, Halves{0xFF7F, 0x7F7F, 0xFF80, 0x7F80, 0x3F80}}}) {
    NodeUnderTest node(kPrivateDomain, "Reformat", 1);
    node.input(BP_FLOAT, {5}).outputs(1).attribute("to", std::int64_t{type});
    NodeOnDevice run(device, node, kernel_named(device, "cuda:reformat", "Reformat"),
                     {tensor_of(BP_FLOAT, {5}, values)});
    EXPECT_EQ(run.run_as<std::uint16_t>(0), want);
  }
}

TEST(CudaVectorWidth, TheWidestOperandHas16BytesAndRowsAreWhole) {
  const auto width = [](const Dims& dims, const std::vector<Dims>& strides,
                        const std::vector<common::PointwiseOperand>& operands) {
    return common::vector_width(common::merge_axes({dims, strides}), operands);
  };
  const Dims dense{96, 1}, row{0, 1}, column{1, 0}, once{0, 0}, turned{1, 64};
  EXPECT_EQ(width({64, 96}, {dense, dense}, {{"f16"}, {"f16"}}), 8);
  EXPECT_EQ(width({64, 96}, {dense, dense}, {{"b8"}, {"u8"}}), 16);
  EXPECT_EQ(width({64, 96}, {dense, dense}, {{"f32"}, {"i8"}}), 4);
  EXPECT_EQ(width({64, 96}, {dense, dense}, {{"i64"}, {"b8"}}), 2);
  EXPECT_EQ(width({64, 96}, {once, dense}, {{"f64"}, {"f16"}}), 8) << "what is read once";
  EXPECT_EQ(width({64, 96}, {column, row, dense}, {{"f32"}, {"f16"}, {"f16"}}), 8);
  EXPECT_EQ(width({64, 96}, {turned, dense}, {{"f16"}, {"f16"}}), 1);
  for (const auto& [columns, want] : {std::pair<std::int64_t, std::int64_t>{12, 4}, {6, 2}, {7, 1}})
    EXPECT_EQ(width({64, columns}, {row, {columns, 1}}, {{"f16"}, {"f16"}}), want) << columns;
  EXPECT_EQ(width({4, 8}, {{9, 1}, {8, 1}}, {{"f16"}, {"f16"}}), 1) << "rows that begin anywhere";
  EXPECT_EQ(width({64, 96}, {dense, dense}, {{"f16", 4}, {"f16"}}), 2) << "a part of a value";
  EXPECT_EQ(width({7}, {{1}, {1}}, {{"f16"}, {"f16"}}), 1) << "less than one of them";
  EXPECT_EQ(width({9}, {{1}, {1}}, {{"f16"}, {"f16"}}), 8);
}

}  // namespace
}  // namespace backplane::cuda

// Convolutions of few channels by the provider's own kernel: what it computes, lane by lane, and when it is taken.
#include "plugins/cuda/few_channels.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <unistd.h>

#include "plugins/common/half.hpp"
#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

/// A FusedConv of images that lie channels last.
struct FewCase {
  Dims x, w;           ///< [images, height, width, channels], [filters, rows, columns, channels]
  Dims strides, pads;  ///< no pads: `auto_pad`
  std::string what = "bias, relu";
  bp_dtype type = BP_FLOAT16;
  std::string auto_pad{};
  int multiprocessors = 4;
  std::int64_t tiles = 4, slices = 2;  ///< what the kernel is to have for so many

  bool has(const char* word) const { return what.find(word) != std::string::npos; }
  std::string text() const { return sdk::to_string(x) + " by " + sdk::to_string(w); }
  FewCase padded(const std::string& how) const {
    FewCase made = *this;
    made.auto_pad = how;
    return made;
  }
  FewCase on(int count, std::int64_t wanted_tiles, std::int64_t wanted_slices) const {
    FewCase made = *this;
    made.multiprocessors = count;
    made.tiles = wanted_tiles;
    made.slices = wanted_slices;
    return made;
  }
};

std::uint16_t bits_of(double value, bp_dtype type) {
  const auto number = static_cast<float>(value);
  return type == BP_FLOAT16 ? common::to_half(number).bits : common::to_bfloat16(number).bits;
}
double value_of(std::uint16_t bits, bp_dtype type) {
  return type == BP_FLOAT16 ? common::to_float(sdk::Half{bits})
                            : common::to_float(sdk::BFloat16{bits});
}

/// Small whole numbers, which both types have exactly, as their sums are in float32.
HostTensor halves(const Dims& dims, int seed, bp_dtype type) {
  std::vector<std::uint16_t> bits;
  for (const float value : numbers(dims, seed).as<float>()) bits.push_back(bits_of(value, type));
  return test_host::tensor(type, dims, bits);
}

/// Paddings before and after both axes, and the results' size.
struct Placed {
  std::int64_t begin[2], out[2];
};
Placed placed(const FewCase& each) {
  Placed made{};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const std::int64_t in = each.x[axis + 1], window = each.w[axis + 1],
                       stride = each.strides[axis];
    if (each.pads.empty()) {
      made.out[axis] = (in + stride - 1) / stride;
      const std::int64_t all =
          std::max<std::int64_t>(0, (made.out[axis] - 1) * stride + window - in);
      made.begin[axis] = each.auto_pad == "SAME_UPPER" ? all / 2 : all - all / 2;
    } else {
      made.begin[axis] = each.pads[axis];
      made.out[axis] = (in + each.pads[axis] + each.pads[axis + 2] - window) / stride + 1;
    }
  }
  return made;
}

/// What a FusedConv's inputs are, and what they are to give, in double.
struct FewOperands {
  std::vector<HostTensor> inputs;
  Dims dims;

  explicit FewOperands(const FewCase& each) {
    const Placed at = placed(each);
    dims = {each.x[0], at.out[0], at.out[1], each.w[0]};
    inputs = {halves(each.x, 1, each.type), halves(each.w, 2, each.type)};
    if (each.has("bias")) inputs.push_back(halves({each.w[0]}, 3, each.type));
    if (each.has("addend")) inputs.push_back(halves(dims, 4, each.type));
  }

  std::vector<std::uint16_t> results(const FewCase& each) const {
    const Placed at = placed(each);
    std::vector<std::vector<double>> values;
    for (const HostTensor& input : inputs) {
      values.emplace_back();
      for (const std::uint16_t bits : input.as<std::uint16_t>())
        values.back().push_back(value_of(bits, each.type));
    }
    const auto element = [](std::int64_t index) { return static_cast<std::size_t>(index); };
    std::vector<std::uint16_t> made;
    for (std::int64_t i = 0; i < count_of(dims); ++i) {
      const std::int64_t filter = i % dims[3], u = i / dims[3] % dims[2],
                         v = i / (dims[3] * dims[2]) % dims[1],
                         image = i / (dims[3] * dims[2] * dims[1]);
      double sum = each.has("bias") ? values[2][element(filter)] : 0;
      if (each.has("addend")) sum += values[3][element(i)];
      for (std::int64_t tap = 0; tap < each.w[1] * each.w[2]; ++tap) {
        const std::int64_t y = v * each.strides[0] + tap / each.w[2] - at.begin[0],
                           x = u * each.strides[1] + tap % each.w[2] - at.begin[1];
        if (y < 0 || y >= each.x[1] || x < 0 || x >= each.x[2]) continue;
        const std::int64_t pixel = ((image * each.x[1] + y) * each.x[2] + x) * each.x[3];
        const std::int64_t weights = (filter * each.w[1] * each.w[2] + tap) * each.w[3];
        for (std::int64_t c = 0; c < each.x[3]; ++c)
          sum += values[0][element(pixel + c)] * values[1][element(weights + c)];
      }
      made.push_back(bits_of(each.has("relu") && sum < 0 ? 0 : sum, each.type));
    }
    return made;
  }
};

class FewChannelsTest : public CudaTest {
 protected:
  /// By rule, so that it is not run for long before it is prepared.
  OpenDevice open_for(const FewCase& each,
                      const OpenDevice::Options& options = {{"tuning", "off"}}) const {
    stand_in().devices[0].multiprocessors = each.multiprocessors;
    return open(options);
  }
  static std::unique_ptr<NodeOnDevice> prepare(const OpenDevice& device, const FewCase& each,
                                               const FewOperands& operands, bool is_last = true) {
    NodeUnderTest node(kPrivateDomain, "FusedConv", 1);
    for (const HostTensor& input : operands.inputs) node.input(input.dtype, input.dims);
    node.outputs(1).attribute("strides", each.strides);
    if (is_last) node.attribute("channels_last", std::int64_t{1});
    if (!each.pads.empty()) node.attribute("pads", each.pads);
    if (!each.auto_pad.empty()) node.attribute("auto_pad", each.auto_pad);
    if (each.has("relu")) node.attribute("activation", std::string("Relu"));
    return std::make_unique<NodeOnDevice>(device, node, device.kernel("FusedConv", kPrivateDomain),
                                          operands.inputs);
  }
  /// The first that differs; NaN is NaN.
  static std::string difference(const std::vector<std::uint16_t>& made,
                                const std::vector<std::uint16_t>& want, bp_dtype type) {
    if (made.size() != want.size()) return "another number of elements";
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double a = value_of(made[i], type), b = value_of(want[i], type);
      if (a != b && !(std::isnan(a) && std::isnan(b)))
        return sdk::message("element ", i, " is ", a, " and not ", b);
    }
    return "";
  }
  /// At addresses so far behind a multiple of 16 bytes.
  void expect_right(const FewCase& each, const std::vector<std::uint64_t>& offsets = {0}) const {
    const OpenDevice device = open_for(each);
    const FewOperands operands(each);
    const auto run = prepare(device, each, operands);
    EXPECT_EQ(run->dims(), operands.dims);
    EXPECT_EQ(run->kernel().variant().rfind("tensor cores, few channels", 0), 0u)
        << run->kernel().variant();
    const std::string& source = compiled_sources().back();
    for (const auto& [name, value] :
         {std::pair<const char*, std::int64_t>{"TILES", each.tiles}, {"SLICES", each.slices}})
      EXPECT_NE(source.find(sdk::message("#define ", name, ' ', value, '\n')), std::string::npos)
          << each.text() << ": not " << name << ' ' << value;
    run_kernels_on_host();
    const std::vector<std::uint16_t> want = operands.results(each);
    for (const std::uint64_t offset : offsets)
      EXPECT_EQ(difference(run->run_as<std::uint16_t>(offset), want, each.type), "")
          << each.text() << " at " << offset;
    EXPECT_EQ(stand_in().count_of_run("launch"), 1u);
    EXPECT_EQ(stand_in().count("convolution"), 0u);
  }
};

TEST_F(FewChannelsTest, TheFirstLayerOfAResidualNetworkIsRight) {
  // One multiprocessor, so that a group has several tiles.
  const FewCase each{{2, 66, 70, 4}, {64, 7, 7, 4}, {2, 2}, {3, 3, 3, 3}};
  expect_right(each.on(1, 4, 4));
}

TEST_F(FewChannelsTest, WindowsStridesAndPadsOfAllKindsAreRight) {
  const bp_dtype half = BP_FLOAT16, bfloat = BP_BFLOAT16;
  const auto check = [this](const FewCase& each) { expect_right(each); };
  check({{2, 33, 35, 3}, {24, 3, 3, 3}, {1, 1}, {1, 0, 0, 2}, "bias, relu", bfloat});
  check(FewCase{{1, 97, 90, 1}, {8, 3, 3, 1}, {2, 2}, {}, "relu", half}
            .padded("SAME_UPPER")
            .on(1, 4, 1));
  check(FewCase{{3, 56, 53, 2}, {40, 3, 2, 2}, {1, 2}, {}, "bias", bfloat}
            .padded("SAME_LOWER")
            .on(20, 2, 4));
  check(FewCase{{2, 40, 38, 1}, {8, 5, 5, 1}, {1, 1}, {0, 0, 0, 0}, "bias, addend", half}.on(4, 4,
                                                                                             1));
  check(FewCase{{1, 48, 50, 3}, {8, 6, 6, 3}, {1, 1}, {2, 3, 1, 0}, "", half}.on(132, 1, 1));
  check({{1, 50, 52, 4}, {96, 1, 3, 4}, {1, 1}, {0, 1, 0, 1}, "bias, relu", bfloat});
}

TEST_F(FewChannelsTest, AddressesOfAllKindsAreRight) {
  const FewCase each{{1, 200, 168, 4}, {32, 4, 4, 4}, {4, 4}, {0, 0, 0, 0}, "bias, addend, relu"};
  expect_right(each, {0, 8, 2});
}

TEST_F(FewChannelsTest, MoreStepsThanAreUnrolledAreRight) {
  expect_right(FewCase{{1, 48, 48, 4}, {8, 9, 9, 4}, {1, 1}, {4, 4, 4, 4}, ""}.on(4, 4, 1));
}

TEST_F(FewChannelsTest, InfinitiesReachTheResultsWhoseWindowsHaveThem) {
  FewCase each{{2, 40, 33, 3}, {8, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}};
  each.what = "bias";
  const OpenDevice device = open_for(each);
  FewOperands operands(each);
  const double infinity = std::numeric_limits<double>::infinity();
  auto* const x = reinterpret_cast<std::uint16_t*>(operands.inputs[0].data.data());
  for (std::size_t i = 5; i < operands.inputs[0].data.size() / 2; i += 397) {
    x[i] = bits_of(i % 2 == 0 ? infinity : i % 3 == 0 ? std::nan("") : -infinity, each.type);
  }
  const auto run = prepare(device, each, operands);
  run_kernels_on_host();
  const std::vector<std::uint16_t> want = operands.results(each);
  EXPECT_GT(
      std::count_if(want.begin(), want.end(),
                    [&](std::uint16_t bits) { return std::isfinite(value_of(bits, each.type)); }),
      static_cast<std::ptrdiff_t>(want.size() / 2));
  EXPECT_EQ(difference(run->run_as<std::uint16_t>(), want, each.type), "");
}

TEST_F(FewChannelsTest, NumbersThatAreNotWholeAreRoundedOnce) {
  const FewCase each{{1, 48, 46, 3}, {32, 3, 3, 3}, {1, 1}, {1, 1, 1, 1}};
  const OpenDevice device = open_for(each);
  FewOperands operands(each);
  for (HostTensor& input : operands.inputs) {
    auto* const bits = reinterpret_cast<std::uint16_t*>(input.data.data());
    for (std::size_t i = 0; i < input.data.size() / 2; ++i)
      bits[i] = bits_of(std::sin(static_cast<double>(i) * 1.7 + 0.3), each.type);
  }
  const auto run = prepare(device, each, operands);
  run_kernels_on_host();
  const std::vector<std::uint16_t> made = run->run_as<std::uint16_t>(),
                                   want = operands.results(each);
  std::size_t different = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double a = value_of(made[i], each.type), b = value_of(want[i], each.type);
    EXPECT_NEAR(a, b, std::max(std::abs(b) * 0x1p-10, 1e-5)) << i;
    different += made[i] != want[i] ? 1 : 0;
  }
  // A sum of float32 that lies between two of float16 may fall on the other side.
  EXPECT_LT(different, want.size() / 100);
}

const FewCase kFirstLayer{{1, 96, 96, 1}, {8, 3, 3, 1}, {2, 2}, {1, 1, 1, 1}};

TEST_F(FewChannelsTest, TheFasterOfItAndTheLibrarysPlansIsTaken) {
  stand_in().has_own_clock = true;
  std::uint64_t own_ns = 0;
  stand_in().kernel = [&own_ns](const std::string&, const Extent&, const Extent&, void**) {
    stand_in().ahead_ns += own_ns;
  };
  const auto variant = [&](std::uint64_t own, const OpenDevice::Options& options) {
    own_ns = own;
    const OpenDevice device = open_for(kFirstLayer, options);
    return prepare(device, kFirstLayer, FewOperands(kFirstLayer))->kernel().variant();
  };
  const std::string own = "tensor cores, few channels, fused, channels last";
  stand_in().ways = {{50'000, 0, ""}, {40'000, 0, ""}};
  EXPECT_EQ(variant(20'000, {}), own);
  EXPECT_EQ(variant(100'000, {}), "cudnn, fused, channels last");
  EXPECT_EQ(variant(100'000, {{"tuning", "off"}}), own) << "nothing is compared";
  // Faster apart, which is compared only where the library was the faster one.
  stand_in().fused_takes_ns = 1'000'000;
  EXPECT_EQ(variant(20'000, {}), own);
  EXPECT_EQ(variant(500'000, {}), own);
  stand_in().convolutions.clear();
  EXPECT_EQ(variant(2'000'000, {}), "cudnn, then pointwise, channels last");
}

TEST_F(FewChannelsTest, AKernelThatFailsIsPassedOver) {
  stand_in().kernel = [](const std::string&, const Extent&, const Extent&, void**) {
    throw sdk::Error(BP_INTERNAL, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  };
  const OpenDevice device = open_for(kFirstLayer);
  EXPECT_EQ(prepare(device, kFirstLayer, FewOperands(kFirstLayer))->kernel().variant(),
            "cudnn, fused, channels last");
}

TEST_F(FewChannelsTest, TheLibraryHasWhatFillsNoDevice) {
  FewCase each = kFirstLayer;
  each.x[1] = each.x[2] = 64;
  const OpenDevice device = open_for(each);
  EXPECT_EQ(prepare(device, each, FewOperands(each))->kernel().variant(),
            "cudnn, fused, channels last");
}

/// The first layer of a residual network.
Convolution first_form() {
  Convolution form;
  form.type = sdk::DataType::Float16;
  form.is_channels_last = true;
  form.batch = 32;
  form.channels = 4;
  form.filters = 64;
  form.in = {224, 224, 1};
  form.out = {112, 112, 1};
  form.kernel = {7, 7, 1};
  form.stride = {2, 2, 1};
  form.pad_begin = form.pad_end = {3, 3, 0};
  return form;
}

DeviceTraits large_device() {
  DeviceTraits traits = stand_in_device();
  traits.multiprocessors = 132;
  return traits;
}

TEST(FewChannels, GroupsHaveAsManyTilesAsAnyOtherAndLinesFollowWithoutConflicts) {
  const DeviceTraits traits = large_device();
  const std::optional<FewChannels> how = FewChannels::of(first_form(), traits);
  ASSERT_TRUE(how);
  EXPECT_EQ(how->tiles, 4);
  EXPECT_EQ(how->slices, 4);
  EXPECT_EQ(how->all_tiles(), 32 * 49);
  EXPECT_EQ(how->pitch, 45) << "of which one step more than there are is asked for";
  EXPECT_EQ(how->groups(traits), 392) << "four tiles each, of 396 groups that there is room for";
  Convolution one = first_form();
  one.batch = 1;
  EXPECT_EQ(FewChannels::of(one, traits)->tiles, 1);
}

TEST(FewChannels, AreForNothingElse) {
  const auto is_for = [](const std::function<void(Convolution&, DeviceTraits&)>& change) {
    Convolution form = first_form();
    DeviceTraits traits = large_device();
    change(form, traits);
    return FewChannels::of(form, traits).has_value();
  };
  EXPECT_TRUE(is_for([](auto&, auto&) {}));
  EXPECT_TRUE(is_for([](auto& form, auto&) { form.channels = 1; }));
  EXPECT_TRUE(is_for([](auto&, auto& traits) { traits.major = 8; }));
  EXPECT_FALSE(is_for([](auto&, auto& traits) { traits.major = 7; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.type = sdk::DataType::Float; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.is_channels_last = false; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.is_transposed = true; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.rank = 3; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.groups = 4; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.channels = 5; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.filters = 60; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) { form.dilation[1] = 2; }));
  EXPECT_FALSE(is_for([](auto& form, auto&) {
    form.kernel[0] = form.in[0] = form.out[0] = form.stride[0] = 1;
    form.pad_begin[0] = form.pad_end[0] = 0;
  })) << "most of each tile would be none of the results";
  EXPECT_FALSE(is_for([](auto& form, auto&) {
    form.kernel = form.stride = {16, 16, 1};
    form.out = {14, 14, 1};
  })) << "more weights than local memory has room for";
}

}  // namespace
}  // namespace backplane::cuda

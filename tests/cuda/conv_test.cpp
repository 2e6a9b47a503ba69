// Convolutions: their form for the library, what is fused and what is a kernel afterwards, plans that are kept.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <unistd.h>

#include "tests/cuda/host_kernels.hpp"
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

struct ConvCase {
  Dims x, w;
  Dims strides, dilations, pads;  ///< empty: the attribute is left out
  std::int64_t group = 1;
};

/// Conv by scattering: every element of x adds to the outputs that it reaches. `dims` gets the output's.
std::vector<float> conv_reference(const ConvCase& each, Dims& dims) {
  const std::size_t rank = each.x.size() - 2;
  const auto at = [](const Dims& list, std::size_t axis, std::int64_t otherwise) {
    return list.empty() ? otherwise : list[axis];
  };
  dims = {each.x[0], each.w[0]};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t reach = (each.w[axis + 2] - 1) * at(each.dilations, axis, 1) + 1;
    const std::int64_t padded =
        each.x[axis + 2] + at(each.pads, axis, 0) + at(each.pads, axis + rank, 0);
    dims.push_back((padded - reach) / at(each.strides, axis, 1) + 1);
  }
  const std::vector<float> x = numbers(each.x, 1).as<float>(), w = numbers(each.w, 2).as<float>();
  std::vector<float> y(static_cast<std::size_t>(count_of(dims)));
  const std::int64_t points = count_of(each.x) / (each.x[0] * each.x[1]);
  const std::int64_t taps = count_of(each.w) / (each.w[0] * each.w[1]);
  const std::int64_t filters = each.w[0] / each.group;
  for (std::int64_t i = 0; i < count_of(each.x); ++i) {
    const std::int64_t channel = i / points % each.x[1], image = i / points / each.x[1];
    for (std::int64_t f = 0; f < filters * taps; ++f) {
      const std::int64_t filter = channel / each.w[1] * filters + f / taps;
      std::int64_t from = i % points, tap = f % taps, to = 0, step = 1;
      bool is_reached = true;
      for (std::size_t axis = rank; axis-- > 0;) {
        const std::int64_t moved = from % each.x[axis + 2] + at(each.pads, axis, 0) -
                                   tap % each.w[axis + 2] * at(each.dilations, axis, 1);
        from /= each.x[axis + 2];
        tap /= each.w[axis + 2];
        const std::int64_t stride = at(each.strides, axis, 1), place = moved / stride;
        is_reached = is_reached && moved >= 0 && moved % stride == 0 && place < dims[axis + 2];
        to += place * step;
        step *= dims[axis + 2];
      }
      if (!is_reached) continue;
      const std::int64_t weight = (filter * each.w[1] + channel % each.w[1]) * taps + f % taps;
      y[static_cast<std::size_t>((image * each.w[0] + filter) * step + to)] +=
          x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(weight)];
    }
  }
  return y;
}

NodeUnderTest& describe_node(NodeUnderTest& node, const ConvCase& each) {
  node.input(BP_FLOAT, each.x).input(BP_FLOAT, each.w).outputs(1);
  if (!each.strides.empty()) node.attribute("strides", each.strides);
  if (!each.dilations.empty()) node.attribute("dilations", each.dilations);
  if (!each.pads.empty()) node.attribute("pads", each.pads);
  if (each.group != 1) node.attribute("group", each.group);
  return node;
}

TEST_F(CudaTest, ConvolutionsOfOneToThreeAxesAreRight) {
  const OpenDevice device = open();
  const std::vector<ConvCase> cases = {
      {{1, 3, 5, 6}, {4, 3, 3, 3}, {}, {}, {}},
      {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 1}, {}, {1, 0, 2, 1}},
      {{1, 2, 9, 8}, {2, 2, 3, 3}, {1, 2}, {2, 1}, {0, 1, 0, 1}},
      {{1, 4, 5, 5}, {6, 2, 3, 3}, {}, {}, {1, 1, 1, 1}, 2},
      {{1, 4, 5, 5}, {4, 1, 3, 3}, {}, {}, {1, 1, 1, 1}, 4},
      {{2, 3, 8}, {5, 3, 3}, {2}, {2}, {1, 2}},
      {{1, 2, 4, 5, 3}, {3, 2, 2, 3, 1}, {1, 2, 1}, {}, {1, 0, 0, 0, 1, 2}},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}, {}, {}},
  };
  for (const ConvCase& each : cases) {
    Dims dims;
    const std::vector<float> want = conv_reference(each, dims);
    NodeUnderTest node("", "Conv", 11);
    NodeOnDevice run(device, describe_node(node, each), device.kernel("Conv"),
                     {numbers(each.x, 1), numbers(each.w, 2)});
    EXPECT_EQ(run.dims(), dims);
    EXPECT_EQ(run.run(), want) << sdk::to_string(each.x) << ' ' << sdk::to_string(each.w);
    EXPECT_EQ(run.run(4), want) << "at an address that is not aligned";
    EXPECT_EQ(run.kernel().variant(), "cudnn");
  }
}

/// [a, b, points ...] as [a, points ..., b].
HostTensor channels_last(const HostTensor& from) {
  Dims dims = from.dims;
  std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
  const std::int64_t channels = from.dims[1];
  const std::int64_t points = count_of(Dims(from.dims.begin() + 2, from.dims.end()));
  const std::vector<float> values = from.as<float>();
  std::vector<float> made(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t image = at / (channels * points), channel = at / points % channels;
    made[static_cast<std::size_t>((image * points + at % points) * channels + channel)] = values[i];
  }
  return floats(dims, made);
}

TEST_F(CudaTest, ConvolutionsOfImagesThatLieChannelsLastAreRight) {
  const OpenDevice device = open();
  const std::vector<ConvCase> cases = {
      {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 1}, {}, {1, 0, 2, 1}},
      {{1, 4, 5, 5}, {6, 2, 3, 3}, {}, {}, {1, 1, 1, 1}, 2},
      {{2, 3, 8}, {5, 3, 3}, {2}, {2}, {1, 2}},
      {{1, 2, 4, 5, 3}, {3, 2, 2, 3, 1}, {1, 2, 1}, {}, {1, 0, 0, 0, 1, 2}},
      {{0, 2, 4, 5}, {3, 2, 3, 3}, {}, {}, {}},
  };
  for (const ConvCase& each : cases) {
    Dims dims;
    const std::vector<float> want =
        each.x[0] == 0 ? std::vector<float>() : conv_reference(each, dims);
    const HostTensor x = channels_last(numbers(each.x, 1)), w = channels_last(numbers(each.w, 2));
    ConvCase moved = each;
    moved.x = x.dims;
    moved.w = w.dims;
    NodeUnderTest node(kPrivateDomain, "FusedConv", 1);
    describe_node(node, moved).attribute("channels_last", std::int64_t{1});
    NodeOnDevice run(device, node, device.kernel("FusedConv", kPrivateDomain), {x, w});
    const std::vector<float> made = run.run();
    if (each.x[0] == 0) {
      EXPECT_TRUE(made.empty());
      continue;
    }
    const HostTensor last = channels_last(floats(dims, want));
    EXPECT_EQ(run.dims(), last.dims);
    EXPECT_EQ(made, last.as<float>()) << sdk::to_string(each.x);
    EXPECT_EQ(run.kernel().variant(), "cudnn, channels last");
    EXPECT_TRUE(stand_in().convolutions.back().is_channels_last);
  }
}

const ConvCase kSmall{{1, 2, 4, 3}, {3, 2, 3, 3}, {}, {}, {1, 1, 1, 1}};

/// FusedConv with bias, addend and Relu, and what it must compute.
class FusedConvTest : public CudaTest {
 protected:
  FusedConvTest() {
    want_ = conv_reference(kSmall, dims_);
    addend_ = numbers(dims_, 4);
    for (std::size_t i = 0; i < want_.size(); ++i) {
      const std::size_t filter = i / (want_.size() / 3);
      want_[i] = std::max(want_[i] + bias_.as<float>()[filter] + addend_.as<float>()[i], 0.0f);
    }
  }
  std::unique_ptr<NodeOnDevice> prepare(const OpenDevice& device) const {
    NodeUnderTest node(kPrivateDomain, "FusedConv", 1);
    describe_node(node, kSmall).input(BP_FLOAT, {3}).input(BP_FLOAT, dims_);
    node.attribute("activation", std::string("Relu"));
    return std::make_unique<NodeOnDevice>(
        device, node, device.kernel("FusedConv", kPrivateDomain),
        std::vector<HostTensor>{numbers(kSmall.x, 1), numbers(kSmall.w, 2), bias_, addend_});
  }
  Dims dims_;
  HostTensor bias_ = numbers({3}, 3), addend_;
  std::vector<float> want_;
};

TEST_F(FusedConvTest, IsOnePlanWhereTheLibraryHasOne) {
  const OpenDevice device = open();
  const auto run = prepare(device);
  EXPECT_EQ(run->run(), want_);
  EXPECT_EQ(stand_in().count("launch"), 0u);
  EXPECT_EQ(run->kernel().variant(), "cudnn, fused");
}

TEST_F(FusedConvTest, IsAConvolutionAndAKernelWhereItHasNone) {
  stand_in().plans = [](const Convolution& form) { return !form.is_fused(); };
  stand_in().kernel = [](const std::string& source, const Extent&, const Extent&, void**) {
    EXPECT_NE(source.find("v0 + v1 + v2"), std::string::npos) << source;
  };
  const OpenDevice device = open();
  const auto run = prepare(device);
  Dims dims;
  EXPECT_EQ(run->run(), conv_reference(kSmall, dims)) << "the stand-in's kernels compute nothing";
  EXPECT_EQ(stand_in().count("launch"), 1u);
  EXPECT_EQ(run->kernel().variant(), "cudnn, then pointwise");
}

TEST_F(FusedConvTest, OfFewChannelsIsDoneApartWhereThatIsFaster) {
  constexpr std::uint64_t kConvolution = 100'000, kKernel = 10'000;
  stand_in().has_own_clock = true;
  stand_in().ways = {{kConvolution, 0, ""}, {2 * kConvolution, 0, ""}};
  const auto variant = [this](std::uint64_t fused_takes_ns, double bytes_per_ns) {
    stand_in().fused_takes_ns = fused_takes_ns;
    stand_in().devices = {stand_in_device()};
    stand_in().devices[0].memory_bytes_per_ns = bytes_per_ns;
    const OpenDevice device = open();
    return prepare(device)->kernel().variant();
  };
  EXPECT_EQ(variant(kKernel, 1000), "cudnn, then pointwise");
  EXPECT_EQ(variant(kKernel / 10, 1000), "cudnn, fused") << "a launch takes longer";
  EXPECT_EQ(variant(kKernel, 0.01), "cudnn, fused") << "so does to go over the memory once more";
  EXPECT_EQ(variant(kKernel, 0), "cudnn, fused") << "it is not known how long that takes";
  stand_in().ways.pop_back();
  EXPECT_EQ(variant(kKernel, 1000), "cudnn, fused") << "nothing was compared";
}

TEST_F(FusedConvTest, IsRefusedWithItsFormWhereThereIsNoPlanAtAll) {
  stand_in().plans = [](const Convolution&) { return false; };
  const OpenDevice device = open();
  try {
    prepare(device);
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("float 1x2 to 3 in 1"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find(": the test has it so"), std::string::npos)
        << "the library's reason: " << error.what();
  }
}

TEST_F(FusedConvTest, AsksForTheWorkspaceThatItsPlansNeed) {
  stand_in().convolution_workspace = 12345;
  const OpenDevice device = open();
  EXPECT_EQ(prepare(device)->kernel().workspace_bytes(), 12345u);
}

TEST_F(FusedConvTest, ABuildWithoutTheLibraryRefusesWithTheReason) {
  stand_in().has_convolutions = false;
  const OpenDevice device = open();
  try {
    prepare(device);
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("no cuDNN"), std::string::npos) << error.what();
  }
}

TEST_F(FusedConvTest, ARunThatFailsNamesTheNodeAndTheNextIsRight) {
  const OpenDevice device = open();
  const auto run = prepare(device);
  stand_in().failures["convolution"] = {"CUDA_ERROR_OUT_OF_MEMORY"};
  try {
    run->run();
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_OUT_OF_MEMORY);
    EXPECT_EQ(std::string(error.what()).rfind("node '", 0), 0u) << error.what();
  }
  EXPECT_EQ(run->run(), want_);
}

TEST_F(CudaTest, NodesOfOneFormShareAPlanAndThePrecisionIsPartOfIt) {
  const OpenDevice device = open({{"precision", "tf32"}});
  for (int i = 0; i < 2; ++i) {
    NodeUnderTest node("", "Conv", 11);
    NodeOnDevice(device, describe_node(node, kSmall), device.kernel("Conv"),
                 {numbers(kSmall.x, 1), numbers(kSmall.w, 2)});
  }
  EXPECT_EQ(stand_in().count("plan"), 2u) << "aligned, and not";
  EXPECT_EQ(stand_in().convolutions[0].precision, Precision::kTf32);
  EXPECT_EQ(stand_in().convolutions[1].alignment, 4u);
}

struct TransposedCase {
  ConvCase conv;  ///< weights are [channels][filters / groups]
  Dims output_padding{}, output_shape{};
  std::string auto_pad{};
};

/// ConvTranspose by scattering, into an output of these dims whose padding begins at `begin`.
std::vector<float> transposed_reference(const ConvCase& each, const Dims& dims, const Dims& begin) {
  const std::size_t rank = each.x.size() - 2;
  const auto at = [](const Dims& list, std::size_t axis) {
    return list.empty() ? std::int64_t{1} : list[axis];
  };
  const std::vector<float> x = numbers(each.x, 1).as<float>(), w = numbers(each.w, 2).as<float>();
  std::vector<float> y(static_cast<std::size_t>(count_of(dims)));
  const std::int64_t points = count_of(each.x) / (each.x[0] * each.x[1]);
  const std::int64_t taps = count_of(each.w) / (each.w[0] * each.w[1]);
  const std::int64_t depth = each.x[1] / each.group;
  for (std::int64_t i = 0; i < count_of(each.x); ++i) {
    const std::int64_t channel = i / points % each.x[1], image = i / points / each.x[1];
    for (std::int64_t f = 0; f < each.w[1] * taps; ++f) {
      const std::int64_t filter = channel / depth * each.w[1] + f / taps;
      std::int64_t from = i % points, tap = f % taps, to = 0, step = 1;
      bool is_inside = true;
      for (std::size_t axis = rank; axis-- > 0;) {
        const std::int64_t place = from % each.x[axis + 2] * at(each.strides, axis) +
                                   tap % each.w[axis + 2] * at(each.dilations, axis) - begin[axis];
        from /= each.x[axis + 2];
        tap /= each.w[axis + 2];
        is_inside = is_inside && place >= 0 && place < dims[axis + 2];
        to += place * step;
        step *= dims[axis + 2];
      }
      if (is_inside)
        y[static_cast<std::size_t>((image * dims[1] + filter) * step + to)] +=
            x[static_cast<std::size_t>(i)] *
            w[static_cast<std::size_t>(channel * each.w[1] * taps + f)];
    }
  }
  return y;
}

/// The kernel on the stand-in, with what it gives.
std::unique_ptr<NodeOnDevice> run_transposed(const OpenDevice& device, const TransposedCase& each,
                                             bool is_last = false) {
  HostTensor x = numbers(each.conv.x, 1), w = numbers(each.conv.w, 2);
  if (is_last) {
    x = channels_last(x);
    w = channels_last(w);
  }
  ConvCase conv = each.conv;
  conv.x = x.dims;
  conv.w = w.dims;
  NodeUnderTest node(is_last ? kPrivateDomain : "", "ConvTranspose", is_last ? 1 : 11);
  describe_node(node, conv);
  if (is_last) node.attribute("channels_last", std::int64_t{1});
  if (!each.output_padding.empty()) node.attribute("output_padding", each.output_padding);
  if (!each.output_shape.empty()) node.attribute("output_shape", each.output_shape);
  if (!each.auto_pad.empty()) node.attribute("auto_pad", each.auto_pad);
  const bp_kernel_def* const def =
      is_last ? device.kernel("ConvTranspose", kPrivateDomain)
              : kernel_named(device, "cuda:cudnn conv transpose", "ConvTranspose");
  return std::make_unique<NodeOnDevice>(device, node, def, std::vector<HostTensor>{x, w});
}

TEST_F(CudaTest, TransposedConvolutionsOfOneToThreeAxesAreRight) {
  const OpenDevice device = open();
  struct Row {
    TransposedCase each;
    Dims dims, begin;
  };
  const std::vector<Row> rows = {
      {{{{1, 3, 4, 5}, {3, 2, 3, 3}, {}, {}, {}}}, {1, 2, 6, 7}, {0, 0}},
      {{{{2, 3, 4, 5}, {3, 2, 3, 2}, {2, 3}, {}, {1, 0, 1, 1}}}, {2, 2, 7, 13}, {1, 0}},
      {{{{1, 2, 4, 4}, {2, 3, 3, 3}, {2, 2}, {}, {1, 1, 1, 1}}, {1, 1}}, {1, 3, 8, 8}, {1, 1}},
      {{{{1, 4, 3, 3}, {4, 2, 3, 3}, {}, {2, 1}, {}, 2}}, {1, 4, 7, 5}, {0, 0}},
      {{{{1, 4, 3, 3}, {4, 1, 2, 2}, {2, 2}, {}, {}, 4}}, {1, 4, 6, 6}, {0, 0}},
      {{{{2, 3, 6}, {3, 2, 4}, {2}, {}, {1, 1}}}, {2, 2, 12}, {1}},
      {{{{1, 2, 3, 2, 4}, {2, 3, 2, 3, 1}, {1, 2, 1}, {}, {}}}, {1, 3, 4, 5, 4}, {0, 0, 0}},
      {{{{1, 2, 3, 3}, {2, 2, 3, 3}, {2, 2}, {}, {}}, {}, {}, "SAME_UPPER"}, {1, 2, 6, 6}, {0, 0}},
      {{{{1, 2, 3, 3}, {2, 2, 3, 3}, {2, 2}, {}, {}}, {}, {}, "SAME_LOWER"}, {1, 2, 6, 6}, {1, 1}},
      {{{{1, 2, 3, 3}, {2, 2, 3, 3}, {2, 2}, {}, {}}, {}, {7, 6}}, {1, 2, 7, 6}, {0, 1}},
  };
  for (const auto& [each, dims, begin] : rows) {
    const auto run = run_transposed(device, each);
    EXPECT_EQ(run->dims(), dims) << sdk::to_string(each.conv.x) << sdk::to_string(run->dims());
    const std::vector<float> want = transposed_reference(each.conv, dims, begin);
    EXPECT_EQ(run->run(), want) << sdk::to_string(each.conv.x);
    EXPECT_EQ(run->run(4), want) << "at an address that is not aligned";
    EXPECT_EQ(run->kernel().variant(), "cudnn");
    const auto last = run_transposed(device, each, true);
    const HostTensor moved = channels_last(floats(dims, want));
    EXPECT_EQ(last->dims(), moved.dims);
    EXPECT_EQ(last->run(), moved.as<float>()) << sdk::to_string(each.conv.x) << ", channels last";
    EXPECT_EQ(last->kernel().variant(), "cudnn, channels last");
  }
}

TEST_F(CudaTest, ATransposedConvolutionThatIsNoGradientIsLeftToThePlainKernel) {
  const OpenDevice device = open();
  try {
    // Padding at the end that is more than a stride: a convolution of the result would have more points.
    run_transposed(device, {{{1, 1, 3, 3}, {1, 1, 2, 2}, {1, 1}, {2, 2}, {}}, {1, 1}});
    FAIL();
  } catch (const test_host::StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("no convolution's gradient"), std::string::npos);
  }
}

TEST_F(CudaTest, AnEmptyConvolutionEnqueuesNothing) {
  const OpenDevice device = open();
  ConvCase each = kSmall;
  each.x[0] = 0;
  NodeUnderTest node("", "Conv", 11);
  NodeOnDevice run(device, describe_node(node, each), device.kernel("Conv"),
                   {numbers(each.x, 1), numbers(each.w, 2)});
  EXPECT_EQ(run.run(), std::vector<float>());
  EXPECT_EQ(stand_in().count("convolution"), 0u);
}

TEST_F(CudaTest, AnImageOfNoElementsIsPaddingAlone) {
  run_kernels_on_host();
  const OpenDevice device = open();
  const HostTensor bias = floats({3}, {2, -1, 0.5f});
  const ConvCase each{{1, 2, 0, 3}, {3, 2, 3, 3}, {}, {}, {2, 1, 2, 1}};
  NodeUnderTest node(kPrivateDomain, "FusedConv", 1);
  describe_node(node, each).input(BP_FLOAT, {3}).attribute("activation", std::string("Relu"));
  NodeOnDevice run(device, node, device.kernel("FusedConv", kPrivateDomain),
                   {numbers(each.x, 1), numbers(each.w, 2), bias});
  EXPECT_EQ(run.dims(), (Dims{1, 3, 2, 3}));
  std::vector<float> want(18, 0);
  std::fill_n(want.begin(), 6, 2.0f);
  std::fill_n(want.end() - 6, 6, 0.5f);
  EXPECT_EQ(run.run(), want);
  const auto transposed =
      run_transposed(device, {{{1, 2, 0, 2}, {2, 1, 3, 2}, {2, 1}, {}, {}}, {1, 0}});
  EXPECT_EQ(transposed->dims(), (Dims{1, 1, 2, 3}));
  EXPECT_EQ(transposed->run(), std::vector<float>(6, 0));
  EXPECT_EQ(stand_in().count("convolution"), 0u);
}

/// A store over the stand-in's library, in a folder of its own; each call is a new process.
class ConvolutionStoreTest : public CudaTest {
 protected:
  ~ConvolutionStoreTest() override { std::filesystem::remove_all(folder_); }
  ConvolutionStore::Counts find(const Convolution& form, const DeviceTraits& traits) const {
    const std::unique_ptr<Engine> engine = load_stand_in_engine();
    const std::unique_ptr<Context> context = load_stand_in()->open(0);
    const std::unique_ptr<ConvolutionLibrary> library = engine->open_convolutions(*context);
    ConvolutionStore store(library.get(), traits, folder_.string(), nullptr);
    EXPECT_NE(store.find(form, Choosing::kByRule).plan, nullptr);
    EXPECT_EQ(store.find(form, Choosing::kByRule).plan, store.find(form, Choosing::kByRule).plan);
    return store.counts();
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / sdk::message("cuda_convolutions_", ::getpid());
};

TEST_F(ConvolutionStoreTest, APlanIsMadeOnceAndKeptOnDiskForItsLibraryDeviceAndForm) {
  const Convolution form;
  EXPECT_EQ(find(form, stand_in_device()).planned, 1u);
  EXPECT_EQ(find(form, stand_in_device()).read, 1u);
  EXPECT_EQ(find(form, stand_in_device(8, 0)).planned, 1u);
  Convolution other;
  other.stride[1] = 2;
  EXPECT_EQ(find(other, stand_in_device()).planned, 1u);
  stand_in().library_version = "stand-in 2";
  EXPECT_EQ(find(form, stand_in_device()).planned, 1u);
  stand_in().serves_kept = false;
  EXPECT_EQ(find(form, stand_in_device()).planned, 1u) << "a kept plan that is refused";
}

/// Counts the threads that are in it.
class CountingPlan final : public PreparedConvolution {
 public:
  std::uint64_t workspace_bytes() const override { return 0; }
  std::string kept() const override { return ""; }
  int most() const { return most_; }

 private:
  void put_on(KernelQueue&, const ConvolutionAddresses&) const override {
    most_ = std::max(most_.load(), ++inside_);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    --inside_;
  }
  mutable std::atomic<int> inside_{0}, most_{0};
};

class NoQueue final : public KernelQueue {
 public:
  StreamHandle for_library() override { return nullptr; }
  void launch(const Kernel&, const Extent&, const Extent&, void**) override {}
};

TEST(CudaPlan, ThreadsThatRunTheSameOneTakeTurns) {
  const CountingPlan plan;
  NoQueue queue;
  const auto run = [&plan, &queue] {
    for (int i = 0; i < 200; ++i) plan.enqueue(queue, {});
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_EQ(plan.most(), 1);
}

TEST(CudaConvolutionKey, TellsEveryFormFromEveryOther) {
  const std::vector<std::function<void(Convolution&)>> changes = {
      [](auto& c) { c.type = sdk::DataType::Float16; },
      [](auto& c) { c.rank = 3; },
      [](auto& c) { c.batch = 2; },
      [](auto& c) { c.channels = 2; },
      [](auto& c) { c.filters = 2; },
      [](auto& c) { c.groups = 2; },
      [](auto& c) { c.in[0] = 2; },
      [](auto& c) { c.kernel[1] = 2; },
      [](auto& c) { c.out[1] = 2; },
      [](auto& c) { c.stride[0] = 2; },
      [](auto& c) { c.dilation[0] = 2; },
      [](auto& c) { c.pad_begin[1] = 2; },
      [](auto& c) { c.pad_end[1] = 2; },
      [](auto& c) { c.is_transposed = true; },
      [](auto& c) { c.has_bias = true; },
      [](auto& c) { c.has_addend = true; },
      [](auto& c) { c.has_relu = true; },
      [](auto& c) { c.is_channels_last = true; },
      [](auto& c) { c.alignment = 4; },
      [](auto& c) { c.precision = Precision::kTf32; },
  };
  std::vector<std::string> keys{Convolution().key()};
  for (const auto& change : changes) {
    Convolution form;
    change(form);
    keys.push_back(form.key());
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

}  // namespace
}  // namespace backplane::cuda

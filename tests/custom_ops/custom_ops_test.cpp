// The libraries of custom_ops/: their schemas and kernels, without a host library. Results are worked out by hand.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "backplane/plugin_api/optional/plan_capture.h"
#include "tests/fixtures/test_host.hpp"

namespace backplane::test_host {
namespace {

using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kUnknown = -1;
const std::string kFolder = BACKPLANE_TEST_CUSTOM_OPS_DIR "/";

/// WindowedMean on a tensor.
template <class T>
std::vector<T> windowed_mean(const std::string& border, std::int64_t window, std::int64_t axis,
                             bp_dtype dtype, const std::string& kernel_name, const Dims& dims,
                             const std::vector<T>& x) {
  const LoadedPlugin plugin(kFolder + "windowed_mean.so");
  NodeUnderTest node("backplane.examples", "WindowedMean", 1);
  node.input(dtype, dims)
      .attribute("window", window)
      .attribute("axis", axis)
      .attribute("border", border);
  const bp_kernel_def* kernel = plugin.guest_kernel("cpu", "WindowedMean", kernel_name);
  return run_on_host(kernel, nullptr, node, {tensor<T>(dtype, dims, x)}).at(0).template as<T>();
}

TEST(WindowedMean, KeepsWholeWindowsAlone) {
  EXPECT_EQ(windowed_mean<float>("valid", 2, -1, BP_FLOAT, "float", {4}, {1, 3, 5, 9}),
            (std::vector<float>{2, 4, 7}));
}

TEST(WindowedMean, ShrinksAtTheEnds) {
  EXPECT_EQ(windowed_mean<double>("shrink", 3, 0, BP_DOUBLE, "double", {4}, {1, 3, 5, 10}),
            (std::vector<double>{2, 3, 6, 7.5}));
}

TEST(WindowedMean, TakesAnyAxis) {
  EXPECT_EQ(
      windowed_mean<float>("valid", 2, 1, BP_FLOAT, "float", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
      (std::vector<float>{2, 3, 6, 7}));
}

TEST(WindowedMean, RoundsIntegersTowardsZeroWithoutOverflow) {
  EXPECT_EQ(windowed_mean<std::int32_t>("valid", 2, 0, BP_INT32, "int32", {3}, {-3, -4, 4}),
            (std::vector<std::int32_t>{-3, 0}));
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(windowed_mean<std::int64_t>("valid", 2, 0, BP_INT64, "int64", {2}, {largest, largest}),
            std::vector<std::int64_t>{largest});
}

TEST(WindowedMean, ANaNReachesItsOwnWindowsAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto y = windowed_mean<float>("valid", 2, 0, BP_FLOAT, "float", {4}, {nan, 1, 3, 5});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 2);
  EXPECT_EQ(y[2], 4);
}

TEST(WindowedMean, TakesEmptyTensors) {
  EXPECT_TRUE(windowed_mean<float>("valid", 2, 0, BP_FLOAT, "float", {2, 0}, {}).empty());
  EXPECT_TRUE(windowed_mean<float>("shrink", 2, 0, BP_FLOAT, "float", {0}, {}).empty());
}

TEST(WindowedMean, InfersShapesAndRefusesWrongAttributes) {
  const LoadedPlugin plugin(kFolder + "windowed_mean.so");
  NodeUnderTest node("backplane.examples", "WindowedMean", 1);
  node.input(BP_FLOAT, {kUnknown, 10}).attribute("window", std::int64_t{4});
  EXPECT_EQ(infer(plugin.schema("WindowedMean"), node)[0].dims, (Dims{kUnknown, 7}));
  NodeUnderTest wide("backplane.examples", "WindowedMean", 1);
  wide.input(BP_FLOAT, {3}).attribute("window", std::int64_t{4});
  EXPECT_THROW(infer(plugin.schema("WindowedMean"), wide), StatusError);
  NodeUnderTest none("backplane.examples", "WindowedMean", 1);
  none.input(BP_FLOAT, {3});
  EXPECT_THROW(infer(plugin.schema("WindowedMean"), none), StatusError);
  EXPECT_EQ(live_statuses(), 0);
}

HostTensor decode(const NodeUnderTest& node, const HostTensor& deltas, const HostTensor& anchors) {
  const LoadedPlugin plugin(kFolder + "decode_boxes.so");
  return run_on_host(plugin.guest_kernel("cpu", "DecodeBoxes", "float"), nullptr, node,
                     {deltas, anchors})[0];
}

TEST(DecodeBoxes, ZeroDeltasGiveTheAnchors) {
  NodeUnderTest node("backplane.examples", "DecodeBoxes", 1);
  node.input(BP_FLOAT, {1, 2, 4}).input(BP_FLOAT, {2, 4});
  const HostTensor boxes = decode(node, floats({1, 2, 4}, std::vector<float>(8, 0.0f)),
                                  floats({2, 4}, {0.5f, 0.5f, 0.5f, 0.25f, 0, 1, 2, 4}));
  EXPECT_EQ(boxes.dims, (Dims{1, 2, 4}));
  EXPECT_EQ(boxes.as<float>(), (std::vector<float>{0.25f, 0.375f, 0.75f, 0.625f, -1, -1, 1, 3}));
}

TEST(DecodeBoxes, ScalesByVariancesAndClips) {
  NodeUnderTest node("backplane.examples", "DecodeBoxes", 1);
  node.input(BP_FLOAT, {1, 4}).input(BP_FLOAT, {1, 4});
  node.attribute("center_variance", 0.5f)
      .attribute("size_variance", 1.0f)
      .attribute("clip", std::int64_t{1});
  const auto boxes = decode(node, floats({1, 4}, {1, 0, std::log(2.0f), 0}),
                            floats({1, 4}, {0.5f, 0.5f, 0.25f, 0.5f}))
                         .as<float>();
  // centre x 0.5 + 1 * 0.5 * 0.25 = 0.625, width 0.5: from 0.375 to 0.875
  EXPECT_FLOAT_EQ(boxes[0], 0.375f);
  EXPECT_FLOAT_EQ(boxes[2], 0.875f);
  EXPECT_EQ(boxes[1], 0.25f);
}

TEST(DecodeBoxes, RefusesAnchorsThatDoNotFit) {
  const LoadedPlugin plugin(kFolder + "decode_boxes.so");
  NodeUnderTest node("backplane.examples", "DecodeBoxes", 1);
  node.input(BP_FLOAT, {kUnknown, 3, 4}).input(BP_FLOAT, {2, 4});
  EXPECT_THROW(infer(plugin.schema("DecodeBoxes"), node), StatusError);
  NodeUnderTest open("backplane.examples", "DecodeBoxes", 1);
  open.input(BP_FLOAT, {kUnknown, kUnknown, 4}).input(BP_FLOAT, {2, 4});
  EXPECT_EQ(infer(plugin.schema("DecodeBoxes"), open)[0].dims, (Dims{kUnknown, kUnknown, 4}));
}

struct GatedSilu {
  NodeUnderTest node{"backplane.examples", "GatedSilu", 1};
  GatedSilu(const Dims& x, const Dims& gate) { node.input(BP_FLOAT, x).input(BP_FLOAT, gate); }
};

TEST(GatedSiluOp, IsTheProductWithTheGateAndItsSigmoid) {
  const LoadedPlugin plugin(kFolder + "gated_silu.so");
  const auto y =
      run_on_host(plugin.guest_kernel("cpu", "GatedSilu"), nullptr, GatedSilu({2, 2}, {2, 2}).node,
                  {floats({2, 2}, {2, -1, 3, 5}), floats({2, 2}, {0, 1, -100, 100})})
          .at(0)
          .as<float>();
  EXPECT_EQ(y[0], 0);
  EXPECT_FLOAT_EQ(y[1], -1 / (1 + std::exp(-1.0f)));
  EXPECT_NEAR(y[2], 0, 1e-30);
  EXPECT_FLOAT_EQ(y[3], 500);
}

TEST(GatedSiluOp, RefusesAGateOfAnotherShape) {
  const LoadedPlugin plugin(kFolder + "gated_silu.so");
  EXPECT_THROW(run_on_host(plugin.guest_kernel("cpu", "GatedSilu"), nullptr,
                           GatedSilu({2}, {3}).node, {floats({2}, {1, 2}), floats({3}, {1, 2, 3})}),
               StatusError);
}

#ifdef BACKPLANE_TEST_CUDA_TOOLKIT
TEST(GatedSiluOp, OnCudaMayBeRecordedAndNamesTheDriverThatIsMissing) {
  const LoadedPlugin plugin(kFolder + "gated_silu.so");
  const bp_kernel_def* const kernel = plugin.guest_kernel("cuda", "GatedSilu");
  EXPECT_NE(kernel->flags & BP_KERNEL_CAPTURE, 0u);
  GatedSilu op({2}, {2});
  try {
    const KernelUnderTest made(kernel, nullptr, op.node.raw());
    GTEST_SKIP() << "there is a driver";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.code(), BP_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("libcuda.so.1"), std::string::npos) << error.what();
  }
}
#endif

}  // namespace
}  // namespace backplane::test_host

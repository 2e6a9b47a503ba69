// The guest that calls the driver by itself, on one that keeps books, with the real compiler: what it loads, and how often.
#include "custom_ops/gated_silu/cuda_kernel.hpp"
#include "tests/cuda/driver/scripted.hpp"
#include "tests/fixtures/test_host.hpp"

namespace backplane::cuda {
namespace {

using test_host::floats;
using test_host::HostTensor;
using test_host::KernelUnderTest;
using test_host::NodeUnderTest;

/// A node that was prepared, and computes.
class Node {
 public:
  Node() {
    node_.input(BP_FLOAT, {4}).input(BP_FLOAT, {4}).outputs(1);
    kernel_ = std::make_unique<KernelUnderTest>(&kernels_.front()->def, nullptr, node_.raw());
    const HostTensor four = floats({4}, {1, 2, 3, 4});
    kernel_->prepare({four, four}, {false, false}, 1);
  }
  bp_code compute() const {
    return test_host::take(kernel_->compute({{}, {}}, {{}}, {}, {}, nullptr)).first;
  }

 private:
  sdk::KernelList kernels_ = gated_silu::cuda_kernels();
  NodeUnderTest node_{"backplane.examples", "GatedSilu", 1};
  std::unique_ptr<KernelUnderTest> kernel_;
};

class GatedSiluOnCuda : public testing::Test {
 protected:
  GatedSiluOnCuda() {
    sdk::host_table = test_host::api();
    script() = Script();
    script().needs_context = false;  // the test's host has no handles
  }
  ~GatedSiluOnCuda() override { EXPECT_EQ(script().modules, 0); }
};

TEST_F(GatedSiluOnCuda, LoadsCodeOfTheDeviceWhichADriverThatIsOlderThanTheCompilerReads) {
  const Node node;
  EXPECT_EQ(node.compute(), BP_OK);
  EXPECT_EQ(script().images, (std::vector<std::string>{"\x7f"
                                                       "ELF"}));
  EXPECT_EQ(script().count("cuLaunchKernel"), 1u);
}

TEST_F(GatedSiluOnCuda, LoadsTextForADeviceThatIsNewerThanTheCompiler) {
  // Code for 11.0, a system on a chip, is none for what comes after it.
  for (const auto& [major, minor] : {std::pair(99, 0), std::pair(11, 1)}) {
    script().images.clear();
    script().major = major;
    script().minor = minor;
    const Node node;
    EXPECT_EQ(node.compute(), BP_OK);
    ASSERT_EQ(script().images.size(), 1u);
    EXPECT_NE(script().images[0].substr(1), "ELF") << major;
  }
}

TEST_F(GatedSiluOnCuda, RefusesADeviceThatTheCompilerDoesNotKnowAnyMore) {
  script().major = 2;
  const Node node;
  EXPECT_EQ(node.compute(), BP_UNSUPPORTED);
  script().major = 9;
  EXPECT_EQ(node.compute(), BP_OK) << "a failure is no answer for ever";
}

TEST_F(GatedSiluOnCuda, NodesShareAModule) {
  {
    const Node one, two;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(one.compute() + two.compute(), BP_OK);
    EXPECT_EQ(script().count("cuModuleLoadData"), 1u);
    EXPECT_EQ(script().count("cuLaunchKernel"), 6u);
  }
  EXPECT_EQ(script().modules, 0) << "it goes with the last node";
  EXPECT_EQ(Node().compute(), BP_OK);
  EXPECT_EQ(script().count("cuModuleLoadData"), 2u);
}

}  // namespace
}  // namespace backplane::cuda

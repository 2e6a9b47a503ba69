// Recurrent layers on the stand-in: what their steps cost a plan. That they are right is tested with everybody's operators.
#include <algorithm>

#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

class CudaRecurrent : public CudaTest {
 protected:
  /// Runs a layer of so many steps; gives how often it launched a kernel.
  static std::size_t launches(const OpenDevice& device, const std::string& op_type,
                              std::int64_t steps) {
    constexpr std::int64_t kHidden = 5, kInputs = 3;
    const std::int64_t gates = op_type == "LSTM" ? 4 : op_type == "GRU" ? 3 : 1;
    const std::vector<Dims> dims{
        {steps, 1, kInputs}, {1, gates * kHidden, kInputs}, {1, gates * kHidden, kHidden}};
    NodeUnderTest node("", op_type, 14);
    std::vector<HostTensor> inputs;
    for (const Dims& each : dims) {
      node.input(BP_FLOAT, each);
      inputs.push_back(numbers(each, 1));
    }
    node.outputs(1);
    NodeOnDevice(device, node, device.kernel(op_type), inputs).run();
    const auto began = stand_in().calls.begin() + static_cast<std::ptrdiff_t>(stand_in().run_began);
    return static_cast<std::size_t>(std::count(began, stand_in().calls.end(), "launch"));
  }
  /// The kernels of layers that were compiled; trials of products have some, too.
  static std::size_t kernels() {
    const std::vector<std::string>& all = compiled_sources();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const auto& text) {
      return text.find("NEXT_STATE") < text.size();
    }));
  }
};

TEST_F(CudaRecurrent, AThousandStepsAreOneKernelAndALaunchEach) {
  const OpenDevice device = open();
  EXPECT_EQ(launches(device, "LSTM", 1000), 1001u);
  EXPECT_EQ(kernels(), 2u) << "the first states, and a step";
  EXPECT_EQ(launches(device, "LSTM", 10), 11u);
  EXPECT_EQ(kernels(), 2u) << "layers of other lengths share them";
}

TEST_F(CudaRecurrent, AGruThatResetsItsStateTakesTwoLaunchesAStep) {
  const OpenDevice device = open();
  EXPECT_EQ(launches(device, "GRU", 1000), 2001u);
  EXPECT_EQ(kernels(), 3u);
}

}  // namespace
}  // namespace backplane::cuda

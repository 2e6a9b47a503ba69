// Shape, where it is computed on the device after all.
#include "tests/cuda/node_on_device.hpp"

namespace backplane::cuda {
namespace {

class CudaShape : public CudaTest {
 protected:
  static Dims shape_of(const OpenDevice& device, const Dims& dims, std::int64_t start,
                       std::int64_t end) {
    NodeUnderTest node("", "Shape", 15);
    node.input(BP_FLOAT, dims).outputs(1).attribute("start", start).attribute("end", end);
    return NodeOnDevice(device, node, device.kernel("Shape"), {numbers(dims, 1)})
        .run_as<std::int64_t>();
  }
};

TEST_F(CudaShape, IsTheDimsFromStartToEndWithinTheRank) {
  const OpenDevice device = open();
  const Dims dims{2, 0, 3};
  EXPECT_EQ(shape_of(device, dims, 0, 9), dims);
  EXPECT_EQ(shape_of(device, dims, -1, 3), Dims{3});
  EXPECT_EQ(shape_of(device, dims, -9, -1), (Dims{2, 0}));
  EXPECT_EQ(shape_of(device, dims, 2, 1), Dims());
  EXPECT_EQ(shape_of(device, {}, 0, 1), Dims());
}

}  // namespace
}  // namespace backplane::cuda

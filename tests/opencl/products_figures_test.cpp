// The provider's matrix product beside CLBlast's, on the same queue and the same memory: its results are an independent
// reference, its rate the limit that plugins/opencl/README.md shows. Built where CLBlast is installed:
//
//   build/release/tests/opencl_products
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <random>

#include "tests/opencl/opencl_device.hpp"

// After the version of OpenCL is chosen.
#include <clblast_c.h>

namespace backplane::test_host {
namespace {

struct Sizes {
  std::int64_t rows, columns, depth;
};

/// Those of convolutions and of a transformer: of ResNet-50's blocks, of BERT's layers.
constexpr Sizes kSizes[] = {{64, 3136, 576},  {128, 784, 1152}, {512, 784, 128},
                            {256, 196, 2304}, {2048, 49, 512},  {128, 768, 768},
                            {128, 3072, 768}, {512, 512, 512},  {1000, 1000, 1000}};

/// Multiply-adds a nanosecond, twice, in the best of several rounds.
double giga_flops(const Sizes& size, const std::function<void()>& work) {
  work();
  double least = 1e300;
  for (int round = 0; round < 10; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> passed =
        std::chrono::steady_clock::now() - begin;
    least = std::min(least, passed.count());
  }
  return 2.0 * static_cast<double>(size.rows * size.columns * size.depth) / least;
}

std::vector<float> random_floats(std::int64_t count) {
  static std::mt19937 random(7);
  std::uniform_real_distribution<float> each(-1, 1);
  std::vector<float> all(static_cast<std::size_t>(count));
  for (float& value : all) value = each(random);
  return all;
}

cl_mem memory_of(const OpenDevice& device, const TestBuffer& buffer) {
  std::uint64_t handle = 0;
  check(device->native(device.raw(), BP_NATIVE_BUFFER, nullptr, buffer.raw(), &handle));
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the interface gives native handles as numbers
  return reinterpret_cast<cl_mem>(handle);
}

std::size_t unsigned_of(std::int64_t number) { return static_cast<std::size_t>(number); }

class ProductFigures : public ::testing::TestWithParam<Sizes> {};

TEST_P(ProductFigures, TheProductIsThatOfClBlast) {
  const OpenClPlugin opencl;
  NEEDS_OPENCL(opencl);
  const std::int64_t rows = GetParam().rows, columns = GetParam().columns, depth = GetParam().depth;
  CallersOpenCl callers(0);
  const OpenDevice device(opencl.provider, 0, callers.options());
  const TestStream stream(device);
  const TestBuffer a(device, BP_MEMORY_DEVICE, unsigned_of(rows * depth) * 4);
  const TestBuffer b(device, BP_MEMORY_DEVICE, unsigned_of(depth * columns) * 4);
  const TestBuffer y(device, BP_MEMORY_DEVICE, unsigned_of(rows * columns) * 4);
  const TestBuffer z(device, BP_MEMORY_DEVICE, unsigned_of(rows * columns) * 4);
  upload(device, stream, random_floats(rows * depth), {nullptr, a.raw()});
  upload(device, stream, random_floats(depth * columns), {nullptr, b.raw()});

  NodeUnderTest node("", "MatMul", 13);
  node.input(BP_FLOAT, {rows, depth}).input(BP_FLOAT, {depth, columns}).outputs(1);
  KernelUnderTest kernel(device.kernel("MatMul"), device.raw(), node.raw());
  const auto shape = [](std::int64_t first, std::int64_t second) {
    return floats({first, second}, std::vector<float>(unsigned_of(first * second)));
  };
  kernel.prepare({shape(rows, depth), shape(depth, columns)}, {false, false}, 1);
  const double own = giga_flops(GetParam(), [&] {
    check(kernel.compute({{nullptr, a.raw()}, {nullptr, b.raw()}}, {{nullptr, y.raw()}}, {}, {},
                         stream.raw()));
    stream.sync();
  });

  const auto gemm = [&](cl_event* event) {
    return CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeNo,
                        unsigned_of(rows), unsigned_of(columns), unsigned_of(depth), 1.0f,
                        memory_of(device, a), 0, unsigned_of(depth), memory_of(device, b), 0,
                        unsigned_of(columns), 0.0f, memory_of(device, z), 0, unsigned_of(columns),
                        &callers.queue, event);
  };
  const double clblast = giga_flops(GetParam(), [&] {
    ASSERT_EQ(gemm(nullptr), CLBlastSuccess);
    clFinish(callers.queue);
  });
  std::cout << rows << " x " << columns << " x " << depth << " (" << kernel.variant()
            << "): " << own << " GFLOP/s, CLBlast " << clblast << '\n';

  const std::size_t count = unsigned_of(rows * columns);
  const std::vector<float> mine = download(device, stream, {nullptr, y.raw()}, count);
  const std::vector<float> theirs = download(device, stream, {nullptr, z.raw()}, count);
  float worst = 0;
  for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, std::abs(mine[i] - theirs[i]));
  EXPECT_LT(worst, 1e-6f * static_cast<float>(depth));
}

INSTANTIATE_TEST_SUITE_P(Shapes, ProductFigures, ::testing::ValuesIn(kSizes));

}  // namespace
}  // namespace backplane::test_host

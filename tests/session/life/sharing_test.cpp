// M3: constants and packed weights are set up once per environment and device.
#include <fstream>
#include <unistd.h>

#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class Sharing : public SessionTest {};

TEST_F(Sharing, M3SessionsOfTheSameContentsPackAndUploadOnce) {
  const std::string model = small_net().bytes();
  const std::string again = small_net().bytes();  // other bytes with the same contents
  TestSession first(model, kFake);
  const fakegpu_counters one = counters();
  EXPECT_EQ(one.packs, 1u);
  std::vector<std::unique_ptr<TestSession>> more;
  for (int i = 0; i < 9; ++i) more.push_back(std::make_unique<TestSession>(again, kFake));
  EXPECT_EQ(counters().packs, one.packs);
  EXPECT_EQ(counters().buffer_bytes, one.buffer_bytes);
  EXPECT_EQ(counters().bytes_h2d, one.bytes_h2d);
}

TEST_F(Sharing, M3OtherContentsAreNotShared) {
  ModelMaker other;
  other.input("x", {2, 4}).weight("w", {4, 3}, numbers(12, 99)).weight("b", {3}, numbers(3, 2));
  other.node("product", "Gemm", {"x", "w", "b"}, "h").node("positive", "Relu", {"h"}, "y");
  TestSession first(small_net().bytes(), kFake);
  TestSession second(other.output("y").bytes(), kFake);
  EXPECT_EQ(counters().packs, 2u);
  EXPECT_NE(first.run(numbers(8, 3), {2, 4}), second.run(numbers(8, 3), {2, 4}));
}

TEST_F(Sharing, M3WhatNobodyHoldsIsFreed) {
  { TestSession session(small_net().bytes(), kFake); }
  EXPECT_EQ(counters().buffers, 0u);
  TestSession again(small_net().bytes(), kFake);
  EXPECT_EQ(counters().packs, 2u);
}

/// The kernel's resident bytes of the process.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(Sharing, M3TenSessionsTakeTheMemoryOfOneAndTheirArenas) {
#ifdef BACKPLANE_SANITIZED
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  // A fold makes a constant of 16 MiB that is in no file; the product packs another of 16 MiB.
  constexpr int kSize = 2048;
  ModelMaker maker;
  maker.input("x", {1, kSize}).weight("w", {kSize, kSize}, numbers(kSize * kSize, 1));
  maker.weight("one", {1}, {1.0f});
  maker.node("folded", "Add", {"w", "one"}, "w1")
      .node("product", "MatMul", {"x", "w1"}, "h")
      .node("sum", "Add", {"h", "one"}, "y");
  write(file("m.onnx"), maker.output("y").bytes());
  const Value x = Value::tensor<float>({1, kSize}, numbers(kSize, 2));
  const auto open = [&] {
    auto session =
        std::make_unique<Session>(environment(), file("m.onnx"), options({{"providers", "cpu"}}));
    session->run({{"x", x}});
    return session;
  };
  open();  // warms up what the process keeps anyway
  const std::uint64_t before = resident_bytes();
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(open());
  const std::uint64_t one = resident_bytes() - before;
  for (int i = 0; i < 9; ++i) sessions.push_back(open());
  const std::uint64_t ten = resident_bytes() - before;
  EXPECT_LT(static_cast<double>(ten), 1.3 * static_cast<double>(one) + (1 << 20))
      << one << " bytes one, " << ten << " ten";
}

}  // namespace
}  // namespace backplane::session_test

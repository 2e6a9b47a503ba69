// M3: constants and packed weights are set up once per environment and device.
#include <chrono>
#include <filesystem>
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

/// Writes over the file as `cp` does: the same file has other contents. Its time is another one, whatever the clock's ticks.
void change_in_place(const std::string& path, const std::string& contents) {
  const auto before = std::filesystem::last_write_time(path);
  std::ofstream(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::trunc)
      << contents;
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
}

TEST_F(Sharing, M3AModelThatIsChangedInPlaceIsToldBeforeItIsPacked) {
  const auto model = [](std::uint32_t seed) {
    ModelMaker maker;
    maker.input("x", {"n", 8}).weight("w", {8, 4}, numbers(32, seed));
    return maker.node("product", "MatMul", {"x", "w"}, "y").output("y").bytes();
  };
  const auto run = [](Session& session, std::int64_t rows) {
    const auto count = static_cast<std::size_t>(rows) * 8;
    return elements(session.run({{"x", Value::tensor<float>({rows, 8}, numbers(count, 3))}})[0]);
  };
  const std::string path = file("m.onnx");
  write(path, model(1));
  const Options settings = options({{"providers", "cpu"}});
  Session packed(environment(), path, settings);
  const std::vector<float> right = run(packed, 2);
  Session fresh(environment(), path, settings);

  write(file("next"), model(2));
  std::filesystem::rename(file("next"), path);  // as it should be done
  EXPECT_EQ(run(fresh, 2), right);
  Session second(environment(), path, settings);
  Session third(environment(), path, settings);
  const std::vector<float> other = run(second, 2);
  EXPECT_NE(other, right);

  for (const std::string& contents : {model(1), model(2).substr(0, 8), std::string()}) {
    change_in_place(path, contents);
    const Failure failure = failure_of([&] { run(third, 2); });
    EXPECT_EQ(failure.code, BACKPLANE_FILE_FAILED);
    EXPECT_HOLDS(failure.text, "m.onnx' was changed since the session opened it");
    EXPECT_EQ(failure_of([&] { run(second, 3); }).code, BACKPLANE_FILE_FAILED) << "a new plan";
  }
  EXPECT_EQ(run(second, 2), other) << "what is packed is not looked at again";
  EXPECT_EQ(run(packed, 3).size(), 12u) << "its file has no name any more, and nobody changed it";
}

TEST_F(Sharing, M3WeightsBesideAModelThatChangeInPlaceAreTold) {
  ModelMaker maker;
  maker.input("x", {"n", 3}).external_weight("w", {1, 3}, "w.bin");
  write(file("m.onnx"), maker.node("sum", "Add", {"x", "w"}, "y").output("y").bytes());
  write(file("w.bin"), std::string(12, '\0'));
  Session session(environment(), file("m.onnx"), options({{"providers", "cpu"}}));
  change_in_place(file("w.bin"), std::string(4, '\0'));
  const Failure failure = failure_of([&] {
    session.run({{"x", Value::tensor<float>({1, 3}, numbers(3, 1))}});
  });
  EXPECT_EQ(failure.code, BACKPLANE_FILE_FAILED);
  EXPECT_HOLDS(failure.text, "w.bin' was changed");
}

}  // namespace
}  // namespace backplane::session_test

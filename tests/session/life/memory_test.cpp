// L2: arenas, memory patterns, and limits of memory.
#include <malloc.h>

#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class MemoryOptions : public SessionTest {};

/// Ten values of 4 KiB, of which two at a time are needed.
ModelMaker chain() {
  ModelMaker maker;
  maker.input("x", {32, 32});
  std::string last = "x";
  for (int i = 0; i < 10; ++i) {
    const std::string next = "v" + std::to_string(i);
    maker.node("n" + std::to_string(i), i % 2 == 0 ? "MatMul" : "Softmax",
               i % 2 == 0 ? std::vector<std::string>{last, last} : std::vector<std::string>{last},
               next);
    last = next;
  }
  return maker.output(last);
}

/// Nothing may move to where there is room.
const Settings kFakeAlone = {{"providers", "fakegpu:0,cpu"}, {"fallback", "forbid"}};

std::uint64_t arena(const TestSession& session) {
  return session.statistics()["arena_bytes"].value("fakegpu:0", std::uint64_t{0});
}

TEST_F(MemoryOptions, L2WithoutAPatternNoValuesShareMemory) {
  const std::vector<float> x = numbers(1024, 1);
  TestSession shared(chain().bytes(), kFakeAllowed);
  TestSession apart(chain().bytes(), with(kFakeAllowed, "memory_pattern", "false"));
  EXPECT_EQ(shared.run(x, {32, 32}), apart.run(x, {32, 32}));
  EXPECT_LE(arena(shared), 4u * 4096);
  EXPECT_GE(arena(apart), arena(shared) + 2 * 4096);
}

TEST_F(MemoryOptions, L2WithoutAnArenaARunGivesItsMemoryBack) {
  const std::vector<float> x = numbers(1024, 1);
  TestSession kept(chain().bytes(), kFakeAllowed);
  const std::uint64_t before = counters().buffer_bytes;
  kept.run(x, {32, 32});
  EXPECT_GT(counters().buffer_bytes, before);
  TestSession given_back(chain().bytes(), with(kFakeAllowed, "arena", "false"));
  const std::uint64_t idle = counters().buffer_bytes;
  const std::vector<float> y = given_back.run(x, {32, 32});
  EXPECT_EQ(counters().buffer_bytes, idle);
  EXPECT_EQ(given_back.run(x, {32, 32}), y);
}

TEST_F(MemoryOptions, L2ALimitNamesWhatNeededTheMemory) {
  TestSession session(chain().bytes(), with(kFakeAlone, "memory_limit.fakegpu:0", "4096"));
  const Failure failure = failure_of([&] { session.run(numbers(1024, 1), {32, 32}); });
  EXPECT_EQ(failure.code, BACKPLANE_OUT_OF_MEMORY);
  EXPECT_HOLDS(failure.text, "memory_limit.fakegpu:0 (4096)");
  EXPECT_HOLDS(failure.text, "its largest value is '");
  EXPECT_EQ(failure_of([&] {
              session.run(numbers(1024, 1), {32, 32});
            }).code,
            BACKPLANE_OUT_OF_MEMORY);
}

TEST_F(MemoryOptions, L2ALimitOfAllMemoryCountsEveryDevice) {
  const std::uint64_t needed = [&] {
    TestSession session(chain().bytes(), kFakeAllowed);
    session.run(numbers(1024, 1), {32, 32});
    std::uint64_t bytes = 0;
    const auto memory = session.statistics()["memory"];
    for (const auto& [place, taken] : memory.items())
      bytes += taken["runs"].get<std::uint64_t>() + taken["weights"].get<std::uint64_t>();
    return bytes;
  }();
  ASSERT_GT(needed, 0u);
  TestSession enough(chain().bytes(), with(kFakeAllowed, "memory_limit", std::to_string(needed)));
  EXPECT_EQ(failure_of([&] { enough.run(numbers(1024, 1), {32, 32}); }).text, "");
  TestSession less(chain().bytes(), with(kFakeAllowed, "memory_limit", std::to_string(needed - 1)));
  EXPECT_EQ(failure_of([&] {
              less.run(numbers(1024, 1), {32, 32});
            }).code,
            BACKPLANE_OUT_OF_MEMORY);
}

TEST_F(MemoryOptions, L2AWeightThatDoesNotFitIsNamed) {
  const Failure failure = failure_of(
      [&] { TestSession(small_net().bytes(), with(kFakeAlone, "memory_limit.fakegpu", "16")); });
  EXPECT_EQ(failure.code, BACKPLANE_OUT_OF_MEMORY);
  EXPECT_TRUE(failure.text.find("node 'product'") != std::string::npos ||
              failure.text.find("the weight '") != std::string::npos)
      << failure.text;
}

TEST_F(MemoryOptions, L2WhatDoesNotFitADeviceGoesToTheNextOne) {
  TestSession session(chain().bytes(), with(kFakeAllowed, "memory_limit.fakegpu:0", "4096"));
  TestSession roomy(chain().bytes(), kFakeAllowed);
  const std::vector<float> x = numbers(1024, 1);
  const std::vector<float> got = session.run(x, {32, 32}), want = roomy.run(x, {32, 32});
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
  EXPECT_LE(arena(session), 4096u);
  const Json explanation = session.explain();
  std::size_t moved = 0;
  for (const auto& row : explanation["nodes"]) {
    for (const auto& reason : row["reasons"]) moved += reason["code"] == "memory" ? 1 : 0;
  }
  EXPECT_GT(moved, 0u);
}

TEST_F(MemoryOptions, L2ALimitForADeviceThatIsNotThereNamesTheNearest) {
  const Failure failure = failure_of([&] {
    TestSession(small_net().bytes(), with(kFakeAllowed, "memory_limit.fakegpu:1", "16"));
  });
  EXPECT_EQ(failure.code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_HOLDS(failure.text, "fakegpu:0");
}

TEST_F(MemoryOptions, L2TheDevicesOwnLimitIsAClearErrorToo) {
  ModelMaker maker;
  maker.input("x", {1024, 1024});
  maker.node("a", "Tanh", {"x"}, "y").output("y");
  TestSession session(maker.bytes(), with(kFakeAllowed, "provider.fakegpu.memory_mb", "1"));
  const Failure failure = failure_of([&] { session.run(numbers(1 << 20, 1), {1024, 1024}); });
  EXPECT_EQ(failure.code, BACKPLANE_OUT_OF_MEMORY);
  EXPECT_HOLDS(failure.text, "memory_mb");
}

/// Memory that the process asked its allocator for and has not given back; 0 where a sanitizer's is in its place.
std::size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(MemoryOptions, L2AWeightIsHeldInOneForm) {
  if (allocated() == 0) GTEST_SKIP() << "the sanitizer's allocator does not tell";
  constexpr int kSide = 1024, kCount = 4;
  ModelMaker maker;
  maker.input("x", {1, kSide});
  std::string last = "x", weight;
  for (int i = 0; i < kCount; ++i) {  // of names that put contents at every alignment in the file
    weight += 'w';
    maker.weight(weight, {kSide, kSide}, numbers(kSide * kSide, static_cast<std::uint32_t>(i)));
    maker.node("product", "MatMul", {last, weight}, "y" + weight);
    last = "y" + weight;
  }
  const std::string path = file("weights.onnx");
  write(path, maker.output(last).bytes());
  TestSession first(small_net().bytes(), Settings{{"providers", "cpu"}});  // opens the provider
  const std::size_t before = allocated();
  const Session session(environment(), path, options({{"providers", "cpu"}}));
  const std::size_t bytes = sizeof(float) * kSide * kSide * kCount;
  EXPECT_GE(allocated() - before, bytes);
  EXPECT_LE(allocated() - before, bytes * 5 / 4);
}

}  // namespace
}  // namespace backplane::session_test

#include "core/graph/constant.hpp"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

std::span<const std::byte> bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span<const float>(values));
}

TEST(Constant, TakesExactlyTheBytesOfItsShape) {
  const std::vector<float> values(6);
  EXPECT_NO_THROW(Constant::copy_of(DataType::Float, {2, 3}, bytes(values)));
  EXPECT_NO_THROW(Constant::copy_of(DataType::Float, {0, 3}, {}));
  EXPECT_THROW(Constant::copy_of(DataType::Float, {2, 2}, bytes(values)), Error);
  EXPECT_THROW(Constant::copy_of(DataType::Float, {-2, -3}, bytes(values)), Error);
  EXPECT_THROW(Constant::copy_of(DataType::Float, {std::int64_t{1} << 62, 4}, {}), Error);
  EXPECT_THROW(Constant::copy_of(DataType::String, {0}, {}), Error);
  EXPECT_THROW(Constant({2}, {"one"}), Error);
}

TEST(Constant, BytesAreAlignedWhereverTheyLie) {
  std::vector<float> values = {1, 2, 3};
  std::vector<std::byte> storage(16);
  for (std::size_t offset = 0; offset < 4; ++offset) {
    std::memcpy(storage.data() + offset, values.data(), 12);
    const Constant constant(DataType::Float, {3},
                            std::span<const std::byte>(storage).subspan(offset, 12), nullptr);
    EXPECT_EQ(constant.stored_bytes().data(), storage.data() + offset);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(constant.bytes().data()) % alignof(float), 0u);
        EXPECT_TRUE(std::ranges::equal(constant.bytes(), bytes(values)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(constant.hash(), Constant::copy_of(DataType::Float, {3}, bytes(values))->hash());
  }
}

TEST(Constant, HashTellsTypeShapeAndContentsApart) {
  const std::vector<float> ones = {1, 1};
  const std::vector<float> others = {1, 2};
  const auto hash = [](DataType type, std::vector<std::int64_t> dims,
                       const std::vector<float>& values) {
    return Constant::copy_of(type, std::move(dims), bytes(values))->hash();
  };
  EXPECT_EQ(hash(DataType::Float, {2}, ones), hash(DataType::Float, {2}, ones));
  EXPECT_NE(hash(DataType::Float, {2}, ones), hash(DataType::Float, {2}, others));
  EXPECT_NE(hash(DataType::Float, {2}, ones), hash(DataType::Float, {1, 2}, ones));
  EXPECT_NE(hash(DataType::Float, {2}, ones), hash(DataType::Int32, {2}, ones));
  EXPECT_NE(Constant({2}, {"ab", "c"}).hash(), Constant({2}, {"a", "bc"}).hash());
  EXPECT_NE(Constant::copy_of(DataType::Float, {0}, {})->hash(),
            Constant::copy_of(DataType::Float, {0, 1}, {})->hash());
}

}  // namespace
}  // namespace backplane::core

#include "core/base/data_type.hpp"

#include <gtest/gtest.h>
#include <limits>

namespace backplane::core {
namespace {

TEST(DataType, NamesGoThereAndBack) {
  for (int number = 1; number <= 26; ++number) {
    const auto type = static_cast<DataType>(number);
    EXPECT_EQ(data_type_named(name(type)), type) << number;
  }
  EXPECT_EQ(name(DataType::None), "undefined");
  EXPECT_EQ(data_type_named("undefined"), std::nullopt);
  EXPECT_EQ(data_type_named("floaty"), std::nullopt);
}

TEST(DataType, NumbersThatDoNotExistAreUndefined) {
  EXPECT_EQ(name(static_cast<DataType>(27)), "undefined");
  EXPECT_EQ(name(static_cast<DataType>(-1)), "undefined");
  EXPECT_EQ(element_bits(static_cast<DataType>(1000)), 0);
}

TEST(DataType, SmallElementsArePacked) {
  EXPECT_EQ(storage_bytes(DataType::Int4, 0), 0u);
  EXPECT_EQ(storage_bytes(DataType::Int4, 1), 1u);
  EXPECT_EQ(storage_bytes(DataType::UInt4, 3), 2u);
  EXPECT_EQ(storage_bytes(DataType::Int2, 4), 1u);
  EXPECT_EQ(storage_bytes(DataType::UInt2, 5), 2u);
  EXPECT_EQ(storage_bytes(DataType::Complex128, 2), 32u);
}

TEST(DataType, SizesBeyond63BitsDoNotExist) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(storage_bytes(DataType::Int8, kMost), kMost);
  EXPECT_EQ(storage_bytes(DataType::Int8, kMost + 1), std::nullopt);
  EXPECT_EQ(storage_bytes(DataType::Float, kMost / 4 + 1), std::nullopt);
  EXPECT_EQ(storage_bytes(DataType::Float, std::uint64_t{1} << 62), std::nullopt);
}

}  // namespace
}  // namespace backplane::core

#include "core/graph/type.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace backplane::core {
namespace {

TEST(Type, StringsGoThereAndBack) {
  for (const char* text : {"tensor(float)", "sparse_tensor(int64)", "seq(tensor(string))",
                           "optional(seq(tensor(bfloat16)))", "map(int64,tensor(float))",
                           "seq(map(string,seq(tensor(int4))))"}) {
    EXPECT_EQ(Type::parse(text).to_string(), text);
  }
  EXPECT_EQ(Type().to_string(), "");
}

TEST(Type, WrongTextIsRefusedByName) {
  for (const std::string text : {"", "tensor", "tensor(floaty)", "tensor(float", "tensor(float))",
                                 "seq()", "map(int64)", "tensor(undefined)", "Tensor(float)"}) {
    EXPECT_THROW((void)Type::parse(text), Error) << text;
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "seq(";
  EXPECT_THROW((void)Type::parse(deep), Error);
}

TEST(Type, IsStaticWhenAllDimensionsAreKnown) {
  EXPECT_TRUE(Type::tensor(DataType::Float, std::vector<std::int64_t>{}).is_static());
  EXPECT_TRUE(Type::tensor(DataType::Float, {2, 0}).is_static());
  EXPECT_FALSE(Type::tensor(DataType::Float, {2, -1}).is_static());
  EXPECT_FALSE(Type::tensor(DataType::Float).is_static());
}

TEST(Shape, PrintsSizesAndSymbols) {
  EXPECT_EQ(to_string(Shape{{1, ""}, {-1, "batch"}, {-1, ""}}), "[1,batch,?]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(ElementCount, RefusesWhatCannotBeCounted) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3}), 6);
  EXPECT_EQ(element_count({std::int64_t{1} << 40, 0, std::int64_t{1} << 40}), 0);
  EXPECT_THROW((void)element_count({-1}), Error);
  EXPECT_THROW((void)element_count({0, -1}), Error);
  EXPECT_THROW((void)element_count({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
}

}  // namespace
}  // namespace backplane::core

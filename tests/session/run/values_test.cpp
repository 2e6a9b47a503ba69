// L9: values of every type through the public interface: made, read, fed, fetched.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/reference/element_type.hpp"
#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<ElementType> kNumbers = {
    ElementType::Float,      ElementType::UInt8,          ElementType::Int8,
    ElementType::UInt16,     ElementType::Int16,          ElementType::Int32,
    ElementType::Int64,      ElementType::Bool,           ElementType::Float16,
    ElementType::Double,     ElementType::UInt32,         ElementType::UInt64,
    ElementType::BFloat16,   ElementType::Float8E4M3FN,   ElementType::Float8E4M3FNUZ,
    ElementType::Float8E5M2, ElementType::Float8E5M2FNUZ, ElementType::UInt4,
    ElementType::Int4,       ElementType::Float4E2M1,     ElementType::UInt2,
    ElementType::Int2};

/// A model that gives back what it is fed.
Session echo(const ::onnx::TypeProto& type) {
  ::onnx::ModelProto model;
  model.set_ir_version(13);
  model.add_opset_import()->set_version(25);
  ::onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("echo");
  ::onnx::NodeProto* node = graph->add_node();
  node->set_op_type("Identity");
  node->add_input("x");
  node->add_output("y");
  for (auto* info : {graph->add_input(), graph->add_output()}) *info->mutable_type() = type;
  graph->mutable_input(0)->set_name("x");
  graph->mutable_output(0)->set_name("y");
  static std::vector<std::unique_ptr<std::string>> kept;
  kept.push_back(std::make_unique<std::string>(model.SerializeAsString()));
  return {environment(), kept.back()->data(), kept.back()->size(), cpu_options()};
}

::onnx::TypeProto tensor_type(ElementType type) {
  ::onnx::TypeProto proto;
  proto.mutable_tensor_type()->set_elem_type(static_cast<std::int32_t>(type));
  return proto;
}

/// Numbers that elements of a type can be, not all of them without rounding.
std::vector<double> numbers_within(ElementType type) {
  const auto reference_type = static_cast<reference::ElementType>(type);
  std::vector<double> numbers = {0, 1};
  if (type == ElementType::Bool) return numbers;
  const double highest = reference::highest(reference_type);
  if (reference::is_float(reference_type)) {
    for (const double x : {0.3, 1.7, -2.6, 5.01, 0.0021, 448.0, -3e-5})
      numbers.push_back(std::abs(x) <= highest ? x : highest / 2);
    return numbers;
  }
  for (const double x : {2.0, 3.0, 7.0, -1.0, -2.0})
    if (x <= highest && x >= reference::lowest(reference_type)) numbers.push_back(x);
  return numbers;
}

TEST(Values, ResultsAreAsManyAsFetches) {
  const ModelMaker model = ModelMaker().input("x", {2}).output("y").node("Relu", {"x"}, {"y"});
  TestSession session(model);
  const Value x = Value::tensor<float>({2}, {-1, 2});
  for (const std::size_t count : {0u, 2u}) {
    std::vector<Value> results(count);
    const auto [code, message] = failure_of([&] { session->run({{"x", x}}, {"y"}, results); });
    EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
    EXPECT_THAT(message, HasSubstr("for 1 fetches"));
  }
  std::vector<Value> one(1);
  session->run({{"x", x}}, {"y"}, one);
  EXPECT_EQ(one[0].numbers(), (std::vector<double>{0, 2}));
}

TEST(Values, L9NumbersOfEveryTypeAreWrittenAndReadBackRounded) {
  for (const ElementType type : kNumbers) {
    const auto reference_type = static_cast<reference::ElementType>(type);
    const std::vector<double> numbers = numbers_within(type);
    Value value = Value::tensor(type, {static_cast<std::int64_t>(numbers.size())});
    value.write_numbers(numbers);
    std::vector<double> want;
    for (const double number : numbers)
      want.push_back(type == ElementType::Bool ? number
                                               : reference::round_to(reference_type, number));
    EXPECT_EQ(value.numbers(), want) << value.type();
  }
}

TEST(Values, L9WhatIsOutOfRangeSaturates) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const auto written = [](ElementType type, const std::vector<double>& numbers) {
    Value value = Value::tensor(type, {static_cast<std::int64_t>(numbers.size())});
    value.write_numbers(numbers);
    return value.numbers();
  };
  EXPECT_THAT(written(ElementType::Int8, {300, -300, nan, 2.5, -infinity}),
              ElementsAre(127, -128, 0, 2, -128));
  EXPECT_THAT(written(ElementType::UInt4, {99, -3, 15.4, 1, infinity}),
              ElementsAre(15, 0, 15, 1, 15));
  EXPECT_THAT(written(ElementType::Int2, {9, -9, -1, 1, 0}), ElementsAre(1, -2, -1, 1, 0));
  EXPECT_THAT(written(ElementType::Float4E2M1, {100, -100, nan, 0.3, 2.5}),
              ElementsAre(6, -6, 0, 0.5, 2));
  EXPECT_THAT(written(ElementType::Float8E4M3FN, {1e6, -infinity, 0.0, 449, 17}),
              ElementsAre(448, -448, 0, 448, 16));
  EXPECT_THAT(written(ElementType::Float16, {1e6, 65504, 2048.5, 1, -1e9}),
              ElementsAre(infinity, 65504, 2048, 1, -infinity));
  EXPECT_TRUE(std::isnan(written(ElementType::Float8E5M2FNUZ, {nan})[0]));
  EXPECT_THAT(written(ElementType::Float8E8M0, {1, 4, 3, -1, 0.25}),
              ElementsAre(1, 4, 2, std::ldexp(1.0, -127), 0.25));
}

TEST(Values, L9NumbersLessThanAByteAreWrittenOneByOne) {
  Value value = Value::tensor(ElementType::Int4, {5});
  EXPECT_EQ(value.byte_count(), 3u);
  value.write_numbers({-8, 7, 1, -1, 3});
  value.write_numbers({5}, 1);
  EXPECT_THAT(value.numbers(), ElementsAre(-8, 5, 1, -1, 3));
}

TEST(Values, L9TensorsOfEveryTypeAreFedAndFetched) {
  std::vector<ElementType> all = kNumbers;
  all.insert(all.end(), {ElementType::Complex64, ElementType::Complex128, ElementType::Float8E8M0});
  for (const ElementType type : all) {
    const Session session = echo(tensor_type(type));
    const bool is_complex = type == ElementType::Complex64 || type == ElementType::Complex128;
    Value x = Value::tensor(type, {is_complex ? 2 : 3});
    x.write_numbers(is_complex ? std::vector<double>{1, 0, 2, -1} : std::vector<double>{1, 0, 1});
    const std::vector<Value> results = session.run({{"x", x}});
    EXPECT_EQ(results.at(0).type(), x.type());
    EXPECT_EQ(results.at(0).numbers(), x.numbers()) << x.type();
  }
  const Session session = echo(tensor_type(ElementType::String));
  const Value words = Value::strings({2, 1}, {"one", std::string("t\0o", 3)});
  const Value got = std::move(session.run({{"x", words}}).at(0));
  EXPECT_EQ(got.string(0), "one");
  EXPECT_EQ(got.string(1), std::string("t\0o", 3));
  EXPECT_EQ(got.dims(), (std::vector<std::int64_t>{2, 1}));
}

TEST(Values, L9StringsAreReadAndWrittenInOneBlock) {
  Value words = Value::strings({2, 2}, {"one", "", std::string("t\0o", 3), "three"});
  std::vector<std::uint64_t> ends(3);
  const auto read = [&](std::uint64_t index, std::uint64_t count, char* data, std::uint64_t bytes) {
    detail::check(
        backplane_value_read_strings(words.get(), index, count, ends.data(), data, bytes));
  };
  read(1, 3, nullptr, 0);
  EXPECT_THAT(ends, ElementsAre(0, 3, 8));
  std::string block(8, '?');
  read(1, 3, block.data(), block.size());
  EXPECT_EQ(block, std::string("t\0othree", 8));
  EXPECT_THAT(failure_of([&] { read(1, 3, block.data(), 7); }).second, HasSubstr("room for 7"));
  EXPECT_THAT(failure_of([&] { read(2, 3, nullptr, 0); }).second, HasSubstr("the value has 4"));
  read(4, 0, nullptr, 0);

  const auto write = [&](std::uint64_t index, const std::vector<std::uint64_t>& at,
                         const std::string& data) {
    detail::check(backplane_value_write_strings(words.get(), index, at.size(), at.data(),
                                                data.data(), data.size()));
  };
  write(1, {2, 2}, "abc");
  EXPECT_EQ(words.string(0), "one");
  EXPECT_EQ(words.string(1), "ab");
  EXPECT_EQ(words.string(2), "");
  EXPECT_EQ(words.string(3), "three");
  EXPECT_THAT(failure_of([&] { write(0, {1, 4}, "abc"); }).second, HasSubstr("string 1"));
  EXPECT_THAT(failure_of([&] { write(0, {2, 1}, "abc"); }).second, HasSubstr("from byte 2 to 1"));
  EXPECT_EQ(words.string(0), "one");  // nothing was written
  const Value numbers = Value::tensor<float>({2});
  EXPECT_THAT(
      failure_of([&] {
        detail::check(backplane_value_read_strings(numbers.get(), 0, 1, ends.data(), nullptr, 0));
      }).second,
      HasSubstr("no tensor of strings"));
}

TEST(Values, L9SequencesAreMadeReadFedAndFetched) {
  ::onnx::TypeProto type;
  *type.mutable_sequence_type()->mutable_elem_type() = tensor_type(ElementType::Int64);
  const Session session = echo(type);
  Value first = Value::tensor<std::int64_t>({2}, std::vector<std::int64_t>{1, 2});
  const Value second = Value::tensor<std::int64_t>({1}, std::vector<std::int64_t>{3});
  const Value sequence = Value::sequence("seq(tensor(int64))", {first, second});
  first.data<std::int64_t>()[0] = 99;  // the sequence has its own
  EXPECT_EQ(sequence.kind(), BACKPLANE_KIND_SEQUENCE);
  const Value got = std::move(session.run({{"x", sequence}}).at(0));
  ASSERT_EQ(got.element_count(), 2u);
  EXPECT_THAT(got.element(0).numbers(), ElementsAre(1, 2));
  EXPECT_THAT(got.element(1).numbers(), ElementsAre(3));
  const Value empty = Value::sequence("seq(tensor(int64))", {});
  EXPECT_EQ(session.run({{"x", empty}}).at(0).element_count(), 0u);
  EXPECT_THAT(failure_of([&] { Value::sequence("seq(tensor(float))", {first}); }).second,
              HasSubstr("element 0"));
  EXPECT_THAT(failure_of([&] { Value::sequence("tensor(float)", {}); }).second,
              HasSubstr("seq(tensor(float))"));
  EXPECT_THAT(failure_of([&] { Value::sequence("seq(tensor(flaot))", {}); }).second,
              HasSubstr("flaot"));
}

TEST(Values, L9OptionalsAreMadeReadFedAndFetched) {
  ::onnx::TypeProto type;
  *type.mutable_optional_type()->mutable_elem_type() = tensor_type(ElementType::Float);
  const Session session = echo(type);
  const Value number = Value::tensor<float>({1}, std::vector<float>{2.5f});
  const Value full = Value::optional("optional(tensor(float))", number);
  const Value got = std::move(session.run({{"x", full}}).at(0));
  ASSERT_EQ(got.kind(), BACKPLANE_KIND_OPTIONAL);
  ASSERT_EQ(got.element_count(), 1u);
  EXPECT_THAT(got.element(0).numbers(), ElementsAre(2.5));
  const Value none = Value::optional("optional(tensor(float))");
  EXPECT_EQ(session.run({{"x", none}}).at(0).element_count(), 0u);
}

TEST(Values, L9MapsAreMadeAndRead) {
  const Value keys = Value::strings({2}, {"cat", "dog"});
  const Value scores = Value::tensor<float>({2}, std::vector<float>{0.25f, 0.75f});
  const Value map = Value::map("map(string,tensor(float))", keys, scores);
  EXPECT_EQ(map.kind(), BACKPLANE_KIND_MAP);
  EXPECT_EQ(map.type(), "map(string,tensor(float))");
  EXPECT_EQ(map.element(0).string(1), "dog");
  EXPECT_THAT(map.element(1).numbers(), ElementsAre(0.25, 0.75));
  const std::string bytes = map.serialize();
  const Value again = Value::parse("map", bytes.data(), bytes.size());
  ASSERT_EQ(again.element_count(), 2u);
  EXPECT_EQ(again.element(0).string(0), "cat");
  const Value three = Value::tensor<float>({3});
  EXPECT_THAT(failure_of([&] { Value::map("map(string,tensor(float))", keys, three); }).second,
              HasSubstr("2 keys"));
  EXPECT_THAT(failure_of([&] { Value::map("map(int64,tensor(float))", keys, scores); }).second,
              HasSubstr("int64"));
}

TEST(Values, L9NumbersThatAreNotThereAreAnError) {
  const Value value = Value::tensor<float>({3});
  double number = 0;
  const auto read = [&](const backplane_value* from, std::uint64_t index, std::uint64_t count) {
    return failure_of(
               [&] { detail::check(backplane_value_read_numbers(from, index, &number, count)); })
        .second;
  };
  EXPECT_THAT(read(value.get(), 3, 1), HasSubstr("the tensor has 3"));
  EXPECT_THAT(read(value.get(), ~std::uint64_t{0}, 2), HasSubstr("the tensor has 3"));
  EXPECT_EQ(read(value.get(), 3, 0), "");
  EXPECT_THAT(read(Value::strings({1}, {"a"}).get(), 0, 1), HasSubstr("strings"));
  EXPECT_THAT(read(nullptr, 0, 1), HasSubstr("null"));
}

}  // namespace
}  // namespace backplane::session_test

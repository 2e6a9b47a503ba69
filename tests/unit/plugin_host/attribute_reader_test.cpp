#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {
namespace {

bp_attribute raw(const char* name, std::int32_t type, std::uint32_t count) {
  bp_attribute made{};
  made.struct_size = sizeof(made);
  made.name = name;
  made.type = type;
  made.count = count;
  return made;
}

void expect_invalid(const bp_attribute& attribute, const std::string& words) {
  try {
    read_attribute(attribute);
    ADD_FAILURE() << "accepted; expected: " << words;
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  }
}

TEST(ReadAttribute, NumbersAndStrings) {
  const std::vector<float> floats{1.5F, 2};
  bp_attribute attribute = raw("alpha", BP_ATTRIBUTE_FLOATS, 2);
  attribute.floats = floats.data();
  auto [name, read] = read_attribute(attribute);
  EXPECT_EQ(name, "alpha");
  EXPECT_EQ(read.type, Attribute::Type::Floats);
  EXPECT_EQ(read.floats, floats);

  const std::int64_t seven = 7;
  attribute = raw("axis", BP_ATTRIBUTE_INT, 1);
  attribute.ints = &seven;
  EXPECT_EQ(read_attribute(attribute).second.ints, std::vector<std::int64_t>{7});

  const std::vector<bp_str> strings{{"ab", 2}, {nullptr, 0}};
  attribute = raw("words", BP_ATTRIBUTE_STRINGS, 2);
  attribute.strings = strings.data();
  EXPECT_EQ(read_attribute(attribute).second.strings, (std::vector<std::string>{"ab", ""}));

  const char* type = "optional(tensor(string))";
  attribute = raw("type", BP_ATTRIBUTE_TYPE, 1);
  attribute.types = &type;
  EXPECT_EQ(read_attribute(attribute).second.types[0].to_string(), type);
  EXPECT_TRUE(read_attribute(raw("empty", BP_ATTRIBUTE_INTS, 0)).second.ints.empty());
}

TEST(ReadAttribute, TensorsAreCopiedDense) {
  std::vector<std::int64_t> numbers{1, 2, 3, 4};
  RuntimeValue value;
  value.set_tensor(DataType::Int64, {2, 2});
  value.description.host_ptr = numbers.data();
  value.strides = {1, 2};
  value.description.strides = value.strides.data();
  bp_attribute attribute = raw("value", BP_ATTRIBUTE_TENSOR, 1);
  attribute.tensors = &value.tensor;
  const Attribute read = read_attribute(attribute).second;
  numbers.assign(4, 0);
  const auto* got = reinterpret_cast<const std::int64_t*>(read.tensors.at(0)->bytes().data());
  EXPECT_EQ(std::vector<std::int64_t>(got, got + 4), (std::vector<std::int64_t>{1, 3, 2, 4}));
}

TEST(ReadAttribute, TensorsMayBeGivenAsValues) {
  RuntimeValue words;
  words.set_owned_tensor(DataType::String, {2, 1});
  words.strings = {"one", std::string("t\0o", 3)};
  RuntimeValue number;
  number.set_owned_tensor(DataType::Float, {});
  *static_cast<float*>(number.description.host_ptr) = 2.5F;
  const bp_value* values[2] = {&words, &number};
  bp_attribute attribute = raw("keys", BP_ATTRIBUTE_TENSORS, 2);
  attribute.values = values;
  const Attribute read = read_attribute(attribute).second;
  words.strings[0] = "changed";
  ASSERT_EQ(read.tensors.size(), 2U);
  EXPECT_EQ(read.tensors[0]->dims(), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(read.tensors[0]->strings(), (std::vector<std::string>{"one", std::string("t\0o", 3)}));
  EXPECT_EQ(*reinterpret_cast<const float*>(read.tensors[1]->bytes().data()), 2.5F);

  RuntimeValue sequence;
  sequence.set_type(Type::parse("seq(tensor(float))"));
  values[1] = &sequence;
  expect_invalid(attribute, "no tensor");
  values[1] = nullptr;
  expect_invalid(attribute, "NULL");
}

TEST(ReadAttribute, RefusesWhatBreaksTheRules) {
  bp_attribute attribute = raw("a", BP_ATTRIBUTE_INT, 2);
  const std::int64_t numbers[2] = {1, 2};
  attribute.ints = numbers;
  expect_invalid(attribute, "count of 1");
  attribute.count = 0;
  expect_invalid(attribute, "count of 1");
  expect_invalid(raw("a", BP_ATTRIBUTE_FLOATS, 3), "NULL");
  expect_invalid(raw("a", BP_ATTRIBUTE_GRAPHS, 0), "reading only");
  expect_invalid(raw("a", 77, 1), "77");
  expect_invalid(raw(nullptr, BP_ATTRIBUTE_INTS, 0), "name");
  expect_invalid(raw("", BP_ATTRIBUTE_INTS, 0), "name");
  attribute = raw("a", BP_ATTRIBUTE_INTS, 0);
  attribute.struct_size = 8;
  expect_invalid(attribute, "struct_size");
  const char* type = "tensor(flot)";
  attribute = raw("a", BP_ATTRIBUTE_TYPE, 1);
  attribute.types = &type;
  expect_invalid(attribute, "tensor(flot)");
}

TEST(ReadAttribute, RefusesBrokenTensors) {
  const std::vector<std::pair<std::function<void(RuntimeValue&)>, std::string>> faults{
      {[](RuntimeValue& v) { v.description.host_ptr = nullptr; }, "host memory"},
      {[](RuntimeValue& v) { v.description.dtype = 99; }, "99"},
      {[](RuntimeValue& v) { v.description.dtype = BP_STRING; }, "string tensor"},
      {[](RuntimeValue& v) { v.description.rank = -2; }, "rank"},
      {[](RuntimeValue& v) { v.description.dims = nullptr; }, "dims"},
      {[](RuntimeValue& v) { v.description.bytes = 3; }, "3 bytes"},
      {[](RuntimeValue& v) { v.description.format = 5; }, "format"},
      {[](RuntimeValue& v) { v.dims[0] = -1; }, "-1"},
  };
  for (const auto& [spoil, words] : faults) {
    RuntimeValue value;
    value.set_owned_tensor(DataType::Float, {2});
    spoil(value);
    bp_attribute attribute = raw("value", BP_ATTRIBUTE_TENSOR, 1);
    attribute.tensors = &value.tensor;
    expect_invalid(attribute, words);
  }
}

}  // namespace
}  // namespace backplane::core

#include "core/plugin_host/runtime_value.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/spare_elements.hpp"
#include "core/plugin_host/spare_memory.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

using Dims = std::vector<std::int64_t>;

/// The call must fail with BP_INVALID_ARGUMENT and say so in these words.
void expect_invalid(bp_status* status, const std::string& words) {
  ASSERT_NE(status, nullptr) << "expected a refusal with: " << words;
  const Error error = take_error(status);
  EXPECT_EQ(error.code(), Code::InvalidArgument);
  EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
}

void expect_ok(bp_status* status) {
  if (status == nullptr) return;
  ADD_FAILURE() << take_error(status).message();
}

std::string string_at(const RuntimeValue& value, std::uint64_t index) {
  bp_str text{nullptr, 0};
  expect_ok(value_api().string_get(&value, index, &text));
  return {text.data, static_cast<std::size_t>(text.size)};
}

Type sequence_of(DataType element) {
  Type type;
  type.kind = Type::Kind::Sequence;
  type.inner = std::make_shared<const Type>(Type::tensor(element));
  return type;
}

Type optional_of(const Type& inner) {
  Type type;
  type.kind = Type::Kind::Optional;
  type.inner = std::make_shared<const Type>(inner);
  return type;
}

TEST(RuntimeValue, StartsAbsent) {
  const RuntimeValue value;
  EXPECT_EQ(value.kind, BP_VALUE_ABSENT);
  ASSERT_NE(value.tensor, nullptr);
  EXPECT_EQ(value.tensor->dtype, BP_NONE);
  EXPECT_EQ(value.struct_size, sizeof(bp_value));
  EXPECT_EQ(value.tensor->struct_size, sizeof(bp_tensor));
}

TEST(RuntimeValue, TensorWithoutMemoryKnowsItsBytes) {
  RuntimeValue value;
  value.set_tensor(DataType::Float, {2, 3});
  EXPECT_EQ(value.tensor->bytes, 24U);
  EXPECT_EQ(value.tensor->host_ptr, nullptr);
  EXPECT_EQ(value.tensor->rank, 2);
  EXPECT_EQ(value.tensor->dims[1], 3);
  value.set_tensor(DataType::Int4, {3, 3});
  EXPECT_EQ(value.tensor->bytes, 5U);
  value.set_tensor(DataType::Double, {});
  EXPECT_EQ(value.tensor->rank, 0);
  EXPECT_EQ(value.tensor->bytes, 8U);
  EXPECT_NE(value.tensor->dims, nullptr);
  value.set_tensor(DataType::Int64, {4, 0, 5});
  EXPECT_EQ(value.tensor->bytes, 0U);
}

TEST(RuntimeValue, RefusesShapesThatOverflow) {
  RuntimeValue value;
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 4;
  EXPECT_THROW(value.set_tensor(DataType::Double, {huge}), Error);
  EXPECT_THROW(value.set_tensor(DataType::Double, {-1}), Error);
}

TEST(RuntimeValue, OwnedMemoryIsAlignedAndReused) {
  RuntimeValue value;
  value.set_owned_tensor(DataType::Float, {100});
  void* first = value.tensor->host_ptr;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0U);
  value.set_owned_tensor(DataType::Int8, {7, 9});
  EXPECT_EQ(value.tensor->host_ptr, first);
  value.set_tensor(DataType::Float, {5});
  EXPECT_EQ(value.tensor->host_ptr, nullptr);
  value.set_owned_tensor(DataType::Float, {50});
  EXPECT_EQ(value.tensor->host_ptr, first);
  value.set_owned_tensor(DataType::Float, {10'000});
  std::memset(value.tensor->host_ptr, 1, 40'000);
  value.set_owned_tensor(DataType::Float, {0});
  EXPECT_NE(value.tensor->host_ptr, nullptr);
}

TEST(RuntimeValue, MemoryThatSomebodyHoldsIsLeftAlone) {
  RuntimeValue value;
  value.set_owned_tensor(DataType::Float, {100});
  const std::shared_ptr<void> held = value.memory;
  value.set_owned_tensor(DataType::Float, {100});
  EXPECT_NE(value.tensor->host_ptr, held.get());
  const auto foreign = std::make_shared<std::array<char, 4096>>();
  value.memory = foreign;  // something else's owner, however large, is no host memory of ours
  value.set_owned_tensor(DataType::Float, {4});
  EXPECT_NE(value.tensor->host_ptr, foreign.get());
}

TEST(RuntimeValue, TakesAndGivesConstants) {
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const ConstantPtr constant =
      Constant::copy_of(DataType::Float, {2, 3}, std::as_bytes(std::span(numbers)));
  RuntimeValue value;
  value.set_constant(*constant);
  EXPECT_EQ(value.tensor->host_ptr, constant->bytes().data());
  EXPECT_EQ(value.to_constant()->hash(), constant->hash());

  // Columns 0 and 2 of the same memory, seen as 3 rows of a 2-row matrix's transpose.
  value.dims = {3, 2};
  value.strides = {1, 3};
  value.description.dims = value.dims.data();
  value.description.strides = value.strides.data();
  const ConstantPtr turned = value.to_constant();
  const auto* got = reinterpret_cast<const float*>(turned->bytes().data());
  EXPECT_EQ(std::vector<float>(got, got + 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(RuntimeValue, ConstantOfNoMemoryIsRefused) {
  RuntimeValue value;
  value.set_tensor(DataType::Float, {2});
  EXPECT_THROW(value.to_constant(), Error);
  value.set_tensor(DataType::Float, {0, 2});
  EXPECT_EQ(value.to_constant()->element_count(), 0);
}

TEST(ValueApi, ReadsAndWritesStrings) {
  RuntimeValue value;
  value.set_owned_tensor(DataType::String, {2, 2});
  EXPECT_EQ(value.tensor->bytes, 0U);
  const std::string zero("a\0b", 3);
  expect_ok(value_api().string_set(&value, 3, {zero.data(), zero.size()}));
  EXPECT_EQ(string_at(value, 3), zero);
  EXPECT_EQ(string_at(value, 0), "");
  expect_ok(value_api().string_set(&value, 3, {nullptr, 0}));
  EXPECT_EQ(string_at(value, 3), "");
  value.set_owned_tensor(DataType::String, {1});
  EXPECT_EQ(string_at(value, 0), "");
}

TEST(ValueApi, RefusesWrongArgumentsForStrings) {
  RuntimeValue value;
  bp_str text{"x", 1};
  value.set_owned_tensor(DataType::String, {2});
  expect_invalid(value_api().string_get(&value, 2, &text), "string 2 does not exist");
  expect_invalid(value_api().string_get(&value, 0, nullptr), "NULL");
  expect_invalid(value_api().string_get(nullptr, 0, &text), "NULL");
  expect_invalid(value_api().string_set(&value, 9, text), "string 9 does not exist");
  expect_invalid(value_api().string_set(&value, 0, {nullptr, 4}), "NULL");
  value.set_owned_tensor(DataType::Float, {2});
  expect_invalid(value_api().string_get(&value, 0, &text), "a tensor, not a string tensor");
  value.set_type(sequence_of(DataType::String));
  expect_invalid(value_api().string_set(&value, 0, text), "a sequence");
}

TEST(ValueApi, BuildsSequences) {
  RuntimeValue sequence;
  sequence.set_type(sequence_of(DataType::Int64));
  std::uint64_t size = 9;
  expect_ok(value_api().sequence_size(&sequence, &size));
  EXPECT_EQ(size, 0U);
  const Dims dims{2, 1};
  const bp_value* element = nullptr;
  expect_ok(value_api().sequence_append(&sequence, BP_INT64, 2, dims.data(), &element));
  static_cast<std::int64_t*>(element->tensor->host_ptr)[1] = 42;
  expect_ok(value_api().sequence_append(&sequence, BP_INT64, 0, nullptr, &element));
  expect_ok(value_api().sequence_size(&sequence, &size));
  EXPECT_EQ(size, 2U);
  expect_ok(value_api().sequence_at(&sequence, 0, &element));
  EXPECT_EQ(element->tensor->rank, 2);
  EXPECT_EQ(static_cast<std::int64_t*>(element->tensor->host_ptr)[1], 42);
}

TEST(ValueApi, RefusesWrongArgumentsForSequences) {
  RuntimeValue sequence;
  sequence.set_type(sequence_of(DataType::Int64));
  const Dims dims{2, -1};
  const bp_value* element = nullptr;
  std::uint64_t size = 0;
  const bp_value_api& api = value_api();
  expect_invalid(api.sequence_append(&sequence, BP_FLOAT, 0, nullptr, &element), "tensor(int64)");
  expect_invalid(api.sequence_append(&sequence, 99, 0, nullptr, &element), "99");
  expect_invalid(api.sequence_append(&sequence, BP_INT64, -1, nullptr, &element), "rank");
  expect_invalid(api.sequence_append(&sequence, BP_INT64, 2, nullptr, &element), "NULL");
  expect_invalid(api.sequence_append(&sequence, BP_INT64, 2, dims.data(), &element), "-1");
  expect_invalid(api.sequence_append(&sequence, BP_INT64, 0, nullptr, nullptr), "NULL");
  expect_invalid(api.sequence_at(&sequence, 0, &element), "element 0 does not exist");
  expect_invalid(api.sequence_append_value(&sequence, nullptr), "NULL");
  expect_invalid(api.sequence_append_value(&sequence, &sequence), "itself");
  EXPECT_TRUE(sequence.elements.empty());
  RuntimeValue tensor;
  tensor.set_owned_tensor(DataType::Int64, {1});
  expect_invalid(api.sequence_size(&tensor, &size), "a tensor, not a sequence");
  expect_invalid(api.sequence_append(&tensor, BP_INT64, 0, nullptr, &element), "not a sequence");
  expect_invalid(api.map_parts(&tensor, &element, &element), "not a map");
}

TEST(ValueApi, AppendedTensorsAreCopiedAndElementsShared) {
  RuntimeValue tensor;
  tensor.set_owned_tensor(DataType::Int64, {2});
  auto* numbers = static_cast<std::int64_t*>(tensor.tensor->host_ptr);
  numbers[0] = 1;
  numbers[1] = 2;
  RuntimeValue first;
  first.set_type(sequence_of(DataType::Int64));
  expect_ok(value_api().sequence_append_value(&first, &tensor));
  numbers[0] = 7;  // a planned tensor's memory is somebody else's soon
  EXPECT_EQ(static_cast<std::int64_t*>(first.elements[0]->tensor->host_ptr)[0], 1);

  RuntimeValue second;
  second.set_type(sequence_of(DataType::Int64));
  expect_ok(value_api().sequence_append_value(&second, first.elements[0].get()));
  EXPECT_EQ(second.elements[0], first.elements[0]);
  first.set_absent();
  EXPECT_EQ(static_cast<std::int64_t*>(second.elements[0]->tensor->host_ptr)[1], 2);
}

TEST(ValueApi, AppendsStringsAndNestedSequences) {
  RuntimeValue strings;
  strings.set_owned_tensor(DataType::String, {1});
  strings.strings[0] = "one";
  RuntimeValue inner;
  inner.set_type(sequence_of(DataType::String));
  expect_ok(value_api().sequence_append_value(&inner, &strings));
  RuntimeValue optional;
  optional.set_type(optional_of(sequence_of(DataType::String)));
  expect_ok(value_api().sequence_append_value(&optional, &inner));
  inner.set_absent();
  const bp_value* held = nullptr;
  expect_ok(value_api().sequence_at(&optional, 0, &held));
  expect_ok(value_api().sequence_at(held, 0, &held));
  EXPECT_EQ(string_at(*static_cast<const RuntimeValue*>(held), 0), "one");
}

TEST(ValueApi, ElementsThatWereGivenBackAreAsGoodAsNew) {
  const bp_value_api& api = value_api();
  const auto make = [&](bp_dtype type, const std::vector<std::int64_t>& dims) {
    const bp_value* made = nullptr;
    expect_ok(api.tensor_new(type, static_cast<std::int32_t>(dims.size()), dims.data(), &made));
    return made;
  };
  const std::size_t before = SpareElements::kept_count();
  const bp_value* texts = make(BP_STRING, {2});
  expect_ok(api.string_set(texts, 1, {"text", 4}));
  const bp_value* numbers = make(BP_FLOAT, {2, 3});
  EXPECT_EQ(numbers->tensor->bytes, 24u);
  const bp_value* map = nullptr;
  expect_ok(api.value_new("map(string,tensor(float))", &map));
  const bp_value* two = make(BP_FLOAT, {2});
  expect_ok(api.map_set(map, texts, two));
  const bp_value* values[] = {texts, numbers, two, map};
  for (const bp_value* value : values) api.value_free(value);
  const std::size_t kept = SpareMemory::is_on() ? std::max<std::size_t>(before, 4) : 0;
  EXPECT_EQ(SpareElements::kept_count(), kept);

  for (int i = 0; i < 4; ++i) {  // each of them, as something else
    const bp_value* again = nullptr;
    expect_ok(api.value_new("map(int64,tensor(double))", &again));
    const bp_value *keys = nullptr, *none = nullptr;
    expect_ok(api.map_parts(again, &keys, &none));
    EXPECT_EQ(keys->tensor->dtype, BP_INT64);
    EXPECT_EQ(none->tensor->bytes, 0u);
    const bp_value* empty = make(BP_STRING, {3});
    bp_str text{};
    expect_ok(api.string_get(empty, 1, &text));
    EXPECT_EQ(text.size, 0u);
    EXPECT_EQ(empty->tensor->rank, 1);
    const bp_value* scalar = make(BP_INT64, {});
    EXPECT_EQ(scalar->tensor->rank, 0);
    EXPECT_EQ(scalar->tensor->bytes, 8u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scalar->tensor->host_ptr) % 64, 0u);
    for (const bp_value* value : {again, empty, scalar}) api.value_free(value);
  }
}

TEST(ValueApi, ElementsThatSomebodyHoldsAreNotKept) {
  const bp_value* made = nullptr;
  expect_ok(value_api().tensor_new(BP_FLOAT, 0, nullptr, &made));
  RuntimeValue sequence;
  sequence.set_type(Type::parse("seq(tensor(float))"));
  expect_ok(value_api().sequence_append_value(&sequence, made));
  const std::shared_ptr<void> memory = sequence.elements[0]->memory;
  const std::size_t before = SpareElements::kept_count();
  value_api().value_free(made);
  EXPECT_EQ(SpareElements::kept_count(), before);
  sequence.set_absent();
  expect_ok(value_api().tensor_new(BP_FLOAT, 0, nullptr, &made));
  EXPECT_NE(made->tensor->host_ptr, memory.get());
  value_api().value_free(made);
}

TEST(ValueApi, OptionalsHoldOneValue) {
  RuntimeValue optional;
  optional.set_type(optional_of(Type::tensor(DataType::Float)));
  const bp_value* element = nullptr;
  expect_ok(value_api().sequence_append(&optional, BP_FLOAT, 0, nullptr, &element));
  expect_invalid(value_api().sequence_append(&optional, BP_FLOAT, 0, nullptr, &element), "already");
  std::uint64_t size = 0;
  expect_ok(value_api().sequence_size(&optional, &size));
  EXPECT_EQ(size, 1U);
}

TEST(ValueApi, TensorsInDeviceMemoryAreNotAppended) {
  RuntimeValue tensor;
  tensor.set_tensor(DataType::Float, {3});
  RuntimeValue sequence;
  sequence.set_type(sequence_of(DataType::Float));
  expect_invalid(value_api().sequence_append_value(&sequence, &tensor), "host memory");
  EXPECT_TRUE(sequence.elements.empty());
}

TEST(ValueApi, MapsHaveKeysAndValues) {
  Type type;
  type.kind = Type::Kind::Map;
  type.element = DataType::String;
  type.inner = std::make_shared<const Type>(Type::tensor(DataType::Float));
  RuntimeValue map;
  map.set_type(type);
  const bp_value* keys = nullptr;
  const bp_value* values = nullptr;
  expect_ok(value_api().map_parts(&map, &keys, &values));
  EXPECT_EQ(keys->tensor->dtype, BP_STRING);
  EXPECT_EQ(values->tensor->dtype, BP_FLOAT);
  EXPECT_EQ(keys->tensor->dims[0], 0);
  expect_invalid(value_api().map_parts(&map, &keys, nullptr), "NULL");
}

/// A one-dimensional tensor that belongs to the test, as to a plugin.
const bp_value* new_tensor(bp_dtype dtype, std::int64_t size) {
  const bp_value* made = nullptr;
  expect_ok(value_api().tensor_new(dtype, 1, &size, &made));
  return made;
}

TEST(ValueApi, WritesMaps) {
  RuntimeValue map;
  map.set_type(Type::parse("map(int64,tensor(float))"));
  const bp_value* keys = new_tensor(BP_INT64, 2);
  const bp_value* values = new_tensor(BP_FLOAT, 2);
  static_cast<std::int64_t*>(keys->tensor->host_ptr)[1] = -7;
  static_cast<float*>(values->tensor->host_ptr)[1] = 0.5F;
  expect_ok(value_api().map_set(&map, keys, values));
  value_api().value_free(keys);
  value_api().value_free(values);
  const bp_value* held_keys = nullptr;
  const bp_value* held_values = nullptr;
  expect_ok(value_api().map_parts(&map, &held_keys, &held_values));
  EXPECT_EQ(held_keys, keys);  // shared, not copied
  EXPECT_EQ(static_cast<const std::int64_t*>(held_keys->tensor->host_ptr)[1], -7);
  EXPECT_EQ(static_cast<const float*>(held_values->tensor->host_ptr)[1], 0.5F);

  RuntimeValue planned;  // memory that is somebody else's soon is copied
  planned.set_owned_tensor(DataType::Float, {2});
  expect_ok(value_api().map_set(&map, held_keys, &planned));
  EXPECT_NE(map.elements[1]->tensor->host_ptr, planned.tensor->host_ptr);
}

TEST(ValueApi, MakesSequencesOfMapsWithStringKeys) {
  RuntimeValue sequence;
  sequence.set_type(Type::parse("seq(map(string,tensor(float)))"));
  const bp_value* keys = new_tensor(BP_STRING, 1);
  expect_ok(value_api().string_set(keys, 0, {"cat", 3}));
  for (int i = 0; i < 2; ++i) {
    const bp_value* map = nullptr;
    expect_ok(value_api().value_new("map(string,tensor(float))", &map));
    const bp_value* values = new_tensor(BP_FLOAT, 1);
    *static_cast<float*>(values->tensor->host_ptr) = static_cast<float>(i);
    expect_ok(value_api().map_set(map, keys, values));
    expect_ok(value_api().sequence_append_value(&sequence, map));
    value_api().value_free(values);
    value_api().value_free(map);
  }
  value_api().value_free(keys);
  const bp_value* map = nullptr;
  const bp_value* found_keys = nullptr;
  const bp_value* found_values = nullptr;
  expect_ok(value_api().sequence_at(&sequence, 1, &map));
  expect_ok(value_api().map_parts(map, &found_keys, &found_values));
  EXPECT_EQ(string_at(*static_cast<const RuntimeValue*>(found_keys), 0), "cat");
  EXPECT_EQ(*static_cast<const float*>(found_values->tensor->host_ptr), 1.0F);
}

TEST(ValueApi, MapsOfContainersTakeASequenceOfValues) {
  RuntimeValue map;
  map.set_type(Type::parse("map(int64,seq(tensor(float)))"));
  RuntimeValue values;
  values.set_type(Type::parse("seq(seq(tensor(float)))"));
  RuntimeValue inner;
  inner.set_type(sequence_of(DataType::Float));
  expect_ok(value_api().sequence_append_value(&values, &inner));
  const bp_value* keys = new_tensor(BP_INT64, 1);
  expect_ok(value_api().map_set(&map, keys, &values));
  values.set_type(Type::parse("seq(seq(tensor(int8)))"));
  expect_invalid(value_api().map_set(&map, keys, &values), "seq(tensor(float))");
  expect_invalid(value_api().map_set(&map, keys, keys), "not a sequence");
  value_api().value_free(keys);
}

TEST(ValueApi, RefusesWrongPartsOfMaps) {
  RuntimeValue map;
  map.set_type(Type::parse("map(int64,tensor(float))"));
  const bp_value* keys = new_tensor(BP_INT64, 2);
  const bp_value* values = new_tensor(BP_FLOAT, 2);
  const bp_value* three = new_tensor(BP_FLOAT, 3);
  RuntimeValue square;
  square.set_owned_tensor(DataType::Float, {2, 1});
  const bp_value_api& api = value_api();
  expect_invalid(api.map_set(&map, keys, three), "2 keys and 3 values");
  expect_invalid(api.map_set(&map, values, values), "keys of the map are tensor(float)");
  expect_invalid(api.map_set(&map, keys, keys), "values of the map are tensor(int64)");
  expect_invalid(api.map_set(&map, keys, &square), "one-dimensional");
  expect_invalid(api.map_set(&map, keys, nullptr), "NULL");
  expect_invalid(api.map_set(&square, keys, values), "not a map");
  EXPECT_EQ(map.elements[0]->tensor->dims[0], 0);
  for (const bp_value* value : {keys, values, three}) api.value_free(value);
  api.value_free(nullptr);
}

TEST(ValueApi, RefusesNewValuesOfWrongTypes) {
  const bp_value* made = nullptr;
  const bp_value_api& api = value_api();
  const Dims negative{-1};
  expect_invalid(api.tensor_new(99, 0, nullptr, &made), "99");
  expect_invalid(api.tensor_new(BP_FLOAT, 1, negative.data(), &made), "-1");
  expect_invalid(api.tensor_new(BP_FLOAT, 0, nullptr, nullptr), "NULL");
  expect_invalid(api.value_new("tensor(float)", &made), "tensor_new");
  expect_invalid(api.value_new("map(flot,tensor(float))", &made), "flot");
  expect_invalid(api.value_new(nullptr, &made), "");
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace backplane::core

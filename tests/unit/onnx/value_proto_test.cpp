#include "core/onnx/value_proto.hpp"

#include <gtest/gtest.h>
#include <random>

#include <onnx/onnx-data.pb.h>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

Datum tensor(const std::vector<float>& values, const std::string& name = "") {
  Datum datum;
  datum.name = name;
  datum.tensor = Constant::copy_of(DataType::Float, {static_cast<std::int64_t>(values.size())},
                                   std::as_bytes(std::span<const float>(values)));
  datum.type = Type::tensor(DataType::Float, datum.tensor->dims());
  return datum;
}

Datum composite(Type::Kind kind, std::vector<Datum> elements, const Type& inner) {
  Datum datum;
  datum.type.kind = kind;
  datum.type.inner = std::make_shared<const Type>(inner);
  datum.elements = std::move(elements);
  return datum;
}

Datum again(const Datum& datum) {
  return parse_value(bytes_of(serialize_value(datum)), datum.type.kind);
}

TEST(ValueProto, Tensors) {
  const Datum result = again(tensor({1, 2, 3}, "t"));
  EXPECT_EQ(result.name, "t");
  EXPECT_EQ(result.type.to_string(), "tensor(float)");
  EXPECT_EQ(elements_of<float>(*result.tensor), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(parse_value(bytes_of(serialize_value(tensor({1}))), Type::Kind::Unknown)
                .tensor->element_count(),
            1);
}

TEST(ValueProto, SequencesAlsoOfSequences) {
  const Datum inner =
      composite(Type::Kind::Sequence, {tensor({1}), tensor({2, 3})}, Type::tensor(DataType::Float));
  const Datum result = again(composite(Type::Kind::Sequence, {inner, inner}, inner.type));
  EXPECT_EQ(result.type.to_string(), "seq(seq(tensor(float)))");
  ASSERT_EQ(result.elements.size(), 2u);
  EXPECT_EQ(elements_of<float>(*result.elements[1].elements[1].tensor), (std::vector<float>{2, 3}));
  EXPECT_FALSE(result.elements[0].type.inner->shape.has_value());
}

TEST(ValueProto, EmptySequences) {
  const Datum result = again(composite(Type::Kind::Sequence, {}, Type::tensor(DataType::Float)));
  EXPECT_TRUE(result.elements.empty());
  EXPECT_EQ(result.type.kind, Type::Kind::Sequence);
}

TEST(ValueProto, Optionals) {
  const Datum some =
      again(composite(Type::Kind::Optional, {tensor({4})}, Type::tensor(DataType::Float)));
  ASSERT_EQ(some.elements.size(), 1u);
  EXPECT_EQ(some.type.to_string(), "optional(tensor(float))");
  EXPECT_TRUE(
      again(composite(Type::Kind::Optional, {}, Type::tensor(DataType::Float))).elements.empty());
  const Datum sequence =
      composite(Type::Kind::Sequence, {tensor({1})}, Type::tensor(DataType::Float));
  EXPECT_EQ(
      again(composite(Type::Kind::Optional, {sequence}, sequence.type)).elements[0].elements.size(),
      1u);
}

TEST(ValueProto, MapsWithAnyKeys) {
  for (const DataType type :
       {DataType::Int8, DataType::Int64, DataType::UInt16, DataType::UInt64}) {
    const std::vector<std::byte> bytes(2 * static_cast<std::size_t>(element_bits(type) / 8),
                                       std::byte{3});
    Datum keys;
    keys.tensor = Constant::copy_of(type, {2}, bytes);
    keys.type = Type::tensor(type, {2});
    Datum map = composite(Type::Kind::Map, {keys, tensor({7, 8})}, Type::tensor(DataType::Float));
    map.type.element = type;
    const Datum result = again(map);
    EXPECT_EQ(result.elements[0].tensor->hash(), keys.tensor->hash()) << name(type);
    ASSERT_EQ(result.elements[1].elements.size(), 2u);
    EXPECT_EQ(elements_of<float>(*result.elements[1].elements[1].tensor), (std::vector<float>{8}));
    EXPECT_EQ(result.type.to_string(), "map(" + std::string(name(type)) + ",tensor(float))");
  }
}

TEST(ValueProto, MapsWithStringKeysInSequences) {
  Datum keys;
  keys.tensor = std::make_shared<const Constant>(std::vector<std::int64_t>{2},
                                                 std::vector<std::string>{"a", "b"});
  keys.type = Type::tensor(DataType::String, {2});
  const Datum values =
      composite(Type::Kind::Sequence, {tensor({1}), tensor({2})}, Type::tensor(DataType::Float));
  Datum map = composite(Type::Kind::Map, {keys, values}, Type::tensor(DataType::Float));
  map.type.element = DataType::String;
  const Datum result = again(composite(Type::Kind::Sequence, {map}, map.type));
  EXPECT_EQ(result.type.to_string(), "seq(map(string,tensor(float)))");
  EXPECT_EQ(result.elements[0].elements[0].tensor->strings(), (std::vector<std::string>{"a", "b"}));
}

TEST(ValueProto, WhatIsNoneIsRefused) {
  EXPECT_THROW(parse_value(bytes_of(std::string("nonsense")), Type::Kind::Tensor), Error);
  EXPECT_THROW(parse_value({}, Type::Kind::Tensor), Error);
  EXPECT_THROW(parse_value({}, Type::Kind::SparseTensor), Error);
  ::onnx::SequenceProto sequence;
  sequence.set_elem_type(::onnx::SequenceProto::SEQUENCE);
  *sequence.add_tensor_values() = raw_tensor<float>("", 1, {1}, {1});
  EXPECT_THROW(parse_value(bytes_of(sequence.SerializeAsString()), Type::Kind::Sequence), Error);
  ::onnx::MapProto map;
  map.set_key_type(7);
  map.add_keys(1);
  EXPECT_THROW(parse_value(bytes_of(map.SerializeAsString()), Type::Kind::Map), Error);
  ::onnx::TensorProto external;
  external.set_data_type(1);
  external.set_data_location(::onnx::TensorProto::EXTERNAL);
  EXPECT_THROW(parse_value(bytes_of(external.SerializeAsString()), Type::Kind::Tensor), Error);
  ::onnx::TensorProto segment;
  segment.set_data_type(1);
  segment.add_dims(4);
  segment.mutable_segment()->set_end(16);
  EXPECT_THROW(parse_value(bytes_of(segment.SerializeAsString()), Type::Kind::Tensor), Error);
}

TEST(ValueProto, MutationsAreErrorsOrValues) {
  const Datum inner =
      composite(Type::Kind::Sequence, {tensor({1}), tensor({2, 3})}, Type::tensor(DataType::Float));
  const std::string text = serialize_value(composite(Type::Kind::Optional, {inner}, inner.type));
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string mutation = text;
    for (int edits = 0; edits < 3; ++edits)
      mutation[random() % mutation.size()] = static_cast<char>(random());
    try {
      (void)parse_value(bytes_of(mutation), Type::Kind::Optional);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace backplane::core

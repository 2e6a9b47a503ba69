// L9: maps that operators of ai.onnx.ml make and read: https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A model of one node of ai.onnx.ml from x to y, whose types are yet to be written.
ModelMaker model_of(const std::string& op) {
  ModelMaker model = ModelMaker().node(op, {"x"}, {"y"});
  ::onnx::ModelProto& proto = model.proto();
  ::onnx::OperatorSetIdProto* import = proto.add_opset_import();
  import->set_domain("ai.onnx.ml");
  import->set_version(3);
  proto.mutable_graph()->mutable_node(0)->set_domain("ai.onnx.ml");
  proto.mutable_graph()->add_input()->set_name("x");
  proto.mutable_graph()->add_output()->set_name("y");
  return model;
}

void set_tensor(::onnx::ValueInfoProto& info, ElementType type) {
  info.mutable_type()->mutable_tensor_type()->set_elem_type(static_cast<std::int32_t>(type));
}

void set_map(::onnx::TypeProto& type, ElementType key, ElementType value) {
  type.mutable_map_type()->set_key_type(static_cast<std::int32_t>(key));
  auto* tensor = type.mutable_map_type()->mutable_value_type()->mutable_tensor_type();
  tensor->set_elem_type(static_cast<std::int32_t>(value));
  tensor->mutable_shape();
}

::onnx::AttributeProto& attribute(ModelMaker& model, const std::string& name,
                                  ::onnx::AttributeProto::AttributeType type) {
  ::onnx::AttributeProto* added = model.proto().mutable_graph()->mutable_node(0)->add_attribute();
  added->set_name(name);
  added->set_type(type);
  return *added;
}

void add_texts(ModelMaker& model, const std::string& name, const std::vector<std::string>& texts) {
  auto& added = attribute(model, name, ::onnx::AttributeProto::STRINGS);
  for (const std::string& word : texts) added.add_strings(word);
}

void add_text(ModelMaker& model, const std::string& name, const std::string& word) {
  attribute(model, name, ::onnx::AttributeProto::STRING).set_s(word);
}

ModelMaker zip_map(ElementType key) {
  ModelMaker model = model_of("ZipMap");
  ::onnx::GraphProto& graph = *model.proto().mutable_graph();
  set_tensor(*graph.mutable_input(0), ElementType::Float);
  set_map(*graph.mutable_output(0)->mutable_type()->mutable_sequence_type()->mutable_elem_type(),
          key, ElementType::Float);
  return model;
}

TEST(Dictionaries, L9RowsBecomeMapsFromTexts) {
  ModelMaker model = zip_map(ElementType::String);
  add_texts(model, "classlabels_strings", {"cat", "dog"});
  TestSession session(model);
  const Value x = Value::tensor<float>({2, 2}, {1, 2, 3, 4});
  const Value maps = std::move(session->run({{"x", x}}).at(0));
  ASSERT_EQ(maps.element_count(), 2u);
  EXPECT_EQ(maps.type(), "seq(map(string,tensor(float)))");
  EXPECT_EQ(maps.element(1).element(0).string(0), "cat");
  EXPECT_THAT(maps.element(0).element(1).numbers(), ElementsAre(1, 2));
  EXPECT_THAT(maps.element(1).element(1).numbers(), ElementsAre(3, 4));
  EXPECT_EQ(session->run({{"x", Value::tensor<float>({0, 2})}}).at(0).element_count(), 0u);
  EXPECT_THAT(failure_of([&] {
                session->run({{"x", Value::tensor<float>({1, 3})}});
              }).second,
              HasSubstr("2 labels"));
}

TEST(Dictionaries, L9ARowBecomesAMapFromNumbers) {
  ModelMaker model = zip_map(ElementType::Int64);
  auto& labels = attribute(model, "classlabels_int64s", ::onnx::AttributeProto::INTS);
  labels.add_ints(-7);
  labels.add_ints(9);
  TestSession session(model);
  const Value maps = std::move(session->run({{"x", Value::tensor<float>({2}, {5, 6})}}).at(0));
  ASSERT_EQ(maps.element_count(), 1u);
  EXPECT_THAT(maps.element(0).element(0).numbers(), ElementsAre(-7, 9));
  EXPECT_THAT(maps.element(0).element(1).numbers(), ElementsAre(5, 6));
}

TEST(Dictionaries, L9WordsOfAVocabularyGetTheirValues) {
  ModelMaker model = model_of("DictVectorizer");
  ::onnx::GraphProto& graph = *model.proto().mutable_graph();
  set_map(*graph.mutable_input(0)->mutable_type(), ElementType::String, ElementType::Float);
  set_tensor(*graph.mutable_output(0), ElementType::Float);
  add_texts(model, "string_vocabulary", {"a", "b", "c"});
  TestSession session(model);
  const Value map = Value::map("map(string,tensor(float))", Value::strings({3}, {"c", "z", "a"}),
                               Value::tensor<float>({3}, {1, 2, 3}));
  EXPECT_THAT(session->run({{"x", map}}).at(0).numbers(), ElementsAre(3, 0, 1));
}

/// A CastMap of a map from int64 to floats.
ModelMaker cast_map(const std::string& cast_to, ElementType type) {
  ModelMaker model = model_of("CastMap");
  ::onnx::GraphProto& graph = *model.proto().mutable_graph();
  set_map(*graph.mutable_input(0)->mutable_type(), ElementType::Int64, ElementType::Float);
  set_tensor(*graph.mutable_output(0), type);
  add_text(model, "cast_to", cast_to);
  return model;
}

Value int_map(const std::vector<std::int64_t>& keys, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(keys.size());
  return Value::map("map(int64,tensor(float))", Value::tensor<std::int64_t>({count}, keys),
                    Value::tensor<float>({count}, values));
}

TEST(Dictionaries, L9MapsBecomeTensorsByRisingKey) {
  TestSession session(cast_map("TO_INT64", ElementType::Int64));
  EXPECT_THAT(session->run({{"x", int_map({5, -2}, {1.5, 2.5})}}).at(0).numbers(),
              ElementsAre(2, 1));
  EXPECT_THAT(session->run({{"x", int_map({}, {})}}).at(0).numbers(), IsEmpty());
}

TEST(Dictionaries, L9SparseMapsArePadded) {
  ModelMaker model = cast_map("TO_FLOAT", ElementType::Float);
  add_text(model, "map_form", "SPARSE");
  attribute(model, "max_map", ::onnx::AttributeProto::INT).set_i(4);
  TestSession session(model);
  EXPECT_THAT(session->run({{"x", int_map({3, 1}, {0.5, 2})}}).at(0).numbers(),
              ElementsAre(0, 2, 0, 0.5));
  EXPECT_THAT(failure_of([&] {
                session->run({{"x", int_map({4}, {1})}});
              }).second,
              HasSubstr("key 4"));
}

}  // namespace
}  // namespace backplane::session_test

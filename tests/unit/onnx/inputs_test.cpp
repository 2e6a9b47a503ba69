// Which initializers are inputs, and which a feed may replace: SESSION_FEATURES' row on IR versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// y = x + listed + plain, where `listed` is also a graph input, in front of x.
::onnx::ModelProto with_initializers(std::int64_t ir_version) {
  auto model = model_of({node("Sum", {"x", "listed", "plain"}, {"y"})}, 8, ir_version);
  auto& graph = *model.mutable_graph();
  *graph.add_initializer() = raw_tensor<float>("listed", 1, {3}, {1, 2, 3});
  *graph.add_initializer() = raw_tensor<float>("plain", 1, {3}, {1, 2, 3});
  graph.clear_input();
  *graph.add_input() = value_info("listed", {"3"});
  *graph.add_input() = value_info("x", {"2", "3"});
  return model;
}

std::vector<std::string> names(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> result;
  for (const ValueId id : values) result.push_back(graph.value(id).name);
  return result;
}

TEST(Inputs, BeforeIrVersion4EveryInitializerIsAnInputThatNobodyOverrides) {
  const Model model = import_text(with_initializers(3).SerializeAsString());
  EXPECT_THAT(names(model.graph, model.graph.inputs), ElementsAre("listed", "x", "plain"));
  EXPECT_THAT(names(model.graph, model.graph.initializers), ElementsAre("listed", "plain"));
  for (const char* name : {"listed", "plain"}) {
    EXPECT_FALSE(value_of(model.graph, name).overridable) << name;
    EXPECT_TRUE(value_of(model.graph, name).is_input) << name;
    EXPECT_NE(value_of(model.graph, name).constant, nullptr) << name;
  }
}

TEST(Inputs, FromIrVersion4OnListedInitializersAreOverridable) {
  const Model model = import_text(with_initializers(8).SerializeAsString());
  EXPECT_THAT(names(model.graph, model.graph.inputs), ElementsAre("listed", "x"));
  EXPECT_TRUE(value_of(model.graph, "listed").overridable);
  EXPECT_FALSE(value_of(model.graph, "plain").overridable);
  EXPECT_FALSE(value_of(model.graph, "plain").is_input);
}

TEST(Inputs, LiftedConstantsAreNoInputs) {
  auto constant = node("Constant", {}, {"c"});
  auto* attribute = constant.add_attribute();
  attribute->set_name("value");
  attribute->set_type(::onnx::AttributeProto::TENSOR);
  *attribute->mutable_t() = raw_tensor<float>("", 1, {3}, {1, 2, 3});
  const Model model =
      import_text(model_of({constant, node("Add", {"x", "c"}, {"y"})}, 7, 3).SerializeAsString());
  EXPECT_THAT(names(model.graph, model.graph.inputs), ElementsAre("x"));
}

TEST(Inputs, DefaultsMustFitTheDeclaration) {
  auto model = with_initializers(8);
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(1);
  EXPECT_THAT(import_error(model), HasSubstr("'listed'"));
}

TEST(Inputs, OverridableShapesAreNotBelieved) {
  auto model = model_of({node("Reshape", {"x", "shape"}, {"y"})});
  *model.mutable_graph()->add_initializer() = raw_tensor<std::int64_t>("shape", 7, {2}, {3, 2});
  EXPECT_EQ(shape_of(import_text(model.SerializeAsString()).graph, "y"), "tensor(float)[3,2]");
  *model.mutable_graph()->add_input() = value_info("shape", {"2"}, ::onnx::TensorProto::INT64);
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_FALSE(value_of(imported.graph, "y").type.is_static());
  EXPECT_EQ(value_of(imported.graph, "y").type.shape->size(), 2u);
}

TEST(Inputs, DimensionsAreSetByName) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->mutable_input(0) = value_info("x", {"batch", "3"});
  *model.mutable_graph()->mutable_output(0) = value_info("y", {"batch", "3"});
  EXPECT_EQ(shape_of(import_text(model.SerializeAsString()).graph, "y"), "tensor(float)[batch,3]");
  ImportOptions options;
  options.dims = {{"batch", 5}};
  EXPECT_EQ(shape_of(import_text(model.SerializeAsString(), options).graph, "x"),
            "tensor(float)[5,3]");
  EXPECT_EQ(shape_of(import_text(model.SerializeAsString(), options).graph, "y"),
            "tensor(float)[5,3]");
  options.dims = {{"bach", 5}};
  EXPECT_THAT(import_error(model, options),
              ::testing::AllOf(HasSubstr("'bach'"), HasSubstr("did you mean 'batch'")));
  options.dims = {{"batch", -1}};
  EXPECT_THAT(import_error(model, options), HasSubstr("below 0"));
}

TEST(Inputs, QuestionMarksAreNoNamesOfDimensions) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->mutable_input(0) = value_info("x", {"?", "?"});
  *model.mutable_graph()->mutable_output(0) = value_info("y", {"?", "rows"});
  const Model result = import_text(model.SerializeAsString());
  const Shape& shape = *value_of(result.graph, "x").type.shape;
  ASSERT_EQ(shape.size(), 2u);
  for (const Dim& dim : shape) EXPECT_EQ(dim.symbol, "");
}

TEST(Inputs, OutputsMayBeInputsInitializersOrListedTwice) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->add_initializer() = raw_tensor<float>("w", 1, {1}, {1});
  for (const char* name : {"x", "w", "y"}) model.mutable_graph()->add_output()->set_name(name);
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_THAT(names(imported.graph, imported.graph.outputs), ElementsAre("y", "x", "w", "y"));
  EXPECT_EQ(shape_of(imported.graph, "w"), "tensor(float)[1]");
}

}  // namespace
}  // namespace backplane::core

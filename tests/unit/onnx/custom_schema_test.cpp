#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

FormalParam param(const std::string& name, const std::string& type) {
  FormalParam result;
  result.name = name;
  result.type = type;
  return result;
}

/// Y = Example(X; times), in a domain.
CustomSchema example(const std::string& domain, const std::string& library = "libexample.so") {
  CustomSchema schema;
  schema.domain = domain;
  schema.name = "Example";
  schema.library = library;
  schema.inputs = {param("X", "T")};
  schema.outputs = {param("Y", "T")};
  schema.attributes = {{"times", Attribute::Type::Int, false}};
  schema.type_params = {{"T", {"tensor(float)", "tensor(double)"}}};
  return schema;
}

std::string import_with(const SchemaRegistry& schemas, const ::onnx::ModelProto& model,
                        std::string* shape = nullptr) {
  const std::string text = model.SerializeAsString();
  try {
    const Model imported = import_bytes(bytes_of(text), schemas, {});
    if (shape != nullptr) *shape = shape_of(imported.graph, "y");
    return "no error";
  } catch (const Error& error) {
    return error.message();
  }
}

std::string add_error(SchemaRegistry& schemas, CustomSchema schema) {
  try {
    schemas.add(std::move(schema));
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(CustomSchema, InTheDefaultDomain) {
  SchemaRegistry schemas;
  schemas.add(example(""));
  const auto model = model_of({node("Example", {"x"}, {"a"}), node("Relu", {"a"}, {"y"})});
  std::string shape;
  EXPECT_EQ(import_with(schemas, model, &shape), "no error");
  EXPECT_EQ(shape, "tensor(float)?");
  EXPECT_EQ(schemas.find("", "Example", 17)->since_version, 1);
  EXPECT_EQ(schemas.find("ai.onnx", "Relu", 17)->since_version, 14);
  EXPECT_EQ(schemas.find("", "Absent", 17), std::nullopt);
}

TEST(CustomSchema, InfersWithTypesConstantsAndAttributes) {
  SchemaRegistry schemas;
  CustomSchema schema = example("org.example");
  schema.inputs.push_back(param("shape", "tensor(int64)"));
  schema.infer = [](const Graph& graph, const Node& node) {
    const Value& shape = graph.value(node.inputs[1]);
    EXPECT_EQ(graph.node_count(), 1u);
    EXPECT_EQ(node.attributes.at("times").ints.at(0), 3);
    EXPECT_EQ(graph.value(node.inputs[0]).type.element, DataType::Float);
    return std::vector<Type>{
        Type::tensor(DataType::Float, elements_of<std::int64_t>(*shape.constant))};
  };
  schemas.add(schema);
  auto custom = node("Example", {"x", "s"}, {"a"});
  custom.set_domain("org.example");
  set_int(custom, "times", 3);
  auto model = model_of({node("Relu", {"a"}, {"y"}), custom});
  *model.mutable_graph()->add_initializer() = raw_tensor<std::int64_t>("s", 7, {3}, {4, 5, 6});
  auto* import = model.add_opset_import();
  import->set_domain("org.example");
  import->set_version(1);
  std::string shape;
  EXPECT_EQ(import_with(schemas, model, &shape), "no error");
  EXPECT_EQ(shape, "tensor(float)[4,5,6]");
}

TEST(CustomSchema, InferenceErrorsNameTheNode) {
  SchemaRegistry schemas;
  CustomSchema schema = example("");
  schema.infer = [](const Graph&, const Node&) -> std::vector<Type> {
    invalid("times must be even");
  };
  schemas.add(schema);
  EXPECT_THAT(import_with(schemas, model_of({node("Example", {"x"}, {"y"}, "mine")})),
              AllOf(HasSubstr("'mine'"), HasSubstr("times must be even")));
}

TEST(CustomSchema, NodesAreCheckedAgainstIt) {
  SchemaRegistry schemas;
  CustomSchema schema = example("");
  schema.attributes[0].required = true;
  schemas.add(schema);
  auto custom = node("Example", {"x"}, {"y"}, "mine");
  EXPECT_THAT(import_with(schemas, model_of({custom})),
              AllOf(HasSubstr("'mine'"), HasSubstr("times")));
  set_int(custom, "times", 1);
  EXPECT_EQ(import_with(schemas, model_of({custom})), "no error");
  auto wrong_type = model_of({custom});
  *wrong_type.mutable_graph()->mutable_input(0) =
      value_info("x", {"2"}, ::onnx::TensorProto::INT32);
  EXPECT_THAT(import_with(schemas, wrong_type),
              AllOf(HasSubstr("'mine'"), HasSubstr("tensor(int32)")));
  custom.add_input("x");
  EXPECT_THAT(import_with(schemas, model_of({custom})), HasSubstr("'mine'"));
}

TEST(CustomSchema, VersionsAreSelectedByOpset) {
  SchemaRegistry schemas;
  CustomSchema first = example("org.example");
  CustomSchema second = example("org.example");
  second.since_version = 5;
  schemas.add(second);
  schemas.add(first);
  EXPECT_EQ(schemas.find("org.example", "Example", 4)->since_version, 1);
  EXPECT_EQ(schemas.find("org.example", "Example", 5)->since_version, 5);
  EXPECT_EQ(schemas.find("org.example", "Example", 99)->since_version, 5);
  EXPECT_EQ(schemas.find("org.example", "Example", 0), std::nullopt);
  EXPECT_EQ(schemas.versions("org.example", "Example").size(), 2u);
}

TEST(CustomSchema, VersionsOfStandardOperatorsAreListed) {
  const SchemaRegistry schemas;
  std::vector<int> since;
  for (const SchemaInfo& info : schemas.versions("", "Relu")) since.push_back(info.since_version);
  EXPECT_THAT(since, ::testing::ElementsAre(1, 6, 13, 14));
  const SchemaInfo concat = *schemas.find("", "Concat", 13);
  EXPECT_EQ(concat.input(0), concat.input(50));
  EXPECT_EQ(concat.input(0)->kind, FormalParam::Kind::Variadic);
  EXPECT_EQ(concat.output(1), nullptr);
  EXPECT_THAT(concat.type_params.at("T"), Contains("tensor(float)"));
  EXPECT_FALSE(schemas.find("", "RandomNormal", 17)->deterministic);
  EXPECT_TRUE(schemas.find("", "Relu", 17)->deterministic);
}

TEST(CustomSchema, TwoLibrariesAreAnErrorThatNamesBoth) {
  SchemaRegistry schemas;
  schemas.add(example("org.example", "libone.so"));
  EXPECT_EQ(add_error(schemas, example("org.example", "libone.so")), "no error");
  EXPECT_THAT(add_error(schemas, example("org.example", "libtwo.so")),
              AllOf(HasSubstr("libone.so"), HasSubstr("libtwo.so")));
}

TEST(CustomSchema, OnnxOwnNamesAreTaken) {
  SchemaRegistry schemas;
  CustomSchema schema = example("");
  schema.name = "Relu";
  EXPECT_THAT(add_error(schemas, schema), HasSubstr("'Relu'"));
  schema.domain = "org.example";
  EXPECT_EQ(add_error(schemas, schema), "no error");
}

TEST(CustomSchema, NonsenseIsRefused) {
  SchemaRegistry schemas;
  CustomSchema schema = example("d");
  schema.inputs[0].type = "tensor(floaty)";
  EXPECT_THAT(add_error(schemas, schema), AllOf(HasSubstr("input 0"), HasSubstr("floaty")));
  schema = example("d");
  schema.type_params[0].types.clear();
  EXPECT_THAT(add_error(schemas, schema), HasSubstr("'T'"));
  schema = example("d");
  schema.since_version = 0;
  EXPECT_THAT(add_error(schemas, schema), HasSubstr("since_version"));
  schema = example("d");
  schema.inputs.insert(schema.inputs.begin(), param("V", "T"));
  schema.inputs[0].kind = FormalParam::Kind::Variadic;
  EXPECT_THAT(add_error(schemas, schema), HasSubstr("variadic"));
}

TEST(CustomSchema, IsAmongTheSuggestions) {
  SchemaRegistry schemas;
  schemas.add(example("org.example"));
  EXPECT_THAT(schemas.similar("org.example", "Exampel"), Contains("Example"));
  EXPECT_THAT(schemas.similar("", "Con"), Contains("Conv"));
}

}  // namespace
}  // namespace backplane::core

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "core/onnx/function_body.hpp"
#include "core/onnx/function_operator.hpp"
#include "core/onnx/schema_registry_impl.hpp"
#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Y = op(X) on a float tensor [2, 3].
::onnx::ModelProto microsoft_model(const std::string& op_type,
                                   const std::string& domain = "com.microsoft") {
  ::onnx::ModelProto model = model_of({node(op_type, {"x"}, {"y"})});
  model.mutable_graph()->mutable_node(0)->set_domain(domain);
  auto& import = *model.add_opset_import();
  import.set_domain(domain);
  import.set_version(1);
  return model;
}

std::string error_of(const ::onnx::ModelProto& model, const SchemaRegistry& schemas) {
  const std::string text = model.SerializeAsString();
  try {
    (void)import_bytes(bytes_of(text), schemas, {});
    return "no error";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(FunctionOperators, AreThoseThatTheReadmeLists) {
  std::set<std::string> registered;
  for (const FunctionOperator& one : function_operators()) {
    const std::string& domain = one.schema.domain();
    registered.insert((domain == "com.microsoft" ? "" : shown_domain(domain) + "::") +
                      one.schema.Name());
  }
  EXPECT_EQ(registered.size(), function_operators().size()) << "two have one name";
  std::set<std::string> listed;
  std::ifstream readme(BACKPLANE_TEST_SOURCE_DIR "/core/onnx/microsoft/README.md");
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("| `")) listed.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_EQ(listed, registered);
}

TEST(FunctionOperators, NearNamesAreNamed) {
  const SchemaRegistry schemas;
  EXPECT_THAT(error_of(microsoft_model("FastGello"), schemas),
              AllOf(HasSubstr("nobody knows an operator 'FastGello' of domain 'com.microsoft'"),
                    HasSubstr("FastGelu")));
}

TEST(FunctionOperators, LayoutsOfOneMachineAreRefusedWithAdvice) {
  const SchemaRegistry schemas;
  for (const char* domain : {"com.microsoft.nchwc", "com.ms.internal.nhwc"}) {
    EXPECT_THAT(error_of(microsoft_model("Conv", domain), schemas),
                AllOf(HasSubstr(domain), HasSubstr("extended")));
  }
}

TEST(FunctionOperators, AreTypedByTheirBodies) {
  const SchemaRegistry schemas;
  const std::string text = microsoft_model("QuickGelu").SerializeAsString();
  const Model model = import_bytes(bytes_of(text), schemas, {});
  const std::optional<FunctionBody> body =
      function_body(model.graph, model.graph.node(NodeId(0)), schemas);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->graph.node_count(), 3U);
  EXPECT_EQ(shape_of(model.graph, "y"), shape_of(model.graph, "x"));
  EXPECT_EQ(shape_of(body->graph, body->graph.value(body->graph.outputs[0]).name),
            shape_of(model.graph, "x"));
}

TEST(FunctionOperators, ALibrarysOwnGoesFirst) {
  SchemaRegistry schemas;
  CustomSchema own;
  own.domain = "com.microsoft";
  own.name = "QuickGelu";
  own.library = "libown.so";
  FormalParam any;
  any.name = "X";
  any.type = "tensor(float)";
  own.inputs = {any};
  own.outputs = {any};
  own.attributes = {{"strength", Attribute::Type::Int, false}};
  schemas.add(own);
  ::onnx::ModelProto model = microsoft_model("QuickGelu");
  auto& attribute = *model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("strength");
  attribute.set_type(::onnx::AttributeProto::INT);
  attribute.set_i(1);
  EXPECT_EQ(error_of(model, schemas), "no error");
  EXPECT_THAT(error_of(model, SchemaRegistry()), HasSubstr("strength"));
  const std::string text = model.SerializeAsString();
  const Model loaded = import_bytes(bytes_of(text), schemas, {});
  EXPECT_FALSE(function_body(loaded.graph, loaded.graph.node(NodeId(0)), schemas));
}

}  // namespace
}  // namespace backplane::core

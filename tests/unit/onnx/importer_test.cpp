#include "core/onnx/importer.hpp"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/graph/graph.hpp"
#include "proto_models.hpp"

namespace backplane::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Importer, TakesNodesInAnyOrder) {
  const auto model =
      model_of({node("Neg", {"b"}, {"y"}, "third"), node("Abs", {"a"}, {"b"}, "second"),
                node("Relu", {"x"}, {"a"}, "first")});
  const Model imported = import_text(model.SerializeAsString());
  const Graph& graph = imported.graph;
  ASSERT_EQ(graph.node_count(), 3u);
  EXPECT_EQ(shape_of(graph, "y"), "tensor(float)[2,3]");
  EXPECT_THAT(topological_order(graph), ElementsAre(NodeId(2), NodeId(1), NodeId(0)));
  // What is said about the model goes by the file's order.
  EXPECT_EQ(imported.original[0].name, "third");
  EXPECT_EQ(graph.node(NodeId(0)).name, "third");
  EXPECT_THAT(graph.node(NodeId(0)).origins, ElementsAre(0));
}

TEST(Importer, KeepsAnOrderThatIsGood) {
  const auto model =
      model_of({node("Relu", {"x"}, {"a"}, "n0"), node("Neg", {"x"}, {"b"}, "n1"),
                node("Abs", {"x"}, {"c"}, "n2"), node("Sum", {"c", "a", "b"}, {"y"}, "n3")});
  const Model imported = import_text(model.SerializeAsString());
  for (const NodeId id : IdRange<NodeId>(4))
    EXPECT_EQ(imported.graph.node(id).name, "n" + std::to_string(id.index()));
}

TEST(Importer, GivesNodesNames) {
  const auto model = model_of({node("Relu", {"x"}, {"a"}), node("Neg", {"a"}, {"b"}, "Relu_0"),
                               node("Abs", {"b"}, {"y"}, "Relu_0")});
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_EQ(imported.graph.node(NodeId(0)).name, "Relu_0_1");
  EXPECT_EQ(imported.graph.node(NodeId(1)).name, "Relu_0");
  EXPECT_EQ(imported.graph.node(NodeId(2)).name, "Abs_2");
  EXPECT_EQ(imported.original[2].name, "Abs_2");
}

TEST(Importer, ReadsWhatTheFileSaysBesides) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  model.set_producer_name("maker");
  model.set_producer_version("1.2");
  model.set_domain("org.example");
  model.set_model_version(7);
  model.set_doc_string("doc");
  auto* property = model.add_metadata_props();
  property->set_key("author");
  property->set_value("me");
  auto& annotation = *model.mutable_graph()->add_quantization_annotation();
  annotation.set_tensor_name("y");
  auto* parameter = annotation.add_quant_parameter_tensor_names();
  parameter->set_key("SCALE_TENSOR");
  parameter->set_value("y_scale");
  const Model imported = import_text(model.SerializeAsString());
  EXPECT_EQ(imported.producer_name, "maker");
  EXPECT_EQ(imported.producer_version, "1.2");
  EXPECT_EQ(imported.domain, "org.example");
  EXPECT_EQ(imported.model_version, 7);
  EXPECT_EQ(imported.ir_version, 8);
  EXPECT_EQ(imported.metadata.at("author"), "me");
  EXPECT_EQ(imported.opsets.at(""), 17);
  EXPECT_EQ(value_of(imported.graph, "y").quantization.at("SCALE_TENSOR"), "y_scale");
  EXPECT_EQ(imported.graph.node(NodeId(0)).since_version, 14);
}

TEST(Importer, MakesConstantsOfConstantNodes) {
  auto constant = node("Constant", {}, {"c"}, "the_constant");
  auto* attribute = constant.add_attribute();
  attribute->set_name("value_floats");
  attribute->set_type(::onnx::AttributeProto::FLOATS);
  for (const float value : {1.f, 2.f, 3.f}) attribute->add_floats(value);
  const Model imported =
      import_text(model_of({constant, node("Add", {"x", "c"}, {"y"})}).SerializeAsString());
  EXPECT_EQ(imported.graph.node_count(), 1u);
  EXPECT_EQ(imported.original.size(), 2u);
  EXPECT_THAT(imported.graph.node(NodeId(0)).origins, ElementsAre(1));
  ASSERT_NE(value_of(imported.graph, "c").constant, nullptr);
  EXPECT_EQ(elements_of<float>(*value_of(imported.graph, "c").constant),
            (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(shape_of(imported.graph, "c"), "tensor(float)[3]");
}

TEST(Importer, BodiesSeeOuterValues) {
  ::onnx::GraphProto body;
  *body.add_node() = node("Add", {"a", "w"}, {"r"}, "in_body");
  body.add_output()->set_name("r");
  auto branch = node("If", {"c"}, {"y"}, "branch");
  set_graph(branch, "then_branch", body);
  set_graph(branch, "else_branch", body);
  // The node whose value only the bodies read stands behind them.
  auto model = model_of({branch, node("Relu", {"x"}, {"a"}, "maker")});
  *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  *model.mutable_graph()->add_initializer() = raw_tensor<float>("w", 1, {3}, {1, 2, 3});
  const Model imported = import_text(model.SerializeAsString());
  const Graph& graph = imported.graph;
  EXPECT_EQ(graph.node(NodeId(0)).name, "branch");
  EXPECT_THAT(topological_order(graph), ElementsAre(NodeId(1), NodeId(0)));
  EXPECT_EQ(shape_of(graph, "y"), "tensor(float)[2,3]");
  EXPECT_THAT(graph.node(NodeId(0)).captured,
              ::testing::UnorderedElementsAre(graph.find_value("a"), graph.find_value("w")));
  const Graph& then_branch = *graph.node(NodeId(0)).attributes.at("then_branch").graphs.at(0);
  EXPECT_TRUE(value_of(then_branch, "a").is_outer);
  EXPECT_EQ(shape_of(then_branch, "a"), "tensor(float)[2,3]");
  EXPECT_EQ(shape_of(then_branch, "r"), "tensor(float)[2,3]");
}

TEST(Importer, NamesAMissingValueInABody) {
  ::onnx::GraphProto body;
  *body.add_node() = node("Relu", {"absent"}, {"r"}, "in_body");
  body.add_output()->set_name("r");
  auto branch = node("If", {"c"}, {"y"}, "branch");
  set_graph(branch, "then_branch", body);
  set_graph(branch, "else_branch", body);
  auto model = model_of({branch});
  *model.mutable_graph()->add_input() = value_info("c", {}, ::onnx::TensorProto::BOOL);
  EXPECT_THAT(import_error(model), AllOf(HasSubstr("'in_body'"), HasSubstr("'absent'")));
}

TEST(Importer, SuggestsNearNames) {
  EXPECT_THAT(import_error(model_of({node("Relux", {"x"}, {"y"}, "n")})),
              AllOf(HasSubstr("'n'"), HasSubstr("'Relux'"), HasSubstr("nearest: Relu"),
                    HasSubstr("--custom-ops")));
  EXPECT_THAT(import_error(model_of({node("Relu", {"xx"}, {"y"}, "n")})),
              HasSubstr("did you mean 'x'"));
}

TEST(Importer, OperatorsOutsideOfTheOpsetAreNamed) {
  EXPECT_THAT(import_error(model_of({node("Gelu", {"x"}, {"y"}, "n")}, 13)),
              AllOf(HasSubstr("opset 20"), HasSubstr("13")));
  EXPECT_THAT(import_error(model_of({node("Upsample", {"x", "x"}, {"y"}, "n")}, 13)),
              HasSubstr("deprecated"));
  EXPECT_THAT(import_error(model_of({node("Relu", {"x"}, {"y"})}, 29)),
              AllOf(HasSubstr("29"), HasSubstr("28")));
}

TEST(Importer, CyclesAreNamed) {
  const auto model = model_of({node("Relu", {"b"}, {"a"}, "one"), node("Neg", {"a"}, {"b"}, "two"),
                               node("Add", {"x", "a"}, {"y"}, "reader")});
  EXPECT_THAT(import_error(model), AllOf(HasSubstr("cycle"), HasSubstr("'one'"), HasSubstr("'two'"),
                                         ::testing::Not(HasSubstr("'reader'"))));
}

TEST(Importer, UnusedImportsOfUnknownDomainsAreAllRight) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  for (const char* domain : {"com.example", "ai.onnx.ml"}) {
    auto* import = model.add_opset_import();
    import->set_domain(domain);
    import->set_version(99);
  }
  EXPECT_EQ(import_error(model), "no error");
}

TEST(Importer, OldestFilesDoNotSayTheTypesOfAttributes) {
  auto flatten = node("Flatten", {"x"}, {"y"});
  auto* attribute = flatten.add_attribute();
  attribute->set_name("axis");
  attribute->set_i(1);
  auto model = model_of({flatten}, 1, 1);
  model.clear_opset_import();
  EXPECT_EQ(import_error(model), "no error");
}

TEST(Importer, FilesAreMappedAndNamedInErrors) {
  const std::string path =
      ::testing::TempDir() + "/backplane_importer_" + std::to_string(::getpid()) + ".onnx";
  auto model = model_of({node("Add", {"x", "w"}, {"y"})});
  *model.mutable_graph()->add_initializer() =
      raw_tensor<float>("w", 1, {1000, 3}, std::vector<float>(3000, 2));
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(1000);
  const auto write = [&](const std::string& contents) {
    std::ofstream(path, std::ios::binary) << contents;
  };
  write(model.SerializeAsString());
  const SchemaRegistry schemas;
  const Model imported = import_file(path, schemas, {});
  std::filesystem::remove(path);  // the mapping stays
  EXPECT_EQ(imported.path, path);
  EXPECT_EQ(elements_of<float>(*value_of(imported.graph, "w").constant),
            std::vector<float>(3000, 2));
  write("nonsense");
  try {
    (void)import_file(path, schemas, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr(path));
  }
  std::filesystem::remove(path);
  try {
    (void)import_file(path, schemas, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::NotFound);
    EXPECT_THAT(error.message(), HasSubstr(path));
  }
}

TEST(Importer, LargeInitializersAreNotCopied) {
  auto model = model_of({node("Relu", {"x"}, {"y"})});
  *model.mutable_graph()->add_initializer() =
      raw_tensor<float>("w", 1, {1000}, std::vector<float>(1000, 2));
  const std::string text = model.SerializeAsString();
  const Model imported = import_text(text);
  const auto* data =
      reinterpret_cast<const char*>(value_of(imported.graph, "w").constant->stored_bytes().data());
  EXPECT_GE(data, text.data());
  EXPECT_LT(data, text.data() + text.size());
}

TEST(Importer, TakesLongChainsStoredBackwards) {
  constexpr int kNodes = 5000;
  std::vector<::onnx::NodeProto> nodes;
  const auto name = [](int i) {
    return i == 0 ? std::string("x") : i == kNodes ? std::string("y") : "v" + std::to_string(i);
  };
  for (int i = kNodes; i > 0; --i) nodes.push_back(node("Relu", {name(i - 1)}, {name(i)}));
  const Model imported = import_text(model_of(nodes).SerializeAsString());
  EXPECT_EQ(topological_order(imported.graph).size(), static_cast<std::size_t>(kNodes));
  EXPECT_EQ(shape_of(imported.graph, "y"), "tensor(float)[2,3]");
}

}  // namespace
}  // namespace backplane::core

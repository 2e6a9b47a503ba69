#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

class Identities : public GraphTest {
 protected:
  void SetUp() override { input("x"); }
  void eliminate() { run("eliminate_identities"); }
  /// x -> op -> relu -> y, with the op's node to be changed further.
  NodeId between(const std::string& op, const std::vector<std::string>& inputs = {"x"}) {
    const NodeId id = add(op, inputs, {"m"}, "op");
    add("Relu", {"m"}, {"y"}, "relu");
    output("y");
    return id;
  }
  bool gone() {
    eliminate();
    return nodes() == std::vector<std::string>{"relu"} &&
           graph().node(NodeId(1)).inputs[0] == graph().find_value("x");
  }
};

TEST_F(Identities, GoAway) {
  between("Identity");
  EXPECT_TRUE(gone());
}

TEST_F(Identities, OutputsKeepTheirNames) {
  add("Relu", {"x"}, {"a"}, "relu");
  add("Neg", {"a"}, {"z"}, "neg");
  add("Identity", {"a"}, {"y"}, "identity");
  output("y");
  output("z");
  value("a").quantization["SCALE_TENSOR"] = "s";
  eliminate();
  EXPECT_THAT(nodes(), ElementsAre("relu", "neg"));
  EXPECT_EQ(value("y").producer, NodeId(0));
  EXPECT_EQ(graph().node(NodeId(1)).inputs[0], graph().find_value("y"));
  EXPECT_EQ(value("y").quantization.at("SCALE_TENSOR"), "s");
}

TEST_F(Identities, BetweenValuesThatTheModelAnnotatesDifferentlyStay) {
  between("Identity");
  value("x").quantization["SCALE_TENSOR"] = "s";
  value("m").quantization["SCALE_TENSOR"] = "t";
  EXPECT_FALSE(gone());
  value("m").quantization["SCALE_TENSOR"] = "s";
  EXPECT_TRUE(gone());
}

TEST_F(Identities, BetweenInputAndOutputStay) {
  add("Identity", {"x"}, {"y"}, "a");
  add("Relu", {"x"}, {"u"}, "relu");
  add("Identity", {"u"}, {"v"}, "b");
  for (const char* name : {"y", "u", "v"}) output(name);
  eliminate();
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("a", "relu", "b"));
}

TEST_F(Identities, ChainsGoAway) {
  for (int i = 0; i < kManyNodes; ++i)
    add("Identity", {i == 0 ? "x" : "v" + std::to_string(i)}, {"v" + std::to_string(i + 1)});
  add("Relu", {"v" + std::to_string(kManyNodes)}, {"y"}, "relu");
  output("y");
  eliminate();
  EXPECT_THAT(nodes(), ElementsAre("relu"));
  EXPECT_EQ(graph().node(NodeId(kManyNodes)).inputs[0], graph().find_value("x"));
}

TEST_F(Identities, DropoutAtInference) {
  between("Dropout");
  EXPECT_TRUE(gone());
}

TEST_F(Identities, DropoutWhoseMaskIsReadStays) {
  add("Dropout", {"x"}, {"m", "mask"}, "op");
  add("Relu", {"m"}, {"y"}, "relu");
  output("y");
  output("mask");
  EXPECT_FALSE(gone());
}

TEST_F(Identities, DropoutWhoseMaskIsOnlyNamedGoes) {
  add("Dropout", {"x"}, {"m", "mask"}, "op");
  add("Relu", {"m"}, {"y"}, "relu");
  output("y");
  EXPECT_TRUE(gone());
}

TEST_F(Identities, DropoutInTrainingStays) {
  graph().add_initializer(
      graph().value_named("training"),
      Constant::copy_of(DataType::Bool, {}, std::vector<std::byte>{std::byte{1}}));
  between("Dropout", {"x", "", "training"});
  EXPECT_FALSE(gone());
}

TEST_F(Identities, DropoutThatIsToldNotToTrainGoes) {
  graph().add_initializer(
      graph().value_named("training"),
      Constant::copy_of(DataType::Bool, {}, std::vector<std::byte>{std::byte{0}}));
  between("Dropout", {"x", "", "training"});
  EXPECT_TRUE(gone());
}

TEST_F(Identities, DropoutThatACallerMayTellToTrainStays) {
  graph().add_initializer(
      graph().value_named("training"),
      Constant::copy_of(DataType::Bool, {}, std::vector<std::byte>{std::byte{0}}));
  input("training");
  value("training").overridable = true;
  between("Dropout", {"x", "", "training"});
  EXPECT_FALSE(gone());
}

TEST_F(Identities, OldestDropoutTrainsUnlessToldOtherwise) {
  const NodeId id = between("Dropout");
  graph().node(id).since_version = 6;
  EXPECT_FALSE(gone());
  set_int(id, "is_test", 1);
  EXPECT_TRUE(gone());
}

TEST_F(Identities, CastToItsOwnType) {
  const NodeId id = between("Cast");
  set_int(id, "to", 1);
  EXPECT_FALSE(gone());  // nobody knows the input's type
  type("x", DataType::Int64, {2});
  EXPECT_FALSE(gone());
  type("x", DataType::Float, {2});
  EXPECT_TRUE(gone());
}

TEST_F(Identities, TransposeOfNothing) {
  const NodeId id = between("Transpose");
  EXPECT_FALSE(gone());
  set_ints(id, "perm", {1, 0});
  EXPECT_FALSE(gone());
  set_ints(id, "perm", {0, 1});
  EXPECT_TRUE(gone());
}

TEST_F(Identities, ReshapeToTheSameShape) {
  input("shape");
  between("Reshape", {"x", "shape"});
  value("x").type = Type::tensor(DataType::Float, Shape{{-1, "n"}, {3, ""}});
  value("m").type = value("x").type;
  EXPECT_FALSE(gone());  // files use one symbol for different dimensions
  type("x", DataType::Float, {2, 3});
  type("m", DataType::Float, {3, 2});
  EXPECT_FALSE(gone());
  type("m", DataType::Float, {2, 3});
  EXPECT_TRUE(gone());
}

TEST_F(Identities, ConcatOfOne) {
  between("Concat");
  EXPECT_TRUE(gone());
}

TEST_F(Identities, OtherDomainsAreNotOnnx) {
  const NodeId id = between("Identity");
  graph().node(id).domain = "org.example";
  EXPECT_FALSE(gone());
}

TEST_F(Identities, BodiesFollow) {
  add("Identity", {"x"}, {"a"}, "identity");
  auto body = std::make_shared<Graph>();
  body->value(body->value_named("a")).is_outer = true;
  add_to(*body, "Relu", {"a"}, {"r"});
  body->add_output(body->find_value("r"));
  const NodeId id = add("If", {"x"}, {"y"}, "branch");
  set_body(id, body);
  output("y");
  eliminate();
  EXPECT_THAT(nodes(), ElementsAre("branch"));
  EXPECT_THAT(graph().node(id).captured, ElementsAre(graph().find_value("x")));
  const Graph& inner = *graph().node(id).attributes.at("body").graphs.at(0);
  EXPECT_EQ(inner.value(inner.node(NodeId(0)).inputs[0]).name, "x");
}

}  // namespace
}  // namespace backplane::core

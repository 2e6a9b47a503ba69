#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

class Merging : public GraphTest {
 protected:
  void SetUp() override { input("x"); }
  void merge() { run("merge_common_subexpressions"); }
};

TEST_F(Merging, EqualNodesBecomeOneAllTheWay) {
  add("Relu", {"x"}, {"a"}, "a");
  add("Relu", {"x"}, {"b"}, "b");
  add("Neg", {"a"}, {"c"}, "c");
  add("Neg", {"b"}, {"d"}, "d");
  add("Sum", {"c", "d"}, {"y"}, "sum");
  output("y");
  merge();
  EXPECT_EQ(graph().node_count(), 3u);
  const Node& sum = graph().node(NodeId(4));
  EXPECT_EQ(sum.inputs[0], sum.inputs[1]);
  const Node& neg = graph().node(graph().value(sum.inputs[0]).producer);
  EXPECT_THAT(neg.origins, ElementsAre(2, 3));
}

TEST_F(Merging, DifferencesKeepNodesApart) {
  const NodeId plain = add("Softmax", {"x"}, {"a"});
  set_int(plain, "axis", 0);
  const NodeId other_axis = add("Softmax", {"x"}, {"b"});
  set_int(other_axis, "axis", 1);
  const NodeId other_version = add("Softmax", {"x"}, {"c"});
  set_int(other_version, "axis", 0);
  graph().node(other_version).since_version = 1;
  const NodeId other_domain = add("Softmax", {"x"}, {"d"});
  set_int(other_domain, "axis", 0);
  graph().node(other_domain).domain = "org.example";
  add("Softmax", {"x", ""}, {"e"});
  add("Random", {"x"}, {"f"});
  add("Random", {"x"}, {"g"});
  add("Split", {"x"}, {"h", "i"});
  add("Split", {"x"}, {"j", ""});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
    add("Neg", {name}, {std::string("out_") + name});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
    output(std::string("out_") + name);
  const std::size_t before = graph().node_count();
  merge();
  EXPECT_EQ(graph().node_count(), before);
}

TEST_F(Merging, AttributesOfOtherTypesKeepNodesApart) {
  const std::vector<Type> types = {Type::tensor(DataType::Float), Type::tensor(DataType::Double),
                                   Type::tensor(DataType::Float, {2}),
                                   Type::tensor(DataType::Float)};
  for (std::size_t i = 0; i < types.size(); ++i) {
    const NodeId id = add("Optional", {}, {"empty_" + std::to_string(i)});
    Attribute attribute;
    attribute.type = Attribute::Type::TypeProto;
    attribute.types = {types[i]};
    graph().node(id).attributes["type"] = attribute;
    add("OptionalHasElement", {"empty_" + std::to_string(i)}, {"y" + std::to_string(i)});
    output("y" + std::to_string(i));
  }
  merge();
  EXPECT_EQ(graph().node_count(), 2 * types.size() - 1) << "the last one is as the first";
}

TEST_F(Merging, WhatTheModelAnnotatesDifferentlyStaysApart) {
  initializer("b", {1, 2, 3});
  initializer("c", {1, 2, 3});
  add("Add", {"x", "b"}, {"p"});
  add("Add", {"x", "c"}, {"q"});
  add("Mul", {"p", "q"}, {"y"});
  output("y");
  for (const char* const name : {"b", "p"}) value(name).quantization["SCALE_TENSOR"] = "s";
  for (const char* const name : {"c", "q"}) value(name).quantization["SCALE_TENSOR"] = "t";
  merge();
  EXPECT_EQ(graph().node_count(), 3u);
  value("c").quantization.clear();
  merge();
  EXPECT_EQ(graph().node_count(), 3u) << "their results are annotated";
  value("q").quantization.clear();
  merge();
  EXPECT_EQ(graph().node_count(), 2u);
}

TEST_F(Merging, GraphOutputsStay) {
  add("Relu", {"x"}, {"a"}, "a");
  add("Relu", {"x"}, {"y"}, "makes_y");
  add("Relu", {"x"}, {"z"}, "makes_z");
  add("Neg", {"a"}, {"w"}, "neg");
  for (const char* name : {"y", "z", "w"}) output(name);
  merge();
  EXPECT_THAT(nodes(), ::testing::UnorderedElementsAre("makes_y", "makes_z", "neg"));
  EXPECT_EQ(value("y").producer, NodeId(1));
  EXPECT_EQ(value("z").producer, NodeId(2));
}

TEST_F(Merging, EqualConstantsBecomeOne) {
  initializer("a", {1, 2, 3});
  initializer("b", {1, 2, 3});
  initializer("c", {1, 2, 4});
  initializer("overridable", {1, 2, 3});
  input("overridable");
  value("overridable").overridable = true;
  add("Sum", {"x", "a", "b", "c", "overridable"}, {"y"}, "sum");
  output("y");
  merge();
  const Node& sum = graph().node(NodeId(0));
  EXPECT_EQ(sum.inputs[1], sum.inputs[2]);
  EXPECT_EQ(sum.inputs[1], graph().find_value("a"));
  EXPECT_EQ(sum.inputs[3], graph().find_value("c"));
  EXPECT_EQ(sum.inputs[4], graph().find_value("overridable"));
  EXPECT_EQ(graph().initializers.size(), 4u);
}

TEST_F(Merging, ConstantsThatDifferInTheMiddleStayApart) {
  Ints values(1000, 7);
  initializer("a", values);
  values[300] = 8;
  initializer("b", values);
  add("Sum", {"x", "a", "b"}, {"y"}, "sum");
  output("y");
  merge();
  EXPECT_NE(graph().node(NodeId(0)).inputs[1], graph().node(NodeId(0)).inputs[2]);
}

TEST_F(Merging, ManyEqualNodesTakeLinearTime) {
  for (int i = 0; i < kManyNodes; ++i) add("Neg", {"x"}, {"v" + std::to_string(i)});
  for (const int i : {0, kManyNodes / 2}) {
    add("Relu", {"v" + std::to_string(i)}, {"y" + std::to_string(i)});
    output("y" + std::to_string(i));
  }
  run();
  EXPECT_EQ(graph().node_count(), 3u);
}

}  // namespace
}  // namespace backplane::core

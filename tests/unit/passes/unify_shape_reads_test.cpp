#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

/// Two feeds `a` [batch, rows, 8] and `b` [cols, batch], and what tests add.
class UnifyShapeReads : public GraphTest {
 protected:
  void SetUp() override {
    feed("a", {"batch", "rows", "8"});
    feed("b", {"cols", "batch"});
  }

  /// Numbers are sizes, "" is not known, and the rest symbols.
  void shape(const std::string& name, const std::vector<std::string>& dims) {
    Shape shape;
    for (const std::string& dim : dims) {
      const bool is_number = !dim.empty() && std::isdigit(dim.front()) != 0;
      shape.push_back(is_number ? Dim{std::stoll(dim), ""} : Dim{-1, dim});
    }
    value(name).type = Type::tensor(DataType::Float, shape);
  }
  void feed(const std::string& name, const std::vector<std::string>& dims) {
    input(name);
    shape(name, dims);
    options_.feeds.push_back(name);
  }
  /// A value that a node makes of `a`.
  void inner(const std::string& name, const std::vector<std::string>& dims,
             const std::string& from = "a") {
    add("Relu", {from}, {name}, "makes_" + name);
    shape(name, dims);
  }
  void scalar(const std::string& name, std::int64_t number) {
    graph().add_initializer(
        graph().value_named(name),
        Constant::copy_of(DataType::Int64, {}, std::as_bytes(std::span(&number, 1))));
  }
  /// Gather(Shape(of), axis) as an output of the graph, behind a Neg.
  NodeId read(const std::string& of, std::int64_t axis, const std::string& name) {
    scalar(name + "_axis", axis);
    add("Shape", {of}, {name + "_shape"}, name + "_shape");
    const NodeId gather = add("Gather", {name + "_shape", name + "_axis"}, {name}, name);
    add("Neg", {name}, {name + "_out"}, name + "_neg");
    output(name + "_out");
    return gather;
  }
  void unify() { run("unify_shape_reads"); }

  /// Where a Gather or Shape reads from: "a[1]"; "a[0,1]".
  std::string source(NodeId id) {
    const Node& node = graph().node(id);
    std::string text;
    if (node.op_type == "Shape") {
      text = graph().value(node.inputs[0]).name + "[";
      const auto start = node.attributes.find("start");
      return text + (start == node.attributes.end() ? ":" : std::to_string(start->second.ints[0])) +
             "]";
    }
    const Node& shape = graph().node(graph().value(node.inputs[0]).producer);
    text = graph().value(shape.inputs[0]).name + "[";
    for (const std::int64_t axis : values_of(*graph().value(node.inputs[1]).constant))
      text += (text.ends_with('[') ? "" : ",") + std::to_string(axis);
    return text + "]";
  }
};

TEST_F(UnifyShapeReads, ADimensionIsReadFromTheFirstFeedWithItsSymbol) {
  inner("x", {"cols", "8", "batch", "rows"});
  const NodeId batch = read("x", 2, "batch"), rows = read("x", -1, "rows"),
               cols = read("x", 0, "cols"), own = read("b", 1, "own");
  unify();
  EXPECT_EQ(source(batch), "a[0]");
  EXPECT_EQ(source(rows), "a[1]");
  EXPECT_EQ(source(cols), "b[0]");
  EXPECT_EQ(source(own), "a[0]");
  EXPECT_EQ(graph().node(batch).inputs[0], graph().node(rows).inputs[0]);  // one Shape of `a`
  EXPECT_TRUE(graph().value(graph().node(batch).inputs[1]).constant->dims().empty());
}

TEST_F(UnifyShapeReads, WhatEveryLayerReadsBecomesOneNodeAndKeepsItsOrigins) {
  for (const char* layer : {"x", "y", "z"}) {
    inner(layer, {"batch", "rows", "4"});
    read(layer, 1, std::string("rows_of_") + layer);
  }
  options_.is_random = nullptr;
  run();
  std::size_t shapes = 0, gathers = 0;
  for (const NodeId id : topological_order(graph())) {
    shapes += graph().node(id).op_type == "Shape" ? 1 : 0;
    gathers += graph().node(id).op_type == "Gather" ? 1 : 0;
    if (graph().node(id).op_type == "Gather") {
      EXPECT_THAT(graph().node(id).origins, ElementsAre(2, 6, 10));
    }
    if (graph().node(id).op_type == "Shape") {
      EXPECT_THAT(graph().node(id).origins, ElementsAre(1, 5, 9));
    }
  }
  EXPECT_EQ(shapes, 1u);
  EXPECT_EQ(gathers, 1u);
}

TEST_F(UnifyShapeReads, KnownSizesAreConstants) {
  inner("x", {"batch", "3", "4"});
  read("x", 1, "three");
  initializer("both", {-1, 1});
  add("Shape", {"x"}, {"shape"});
  add("Gather", {"shape", "both"}, {"sizes"}, "sizes");
  add("Neg", {"sizes"}, {"out"});
  output("out");
  unify();
  EXPECT_THAT(values_of(*value("three").constant), ElementsAre(3));
  EXPECT_TRUE(value("three").constant->dims().empty());
  EXPECT_THAT(values_of(*value("sizes").constant), ElementsAre(4, 3));
}

TEST_F(UnifyShapeReads, OutputsOfTheGraphAreNoConstants) {
  inner("x", {"batch", "3"});
  scalar("one", 1);
  add("Shape", {"x"}, {"shape"});
  add("Gather", {"shape", "one"}, {"three"}, "three");
  output("three");
  unify();
  EXPECT_EQ(value("three").constant, nullptr);
}

TEST_F(UnifyShapeReads, AShapeOfOneAxisAndAShapeOfAllOfThem) {
  inner("x", {"rows", "batch"});
  inner("y", {"batch", "rows", "8"});
  const NodeId one = add("Shape", {"x"}, {"one"});
  set_int(one, "start", -1);
  const NodeId all = add("Shape", {"y"}, {"all"});
  const NodeId other = add("Shape", {"x"}, {"other"});
  for (const char* name : {"one", "all", "other"}) output(name);
  unify();
  EXPECT_EQ(source(one), "a[0]");
  EXPECT_EQ(graph().node(one).attributes.at("end").ints, Ints{1});
  EXPECT_EQ(source(all), "a[:]");
  EXPECT_EQ(source(other), "x[:]");
}

TEST_F(UnifyShapeReads, BeforeVersion15AShapeHasNoRange) {
  inner("x", {"cols"});
  const NodeId shape = add("Shape", {"x"}, {"one"});
  graph().node(shape).since_version = 13;
  output("one");
  unify();
  EXPECT_EQ(source(shape), "x[:]");
}

TEST_F(UnifyShapeReads, SeveralAxesAreReadFromAValueThatHasThemThere) {
  inner("x", {"batch", "rows", "4", "4"});
  inner("y", {"rows", "batch", "4", "4"});
  initializer("first_two", {0, 1});
  initializer("swapped", {-3, -4});
  std::vector<NodeId> gathers;
  for (const char* name : {"x", "y"}) {
    add("Shape", {name}, {std::string(name) + "_shape"});
    for (const char* index : {"first_two", "swapped"}) {
      gathers.push_back(
          add("Gather", {std::string(name) + "_shape", index}, {std::string(name) + "_" + index}));
      output(std::string(name) + "_" + index);
    }
  }
  unify();
  EXPECT_EQ(source(gathers[0]), "a[0,1]");
  EXPECT_EQ(source(gathers[1]), "a[1,0]");
  EXPECT_EQ(source(gathers[2]), "y[0,1]");
  EXPECT_EQ(source(gathers[3]), "y[1,0]");
}

TEST_F(UnifyShapeReads, ASliceIsReadFromAValueOfTheSameRank) {
  inner("x", {"batch", "rows", "4"});
  inner("y", {"batch", "rows"});
  initializer("zero", {0});
  initializer("one", {1});
  initializer("last", {-1});
  for (const char* name : {"x", "y"})
    add("Shape", {name}, {std::string(name) + "_shape"}, std::string(name) + "_shape");
  const NodeId front = add("Slice", {"x_shape", "zero", "last"}, {"front"});
  const NodeId short_one = add("Slice", {"y_shape", "zero", "one", "zero"}, {"short"});
  const NodeId back = add("Slice", {"x_shape", "last", "zero", "zero", "last"}, {"back"});
  for (const char* name : {"front", "short", "back"}) output(name);
  unify();
  const auto shaped = [&](NodeId id) {
    return graph()
        .value(graph().node(graph().value(graph().node(id).inputs[0]).producer).inputs[0])
        .name;
  };
  EXPECT_EQ(shaped(front), "a");
  EXPECT_EQ(shaped(short_one), "y");
  EXPECT_EQ(shaped(back), "x");
}

TEST_F(UnifyShapeReads, ASymbolThatNoFeedHasIsReadFromTheFirstValue) {
  inner("x", {"found"});
  inner("y", {"found"}, "x");
  const NodeId late = read("y", 0, "late"), early = read("x", 0, "early");
  unify();
  EXPECT_EQ(source(late), "x[0]");
  EXPECT_EQ(source(early), "x[0]");
}

TEST_F(UnifyShapeReads, AValueThatNoShapeReadIsNotReadEither) {
  inner("x", {"found"});
  inner("y", {"found"}, "x");
  inner("z", {"found"}, "y");
  const NodeId late = read("z", 0, "late"), early = read("y", 0, "early");
  unify();
  EXPECT_EQ(source(late), "y[0]");
  EXPECT_EQ(source(early), "y[0]");
}

TEST_F(UnifyShapeReads, ConcatsOfEqualPartsHaveOneSize) {
  std::vector<NodeId> reads;
  for (const char* name : {"x", "y", "z"}) {
    inner(std::string(name) + "_in", {name == std::string("z") ? "batch" : "rows", "4"});
    set_int(add("Concat",
                name == std::string("y") ? std::vector<std::string>{"b", std::string(name) + "_in"}
                                         : std::vector<std::string>{std::string(name) + "_in", "b"},
                {name}),
            "axis", -2);
    shape(name, {std::string("made_up_") + name, "4"});
    inner(std::string(name) + "_after", {"4", std::string("made_up_") + name}, name);
    reads.push_back(read(std::string(name) + "_after", 1, std::string("size_of_") + name));
  }
  unify();
  EXPECT_THAT(source(reads[0]), AnyOf("x_after[1]", "y_after[1]"));
  EXPECT_EQ(source(reads[1]), source(reads[0]));
  EXPECT_EQ(source(reads[2]), "z_after[1]");
}

TEST_F(UnifyShapeReads, WhatIsNotKnownStays) {
  inner("x", {"", "", "rows"});
  inner("y", {"other"});
  value("z").type = Type::tensor(DataType::Float);
  add("Relu", {"x"}, {"z"});
  const NodeId unknown = read("x", 1, "unknown"), other = read("y", 0, "other"),
               no_rank = read("z", 0, "no_rank"), outside = read("x", 3, "outside");
  feed("w", {});
  unify();
  EXPECT_EQ(source(unknown), "x[1]");
  EXPECT_EQ(source(other), "y[0]");
  EXPECT_EQ(source(no_rank), "z[0]");
  EXPECT_EQ(source(outside), "x[3]");
}

TEST_F(UnifyShapeReads, ASymbolOfAnotherSizeIsNoSource) {
  inner("x", {"rows"});
  options_.unproven_symbols = {"rows"};
  const NodeId claimed = read("x", 0, "claimed"), fed = read("a", 1, "fed");
  unify();
  EXPECT_EQ(source(claimed), "x[0]");
  EXPECT_EQ(source(fed), "a[1]");
}

TEST_F(UnifyShapeReads, WhatTheFileCallsAnOutputIsNotBelieved) {
  inner("x", {"rows", "4"});
  set_int(add("Concat", {"x", "x"}, {"y"}), "axis", 0);
  shape("y", {"rows", "4"});
  for (const char* name : {"x", "y"}) value(name).has_unproven_symbols = true;
  const NodeId of_x = read("x", 0, "of_x"), of_y = read("y", 0, "of_y");
  inner("z", {"rows", "4"});
  set_int(add("Concat", {"z", "z"}, {"w"}), "axis", 0);
  shape("w", {"rows", "4"});
  value("w").has_unproven_symbols = true;
  const NodeId of_w = read("w", 0, "of_w");
  unify();
  EXPECT_EQ(source(of_x), "x[0]");
  EXPECT_EQ(source(of_y), "y[0]");
  EXPECT_EQ(source(of_w), "w[0]");
}

TEST_F(UnifyShapeReads, AnInputThatIsNotFedIsNoSource) {
  options_.feeds = {"b"};
  inner("x", {"batch", "rows"});
  const NodeId batch = read("x", 0, "batch"), rows = read("x", 1, "rows");
  unify();
  EXPECT_EQ(source(batch), "b[1]");
  EXPECT_EQ(source(rows), "x[1]");
}

TEST_F(UnifyShapeReads, WithoutFeedsNothingIsDone) {
  options_.feeds.clear();
  inner("x", {"batch", "4"});
  const NodeId batch = read("x", 0, "batch"), four = read("x", 1, "four");
  unify();
  EXPECT_EQ(source(batch), "x[0]");
  EXPECT_EQ(source(four), "x[1]");
}

TEST_F(UnifyShapeReads, AnOverridableInitializerThatIsNotFedSaysNothingOfItsSymbol) {
  input("w");
  value("w").type = Type::tensor(DataType::Int64, Shape{{-1, "rows"}});
  initializer("w", {1, 2, 3});
  value("w").overridable = true;
  inner("x", {"rows"}, "w");
  const NodeId rows = read("x", 0, "rows");
  unify();
  EXPECT_EQ(source(rows), "x[0]");
}

TEST_F(UnifyShapeReads, WhatALoopMakesIsNotBelieved) {
  auto body = std::make_shared<Graph>();
  body->add_input(body->value_named("in"));
  add_to(*body, "Relu", {"in"}, {"out"}, "inner");
  body->add_output(body->value_named("out"));
  const NodeId loop = add("Loop", {"a"}, {"x"});
  set_body(loop, body);
  shape("x", {"rows"});
  const NodeId rows = read("x", 0, "rows");
  unify();
  EXPECT_EQ(source(rows), "x[0]");
}

TEST_F(UnifyShapeReads, BodiesStayAsTheyAre) {
  auto body = std::make_shared<Graph>();
  body->add_input(body->value_named("in"));
  body->value(body->value_named("in")).type =
      Type::tensor(DataType::Float, Shape{Dim{-1, "rows"}, Dim{4, ""}});
  const NodeId shape_in_body = add_to(*body, "Shape", {"in"}, {"out"}, "inner");
  body->add_output(body->value_named("out"));
  const NodeId loop = add("If", {"a"}, {"x"});
  set_body(loop, body);
  output("x");
  unify();
  EXPECT_EQ(body->value(body->node(shape_in_body).inputs[0]).name, "in");
}

TEST_F(UnifyShapeReads, SizesThatKernelsFindOtherwiseAreNotTouched) {
  input("scales");
  const NodeId resize = add("Resize", {"a", "", "scales"}, {"resized"});
  shape("resized", {"batch", "5"});
  const NodeId five = read("resized", 1, "five");
  unify();
  EXPECT_EQ(source(five), "resized[1]");
  graph().node(resize).op_type = "Upsample";
  unify();
  EXPECT_EQ(source(five), "resized[1]");
  graph().node(resize).op_type = "MaxPool";
  unify();
  EXPECT_THAT(values_of(*value("five").constant), ElementsAre(5));
}

TEST_F(UnifyShapeReads, NodesWithControlEdgesStay) {
  inner("x", {"rows", "cols"});
  const NodeId rows = read("x", 0, "rows");
  graph().add_control_edge(graph().find_node("makes_x"), rows);
  unify();
  EXPECT_EQ(source(rows), "x[0]");
}

}  // namespace
}  // namespace backplane::core

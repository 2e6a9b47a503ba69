#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_graphs.hpp"

namespace backplane::core {
namespace {

using ::testing::ElementsAre;

/// y, w_after = Loop("", go, x, w), whose body adds w to x and hands it on.
class LoopInvariants : public GraphTest {
 protected:
  void SetUp() override {
    for (const char* const name : {"go", "x", "w"}) input(name);
    type("w", DataType::Int64, {3});
    for (const char* const name : {"turn", "condition", "state", "weight"})
      body_->add_input(body_->value_named(name));
    add_to(*body_, "Add", {"state", "weight"}, {"sum"}, "add");
    for (const char* const name : {"condition", "sum", "weight"})
      body_->add_output(body_->value_named(name));
  }
  void add_loop() { set_body(add("Loop", {"", "go", "x", "w"}, {"y", "w_after"}, "loop"), body_); }
  const Node& loop() { return graph().node(graph().find_node("loop")); }
  std::vector<std::string> inputs_of(const Graph& of, const char* node) const {
    return names_of(of, of.node(of.find_node(node)).inputs);
  }

  std::shared_ptr<Graph> body_ = std::make_shared<Graph>();
};

TEST_F(LoopInvariants, AreReadWhereTheyAre) {
  add_loop();
  add("Neg", {"w_after"}, {"z"}, "reader");
  output("y");
  output("z");
  run("capture_loop_invariants");
  const ValueId x = graph().find_value("x"), go = graph().find_value("go");
  EXPECT_THAT(loop().inputs, ElementsAre(kNone, go, x));
  EXPECT_THAT(names_of(graph(), loop().outputs), ElementsAre("y"));
  EXPECT_THAT(loop().captured, ElementsAre(graph().find_value("w")));
  EXPECT_THAT(inputs_of(graph(), "reader"), ElementsAre("w"));
  EXPECT_THAT(names_of(*body_, body_->inputs), ElementsAre("turn", "condition", "state"));
  EXPECT_THAT(names_of(*body_, body_->outputs), ElementsAre("condition", "sum"));
  EXPECT_THAT(inputs_of(*body_, "add"), ElementsAre("state", "w"));
  const Value& captured = body_->value(body_->find_value("w"));
  EXPECT_TRUE(captured.is_outer);
  EXPECT_EQ(captured.type.to_string(), "tensor(int64)");
}

TEST_F(LoopInvariants, ThatAreConstantsAreConstantsOfTheBody) {
  initializer("three", {3});
  set_body(add("Loop", {"", "go", "x", "three"}, {"y"}, "loop"), body_);
  output("y");
  run();
  EXPECT_THAT(inputs_of(*body_, "add"), ElementsAre("state", "three"));
  EXPECT_NE(body_->value(body_->find_value("three")).constant, nullptr);
}

TEST_F(LoopInvariants, AreFoundInBodiesWithinBodies) {
  auto inner = std::make_shared<Graph>();
  inner->value(inner->value_named("weight")).is_outer = true;
  add_to(*inner, "Neg", {"weight"}, {"r"}, "negate");
  inner->add_output(inner->find_value("r"));
  const NodeId branch = add_to(*body_, "If", {"condition"}, {"unused"}, "branch");
  Attribute attribute;
  attribute.type = Attribute::Type::Graph;
  attribute.graphs.push_back(inner);
  body_->node(branch).attributes["then_branch"] = attribute;
  add_loop();
  output("y");
  run("capture_loop_invariants");
  EXPECT_THAT(inputs_of(*inner, "negate"), ElementsAre("w"));
  EXPECT_THAT(loop().captured, ElementsAre(graph().find_value("w")));
}

TEST_F(LoopInvariants, MayBeHandedOnByIdentity) {
  add_to(*body_, "Identity", {"weight"}, {"same"}, "again");
  body_->value(body_->outputs[2]).is_output = false;
  body_->outputs.pop_back();
  body_->add_output(body_->find_value("same"));
  add_loop();
  output("y");
  run();
  EXPECT_THAT(inputs_of(*body_, "add"), ElementsAre("state", "w"));
  EXPECT_THAT(names_of(*body_, body_->outputs), ElementsAre("condition", "sum"));
  EXPECT_EQ(body_->find_node("again"), kNone);
}

TEST_F(LoopInvariants, MayBeStackedByIdentity) {
  add_to(*body_, "Identity", {"weight"}, {"same"}, "again");
  body_->add_output(body_->find_value("same"));
  set_body(add("Loop", {"", "go", "x", "w"}, {"y", "", "stacked"}, "loop"), body_);
  output("stacked");
  run("capture_loop_invariants");
  EXPECT_THAT(names_of(*body_, body_->outputs), ElementsAre("condition", "sum", "same"));
  EXPECT_THAT(inputs_of(*body_, "again"), ElementsAre("w"));
}

TEST_F(LoopInvariants, StayWhereTheirLastValueIsAResult) {
  add_loop();
  output("w_after");
  run("capture_loop_invariants");
  EXPECT_EQ(loop().inputs.size(), 4u);
}

TEST_F(LoopInvariants, StayWhereTheBodyHasTheirNameForAnotherValue) {
  add_to(*body_, "Neg", {"sum"}, {"w"}, "negate");
  add_loop();
  output("y");
  run("capture_loop_invariants");
  EXPECT_EQ(loop().inputs.size(), 4u);
}

TEST_F(LoopInvariants, StayWhereTheyAreStackedTurnByTurn) {
  body_->add_output(body_->find_value("weight"));
  set_body(add("Loop", {"", "go", "x", "w"}, {"y", "", "stacked"}, "loop"), body_);
  output("stacked");
  run("capture_loop_invariants");
  EXPECT_EQ(loop().inputs.size(), 4u);
}

/// y, w_after, rows = Scan(x, w, table), whose body adds w and a row of the table to x and hands w on.
class ScanInvariants : public LoopInvariants {
 protected:
  void SetUp() override {
    for (const char* const name : {"x", "w", "table"}) input(name);
    for (const char* const name : {"state", "weight", "row"})
      body_->add_input(body_->value_named(name));
    add_to(*body_, "Sum", {"state", "weight", "row"}, {"sum"}, "add");
    for (const char* const name : {"sum", "weight"}) body_->add_output(body_->value_named(name));
  }
  void add_scan(const std::vector<std::string>& outputs, int version = 16) {
    const NodeId id = add("Scan", {"x", "w", "table"}, outputs, "scan");
    set_int(id, "num_scan_inputs", 1);
    graph().node(id).since_version = version;
    set_body(id, body_);
  }
  const Node& scan() { return graph().node(graph().find_node("scan")); }
};

TEST_F(ScanInvariants, AreReadWhereTheyAre) {
  body_->add_output(body_->find_value("row"));
  add_scan({"y", "w_after", "rows"});
  add("Neg", {"w_after"}, {"z"}, "reader");
  for (const char* const name : {"y", "z", "rows"}) output(name);
  run("capture_loop_invariants");
  EXPECT_THAT(names_of(graph(), scan().inputs), ElementsAre("x", "table"));
  EXPECT_THAT(names_of(graph(), scan().outputs), ElementsAre("y", "rows"));
  EXPECT_THAT(scan().captured, ElementsAre(graph().find_value("w")));
  EXPECT_THAT(inputs_of(graph(), "reader"), ElementsAre("w"));
  EXPECT_THAT(names_of(*body_, body_->inputs), ElementsAre("state", "row"));
  EXPECT_THAT(names_of(*body_, body_->outputs), ElementsAre("sum", "row"));
  EXPECT_THAT(inputs_of(*body_, "add"), ElementsAre("state", "w", "row"));
}

TEST_F(ScanInvariants, StayWhereTheyAreSlices) {
  body_->value(body_->outputs[1]).is_output = false;
  body_->outputs[1] = body_->find_value("row");  // what is carried is the last row
  body_->value(body_->outputs[1]).is_output = true;
  add_scan({"y", "w_after"});
  output("y");
  run("capture_loop_invariants");
  EXPECT_EQ(scan().inputs.size(), 3u);
}

TEST_F(ScanInvariants, StayWhereEachEntryOfABatchHasItsOwn) {
  add_scan({"y", "w_after"}, 8);
  output("y");
  run("capture_loop_invariants");
  EXPECT_EQ(scan().inputs.size(), 3u);
}

}  // namespace
}  // namespace backplane::core

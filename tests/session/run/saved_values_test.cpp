// M5: inner values that are kept, and callbacks that see every node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// y = relu(x * w + b) + b; `z` is x again, which passes find out.
ModelMaker small_net() {
  return ModelMaker()
      .input("x", {"n", 2})
      .output("y")
      .weight("w", {2, 2}, {1, 0, 0, 1})
      .weight("b", {2}, {-1, 1})
      .node("MatMul", {"x", "w"}, {"xw"})
      .node("Add", {"xw", "b"}, {"sum"})
      .node("Relu", {"sum"}, {"positive"})
      .node("Identity", {"positive"}, {"same"})
      .node("Add", {"same", "b"}, {"y"});
}

Value input() { return Value::tensor<float>({1, 2}, std::vector<float>{3, -4}); }

TEST(SavedValues, M5AreReadableAfterEveryRunWithoutBeingFetched) {
  TestSession session(small_net());
  const Value x = input();
  session->save({"xw", "y"});
  EXPECT_EQ(session->saved("xw").get(), nullptr) << "before the first run";
  for (int i = 0; i < 2; ++i) {
    const std::vector<Value> results = session->run({{"x", x}});
    ASSERT_EQ(results.size(), 1u);
    EXPECT_THAT(results[0].numbers(), ElementsAre(1, 1));
    EXPECT_THAT(session->saved("xw").numbers(), ElementsAre(3, -4));
    EXPECT_THAT(session->saved("y").numbers(), ElementsAre(1, 1));
  }
  session->save({});
  EXPECT_THAT(failure_of([&] { session->saved("xw"); }).second, HasSubstr("is not saved"));
}

TEST(SavedValues, M5OfABindingAreItsOwn) {
  TestSession session(small_net());
  const Value x = input();
  Binding binding(*session);
  binding.bind_input("x", x);
  binding.run();
  session->save({"xw"});
  binding.run();
  EXPECT_THAT(binding.saved("xw").numbers(), ElementsAre(3, -4));
  const void* memory = binding.saved("xw").bytes();
  binding.run();
  EXPECT_EQ(binding.saved("xw").bytes(), memory);
  EXPECT_THAT(failure_of([&] { binding.saved("positive"); }).second, HasSubstr("positive"));
}

TEST(SavedValues, M5AnUnknownNameIsAnErrorThatNamesTheNearest) {
  TestSession session(small_net());
  EXPECT_THAT(failure_of([&] { session->save({"positiv"}); }).second,
              HasSubstr("did you mean 'positive'"));
  EXPECT_THAT(failure_of([&] { session->save({"xw", "xw"}); }).second, HasSubstr("twice"));
  EXPECT_THAT(
      failure_of([&] { TestSession(small_net(), cpu_options().set("save", "posetive")); }).second,
      HasSubstr("did you mean 'positive'"));
}

TEST(SavedValues, M5WhatPassesRemoveIsSavedToo) {
  const Value x = input();
  TestSession session(small_net(), cpu_options().set("save", "same;sum"));
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(1, 1));
  EXPECT_THAT(session->saved("same").numbers(), ElementsAre(2, 0));
  EXPECT_THAT(session->saved("sum").numbers(), ElementsAre(2, -3));
  EXPECT_EQ(session->outputs().size(), 1u);
}

TEST(NodeCallback, M5SeesInputsAndOutputsOfEveryNode) {
  TestSession session(small_net(), cpu_options().set("optimization", "none"));
  const Value x = input();
  std::vector<std::string> before, after;
  std::vector<double> relu_inputs, relu_outputs;
  RunOptions options;
  options.set_callbacks(
      [&](const NodeView& node) {
        before.push_back(node.name);
        EXPECT_TRUE(node.outputs.empty());
        return true;
      },
      [&](const NodeView& node) {
        after.push_back(node.name);
        if (node.op_type == "Relu") {
          relu_inputs = node.inputs.at(0).numbers();
          relu_outputs = node.outputs.at(0).numbers();
          EXPECT_EQ(node.provider, "cpu");
          EXPECT_EQ(node.domain, "");
        }
        return true;
      });
  EXPECT_THAT(session->run({{"x", x}}, {}, options).at(0).numbers(), ElementsAre(1, 1));
  EXPECT_EQ(before, after);
  EXPECT_FALSE(before.empty());
  if (!relu_inputs.empty()) {  // where no provider made one node of it and its neighbours
    EXPECT_THAT(relu_outputs, ElementsAre(2, 0));
  }
}

TEST(NodeCallback, M5MayStopTheRun) {
  Probe first, second;
  const ModelMaker model =
      ModelMaker().input("x", {1}).output("y").probe("x", "a", first).probe("a", "y", second);
  TestSession session(model);
  const Value x = Value::tensor<float>({1});
  const auto stops_after = [](const std::string& name) {
    RunOptions options;
    options.set_callbacks({}, [name](const NodeView& node) { return node.name != name; });
    return options;
  };
  const auto [code, message] = failure_of([&] { session->run({{"x", x}}, {}, stops_after("a")); });
  EXPECT_EQ(code, BACKPLANE_CANCELLED);
  EXPECT_THAT(message, HasSubstr("node 'a'"));
  EXPECT_EQ(first.computes, 1u);
  EXPECT_EQ(second.computes, 0u);
  EXPECT_EQ(failure_of([&] { session->run({{"x", x}}, {}, stops_after("none")); }).second, "");
  RunOptions throws;
  throws.set_callbacks([](const NodeView&) -> bool { throw 1; }, {});
  EXPECT_EQ(failure_of([&] { session->run({{"x", x}}, {}, throws); }).first, BACKPLANE_CANCELLED);
  EXPECT_THAT(session->run({{"x", x}}).at(0).numbers(), ElementsAre(2));
}

TEST(NodeCallback, M5OfASizeThatNobodyKnowsIsRefused) {
  RunOptions options;
  const backplane_node_callbacks callbacks{8, nullptr, nullptr, nullptr};
  EXPECT_THAT(failure_of([&] {
                detail::check(backplane_run_options_set_callbacks(options.get(), &callbacks));
              }).second,
              HasSubstr("struct_size is 8"));
}

}  // namespace
}  // namespace backplane::session_test

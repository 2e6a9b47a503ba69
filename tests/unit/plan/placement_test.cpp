// Who gets a node, and the reason of everybody who did not; patterns of rules; cutting a graph.
#include "core/plan/placement.hpp"

#include "core/plan/cost_model.hpp"
#include "core/plan/rule_pattern.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::InvalidArgument);
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// x -> a -> b -> y, all Relu but b, which is Add(a, x).
class PlacementTest : public PlanTest {
 protected:
  PlacementTest() {
    input("x");
    add("Relu", {"x"}, "va", "block.a");
    add("Add", {"va", "x"}, "vb", "block.b");
    add("Relu", {"vb"}, "y", "last");
    output("y");
  }
  /// The reasons of a node, "provider code" each.
  static std::string codes(const PlacedGraph& placed, NodeId id) {
    std::string all;
    for (const Reason& reason : placed.placement[id].reasons)
      all += (all.empty() ? "" : ", ") + reason.provider + " " + reason.code;
    return all;
  }
  static int device(const PlacedGraph& placed, NodeId id) { return placed.placement[id].device; }
  StubProvider first_{"first"}, second_{"second"};
};

TEST_F(PlacementTest, TheFirstProviderWithAKernelTakesIt) {
  first_.kernels = {kernel("Relu")};
  second_.kernels = {kernel("Relu"), kernel("Add")};
  use(first_);
  use(second_);
  const PlacedGraph result = placed();
  EXPECT_EQ(device(result, NodeId(0)), 0);
  EXPECT_EQ(device(result, NodeId(1)), 1);
  EXPECT_EQ(codes(result, NodeId(0)), "");
  EXPECT_EQ(codes(result, NodeId(1)), "first no_such_op");
}

TEST_F(PlacementTest, EveryRefusalHasItsCodeAndNames) {
  const auto never = [](const sdk::Node&) { sdk::unsupported("not today"); };
  first_.kernels = {
      sdk::op("Add").name("first:old").since(7, 13).kernel<StubKernel>(),
      sdk::op("Add")
          .name("first:double")
          .since(14)
          .types("T", {sdk::DataType::Double})
          .kernel<StubKernel>(),
      sdk::op("Add").name("first:choosy").since(14).match(never).kernel<StubKernel>()};
  use(first_);
  const PlacedGraph result = placed();
  EXPECT_EQ(device(result, NodeId(1)), -1);
  const auto& reasons = result.placement[NodeId(1)].reasons;
  ASSERT_EQ(reasons.size(), 3u);
  std::map<std::string, std::string> by_code;
  for (const Reason& reason : reasons) by_code[reason.code] = reason.text;
  EXPECT_NE(
      by_code["opset"].find("first:old implements Add since versions 7 to 13; the model's is 14"),
      std::string::npos)
      << by_code["opset"];
  EXPECT_NE(by_code["type"].find("input 0 is tensor(float); it takes tensor(double)"),
            std::string::npos)
      << by_code["type"];
  EXPECT_NE(by_code["refused"].find("not today"), std::string::npos) << by_code["refused"];
  const std::string line = describe(reasons);
  for (const char* const word : {"(opset)", "(type)", "(refused)", "first"})
    EXPECT_NE(line.find(word), std::string::npos) << line;
}

TEST_F(PlacementTest, AMatchThatFailsIsNoRefusal) {
  static bp_code code = BP_INTERNAL;  // the SDK takes no captures there
  const auto fails = [](const sdk::Node&) { throw sdk::Error(code, "it broke"); };
  first_.kernels = {sdk::op("Add").name("first:broken").match(fails).kernel<StubKernel>()};
  second_.kernels = {kernel("Add")};
  use(first_);
  use(second_);
  for (const bp_code other : {BP_INTERNAL, BP_INVALID_ARGUMENT, BP_FAILED}) {
    code = other;
    const PlacedGraph result = placed();
    EXPECT_EQ(device(result, NodeId(1)), 1) << "the next provider serves";
    ASSERT_EQ(codes(result, NodeId(1)), "first failed");
    EXPECT_EQ(result.placement[NodeId(1)].reasons[0].text,
              "match of kernel 'first:broken' of first failed: it broke");
  }
  for (const bp_code other : {BP_DEVICE_LOST, BP_OUT_OF_MEMORY}) {
    code = other;
    try {
      placed();
      ADD_FAILURE() << "code " << other << " was taken for a refusal";
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<bp_code>(error.code()), other);
      EXPECT_NE(error.message().find("first: match of kernel 'first:broken': it broke"),
                std::string::npos)
          << error.message();
    }
  }
}

TEST_F(PlacementTest, ARenamedTypeParameterCountsInTheVersionsThatHaveIt) {
  // Resize has T in version 10, and T1 from 11 on.
  const NodeId old_one = add("Resize", {"x", "x"}, "old", "old", 10);
  const NodeId new_one = add("Resize", {"x", "", "x"}, "new", "new", 13);
  const auto resize = [] { return sdk::op("Resize").since(10, 13); };
  first_.kernels = {
      resize().name("newer").types("T1", {sdk::DataType::Double}).kernel<StubKernel>()};
  second_.kernels = {resize()
                         .name("both")
                         .types("T", {sdk::DataType::Double})
                         .types("T1", {sdk::DataType::Float})
                         .kernel<StubKernel>()};
  use(first_);
  use(second_);
  const PlacedGraph result = placed();
  EXPECT_EQ(device(result, old_one), 0);
  EXPECT_EQ(device(result, new_one), 1);
  EXPECT_EQ(codes(result, new_one), "first type");
}

TEST_F(PlacementTest, PriorityThenLaterRegistrationWins) {
  first_.kernels = {sdk::op("Add").name("low").priority(1).kernel<StubKernel>(),
                    sdk::op("Add").name("high").priority(5).kernel<StubKernel>(),
                    sdk::op("Add").name("later").priority(1).kernel<StubKernel>()};
  use(first_);
  const PlacedGraph result = placed();
  std::vector<std::string> names;
  for (const RegisteredKernel& chosen : result.placement[NodeId(1)].kernels)
    names.push_back(chosen.def->name);
  EXPECT_EQ(names, (std::vector<std::string>{"high", "later", "low"}));
}

TEST_F(PlacementTest, RulesSendNodesElsewhereAndTheFirstCounts) {
  first_.kernels = second_.kernels = {kernel("Relu"), kernel("Add")};
  use(first_);
  use(second_);
  const PlacedGraph result = placed({{"block.*", "second"}, {"op:Relu", "first"}});
  EXPECT_EQ(device(result, NodeId(0)), 1) << "both rules fit";
  EXPECT_EQ(device(result, NodeId(1)), 1);
  EXPECT_EQ(device(result, NodeId(2)), 0);
  EXPECT_EQ(codes(result, NodeId(0)), "first rule");
  EXPECT_NE(result.placement[NodeId(0)].reasons[0].text.find("block.*=second"), std::string::npos);
}

TEST_F(PlacementTest, ARuleIsStrict) {
  second_.kernels = {kernel("Relu"), kernel("Add")};
  use(first_);
  use(second_);
  const PlacedGraph result = placed({{"last", "first"}});
  EXPECT_EQ(device(result, NodeId(2)), -1);
  EXPECT_EQ(codes(result, NodeId(2)), "first no_such_op, second rule");
}

TEST_F(PlacementTest, WrongRulesAreRefused) {
  use(first_);
  EXPECT_NE(error_of([&] {
              placed({{"a", "frist"}});
            }).find("did you mean 'first'"),
            std::string::npos);
  error_of([&] { placed({{"", "first"}}); });
  error_of([&] { placed({{"between:x", "first"}}); });
}

TEST_F(PlacementTest, ALateRefusalMovesTheNode) {
  first_.kernels = second_.kernels = {kernel("Relu"), kernel("Add")};
  use(first_);
  use(second_);
  const PlacedGraph result = placed({}, {{"block.b", 0, "too large"}});
  EXPECT_EQ(device(result, NodeId(0)), 0);
  EXPECT_EQ(device(result, NodeId(1)), 1);
  EXPECT_EQ(codes(result, NodeId(1)), "first refused");
  EXPECT_EQ(result.placement[NodeId(1)].reasons[0].text, "too large");
}

TEST_F(PlacementTest, ADeviceThatIsNotPlaceableGetsNothing) {
  first_.kernels = {kernel("Relu"), kernel("Add")};
  use(first_);
  devices_.devices[0].placeable = false;
  EXPECT_EQ(device(placed(), NodeId(0)), -1);
}

// Patterns

TEST_F(PlacementTest, Patterns) {
  const auto fits = [&](const std::string& pattern) {
    std::string names;
    const RulePattern rule(pattern, graph());
    for (const NodeId id : graph().node_ids())
      names += rule.fits(graph().node(id)) ? graph().node(id).name + " " : "";
    return names;
  };
  EXPECT_EQ(fits("*"), "block.a block.b last ");
  EXPECT_EQ(fits("block.?"), "block.a block.b ");
  EXPECT_EQ(fits("*a*"), "block.a last ");
  EXPECT_EQ(fits("block"), "");
  EXPECT_EQ(fits("l*t*"), "last ");
  EXPECT_EQ(fits("*.b?"), "");
  EXPECT_EQ(fits("op:Relu"), "block.a last ");
  EXPECT_EQ(fits("op:relu"), "");
  EXPECT_EQ(fits("domain:ai.onnx"), "block.a block.b last ");
  EXPECT_EQ(fits("domain:com.example"), "");
  EXPECT_EQ(fits("between:va..vb"), "block.b ");
  EXPECT_EQ(fits("between:x..vb"), "block.a block.b ");
  EXPECT_EQ(fits("between:vb..x"), "");
}

// Cuts

TEST_F(PlacementTest, CutKeepsWhatLeadsToTheFetches) {
  const auto graph_of = [&](const Cut& cut) { return cut_graph(model_, cut); };
  EXPECT_EQ(graph_of({{"x"}, {"y"}})->node_count(), 3u);
  EXPECT_EQ(graph_of({{"x"}, {"va"}})->node_count(), 1u);
  const auto inner = graph_of({{"vb"}, {"y"}});
  EXPECT_EQ(inner->node_count(), 1u);
  EXPECT_TRUE(inner->value(inner->find_value("vb")).is_input);
  const auto both = graph_of({{"x", "va"}, {"vb"}});
  EXPECT_EQ(both->node_count(), 1u) << "a value that is fed is not computed";
  EXPECT_EQ(model_.graph.node_count(), 3u) << "the model stays as it is";
}

/// Kernels of the same operators whose authors say how long they take.
template <int kRelu, int kAdd>
sdk::KernelList kernels_that_take() {
  return {sdk::op("Relu")
              .name("stub:Relu")
              .cost([](const sdk::Node&, bp_cost& cost) { cost.exec_ns = kRelu; })
              .template kernel<StubKernel>(),
          sdk::op("Add")
              .name("stub:Add")
              .match([](const sdk::Node& node) {
                const bool refuses = kAdd < 10'000 && std::string_view(node.name()) == "refused";
                if (refuses) sdk::unsupported("this one is not taken");
              })
              .cost([](const sdk::Node&, bp_cost& cost) { cost.exec_ns = kAdd; })
              .template kernel<StubKernel>()};
}

TEST_F(PlacementTest, WhatKernelsSayTheyCostDecidesWhereCostsDo) {
  add("Add", {"y", "x"}, "z", "refused");
  first_.kernels = kernels_that_take<9'000'000, 1'000>();
  second_.kernels = kernels_that_take<1'000, 20'000>();
  use(first_);
  use(second_);
  EXPECT_EQ(device(placed(), NodeId(0)), 0) << "by preference";
  devices_.costs = std::make_shared<CostModel>(devices_);
  const PlacedGraph result = placed();
  EXPECT_EQ(device(result, NodeId(0)), 1);
  EXPECT_EQ(codes(result, NodeId(0)), "first cheaper_elsewhere");
  EXPECT_EQ(device(result, NodeId(2)), 1);
  EXPECT_EQ(device(result, NodeId(3)), 1)
      << "the first's kernel refuses it, whatever it would cost";
}

TEST_F(PlacementTest, CutRefusesWhatCannotBe) {
  constant("w", {1, 2, 3, 4});
  EXPECT_NE(error_of([&] {
              cut_graph(model_, {{"x"}, {"yy"}});
            }).find("no value 'yy' to fetch"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cut_graph(model_, {{"xx", "x"}, {"y"}});
            }).find("no value 'xx' to feed"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cut_graph(model_, {{}, {"y"}});
            }).find("the input 'x' tensor(float) [4] is not fed"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              cut_graph(model_, {{"va"}, {"y"}});
            }).find("'x'"),
            std::string::npos)
      << "block.b reads x too";
  EXPECT_NE(error_of([&] {
              cut_graph(model_, {{"x", "w"}, {"y"}});
            }).find("'w' is an initializer that cannot be replaced"),
            std::string::npos);
}

TEST_F(PlacementTest, CutFeedsAnOverridableInitializer) {
  constant("w", {1, 2, 3, 4});
  graph().value(graph().find_value("w")).overridable = true;
  add("Add", {"y", "w"}, "z", "sum");
  const auto fixed = cut_graph(model_, {{"x"}, {"z"}});
  EXPECT_NE(fixed->value(fixed->find_value("w")).constant, nullptr);
  const auto fed = cut_graph(model_, {{"x", "w"}, {"z"}});
  EXPECT_EQ(fed->value(fed->find_value("w")).constant, nullptr);
}

}  // namespace
}  // namespace backplane::core

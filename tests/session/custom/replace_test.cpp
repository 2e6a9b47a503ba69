// Row C3 of core/SESSION.md: standard operators that custom ones replace, and operators that two libraries bring.
#include "custom_session.hpp"

namespace backplane::session_test {
namespace {

using ::testing::HasSubstr;

/// Relu that adds 100, so that one sees who computed.
CustomOpDomain relu_of(float mark, const std::string& name = "") {
  CustomOpDomain ops("", name);
  ops.Function("Relu", [mark](In<float> x, Out<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] > 0 ? x[i] : 0) + mark;
  });
  return ops;
}

float relu(const Options& options, float x = 1) {
  Graph graph(environment(), options);
  graph.add_value("x", floats({1}));
  graph.add_node("Relu", {"x"}, {"y"}, "relu");
  return *Session(environment(), graph, options).run({{"x", tensor({x})}})[0].data<float>();
}

TEST(CustomOps, C3AStandardOperatorIsReplacedInASessionThatSaysSo) {
  Options options;
  options.add_custom_ops(relu_of(100));
  EXPECT_EQ(relu(options), 1);  // it does not say so
  EXPECT_EQ(relu(options.set("replace_ops", "Relu")), 101);
  EXPECT_EQ(relu(options.set("replace_ops", "*")), 101);
  EXPECT_EQ(relu(options.set("replace_ops", "ai.onnx::Relu")), 101);
  EXPECT_EQ(relu(options.set("replace_ops", "")), 1);
  EXPECT_EQ(relu(Options()), 1);
}

TEST(CustomOps, C3AReplacementIsForTheTypesThatItTakes) {
  Options options;
  options.add_custom_ops(relu_of(100)).set("replace_ops", "Relu");
  Graph graph(environment(), options);
  graph.add_value("x", GraphType::tensor(ElementType::Double, {1}));
  graph.add_node("Relu", {"x"}, {"y"}, "relu");
  const Value x = Value::tensor<double>({1}, {1});
  EXPECT_EQ(*Session(environment(), graph, options).run({{"x", x}})[0].data<double>(), 1);
}

TEST(CustomOps, C3AnOperatorThatNobodyReplacesIsAnError) {
  Options options;
  options.add_custom_ops(relu_of(100)).set("replace_ops", "Relu,Selu");
  EXPECT_THAT(error_of([&] { relu(options); }), HasSubstr("'Selu'"));
}

TEST(CustomOps, C3TheHigherPriorityOfTwoReplacementsWins) {
  CustomOpDomain better("", "better");
  better.Function("Relu", [](In<float>, Out<float> y) { y[0] = 7; }).priority(1);
  Options options;
  options.set("replace_ops", "Relu").add_custom_ops(better).add_custom_ops(relu_of(100));
  EXPECT_EQ(relu(options), 7);
}

TEST(CustomOps, C3TwoReplacementsOfOnePriorityAreAnErrorThatNamesBoth) {
  Options options;
  options.set("replace_ops", "Relu");
  options.add_custom_ops(relu_of(100, "first")).add_custom_ops(relu_of(200, "second"));
  const std::string message = error_of([&] { relu(options); });
  EXPECT_THAT(message, HasSubstr("Relu"));
  EXPECT_THAT(message, HasSubstr("first of this process"));
  EXPECT_THAT(message, HasSubstr("second of this process"));
}

TEST(CustomOps, C3TwoLibrariesThatDefineOneOperatorAreAnErrorThatNamesBoth) {
  Options options;
  options.RegisterCustomOpsLibrary(kTally).RegisterCustomOpsLibrary(kOtherTally);
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  graph.add_node("Neg", {"x"}, {"y"});
  const std::string message = error_of([&] { Session(environment(), graph, options); });
  EXPECT_THAT(message, HasSubstr("Tally"));
  EXPECT_THAT(message, HasSubstr("session_tally.so"));
  EXPECT_THAT(message, HasSubstr("session_other_tally.so"));
}

TEST(CustomOps, C3TwoDomainsOfOneNameAreToldApart) {
  const auto make = [] {
    CustomOpDomain ops(kDomain);
    ops.Function("Same", [](In<float>, Out<float>) {});
    return ops;
  };
  const CustomOpDomain a = make(), b = make();
  Options options;
  options.add_custom_ops(a).add_custom_ops(b);
  Graph graph(environment());
  graph.add_value("x", floats({1}));
  graph.add_node("Neg", {"x"}, {"y"});
  const std::string message = error_of([&] { Session(environment(), graph, options); });
  EXPECT_THAT(message, HasSubstr("test.ops of this process and"));
  EXPECT_THAT(message, HasSubstr("test.ops of this process, 2"));
  Options once;
  once.add_custom_ops(a).add_custom_ops(a);  // the same one twice is once
  Session(environment(), graph, once);
}

TEST(CustomOps, C3AnOperatorMayNotTakeAStandardName) {
  CustomOpDomain ops("");
  ops.schema(sdk::OpSchema("", "Relu", 1).input("x", "tensor(float)").output("y", "tensor(float)"));
  Options options;
  options.add_custom_ops(ops);
  EXPECT_THAT(error_of([&] { relu(options); }), HasSubstr("one of ONNX's own"));
}

}  // namespace
}  // namespace backplane::session_test

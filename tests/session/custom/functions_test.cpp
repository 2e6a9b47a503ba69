// Rows C1 and C2 of core/SESSION.md: operators of the process, most of them one function.
#include <atomic>
#include <chrono>
#include <thread>

#include "custom_session.hpp"

extern "C" const bp_plugin* c_domain(void);
extern "C" int c_domain_is_started(void);

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CustomOps, C1AFunctionOfTheProcessIsAnOperator) {
  // [function]
  CustomOpDomain ops(kDomain);
  ops.Function("Scale",
               [](In<float> x, Attr<float> by, Out<float> y) {
                 for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * *by;
               },
               {"x", {"by", 2.0f}, "y"});
  Options options;
  options.add_custom_ops(ops);
  // [/function]
  Graph graph = graph_with(options);
  graph.add_value("x", floats({-1}, {"n"}));
  graph.add_node("Scale", {"x"}, {"twice"}, "default", kDomain);
  graph.add_node("Scale", {"twice"}, {"y"}, "given", kDomain).set("by", 0.5f);
  const Session session(environment(), graph, options);
  EXPECT_EQ(session.outputs()[0].symbols[0], "n");  // inferred
  EXPECT_THAT(elements(session.run({{"x", tensor({1, 2, -3})}}, {"twice"})[0]),
              ElementsAre(2, 4, -6));
  EXPECT_THAT(elements(session.run({{"x", tensor({1, 2, -3})}})[0]), ElementsAre(1, 2, -3));
  EXPECT_EQ(kernel_of(session, "given"), "test.ops:Scale");
}

TEST(CustomOps, C1AFunctionThatWantsToBeAloneIsCalledOnceAtATime) {
  std::atomic<int> inside{0}, most{0}, calls{0};
  CustomOpDomain ops(kDomain);
  ops.Function("Alone",
               [&](In<float> x, Out<float> y) {
                 most = std::max(most.load(), ++inside);
                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                 y[0] = x[0];
                 ++calls;
                 --inside;
               })
      .not_concurrent();
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1}));
  graph.add_node("Alone", {"x"}, {"y"}, "alone", kDomain);
  const Session session(environment(), graph, options);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int run = 0; run < 5; ++run) session.run({{"x", tensor({1})}});
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(calls, 20);
  EXPECT_EQ(most, 1);
}

TEST(CustomOps, C1AFunctionThatDiffersFromCallToCallIsNeverFolded) {
  for (const bool differs : {false, true}) {
    std::atomic<int> calls{0};
    CustomOpDomain ops(kDomain);
    FunctionOp& count = ops.Function(
        "Count", [&](In<float> x, Out<float> y) { y[0] = x[0] + static_cast<float>(++calls); });
    if (differs) count.not_deterministic();
    Options options;
    options.add_custom_ops(ops);
    Graph graph = graph_with(options);
    graph.add_value("x", floats({1}));
    graph.add_initializer("start", tensor({10}));
    graph.add_node("Count", {"start"}, {"counted"}, "count", kDomain);
    graph.add_node("Add", {"x", "counted"}, {"y"});
    const Session session(environment(), graph, options);
    const int before = calls;
    for (int run = 1; run <= 3; ++run) {
      const float counted = differs ? static_cast<float>(before + run) : 1;
      EXPECT_THAT(elements(session.run({{"x", tensor({0})}})[0]), ElementsAre(10 + counted));
    }
    EXPECT_EQ(before, differs ? 0 : 1);
  }
}

TEST(CustomOps, C1NamesMayBeLeftOut) {
  CustomOpDomain ops(kDomain);
  ops.Function("Foo", [](In<float> x, Attr<float> alpha, Out<float> y) { y[0] = x[0] + *alpha; });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1}));
  graph.add_node("Foo", {"x"}, {"y"}, "foo", kDomain).set("a0", 3.0f);
  EXPECT_THAT(elements(Session(environment(), graph, options).run({{"x", tensor({1})}})[0]),
              ElementsAre(4));
}

TEST(CustomOps, C1AGraphWithoutTheDomainNamesWhatIsMissing) {
  Graph graph(environment());
  graph.set_opset(kDomain, 1);
  graph.add_value("x", floats({1}));
  graph.add_node("Scale", {"x"}, {"y"}, "scale", kDomain);
  EXPECT_THAT(error_of([&] { Session(environment(), graph); }), HasSubstr("Scale"));
}

TEST(CustomOps, C1ALibraryAndADomainServeOneGraph) {
  CustomOpDomain ops(kDomain);
  ops.Function("Neg", [](In<float> x, Out<float> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = -x[i];
  });
  Options options;
  options.add_custom_ops(ops).RegisterCustomOpsLibrary(kTally);
  Graph graph = graph_with(options);
  graph.set_opset("backplane.tests", 1);
  graph.add_value("x", floats({2}));
  graph.add_node("Tally", {"x"}, {"t"}, "tally", "backplane.tests");
  graph.add_node("Neg", {"t"}, {"y"}, "neg", kDomain);
  EXPECT_THAT(elements(Session(environment(), graph, options).run({{"x", tensor({1, 2})}})[0]),
              ElementsAre(-2, -3));
}

TEST(CustomOps, C1ADescriptionInPlainCServes) {
  {
    Options options;
    options.add_custom_ops(c_domain());
    EXPECT_EQ(c_domain_is_started(), 1);
    Graph graph = graph_with(options, environment(), "c.ops");
    graph.add_value("x", floats({3}));
    graph.add_node("Half", {"x"}, {"y"}, "half", "c.ops");
    const Session session(environment(), graph, options);
    EXPECT_THAT(elements(session.run({{"x", tensor({2, 4, 5})}})[0]), ElementsAre(1, 2, 2.5f));
  }
  EXPECT_EQ(c_domain_is_started(), 0);  // shut down with what was made with it
  Options again;
  again.add_custom_ops(c_domain());
  EXPECT_EQ(c_domain_is_started(), 1);
}

TEST(CustomOps, C1WrongDescriptionsAreRefused) {
  backplane_options* none = nullptr;
  EXPECT_THAT(error_of([&] { detail::check(backplane_options_add_custom_ops(none, c_domain())); }),
              HasSubstr("options"));
  Options options;
  EXPECT_THAT(error_of([&] { options.add_custom_ops(nullptr); }), HasSubstr("plugin"));
  bp_plugin broken{};
  EXPECT_THAT(error_of([&] { options.add_custom_ops(&broken); }), HasSubstr("struct_size"));
  broken = *c_domain();
  broken.init = nullptr;
  EXPECT_THAT(error_of([&] { options.add_custom_ops(&broken); }), HasSubstr("init"));
  broken = *c_domain();
  broken.init = [](void*, const bp_host_api* host) {
    return host->status_new(BP_FAILED, "no mood", 7);
  };
  EXPECT_THAT(error_of([&] { options.add_custom_ops(&broken); }), HasSubstr("no mood"));
}

TEST(CustomOps, C2FunctionsForSeveralTypesAreOneOperator) {
  CustomOpDomain ops(kDomain);
  ops.Function("Inc", [](In<float> x, Out<float> y) { y[0] = x[0] + 0.5f; });
  ops.Function("Inc", [](In<std::int64_t> x, Out<std::int64_t> y) { y[0] = x[0] + 1; });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("f", floats({1}));
  graph.add_value("i", GraphType::tensor(ElementType::Int64, {1}));
  graph.add_node("Inc", {"f"}, {"g"}, "floats", kDomain);
  graph.add_node("Inc", {"i"}, {"j"}, "ints", kDomain);
  const Session session(environment(), graph, options);
  const Value i = Value::tensor<std::int64_t>({1}, {41});
  const auto results = session.run({{"f", tensor({1})}, {"i", i}}, {"g", "j"});
  EXPECT_EQ(*results[0].data<float>(), 1.5f);
  EXPECT_EQ(*results[1].data<std::int64_t>(), 42);
}

TEST(CustomOps, C2TypesThatNoFunctionTakesAreAnError) {
  CustomOpDomain ops(kDomain);
  ops.Function("Inc", [](In<float> x, Out<float> y) { y[0] = x[0]; });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", GraphType::tensor(ElementType::Double, {1}));
  graph.add_node("Inc", {"x"}, {"y"}, "inc", kDomain);
  EXPECT_THAT(error_of([&] { Session(environment(), graph, options); }), HasSubstr("inc"));
}

TEST(CustomOps, C2FunctionsOfOneNameMustLookAlike) {
  CustomOpDomain ops(kDomain);
  ops.Function("Inc", [](In<float>, Out<float>) {});
  ops.Function("Inc", [](In<double>, In<double>, Out<double>) {});
  EXPECT_THAT(error_of([&] { Options().add_custom_ops(ops); }), HasSubstr("test.ops::Inc"));
}

TEST(CustomOps, C2NamesAndDefaultsAreChecked) {
  CustomOpDomain ops(kDomain);
  const auto scale = [](In<float>, Attr<float>, Out<float>) {};
  EXPECT_THAT(error_of([&] {
                ops.Function("Scale", scale, {"x", "by"});
              }),
              HasSubstr("more parameters"));
  EXPECT_THAT(error_of([&] {
                ops.Function("Scale", scale, {"x", "by", "y", "z"});
              }),
              HasSubstr("fewer parameters"));
  EXPECT_THAT(error_of([&] {
                ops.Function("Scale", scale, {"x", {"by", 2}, "y"});
              }),
              HasSubstr("'by'"));
  EXPECT_THAT(error_of([&] {
                ops.Function("Scale", scale, {{"x", 1.0f}, "by", "y"});
              }),
              HasSubstr("'x' cannot have a default"));
  Options().add_custom_ops(ops);
  EXPECT_THAT(error_of([&] { ops.Function("Late", scale); }), HasSubstr("in use already"));
}

TEST(CustomOps, C2ANewVersionOfAnOperatorIsAnother) {
  CustomOpDomain ops(kDomain);
  ops.Function("Bump", [](In<float> x, Out<float> y) { y[0] = x[0] + 1; });
  ops.Function("Bump", [](In<float> x, Attr<float> by, Out<float> y) { y[0] = x[0] + *by; },
               {"x", {"by", 10.0f}, "y"})
      .since(2);
  Options options;
  options.add_custom_ops(ops);
  for (const auto& [version, wanted] :
       {std::pair(1, 1.0f), std::pair(2, 10.0f), std::pair(7, 10.0f)}) {
    Graph graph = graph_with(options);
    graph.set_opset(kDomain, version);
    graph.add_value("x", floats({1}));
    graph.add_node("Bump", {"x"}, {"y"}, "bump", kDomain);
    EXPECT_EQ(*Session(environment(), graph, options).run({{"x", tensor({0})}})[0].data<float>(),
              wanted);
  }
}

TEST(CustomOps, C2TheHigherPriorityWins) {
  for (const int second : {-1, 1}) {
    CustomOpDomain ops(kDomain);
    ops.Function("One", [](In<float>, Out<float> y) { y[0] = 1; });
    ops.Function("One", [](In<float>, Out<float> y) { y[0] = 2; }).priority(second);
    Options options;
    options.add_custom_ops(ops);
    Graph graph = graph_with(options);
    graph.add_value("x", floats({1}));
    graph.add_node("One", {"x"}, {"y"}, "one", kDomain);
    EXPECT_EQ(*Session(environment(), graph, options).run({{"x", tensor({0})}})[0].data<float>(),
              second > 0 ? 2 : 1);
  }
}

TEST(CustomOps, C2AShapeRuleSizesOutputsAndSeesUnknownDims) {
  CustomOpDomain ops(kDomain);
  ops.Function("Outer",
               [](In<float> a, In<float> b, Out<float> y) {
                 for (std::size_t i = 0; i < a.size(); ++i)
                   for (std::size_t k = 0; k < b.size(); ++k) y[i * b.size() + k] = a[i] * b[k];
               })
      .shape([](const sdk::Node&, const std::vector<sdk::Dims>& in) {
        return std::vector<sdk::Dims>{{in[0][0], in[1][0]}};
      });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("a", floats({-1}, {"n"}));
  graph.add_value("b", floats({2}));
  graph.add_node("Outer", {"a", "b"}, {"y"}, "outer", kDomain);
  const Session session(environment(), graph, options);
  EXPECT_THAT(session.outputs()[0].dims, ElementsAre(-1, 2));
  const Value b = tensor({10, 100});
  const Value y = std::move(session.run({{"a", tensor({1, 2, 3})}, {"b", b}})[0]);
  EXPECT_THAT(y.dims(), ElementsAre(3, 2));
  EXPECT_THAT(elements(y), ElementsAre(10, 100, 20, 200, 30, 300));
  EXPECT_THAT(session.run({{"a", tensor(std::vector<float>())}, {"b", b}})[0].dims(),
              ElementsAre(0, 2));
}

TEST(CustomOps, C2AnOutputMayBeSizedInTheCall) {
  CustomOpDomain ops(kDomain);
  ops.Function("Positive", [](In<float> x, NewOut<float> y) {
    const auto count = std::count_if(x.begin(), x.end(), [](float v) { return v > 0; });
    const Out<float> kept = y.allocate({count});
    std::copy_if(x.begin(), x.end(), kept.begin(), [](float v) { return v > 0; });
  });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({4}));
  graph.add_node("Positive", {"x"}, {"p"}, "positive", kDomain);
  graph.add_node("Neg", {"p"}, {"y"});
  const Session session(environment(), graph, options);
  EXPECT_THAT(elements(session.run({{"x", tensor({-1, 2, 0, 3})}})[0]), ElementsAre(-2, -3));
  EXPECT_THAT(session.run({{"x", tensor({-1, -2, 0, -3})}})[0].dims(), ElementsAre(0));
}

/// Nothing of an earlier run is taken for it.
TEST(CustomOps, C2AnOutputThatTheCallDoesNotSizeEndsTheRun) {
  int calls = 0;
  CustomOpDomain ops(kDomain);
  ops.Function("Once", [&calls](In<float> x, NewOut<float> y) {
    if (calls++ == 0) y.allocate({static_cast<std::int64_t>(x.size())})[0] = x[0];
  });
  ops.Function("Twice", [](In<float>, NewOut<float> y) {
    y.allocate({1});
    y.allocate({2});
  });
  Options options;
  options.add_custom_ops(ops);
  for (const char* reader : {"", "Neg"}) {  // it is an output, or read by another node
    calls = 0;
    Graph graph = graph_with(options);
    graph.add_value("x", floats({1}));
    graph.add_node("Once", {"x"}, {*reader == '\0' ? "y" : "once"}, "once", kDomain);
    if (*reader != '\0') graph.add_node(reader, {"once"}, {"y"});
    const Session session(environment(), graph, options);
    EXPECT_EQ(session.run({{"x", tensor({2})}})[0].dims(), std::vector<std::int64_t>{1});
    std::int32_t code = 0;
    const std::string message = error_of([&] { session.run({{"x", tensor({2})}}); }, &code);
    EXPECT_EQ(code, BACKPLANE_INTERNAL);
    EXPECT_THAT(message, HasSubstr("node 'once'"));
    EXPECT_THAT(message, HasSubstr("never gave output 0 its size (alloc_output)"));
    calls = 0;
    EXPECT_EQ(session.run({{"x", tensor({2})}})[0].dims(), std::vector<std::int64_t>{1});
  }
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1}));
  graph.add_node("Twice", {"x"}, {"y"}, "twice", kDomain);
  EXPECT_THAT(error_of([&] {
                Session(environment(), graph, options).run({{"x", tensor({1})}});
              }),
              HasSubstr("output 0 was allocated already"));
}

TEST(CustomOps, C2InPlaceHintsAreTaken) {
  CustomOpDomain ops(kDomain);
  bool same = false;
  ops.Function("Step",
               [&same](In<float> x, Out<float> y) {
                 same = x.data() == y.data();
                 for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + 1;
               })
      .in_place(0, 0);
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({64}));
  graph.add_node("Neg", {"x"}, {"n"});
  graph.add_node("Step", {"n"}, {"s"}, "step", kDomain);
  graph.add_node("Neg", {"s"}, {"y"});
  const Session session(environment(), graph, options);
  const Value x = tensor(std::vector<float>(64, 2.0f));
  EXPECT_EQ(elements(session.run({{"x", x}})[0])[63], 1);
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace backplane::session_test

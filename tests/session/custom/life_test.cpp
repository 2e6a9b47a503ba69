// Row C5 of core/SESSION.md: libraries and domains live as long as what was made with them; errors of operators.
#include <memory>

#include "custom_session.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Graph tally_graph(const Environment& where, const Options& options) {
  Graph graph = graph_with(options, where, "backplane.tests");
  graph.add_value("x", floats({1}));
  graph.add_node("Tally", {"x"}, {"y"}, "tally", "backplane.tests");
  return graph;
}

TEST(CustomOps, C5ASessionKeepsItsLibraryAfterEverythingElseHasEnded) {
  std::unique_ptr<Session> session;
  {
    const Environment own(Options().set("environment.log_level", "error"));
    Options options;
    options.RegisterCustomOpsLibrary(kTally);
    Graph graph = tally_graph(own, options);
    session = std::make_unique<Session>(own, graph, options);
  }
  EXPECT_THAT(elements(session->run({{"x", tensor({1})}})[0]), ElementsAre(2));
}

TEST(CustomOps, C5ASessionKeepsTheFunctionsOfADomain) {
  const auto state = std::make_shared<int>(5);
  std::unique_ptr<Session> session;
  {
    CustomOpDomain ops(kDomain);
    ops.Function("Add5",
                 [state](In<float> x, Out<float> y) { y[0] = x[0] + static_cast<float>(*state); });
    Options options;
    options.add_custom_ops(ops);
    Graph graph = graph_with(options);
    graph.add_value("x", floats({1}));
    graph.add_node("Add5", {"x"}, {"y"}, "add", kDomain);
    session = std::make_unique<Session>(environment(), graph, options);
  }
  EXPECT_GT(state.use_count(), 1);
  EXPECT_THAT(elements(session->run({{"x", tensor({1})}})[0]), ElementsAre(6));
  session.reset();
  EXPECT_EQ(state.use_count(), 1);  // and lets them go with it
}

TEST(CustomOps, C5UnloadingIsRefusedWhileASessionLives) {
  const Environment own(Options().set("environment.log_level", "error"));
  Options options;
  options.RegisterCustomOpsLibrary(kTally);
  {
    Graph graph = tally_graph(own, options);
    const Session session(own, graph, options);
    std::int32_t code = 0;
    const std::string message = error_of([&] { own.unload_custom_ops(kTally); }, &code);
    EXPECT_THAT(message, HasSubstr("session_tally.so"));
    EXPECT_THAT(message, HasSubstr("in use"));
    EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
    EXPECT_THAT(elements(session.run({{"x", tensor({1})}})[0]), ElementsAre(2));
  }
  own.unload_custom_ops(kTally);
  std::int32_t code = 0;
  EXPECT_THAT(error_of([&] { own.unload_custom_ops(kTally); }, &code), HasSubstr("not loaded"));
  EXPECT_EQ(code, BACKPLANE_NOT_FOUND);
  Graph graph = tally_graph(own, options);  // which starts it again
  EXPECT_THAT(elements(Session(own, graph, options).run({{"x", tensor({3})}})[0]), ElementsAre(4));
}

TEST(CustomOps, C5ALibraryOfTheEnvironmentIsLetGoToo) {
  const Environment own(
      Options().set("environment.log_level", "error").set("environment.custom_ops", kTally));
  Options options;  // graphs ask their options, sessions the environment too
  options.RegisterCustomOpsLibrary(kTally);
  Graph graph = tally_graph(own, options);
  {
    const Session session(own, graph);
    EXPECT_THAT(error_of([&] { own.unload_custom_ops(kTally); }), HasSubstr("in use"));
    EXPECT_THAT(elements(session.run({{"x", tensor({1})}})[0]), ElementsAre(2));
  }
  own.unload_custom_ops(kTally);
  EXPECT_THAT(error_of([&] { Session(own, graph); }), HasSubstr("Tally"));
}

TEST(CustomOps, C5AProvidersFileIsNotUnloaded) {
  const Environment own(Options().set("environment.log_level", "error"));
  EXPECT_THAT(own.providers(), HasSubstr("cpu.so"));
  EXPECT_THAT(error_of([&] { own.unload_custom_ops(BACKPLANE_TEST_PLUGIN_DIR "/cpu.so"); }),
              HasSubstr("brings a provider"));
  EXPECT_THAT(error_of([&] { own.unload_custom_ops("nowhere.so"); }), HasSubstr("nowhere.so"));
}

TEST(CustomOps, C5AnErrorNamesTheNodeAndTheLibrary) {
  Options options;
  options.RegisterCustomOpsLibrary(kTally);
  Graph graph = tally_graph(environment(), options);
  const Session session(environment(), graph, options);
  std::int32_t code = 0;
  const std::string message = error_of([&] { session.run({{"x", tensor({-1})}}); }, &code);
  EXPECT_EQ(code, BACKPLANE_FAILED);
  EXPECT_THAT(message, HasSubstr("Tally takes no debts, got -1"));
  EXPECT_THAT(message, HasSubstr("'tally'"));
  EXPECT_THAT(message, HasSubstr("session_tally.so"));
  EXPECT_THAT(elements(session.run({{"x", tensor({1})}})[0]), ElementsAre(2));  // stays usable
}

TEST(CustomOps, C5AMatchThatFailsIsTold) {
  std::vector<std::string> lines;
  const Environment own(Options().set("environment.log_level", "warning"),
                        [&](int, const std::string& line) { lines.push_back(line); });
  Options options;
  options.RegisterCustomOpsLibrary(kTally);
  Graph graph = graph_with(options, own, "backplane.tests");
  graph.add_value("x", floats({1}));
  graph.add_node("Tally", {"x"}, {"y"}, "unmatched", "backplane.tests");
  const std::string message = error_of([&] { Session(own, graph, options); });
  EXPECT_THAT(message, HasSubstr("is taken by no provider"));
  EXPECT_THAT(message,
              HasSubstr("match of kernel 'tally:float' of cpu failed: Tally's match broke"));
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("'unmatched'"));
  EXPECT_THAT(lines[0], HasSubstr("Tally's match broke; only BP_UNSUPPORTED refuses a node"));
}

TEST(CustomOps, C5WhateverAFunctionThrowsEndsTheRun) {
  int what = 0;
  CustomOpDomain ops(kDomain);
  ops.Function("Throw", [&what](In<float> x, Out<float> y) {
    y[0] = x[0];
    if (what == 1) throw std::runtime_error("out of luck");
    if (what == 2) throw Error(BACKPLANE_FAILED, "out of range");
    if (what == 3) throw 42;
    if (what == 4) throw std::bad_alloc();
  });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({1}));
  graph.add_node("Throw", {"x"}, {"y"}, "thrower", kDomain);
  const Session session(environment(), graph, options);
  const struct {
    int what;
    std::int32_t code;
    const char* words;
  } cases[] = {{1, BACKPLANE_INTERNAL, "out of luck"},
               {2, BACKPLANE_FAILED, "out of range"},
               {3, BACKPLANE_INTERNAL, "exception"},
               {4, BACKPLANE_OUT_OF_MEMORY, "memory"}};
  for (const auto& one : cases) {
    what = one.what;
    std::int32_t code = 0;
    const std::string message = error_of([&] { session.run({{"x", tensor({1})}}); }, &code);
    EXPECT_EQ(code, one.code) << message;
    EXPECT_THAT(message, HasSubstr(one.words));
    EXPECT_THAT(message, HasSubstr("'thrower'"));
    EXPECT_THAT(message, HasSubstr("test.ops of this process"));
  }
  what = 0;
  EXPECT_THAT(elements(session.run({{"x", tensor({1})}})[0]), ElementsAre(1));
}

TEST(CustomOps, C5ErrorsOfPreparingNameTheLibraryToo) {
  CustomOpDomain ops(kDomain);
  ops.Function("Pick", [](In<float>, Out<float>) {})
      .shape([](const sdk::Node&, const std::vector<sdk::Dims>& in) -> std::vector<sdk::Dims> {
        if (in[0] == sdk::Dims{3}) sdk::invalid("three is too many");
        return {in[0]};
      });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({-1}));
  graph.add_node("Pick", {"x"}, {"y"}, "pick", kDomain);
  const Session session(environment(), graph, options);
  const std::string message = error_of([&] { session.run({{"x", tensor({1, 2, 3})}}); });
  EXPECT_THAT(message, HasSubstr("three is too many"));
  EXPECT_THAT(message, HasSubstr("'pick'"));
  EXPECT_THAT(message, HasSubstr("test.ops of this process"));
}

}  // namespace
}  // namespace backplane::session_test

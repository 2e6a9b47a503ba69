// Row C2 of core/SESSION.md: what inputs, outputs and attributes of an operator may be.
#include <complex>
#include <numeric>

#include "custom_session.hpp"

namespace backplane::session_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CustomOps, C2OptionalInputsAndOutputsMayBeLeftOut) {
  CustomOpDomain ops(kDomain);
  ops.Function("Affine", [](In<float> x, std::optional<In<float>> bias, Out<float> y,
                            std::optional<Out<float>> doubled) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + (bias ? (*bias)[i] : 0);
    for (std::size_t i = 0; doubled && i < x.size(); ++i) (*doubled)[i] = 2 * y[i];
  });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("x", floats({2}));
  graph.add_value("b", floats({2}));
  graph.add_node("Affine", {"x"}, {"plain"}, "plain", kDomain);
  graph.add_node("Affine", {"x", "b"}, {"full", "doubled"}, "full", kDomain);
  graph.set_outputs({"plain", "full", "doubled"});
  const Session session(environment(), graph, options);
  const auto results = session.run({{"x", tensor({1, 2})}, {"b", tensor({10, 20})}});
  EXPECT_THAT(elements(results[0]), ElementsAre(1, 2));
  EXPECT_THAT(elements(results[1]), ElementsAre(11, 22));
  EXPECT_THAT(elements(results[2]), ElementsAre(22, 44));
}

TEST(CustomOps, C2ARequiredInputThatIsLeftOutIsAnError) {
  CustomOpDomain ops(kDomain);
  ops.Function("Pick", [](std::optional<In<float>>, In<float> x, Out<float> y) { y[0] = x[0]; },
               {"first", "second", "y"})
      .shape([](const sdk::Node&, const std::vector<sdk::Dims>& in) {
        return std::vector<sdk::Dims>{in.at(1)};
      });
  Options options;
  // An optional input may not stand before a required one: the schema itself is refused.
  EXPECT_THAT(error_of([&] {
                options.add_custom_ops(ops);
                Graph graph = graph_with(options);
                graph.add_value("x", floats({1}));
                graph.add_node("Pick", {"x", "x"}, {"y"}, "pick", kDomain);
                Session(environment(), graph, options);
              }),
              HasSubstr("follows an optional one"));
}

TEST(CustomOps, C2TheLastInputsMayBeAnyNumber) {
  CustomOpDomain ops(kDomain);
  ops.Function("Total", [](In<float> start, Ins<float> more, Out<float> y) {
    y[0] = start[0];
    for (std::size_t i = 0; i < more.size(); ++i) y[0] += more[i][0];
  });
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("a", floats({1}));
  graph.add_value("b", floats({1}));
  graph.add_node("Total", {"a"}, {"one"}, "one", kDomain);
  graph.add_node("Total", {"a", "b", "b", "b"}, {"four"}, "four", kDomain);
  const Session session(environment(), graph, options);
  const auto results = session.run({{"a", tensor({1})}, {"b", tensor({10})}}, {"one", "four"});
  EXPECT_EQ(*results[0].data<float>(), 1);
  EXPECT_EQ(*results[1].data<float>(), 31);
}

/// y = how many elements all inputs have together; they may be of any types. And the same number once more per output.
class CountAll {
 public:
  struct Prepared {
    void compute(const sdk::ComputeContext& ctx) const {
      std::int64_t count = 0;
      for (std::uint32_t i = 0; i < ctx.input_count(); ++i) count += ctx.input(i).size();
      for (std::uint32_t i = 0; i < ctx.output_count(); ++i)
        *ctx.output(i).mutable_data<std::int64_t>() = count + i;
    }
  };
  CountAll(const sdk::CreateContext&, const sdk::Node&) {}
  Prepared prepare(sdk::PrepareContext& ctx) const {
    for (std::uint32_t i = 0; i < ctx.output_count(); ++i)
      ctx.set_output(i, sdk::DataType::Int64, {});
    return {};
  }
};

CustomOpDomain count_ops(bool heterogeneous, std::uint64_t least) {
  CustomOpDomain ops(kDomain);
  ops.schema(sdk::OpSchema(kDomain, "CountAll", 1)
                 .type_param("T", {sdk::DataType::Float, sdk::DataType::Int64})
                 .type_param("N", {sdk::DataType::Int64})
                 .variadic_input("values", "T", least, heterogeneous)
                 .variadic_output("counts", "N")
                 .infer([](sdk::InferContext& ctx) {
                   for (std::uint32_t i = 0; i < ctx.node().output_count(); ++i)
                     ctx.set_output(i, sdk::DataType::Int64, {});
                 }));
  ops.kernel(sdk::op("CountAll", kDomain).name("count").kernel<CountAll>());
  return ops;
}

TEST(CustomOps, C2VariadicInputsAreOfOneTypeOrOfManyAndHaveALeastNumber) {
  const auto run = [](bool heterogeneous, std::uint64_t least, bool mixed) {
    Options options;
    options.add_custom_ops(count_ops(heterogeneous, least));
    Graph graph = graph_with(options);
    graph.add_value("f", floats({3}));
    graph.add_value("i", GraphType::tensor(ElementType::Int64, {2}));
    graph.add_node("CountAll", {"f", mixed ? "i" : "f"}, {"c", "d"}, "count", kDomain);
    const Session session(environment(), graph, options);
    const Value f = tensor({1, 2, 3}), i = Value::tensor<std::int64_t>({2}, {1, 2});
    Feeds feeds{{"f", f}};
    if (mixed) feeds.push_back({"i", i});
    const auto results = session.run(feeds, {"c", "d"});
    return 100 * *results[0].data<std::int64_t>() + *results[1].data<std::int64_t>();
  };
  EXPECT_EQ(run(true, 1, true), 506);
  EXPECT_EQ(run(false, 2, false), 607);
  EXPECT_THAT(error_of([&] { run(false, 1, true); }), HasSubstr("count"));
  EXPECT_THAT(error_of([&] { run(true, 3, true); }), HasSubstr("count"));
}

/// Writes all that its attributes say into one string.
class Tell {
 public:
  struct Prepared {
    const Tell* kernel;
    void compute(const sdk::ComputeContext& ctx) const {
      ctx.output_value(0).set_string(0, kernel->text_);
    }
  };
  Tell(const sdk::CreateContext&, const sdk::Node& node) {
    text_ = sdk::message(node.get_int("i", 7), ' ', node.get_float("f", 0.5f), ' ',
                         node.get_string("s", "none"));
    for (const std::int64_t i : node.get_ints("is")) text_ += sdk::message(" i", i);
    for (const float f : node.get_floats("fs")) text_ += sdk::message(" f", f);
    for (const std::string& s : node.get_strings("ss")) text_ += " s" + s;
    if (const sdk::Value t = node.get_tensor("t"))
      text_ += sdk::message(" t", t.tensor().data<float>()[1]);
    for (const sdk::Value& t : node.get_tensors("ts"))
      text_ += sdk::message(" ts", to_string(t.tensor().dims()));
    for (const char* const name : {"type", "types", "body", "bodies"}) {
      if (const bp_attribute* given = node.attribute(name))
        text_ += sdk::message(' ', name, given->type, 'x', given->count);
    }
  }
  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output(0, sdk::DataType::String, sdk::Dims{1});
    return {this};
  }

 private:
  std::string text_;
};

TEST(CustomOps, C2AttributesOfEveryKindReachTheKernel) {
  CustomOpDomain ops(kDomain);
  ops.schema(sdk::OpSchema(kDomain, "Tell", 1)
                 .output("y", "tensor(string)")
                 .attribute({"i", std::int64_t{7}})
                 .attribute({"f", 0.5f})
                 .attribute({"s", std::string("none")})
                 .attribute({"is", std::vector<std::int64_t>{}})
                 .attribute({"fs", std::vector<float>{}})
                 .attribute({"ss", std::vector<std::string>{}})
                 .attribute("t", BP_ATTRIBUTE_TENSOR, false)
                 .attribute("ts", BP_ATTRIBUTE_TENSORS, false)
                 .attribute("type", BP_ATTRIBUTE_TYPE, false)
                 .attribute("types", BP_ATTRIBUTE_TYPES, false)
                 .attribute("body", BP_ATTRIBUTE_GRAPH, false)
                 .attribute("bodies", BP_ATTRIBUTE_GRAPHS, false));
  ops.kernel(sdk::op("Tell", kDomain).kernel<Tell>());
  Options options;
  options.add_custom_ops(ops);
  const auto told = [&](const auto& give) {
    Graph graph = graph_with(options);
    Graph::Node node = graph.add_node("Tell", {}, {"y"}, "tell", kDomain);
    give(node);
    return Session(environment(), graph, options).run({})[0].string(0);
  };
  EXPECT_EQ(told([](Graph::Node&) {}), "7 0.5 none");
  Graph body;
  body.add_value("a", floats({1}));
  body.add_node("Neg", {"a"}, {"b"});
  const GraphType type = floats({2});
  const Value t = tensor({1, 2});
  EXPECT_EQ(
      told([&](Graph::Node& node) {
        node.set("i", 1).set("f", 2.5f).set("s", "word");
        node.set("is", std::vector<std::int64_t>{3, 4}).set("fs", std::vector<float>{5});
        node.set("ss", std::vector<std::string>{"a", "b"}).set("t", t).set_tensors("ts", {t, t});
        node.set("type", type).set_types("types", {&type, &type});
        node.set("body", body).set_bodies("bodies", {&body, &body});
      }),
      "1 2.5 word i3 i4 f5 sa sb t2 ts[2] ts[2] type13x1 types14x2 body5x1 bodies10x2");
}

TEST(CustomOps, C2AFunctionsAttributesHaveTheirTypesAndDefaults) {
  CustomOpDomain ops(kDomain);
  ops.Function("Tell",
               [](Attr<std::int64_t> i, Attr<int> n, Attr<bool> b, Attr<float> f,
                  Attr<std::string> s, Attr<std::vector<std::int64_t>> is,
                  Attr<std::vector<float>> fs, Attr<std::vector<std::string>> ss,
                  Attr<std::optional<float>> of, Attr<sdk::Value> t, Out<std::string> y) {
                 y.set(0, sdk::message(*i, ' ', *n, ' ', *b, ' ', *f, ' ', *s, ' ', is->size(),
                                       fs->size(), ss->size(), ' ', of->value_or(-1), ' ',
                                       t->tensor().data<float>()[0]));
               },
               {{"i", 1},
                {"n", 2},
                {"b", true},
                {"f", 0.5f},
                {"s", "text"},
                {"is", std::vector<std::int64_t>{1, 2}},
                {"fs", std::vector<float>{}},
                {"ss", std::vector<std::string>{"a"}},
                "of",
                "t",
                "y"})
      .shape([](const sdk::Node&, const std::vector<sdk::Dims>&) {
        return std::vector<sdk::Dims>{{1}};
      });
  Options options;
  options.add_custom_ops(ops);
  const auto told = [&](bool all) {
    Graph graph = graph_with(options);
    const Value t = tensor({9});
    Graph::Node node = graph.add_node("Tell", {}, {"y"}, "tell", kDomain);
    node.set("t", t);
    if (all) {
      node.set("i", 10).set("n", 20).set("b", 0).set("f", 1.5f).set("s", "x").set("of", 3.0f);
      node.set("fs", std::vector<float>{1, 2, 3});
    }
    return Session(environment(), graph, options).run({})[0].string(0);
  };
  EXPECT_EQ(told(false), "1 2 1 0.5 text 201 -1 9");
  EXPECT_EQ(told(true), "10 20 0 1.5 x 231 3 9");
  Graph graph = graph_with(options);
  graph.add_node("Tell", {}, {"y"}, "tell", kDomain);
  EXPECT_THAT(error_of([&] { Session(environment(), graph, options); }), HasSubstr("'t'"));
}

TEST(CustomOps, C2StringsGoInAndOut) {
  CustomOpDomain ops(kDomain);
  ops.Function("Join",
               [](In<std::string> words, Attr<std::string> by, NewOut<std::string> y) {
                 std::string joined;
                 for (std::size_t i = 0; i < words.size(); ++i)
                   joined += (i > 0 ? *by : "") + std::string(words[i]);
                 y.allocate({1}).set(0, joined);
               },
               {"words", {"by", "-"}, "y"});
  Options options;
  options.add_custom_ops(ops);
  Graph graph = graph_with(options);
  graph.add_value("words", GraphType::tensor(ElementType::String, {3}));
  graph.add_node("Join", {"words"}, {"y"}, "join", kDomain);
  Value words = Value::tensor(ElementType::String, {3});
  for (std::uint64_t i = 0; i < 3; ++i)
    words.set_string(i, std::string(1, static_cast<char>('a' + i)));
  EXPECT_EQ(Session(environment(), graph, options).run({{"words", words}})[0].string(0), "a-b-c");
}

}  // namespace
}  // namespace backplane::session_test

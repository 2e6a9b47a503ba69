// L2: every option does what it says.
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class SessionOptions : public SessionTest {};

/// (x + 0) -> Identity -> Relu, and a sum of constants that folding finds.
ModelMaker model_with_work_for_passes() {
  ModelMaker maker;
  maker.input("x", {"batch", 4}).weight("a", {4}, {1, 2, 3, 4}).weight("b", {4}, {4, 3, 2, 1});
  maker.node("sum", "Add", {"a", "b"}, "c")
      .node("same", "Identity", {"x"}, "x1")
      .node("left", "Add", {"x1", "c"}, "l")
      .node("right", "Add", {"x1", "c"}, "r")
      .node("both", "Mul", {"l", "r"}, "m")
      .node("unread", "Relu", {"x"}, "u")
      .node("last", "Relu", {"m"}, "y");
  return maker.output("y");
}

std::size_t nodes_run(const TestSession& session) { return session.explain()["order"].size(); }

TEST_F(SessionOptions, L2LevelsRunMoreAndMorePasses) {
  const auto model = model_with_work_for_passes().bytes();
  const auto count = [&](const Settings& settings) {
    TestSession session(model, settings);
    const std::vector<float> got = session.run({1, -1, 2, -2}, {1, 4});
    EXPECT_EQ(got, (std::vector<float>{36, 16, 49, 9}));
    return nodes_run(session);
  };
  const std::size_t none =
      count({{"optimization", "none"}, {"disabled_passes", "provider_rewrites"}});
  const std::size_t basic =
      count({{"optimization", "basic"}, {"disabled_passes", "provider_rewrites"}});
  const std::size_t extended =
      count({{"optimization", "extended"}, {"disabled_passes", "provider_rewrites"}});
  EXPECT_GT(none, basic);
  EXPECT_GT(basic, extended);
}

TEST_F(SessionOptions, L2SinglePassesAreSwitchedByName) {
  const auto model = model_with_work_for_passes().bytes();
  const auto ops = [&](const Settings& settings) {
    Settings all = settings;
    all.emplace_back("providers", "cpu");
    const Json explanation = TestSession(model, all).explain();
    std::map<std::string, Json> places;  // or, on the host, why it is there
    for (const Json& node : explanation["nodes"])
      places[node["name"]] = node["provider"] == "host" ? node["kernel"] : node["provider"];
    return places;
  };
  auto kept = ops({{"disabled_passes", "eliminate_identities,provider_rewrites"}});
  EXPECT_EQ(kept["same"], "cpu");
  EXPECT_EQ(kept["sum"], "folded by fold_constants");
  kept = ops({{"optimization", "none"},
              {"enabled_passes", "eliminate_identities"},
              {"disabled_passes", "provider_rewrites"}});
  EXPECT_TRUE(kept["same"].is_null());
  EXPECT_HOLDS(failure_of([&] {
                 TestSession(model, {{"enabled_passes", "fold_constants"},
                                     {"disabled_passes", "fold_constants"}});
               }).text,
               "enabled and disabled");
}

TEST_F(SessionOptions, L2RewritesOfProvidersAreSwitchedByName) {
  ModelMaker maker;
  maker.input("x", {2, 2}).input("z", {2, 2});
  maker.node("sum", "Add", {"x", "z"}, "s").node("positive", "Relu", {"s"}, "y").output("y");
  const Settings on = {{"providers", "fakegpu:0,cpu"}};
  Settings off = on;
  off.emplace_back("disabled_passes", "provider_rewrites");
  { TestSession session(maker.bytes(), off); }
  EXPECT_EQ(counters().rewrites, 0u);
  { TestSession session(maker.bytes(), on); }
  EXPECT_GT(counters().rewrites, 0u);
}

TEST_F(SessionOptions, L2ClaimsOfProvidersAreSwitchedByName) {
  ModelMaker maker;
  maker.input("x", {2, 2});
  maker.node("a", "Relu", {"x"}, "s").node("b", "Tanh", {"s"}, "y").output("y");
  const Settings on = {{"providers", "fakegpu:0,cpu"}, {"provider.fakegpu.compile", "chains"}};
  Settings off = on;
  off.emplace_back("disabled_passes", "provider_claims");
  { TestSession session(maker.bytes(), off); }
  EXPECT_EQ(counters().compiles, 0u);
  { TestSession session(maker.bytes(), on); }
  EXPECT_GT(counters().compiles, 0u);
}

TEST_F(SessionOptions, L2FreeDimensionByName) {
  TestSession session(model_with_work_for_passes().bytes(), {{"dim.batch", "3"}});
  EXPECT_EQ(session->inputs()[0].dims, (Dims{3, 4}));
  EXPECT_TRUE(session.explain()["planned"].get<bool>());
  EXPECT_HOLDS(failure_of([&] { session.run(numbers(8, 1), {2, 4}); }).text, "[3,4]");
}

TEST_F(SessionOptions, L2FreeDimensionByDenotation) {
  ModelMaker maker;
  maker.input("x", {InputDim("n", "DATA_BATCH"), InputDim("", "DATA_CHANNEL"), "n", 2});
  maker.node("positive", "Relu", {"x"}, "y").output("y");
  TestSession session(maker.bytes(),
                      {{"dim_denotation.DATA_BATCH", "3"}, {"dim_denotation.DATA_CHANNEL", "5"}});
  EXPECT_EQ(session->inputs()[0].dims, (Dims{3, 5, 3, 2}));
  const Failure unknown = failure_of([&] {
    TestSession(maker.bytes(), {{"dim_denotation.DATA_BATHC", "3"}});
  });
  EXPECT_HOLDS(unknown.text, "did you mean 'DATA_BATCH'");
  const Failure twice = failure_of([&] {
    TestSession(maker.bytes(), {{"dim_denotation.DATA_BATCH", "3"}, {"dim.n", "4"}});
  });
  EXPECT_HOLDS(twice.text, "DATA_BATCH");
  EXPECT_EQ(twice.code, BACKPLANE_INVALID_ARGUMENT);
}

TEST_F(SessionOptions, L2ADenotedDimensionThatIsFixedMustAgree) {
  ModelMaker maker;
  maker.input("x", {InputDim(4, "DATA_BATCH")});
  maker.node("positive", "Relu", {"x"}, "y").output("y");
  EXPECT_EQ(failure_of([&] {
              TestSession(maker.bytes(), {{"dim_denotation.DATA_BATCH", "4"}});
            }).text,
            "");
  EXPECT_HOLDS(failure_of([&] {
                 TestSession(maker.bytes(), {{"dim_denotation.DATA_BATCH", "5"}});
               }).text,
               "the model says it is 4");
}

TEST_F(SessionOptions, L2EntriesAreKeptAndEverythingElseIsRefused) {
  Options given = options({{"entry.session.my_key", "a value = with signs"}});
  EXPECT_EQ(given.get("entry.session.my_key"), "a value = with signs");
  EXPECT_HOLDS(failure_of([&] { given.set("session.my_key", "1"); }).text, "entry.");
  TestSession session(small_net().bytes(), given);
  EXPECT_EQ(session->option("entry.session.my_key"), "a value = with signs");
  EXPECT_EQ(session.explain()["entries"]["session.my_key"], "a value = with signs");
  const Failure none = failure_of([&] { (void)session->option("entry.other"); });
  EXPECT_EQ(none.code, BACKPLANE_NOT_FOUND);
}

TEST_F(SessionOptions, L2OptionsCanBeAskedForWithTheirDefaults) {
  Options given = options({{"providers", "cpu"}, {"fallback", "allow"}});
  EXPECT_EQ(given.get("fallback"), "allow");
  EXPECT_EQ(given.get("plan_cache"), "0");
  EXPECT_EQ(given.get("providers"), "cpu");
  given.AppendExecutionProvider("fakegpu:1");
  EXPECT_EQ(given.get("providers"), "cpu,fakegpu:1");
  EXPECT_EQ(failure_of([&] { (void)given.get("falback"); }).code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_EQ(failure_of([&] { (void)given.get("dim.n"); }).code, BACKPLANE_NOT_FOUND);
}

TEST_F(SessionOptions, L2ProvidersAreTriedInTheirOrderAndAllByDefault) {
  const auto model = small_net().bytes();
  const auto place_of = [&](const Settings& settings) {
    return TestSession(model, settings).explain()["nodes"][0]["provider"].get<std::string>();
  };
  EXPECT_EQ(place_of({{"providers", "cpu,fakegpu:0"}}), "cpu");
  EXPECT_EQ(place_of({{"providers", "fakegpu:0,cpu"}}), "fakegpu:0");
  EXPECT_EQ(place_of({}), "fakegpu:0");  // its score is 50, the cpu's 1
}

TEST_F(SessionOptions, L2ThreadsOfASessionAreItsOwn) {
  TestSession one(small_net().bytes(), {{"threads", "1"}});
  EXPECT_EQ(one.statistics()["threads"], 1);
  TestSession three(small_net().bytes(), {{"threads", "3"}});
  EXPECT_EQ(three.statistics()["threads"], 3);
}

TEST_F(SessionOptions, L2TheModelsOptionsAreHonouredOnlyWhenAskedFor) {
  const auto model = small_net()
                         .metadata("backplane.option.threads", "1")
                         .metadata("backplane.option.entry.who", "the model")
                         .metadata("author", "somebody")
                         .bytes();
  TestSession plain(model, {{"threads", "2"}});
  EXPECT_EQ(plain.statistics()["threads"], 2);
  EXPECT_EQ(plain.explain()["model_options"]["used"], false);
  EXPECT_EQ(plain.explain()["model_options"]["options"]["threads"], "1");
  TestSession asked(model, {{"options_from_model", "true"}});
  EXPECT_EQ(asked.statistics()["threads"], 1);
  EXPECT_EQ(asked->option("entry.who"), "the model");
  TestSession own(model, {{"options_from_model", "true"}, {"threads", "2"}});
  EXPECT_EQ(own.statistics()["threads"], 2) << "what the caller says comes first";
}

TEST_F(SessionOptions, L2AModelCannotNameFilesOrPlugins) {
  for (const char* key :
       {"custom_ops", "save_plan", "saved_plan", "external_data", "copy_rates",
        "environment.plugin_path", "provider.fakegpu.seed", "options_from_model"}) {
    const auto model = small_net().metadata(std::string("backplane.option.") + key, "x").bytes();
    const Failure refused = failure_of([&] {
      TestSession(model, {{"options_from_model", "true"}});
    });
    EXPECT_EQ(refused.code, BACKPLANE_INVALID_ARGUMENT) << key;
    EXPECT_HOLDS(refused.text, key);
    EXPECT_EQ(failure_of([&] { TestSession session(model, Settings{}); }).code, 0) << key;
  }
}

TEST_F(SessionOptions, L2OptionsComeFromFilesToo) {
  write(file("c.toml"),
        "log_level = \"off\"\nmemory_limit = \"2GiB\"\narena = false\n"
        "[entry]\nwho = \"file\"\n[dim_denotation]\nDATA_BATCH = 2\n"
        "[path.left]\ninputs = [\"x\"]\nthreads = 1\n");
  Options given;
  EXPECT_EQ(failure_of([&] { given.read_file(file("c.toml")); }).code, 0);
  EXPECT_EQ(given.get("entry.who"), "file");
  EXPECT_EQ(given.get("memory_limit"), "2GiB");
  EXPECT_EQ(given.get("path.left.inputs"), "x");
  EXPECT_HOLDS(failure_of([&] { given.set("path.left.thread", "1"); }).text, "'threads'");
  EXPECT_HOLDS(failure_of([&] { given.set("memory_limit", "2 GB"); }).text, "KiB, MiB or GiB");
  EXPECT_HOLDS(failure_of([&] { given.set("memory_limit", "99999999999GiB"); }).text,
               "memory_limit");
}

}  // namespace
}  // namespace backplane::session_test

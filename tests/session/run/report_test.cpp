// L8, M6: what a session says of its time and its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using Json = nlohmann::json;
using ::testing::IsSupersetOf;

TEST(Trace, L8HoldsSessionStepsRunsAndNodes) {
  Probe probe;
  const ModelMaker model =
      ModelMaker().input("x", {"n"}).output("y").probe("x", "a", probe).probe("a", "y", probe);
  TestSession session(model, cpu_options().set("profile", "true"));
  const Value x = Value::tensor<float>({2});
  session->run({{"x", x}}, {}, RunOptions().set("tag", "the first").set("entry.request", "17"));
  session->run({{"x", x}});
  const Json trace = Json::parse(session->trace());
  std::map<std::string, std::vector<std::string>> names;
  std::set<int> lanes;
  std::set<int> named;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") named.insert(event["tid"].get<int>());
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    lanes.insert(event["tid"].get<int>());
    names[event["cat"]].push_back(event["name"]);
    if (event["name"] == "the first") {
      EXPECT_EQ(event["args"]["request"], "17");
    }
  }
  EXPECT_EQ(lanes, named) << "every lane has a name";
  EXPECT_THAT(names["session"],
              IsSupersetOf({"opening providers", "registering operators", "reading the model",
                            "optimizing the graph", "placing nodes and creating kernels", "plan"}));
  EXPECT_EQ(names["run"], (std::vector<std::string>{"the first", "run"}));
  EXPECT_EQ(names["node"], (std::vector<std::string>{"a", "y", "a", "y"}));
  EXPECT_EQ(Json::parse(session->trace())["traceEvents"], Json::array()) << "it was told once";
}

TEST(MemoryReport, L8SaysWhereEveryValueLiesAndWhenItsMemoryIsInUse) {
  Probe probe;
  const ModelMaker model = ModelMaker()
                               .input("x", {64})
                               .output("y")
                               .probe("x", "a", probe)
                               .probe("a", "b", probe)
                               .probe("b", "c", probe)
                               .probe("c", "y", probe);
  TestSession session(model);
  const Json memory = Json::parse(session->memory());
  ASSERT_EQ(memory["plans"].size(), 1u) << "planned when it was loaded";
  const Json& plan = memory["plans"][0];
  EXPECT_EQ(plan["inputs"], Json::array({"x"}));
  EXPECT_EQ(plan["steps"], Json::array({"a", "b", "c", "y"}));
  std::map<std::string, Json> values;
  for (const Json& value : plan["values"]) values[value["value"]] = value;
  EXPECT_EQ(values.at("x")["place"], "feed");
  EXPECT_EQ(values.at("y")["place"], "fetch");
  const int bytes = 64 * 4;
  for (const auto& [name, first] : {std::pair("a", 0), std::pair("b", 1), std::pair("c", 2)}) {
    EXPECT_EQ(values.at(name)["place"], "arena");
    EXPECT_EQ(values.at(name)["bytes"], bytes);
    EXPECT_EQ(values.at(name)["first_step"], first) << name;
    EXPECT_EQ(values.at(name)["last_step"], first + 1) << name;
  }
  EXPECT_EQ(values.at("a")["offset"], values.at("c")["offset"]) << "a is dead when c is made";
  EXPECT_NE(values.at("a")["offset"], values.at("b")["offset"]);
  EXPECT_EQ(plan["arenas"]["host"]["bytes"], 2 * bytes);
  EXPECT_EQ(plan["arenas"]["host"]["peak_bytes"], 2 * bytes);
  EXPECT_EQ(memory["arenas"]["bytes"], 0) << "no run has taken its memory yet";
  const Value x = Value::tensor<float>({64});
  session->run({{"x", x}});
  EXPECT_EQ(Json::parse(session->memory())["arenas"]["bytes"], 2 * bytes);
}

TEST(MemoryReport, M6WeightsAreApartFromTheArena) {
  const ModelMaker model = ModelMaker()
                               .input("x", {1, 64})
                               .output("y")
                               .weight("w", {64, 32}, std::vector<float>(64 * 32, 0.5f))
                               .node("MatMul", {"x", "w"}, {"y"});
  TestSession session(model);
  const Value x = Value::tensor<float>({1, 64});
  session->run({{"x", x}});
  const Json memory = Json::parse(session->memory());
  std::uint64_t weights = 0;
  for (const auto& [where, bytes] : memory["weights"]["bytes"].items())
    weights += bytes.get<std::uint64_t>();
  EXPECT_GE(weights, 64u * 32 * 4);
  EXPECT_LT(memory["arenas"]["bytes"].get<std::uint64_t>(), 64u * 32 * 4);
  ASSERT_FALSE(memory["weights"]["list"].empty());
  EXPECT_TRUE(memory["weights"]["list"][0].contains("kind"));
}

}  // namespace
}  // namespace backplane::session_test

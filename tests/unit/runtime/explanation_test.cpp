// What a session says of itself as JSON: forms that other programs read.
#include <set>

#include <nlohmann/json.hpp>

#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

using Json = nlohmann::json;

std::set<std::string> keys_of(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  return keys;
}

class Explanation : public SessionTest {
 protected:
  /// y = relu(x) + w on [n,3]; the shape of x goes to a Reshape that changes nothing.
  Session session(const Options& options = on_cpu()) {
    ModelMaker maker;
    maker.input("x", {"n", "3"}).input("w", {"3"}).weight("w", {3}, {1, 2, 3});
    maker.node("Relu", {"x"}, "r").node("Shape", {"x"}, "shape");
    maker.node("Reshape", {"r", "shape"}, "same").node("Add", {"same", "w"}, "y");
    return open(maker.output("y", {"n", "3"}), options);
  }
  static Json node_of(const Json& explanation, const std::string& name) {
    for (const Json& row : explanation["nodes"]) {
      if (row["name"] == name) return row;
    }
    ADD_FAILURE() << "no node " << name;
    return Json();
  }
  static void run(const Session& session, std::int64_t rows = 2) {
    session.run({{"x", Value::tensor<float>({rows, 3})}});
  }
};

TEST_F(Explanation, HasTheKeysOfTheContract) {
  const Json json = Json::parse(session().explain());
  for (const char* key : {"ir_version", "opsets", "inputs", "outputs", "overridable_initializers",
                          "nodes", "subgraphs", "copies", "order", "arena_bytes"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["ir_version"], 8);
  EXPECT_EQ(json["opsets"][""], 17);
  const Json x = {{"name", "x"}, {"type", "tensor(float)"}, {"shape", {"n", 3}}};
  const Json w = {{"name", "w"}, {"type", "tensor(float)"}, {"shape", {3}}};
  EXPECT_EQ(json["inputs"], Json::array({x}));
  EXPECT_EQ(json["overridable_initializers"], Json::array({w}));
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["shape"], Json::array({"n", 3}));
}

TEST_F(Explanation, HasARowForEveryNodeOfTheModel) {
  const Json json = Json::parse(session().explain());
  ASSERT_EQ(json["nodes"].size(), 4u);
  for (const Json& row : json["nodes"]) {
    for (const char* key : {"name", "op", "domain", "provider", "kernel", "fused_into", "reasons"})
      EXPECT_TRUE(row.contains(key)) << key;
    EXPECT_TRUE(row["reasons"].is_array());
  }
  EXPECT_EQ(node_of(json, "make_y")["provider"], "cpu");
  EXPECT_EQ(node_of(json, "make_y")["op"], "Add");
  EXPECT_EQ(node_of(json, "make_shape")["provider"], "host") << "shape arithmetic";
}

TEST_F(Explanation, TellsWhatTheLastRunPlanned) {
  const Session made = session();
  EXPECT_FALSE(Json::parse(made.explain())["planned"]);
  run(made);
  const Json json = Json::parse(made.explain());
  EXPECT_TRUE(json["planned"]);
  EXPECT_TRUE(json["arena_bytes"].is_object());
  EXPECT_EQ(json["copies"], Json::array()) << "all on one host";
  std::set<std::string> listed;
  for (const Json& group : json["subgraphs"]) {
    EXPECT_EQ(keys_of(group), (std::set<std::string>{"provider", "nodes"}));
    EXPECT_EQ(group["provider"], "cpu");
    for (const Json& name : group["nodes"]) listed.insert(name.get<std::string>());
  }
  EXPECT_TRUE(listed.contains("make_r") && listed.contains("make_y")) << json["subgraphs"];
  EXPECT_FALSE(listed.contains("make_shape"));
}

/// The null provider has kernels for Relu and Add alone.
TEST_F(Explanation, SaysWhyAProviderRefused) {
  const Environment with_null(
      Options().set("environment.plugin_path", BACKPLANE_TEST_FIXTURES_DIR));
  ModelMaker maker;
  maker.input("x", {"3"}).node("Relu", {"x"}, "r").node("Neg", {"r"}, "y").output("y");
  const std::string bytes = maker.bytes();
  const Session made(with_null, bytes.data(), bytes.size(), Options().set("providers", "null,cpu"));
  const Json json = Json::parse(made.explain());
  EXPECT_EQ(node_of(json, "make_r")["provider"], "null");
  const Json row = node_of(json, "make_y");
  EXPECT_EQ(row["provider"], "cpu");
  ASSERT_EQ(row["reasons"].size(), 1u) << row;
  EXPECT_EQ(keys_of(row["reasons"][0]), (std::set<std::string>{"provider", "code", "text"}));
  EXPECT_EQ(row["reasons"][0]["provider"], "null");
  EXPECT_NE(row["reasons"][0]["code"], "");
  EXPECT_NE(row["reasons"][0]["text"], "");
}

/// A node that is gone says who removed it; one that was folded was evaluated on the host.
TEST_F(Explanation, AccountsForNodesThatPassesRemoved) {
  ModelMaker maker;
  maker.input("x", {"3"}).weight("w", {3}, {1, 2, 3}).node("Neg", {"w"}, "n");
  maker.node("Abs", {"n"}, "a").node("Identity", {"x"}, "same").node("Relu", {"x"}, "unused");
  maker.node("Add", {"same", "a"}, "y").output("y");
  const auto fates = [&](const std::string& level) {
    std::vector<std::pair<Json, Json>> found;
    const Session made = open(maker, on_cpu().set("optimization", level));
    const Json json = Json::parse(made.explain());
    for (const char* name : {"make_n", "make_a", "make_same", "make_unused"})
      found.emplace_back(node_of(json, name)["provider"], node_of(json, name)["kernel"]);
    if (level == "all") {
      EXPECT_EQ(Json::parse(made.statistics())["nodes_on"]["cpu"], 1);
    }
    return found;
  };
  using Rows = std::vector<std::pair<Json, Json>>;
  EXPECT_EQ(fates("all"), (Rows{{"host", "folded by fold_constants"},
                                {"host", "folded by fold_constants"},
                                {nullptr, "removed by eliminate_identities"},
                                {nullptr, "removed by eliminate_dead_nodes"}}));
  const Rows plain = fates("none");
  EXPECT_EQ(plain[3], (std::pair<Json, Json>(nullptr, "not needed for the outputs")));
}

TEST_F(Explanation, OfStrangeNamesIsStillJson) {
  ModelMaker maker;
  maker.input("x \"\\ \n\xc3\xa4", {"2"}).node("Relu", {"x \"\\ \n\xc3\xa4"}, "y");
  const Session made = open(maker.output("y"));
  const Json json = Json::parse(made.explain());
  EXPECT_EQ(json["inputs"][0]["name"], "x \"\\ \n\xc3\xa4");
}

class Statistics : public Explanation {};

TEST_F(Statistics, HaveTheKeysOfTheHeader) {
  const Session made = session();
  run(made);
  const Json json = Json::parse(made.statistics());
  for (const char* key :
       {"load_ms", "plan_ms", "plans", "arena_bytes", "device_allocations", "nodes_on", "copies"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_GT(json["load_ms"], 0);
  EXPECT_GT(json["plan_ms"], 0);
  EXPECT_EQ(json["copies"], 0);
  EXPECT_EQ(keys_of(json["nodes_on"]), std::set<std::string>{"cpu"}) << "the host does not count";
  EXPECT_GE(json["nodes_on"]["cpu"], 2);
}

TEST_F(Statistics, CountPlansByShape) {
  const Session made = session();
  EXPECT_EQ(Json::parse(made.statistics())["plans"], 0);
  for (const std::int64_t rows : {2, 3, 2, 3, 0}) run(made, rows);
  EXPECT_EQ(Json::parse(made.statistics())["plans"], 3);
}

/// Runs of a planned shape allocate no buffers.
TEST_F(Statistics, CountBuffersOfDevices) {
  const Session made = session();
  Binding binding(made);
  const Value x = Value::tensor<float>({2, 3});
  binding.bind_input("x", x);
  binding.run();
  const Json before = Json::parse(made.statistics())["device_allocations"];
  for (int i = 0; i < 5; ++i) binding.run();
  EXPECT_EQ(Json::parse(made.statistics())["device_allocations"], before);
}

class Trace : public Explanation {};

TEST_F(Trace, HasASpanForEveryNodeThatRuns) {
  const Session made = session(on_cpu().set("profile", "true").set("optimization", "none"));
  run(made);
  const Json json = Json::parse(made.trace());
  std::set<std::string> spans;
  for (const Json& event : json["traceEvents"]) {
    for (const char* key : {"name", "ph", "pid", "tid"}) EXPECT_TRUE(event.contains(key)) << event;
    if (event["ph"] != "X") continue;
    spans.insert(event["name"].get<std::string>());
    EXPECT_GE(event["ts"], 0);
    EXPECT_GE(event["dur"], 0);
  }
  EXPECT_TRUE(spans.contains("make_r") && spans.contains("make_y")) << json;
  EXPECT_EQ(Json::parse(made.trace())["traceEvents"], Json::array()) << "given out once";
}

TEST_F(Trace, MustBeAskedFor) {
  expect_words(failure([&] { session().trace(); }), {"'profile'"});
}

class ProviderRows : public SessionTest {};

TEST_F(ProviderRows, HaveTheKeysOfTheContract) {
  const Json rows = Json::parse(environment().providers());
  ASSERT_TRUE(rows.is_array());
  bool seen = false;
  for (const Json& row : rows) {
    for (const char* key :
         {"file", "status", "reason", "abi", "provider", "version", "devices", "kernels"})
      EXPECT_TRUE(row.contains(key)) << key << " in " << row;
    if (row["provider"] != "cpu") continue;
    seen = true;
    EXPECT_EQ(row["status"], "loaded");
    EXPECT_GT(row["kernels"], 50);
    ASSERT_EQ(row["devices"].size(), 1u);
    EXPECT_EQ(keys_of(row["devices"][0]),
              (std::set<std::string>{"id", "name", "memory_bytes", "score"}));
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace backplane::runtime_test

// What a session says of its plan to programs: the same as its JSON.
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class Explanations : public SessionTest {};

/// On a fake device, but for what it has no kernel for.
std::string two_providers() {
  ModelMaker maker;
  maker.input("x", {2, 4}).weight("w", {4, 3}, numbers(12, 1));
  maker.node("first", "Tanh", {"x"}, "a")
      .node("second", "MatMul", {"a", "w"}, "b")
      .node("third", "Sign", {"b"}, "c")
      .node("idle", "Neg", {"c"}, "nobody reads this");
  return maker.output("c").bytes();
}

void expect_same(const Explanation& told, const Json& json) {
  ASSERT_EQ(told.nodes.size(), json["nodes"].size());
  const auto word = [](const Json& value) {
    return value.is_null() ? "" : value.get<std::string>();
  };
  for (std::size_t i = 0; i < told.nodes.size(); ++i) {
    const ExplainedNode& node = told.nodes[i];
    const Json& row = json["nodes"][i];
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(node.name, row["name"]);
    EXPECT_EQ(node.op_type, row["op"]);
    EXPECT_EQ(node.domain, row["domain"]);
    EXPECT_EQ(node.provider, word(row["provider"]));
    EXPECT_EQ(node.kernel, row["kernel"]);
    EXPECT_EQ(node.fused_into, word(row["fused_into"]));
    ASSERT_EQ(node.reasons.size(), row["reasons"].size());
    for (std::size_t k = 0; k < node.reasons.size(); ++k) {
      EXPECT_EQ(node.reasons[k].provider, row["reasons"][k]["provider"]);
      EXPECT_EQ(node.reasons[k].code, row["reasons"][k]["code"]);
      EXPECT_EQ(node.reasons[k].text, row["reasons"][k]["text"]);
    }
  }
  ASSERT_EQ(told.copies.size(), json["copies"].size());
  for (std::size_t i = 0; i < told.copies.size(); ++i) {
    const ExplainedCopy& copy = told.copies[i];
    const Json& row = json["copies"][i];
    EXPECT_EQ(copy.value, row["value"]);
    EXPECT_EQ(copy.from, row["from"]);
    EXPECT_EQ(copy.to, row["to"]);
    EXPECT_EQ(copy.cause, row["cause"]);
    EXPECT_EQ(copy.route, row["route"]);
    EXPECT_EQ(copy.bytes, row["bytes"].get<std::uint64_t>());
  }
  EXPECT_EQ(Json(told.arena_bytes), json["arena_bytes"]);
}

TEST_F(Explanations, L2TellsProgramsWhatTheJsonTells) {
  TestSession session(two_providers(), kFakeAllowed);
  session.run(numbers(8, 3), {2, 4});
  const Explanation told = session->explanation();
  expect_same(told, session.explain());
  // The rows that the comparison stands on are there.
  ASSERT_EQ(told.nodes.size(), 4u);
  EXPECT_EQ(told.nodes[0].provider, "fakegpu:0");
  EXPECT_EQ(told.nodes[2].op_type, "Sign");
  EXPECT_EQ(told.nodes[2].provider, "cpu");
  ASSERT_FALSE(told.nodes[2].reasons.empty());
  EXPECT_EQ(told.nodes[2].reasons[0].provider, "fakegpu:0");
  EXPECT_EQ(told.nodes[2].reasons[0].code, "no_such_op");
  EXPECT_EQ(told.nodes[3].provider, "") << "nobody needs it";
  EXPECT_EQ(told.nodes_on(), (std::map<std::string, std::size_t>{{"cpu", 1}, {"fakegpu:0", 2}}));
  EXPECT_GE(told.copies.size(), 2u);
  EXPECT_FALSE(told.arena_bytes.empty());
}

TEST_F(Explanations, L2BeforeAPlanThereIsThePlacement) {
  ModelMaker maker;
  maker.input("x", {"n", 4}).node("first", "Tanh", {"x"}, "y");
  TestSession session(maker.output("y").bytes(), kFakeAllowed);
  const Explanation told = session->explanation();
  expect_same(told, session.explain());
  ASSERT_EQ(told.nodes.size(), 1u);
  EXPECT_EQ(told.nodes[0].provider, "fakegpu:0");
  EXPECT_TRUE(told.copies.empty());
}

}  // namespace
}  // namespace backplane::session_test

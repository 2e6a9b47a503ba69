// M4: a node that its provider refuses late goes to the next one.
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class Backup : public SessionTest {};

std::string three_nodes() {
  ModelMaker maker;
  maker.input("x", {2, 4}).weight("w", {4, 3}, numbers(12, 1));
  maker.node("first", "Tanh", {"x"}, "a")
      .node("second", "MatMul", {"a", "w"}, "b")
      .node("third", "Sigmoid", {"b"}, "y");
  return maker.output("y").bytes();
}

Settings failing(int call, const std::string& code, const std::string& fallback = "allow") {
  return {{"providers", "fakegpu:0"},
          {"fallback", fallback},
          {"disabled_passes", "provider_rewrites"},
          {"provider.fakegpu.fail_at", std::to_string(call)},
          {"provider.fakegpu.fail_code", code}};
}

/// Calls, counted from `open` on, of a session that loads and runs without faults.
std::uint64_t calls_of_loading() {
  fakegpu().reset();
  TestSession session(three_nodes(), failing(0, "unsupported"));
  return counters().fallible_calls;
}

/// Nodes on the backup, and the codes of the reasons of those.
std::map<std::string, std::string> moved(const TestSession& session) {
  std::map<std::string, std::string> nodes;
  const Json explanation = session.explain();
  for (const Json& node : explanation["nodes"]) {
    if (node["provider"] != "cpu") continue;
    std::string& code = nodes[node["name"]];
    for (const Json& reason : node["reasons"]) {
      if (code != "refused") code = reason["code"];
    }
  }
  return nodes;
}

TEST_F(Backup, M4ARefusalByCreateOrPrepareMovesTheNode) {
  const std::vector<float> x = numbers(8, 3);
  const std::vector<float> want = TestSession(three_nodes(), {{"providers", "cpu"}}).run(x, {2, 4});
  const std::uint64_t calls = calls_of_loading();
  std::map<std::string, int> refused;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    fakegpu().reset();
    try {
      TestSession session(three_nodes(), failing(static_cast<int>(call), "unsupported"));
      for (const auto& [node, code] : moved(session)) {
        EXPECT_EQ(code, "refused") << node;
        ++refused[node];
      }
      const std::vector<float> got = session.run(x, {2, 4});
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
    } catch (const Error& error) {
      // No kernel's refusal: the device itself cannot do what every session needs of it.
      EXPECT_HOLDS(std::string(error.what()), "fakegpu");
    }
  }
  for (const char* node : {"first", "second", "third"})
    EXPECT_GE(refused[node], 2) << node << ": create and prepare";
}

TEST_F(Backup, M4OutOfMemoryIsAnErrorAndMovesNothing) {
  const std::uint64_t calls = calls_of_loading();
  std::uint64_t errors = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    fakegpu().reset();
    const Failure failure = failure_of([&] {
      TestSession session(three_nodes(), failing(static_cast<int>(call), "out_of_memory"));
      EXPECT_TRUE(moved(session).empty()) << "call " << call;
    });
    if (failure.code == 0) continue;
    EXPECT_EQ(failure.code, BACKPLANE_OUT_OF_MEMORY) << failure.text;
    ++errors;
  }
  EXPECT_GE(errors, 6u);
}

TEST_F(Backup, M4WithoutABackupTheErrorHasAllReasons) {
  const std::uint64_t calls = calls_of_loading();
  int named = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    fakegpu().reset();
    const Failure failure = failure_of([&] {
      TestSession session(three_nodes(), failing(static_cast<int>(call), "unsupported", "forbid"));
    });
    if (failure.text.find("is taken by no provider") == std::string::npos) continue;
    EXPECT_EQ(failure.code, BACKPLANE_UNSUPPORTED);
    EXPECT_HOLDS(failure.text, "fakegpu:0 (refused)");
    EXPECT_HOLDS(failure.text, "node '");
    ++named;
  }
  EXPECT_GE(named, 6);
}

TEST_F(Backup, M4TheMovedNodeGetsACopyBeforeAndAfterAndNoMore) {
  const std::uint64_t calls = calls_of_loading();
  bool found = false;
  for (std::uint64_t call = 1; call <= calls && !found; ++call) {
    fakegpu().reset();
    try {
      TestSession session(three_nodes(), failing(static_cast<int>(call), "unsupported"));
      if (moved(session) != std::map<std::string, std::string>{{"second", "refused"}}) continue;
      found = true;
      fakegpu().reset();
      session.run(numbers(8, 3), {2, 4});
      EXPECT_EQ(counters().copies_h2d, 2u);  // x, b
      EXPECT_EQ(counters().copies_d2h, 2u);  // a, y
    } catch (const Error&) {                 // not this call
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace backplane::session_test

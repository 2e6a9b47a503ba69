// Claims through the whole core: what a device compiles is placed, run and explained like any node.
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

std::string remarks(MixedSession& session) {
  std::string all;
  const Json explanation = Json::parse(session.core().explain());
  for (const Json& remark : explanation["remarks"]) all += remark.get<std::string>() + "\n";
  return all;
}

Json row_of(MixedSession& session, const std::string& node) {
  const Json explanation = Json::parse(session.core().explain());
  for (const Json& row : explanation["nodes"]) {
    if (row["name"] == node) return row;
  }
  return Json();
}

class Claims : public FaultTest {
 protected:
  void expect_right(MixedSession& session, const std::string& model) {
    const Tensors want = run_on_cpu(model, feeds_);
    EXPECT_EQ(difference(session.run(feeds_), want), "") << "first run";
    EXPECT_EQ(difference(session.run(feeds_), want), "") << "second run";
    EXPECT_EQ(findings(), "");
  }
  void expect_remark(MixedSession& session, const std::string& words) {
    EXPECT_NE(remarks(session).find(words), std::string::npos)
        << "'" << words << "' is not in: " << remarks(session);
  }
  const Tensors feeds_{{"x", random_tensor({4, 5}, 8)}};
};

/// Three in a row.
std::string chain() {
  ModelMaker maker;
  maker.input("x", {4, 5}).node("one", "Tanh", {"x"}, "a").node("two", "Exp", {"a"}, "b");
  return maker.node("three", "Neg", {"b"}, "y").output("y").bytes();
}

/// `inner` and `last` on one device, and between them both a direct way and one over another provider.
std::string detour() {
  ModelMaker maker;
  maker.input("x", {4, 5}).node("first", "Tanh", {"x"}, "a").node("inner", "Exp", {"a"}, "b");
  maker.node("outside", "Sigmoid", {"b"}, "c").node("last", "Add", {"b", "c"}, "d");
  return maker.node("after", "Neg", {"d"}, "y").output("y").bytes();
}
const Placement kDetour{{"outside", "fakegpu:1"}};

TEST_F(Claims, AConvexOneIsTakenAndRunsAsOneKernel) {
  MixedSession session(chain(), {}, {{"compile", "all"}});
  EXPECT_EQ(counters(0).claims, 1u);
  EXPECT_EQ(counters(0).compiles, 1u);
  expect_right(session, chain());
  EXPECT_EQ(counters(0).computes, 2u) << "one kernel a run";
  EXPECT_EQ(remarks(session), "");
  const Json one = row_of(session, "one"), three = row_of(session, "three");
  for (const Json& row : {one, row_of(session, "two"), three}) {
    EXPECT_EQ(row["provider"], "fakegpu:0") << row;
    EXPECT_TRUE(row["fused_into"].is_string()) << row;
    EXPECT_EQ(row["fused_into"], one["fused_into"]) << row;
    EXPECT_NE(row["kernel"].get<std::string>().find("fakegpu:compiled"), std::string::npos) << row;
    EXPECT_NE(row["kernel"].get<std::string>().find("3 nodes"), std::string::npos) << row;
  }
}

TEST_F(Claims, OneThatIsNotConvexIsSplitWithARemark) {
  MixedSession session(detour(), kDetour, {{"compile", "all"}});
  expect_remark(session, "of fakegpu:0 was split into 2 parts: it was not convex");
  EXPECT_EQ(counters(0).claims, 1u);
  EXPECT_EQ(counters(0).compiles, 2u);
  expect_right(session, detour());
  EXPECT_EQ(counters(0).computes, 2 * 2u) << "one kernel for each part and run";
  EXPECT_EQ(row_of(session, "outside")["provider"], "fakegpu:1");
  EXPECT_EQ(row_of(session, "first")["fused_into"], row_of(session, "inner")["fused_into"]);
  EXPECT_EQ(row_of(session, "last")["fused_into"], row_of(session, "after")["fused_into"]);
  EXPECT_NE(row_of(session, "first")["fused_into"], row_of(session, "last")["fused_into"]);
}

TEST_F(Claims, TwoDevicesCompileTheirOwn) {
  const Placement placement{{"one", "fakegpu:0"}, {"two", "fakegpu:1"}, {"three", "fakegpu:1"}};
  MixedSession session(chain(), placement, {{"compile", "chains"}});
  EXPECT_EQ(counters(0).compiles, 0u) << "one node is no chain";
  EXPECT_EQ(counters(1).compiles, 1u);
  expect_right(session, chain());
  EXPECT_EQ(counters(1).computes, 2u);
}

TEST_F(Claims, OneThatDoesNotCompileIsLeftToKernels) {
  MixedSession session(chain(), {}, {{"compile", "all"}, {"compile_fault", "error"}});
  expect_remark(session, "of fakegpu:0 was not taken: fakegpu was told to fail to compile");
  expect_right(session, chain());
  EXPECT_EQ(counters(0).computes, 3 * 2u);
  EXPECT_TRUE(row_of(session, "two")["fused_into"].is_null());
}

/// A compiled kernel may see only at last that it cannot: the nodes' own kernels then do the work.
TEST_F(Claims, OneWhoseKernelRefusesItsShapesIsLeftToKernels) {
  MixedSession session(chain(), {}, {{"compile", "all"}, {"compile_fault", "refuse_shapes"}});
  expect_remark(session, "the claims of fakegpu:0 are not taken");
  expect_remark(session, "fakegpu was told to refuse compiled nodes");
  expect_right(session, chain());
  EXPECT_EQ(counters(0).computes, 3 * 2u);
}

/// Any call of claiming and compiling fails: the session works without, or says what was wrong.
TEST_F(Claims, AFailingCallCostsTheClaimOnly) {
  bool dropped = false, not_taken = false;
  for (std::uint64_t position = 1; position < 60; ++position) {
    SCOPED_TRACE(position);
    fakegpu().reset();
    fakegpu().fail_call(position, BP_FAILED, 0);
    try {
      MixedSession session(chain(), {}, {{"compile", "all"}}, {"fakegpu:0", "cpu"});
      fakegpu().fail_call(0, BP_OK, 0);
      const std::string said = remarks(session);
      dropped = dropped || said.find("the claims of fakegpu:0 were dropped") != std::string::npos;
      not_taken = not_taken || said.find("of fakegpu:0 was not taken") != std::string::npos;
      expect_right(session, chain());
    } catch (const Error& error) {
      fakegpu().fail_call(0, BP_OK, 0);
      EXPECT_NE(error.message().find("fakegpu"), std::string::npos) << error.message();
    }
  }
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(not_taken);
}

/// A fetch of what a compiled node would swallow: another cut, claimed anew.
TEST_F(Claims, InnerValuesCanStillBeFetched) {
  MixedSession session(chain(), {}, {{"compile", "all"}});
  RuntimeValue x, b, y;
  x.set_owned_tensor(DataType::Float, {4, 5});
  const std::vector<float>& fed = feeds_.at("x").elements;
  std::copy(fed.begin(), fed.end(), static_cast<float*>(x.description.host_ptr));
  session.core().run({{"x", &x}}, {{"b", &b}, {"y", &y}});
  const auto* inner = static_cast<const float*>(b.description.host_ptr);
  const auto* outer = static_cast<const float*>(y.description.host_ptr);
  for (std::size_t i = 0; i < fed.size(); ++i) {
    EXPECT_NEAR(inner[i], std::exp(std::tanh(fed[i])), 1e-5);
    EXPECT_EQ(outer[i], -inner[i]);
  }
  expect_right(session, chain());
  EXPECT_EQ(findings(), "");
}

/// Everything element-wise of a device in one claim, whatever lies between.
TEST_F(Claims, OfRandomGraphsAreSplitAsNeeded) {
  int split = 0;
  for (std::uint64_t seed = 301; seed <= 340 && !HasFailure(); ++seed) {
    const RandomGraph graph(seed);
    SCOPED_TRACE(text("seed ", seed, "\n", graph.describe()));
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    MixedSession session(graph.model(), graph.placement(),
                         {{"compile", "all"}, {"delay_us", "5"}, {"seed", std::to_string(seed)}});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(difference(session.run(graph.feeds()), want), "");
    EXPECT_EQ(findings(), "");
    if (remarks(session).find("was split into") != std::string::npos) ++split;
  }
  EXPECT_GT(split, 3);
}

}  // namespace
}  // namespace backplane::core::faults

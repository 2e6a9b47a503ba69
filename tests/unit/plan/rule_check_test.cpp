// Rules that say nothing, or one thing and its contrary.
#include "core/plan/rule_check.hpp"

#include "core/plan/rule_pattern.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

/// x -> Relu a -> Add b -> Relu c.
class RuleCheck : public PlanTest {
 protected:
  RuleCheck() {
    input("x");
    add("Relu", {"x"}, "va", "block.a");
    add("Add", {"va", "x"}, "vb", "block.b");
    add("Relu", {"vb"}, "y", "last");
    output("y");
  }
  std::string error_of(const std::vector<RuleText>& rules) {
    try {
      check_rules(rules, graph());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::InvalidArgument);
      return error.message();
    }
    return "";
  }
};

TEST_F(RuleCheck, RulesThatFitSayNothing) {
  EXPECT_TRUE(check_rules({}, graph()).empty());
  EXPECT_TRUE(check_rules({{"last", "one"}, {"op:Relu", "two"}, {"between:x..vb", "one"}}, graph())
                  .empty());
}

TEST_F(RuleCheck, ARuleThatFitsNoNodeIsNamed) {
  const std::vector<std::string> warnings =
      check_rules({{"block.*", "one"}, {"op:Conv", "two"}}, graph());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "the placement rule 'op:Conv=two' fits no node of the model");
}

TEST_F(RuleCheck, ARuleBehindOthersThatTakeItsNodesIsNamed) {
  const std::vector<std::string> warnings =
      check_rules({{"*", "one"}, {"op:Add", "two"}, {"last", "one"}}, graph());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "the placement rule 'op:Add=two' is never used: the placement rule '*=one', which "
            "comes before it, takes its one node");
}

TEST_F(RuleCheck, OnePatternForTwoProvidersIsAnError) {
  EXPECT_EQ(error_of({{"last", "one"}, {"last", "two"}}),
            "the placement rules send 'last' to 'one' and to 'two'; leave one out");
  EXPECT_EQ(error_of({{"last", "one"}, {"last", "one"}}), "");
}

TEST_F(RuleCheck, ValuesThatTheModelLacksAreAnError) {
  EXPECT_NE(error_of({{"between:x..nothing", "one"}}).find("no value 'nothing'"),
            std::string::npos);
}

TEST_F(RuleCheck, WhereItMayBeMissingABetweenFitsNothing) {
  const RulePattern pattern("between:x..nothing", graph(), RulePattern::Missing::FitsNothing);
  EXPECT_FALSE(pattern.fits(graph().node(NodeId(0))));
}

}  // namespace
}  // namespace backplane::core

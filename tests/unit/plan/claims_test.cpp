// Claims: convex ones are compiled whole, others are split or refused, and the graph stays one without cycles.
#include <set>

#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

class ClaimsTest : public PlanTest {
 protected:
  /// Places, claims, compiles; the result by node.
  PlacedGraph compiled(std::vector<std::vector<std::string>> claims) {
    stub_.kernels = {kernel("Relu"), kernel("Add")};
    stub_.set_claims(std::move(claims));
    other_.kernels = {kernel("Neg")};
    use(stub_);
    use(other_);
    PlacedGraph result = placed();
    compile_claims(result, 0, devices_, &threads_, 0);
    verify_placed(result, "after claims");
    return result;
  }
  static std::string remarks(const PlacedGraph& placed) {
    std::string all;
    for (const std::string& remark : placed.remarks) all += remark + "\n";
    return all;
  }
  StubProvider stub_{"stub"}, other_{"other"};
};

TEST_F(ClaimsTest, AConvexOneBecomesOneNode) {
  input("x");
  add("Relu", {"x"}, "a", "a");
  add("Add", {"a", "x"}, "b", "b");
  add("Relu", {"b"}, "y", "c");
  output("y");
  const PlacedGraph result = compiled({{"a", "b"}});
  EXPECT_EQ(stub_.compiled, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"claim0", "Relu"}));
  EXPECT_EQ(remarks(result), "");
  const NodeId id = result.compiled.begin()->first;
  EXPECT_EQ(result.graph->node(id).origins, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(result.graph->value(result.graph->find_value("b")).producer, id);
}

TEST_F(ClaimsTest, OneAroundAnotherProvidersNodeIsSplit) {
  input("x");
  add("Relu", {"x"}, "a", "a");
  add("Neg", {"a"}, "b", "outside", 13);
  add("Add", {"a", "b"}, "c", "c");
  add("Relu", {"c"}, "y", "d");
  output("y");
  const PlacedGraph result = compiled({{"a", "c", "d"}});
  EXPECT_EQ(stub_.compiled, (std::vector<std::string>{"a", "c d"}));
  EXPECT_NE(remarks(result).find("split into 2 parts: it was not convex"), std::string::npos)
      << remarks(result);
  EXPECT_EQ(result.compiled.size(), 2u);
}

TEST_F(ClaimsTest, ALongDetourIsSeenToo) {
  input("x");
  add("Relu", {"x"}, "a", "a");
  add("Neg", {"a"}, "b", "out1", 13);
  add("Neg", {"b"}, "c", "out2", 13);
  add("Relu", {"a"}, "d", "d");
  add("Add", {"d", "c"}, "y", "e");
  output("y");
  const PlacedGraph result = compiled({{"a", "d", "e"}});
  ASSERT_EQ(stub_.compiled.size(), 2u);
  EXPECT_EQ(stub_.compiled[1], "e");
}

TEST_F(ClaimsTest, AContractionThatWouldCloseACycleIsRefused) {
  // Two claims, each convex: a1 -> b1 and b2 -> a2.
  input("x");
  add("Relu", {"x"}, "va1", "a1");
  add("Relu", {"va1"}, "vb1", "b1");
  add("Relu", {"x"}, "vb2", "b2");
  add("Relu", {"vb2"}, "va2", "a2");
  output("vb1");
  output("va2");
  const PlacedGraph result = compiled({{"a1", "a2"}, {"b1", "b2"}});
  EXPECT_EQ(result.compiled.size() + result.remarks.size(), 2u) << remarks(result);
  ASSERT_EQ(result.remarks.size(), 1u) << "one of the two must stay as it is";
  EXPECT_NE(result.remarks[0].find("'claim1' of stub was not taken"), std::string::npos)
      << result.remarks[0];
  EXPECT_EQ(ops(*result.graph).size(), 3u);
}

TEST_F(ClaimsTest, NodesClaimedTwiceDropTheClaims) {
  input("x");
  add("Relu", {"x"}, "a", "a");
  add("Relu", {"a"}, "y", "b");
  output("y");
  const PlacedGraph result = compiled({{"a", "b"}, {"b"}});
  EXPECT_TRUE(result.compiled.empty());
  EXPECT_NE(remarks(result).find("claimed already"), std::string::npos) << remarks(result);
  EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"Relu", "Relu"}));
}

TEST_F(ClaimsTest, AKernelThatCannotComputeIsNotTaken) {
  input("x");
  add("Relu", {"x"}, "a", "a");
  add("Relu", {"a"}, "y", "b");
  output("y");
  static const std::int32_t kUnknownRole[] = {99};
  const struct {
    std::function<void(bp_kernel_def&)> damage;
    const char* words;
  } cases[] = {{[](bp_kernel_def& def) { def.compute = nullptr; },
                "kernel 'stub:compiled' lacks mandatory functions: compute"},
               {[](bp_kernel_def& def) { def.name = nullptr; }, "its name is missing"},
               {[](bp_kernel_def& def) {
                  def.input_roles = kUnknownRole;
                  def.input_role_count = 1;
                },
                "the role 99 of input 0 is not known"},
               {[](bp_kernel_def& def) { def.output_role_count = 2; },
                "its output roles are said to be 2, but are NULL"},
               {[](bp_kernel_def& def) { def.struct_flags = 1u << 31; },
                "the compiled kernel's definition uses a feature that this host's plugin ABI"}};
  for (const auto& one : cases) {
    devices_ = DeviceSet();
    stub_.damage_compiled = one.damage;
    const PlacedGraph result = compiled({{"a", "b"}});
    EXPECT_TRUE(result.compiled.empty());
    EXPECT_NE(remarks(result).find(one.words), std::string::npos) << remarks(result);
    EXPECT_EQ(ops(*result.graph), (std::vector<std::string>{"Relu", "Relu"}));
  }
  delete stub_.kernel_made;  // of a definition that the host does not understand it calls nothing
}

TEST_F(ClaimsTest, AClaimThatIsNotUnderstoodIsRefused) {
  input("x");
  add("Relu", {"x"}, "y", "a");
  output("y");
  const struct {
    std::function<void(bp_claim&)> damage;
    const char* words;
  } cases[] = {{[](bp_claim& claim) { claim.struct_flags = 1u << 16; },
                "a claim uses a feature that this host's plugin ABI"},
               {[](bp_claim& claim) { claim.struct_size = 8; }, "its struct_size is 8"},
               {[](bp_claim& claim) { claim.nodes = nullptr; },
                "the nodes of the claim 'claim0' are said to be 1, but are NULL"}};
  for (const auto& one : cases) {
    devices_ = DeviceSet();
    stub_.damage_claim = one.damage;
    const PlacedGraph result = compiled({{"a"}});
    EXPECT_TRUE(result.compiled.empty());
    EXPECT_NE(remarks(result).find(one.words), std::string::npos) << remarks(result);
  }
}

TEST_F(ClaimsTest, RandomClaimsLeaveNoCycle) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    model_ = Model();
    devices_ = DeviceSet();
    stub_.compiled.clear();
    unsigned state = seed;
    const auto pick = [&](unsigned count) {
      return (state = state * 1664525u + 1013904223u) / 65536u % count;
    };
    input("x");
    std::vector<std::string> values{"x"}, mine;
    for (unsigned i = 0; i < 14; ++i) {
      const std::string name = text("n", i), made = text("v", i);
      const std::string a = values[pick(static_cast<unsigned>(values.size()))],
                        b = values[pick(static_cast<unsigned>(values.size()))];
      if (pick(3) == 0) {
        add("Neg", {a}, made, name, 13);
      } else {
        add("Add", {a, b}, made, name);
        mine.push_back(name);
      }
      values.push_back(made);
      output(made);
    }
    std::vector<std::vector<std::string>> claims(2);
    for (const std::string& name : mine) {
      if (const unsigned to = pick(3); to < 2) claims[to].push_back(name);
    }
    const PlacedGraph result = compiled(claims);  // throws for a cycle
    for (const Value& made : result.graph->values()) {
      ASSERT_TRUE(made.is_input || made.producer != kNone) << "seed " << seed << ": " << made.name;
    }
  }
}

TEST_F(ClaimsTest, AControlFlowNodeIsTakenWithItsBodiesAndWhatTheyCapture) {
  auto branch = std::make_shared<Graph>();
  for (const char* outer : {"x", "a"}) branch->value(branch->value_named(outer)).is_outer = true;
  Node inner;
  inner.op_type = "Add";
  inner.since_version = 14;
  inner.inputs = {branch->value_named("x"), branch->value_named("a")};
  inner.outputs = {branch->value_named("r")};
  branch->add_node(std::move(inner));
  branch->add_output(branch->value_named("r"));

  input("x");
  graph().add_input(graph().value_named("c"));
  graph().value(graph().find_value("c")).type =
      Type::tensor(DataType::Bool, std::vector<std::int64_t>{});
  add("Neg", {"x"}, "a", "before", 13);
  const NodeId choice = add("If", {"c"}, "y", "choice", 16);
  for (const char* attribute : {"then_branch", "else_branch"}) {
    Attribute& made = graph().node(choice).attributes[attribute];
    made.type = Attribute::Type::Graph;
    made.graphs = {branch};
  }
  graph().update_captures();
  add("Relu", {"y"}, "z", "after");
  output("z");

  stub_.kernels = {kernel("If"), kernel("Relu")};
  stub_.set_claims({{"choice", "after"}});
  other_.kernels = {kernel("Neg")};
  use(stub_);
  use(other_);
  PlacedGraph result = placed();
  compile_claims(result, 0, devices_, &threads_, 0);
  EXPECT_EQ(stub_.compiled, (std::vector<std::string>{"choice after"}));
  const Node& node = result.graph->node(result.compiled.begin()->first);
  std::set<std::string> read;
  for (const ValueId id : node.inputs) read.insert(result.graph->value(id).name);
  EXPECT_EQ(read, (std::set<std::string>{"a", "c", "x"}));
}

}  // namespace
}  // namespace backplane::core

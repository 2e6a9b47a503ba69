// Rewrites through the whole core: good ones run, each broken one is dropped with a remark, and results stay right.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

/// Add and Relu, and what reads them: on the cpu, or on the same device.
std::string sum_of(bool read_on_device) {
  ModelMaker maker;
  maker.input("x", {3, 4}).weight("w", random_tensor({3, 4}, 2));
  maker.node("add", "Add", {"x", "w"}, "a").node("relu", "Relu", {"a"}, "b");
  maker.node("reader", read_on_device ? "Tanh" : "Neg", {"b"}, "y");
  return maker.output("y").bytes();
}
Placement placement(bool read_on_device) {
  return read_on_device ? Placement{} : Placement{{"reader", "cpu"}};
}

struct RewriteFault {
  const char* name;
  const char* remark;
};

class Rewrites : public FaultTest, public ::testing::WithParamInterface<RewriteFault> {
 protected:
  static Json explain(MixedSession& session) { return Json::parse(session.core().explain()); }
  static std::string remarks(MixedSession& session) {
    std::string all;
    const Json explanation = explain(session);
    for (const Json& remark : explanation["remarks"]) all += remark.get<std::string>() + "\n";
    return all;
  }
  static Json row_of(MixedSession& session, const std::string& node) {
    const Json explanation = explain(session);
    for (const Json& row : explanation["nodes"]) {
      if (row["name"] == node) return row;
    }
    return Json();
  }
  void expect_right(MixedSession& session, const std::string& model) {
    const Tensors want = run_on_cpu(model, feeds_);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(difference(session.run(feeds_), want), "") << "run " << i;
    EXPECT_EQ(findings(), "");
  }
  const Tensors feeds_{{"x", random_tensor({3, 4}, 1)}};
};

TEST_F(Rewrites, AGoodOneIsRunAndExplained) {
  MixedSession session(sum_of(false), placement(false));
  EXPECT_EQ(counters(0).rewrites, 1u);
  expect_right(session, sum_of(false));
  EXPECT_EQ(counters(0).computes, 2u) << "one fused node a run";
  EXPECT_EQ(remarks(session), "");
  const Json add = row_of(session, "add"), relu = row_of(session, "relu");
  EXPECT_TRUE(add["fused_into"].is_string()) << add;
  EXPECT_EQ(add["fused_into"], relu["fused_into"]);
  EXPECT_NE(add["kernel"].get<std::string>().find("fakegpu:AddRelu"), std::string::npos) << add;
  EXPECT_TRUE(row_of(session, "reader")["fused_into"].is_null());
}

/// Two fused nodes in a row keep what is between them in the provider's private format.
TEST_F(Rewrites, APrivateFormatStaysInside) {
  ModelMaker maker;
  maker.input("x", {3, 4}).weight("w", random_tensor({3, 4}, 2));
  maker.node("add", "Add", {"x", "w"}, "a").node("relu", "Relu", {"a"}, "b");
  maker.node("add2", "Add", {"b", "x"}, "c").node("relu2", "Relu", {"c"}, "y").output("y");
  MixedSession session(maker.bytes());
  EXPECT_EQ(counters(0).rewrites, 2u);
  expect_right(session, maker.bytes());
  EXPECT_NE(row_of(session, "add")["kernel"].get<std::string>().find("reversed"),
            std::string::npos);
  EXPECT_EQ(row_of(session, "add2")["kernel"].get<std::string>().find("reversed"),
            std::string::npos);
}

TEST_F(Rewrites, ANoteIsAReason) {
  ModelMaker maker;
  maker.input("x", {3, 4}).node("add", "Add", {"x", "x"}, "y").output("y");
  MixedSession session(maker.bytes());
  const Json reasons = row_of(session, "add")["reasons"];
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons.back()["code"], "note");
  EXPECT_NE(reasons.back()["text"].get<std::string>().find("the sum is used outside"),
            std::string::npos);
  expect_right(session, maker.bytes());
}

TEST_P(Rewrites, ABrokenOneIsDroppedWithARemark) {
  for (const bool read_on_device : {false, true}) {
    SCOPED_TRACE(read_on_device ? "read on the device" : "read on the cpu");
    if (std::string(GetParam().name) == "outside_format" && read_on_device) continue;
    fakegpu().reset();
    const std::string model = sum_of(read_on_device);
    MixedSession session(model, placement(read_on_device), {{"rewrite_fault", GetParam().name}});
    EXPECT_NE(remarks(session).find("the rewrite of fakegpu:0"), std::string::npos)
        << remarks(session);
    EXPECT_NE(remarks(session).find(GetParam().remark), std::string::npos) << remarks(session);
    expect_right(session, model);
    EXPECT_EQ(counters(0).computes, (read_on_device ? 3 : 2) * 2u) << "the nodes as they were";
    for (const char* const node : {"add", "relu"}) {
      EXPECT_TRUE(row_of(session, node)["fused_into"].is_null()) << row_of(session, node);
      EXPECT_EQ(row_of(session, node)["provider"], "fakegpu:0");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Rewrites,
    ::testing::Values(
        RewriteFault{"outside_value", "nothing makes the value 'b', which node 'reader' reads"},
        RewriteFault{"undefined_input", "nothing makes the value 'a value that nobody makes'"},
        RewriteFault{"cycle", "cycle"}, RewriteFault{"no_kernel", "no kernel for the new node"},
        RewriteFault{"replaced_twice", "'add' is replaced twice"},
        RewriteFault{"outside_format",
                     "the value 'b' is used outside and must keep the plain format"},
        RewriteFault{"error", "fakegpu was told to fail in a rewrite"},
        RewriteFault{"refuse_shapes", "is not used: its node"}),
    [](const auto& fault) { return std::string(fault.param.name); });

/// Kernels make other formats than the rewrite told: a private one where it told none, the plain one where it told another.
TEST_F(Rewrites, AFormatThatTheKernelDoesNotKeepIsAnError) {
  ModelMaker two;
  two.input("x", {3, 4}).weight("w", random_tensor({3, 4}, 2));
  two.node("add", "Add", {"x", "w"}, "a").node("relu", "Relu", {"a"}, "b");
  two.node("add2", "Add", {"b", "x"}, "c").node("relu2", "Relu", {"c"}, "y").output("y");
  for (const auto& [model, words] :
       {std::pair(sum_of(false), "in format 1, but the rewrites promised the plain format"),
        std::pair(two.bytes(), "in the plain format, but the rewrites promised format 1")}) {
    std::string message;
    try {
      MixedSession session(model, model == two.bytes() ? Placement{} : placement(false),
                           {{"rewrite_fault", "broken_format"}});
      session.run(feeds_);
    } catch (const Error& error) {
      message = error.message();
      EXPECT_EQ(error.code(), Code::Internal);
    }
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("kernel 'fakegpu:AddRelu' makes its output 'b'"), std::string::npos)
        << message;
    EXPECT_EQ(findings(), "");
  }
}

/// The output of a graph must be made as well.
TEST_F(Rewrites, AnOutputThatNobodyMakesAnyMoreIsARemark) {
  ModelMaker maker;
  maker.input("x", {3, 4}).node("add", "Add", {"x", "x"}, "a").node("relu", "Relu", {"a"}, "y");
  maker.output("y");
  MixedSession session(maker.bytes(), {}, {{"rewrite_fault", "outside_value"}});
  EXPECT_NE(remarks(session).find("nothing makes the output 'y' any more"), std::string::npos)
      << remarks(session);
  expect_right(session, maker.bytes());
}

/// A fused value that is fetched must be there: the cut is rewritten anew, without that fusion.
TEST_F(Rewrites, AValueInsideAFusionCanBeFetched) {
  MixedSession session(sum_of(false), placement(false));
  RuntimeValue x, a, y;
  x.set_owned_tensor(DataType::Float, {3, 4});
  const std::vector<float>& fed = feeds_.at("x").elements;
  const std::vector<float> w = random_tensor({3, 4}, 2).elements;
  std::copy(fed.begin(), fed.end(), static_cast<float*>(x.description.host_ptr));
  session.core().run({{"x", &x}}, {{"a", &a}, {"y", &y}});
  for (std::size_t i = 0; i < fed.size(); ++i)
    EXPECT_EQ(static_cast<const float*>(a.description.host_ptr)[i], fed[i] + w[i]);
  expect_right(session, sum_of(false));
}

}  // namespace
}  // namespace backplane::core::faults

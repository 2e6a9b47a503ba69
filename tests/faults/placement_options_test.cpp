// What users may ask of placement: devices by policy, casts, limits of memory, rules that must do something.
#include <cmath>
#include <cstdlib>
#include <onnx/defs/parser.h>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/faults/fault_test.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class PlacementOptions : public FaultTest {};

Json explained(MixedSession& session) { return Json::parse(session.core().explain()); }

const Json& row_of(const Json& explanation, const std::string& key, const std::string& value) {
  for (const Json& row : explanation["nodes"]) {
    if (row[key] == value) return row;
  }
  invalid("no node's ", key, " is '", value, "'");
}

/// The text of a reason; "" when the node has none like it.
std::string reason_of(const Json& row, const std::string& provider, const std::string& code) {
  for (const Json& reason : row["reasons"]) {
    if (reason["provider"] == provider && reason["code"] == code) return reason["text"];
  }
  return "";
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// Devices by policy

std::string device_for(const std::string& name) {
  MixedSession session(
      ModelMaker().input("x", {2}).node("n", "Neg", {"x"}, "y").output("y").bytes(), {}, {},
      {name, "cpu"});
  return row_of(explained(session), "name", "n")["provider"];
}

TEST_F(PlacementOptions, ADeviceIsChosenByWhatItIs) {
  EXPECT_EQ(device_for("fakegpu"), "fakegpu:0");
  EXPECT_EQ(device_for("fakegpu:1"), "fakegpu:1");
  EXPECT_EQ(device_for("fakegpu:fastest"), "fakegpu:0") << "of equals the first";
  EXPECT_EQ(device_for("fakegpu:least_power"), "fakegpu:1");
  EXPECT_EQ(device_for("fakegpu:name=FAKE*1"), "fakegpu:1");
  EXPECT_NE(error_of([] {
              device_for("fakegpu:name=other");
            }).find("it has 'fake device 0', 'fake device 1'"),
            std::string::npos);
  EXPECT_NE(error_of([] { device_for("fakegpu:2"); }).find("has no device 2"), std::string::npos);
}

TEST_F(PlacementOptions, TheDeviceWithTheMostFreeMemoryIsTheOneThatNobodyUses) {
  EXPECT_EQ(device_for("fakegpu:most_memory"), "fakegpu:0");
  MixedSession keeps(ModelMaker()
                         .input("x", {1, 64})
                         .weight("w", random_tensor({64, 64}, 1))
                         .node("m", "MatMul", {"x", "w"}, "y")
                         .output("y")
                         .bytes(),
                     {}, {}, {"fakegpu:0", "cpu"});
  keeps.run({{"x", random_tensor({1, 64}, 2)}});
  EXPECT_EQ(device_for("fakegpu:most_memory"), "fakegpu:1");
}

TEST_F(PlacementOptions, AllDevicesOfAProviderAreListedByOneName) {
  MixedSession session(ModelMaker()
                           .input("x", {2})
                           .node("a", "Neg", {"x"}, "u")
                           .node("b", "Abs", {"u"}, "y")
                           .output("y")
                           .bytes(),
                       {{"b", "fakegpu:1"}}, {}, {"fakegpu:all", "cpu"});
  const Json explanation = explained(session);
  EXPECT_EQ(row_of(explanation, "name", "a")["provider"], "fakegpu:0");
  EXPECT_EQ(row_of(explanation, "name", "b")["provider"], "fakegpu:1");
}

// Casts

/// Float inputs and outputs, half between them.
std::string half_model() {
  ::onnx::ModelProto proto;
  const auto status = ::onnx::OnnxParser::Parse(proto, R"(
      <ir_version: 8, opset_import: ["" : 17]>
      half (float[2,3] x) => (float[2,3] y, float[2,3] z) {
        h = Cast<to = 10>(x)
        r = Relu(h)
        t = Tanh(r)
        s = Add(t, h)
        y = Cast<to = 1>(s)
        z = Cast<to = 1>(r)
      })");
  if (!status.IsOK()) invalid(status.ErrorMessage());
  return proto.SerializeAsString();
}

std::unique_ptr<MixedSession> open_half(std::vector<CastChoice> casts,
                                        const ProviderOptions& fakegpu = {}) {
  return std::make_unique<MixedSession>(half_model(), Placement(), fakegpu,
                                        std::vector<std::string>{"fakegpu:0", "cpu"},
                                        [&](SessionOptions& options) {
                                          options.casts = std::move(casts);
                                          options.widening = false;
                                        });
}

TEST_F(PlacementOptions, WithoutThatOptionATypeThatADeviceLacksGoesToTheNextOne) {
  const auto session = open_half({});
  const Json explanation = explained(*session);
  for (const char* const op : {"Relu", "Tanh", "Add"}) {
    const Json& row = row_of(explanation, "op", op);
    EXPECT_EQ(row["provider"], "cpu");
    EXPECT_NE(reason_of(row, "fakegpu:0", "type"), "");
  }
}

TEST_F(PlacementOptions, CastsLetADeviceTakeATypeThatItLacksAndSaySo) {
  const Tensors feeds{{"x", random_tensor({2, 3}, 5)}};
  const auto session = open_half({{"float16", "float"}}, {{"rewrite", "false"}});
  const Json explanation = explained(*session);
  for (const char* const op : {"Relu", "Tanh", "Add"}) {
    const Json& row = row_of(explanation, "op", op);
    EXPECT_EQ(row["provider"], "fakegpu:0") << op;
    const std::string why = reason_of(row, "fakegpu:0", "cast");
    EXPECT_NE(why.find("cast to float and 1 of its outputs back"), std::string::npos) << why;
  }
  EXPECT_EQ(explanation["remarks"].size(), 3u);
  std::size_t casts = 0;
  for (const Json& name : explanation["order"])
    casts += name.get<std::string>().find("/cast_") != std::string::npos ? 1 : 0;
  // Of h once for both readers, r and s back; what is between is not cast there and back.
  EXPECT_EQ(casts, 3u) << explanation["order"];
  const Tensors got = session->run(feeds), want = run_on_cpu(half_model(), feeds);
  for (const auto& [name, tensor] : want) {
    for (std::size_t i = 0; i < tensor.elements.size(); ++i)
      EXPECT_NEAR(got.at(name).elements[i], tensor.elements[i], 2e-3) << name;
  }
  EXPECT_EQ(findings(), "");
}

TEST_F(PlacementOptions, ACastToATypeThatTheDeviceLacksTooChangesNothing) {
  const auto session = open_half({{"float16", "bfloat16"}});
  const Json explanation = explained(*session);
  EXPECT_EQ(row_of(explanation, "op", "Tanh")["provider"], "cpu");
  EXPECT_TRUE(explanation["remarks"].empty());
}

// Widening

std::unique_ptr<MixedSession> open_on_cpu(const std::string& model, bool widening) {
  return std::make_unique<MixedSession>(
      model, Placement(), ProviderOptions(), std::vector<std::string>{"cpu"},
      [&](SessionOptions& options) { options.widening = widening; });
}

std::size_t count_casts(const Json& explanation) {
  std::size_t casts = 0;
  for (const Json& name : explanation["order"])
    casts += name.get<std::string>().find("/cast_") != std::string::npos ? 1 : 0;
  return casts;
}

TEST_F(PlacementOptions, NodesOf16BitTypesAreComputedInFloatWhereTheirKernelsAsk) {
  const Tensors feeds{{"x", random_tensor({2, 3}, 5)}};
  const auto session = open_on_cpu(half_model(), true);
  const Json explanation = explained(*session);
  for (const char* const op : {"Relu", "Tanh", "Add"})
    EXPECT_NE(reason_of(row_of(explanation, "op", op), "cpu", "widened"), "") << op;
  EXPECT_EQ(explanation["remarks"].size(), 1u) << explanation["remarks"];
  EXPECT_EQ(count_casts(explanation), 1u) << explanation["order"];  // h, once for both readers
  const Tensors got = session->run(feeds), rounded = open_on_cpu(half_model(), false)->run(feeds);
  double distance = 0;
  for (std::size_t i = 0; i < feeds.at("x").elements.size(); ++i) {
    const double h =
        static_cast<double>(rounded.at("z").elements[i]);  // max(h, 0), not rounded again
    EXPECT_EQ(got.at("z").elements[i], rounded.at("z").elements[i]);
    if (h <= 0) continue;
    EXPECT_NEAR(got.at("y").elements[i], std::tanh(h) + h, 1e-6);
    distance += std::abs(rounded.at("y").elements[i] - std::tanh(h) - h);
  }
  EXPECT_GT(distance, 1e-5);  // what it is about
}

TEST_F(PlacementOptions, WhatOnlyMovesElementsStaysIn16BitsUnlessTheyAreFloatAlready) {
  ::onnx::ModelProto proto;
  const auto status = ::onnx::OnnxParser::Parse(proto, R"(
      <ir_version: 8, opset_import: ["" : 17]>
      half (float16[3,2] x) => (float16[3,2] y)
      <float16[3,3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> {
        before = Transpose(x)
        product = MatMul(before, w)
        between = Transpose(product)
        bounded = Relu(between)
        turned = Transpose(bounded)
        y = Transpose(turned)
      })");
  ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
  const Json explanation = explained(*open_on_cpu(proto.SerializeAsString(), true));
  std::vector<std::string> widened;
  for (const Json& row : explanation["nodes"]) {
    if (reason_of(row, "cpu", "widened") != "") widened.push_back(row["outputs"][0]);
  }
  EXPECT_EQ(widened, (std::vector<std::string>{"product", "between", "bounded", "turned"}));
  EXPECT_EQ(count_casts(explanation), 2u) << explanation["order"];  // the weights' is done at load
}

TEST_F(PlacementOptions, WhatReadsOrMakesSequencesOf16BitTypesStaysSo) {
  ::onnx::ModelProto proto;
  const auto status = ::onnx::OnnxParser::Parse(proto, R"(
      <ir_version: 8, opset_import: ["" : 17]>
      half (float[4] x) => (float[8] y) {
        narrow = Cast <to: int = 10> (x)
        twice = Add(narrow, narrow)
        parts = SplitToSequence <axis: int = 0> (twice)
        more = SequenceInsert(parts, twice)
        joined = ConcatFromSequence <axis: int = 0> (more)
        pair = SequenceConstruct(twice, narrow)
        both = ConcatFromSequence <axis: int = 0> (pair)
        sum = Add(joined, both)
        y = Cast <to: int = 1> (sum)
      })");
  ASSERT_TRUE(status.IsOK()) << status.ErrorMessage();
  const auto session = open_on_cpu(proto.SerializeAsString(), true);
  EXPECT_NE(reason_of(row_of(explained(*session), "op", "Add"), "cpu", "widened"), "");
  const Tensors got = session->run({{"x", {{4}, {1, 2, 3, 4}}}});
  EXPECT_EQ(got.at("y").elements, (std::vector<float>{4, 8, 12, 16, 3, 6, 9, 12}));
}

TEST_F(PlacementOptions, WideningCanBeSwitchedOff) {
  const Json explanation = explained(*open_on_cpu(half_model(), false));
  EXPECT_EQ(count_casts(explanation), 0u);
  EXPECT_EQ(reason_of(row_of(explanation, "op", "Tanh"), "cpu", "widened"), "");
}

// Limits of memory

constexpr std::int64_t kSide = 32;
constexpr std::uint64_t kWeight = kSide * kSide * sizeof(float);

/// Eight products, each with a weight of 4 KiB.
std::string products() {
  ModelMaker maker;
  maker.input("x", {1, kSide});
  std::string last = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string made = i == 7 ? "y" : text("v", i);
    Tensor weight = random_tensor({kSide, kSide}, static_cast<std::uint64_t>(i) + 1);
    for (float& element : weight.elements) element /= 8;
    maker.weight(text("w", i), weight).node(text("n", i), "MatMul", {last, text("w", i)}, made);
    last = made;
  }
  return maker.output("y").bytes();
}

std::unique_ptr<MixedSession> open_limited(std::map<std::string, std::uint64_t> limits,
                                           Fallback fallback = Fallback::Allow,
                                           const std::string& model = products()) {
  return std::make_unique<MixedSession>(model, Placement(), ProviderOptions(),
                                        std::vector<std::string>{"fakegpu:0", "fakegpu:1", "cpu"},
                                        [&](SessionOptions& options) {
                                          options.memory_limits = std::move(limits);
                                          options.fallback = fallback;
                                        });
}

TEST_F(PlacementOptions, ALimitOfMemoryMovesTheLatestNodesToTheNextDeviceAndSaysWhy) {
  const Tensors feeds{{"x", random_tensor({1, kSide}, 9)}};
  const Tensors want = run_on_cpu(products(), feeds);
  const auto session = open_limited({{"fakegpu:0", 5 * kWeight}, {"fakegpu:1", 2 * kWeight}});
  EXPECT_EQ(difference(session->run(feeds), want), "");
  const Json explanation = explained(*session);
  // Weights and a little for the values: four fit the first device, one the second.
  std::string places;
  for (int i = 0; i < 8; ++i) {
    const Json& row = row_of(explanation, "name", text("n", i));
    const std::string provider = row["provider"];
    places += provider == "fakegpu:0" ? "0" : provider == "fakegpu:1" ? "1" : "c";
    const std::string first = reason_of(row, "fakegpu:0", "memory");
    EXPECT_EQ(first.empty(), provider == "fakegpu:0") << row;
    if (!first.empty()) {
      EXPECT_NE(first.find("memory_limit.fakegpu:0 (20480)"), std::string::npos) << first;
    }
    EXPECT_EQ(reason_of(row, "fakegpu:1", "memory").empty(), provider != "cpu") << row;
  }
  EXPECT_EQ(places, "00001ccc");
  EXPECT_EQ(findings(), "");
  const Json memory = Json::parse(session->core().statistics())["memory"];
  EXPECT_LE(memory["fakegpu:0"]["weights"].get<std::uint64_t>() +
                memory["fakegpu:0"]["runs"].get<std::uint64_t>(),
            5 * kWeight);
}

TEST_F(PlacementOptions, WhereFallbackIsForbiddenALimitIsAnError) {
  const std::string error = error_of([] {
    open_limited({{"fakegpu:0", 5 * kWeight}}, Fallback::Forbid);
  });
  EXPECT_NE(error.find("memory_limit.fakegpu:0 (20480)"), std::string::npos) << error;
}

TEST_F(PlacementOptions, ALimitThatValuesBreakMovesTheirNodesToo) {
  ModelMaker maker;
  maker.input("x", {64, 64});
  maker.node("a", "Neg", {"x"}, "u")
      .node("b", "Tanh", {"u"}, "v")
      .node("c", "MatMul", {"u", "v"}, "w");
  const std::string model = maker.node("d", "Abs", {"w"}, "y").output("y").bytes();
  const Tensors feeds{{"x", random_tensor({64, 64}, 3)}};
  const auto session = open_limited({{"fakegpu", 3 * 64 * 64 * 4}}, Fallback::Allow, model);
  EXPECT_EQ(difference(session->run(feeds), run_on_cpu(model, feeds)), "");
  const auto small = open_limited({{"fakegpu", 4}}, Fallback::Allow, model);
  EXPECT_EQ(difference(small->run(feeds), run_on_cpu(model, feeds)), "");
  const Json explanation = explained(*small);
  for (const char* const node : {"a", "b", "c", "d"})
    EXPECT_EQ(row_of(explanation, "name", node)["provider"], "cpu");
}

TEST_F(PlacementOptions, ALimitThatNothingCanMeetIsAnErrorThatNamesIt) {
  const std::string error = error_of([] {
    MixedSession session(products(), {{"*", "fakegpu:0"}}, {}, {"fakegpu:0", "cpu"},
                         [](SessionOptions& options) {
                           options.memory_limits = {{"fakegpu:0", 16}};
                         });
  });
  EXPECT_NE(error.find("memory_limit.fakegpu:0 (16)"), std::string::npos) << error;
}

// Rules

std::string open_with_rules(const Placement& rules, UnusedRules unused) {
  return error_of([&] {
    MixedSession session(
        ModelMaker().input("x", {2}).node("n", "Neg", {"x"}, "y").output("y").bytes(), rules, {},
        {"fakegpu:0", "cpu"}, [&](SessionOptions& options) { options.unused_rules = unused; });
  });
}

TEST_F(PlacementOptions, RulesThatDoNothingAreAnErrorWhereTheUserSaysSo) {
  const Placement rules{{"op:Conv", "cpu"}};
  EXPECT_EQ(open_with_rules(rules, UnusedRules::Allow), "");
  EXPECT_EQ(open_with_rules(rules, UnusedRules::Warn), "");
  EXPECT_NE(open_with_rules(rules, UnusedRules::Error)
                .find("the placement rule 'op:Conv=cpu' fits no node"),
            std::string::npos);
}

}  // namespace
}  // namespace backplane::core::faults

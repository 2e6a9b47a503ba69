// The cpu and two fake devices in one graph: results, copies, weights.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

class MixedPlacement : public FaultTest {};

Copies counted() {
  const fakegpu_counters now = counters();
  return {now.copies_h2d, now.copies_d2h, now.copies_peer,
          now.bytes_h2d + now.bytes_d2h + now.bytes_peer};
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// x on fakegpu:0, then on fakegpu:1, then on the cpu; the first result is read on all three.
std::string three_devices() {
  ModelMaker maker;
  maker.input("x", {2, 3}).weight("w", random_tensor({2, 3}, 7));
  maker.node("first", "Add", {"x", "w"}, "a")
      .node("second", "Mul", {"a", "a"}, "b")
      .node("third", "Sub", {"b", "a"}, "y");
  return maker.output("y").bytes();
}
const Placement kThreeDevices{{"first", "fakegpu:0"}, {"second", "fakegpu:1"}, {"third", "cpu"}};

Json row_of(const Json& explanation, const std::string& node) {
  for (const Json& row : explanation["nodes"]) {
    if (row["name"] == node) return row;
  }
  return Json();
}

TEST_F(MixedPlacement, ThreeDevicesInOneGraph) {
  const Tensors feeds{{"x", random_tensor({2, 3}, 1)}};
  MixedSession session(three_devices(), kThreeDevices);
  EXPECT_EQ(difference(session.run(feeds), run_on_cpu(three_devices(), feeds)), "");
  EXPECT_EQ(findings(), "");
  const Json explanation = Json::parse(session.core().explain());
  for (const auto& [node, provider] : kThreeDevices)
    EXPECT_EQ(row_of(explanation, node)["provider"], provider) << node;
  const Json reasons = row_of(explanation, "third")["reasons"];
  ASSERT_EQ(reasons.size(), 2u) << reasons;
  EXPECT_EQ(reasons[0]["code"], "rule");
}

/// A node leaves its provider for a run that then fails: what is told is of the last run that there was.
TEST_F(MixedPlacement, AnExplanationIsOfOneProgram) {
  environment()->plugins().load(BACKPLANE_TEST_FIXTURES_DIR "/null_provider.so");
  ModelMaker maker;
  maker.input("x", {-1, 4}).input("b", {-1, 4}).node("sum", "Add", {"x", "b"}, "y").output("y");
  MixedSession session(maker.bytes(), {}, {}, {"null", "fakegpu:0"});
  const Tensor two = random_tensor({2, 4}, 1), one = random_tensor({1, 4}, 2);
  session.run({{"x", two}, {"b", two}});
  const std::string before = session.core().explain();
  EXPECT_EQ(row_of(Json::parse(before), "sum")["kernel"], "null:add") << before;

  RuntimeValue x, b, y;
  x.set_owned_tensor(DataType::Float, two.dims);
  b.set_owned_tensor(DataType::Float, one.dims);
  y.set_owned_tensor(DataType::Float, {3, 4});
  EXPECT_THROW(session.core().run({{"x", &x}, {"b", &b}}, {{"y", &y}}), Error);
  EXPECT_EQ(session.core().explain(), before);
  session.run({{"x", two}, {"b", one}});
  EXPECT_EQ(row_of(Json::parse(session.core().explain()), "sum")["provider"], "fakegpu:0");
}

TEST_F(MixedPlacement, ExplanationListsEveryCopyOnce) {
  MixedSession session(three_devices(), kThreeDevices);
  std::multiset<std::string> copies;
  const Json explanation = Json::parse(session.core().explain());
  for (const Json& copy : explanation["copies"]) {
    copies.insert(text(copy["value"].get<std::string>(), ": ", copy["from"].get<std::string>(),
                       " to ", copy["to"].get<std::string>(), ", ", copy["bytes"].get<int>(),
                       " bytes"));
    EXPECT_NE(copy["cause"], "");
  }
  // What fakegpu:1 and the cpu both read goes over the host once.
  EXPECT_EQ(copies, (std::multiset<std::string>{
                        "x: host to fakegpu:0, 24 bytes", "a: fakegpu:0 to host, 24 bytes",
                        "a: host to fakegpu:1, 24 bytes", "b: fakegpu:1 to host, 24 bytes"}));
}

TEST_F(MixedPlacement, PeersCopyWithoutTheHost) {
  const Tensors feeds{{"x", random_tensor({2, 3}, 1)}};
  const Tensors want = run_on_cpu(three_devices(), feeds);
  MixedSession session(three_devices(), kThreeDevices, {{"peer", "true"}});
  session.run(feeds);
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(feeds), want), "");
  const Copies copies = counted();
  EXPECT_EQ(copies.peer, 1u);
  EXPECT_EQ(copies.to_device, 1u);
  EXPECT_EQ(copies.to_host, 2u);
  EXPECT_EQ(copies.bytes, 4 * 24u);
  EXPECT_EQ(findings(), "");
}

TEST_F(MixedPlacement, DevicesThatTakeHostMemoryNeedNoStaging) {
  const Tensors feeds{{"x", random_tensor({2, 3}, 1)}};
  const Tensors want = run_on_cpu(three_devices(), feeds);
  for (const char* const mode : {"sync", "async"}) {
    MixedSession session(three_devices(), kThreeDevices, {{"host_copy", mode}});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(difference(session.run(feeds), want), "") << mode;
    EXPECT_EQ(findings(), "") << mode;
  }
}

TEST_F(MixedPlacement, DigitsWhollyOnFakeDevice) {
  const std::string model = read_file(BACKPLANE_TEST_SOURCE_DIR "/tests/data/digits/digits.onnx");
  ASSERT_FALSE(model.empty());
  MixedSession session(model, {}, {{"delay_us", "5"}}, {"fakegpu:0", "cpu"});
  const Json explanation = Json::parse(session.core().explain());
  Tensors feeds;
  for (const ValueId input : session.core().inputs()) {
    const Value& value = session.core().model().graph.value(input);
    Dims dims;
    for (const Dim& dim : *value.type.shape) dims.push_back(dim.known() ? dim.size : 5);
    feeds[value.name] = random_tensor(dims, 3);
  }
  EXPECT_EQ(difference(session.run(feeds), run_on_cpu(model, feeds)), "");
  for (const Json& row : explanation["nodes"]) EXPECT_EQ(row["provider"], "fakegpu:0") << row;
  fakegpu().reset();
  session.run(feeds);
  const Copies copies = counted();
  EXPECT_EQ(copies.to_device, feeds.size());
  EXPECT_EQ(copies.to_host, session.core().outputs().size());
  EXPECT_EQ(findings(), "");
}

/// Every third graph with claims, every second one with rewrites: neither changes what has to be copied.
ProviderOptions options_for(std::uint64_t seed, bool peer) {
  return {{"delay_us", "20"},
          {"seed", std::to_string(seed)},
          {"peer", peer ? "true" : "false"},
          {"rewrite", seed % 2 == 0 ? "true" : "false"},
          {"compile", seed % 3 == 0 ? "chains" : "off"}};
}

void check_random_graph(std::uint64_t seed, bool peer) {
  const RandomGraph graph(seed);
  SCOPED_TRACE(text("seed ", seed, peer ? ", peer" : "", "\n", graph.describe()));
  const Tensors want = run_on_cpu(graph.model(), graph.feeds());
  MixedSession session(graph.model(), graph.placement(), options_for(seed, peer));
  EXPECT_EQ(difference(session.run(graph.feeds()), want), "") << "first run";
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(graph.feeds()), want), "") << "second run";
  const Copies got = counted(), least = graph.copies(peer);
  if (!peer) {
    EXPECT_EQ(got.to_device, least.to_device);
    EXPECT_EQ(got.to_host, least.to_host);
  }
  EXPECT_EQ(got.count(), least.count());
  EXPECT_EQ(got.bytes, least.bytes);
  EXPECT_EQ(counters().allocations, 0u) << "a second run allocates nothing";
  EXPECT_EQ(findings(), "");

  const Json explanation = Json::parse(session.core().explain());
  EXPECT_EQ(explanation["copies"].size(), least.count());
  for (const auto& [node, provider] : graph.placement())
    EXPECT_EQ(row_of(explanation, node)["provider"], provider) << node;
}

TEST_F(MixedPlacement, RandomGraphsOverTheHost) {
  for (std::uint64_t seed = 1; seed <= 70 && !HasFailure(); ++seed) check_random_graph(seed, false);
}

TEST_F(MixedPlacement, RandomGraphsBetweenPeers) {
  for (std::uint64_t seed = 101; seed <= 130 && !HasFailure(); ++seed)
    check_random_graph(seed, true);
}

TEST_F(MixedPlacement, SeededDelaysFindNoRace) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const RandomGraph graph(200 + seed);
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    for (const char* const peer : {"false", "true"}) {
      const ProviderOptions options{{"seed", std::to_string(seed)},
                                    {"delay_us", "1000"},
                                    {"peer", peer},
                                    {"host_copy", seed % 2 == 0 ? "async" : "none"}};
      MixedSession session(graph.model(), graph.placement(), options);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(difference(session.run(graph.feeds()), want), "") << "seed " << seed << "\n"
                                                                    << graph.describe();
      EXPECT_EQ(findings(), "") << "seed " << seed;
    }
  }
}

TEST_F(MixedPlacement, WeightsAreUploadedOncePerDevice) {
  ModelMaker maker;
  maker.input("x", {4, 8})
      .weight("w", random_tensor({8, 8}, 1))
      .weight("same", random_tensor({8, 8}, 1))
      .weight("bias", random_tensor({1, 8}, 2));
  maker.node("a", "MatMul", {"x", "w"}, "va")
      .node("b", "MatMul", {"va", "w"}, "vb")
      .node("c", "MatMul", {"vb", "same"}, "vc");
  maker.node("d", "Add", {"vc", "bias"}, "y").output("y");
  const Placement placement{
      {"a", "fakegpu:0"}, {"b", "fakegpu:1"}, {"c", "fakegpu:1"}, {"d", "fakegpu:1"}};
  MixedSession session(maker.bytes(), placement);
  EXPECT_EQ(counters(0).copies_h2d, 1u) << "w";
  EXPECT_EQ(counters(1).copies_h2d, 2u) << "w, which equals 'same', and bias";
  EXPECT_EQ(counters().bytes_h2d, (64 + 64 + 8) * sizeof(float));

  fakegpu().reset();
  MixedSession again(maker.bytes(), placement);
  EXPECT_EQ(counters().copies_h2d, 0u) << "a second session shares the weights of the first";
  const Tensors feeds{{"x", random_tensor({4, 8}, 3)}};
  const Tensors want = run_on_cpu(maker.bytes(), feeds);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(difference(session.run(feeds), want), "");
    EXPECT_EQ(difference(again.run(feeds), want), "");
  }
  EXPECT_EQ(counters().copies_h2d, 4 * 2u)
      << "runs copy their feed, and what goes from one device to the other";
}

TEST_F(MixedPlacement, PackedWeightsAreSharedAndDroppedWithTheLastSession) {
  ModelMaker maker;
  maker.input("x", {4, 8}).weight("w", random_tensor({8, 8}, 1));
  const std::string model = maker.node("a", "Gemm", {"x", "w"}, "y").output("y").bytes();
  const Tensors feeds{{"x", random_tensor({4, 8}, 3)}};
  const Tensors want = run_on_cpu(model, feeds);
  for (int round = 1; round <= 2; ++round) {
    {
      MixedSession first(model), second(model);
      EXPECT_EQ(difference(first.run(feeds), want), "");
      EXPECT_EQ(difference(second.run(feeds), want), "");
      EXPECT_EQ(counters().packs, static_cast<std::uint64_t>(round)) << "once for both";
    }
    EXPECT_EQ(alive(), "");
  }
}

}  // namespace
}  // namespace backplane::core::faults

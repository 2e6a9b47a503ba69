// Nodes at random over the cpu, two fake devices and the OpenCL device that is there: results are those of the cpu, every value is
// copied at most once to each memory, no plan puts two live values into the same bytes, and no delay finds a race. The same holds
// for bodies of control flow, turn by turn.
//
// 543 placements; ten times as many with BACKPLANE_TEST_FULL=1, an eighth under a sanitizer.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/runtime/run_context.hpp"
#include "tests/faults/arena_audit.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/faults/flow_copies.hpp"
#include "tests/faults/network.hpp"
#include "tests/faults/random_flow.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937_64;

bool is_full() {
  const char* text = std::getenv("BACKPLANE_TEST_FULL");
  return text != nullptr && std::string_view(text) == "1";
}

/// How many placements a test tries.
std::uint64_t placements(std::uint64_t usual) {
#ifdef BACKPLANE_SANITIZED
  return (usual + 7) / 8;
#else
  return is_full() ? usual * 10 : usual;
#endif
}

class RandomPlacement : public FaultTest {
 protected:
  void SetUp() override {
    FaultTest::SetUp();
    keeps_cpu_open_ = std::make_unique<MixedSession>(
        ModelMaker().input("x", {1}).node("n", "Neg", {"x"}, "y").output("y").bytes(), Placement(),
        ProviderOptions(), std::vector<std::string>{"cpu"});
  }

 private:
  std::unique_ptr<MixedSession> keeps_cpu_open_;  ///< opening it asks the processor what it can
};

Copies counted() {
  const fakegpu_counters now = counters();
  return {now.copies_h2d,  now.copies_d2h,
          now.copies_peer, now.bytes_h2d + now.bytes_d2h + now.bytes_peer,
          now.copies_d2d,  now.bytes_d2d};
}

/// Delays, peers, ways over the host, claims and rewrites: all of them, from placement to placement.
ProviderOptions options_for(std::uint64_t seed, bool peer, bool delays = true) {
  static const char* const kHostCopies[] = {"none", "none", "sync", "async"};
  return {{"delay_us", delays && seed % 4 == 0 ? "50" : "0"},
          {"seed", std::to_string(seed)},
          {"peer", peer ? "true" : "false"},
          {"host_copy", kHostCopies[seed % 4]},
          {"rewrite", seed % 2 == 0 ? "true" : "false"},
          {"compile", seed % 3 == 0 ? "chains" : "off"}};
}

/// Where the plan of a session puts values into its arenas, and what comes out when all else in them is NaN.
void check_arenas(MixedSession& session, const Tensors& feeds, const Tensors& want) {
  std::vector<std::string> feed_names, fetch_names;
  for (const auto& [name, tensor] : feeds) feed_names.push_back(name);
  for (const auto& [name, tensor] : want) fetch_names.push_back(name);
  const Session::Route route = session.core().route(feed_names, fetch_names);
  const std::shared_ptr<Generation> generation = route.executable->generation();
  Program& program = *generation->program;
  ValueStates states(program.graph().value_count());
  std::vector<LiveValue> live;
  std::vector<RuntimeValue> fed(feeds.size()), fetched(want.size());
  RunValues feed_values, fetch_values;
  for (std::size_t i = 0; i < program.feeds().size(); ++i) {
    const Tensor& tensor = known(feeds, program.graph().value(program.feeds()[i]).name);
    states[program.feeds()[i]] = tensor_state(DataType::Float, tensor.dims);
    live.push_back({program.feeds()[i], kHostSpace, -1});
    fed[i].set_owned_tensor(DataType::Float, tensor.dims);
    std::copy(tensor.elements.begin(), tensor.elements.end(),
              static_cast<float*>(fed[i].description.host_ptr));
    feed_values.push_back(&fed[i]);
  }
  for (std::size_t i = 0; i < program.fetches().size(); ++i) {
    fetched[i].set_owned_tensor(DataType::Float,
                                known(want, program.graph().value(program.fetches()[i]).name).dims);
    fetch_values.push_back(&fetched[i]);
  }
  std::shared_ptr<Segment> segment =
      plan_segment(program, 0, states, live, std::vector<bool>(program.fetches().size()));
  ASSERT_TRUE(segment->is_last);
  const ArenaAudit audit(program, *segment);
  EXPECT_EQ(audit.overlap(), "");
  audit.poison(*segment);
  {
    RunContext context(program, program.context().threads, 4, false);
    context.start(1, RunControls());
    context.run(segment, 0, feed_values, fetch_values);
    context.finish();
  }
  Tensors got;
  for (std::size_t i = 0; i < fetched.size(); ++i) {
    const auto* first = static_cast<const float*>(fetched[i].description.host_ptr);
    got[program.graph().value(program.fetches()[i]).name] = {
        fetched[i].dims, {first, first + fetched[i].description.bytes / sizeof(float)}};
  }
  EXPECT_EQ(difference(got, want), "") << "with all dead memory poisoned";
}

void expect_least_copies(const Copies& least, bool peer) {
  const Copies got = counted();
  if (!peer) {
    EXPECT_EQ(got.to_device, least.to_device);
    EXPECT_EQ(got.to_host, least.to_host);
  }
  EXPECT_EQ(got.count(), least.count());
  EXPECT_EQ(got.bytes, least.bytes);
  EXPECT_EQ(got.within, least.within);
  EXPECT_EQ(got.bytes_within, least.bytes_within);
}

TEST_F(RandomPlacement, GeneratedGraphs) {
  for (std::uint64_t seed = 1; seed <= placements(400) && !HasFailure(); ++seed) {
    const RandomGraph graph(1000 + seed);
    const bool peer = seed % 5 == 0;
    SCOPED_TRACE(text("seed ", seed, peer ? ", peer" : "", "\n", graph.describe()));
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    MixedSession session(graph.model(), graph.placement(), options_for(seed, peer));
    fakegpu().reset();
    EXPECT_EQ(difference(session.run(graph.feeds()), want), "");
    expect_least_copies(graph.copies(peer), peer);
    EXPECT_EQ(Json::parse(session.core().explain())["copies"].size(), graph.copies(peer).count());
    if (seed % 2 == 0) check_arenas(session, graph.feeds(), want);
    EXPECT_EQ(findings(), "");
  }
}

// The OpenCL provider builds programs by shape, which takes its time: few graphs, each with many placements.
TEST_F(RandomPlacement, FourKindsOfDevices) {
  if (!has_device("opencl")) GTEST_SKIP() << "no OpenCL device is there";
  const std::vector<std::string> providers{"cpu", "opencl", "fakegpu:0", "fakegpu:1"};
  for (std::uint64_t i = 0; i < placements(24) && !HasFailure(); ++i) {
    const RandomGraph graph(2000 + i % 4, providers, 1 + i);
    SCOPED_TRACE(text("graph ", 2000 + i % 4, ", placement ", 1 + i, "\n", graph.describe()));
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    MixedSession session(graph.model(), graph.placement(), options_for(i, false), providers);
    EXPECT_EQ(difference(session.run(graph.feeds()), want), "");
    EXPECT_EQ(difference(session.run(graph.feeds()), want), "") << "second run";
    const Json explanation = Json::parse(session.core().explain());
    std::uint64_t bytes = 0;
    for (const Json& copy : explanation["copies"])
      bytes += copy["value_bytes"].get<std::uint64_t>();
    EXPECT_EQ(explanation["copies"].size(), graph.copies(false).count()) << explanation["copies"];
    EXPECT_EQ(bytes, graph.copies(false).bytes);
    for (const Json& row : explanation["nodes"]) {
      const std::string provider = row["provider"], wanted = graph.placement().at(row["name"]);
      EXPECT_EQ(provider.substr(0, wanted.size()), wanted) << row;
    }
    check_arenas(session, graph.feeds(), want);
    EXPECT_EQ(findings(), "");
  }
}

/// No value goes to the same memory twice.
void expect_single_copies(const Json& explanation) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Json& copy : explanation["copies"]) {
    if (copy["from"] == copy["to"]) continue;  // into the memory of a loop's or branch's result
    EXPECT_TRUE(seen.emplace(copy["value"], copy["to"]).second) << copy;
  }
}

/// The nodes that a fake device takes, as rules call them.
std::vector<std::string> bare_nodes_taken(const std::string& model) {
  std::vector<std::string> names = nodes_taken(model);
  for (std::string& name : names) name = bare(name);
  return names;
}

/// Where the nodes are that run, as FlowCopies wants it.
Placement places_that_run(const Json& explanation) {
  Placement places;
  for (const auto& [node, provider] : Network::places(explanation))
    places[bare(node)] = provider == "cpu" ? "host" : provider;
  return places;
}

/// Where the plans of the main graph and of the bodies put values, whatever turn or branch they are for, and what comes
/// out when all else in their arenas is NaN. Returns how many plans of bodies there are.
std::size_t check_arenas_of_plans(MixedSession& session, const RandomFlow& flow,
                                  const Tensors& want) {
  EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "without memory that is kept";
  std::vector<std::string> feeds;
  for (const auto& [name, tensor] : flow.feeds()) feeds.push_back(name);
  const Session::Route route = session.core().route(feeds, {});
  const PlanAudit audit(*route.executable);
  EXPECT_GT(audit.plan_count(), audit.body_plan_count()) << "the main graph has no plan";
  EXPECT_EQ(audit.overlap(), "");
  audit.poison();
  EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "with all dead memory poisoned";
  EXPECT_EQ(PlanAudit(*route.executable).plan_count(), audit.plan_count()) << "other plans ran";
  return audit.body_plan_count();
}

/// How much of the control flow was looked at.
struct FlowTally {
  std::uint64_t placements = 0, copies_within = 0, body_plans = 0;
};

void check_flow(std::uint64_t seed, std::uint64_t placing,
                const std::vector<std::string>& providers, FlowTally& tally) {
  const RandomFlow flow(seed);
  Random random(placing);
  const std::vector<std::string> taken = bare_nodes_taken(flow.model());
  ASSERT_FALSE(taken.empty());
  const Placement placement = random_placement(taken, providers, random);
  std::string words;
  for (const auto& [node, provider] : placement) words += text(node, " on ", provider, "\n");
  SCOPED_TRACE(text("seed ", seed, "\n", flow.describe(), words));
  const Tensors want = run_on_cpu(flow.model(), flow.feeds());
  std::vector<std::string> all = providers;
  std::rotate(all.begin(), all.begin() + 1, all.end());
  const bool peer = placing % 5 == 0;
  const ProviderOptions options = options_for(placing, peer);
  MixedSession session(flow.model(), placement, options, all);
  EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "first run";
  EXPECT_EQ(findings(), "");
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "second run";
  EXPECT_EQ(findings(), "");
  const Json explanation = Json::parse(session.core().explain());
  expect_single_copies(explanation);
  for (const Json& row : explanation["nodes"]) {
    const auto placed = placement.find(bare(row["name"].get<std::string>()));
    if (placed == placement.end() || row["provider"].is_null()) continue;
    EXPECT_EQ(row["provider"].get<std::string>().substr(0, placed->second.size()), placed->second)
        << row["name"];
  }
  const Copies least = FlowCopies(flow, places_that_run(explanation), all, peer).copies();
  ++tally.placements;
  tally.copies_within += least.within;
  expect_least_copies(least, peer);
  // With rewrites and without. Poisoned plans do one thing after the other: a delay would find nothing more.
  if (placing % 4 >= 2) return;
  MixedSession forgetful(flow.model(), placement, options_for(placing, peer, false), all,
                         [](SessionOptions& change) { change.arena = false; });
  tally.body_plans += check_arenas_of_plans(forgetful, flow, want);
  EXPECT_EQ(findings(), "");
}

TEST_F(RandomPlacement, GeneratedControlFlow) {
  FlowTally tally;
  for (std::uint64_t seed = 1; seed <= placements(80) && !HasFailure(); ++seed)
    check_flow(seed, seed, {"cpu", "fakegpu:0", "fakegpu:1"}, tally);
  EXPECT_GT(tally.copies_within, 0u);
  EXPECT_GT(tally.body_plans, 0u);
}

// Few graphs, each with many placements, as above.
TEST_F(RandomPlacement, ControlFlowOnFourKindsOfDevices) {
  if (!has_device("opencl")) GTEST_SKIP() << "no OpenCL device is there";
  FlowTally tally;
  for (std::uint64_t i = 0; i < placements(20) && !HasFailure(); ++i)
    check_flow(300 + i % 4, 1 + i, {"cpu", "opencl", "fakegpu:0", "fakegpu:1"}, tally);
}

/// `share` names nodes for the OpenCL device where one is there.
void check_network(const Network& network, std::uint64_t seed, DeviceShare share) {
  Random random(seed);
  const bool has_opencl = has_device("opencl");
  if (!has_opencl) share.opencl_nodes = 0;
  const Placement placement = network.placement(random, share);
  ASSERT_FALSE(placement.empty());
  SCOPED_TRACE(text("seed ", seed));
  std::vector<std::string> providers{"fakegpu:0", "fakegpu:1", "cpu"};
  if (has_opencl) providers.insert(providers.begin(), "opencl");
  MixedSession session(network.model(), placement, options_for(seed, false), providers);
  session.run(network.feeds());  // uploads weights, where shapes are known only now
  EXPECT_EQ(findings(), "");
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(network.feeds()), network.want()), "");
  const Json explanation = Json::parse(session.core().explain());
  const Placement places = Network::places(explanation);
  Copies least = network.copies(places, "fakegpu");
  for (const Json& copy : explanation["copies"])
    (copy["to"] == "host" ? least.to_host : least.to_device) +=
        copy["pieces"].get<std::uint64_t>() - 1;
  expect_least_copies(least, false);
  std::uint64_t bytes = 0;
  // What the OpenCL device views where it lies counts as if it were copied.
  for (const Json& copy : explanation["copies"]) bytes += copy["value_bytes"].get<std::uint64_t>();
  const Copies all = network.copies(places, "");
  EXPECT_EQ(explanation["copies"].size(), all.count()) << explanation["copies"];
  EXPECT_EQ(bytes, all.bytes);
  std::size_t on_opencl = 0;
  for (const auto& [node, provider] : placement) {
    if (provider != "opencl") {
      EXPECT_EQ(known(places, node), provider) << node;
    } else if (known(places, node).rfind("opencl", 0) == 0) {
      ++on_opencl;
    }
  }
  EXPECT_EQ(on_opencl == 0, share.opencl_nodes == 0);
  EXPECT_EQ(findings(), "");
  check_arenas(session, network.feeds(), network.want());
}

TEST_F(RandomPlacement, DigitsNetwork) {
  const Network digits =
      Network::from_file(BACKPLANE_TEST_SOURCE_DIR "/tests/data/digits/digits.onnx");
  for (std::uint64_t seed = 1; seed <= placements(8) && !HasFailure(); ++seed)
    check_network(digits, seed, {10'000'000, 2});
}

/// The twelve networks of $BACKPLANE_SHARED_DATA, where they are; else those of the onnx package.
std::map<std::string, std::filesystem::path> network_files() {
  std::map<std::string, std::filesystem::path> files;
  if (const char* shared = std::getenv("BACKPLANE_SHARED_DATA")) {
    const std::filesystem::path cases = std::filesystem::path(shared) / "data" / "cases";
    if (std::filesystem::is_directory(cases)) {
      for (const auto& entry : std::filesystem::directory_iterator(cases)) {
        if (std::filesystem::exists(entry.path() / "model.onnx"))
          files[entry.path().filename().string()] = entry.path() / "model.onnx";
      }
    }
  }
  if (!files.empty()) return files;
  const std::filesystem::path folder = BACKPLANE_TEST_LIGHT_MODELS;
  if (!std::filesystem::is_directory(folder))
    invalid(folder.string(), " is missing: run tools/setup");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") files[entry.path().stem().string()] = entry.path();
  }
  return files;
}

TEST_F(RandomPlacement, TheNetworks) {
  const std::map<std::string, std::filesystem::path> files = network_files();
  EXPECT_GE(files.size(), 8u);
  for (const auto& [name, file] : files) {
    // A quarter of the time for its half a gigabyte, and of nodes that AlexNet has, too.
    if (!is_full() && name.find("vgg19") != std::string::npos) continue;
    SCOPED_TRACE(name);
    const Network network = Network::from_file(file);
    const std::int64_t products = is_full() ? 30'000'000 : 5'000'000;
    for (std::uint64_t seed = 1; seed <= placements(1) && !HasFailure(); ++seed)
      check_network(network, seed, {products, is_full() ? 20u : 2u});
  }
}

}  // namespace
}  // namespace backplane::core::faults

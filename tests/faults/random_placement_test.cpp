// Nodes at random over the cpu, two fake devices and the OpenCL device that is there: results are those of the cpu, every value is copied at most once to
// each memory, no plan puts two live values into the same bytes, and no delay finds a race.
//
// 522 placements; ten times as many with BACKPLANE_TEST_FULL=1.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/runtime/run_context.hpp"
#include "tests/faults/arena_audit.hpp"
#include "tests/faults/fault_test.hpp"
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
std::uint64_t placements(std::uint64_t usual) { return is_full() ? usual * 10 : usual; }

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
  return {now.copies_h2d, now.copies_d2h, now.copies_peer,
          now.bytes_h2d + now.bytes_d2h + now.bytes_peer};
}

/// Delays, peers, ways over the host, claims and rewrites: all of them, from placement to placement.
ProviderOptions options_for(std::uint64_t seed, bool peer) {
  static const char* const kHostCopies[] = {"none", "none", "sync", "async"};
  return {{"delay_us", seed % 4 == 0 ? "50" : "0"},
          {"seed", std::to_string(seed)},
          {"peer", peer ? "true" : "false"},
          {"host_copy", kHostCopies[seed % 4]},
          {"rewrite", seed % 2 == 0 ? "true" : "false"},
          {"compile", seed % 3 == 0 ? "chains" : "off"}};
}

template <class Map>
const auto& known(const Map& map, const std::string& name) {
  const auto found = map.find(name);
  if (found == map.end()) invalid("the test knows nothing of '", name, "'");
  return found->second;
}

/// A name's last part: what rules in bodies match.
std::string bare(const std::string& name) { return name.substr(name.rfind('/') + 1); }

/// The nodes that a fake device takes.
std::vector<std::string> nodes_taken(const std::string& model) {
  MixedSession session(model, {}, {{"rewrite", "false"}}, {"fakegpu:0", "cpu"});
  const Json explanation = Json::parse(session.core().explain());
  std::vector<std::string> names;
  for (const Json& row : explanation["nodes"]) {
    if (row["provider"] == "fakegpu:0") names.push_back(bare(row["name"].get<std::string>()));
  }
  return names;
}

Placement random_placement(const std::vector<std::string>& nodes, Random& random) {
  static const char* const kProviders[] = {"cpu", "fakegpu:0", "fakegpu:1"};
  Placement placement;
  for (const std::string& node : nodes) placement[node] = kProviders[random() % 3];
  return placement;
}

/// Where the plan of a session puts values into its arenas, and what comes out when all else in them is NaN.
void check_arenas(MixedSession& session, const Tensors& feeds, const Tensors& want) {
  std::vector<std::string> feed_names, fetch_names;
  for (const auto& [name, tensor] : feeds) feed_names.push_back(name);
  for (const auto& [name, tensor] : want) fetch_names.push_back(name);
  const Session::Route route = session.core().route(feed_names, fetch_names);
  const std::shared_ptr<Generation> generation = route.executable->generation();
  Program& program = *generation->program;
  std::vector<ValueState> states(program.graph().value_count());
  std::vector<Border> borders;
  std::vector<RuntimeValue> fed(feeds.size()), fetched(want.size());
  RunValues feed_values, fetch_values;
  for (std::size_t i = 0; i < program.feeds().size(); ++i) {
    const Tensor& tensor = known(feeds, program.graph().value(program.feeds()[i]).name);
    states[static_cast<std::size_t>(program.feeds()[i])] =
        tensor_state(DataType::Float, tensor.dims);
    borders.push_back({program.feeds()[i], kHostSpace, -1});
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
      plan_segment(program, 0, states, borders, std::vector<bool>(program.fetches().size()));
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

/// Whether a session can have the provider's first device.
bool has_device(const std::string& provider) {
  const std::vector<PluginRow> rows = environment()->plugins().rows();
  return std::any_of(rows.begin(), rows.end(), [&](const PluginRow& row) {
    return row.provider == provider && !row.devices.empty();
  });
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
    for (const Json& copy : explanation["copies"]) bytes += copy["bytes"].get<std::uint64_t>();
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

TEST_F(RandomPlacement, GeneratedControlFlow) {
  for (std::uint64_t seed = 1; seed <= placements(80) && !HasFailure(); ++seed) {
    const RandomFlow flow(seed);
    Random random(seed);
    const std::vector<std::string> taken = nodes_taken(flow.model());
    ASSERT_FALSE(taken.empty());
    const Placement placement = random_placement(taken, random);
    std::string words;
    for (const auto& [node, provider] : placement) words += node + " on " + provider + "\n";
    SCOPED_TRACE(text("seed ", seed, "\n", flow.describe(), words));
    const Tensors want = run_on_cpu(flow.model(), flow.feeds());
    MixedSession session(flow.model(), placement, options_for(seed, seed % 5 == 0));
    EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "first run";
    EXPECT_EQ(difference(session.run(flow.feeds()), want), "") << "second run";
    EXPECT_EQ(findings(), "");
    const Json explanation = Json::parse(session.core().explain());
    expect_single_copies(explanation);
    for (const Json& row : explanation["nodes"]) {
      const auto placed = placement.find(bare(row["name"].get<std::string>()));
      if (placed == placement.end() || row["provider"].is_null()) continue;
      EXPECT_EQ(row["provider"], placed->second) << row["name"];
    }
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The weights of the package's models are nodes that fill them with one number; here they are weights, so that ONNX
/// knows the shapes of all values.
std::string with_weights(const std::string& bytes) {
  ::onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) invalid("the model cannot be read");
  ::onnx::GraphProto& graph = *model.mutable_graph();
  std::map<std::string, Dims> shapes;
  for (const ::onnx::TensorProto& tensor : graph.initializer()) {
    if (tensor.data_type() != ::onnx::TensorProto::INT64) continue;
    Dims shape(tensor.int64_data().begin(), tensor.int64_data().end());
    if (tensor.has_raw_data()) {
      shape.resize(tensor.raw_data().size() / sizeof(std::int64_t));
      std::memcpy(shape.data(), tensor.raw_data().data(), tensor.raw_data().size());
    }
    shapes[tensor.name()] = std::move(shape);
  }
  ::onnx::GraphProto kept;
  for (const ::onnx::NodeProto& node : graph.node()) {
    if (node.op_type() != "ConstantOfShape" || !shapes.contains(node.input(0))) {
      *kept.add_node() = node;
      continue;
    }
    const ::onnx::TensorProto& value = node.attribute(0).t();
    const float number = value.float_data_size() > 0
                             ? value.float_data(0)
                             : *reinterpret_cast<const float*>(value.raw_data().data());
    ::onnx::TensorProto& weight = *graph.add_initializer();
    weight.set_name(node.output(0));
    weight.set_data_type(::onnx::TensorProto::FLOAT);
    const Dims& dims = shapes[node.input(0)];
    for (const std::int64_t dim : dims) weight.add_dims(dim);
    const std::vector<float> elements(static_cast<std::size_t>(element_count(dims)), number);
    weight.set_raw_data(elements.data(), elements.size() * sizeof(float));
  }
  graph.mutable_node()->Swap(kept.mutable_node());
  return model.SerializeAsString();
}

/// A real network: its nodes, and what a run of it copies for a placement.
class Network {
 public:
  explicit Network(std::string model) : model_(std::move(model)), taken_(nodes_taken(model_)) {
    MixedSession session(model_, {}, {}, {"cpu"});
    const Graph& graph = session.core().model().graph;
    const Json explanation = Json::parse(session.core().explain());
    for (const Json& row : explanation["nodes"]) {
      if (row["provider"] == "cpu" && row.contains("inputs")) rows_.push_back(row);
    }
    for (const ValueId input : session.core().inputs()) {
      Dims dims;
      for (const Dim& dim : *graph.value(input).type.shape)
        dims.push_back(dim.known() ? dim.size : 2);
      feeds_[graph.value(input).name] = random_tensor(dims, 3);
    }
    for (const ValueId output : session.core().outputs()) outputs_.insert(graph.value(output).name);
    want_ = session.run(feeds_);
    for (const Json& row : rows_) {
      for (const Json& name : row["outputs"]) note_size(graph, name.get<std::string>());
      if (row["op"] == "Conv") products_[row["name"]] = products_of(graph, row);
    }
  }

  const std::string& model() const { return model_; }
  const Tensors& feeds() const { return feeds_; }
  const Tensors& want() const { return want_; }

  /// The fake devices' convolutions are slow: they get few large ones. Everything else goes anywhere.
  Placement placement(Random& random) const {
    Placement placement = random_placement(taken_, random);
    std::vector<std::string> large;
    for (const auto& [node, products] : products_) large.push_back(node);
    std::shuffle(large.begin(), large.end(), random);
    std::int64_t left = is_full() ? 30'000'000 : 10'000'000;
    for (const std::string& node : large) {
      if (placement[node] == "cpu") continue;
      if (known(products_, node) > left) {
        placement[node] = "cpu";
      } else {
        left -= known(products_, node);
      }
    }
    return placement;
  }

  /// Each value once to every other memory where it is read; from one fake device to the other over the host.
  Copies copies(const Placement& placement) const {
    const auto place_of = [&](const std::string& node) {
      const auto placed = placement.find(node);
      return placed != placement.end() ? placed->second : std::string("cpu");
    };
    std::map<std::string, std::string> maker;
    std::map<std::string, std::set<std::string>> readers;
    for (const auto& [name, tensor] : feeds_) maker[name] = "cpu";
    for (const Json& row : rows_) {
      for (const Json& name : row["outputs"]) maker[name] = place_of(row["name"]);
      maker.erase("");  // outputs that are left out
    }
    for (const Json& row : rows_) {
      for (const Json& name : row["inputs"]) readers[name].insert(place_of(row["name"]));
    }
    for (const std::string& name : outputs_) readers[name].insert("cpu");
    Copies copies;
    for (const auto& [name, made] : maker) {
      std::set<std::string> targets = readers[name];
      targets.erase(made);
      if (targets.empty()) continue;
      const bool on_device = made != "cpu";
      if (on_device && !targets.empty()) targets.insert("cpu");
      copies.bytes += known(bytes_, name) * targets.size();
      copies.to_host += on_device && targets.contains("cpu") ? 1 : 0;
      copies.to_device += targets.size() - (targets.contains("cpu") ? 1 : 0);
    }
    return copies;
  }

 private:
  static Dims dims_of(const Graph& graph, const std::string& name) {
    const Type& type = graph.value(graph.find_value(name)).type;
    if (!type.shape) invalid("the test does not know the shape of '", name, "'");
    Dims dims;
    for (const Dim& dim : *type.shape) dims.push_back(dim.known() ? dim.size : 2);
    return dims;
  }

  static std::int64_t products_of(const Graph& graph, const Json& row) {
    const Dims weight = dims_of(graph, row["inputs"][1].get<std::string>());
    const Dims made = dims_of(graph, row["outputs"][0].get<std::string>());
    return element_count(made) * element_count(weight) / weight.at(0);
  }

  void note_size(const Graph& graph, const std::string& name) {
    for (const auto& [feed, tensor] : feeds_)
      bytes_[feed] = static_cast<std::uint64_t>(element_count(tensor.dims)) * sizeof(float);
    if (name.empty() || !graph.value(graph.find_value(name)).type.shape) return;
    const auto bytes =
        static_cast<std::uint64_t>(element_count(dims_of(graph, name))) * sizeof(float);
    bytes_[name] = bytes;
  }

  std::string model_;
  std::vector<std::string> taken_;
  std::vector<Json> rows_;
  Tensors feeds_, want_;
  std::set<std::string> outputs_;
  std::map<std::string, std::int64_t> products_;
  std::map<std::string, std::uint64_t> bytes_;
};

void check_network(const Network& network, std::uint64_t seed) {
  Random random(seed);
  const Placement placement = network.placement(random);
  ASSERT_FALSE(placement.empty());
  SCOPED_TRACE(text("seed ", seed));
  MixedSession session(network.model(), placement, options_for(seed, false));
  session.run(network.feeds());  // uploads weights, where shapes are known only now
  EXPECT_EQ(findings(), "");
  fakegpu().reset();
  EXPECT_EQ(difference(session.run(network.feeds()), network.want()), "");
  expect_least_copies(network.copies(placement), false);
  EXPECT_EQ(findings(), "");
  check_arenas(session, network.feeds(), network.want());
}

TEST_F(RandomPlacement, DigitsNetwork) {
  const Network digits(read_file(BACKPLANE_TEST_SOURCE_DIR "/tests/data/digits/digits.onnx"));
  for (std::uint64_t seed = 1; seed <= placements(12) && !HasFailure(); ++seed)
    check_network(digits, seed);
}

TEST_F(RandomPlacement, NetworksOfTheOnnxPackage) {
  const std::filesystem::path folder = BACKPLANE_TEST_LIGHT_MODELS;
  ASSERT_TRUE(std::filesystem::exists(folder)) << folder << ": run tools/setup";
  std::vector<std::string> names{"squeezenet", "shufflenet"};
  if (is_full()) {
    for (const char* more :
         {"inception_v1", "inception_v2", "densenet121", "resnet50", "bvlc_alexnet", "zfnet512"})
      names.emplace_back(more);
  }
  const std::uint64_t each = placements(6) / names.size();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Network network(with_weights(read_file(folder / ("light_" + name + ".onnx"))));
    for (std::uint64_t seed = 1; seed <= each && !HasFailure(); ++seed)
      check_network(network, seed);
  }
}

}  // namespace
}  // namespace backplane::core::faults

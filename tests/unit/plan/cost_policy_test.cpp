// The cost policy on small graphs whose costs are easy to add up.
#include "core/plan/cost_policy.hpp"

#include <random>

#include "core/plan/cost_model.hpp"
#include "core/plan/placement.hpp"
#include "tests/unit/plan/stub_device.hpp"

namespace backplane::core {
namespace {

constexpr int kFast = 0, kHost = 1;

/// A fast device with memory of its own, as far as costs go, and the host.
class CostPolicy : public ::testing::Test {
 protected:
  CostPolicy() {
    // Both stubs are on host memory; the model is told otherwise by `spaces`.
    set_.devices.resize(2);
    set_.devices[0].device = fast_.open(nullptr);
    set_.devices[1].device = host_.open(nullptr);
  }

  CostModel model(double copy_us) const {
    CostModel made(set_, {1, kHostSpace});
    made.set_host_copies(kFast, {copy_us * 1000, 1}, {copy_us * 1000, 1});
    return made;
  }

  int value(int maker, std::uint64_t bytes = 0) {
    CostedValue made;
    made.maker = maker;
    made.bytes = bytes;
    graph_.values.push_back(std::move(made));
    return static_cast<int>(graph_.values.size()) - 1;
  }

  /// A node that reads `inputs` and makes a value, which is returned; microseconds on the fast device and on the host.
  int node(const std::vector<int>& inputs, double fast_us, double host_us,
           std::uint64_t bytes = 0) {
    const auto id = static_cast<int>(graph_.nodes.size());
    CostedNode made;
    made.name = "n" + std::to_string(id);
    made.exec_ns = {fast_us * 1000, host_us * 1000};
    made.device = fast_us >= 0 ? kFast : kHost;
    made.values = inputs;
    for (const int input : inputs)
      graph_.values[static_cast<std::size_t>(input)].readers.push_back({id, false});
    graph_.nodes.push_back(std::move(made));
    const int output = value(id, bytes);
    graph_.nodes.back().values.push_back(output);
    return output;
  }

  std::vector<Move> run(double copy_us) {
    return find_cheaper(graph_, model(copy_us), {"fast", "host"});
  }
  int device(int id) const { return graph_.nodes[static_cast<std::size_t>(id)].device; }

  StubProvider fast_{"fast"}, host_{"host"};
  DeviceSet set_;
  CostedGraph graph_;
};

TEST_F(CostPolicy, AnIslandThatDoesNotPayForItsCopiesMoves) {
  const int x = value(-1);
  const int a = node({x}, -1, 5);
  const int b = node({a}, 1, 4);
  const int c = node({b}, 1, 4);
  graph_.values[static_cast<std::size_t>(node({c}, -1, 5))].is_fetched = true;
  const std::vector<Move> moves = run(10);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(device(1), kHost);
  EXPECT_EQ(device(2), kHost);
  EXPECT_EQ(moves[0].from, kFast);
  EXPECT_EQ(moves[0].to, kHost);
  EXPECT_EQ(moves[0].why,
            "it and the 1 nodes with it, from 'n1' on, take 2.0 us on fast and 20.0 us of copies; "
            "on host 8.0 us and 0.0 us");
}

TEST_F(CostPolicy, AnIslandThatPaysForItsCopiesStays) {
  const int x = value(-1);
  const int a = node({x}, -1, 5);
  const int b = node({a}, 1, 40);
  graph_.values[static_cast<std::size_t>(node({b}, -1, 5))].is_fetched = true;
  EXPECT_TRUE(run(10).empty());
  EXPECT_EQ(device(1), kFast);
}

TEST_F(CostPolicy, LargeValuesCostMoreThanSmallOnes) {
  const int x = value(-1, 100'000);  // at 1 byte a nanosecond: 100 us
  graph_.values[static_cast<std::size_t>(node({x}, 1, 60))].is_fetched = true;
  EXPECT_EQ(run(1).size(), 1u);
  EXPECT_EQ(device(0), kHost);
}

TEST_F(CostPolicy, ANodeThatOneDeviceTakesStaysThere) {
  const int x = value(-1);
  const int a = node({x}, 1, -1);
  graph_.values[static_cast<std::size_t>(a)].is_fetched = true;
  EXPECT_TRUE(run(1000).empty());
}

TEST_F(CostPolicy, AValueThatTheHostReadsIsMadeThere) {
  const int x = value(-1);
  const int shape = node({x}, 2, 1, 16);
  const int y = node({x}, 1, 500);
  graph_.values[static_cast<std::size_t>(shape)].readers.push_back({1, true});
  graph_.nodes[1].values.push_back(shape);
  graph_.values[static_cast<std::size_t>(y)].is_fetched = true;
  const std::vector<Move> moves = run(10);
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].node, 0);
  EXPECT_EQ(device(1), kFast);
}

TEST_F(CostPolicy, RandomGraphsNeverCostMoreAndAlwaysEndTheSameWay) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    graph_ = CostedGraph();
    std::vector<int> values{value(-1, random() % 5000), value(-1, random() % 5000)};
    for (int i = 0; i < 30; ++i) {
      const double fast = random() % 6 == 0 ? -1 : static_cast<double>(random() % 20);
      const double host = fast >= 0 && random() % 6 == 0 ? -1 : static_cast<double>(random() % 40);
      const int a = values[random() % values.size()];
      values.push_back(node({a}, fast, host, random() % 5000));
    }
    for (const int made : values)
      graph_.values[static_cast<std::size_t>(made)].is_fetched = random() % 4 == 0;
    const CostedGraph start = graph_;
    const double before = total_ns(graph_, model(5));
    const std::vector<Move> moves = run(5);
    EXPECT_LE(total_ns(graph_, model(5)), before * (1 + 1e-9)) << "seed " << seed;
    for (const CostedNode& placed : graph_.nodes)
      EXPECT_GE(placed.exec_ns[static_cast<std::size_t>(placed.device)], 0) << "seed " << seed;
    const CostedGraph first = graph_;
    graph_ = start;
    EXPECT_EQ(run(5).size(), moves.size());
    for (std::size_t i = 0; i < first.nodes.size(); ++i)
      EXPECT_EQ(graph_.nodes[i].device, first.nodes[i].device) << "seed " << seed;
  }
}

}  // namespace
}  // namespace backplane::core

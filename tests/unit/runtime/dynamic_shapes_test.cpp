// Shapes that come with a run: plans by shape in a bounded cache, segments, shape arithmetic.
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <utility>

#include "core/runtime/session.hpp"
#include "tests/unit/runtime/model_maker.hpp"

namespace backplane::core {
namespace {

using runtime_test::ModelMaker;
using Dims = std::vector<std::int64_t>;
using Feeds = std::vector<std::pair<std::string, const RuntimeValue*>>;

std::shared_ptr<Environment> environment() {
  static const std::shared_ptr<Environment> shared = [] {
    EnvironmentOptions options;
    options.threads = 2;
    options.log_level = "error";
    options.plugin_path = {BACKPLANE_TEST_PLUGIN_DIR, BACKPLANE_TEST_FIXTURES_DIR};
    return std::make_shared<Environment>(options, Logger::Sink());
  }();
  return shared;
}

template <class T>
std::unique_ptr<RuntimeValue> tensor(DataType type, const Dims& dims,
                                     const std::vector<T>& elements) {
  auto value = std::make_unique<RuntimeValue>();
  value->set_owned_tensor(type, dims);
  if (!elements.empty())
    std::memcpy(value->description.host_ptr, elements.data(), elements.size() * sizeof(T));
  return value;
}
std::unique_ptr<RuntimeValue> floats(const Dims& dims, const std::vector<float>& elements) {
  return tensor(DataType::Float, dims, elements);
}
std::unique_ptr<RuntimeValue> ones(std::int64_t size) {
  return floats({size}, std::vector<float>(static_cast<std::size_t>(size), 1.0f));
}

template <class T>
std::vector<T> elements(const RuntimeValue& value) {
  const auto* first = static_cast<const T*>(value.description.host_ptr);
  const std::size_t count = value.description.bytes / sizeof(T);
  return count > 0 ? std::vector<T>(first, first + count) : std::vector<T>();
}

/// A model whose output is "y".
class DynamicShapes : public ::testing::Test {
 protected:
  void open(const ModelMaker& maker, std::size_t plan_cache = 16,
            const std::vector<std::string>& providers = {"cpu"}) {
    bytes_ = maker.bytes();
    SessionOptions options;
    for (const std::string& provider : providers) options.providers.push_back({provider, {}});
    options.optimization = OptimizationLevel::None;
    options.plan_cache = plan_cache;
    session_ =
        std::make_unique<Session>(environment(), "", std::as_bytes(std::span(bytes_)), options);
  }
  std::unique_ptr<RuntimeValue> run(const Feeds& feeds) {
    std::vector<NamedValue> named;
    for (const auto& [name, value] : feeds)
      named.push_back({name, const_cast<RuntimeValue*>(value)});
    auto y = std::make_unique<RuntimeValue>();
    session_->run(named, {{"y", y.get()}});
    return y;
  }
  std::shared_ptr<Generation> generation(const std::vector<std::string>& feeds) {
    return session_->route(feeds, {"y"}).executable->generation();
  }
  std::uint64_t plan_count(const std::vector<std::string>& feeds) {
    return generation(feeds)->plan_count.load();
  }

  std::string bytes_;
  std::unique_ptr<Session> session_;
};

class PlanCache : public DynamicShapes {
 protected:
  void open_negation(std::size_t plan_cache) {
    ModelMaker maker;
    open(maker.input("x", {"n"}).node("Neg", {"x"}, "y").output("y"), plan_cache);
  }
  /// Runs with `count` sizes; returns how many plans are kept.
  std::size_t kept_of(std::int64_t count) {
    for (std::int64_t size = 1; size <= count; ++size) run_with(size);
    return generation({"x"})->plans.next.size();
  }
  void run_with(std::int64_t size) { EXPECT_EQ(run({{"x", ones(size).get()}})->dims, Dims{size}); }
  std::uint64_t plans() { return plan_count({"x"}); }
};

TEST_F(PlanCache, HoldsAPlanForEveryShape) {
  open_negation(16);
  EXPECT_EQ(plans(), 0u) << "no shape is known before the first run";
  for (const std::int64_t size : {4, 5, 4, 4, 5, 0, 0}) run_with(size);
  EXPECT_EQ(plans(), 3u);
}

TEST_F(PlanCache, FixedShapesArePlannedWhenTheSessionIsMade) {
  ModelMaker maker;
  open(maker.input("x", {"4"}).node("Neg", {"x"}, "y").output("y"));
  EXPECT_EQ(plans(), 1u);
  for (int i = 0; i < 3; ++i) run_with(4);
  EXPECT_EQ(plans(), 1u);
}

TEST_F(PlanCache, IsBounded) {
  open_negation(3);
  for (std::int64_t size = 1; size <= 10; ++size) {
    run_with(size);
    EXPECT_LE(generation({"x"})->plans.next.size(), 3u);
  }
  EXPECT_EQ(plans(), 10u);
}

TEST_F(PlanCache, ShapesThatNeverComeAgainTakeTurns) {
  open_negation(3);
  for (const std::int64_t size : {1, 2, 3, 1, 2, 3}) run_with(size);
  EXPECT_EQ(plans(), 3u);
  for (std::int64_t size = 4; size <= 10; ++size) run_with(size);
  EXPECT_EQ(plans(), 10u);
  for (const std::int64_t size : {9, 10, 3}) run_with(size);
  EXPECT_EQ(plans(), 10u) << "that of 3 stayed; a session's last plan is not changed, so two did";
}

TEST_F(PlanCache, AShapeThatComesAgainTakesTheOldestPlan) {
  open_negation(3);
  for (const std::int64_t size : {1, 2, 3, 1, 2, 3}) run_with(size);
  for (const std::int64_t size : {4, 5, 6, 4}) run_with(size);
  EXPECT_EQ(plans(), 7u) << "6 took the place of 4, and 4 that of 3";
  for (const std::int64_t size : {5, 6, 4}) run_with(size);
  EXPECT_EQ(plans(), 7u);
  run_with(3);
  EXPECT_EQ(plans(), 8u);
}

TEST_F(PlanCache, MoreShapesInTurnThanAreKeptStillFindMostOfTheirPlans) {
  open_negation(20);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t size = 1; size <= 25; ++size) run_with(size);
  }
  const std::uint64_t before = plans();
  for (std::int64_t size = 1; size <= 25; ++size) run_with(size);
  EXPECT_EQ(plans(), before + 7) << "18 are found, and two places serve the others";
}

TEST_F(PlanCache, HoldsHundredsOfASmallModelWhereNoNumberIsGiven) {
  open_negation(0);
  EXPECT_LE(kept_of(200), 18u) << "shapes that come once need no plans of their own";
  for (int i = 0; i < 3; ++i) kept_of(200);
  const std::uint64_t before = plans();
  EXPECT_EQ(kept_of(200), 200u);
  EXPECT_EQ(plans(), before);
  for (int i = 0; i < 3; ++i) kept_of(300);
  EXPECT_EQ(kept_of(300), 256u);
}

TEST_F(PlanCache, HoldsFewerOfALargerModel) {
  ModelMaker maker;
  maker.input("x", {"n"});
  const int nodes = 200;
  std::string before = "x";
  for (int i = 0; i < nodes; ++i) {
    const std::string after = i + 1 == nodes ? "y" : "v" + std::to_string(i);
    maker.node("Round", {before}, after);
    before = after;
  }
  open(maker.output("y"), 0);
  kept_of(30);
  EXPECT_EQ(kept_of(30), 4096u / nodes);
}

TEST_F(PlanCache, HoldsFewWhereADeviceHasMemoryOfItsOwn) {
  for (const std::vector<std::string>& providers :
       {std::vector<std::string>{"fakegpu", "cpu"}, {"fakegpu"}, {"null", "cpu"}}) {
    ModelMaker maker;
    open(maker.input("x", {"n"}).node("Relu", {"x"}, "y").output("y"), 0, providers);
    kept_of(20);
    EXPECT_EQ(kept_of(20), providers[0] == "null" ? 20u : 16u);
  }
}

TEST_F(PlanCache, OfOnePlanWorks) {
  open_negation(1);
  for (int round = 0; round < 3; ++round) {
    run_with(2);
    run_with(3);
  }
  EXPECT_EQ(plans(), 6u);
  EXPECT_EQ(generation({"x"})->plans.next.size(), 1u);
}

/// A plan that made room ends, and with it what it held.
TEST_F(PlanCache, GivesPlansBack) {
  open_negation(1);
  run_with(2);
  const std::weak_ptr<const Segment> first = generation({"x"})->plans.next.front().node->segment;
  EXPECT_FALSE(first.expired());
  run_with(3);
  EXPECT_TRUE(first.expired());
}

TEST_F(PlanCache, AFedShapeIsPartOfTheKey) {
  ModelMaker maker;
  maker.input("x", {"n", "m"}).input("shape", {"2"}, ModelMaker::kInt64);
  open(maker.node("Reshape", {"x", "shape"}, "z").node("Neg", {"z"}, "y").output("y"));
  const auto feed = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const Dims& dims : {Dims{3, 2}, Dims{6, 1}, Dims{3, 2}, Dims{1, -1}}) {
    const auto shape = tensor(DataType::Int64, {2}, dims);
    const auto y = run({{"x", feed.get()}, {"shape", shape.get()}});
    EXPECT_EQ(y->dims, dims == Dims({1, -1}) ? Dims({1, 6}) : dims);
    EXPECT_EQ(elements<float>(*y)[5], -6.0f);
  }
  EXPECT_EQ(plan_count({"x", "shape"}), 3u) << "one plan for each shape that was fed";
}

TEST_F(PlanCache, FeedsThatNoShapeDependsOnAreNotPartOfTheKey) {
  ModelMaker maker;
  maker.input("x", {"n"}).input("i", {"m"}, ModelMaker::kInt64);
  open(maker.node("Gather", {"x", "i"}, "y", 0).output("y"));
  const auto x = floats({3}, {10, 20, 30});
  for (const std::int64_t index : {0, 2, 1}) {
    const auto i = tensor(DataType::Int64, {1}, std::vector<std::int64_t>{index});
    EXPECT_EQ(elements<float>(*run({{"x", x.get()}, {"i", i.get()}}))[0],
              10.0f * static_cast<float>(index + 1));
  }
  EXPECT_EQ(plan_count({"x", "i"}), 1u);
}

class ShapeArithmetic : public DynamicShapes {};

TEST_F(ShapeArithmetic, IsDoneWhilePlanning) {
  ModelMaker maker;  // y = -Reshape(x, [Shape(x)[1], Shape(x)[0]])
  maker.input("x", {"n", "m"}).ints("swapped", {1, 0});
  maker.node("Shape", {"x"}, "dims").node("Gather", {"dims", "swapped"}, "target", 0);
  maker.node("Reshape", {"x", "target"}, "z").attribute("allowzero", 1);
  open(maker.node("Neg", {"z"}, "y").output("y"));
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    const Dims dims{static_cast<std::int64_t>(random() % 9),
                    static_cast<std::int64_t>(random() % 9)};
    std::vector<float> x(static_cast<std::size_t>(dims[0] * dims[1]));
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k);
    const auto y = run({{"x", floats(dims, x).get()}});
    EXPECT_EQ(y->dims, (Dims{dims[1], dims[0]}));
    for (float& element : x) element = -element;
    EXPECT_EQ(elements<float>(*y), x);
  }
  const std::shared_ptr<const Segment> segment =
      generation({"x"})->plans.next.front().node->segment;
  EXPECT_EQ(segment->evaluated.size(), 2u) << "Shape and Gather";
  EXPECT_TRUE(segment->is_last);
}

/// Shapes that follow from data: each run has as many segments as it needs.
class Segments : public DynamicShapes {
 protected:
  static std::size_t depth(const PlanNode& from) {
    std::size_t deepest = 0;
    for (const PlanList::Entry& next : from.next)
      deepest = std::max(deepest, 1 + depth(*next.node));
    return deepest;
  }
};

TEST_F(Segments, NonZeroEndsOne) {
  ModelMaker maker;  // y = 2 * positions of what is not 0
  maker.input("x", {"n"}).node("NonZero", {"x"}, "where").node("Transpose", {"where"}, "indices");
  maker.node("Cast", {"indices"}, "z").attribute("to", ModelMaker::kFloat);
  open(maker.node("Add", {"z", "z"}, "y").output("y"));
  for (const std::vector<float>& x :
       {std::vector<float>{0, 1, 0, 2}, {1, 1, 1, 1}, {0, 0, 0, 0}, {3, 0, 0}, {}}) {
    const auto y = run({{"x", floats({static_cast<std::int64_t>(x.size())}, x).get()}});
    std::vector<float> want;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0) want.push_back(2 * static_cast<float>(i));
    }
    EXPECT_EQ(elements<float>(*y), want);
    EXPECT_EQ(y->dims, (Dims{static_cast<std::int64_t>(want.size()), 1}));
  }
  const auto first = generation({"x"})->plans.next.front().node;
  EXPECT_FALSE(first->segment->is_last);
  EXPECT_EQ(first->next.size(), 1u);
  EXPECT_TRUE(first->next.front().node->segment->is_last);
}

/// NonZero -> Gather -> ... twice over: what the second finds depends on what the first gathered.
TEST_F(Segments, FollowEachOther) {
  ModelMaker maker;  // y = those of x that are not 0 and larger than 2, times w
  maker.input("x", {"n"}).weight("two", {1}, {2}).weight("w", {1}, {10}).ints("flat", {-1});
  maker.node("NonZero", {"x"}, "at").node("Reshape", {"at", "flat"}, "places");
  maker.node("Gather", {"x", "places"}, "kept", 0).node("Greater", {"kept", "two"}, "large");
  maker.node("NonZero", {"large"}, "at2").node("Reshape", {"at2", "flat"}, "places2");
  maker.node("Gather", {"kept", "places2"}, "chosen", 0);
  open(maker.node("Mul", {"chosen", "w"}, "y").output("y"));
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    std::vector<float> x(random() % 7), want;
    for (float& element : x) {
      element = static_cast<float>(random() % 5);
      if (element > 2) want.push_back(10 * element);
    }
    const auto y = run({{"x", floats({static_cast<std::int64_t>(x.size())}, x).get()}});
    EXPECT_EQ(elements<float>(*y), want);
    EXPECT_EQ(y->dims, Dims{static_cast<std::int64_t>(want.size())});
  }
  EXPECT_EQ(depth(generation({"x"})->plans), 3u);
}

TEST_F(Segments, ThatFollowAreCachedByWhatWasFound) {
  ModelMaker maker;
  maker.input("x", {"n"}).node("NonZero", {"x"}, "at").node("Neg", {"at"}, "y");
  open(maker.output("y", ModelMaker::kInt64), 2);
  const auto run_with = [&](const std::vector<float>& x) {
    return run({{"x", floats({static_cast<std::int64_t>(x.size())}, x).get()}})->dims[1];
  };
  EXPECT_EQ(run_with({0, 0, 1}), 1);
  EXPECT_EQ(plan_count({"x"}), 2u);
  EXPECT_EQ(run_with({1, 0, 0}), 1);
  EXPECT_EQ(plan_count({"x"}), 2u) << "as many as before, elsewhere";
  EXPECT_EQ(run_with({1, 1, 0}), 2);
  EXPECT_EQ(run_with({1, 1, 1}), 3);
  EXPECT_EQ(plan_count({"x"}), 4u);
  EXPECT_EQ(generation({"x"})->plans.next.front().node->next.size(), 2u) << "bounded, too";
  EXPECT_EQ(run_with({0, 0, 1}), 1);
  EXPECT_EQ(plan_count({"x"}), 5u);
}

/// A shape that a kernel computes from data, too much for planning to do it.
TEST_F(Segments, AComputedShapeEndsOne) {
  ModelMaker maker;  // y = w expanded to as many rows as the largest element of x says
  maker.input("x", {"n", "m"}).weight("w", {1, 2}, {5, 6}).ints("last", {1}).ints("flat", {-1});
  maker.node("ReduceMax", {"x"}, "max").attribute("keepdims", 1);
  maker.node("Reshape", {"max", "flat"}, "largest");
  maker.node("Cast", {"largest"}, "rows").attribute("to", ModelMaker::kInt64);
  maker.node("Concat", {"rows", "last"}, "shape", 0);
  open(maker.node("Expand", {"w", "shape"}, "y").output("y"));
  for (const std::vector<float>& x :
       {std::vector<float>{1, 4, 2}, {3, 0, 1}, {0, 0, 0}, {1, 4, 2}}) {
    const auto rows = static_cast<std::int64_t>(*std::max_element(x.begin(), x.end()));
    const auto y = run({{"x", floats({1, 3}, x).get()}});
    EXPECT_EQ(y->dims, (Dims{rows, 2}));
    for (std::int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(elements<float>(*y)[static_cast<std::size_t>(row) * 2 + 1], 6.0f);
  }
  EXPECT_EQ(depth(generation({"x"})->plans), 2u);
  EXPECT_EQ(plan_count({"x"}), 4u) << "one plan for all of them, and one for each size";
}

TEST_F(Segments, AFailureInALaterOneLeavesTheSessionUsable) {
  ModelMaker maker;  // y = x[x's own elements that are not 0]
  maker.input("x", {"n"}).ints("flat", {-1}).node("NonZero", {"x"}, "at");
  maker.node("Reshape", {"at", "flat"}, "places").node("Gather", {"x", "places"}, "kept", 0);
  maker.node("Cast", {"kept"}, "index").attribute("to", ModelMaker::kInt64);
  open(maker.node("Gather", {"x", "index"}, "y", 0).output("y"));
  const auto good = floats({3}, {0, 2, 1}), bad = floats({3}, {0, 9, 1});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(elements<float>(*run({{"x", good.get()}})), (std::vector<float>{1, 2}));
    try {
      run({{"x", bad.get()}});
      ADD_FAILURE() << "9 is out of range";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Failed);
      EXPECT_NE(error.message().find("'make_y'"), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace backplane::core

// L5, M2: inputs and outputs bound, resized and planned before runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::uint64_t plans_of(const Session& session) {
  return nlohmann::json::parse(session.statistics())["plans"].get<std::uint64_t>();
}

TEST(Binding, L5AnOutputHasMemoryOfItsOwn) {
  const ModelMaker model = ModelMaker()
                               .input("x", {"n"})
                               .node("Neg", {"x"}, {"y"})
                               .node("Abs", {"x"}, {"z"})
                               .output("y")
                               .output("z");
  TestSession session(model);
  std::vector<float> numbers(5, 1.0f);
  const Value x = Value::borrow({4}, numbers.data(), 4);
  std::vector<float> others(4);
  const auto refused = [&](float* y, float* z) {
    std::vector<Value> results;
    results.push_back(Value::borrow({4}, y, 4));
    results.push_back(Value::borrow({4}, z, 4));
    return failure_of([&] { session->run({{"x", x}}, {"y", "z"}, results); });
  };
  for (const auto& [code, text] :
       {refused(numbers.data(), others.data()), refused(others.data(), numbers.data() + 3),
        refused(others.data(), others.data())}) {
    EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
    EXPECT_THAT(text, HasSubstr("are given the same memory"));
  }
  std::vector<float> apart(4);
  EXPECT_EQ(refused(others.data(), apart.data()).first, BACKPLANE_OK);
}

/// Where a kernel works in place on what nothing else reads, an output may lie where its input does.
TEST(Binding, L5AnOutputMayLieInTheInputThatItsKernelWorksOn) {
  const auto run_over = [](const ModelMaker& model, std::vector<float>& numbers) {
    TestSession session(model);
    const Value x = Value::borrow({2, 2}, numbers.data(), 4);
    std::vector<Value> results;
    results.push_back(Value::borrow({2, 2}, numbers.data(), 4));
    return failure_of([&] { session->run({{"x", x}}, {"y"}, results); });
  };
  std::vector<float> numbers{1, -2, 3, -4};
  const ModelMaker negation = ModelMaker().input("x", {2, 2}).node("Neg", {"x"}, {"y"}).output("y");
  EXPECT_EQ(run_over(negation, numbers).second, "");
  EXPECT_THAT(numbers, ElementsAre(-1, 2, -3, 4));
  for (const ModelMaker& model :
       {ModelMaker().input("x", {2, 2}).node("MatMul", {"x", "x"}, {"y"}).output("y"),
        ModelMaker()
            .input("x", {2, 2})
            .node("Neg", {"x"}, {"a"})
            .node("Exp", {"a"}, {"b"})
            .node("Mul", {"x", "b"}, {"c"})
            .node("Transpose", {"c"}, {"y"})
            .output("y")}) {
    const auto [code, text] = run_over(model, numbers);
    EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
    EXPECT_THAT(text, HasSubstr("the output 'y' and the input 'x' are given the same memory"));
    EXPECT_THAT(numbers, ElementsAre(-1, 2, -3, 4));
  }
}

TEST(Binding, L5AnOutputMayNotLieInAnInputThatAnotherKernelWorksOn) {
  TestSession session(ModelMaker()
                          .input("a", {2})
                          .input("b", {2})
                          .node("Neg", {"a"}, {"y"})
                          .node("Abs", {"b"}, {"z"})
                          .output("y")
                          .output("z"));
  std::vector<float> first{1, -2}, second{3, -4};
  const auto run_over = [&](std::vector<float>& y, std::vector<float>& z) {
    std::vector<Value> results;
    results.push_back(Value::borrow({2}, y.data(), 2));
    results.push_back(Value::borrow({2}, z.data(), 2));
    return failure_of([&] {
      session->run(
          {{"a", Value::borrow({2}, first.data(), 2)}, {"b", Value::borrow({2}, second.data(), 2)}},
          {"y", "z"}, results);
    });
  };
  const auto [code, text] = run_over(second, first);
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(text, HasSubstr("are given the same memory"));
  EXPECT_EQ(run_over(first, second).second, "");
  EXPECT_THAT(first, ElementsAre(-1, 2));
  EXPECT_THAT(second, ElementsAre(3, 4));
}

TEST(Binding, M2ResizePlanThenRunOnlyComputes) {
  Probe probe;
  const ModelMaker model =
      ModelMaker().input("x", {"batch", "n"}).output("y").probe("x", "y", probe);
  TestSession session(model);
  Binding binding(*session);
  binding.resize("x", {2, 3});
  binding.plan();
  EXPECT_EQ(probe.prepares, 1u);
  EXPECT_EQ(probe.computes, 0u);
  EXPECT_EQ(plans_of(*session), 1u);
  float* x = binding.input("x").data<float>();
  std::iota(x, x + 6, 0.0f);
  const auto* y = binding.output("y").bytes();
  binding.run();
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(binding.output("y").bytes(), y) << "plan() had given the output its memory";
  EXPECT_EQ(binding.input("x").data<float>(), x) << "the input stays where it is";
  EXPECT_EQ(probe.prepares, 1u);
  EXPECT_EQ(plans_of(*session), 1u);
}

TEST(Binding, M2KernelsCreatedOnceSurviveAResize) {
  Probe probe;
  const ModelMaker model = ModelMaker().input("x", {"batch", 2}).output("y").probe("x", "y", probe);
  TestSession session(model);
  EXPECT_EQ(probe.creates, 1u);
  Binding binding(*session);
  for (const std::int64_t batch : {1, 4, 2, 4, 1, 7}) {
    binding.resize("x", {batch, 2});
    binding.plan();
    binding.run();
    EXPECT_EQ(binding.output("y").dims(), (std::vector<std::int64_t>{batch, 2}));
    EXPECT_THAT(binding.output("y").numbers(), Each(1)) << "a resized input is zeroed";
  }
  EXPECT_EQ(probe.creates, 1u);
  EXPECT_EQ(probe.destroys, 0u);
  EXPECT_EQ(probe.prepares, 4u) << "one for each shape";
}

/// A decoder's step: one input keeps its size, the other grows.
TEST(Binding, M2OnlyWhatHasAnotherSizeIsPreparedAgain) {
  Probe fixed, growing, both;
  const ModelMaker model = ModelMaker()
                               .input("now", {"batch", 2})
                               .input("past", {"length", 2})
                               .output("y")
                               .probe("now", "a", fixed)
                               .probe("past", "b", growing)
                               .node("Add", {"a", "b"}, {"joined"})
                               .probe("joined", "y", both);
  TestSession session(model);
  Binding binding(*session);
  binding.resize("now", {1, 2});
  for (const std::int64_t length : {3, 4, 5, 4, 6}) {
    binding.resize("past", {length, 2});
    binding.run();
    EXPECT_EQ(binding.output("y").dims(), (std::vector<std::int64_t>{length, 2}));
    EXPECT_THAT(binding.output("y").numbers(), Each(3)) << length;
  }
  EXPECT_EQ(fixed.prepares, 1u);
  EXPECT_EQ(growing.prepares, 4u);
  EXPECT_EQ(both.prepares, 4u);
  EXPECT_EQ(plans_of(*session), 4u);
}

/// Values that plans look at are compared by their elements, not by their dims.
TEST(Binding, M2OtherElementsOfAShapeAreAnotherPreparation) {
  const ModelMaker model = ModelMaker()
                               .input("x", {6})
                               .input("dims", {2}, ElementType::Int64)
                               .output("y")
                               .node("Reshape", {"x", "dims"}, {"y"});
  TestSession session(model);
  const Value x = Value::tensor<float>({6}, {0, 1, 2, 3, 4, 5});
  using Dims = std::vector<std::int64_t>;
  for (const Dims& dims : {Dims{2, 3}, Dims{3, 2}, Dims{6, 1}, Dims{2, 3}}) {
    const Value wanted = Value::tensor<std::int64_t>({2}, dims);
    EXPECT_EQ(session->run({{"x", x}, {"dims", wanted}})[0].dims(), dims);
  }
}

/// An arena that is a little too small each time is not made anew each time; where plans are resized, more seldom.
class SlowlyGrowing : public testing::TestWithParam<std::pair<const char*, std::uint64_t>> {};

TEST_P(SlowlyGrowing, M2SizesMoveTheArenaSeldom) {
  const auto [plan_cache, most_moves] = GetParam();
  Options options = cpu_options();
  options.set("plan_cache", plan_cache);
  Probe first, second;
  const ModelMaker model = ModelMaker()
                               .input("x", {"n", 1000})
                               .output("y")
                               .probe("x", "inner", first)
                               .probe("inner", "y", second);
  TestSession session(model, options);
  const auto arenas = [&] {
    return nlohmann::json::parse(session->statistics())["device_allocations"].get<std::uint64_t>();
  };
  Binding binding(*session);
  binding.resize("x", {100, 1000});
  binding.run();
  const std::uint64_t before = arenas();
  for (std::int64_t n = 101; n <= 140; ++n) {
    binding.resize("x", {n, 1000});
    binding.run();
    EXPECT_THAT(binding.output("y").numbers(), Each(2));
  }
  EXPECT_LE(arenas() - before, most_moves);
}

INSTANTIATE_TEST_SUITE_P(Plans, SlowlyGrowing,
                         testing::Values(std::pair{"16", 2u}, std::pair{"0", 3u}));

TEST(Binding, M2RunAfterAResizePlansByItself) {
  Probe probe;
  const ModelMaker model = ModelMaker().input("x", {"batch", 2}).output("y").probe("x", "y", probe);
  TestSession session(model);
  Binding binding(*session);
  binding.plan();
  binding.run();
  binding.resize("x", {3, 2});
  binding.run();
  EXPECT_EQ(binding.output("y").dims(), (std::vector<std::int64_t>{3, 2}));
}

TEST(Binding, M2ABatchCountsAsOneUntilResizedAndSymbolsAgree) {
  const ModelMaker model = ModelMaker()
                               .input("a", {"batch", "n"})
                               .input("b", {"batch", "n"})
                               .output("y")
                               .node("Add", {"a", "b"}, {"y"});
  TestSession session(model);
  Binding binding(*session);
  binding.resize("a", {1, 5});
  binding.plan();
  EXPECT_EQ(binding.input("b").dims(), (std::vector<std::int64_t>{1, 5})) << "n is 5 in a";
  Binding wide(*session);
  wide.resize("b", {3, 2});
  wide.plan();
  EXPECT_EQ(wide.input("a").dims(), (std::vector<std::int64_t>{3, 2}));
}

TEST(Binding, M2AnUnknownDimensionThatIsNoBatchIsAnErrorThatNamesIt) {
  const ModelMaker model =
      ModelMaker().input("words", {"batch", "length"}).output("y").node("Relu", {"words"}, {"y"});
  TestSession session(model);
  Binding binding(*session);
  const auto [code, message] = failure_of([&] { binding.plan(); });
  EXPECT_EQ(code, BACKPLANE_INVALID_ARGUMENT);
  EXPECT_THAT(message, HasSubstr("'words'"));
  EXPECT_THAT(message, HasSubstr("'length'"));
  EXPECT_THAT(message, HasSubstr("resize"));
  binding.resize("words", {1, 7});
  binding.plan();
}

TEST(Binding, M2ResizeIsChecked) {
  const ModelMaker model =
      ModelMaker().input("x", {"batch", 3}).output("y").node("Relu", {"x"}, {"y"});
  TestSession session(model);
  Binding binding(*session);
  const auto message = [&](const char* name, const std::vector<std::int64_t>& dims) {
    return failure_of([&] { binding.resize(name, dims); }).second;
  };
  EXPECT_THAT(message("x", {1, 4}), HasSubstr("[batch,3]"));
  EXPECT_THAT(message("x", {3}), HasSubstr("cannot become"));
  EXPECT_THAT(message("x", {-1, 3}), HasSubstr("dimension 0"));
  EXPECT_THAT(message("xx", {1, 3}), HasSubstr("did you mean 'x'"));
  EXPECT_THAT(message("x", {std::int64_t{1} << 62, 3}), HasSubstr("more elements"));
  EXPECT_EQ(message("x", {0, 3}), "");
  binding.run();
  EXPECT_EQ(binding.output("y").dims(), (std::vector<std::int64_t>{0, 3}));
}

TEST(Binding, M2AModelOfFixedShapesIsPlannedAtLoadAndNeverAgain) {
  Probe probe;
  const ModelMaker model = ModelMaker().input("x", {2, 2}).output("y").probe("x", "y", probe);
  TestSession session(model);
  EXPECT_EQ(probe.prepares, 1u) << "planned when it was loaded";
  EXPECT_EQ(plans_of(*session), 1u);
  Binding binding(*session);
  binding.plan();
  for (int i = 0; i < 5; ++i) binding.run();
  const Value x = Value::tensor<float>({2, 2});
  session->run({{"x", x}});
  EXPECT_EQ(probe.prepares, 1u);
  EXPECT_EQ(plans_of(*session), 1u);
}

TEST(Binding, L5AnInputThatChangesItsShapeElsewhereIsCheckedAgain) {
  // The input of the second binding is the output of the first, which is made anew for another batch.
  const ModelMaker first =
      ModelMaker().input("x", {"batch", 2}).output("y").node("Relu", {"x"}, {"y"});
  const ModelMaker second = ModelMaker().input("x", {2, 2}).output("y").node("Relu", {"x"}, {"y"});
  TestSession one(first), two(second);
  Binding upper(*one), lower(*two);
  upper.resize("x", {2, 2});
  upper.run();
  lower.bind_input("x", upper.output("y"));
  lower.run();
  upper.resize("x", {9, 2});
  upper.run();
  EXPECT_THAT(failure_of([&] { lower.run(); }).second, HasSubstr("[2,2]"));
}

/// The x of [n] and a past of [m], one after the other.
ModelMaker growing() {
  ModelMaker model;
  model.input("past", {"m"}).input("x", {"n"}).output("present");
  model.node("Concat", {"past", "x"}, {"present"});
  ::onnx::AttributeProto* axis = model.proto().mutable_graph()->mutable_node(0)->add_attribute();
  axis->set_name("axis");
  axis->set_type(::onnx::AttributeProto::INT);
  axis->set_i(0);
  return model;
}

TEST(Binding, L5AnOutputThatIsTakenStaysAsItIs) {
  TestSession session(growing());
  Binding binding(*session);
  EXPECT_THAT(failure_of([&] { binding.take_output("present"); }).second,
              HasSubstr("no output 'present'"));
  binding.bind_output("present");
  EXPECT_EQ(binding.take_output("present").get(), nullptr);  // no run has written it
  std::vector<Value> kept;
  kept.push_back(Value::tensor<float>({1}, std::vector<float>{-1}));
  for (int i = 0; i < 4; ++i) {
    binding.bind_input("x", Value::tensor<float>({1}, std::vector<float>{static_cast<float>(i)}));
    binding.bind_input("past", kept.back());
    binding.run();
    kept.push_back(binding.take_output("present"));
    EXPECT_EQ(binding.output("present").kind(), BACKPLANE_KIND_NONE);
  }
  EXPECT_THAT(kept[1].numbers(), ElementsAre(-1, 0));
  EXPECT_THAT(kept[4].numbers(), ElementsAre(-1, 0, 1, 2, 3));
  Value given = Value::tensor<float>({6});
  binding.bind_input("past", kept.back());
  binding.bind_output("present", given);
  binding.run();
  EXPECT_THAT(failure_of([&] { binding.take_output("present"); }).second,
              HasSubstr("'present' is a value that the binding was given"));
  EXPECT_THAT(given.numbers(), ElementsAre(-1, 0, 1, 2, 3, 3));
  EXPECT_THAT(failure_of([&] { binding.take_output("presents"); }).second,
              HasSubstr("did you mean 'present'"));
}

TEST(Binding, L5ABindingForgets) {
  TestSession session(growing());
  Binding binding(*session);
  const Value one = Value::tensor<float>({1}, std::vector<float>{1});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(failure_of([&] { binding.run(); }).second, HasSubstr("'past'"));
    binding.bind_input("past", one);
    binding.bind_input("x", one);
    binding.bind_output("present");
    binding.run();
    EXPECT_THAT(binding.output("present").numbers(), ElementsAre(1, 1));
    binding.clear_inputs();
    EXPECT_THAT(binding.output("present").numbers(), ElementsAre(1, 1));
    binding.clear_outputs();
    EXPECT_EQ(binding.output("present").get(), nullptr);
  }
}

/// The output of one run is the input of the next, in its own memory: not where that has to be larger.
TEST(Binding, L5AnOutputOfTheBindingsOwnMayBeItsInputWhereItsKernelWorksInPlace) {
  TestSession negation(ModelMaker().input("x", {"n"}).node("Neg", {"x"}, {"y"}).output("y"));
  Binding binding(*negation);
  const Value x = Value::tensor<float>({2}, std::vector<float>{1, -2});
  binding.bind_input("x", x);
  binding.bind_output("y");
  binding.run();
  binding.bind_input("x", binding.output("y"));
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(1, -2));
  TestSession session(growing());
  Binding grown(*session);
  grown.bind_input("past", x);
  grown.bind_input("x", x);
  grown.bind_output("present");
  grown.run();
  grown.bind_input("past", grown.output("present"));
  EXPECT_THAT(failure_of([&] { grown.run(); }).second, HasSubstr("given the same memory"));
  EXPECT_THAT(grown.output("present").numbers(), ElementsAre(1, -2, 1, -2));
}

TEST(Binding, L5BoundValuesMayBeDestroyedBeforeTheBinding) {
  const ModelMaker model = ModelMaker().input("x", {2}).output("y").node("Relu", {"x"}, {"y"});
  TestSession session(model);
  Binding binding(*session);
  {
    const Value x = Value::tensor<float>({2}, std::vector<float>{-1, 2});
    binding.bind_input("x", x);
  }
  binding.run();
  EXPECT_THAT(binding.output("y").numbers(), ElementsAre(0, 2));
}

TEST(ArenaPool, M6PlansOfASessionShareOneArenaWhenTheyDoNotRunAtTheSameTime) {
  Probe probe;
  const ModelMaker model = ModelMaker()
                               .input("x", {"n"})
                               .output("y")
                               .probe("x", "a", probe)
                               .probe("a", "b", probe)
                               .probe("b", "y", probe);
  TestSession session(model);
  const auto arenas = [&] { return nlohmann::json::parse(session->memory())["arenas"]; };
  const auto run = [&](std::int64_t size, const std::vector<std::string>& fetches) {
    const Value x = Value::tensor<float>({size});
    session->run({{"x", x}}, fetches);
  };
  run(1000, {});
  const auto before = arenas();
  EXPECT_EQ(before["sets"], 1);
  EXPECT_GE(before["bytes"], 8000) << "a and b";
  run(500, {});      // another shape
  run(1000, {"b"});  // another cut, with a program of its own
  run(250, {"a", "y"});
  EXPECT_EQ(arenas(), before) << "nobody asked for more memory";
}

}  // namespace
}  // namespace backplane::session_test

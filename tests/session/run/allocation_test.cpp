// L5, M2: what a run allocates when its shapes were seen before: nothing. Counts what C++ code of the process allocates.
#include <gtest/gtest.h>

#include "tests/control_flow/counted_new.hpp"
#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

ModelMaker small_net() {
  return ModelMaker()
      .input("x", {"n", 8})
      .input("z", {"n", 8})
      .output("y")
      .weight("w", {8, 8}, std::vector<float>(64, 0.25f))
      .node("MatMul", {"x", "w"}, {"xw"})
      .node("Add", {"xw", "z"}, {"sum"})
      .node("Softmax", {"sum"}, {"y"});
}

template <class Body>
std::uint64_t allocations_of(const Body& body) {
  const std::uint64_t before = core::flow::allocation_count();
  body();
  return core::flow::allocation_count() - before;
}

TEST(Allocations, L5ABindingWithFixedShapesAllocatesNothing) {
  TestSession session(small_net());
  Binding binding(*session);
  binding.resize("x", {4, 8});
  binding.plan();
  binding.run();
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) binding.run();
            }),
            0u);
  session->save({"sum"});
  binding.run();
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) binding.run();
            }),
            0u)
      << "saved values are used again";
}

/// What language models do to queries and keys, which the CPU provider makes one step of.
TEST(Allocations, L5ATurnOfHalvesAllocatesNothing) {
  ModelMaker model;
  model.input("x", {"b", 2, "n", 8}).input("cos", {1, 1, "n", 8}).input("sin", {1, 1, "n", 8});
  model.output("y").ints("begin", {0}).ints("middle", {4}).ints("end", {8}).ints("axis", {3});
  model.node("Slice", {"x", "begin", "middle", "axis"}, {"first"})
      .node("Slice", {"x", "middle", "end", "axis"}, {"second"})
      .node("Neg", {"second"}, {"negated"})
      .node("Concat", {"negated", "first"}, {"turned"});
  ::onnx::AttributeProto* axis = model.proto().mutable_graph()->mutable_node(3)->add_attribute();
  axis->set_name("axis");
  axis->set_type(::onnx::AttributeProto::INT);
  axis->set_i(-1);
  model.node("Mul", {"x", "cos"}, {"plain"})
      .node("Mul", {"turned", "sin"}, {"across"})
      .node("Add", {"plain", "across"}, {"y"});
  TestSession session(model);
  EXPECT_NE(session->explain().find("cpu:rotate"), std::string::npos);
  Binding binding(*session);
  binding.resize("x", {2, 2, 3, 8});
  binding.plan();
  binding.run();
  EXPECT_EQ(allocations_of([&] { binding.run(); }), 0u);
}

TEST(Allocations, M2ShapesThatWereSeenBeforeHitTheCacheAndAllocateNothing) {
  TestSession session(small_net());
  std::vector<Value> x, z;
  for (const std::int64_t rows : {3, 7, 5}) {
    x.push_back(Value::tensor<float>({rows, 8}));
    z.push_back(Value::tensor<float>({rows, 8}));
  }
  Binding binding(*session);
  const auto run = [&](std::size_t i) {
    binding.bind_input("x", x[i]);
    binding.bind_input("z", z[i]);
    binding.run();
  };
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 3; ++i) run(i);
  }
  EXPECT_EQ(allocations_of([&] {
              for (int round = 0; round < 10; ++round) {
                for (std::size_t i = 0; i < 3; ++i) run(i);
              }
            }),
            0u);
}

}  // namespace
}  // namespace backplane::session_test

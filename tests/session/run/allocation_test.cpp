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

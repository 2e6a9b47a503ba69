// M2: shapes that never come again: plans and arenas stay bounded.
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

#ifdef BACKPLANE_SANITIZED
constexpr bool kKeepsFreedMemory = true;  // sanitizers do
constexpr int kShapes = 200;  // 25 times the plans that are kept; growth is told by release
#else
constexpr bool kKeepsFreedMemory = false;
constexpr int kShapes = 1000;
#endif

/// What the process has of the machine's memory.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Attention over [batch,sequence,16], with a product of two inner values.
ModelMaker dynamic_net() {
  ModelMaker model;
  model.input("x", {"batch", "sequence", 16}).output("y");
  model.weight("w", {16, 16}, std::vector<float>(256, 0.125f));
  model.node("MatMul", {"x", "w"}, {"q"}).node("Transpose", {"x"}, {"reversed"});
  ::onnx::AttributeProto* order = model.proto().mutable_graph()->mutable_node(1)->add_attribute();
  order->set_name("perm");
  order->set_type(::onnx::AttributeProto::INTS);
  for (const std::int64_t axis : {0, 2, 1}) order->add_ints(axis);
  return model.node("MatMul", {"q", "reversed"}, {"scores"})
      .node("Softmax", {"scores"}, {"shares"})
      .node("MatMul", {"shares", "x"}, {"y"});
}

TEST(Shapes, M2AThousandRandomShapesKeepPlansAndMemoryBounded) {
  constexpr int kWarm = 100;
  Options options = cpu_options();
  options.set("plan_cache", "8");
  TestSession session(dynamic_net(), options);
  std::mt19937 random(7);
  const auto run = [&](std::int64_t batch, std::int64_t sequence) {
    const Value x = Value::tensor<float>({batch, sequence, 16});
    ASSERT_EQ(session->run({{"x", x}})[0].dims(), x.dims());
  };
  const auto arena_bytes = [&] {
    return nlohmann::json::parse(session->memory())["arenas"]["peak_bytes"].get<std::uint64_t>();
  };
  run(4, 256);  // the largest one: nothing needs more than it
  const std::uint64_t largest = arena_bytes();
  std::uint64_t warm = 0;
  for (int shape = 1; shape <= kShapes; ++shape) {
    run(1 + random() % 4, 1 + random() % 256);
    if (shape == kWarm) warm = resident_bytes();
  }
  EXPECT_EQ(arena_bytes(), largest);
  if (!kKeepsFreedMemory) {
    EXPECT_LT(resident_bytes(), warm + (4u << 20)) << "after " << kShapes << " shapes";
  }
}

}  // namespace
}  // namespace backplane::session_test

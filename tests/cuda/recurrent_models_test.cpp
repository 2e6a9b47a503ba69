// Recurrent layers in models: they stay on the device, and their steps are captured with what stands around them.
#include "tests/cuda/models.hpp"

namespace backplane::ops_test {
namespace {

/// A layer between two element-wise nodes, of sequences of `steps`.
GraphCase between(Random& random, const char* op, std::int64_t gates, std::int64_t steps) {
  constexpr std::int64_t kHidden = 12, kInputs = 6, kBatch = 2;
  GraphWriter g(17, random);
  const std::string x = g.node("Tanh", {g.feed({steps, kBatch, kInputs})});
  const std::string y = g.node(op,
                               {x, g.constant({2, gates * kHidden, kInputs}),
                                g.constant({2, gates * kHidden, kHidden}, -0.3, 0.3)},
                               {{"hidden_size", kHidden}, {"direction", "bidirectional"}});
  return g.done({g.node("Relu", {y})});
}

TEST(CudaModels, StepsOfRecurrentLayersAreCaptured) {
  for (const auto& [op, gates] : {std::pair("LSTM", 4), std::pair("GRU", 3), std::pair("RNN", 1)}) {
    Random random(1);
    const GraphCase graph = between(random, op, gates, 7);
    Session session(model_of(graph, 4), {{"providers", "cuda_stand_in:0"}, {"fallback", "forbid"}});
    Session processor(model_of(graph, 4), {{"providers", "cpu"}});
    const std::vector<Tensor> want = processor.run(graph.feeds, graph.outputs);
    for (int run = 0; run < 4; ++run)
      expect_same(session.run(graph.feeds, graph.outputs), want, 1e-5);
    const std::string text = session.explain();
    EXPECT_NE(text.find("\"state\":\"replayed\""), std::string::npos) << text;
    EXPECT_NE(text.find("cuda:recurrent"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace backplane::ops_test

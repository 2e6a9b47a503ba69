#include "tests/session/threads/generated_graph.hpp"

#include <cstring>

namespace backplane::session_test {
namespace {

/// In [-1, 1).
float number(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

}  // namespace

GeneratedGraph::GeneratedGraph(std::uint64_t seed, bool plain)
    : state_(seed * 0x9E3779B97F4A7C15u + 1) {
  dims_ = {static_cast<std::int64_t>(1 + pick(48)), static_cast<std::int64_t>(1 + pick(96))};
  for (const char* name : {"x0", "x1"}) {
    model_.input(name, {static_cast<int>(dims_[0]), static_cast<int>(dims_[1])});
    values_.emplace_back(name);
  }
  for (std::size_t nodes = 8 + pick(24); nodes > 0; --nodes) add_node(plain);
  for (std::size_t i = values_.size() - 4; i < values_.size(); ++i) model_.output(values_[i]);
}

std::size_t GeneratedGraph::pick(std::size_t count) {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::size_t>((state_ >> 33) % count);
}

void GeneratedGraph::add_node(bool plain) {
  const std::string made = "v" + std::to_string(values_.size());
  switch (pick(plain ? 2 : 6)) {
    case 0:
      model_.node("Add", {any(), any()}, {made});
      break;
    case 1:
      model_.node("Relu", {any()}, {made});
      break;
    case 2:
      model_.node("Mul", {any(), any()}, {made});
      break;
    case 3:
      model_.node("Tanh", {any()}, {made});
      break;
    case 4:
      model_.node("Softmax", {any()}, {made});
      break;
    default: {
      std::vector<float> weight(static_cast<std::size_t>(dims_[1] * dims_[1]));
      for (float& element : weight) element = number(state_) / 4;
      model_.weight("w_" + made, {dims_[1], dims_[1]}, weight);
      model_.node("MatMul", {any(), "w_" + made}, {made});
    }
  }
  values_.push_back(made);
}

std::vector<std::pair<std::string, Value>> GeneratedGraph::feeds(std::uint64_t seed) const {
  std::vector<std::pair<std::string, Value>> values;
  std::uint64_t state = seed + 1;
  for (const char* name : {"x0", "x1"}) {
    std::vector<float> elements(static_cast<std::size_t>(dims_[0] * dims_[1]));
    for (float& element : elements) element = number(state);
    values.emplace_back(name, Value::tensor<float>(dims_, elements));
  }
  return values;
}

Environment threaded_environment(const char* plugins) {
  return Environment(Options()
                         .set("environment.threads", "4")
                         .set("environment.log_level", "error")
                         .set("environment.plugin_path", plugins));
}

std::string difference_of(const Session& sequential, const Session& parallel, int runs,
                          const std::function<Inputs(int run)>& inputs) {
  for (int run = 0; run < runs; ++run) {
    const Inputs values = inputs(run);
    Feeds feeds;
    for (const auto& [name, value] : values) feeds.emplace_back(name, value);
    const std::vector<Value> want = sequential.run(feeds);
    const std::vector<Value> got = parallel.run(feeds);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i].byte_count() != want[i].byte_count() ||
          std::memcmp(got[i].bytes(), want[i].bytes(), want[i].byte_count()) != 0)
        return "output " + std::to_string(i) + " of run " + std::to_string(run);
    }
  }
  return "";
}

std::string difference_of_modes(const Environment& environment, const GeneratedGraph& graph,
                                const char* provider) {
  constexpr int kRuns = 8;
  const std::string bytes = graph.model().bytes();
  const auto open = [&](const char* mode) {
    Options options;
    options.set("providers", provider).set("execution_mode", mode).set("threads", "4");
    return Session(environment, bytes.data(), bytes.size(), options);
  };
  return difference_of(open("sequential"), open("parallel"), kRuns,
                       [&](int run) { return graph.feeds(static_cast<std::uint64_t>(run)); });
}

}  // namespace backplane::session_test

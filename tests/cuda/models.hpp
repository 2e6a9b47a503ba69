// Small models on the provider on the stand-in, as a plugin beside the processor's.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/model_writer.hpp"

namespace backplane::ops_test {

inline constexpr char kDevices[] = "cuda_stand_in:0,cuda_stand_in:1,cpu";

inline Options with(const Options& options) {
  Options all{{"providers", kDevices}};
  all.insert(all.end(), options.begin(), options.end());
  return all;
}

/// Values may differ by what half types round off.
inline void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                        double limit = 1e-2) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].dims, want[i].dims);
    const auto values = to_array(got[i]).values, right = to_array(want[i]).values;
    for (std::size_t j = 0; j < right.size(); ++j) EXPECT_NEAR(values[j], right[j], limit) << j;
  }
}

/// The graph as a model, whose outputs have `rank` axes.
inline std::string model_of(const GraphCase& graph, std::size_t rank) {
  Model model;
  model.opsets[""] = graph.opset;
  for (const Node& node : graph.nodes) {
    model.nodes.push_back(node);
    if (!node.domain.empty()) model.opsets[node.domain] = node.opset;
  }
  for (const auto& [name, tensor] : graph.feeds)
    model.inputs.push_back({name, tensor.type, tensor.dims});
  for (const auto& [name, tensor] : graph.constants) model.initializers.emplace_back(name, tensor);
  for (const std::string& name : graph.outputs)
    model.outputs.push_back({name, ElementType::Float, Dims(rank, -1)});
  return write_model(model);
}

/// The explanation of a model that has run on the provider, with the outputs of the processor's; they have `rank` axes.
inline std::string explain(const GraphCase& graph, std::size_t rank, const Options& options = {}) {
  Session session(model_of(graph, rank), with(options));
  Session processor(model_of(graph, rank), {{"providers", "cpu"}});
  expect_same(session.run(graph.feeds, graph.outputs), processor.run(graph.feeds, graph.outputs));
  return session.explain();
}

/// What the explanation says of a node.
inline std::string part_of(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("{\"name\":\"" + name + "\"");
  return begin == std::string::npos ? "" : text.substr(begin, text.find('}', begin) - begin);
}

}  // namespace backplane::ops_test

#include "tests/ops/cases.hpp"

#include <utility>

#include "tests/reference/reference.hpp"

namespace backplane::ops_test {
namespace {

/// Made at its first use: registrations of other files run in any order.
std::vector<Registered>& list() {
  static std::vector<Registered> all;
  return all;
}

}  // namespace

Input constant(Tensor tensor) {
  Input input(std::move(tensor));
  input.is_constant = true;
  return input;
}

Input absent() { return Input(); }

GraphCase to_graph(const OpCase& row) {
  GraphCase graph;
  graph.name = row.name;
  graph.opset = row.node.opset;
  graph.tolerance = row.tolerance;
  graph.may_be_refused = row.may_be_refused;
  graph.expected = row.outputs;
  graph.refusal = row.refusal;
  graph.device_refusal = row.device_refusal;
  Node node = row.node;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const Input& input = row.inputs[i];
    const std::string name = "x" + std::to_string(i);
    node.inputs.push_back(input.is_absent ? "" : name);
    if (input.is_absent) continue;
    (input.is_constant ? graph.constants : graph.feeds).emplace_back(name, input.tensor);
  }
  const std::size_t outputs = row.outputs.empty() ? row.output_count : row.outputs.size();
  for (std::size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back("y" + std::to_string(i));
    graph.outputs.push_back(node.outputs.back());
  }
  graph.nodes.push_back(std::move(node));
  return graph;
}

Rows::Rows(const char* suite, std::span<const OpCase> rows) {
  for (const OpCase& row : rows) list().push_back({suite, row.name, 1, {to_graph(row)}});
}

Rows::Rows(const char* suite, std::span<const GraphCase> rows) {
  for (const GraphCase& row : rows) list().push_back({suite, row.name, 1, {row}});
}

Sweep::Sweep(const char* suite, const char* name, int count, OpCase (*make)(Random& random)) {
  list().push_back({suite, name, count, {}, make});
}

Sweep::Sweep(const char* suite, const char* name, int count, GraphCase (*make)(Random& random)) {
  list().push_back({suite, name, count, {}, nullptr, make});
}

const std::vector<Registered>& registered() { return list(); }

}  // namespace backplane::ops_test

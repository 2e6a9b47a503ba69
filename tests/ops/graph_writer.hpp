// Small graphs written node by node.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/ops/cases.hpp"

namespace backplane::ops_test {

/// Writes a graph from the top down.
class GraphWriter {
 public:
  GraphWriter(std::int64_t opset, Random& random) : random_(random) { graph_.opset = opset; }

  std::string feed(const Dims& dims, double low = -1, double high = 1) {
    return feed(random_.tensor(ElementType::Float, dims, low, high));
  }
  std::string feed(Tensor tensor) {
    graph_.feeds.emplace_back(next("x"), std::move(tensor));
    return graph_.feeds.back().first;
  }
  std::string constant(const Dims& dims, double low = -1, double high = 1) {
    return constant(random_.tensor(ElementType::Float, dims, low, high));
  }
  std::string constant(Tensor tensor) {
    graph_.constants.emplace_back(next("c"), std::move(tensor));
    return graph_.constants.back().first;
  }
  /// A node with one output, whose name it returns.
  std::string node(const char* op_type, std::vector<std::string> inputs,
                   std::vector<reference::Attribute> attributes = {}) {
    Node n{.op_type = op_type};
    n.attributes = std::move(attributes);
    n.inputs = std::move(inputs);
    n.outputs = {next("v")};
    graph_.nodes.push_back(n);
    return n.outputs[0];
  }
  /// The node that was written last.
  reference::Node& last() { return graph_.nodes.back(); }
  /// A node with `count` outputs.
  std::vector<std::string> nodes(const char* op_type, std::vector<std::string> inputs, int count,
                                 std::vector<reference::Attribute> attributes = {}) {
    node(op_type, std::move(inputs), std::move(attributes));
    Node& made = graph_.nodes.back();
    while (static_cast<int>(made.outputs.size()) < count) made.outputs.push_back(next("v"));
    return made.outputs;
  }
  GraphCase done(std::vector<std::string> outputs, Tolerance tolerance = {256, 2048}) {
    graph_.outputs = std::move(outputs);
    graph_.tolerance = tolerance;
    return graph_;
  }

 private:
  std::string next(const char* prefix) { return prefix + std::to_string(count_++); }

  GraphCase graph_;
  Random& random_;
  int count_ = 0;
};

}  // namespace backplane::ops_test

// Graphs for the tests of passes, and an evaluator that knows a few operators on int64 vectors.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/graph/graph.hpp"
#include "core/passes/passes.hpp"

namespace backplane::core {

using Ints = std::vector<std::int64_t>;

/// Nodes of a large graph. Release has enough to see that time grows faster than nodes do; a sanitizer, whose frames
/// are larger, has enough to see that a pass descends.
#ifdef BACKPLANE_SANITIZED
constexpr int kManyNodes = 25'000;
#else
constexpr int kManyNodes = 100'000;
#endif

inline ConstantPtr ints(const Ints& values) {
  return Constant::copy_of(DataType::Int64, {static_cast<std::int64_t>(values.size())},
                           std::as_bytes(std::span<const std::int64_t>(values)));
}

inline Ints values_of(const Constant& constant) {
  Ints values(constant.bytes().size() / sizeof(std::int64_t));
  if (!values.empty()) std::memcpy(values.data(), constant.bytes().data(), constant.bytes().size());
  return values;
}

class GraphTest : public ::testing::Test {
 protected:
  GraphTest() { options_.verify = true; }

  static NodeId add_to(Graph& graph, const std::string& op, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs, const std::string& name = "") {
    Node node;
    node.name = name;
    node.op_type = op;
    node.since_version = 17;
    node.origins = {static_cast<std::int32_t>(graph.node_limit())};
    for (const auto& input : inputs)
      node.inputs.push_back(input.empty() ? kNone : graph.value_named(input));
    for (const auto& output : outputs)
      node.outputs.push_back(output.empty() ? kNone : graph.value_named(output));
    return graph.add_node(std::move(node));
  }
  NodeId add(const std::string& op, const std::vector<std::string>& inputs,
             const std::vector<std::string>& outputs, const std::string& name = "") {
    return add_to(graph(), op, inputs, outputs, name);
  }
  void set_int(NodeId id, const std::string& name, std::int64_t value) {
    set_ints(id, name, {value}, Attribute::Type::Int);
  }
  void set_ints(NodeId id, const std::string& name, const Ints& values,
                Attribute::Type type = Attribute::Type::Ints) {
    Attribute attribute;
    attribute.type = type;
    attribute.ints = values;
    graph().node(id).attributes[name] = attribute;
  }
  void set_body(NodeId id, std::shared_ptr<Graph> body) {
    Attribute attribute;
    attribute.type = Attribute::Type::Graph;
    attribute.graphs.push_back(std::move(body));
    graph().node(id).attributes["body"] = attribute;
    graph().update_captures();
  }
  void input(const std::string& name) { graph().add_input(graph().value_named(name)); }
  void output(const std::string& name) { graph().add_output(graph().value_named(name)); }
  void initializer(const std::string& name, const Ints& values) {
    graph().add_initializer(graph().value_named(name), ints(values));
  }
  void type(const std::string& name, DataType element, const Ints& dims) {
    value(name).type = Type::tensor(element, dims);
  }

  Graph& graph() { return model_.graph; }
  Value& value(const std::string& name) { return graph().value(graph().value_named(name)); }

  /// Names of the nodes in their order.
  std::vector<std::string> nodes() {
    std::vector<std::string> names;
    for (const NodeId id : topological_order(graph())) names.push_back(graph().node(id).name);
    return names;
  }

  void run(const std::string& only = "", OptimizationLevel level = OptimizationLevel::All) {
    options_.level = level;
    options_.disabled.clear();
    for (const std::string& name : pass_names()) {
      if (!only.empty() && name != only) options_.disabled.insert(name);
    }
    options_.is_random = [](const Node& node) { return node.op_type == "Random"; };
    run_passes(model_, options_,
               [this](const Graph& graph, const Node& node) { return evaluate(graph, node); });
  }

  std::optional<std::vector<ConstantPtr>> evaluate(const Graph& graph, const Node& node) {
    ++evaluations_;
    if (node.op_type == "Fails") throw Error(Code::Failed, "cannot be computed");
    std::vector<Ints> inputs;
    for (const ValueId input : node.inputs)
      inputs.push_back(values_of(*graph.value(input).constant));
    if (node.op_type == "Sum") {
      Ints sum = inputs.at(0);
      for (std::size_t k = 1; k < inputs.size(); ++k) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += inputs[k].at(i);
      }
      return std::vector<ConstantPtr>{ints(sum)};
    }
    if (node.op_type == "Fill")
      return std::vector<ConstantPtr>{ints(Ints(static_cast<std::size_t>(inputs.at(0).at(0)), 1))};
    if (node.op_type == "Count") {
      return std::vector<ConstantPtr>{ints({static_cast<std::int64_t>(inputs.at(0).size())})};
    }
    return std::nullopt;
  }

  Model model_;
  PassOptions options_;
  int evaluations_ = 0;
};

}  // namespace backplane::core

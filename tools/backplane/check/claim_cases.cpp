// Claims of subgraphs: a set of nodes that is compiled whole must be convex.
#include <algorithm>
#include <map>
#include <set>

#include "tools/backplane/check/bare_graph.hpp"
#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

struct Operator {
  std::string name;
  int since = 1;
};

/// A float operator of the registry with so many inputs, out of those that keep the shape.
std::optional<Operator> find_operator(const std::vector<const bp_kernel_def*>& kernels,
                                      const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const bp_kernel_def* def : kernels) {
      if (name == def->op_type && *def->domain == '\0')
        return Operator{name, std::min(def->since_max, std::max(def->since_min, 13))};
    }
  }
  return std::nullopt;
}

/// Graphs in which a careless choice of nodes leaves a gap: chains, a diamond, two paths of different lengths.
class ClaimGraph {
 public:
  ClaimGraph(const Operator& unary, const std::optional<Operator>& binary) {
    graph_.add_input("x", BP_FLOAT, kDims);
    add(unary, {"x"}, "a");
    add(unary, {"a"}, "b");
    add(unary, {"b"}, "c");
    if (binary) {
      add(*binary, {"a", "c"}, "d");
      add(unary, {"d"}, "e");
      add(*binary, {"e", "x"}, "y");
    } else {
      add(unary, {"c"}, "y");
    }
    graph_.mark_output("y");
  }

  const BareGraph& graph() const { return graph_; }
  /// Node `to` reads, over any number of nodes, what `from` makes.
  const std::vector<std::set<std::size_t>>& readers() const { return readers_; }

 private:
  inline static const Dims kDims = {2, 3};

  void add(const Operator& op, const std::vector<std::string>& inputs, const std::string& output) {
    graph_.add_node(op.name, "", op.since, inputs, {{output, BP_FLOAT, kDims}});
    const std::size_t node = graph_.node_count() - 1;
    readers_.emplace_back();
    for (const std::string& input : inputs) {
      const auto producer = made_by_.find(input);
      if (producer != made_by_.end()) readers_[producer->second].insert(node);
    }
    made_by_[output] = node;
  }

  BareGraph graph_;
  std::vector<std::set<std::size_t>> readers_;
  std::map<std::string, std::size_t> made_by_;
};

struct Claim {
  std::string name;
  std::vector<const bp_node*> nodes;
};

/// A path from a claimed node through one that is not back into the claim; "" when there is none.
std::string gap_in(const ClaimGraph& graph, const std::set<std::size_t>& claimed) {
  std::set<std::size_t> outside;  // reached from the claim, not of it
  for (std::size_t node = 0; node < graph.readers().size(); ++node) {  // in topological order
    const bool spreads = claimed.count(node) != 0 || outside.count(node) != 0;
    if (!spreads) continue;
    for (const std::size_t reader : graph.readers()[node]) {
      if (claimed.count(reader) == 0) {
        outside.insert(reader);
      } else if (outside.count(node) != 0) {
        return text("a path leaves it and comes back through node ", node + 1);
      }
    }
  }
  return "";
}

std::string complaint(const ClaimGraph& graph, const std::vector<Claim>& claims) {
  std::set<std::size_t> taken;
  for (const Claim& claim : claims) {
    std::set<std::size_t> nodes;
    if (claim.nodes.empty()) return "claim '" + claim.name + "' has no nodes";
    for (const bp_node* node : claim.nodes) {
      std::size_t index = 0;
      while (index < graph.graph().node_count() && graph.graph().node(index) != node) ++index;
      if (index == graph.graph().node_count())
        return "claim '" + claim.name + "' names a node that was not offered";
      if (!taken.insert(index).second) return text("node ", index + 1, " is claimed twice");
      nodes.insert(index);
    }
    const std::string gap = gap_in(graph, nodes);
    if (!gap.empty()) return "claim '" + claim.name + "' is not convex: " + gap;
  }
  return "";
}

}  // namespace

std::vector<Row> check_claims(Subject& subject, const Piece& piece) {
  const std::string name = "claims.convex";
  const auto skip = [&](const std::string& reason) {
    return std::vector<Row>{skipped(name, piece.subject, reason)};
  };
  const auto device = subject.open(piece);
  if (piece.is_guest || !BP_HAS_FN(bp_device_api, device->operator->(), claims))
    return skip("the device claims nothing");
  if (!BP_HAS_FN(bp_device_api, device->operator->(), compile))
    return {failed(name, piece.subject, "it has claims and no compile")};
  const auto kernels = device->kernels();
  const auto unary = find_operator(
      kernels, {"Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Identity", "Sqrt", "Sin"});
  if (!unary)
    return skip("its registry has no operator of one input that the suite builds graphs of");
  const auto binary = find_operator(kernels, {"Add", "Mul", "Sub", "Max"});

  const ClaimGraph graph(*unary, binary);
  std::vector<Claim> first, second;
  for (std::vector<Claim>* claims : {&first, &second}) {
    enter("claims");
    need([&] {
      return (*device)->claims(device->raw(), graph.graph().raw(), claims,
                               [](void* list, const bp_claim* claim) -> bp_status* {
                                 static_cast<std::vector<Claim>*>(list)->push_back(
                                     {claim->name == nullptr ? "" : claim->name,
                                      {claim->nodes, claim->nodes + claim->node_count}});
                                 return nullptr;
                               });
    });
  }
  std::string wrong = complaint(graph, first);
  if (wrong.empty() && first.size() != second.size()) wrong = "asked again, it claims other nodes";
  if (!wrong.empty()) return {failed(name, piece.subject, wrong)};
  if (first.empty()) return skip("it claims nothing of the suite's graph");
  return {passed(name, piece.subject)};
}

}  // namespace backplane::cli::check

// https://onnx.ai/onnx/repo-docs/IR.html#functions
#include "core/onnx/functions.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <onnx/inliner/inliner.h>
#include <string>
#include <tuple>
#include <unordered_set>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

constexpr int kDeepest = 100;
constexpr std::uint64_t kMostNodes = 1'000'000;

using FunctionId = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

/// What a graph or function amounts to once all calls in it are inlined.
struct Extent {
  std::uint64_t nodes = 0;      // those of bodies included
  std::uint64_t own_nodes = 0;  // those that are not in a body
  int nesting = 0;              // of bodies
  int calls = 0;                // in one another
};

class Functions {
 public:
  explicit Functions(::onnx::ModelProto& model) {
    for (auto& function : *model.mutable_functions()) {
      function.set_domain(canonical_domain(function.domain()));
      entries_.push_back({&function, {}, State::New});
      const FunctionId id{function.domain(), function.name(), function.overload()};
      if (!by_id_.emplace(id, entries_.size() - 1).second) {
        invalid("the model has two functions ", quoted(function.name()), " of domain ",
                quoted(shown_domain(function.domain())));
      }
    }
  }

  void measure_all() {
    for (Entry& entry : entries_) measure(entry, 0);
  }

  /// Of a node: 1, or its function's.
  Extent extent_of(const ::onnx::NodeProto& node, int depth) {
    if (Entry* callee = find(node)) {
      check_call(node, *callee->function);
      measure(*callee, depth + 1);
      Extent extent = callee->extent;
      ++extent.calls;
      return extent;
    }
    Extent extent{1, 1, 0, 0};
    for_each_graph(node, [&](const ::onnx::GraphProto& body) {
      const Extent inner = extent_of_nodes(body.node(), depth);
      extent.nodes = std::min(extent.nodes + inner.nodes, 2 * kMostNodes);  // cannot overflow
      extent.nesting = std::max(extent.nesting, inner.nesting + 1);
      extent.calls = std::max(extent.calls, inner.calls);
    });
    return extent;
  }

  /// Gives calls, those in bodies too, the attributes that they leave to the function: the inliner binds what calls have.
  void add_defaults(::onnx::NodeProto& node) {
    if (const Entry* callee = find(node)) {
      for (const auto& attribute : callee->function->attribute_proto()) {
        const bool is_given =
            std::any_of(node.attribute().begin(), node.attribute().end(),
                        [&](const auto& given) { return given.name() == attribute.name(); });
        if (!is_given) *node.add_attribute() = attribute;
      }
    }
    for_each_graph(node, [&](::onnx::GraphProto& body) {
      for (auto& inner : *body.mutable_node()) add_defaults(inner);
    });
  }

  bool is_call(const ::onnx::NodeProto& node) const {
    return by_id_.contains({canonical_domain(node.domain()), node.op_type(), node.overload()});
  }

 private:
  enum class State { New, Entered, Done };
  struct Entry {
    const ::onnx::FunctionProto* function;
    Extent extent;
    State state;
  };

  static std::string described(const ::onnx::FunctionProto& function) {
    return text("function ", quoted(function.name()), " of domain ",
                quoted(shown_domain(function.domain())));
  }

  Entry* find(const ::onnx::NodeProto& node) {
    const auto entry =
        by_id_.find({canonical_domain(node.domain()), node.op_type(), node.overload()});
    return entry == by_id_.end() ? nullptr : &entries_[entry->second];
  }

  static void check_call(const ::onnx::NodeProto& node, const ::onnx::FunctionProto& function) {
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
      invalid(core::described(node), ": the call has ", node.input_size(), " inputs and ",
              node.output_size(), " outputs, but ", described(function), " has ",
              function.input_size(), " and ", function.output_size());
    }
  }

  /// Each output must be made; inlining would leave a name that nobody makes, and nobody could tell whose fault it is.
  static void check_outputs(const ::onnx::FunctionProto& function) {
    std::unordered_set<std::string> made(function.input().begin(), function.input().end());
    for (const ::onnx::NodeProto& node : function.node())
      made.insert(node.output().begin(), node.output().end());
    for (const std::string& output : function.output()) {
      if (!made.contains(output))
        invalid(described(function), ": its output ", quoted(output),
                " is made by none of its nodes");
    }
  }

  [[noreturn]] static void fail_calls(const ::onnx::FunctionProto& function) {
    invalid(described(function), " is part of more than ", kDeepest, " calls in one another");
  }

  void measure(Entry& entry, int depth) {
    if (entry.state == State::Done) return;
    if (entry.state == State::Entered)
      invalid(described(*entry.function), " calls itself, directly or through others");
    if (depth > kDeepest) fail_calls(*entry.function);
    entry.state = State::Entered;
    check_outputs(*entry.function);
    const Extent extent = extent_of_nodes(entry.function->node(), depth);
    if (extent.calls > kDeepest) fail_calls(*entry.function);
    if (extent.nodes > kMostNodes || extent.nesting > kDeepest) {
      invalid(described(*entry.function), " amounts to more than ", kMostNodes, " nodes, or ",
              kDeepest, " bodies in one another, once inlined");
    }
    entry.extent = extent;
    entry.state = State::Done;
  }

  template <class Nodes>
  Extent extent_of_nodes(const Nodes& nodes, int depth) {
    Extent extent;
    for (const ::onnx::NodeProto& node : nodes) {
      const Extent inner = extent_of(node, depth);
      extent.nodes = std::min(extent.nodes + inner.nodes, 2 * kMostNodes);  // cannot overflow
      extent.own_nodes = std::min(extent.own_nodes + inner.own_nodes, 2 * kMostNodes);
      extent.nesting = std::max(extent.nesting, inner.nesting);
      extent.calls = std::max(extent.calls, inner.calls);
    }
    return extent;
  }

  std::vector<Entry> entries_;
  std::map<FunctionId, std::size_t> by_id_;
};

/// Marks nodes whose function imports another version than the model, so that one set of imports serves all.
void keep_versions(::onnx::NodeProto& node, const ::onnx::FunctionProto& function, Opsets& opsets,
                   const Functions& functions) {
  if (!functions.is_call(node)) {
    const std::string domain = canonical_domain(node.domain());
    for (const auto& entry : function.opset_import()) {
      if (canonical_domain(entry.domain()) != domain) continue;
      if (entry.version() < 1 || entry.version() > 1'000'000)
        invalid(described(node), ": its function imports opset ", entry.version());
      if (!opsets.add(domain, entry.version())) Opsets::set_version(node, entry.version());
    }
  }
  for_each_graph(node, [&](::onnx::GraphProto& body) {
    for (auto& inner : *body.mutable_node()) keep_versions(inner, function, opsets, functions);
  });
}

/// Checks what inlining will make, and says for each node that it makes in the main graph which one it comes from.
std::vector<std::int32_t> origins_after(const ::onnx::GraphProto& graph, Functions& functions) {
  std::vector<std::int32_t> origins;
  std::uint64_t nodes = 0;
  for (int i = 0; i < graph.node_size(); ++i) {
    const ::onnx::NodeProto& node = graph.node(i);
    const Extent extent = functions.extent_of(node, 0);
    nodes += extent.nodes;
    if (nodes > kMostNodes)
      invalid("the model has more than ", kMostNodes, " nodes once its functions are inlined");
    // A node that is no call stays one, whatever its bodies become.
    origins.insert(origins.end(),
                   functions.is_call(node) ? static_cast<std::size_t>(extent.own_nodes) : 1, i);
  }
  return origins;
}

}  // namespace

std::vector<std::int32_t> inline_functions(::onnx::ModelProto& model, Opsets& opsets) {
  std::vector<std::int32_t> origins(static_cast<std::size_t>(model.graph().node_size()));
  if (model.functions().empty()) {
    std::iota(origins.begin(), origins.end(), 0);
    return origins;
  }
  Functions functions(model);
  functions.measure_all();
  origins = origins_after(model.graph(), functions);
  for (auto& node : *model.mutable_graph()->mutable_node()) functions.add_defaults(node);
  for (auto& function : *model.mutable_functions()) {
    for (auto& node : *function.mutable_node()) {
      functions.add_defaults(node);
      keep_versions(node, function, opsets, functions);
    }
    function.clear_opset_import();  // so that the inliner sees no mismatch
  }
  try {
    ::onnx::inliner::InlineLocalFunctions(model);
  } catch (const std::exception& error) {
    invalid("the model's functions cannot be inlined: ", single_line(error.what()));
  }
  if (static_cast<std::size_t>(model.graph().node_size()) != origins.size()) {
    throw Error(Code::Internal, text("inlining made ", model.graph().node_size(), " nodes, ",
                                     origins.size(), " were expected"));
  }
  return origins;
}

}  // namespace backplane::core

// What a run of a graph with control flow copies, counted from the model and the places of its nodes alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/random_flow.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {

/// Walks a RandomFlow as a run does: a body anew for each turn, and of an If the branch that is taken. In each walk of a
/// graph every value goes once to every other memory where it is read; between two devices without copies of their own
/// it goes over the host.
///
/// Where bodies have their values ("Places" in core/ARCHITECTURE.md):
/// - what a body is given lies on the first device of the session that reads it there, and on the host if only that
///   reads it; what both branches of an If may read, each of them is given;
/// - what a body makes lies where it is made; for what a turn hands on that holds unless the host alone reads it;
/// - the branches of an If leave their result in one place, that of the first.
///
/// Copies within a device: results of a body that a loop or branch in it hands over in memory of its own, slices that do
/// not begin at a multiple of kSliceAlignment, and what a loop without turns is given.
class FlowCopies {
 public:
  /// `places`: of each node that runs, by its bare name: "host" or a device. `devices`: in the session's order, or what
  /// their names begin with.
  FlowCopies(const RandomFlow& flow, Placement places, std::vector<std::string> devices, bool peer);

  /// Those that a fake device takes part in.
  const Copies& copies() const { return copies_; }

 private:
  using Graph = ::onnx::GraphProto;
  using Node = ::onnx::NodeProto;
  using Places = std::map<std::string, std::string>;  ///< value -> memory

  /// One walk of a graph.
  struct Walk {
    Places at;  ///< where values are made, or given
    std::map<std::string, std::set<std::string>> readers;
    std::set<std::string>
        handed_over;  ///< made in memory of their own, whoever wants them elsewhere
  };
  /// A Loop's or Scan's, with its only carried value.
  struct Turns {
    const Graph& body;
    std::string initial, carried, next;
    std::string slice;  ///< that is stacked; "": none
    std::int64_t count = 0;
  };

  bool runs(const Node& node) const { return places_.contains(node.name()); }
  std::string reader(const Graph& graph, const std::string& value) const;
  void add_reader(const Node& node, const std::string& value,
                  std::vector<std::string>& places) const;
  std::string maker(const Graph& graph, const std::string& value) const;
  std::string carried_place(const Turns& turns, const std::string& initial) const;
  Places give_captured(Walk& walk, const Graph& body, const Graph* other);

  void walk_graph(const Graph& graph, const Places& given, const Places& wanted);
  void walk_if(Walk& walk, const Node& node);
  void walk_loop(Walk& walk, const Node& node);
  void walk_scan(Walk& walk, const Node& node);
  void take_turns(Walk& walk, const Node& node, const Turns& turns, Places given,
                  const std::string& element);
  void finish(const Walk& walk);

  std::uint64_t bytes_of(const std::string& value) const;
  void count_transfer(const std::string& from, const std::string& to, std::uint64_t bytes);
  void count_within(const std::string& place, std::uint64_t bytes);

  Placement places_;
  std::vector<std::string> devices_;
  bool peer_;
  bool takes_then_ = false;
  std::int64_t trips_ = 0;
  std::uint64_t matrix_bytes_ = 0;
  std::map<std::string, std::uint64_t> bytes_;  ///< of values that are no matrices
  Copies copies_;
};

}  // namespace backplane::core::faults

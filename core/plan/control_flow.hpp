// If, Loop and Scan as steps of the core: their bodies as cuts of their own, and what is known of them while planning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/plan/value_state.hpp"

namespace backplane::core {

class Program;
struct PlacedGraph;
struct ProgramContext;

/// In which memory spaces feeds lie and fetches are left; empty lists: all on the host.
struct BodyPlaces {
  std::vector<int> feeds, fetches;
};

/// No memory space in particular.
inline constexpr int kNoSpace = -1;

/// A body made ready to run, as planning sees it; the runtime implements it.
/// Threads: all functions may run concurrently.
class Body {
 public:
  Body() = default;
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  virtual ~Body() = default;

  /// Where feeds are read and fetches are made, by feed and fetch; kNoSpace where it does not matter.
  virtual BodyPlaces homes() const = 0;
  /// What is known of the fetches before a run with such feeds; Unset or Pending where nothing is. Plans the body.
  virtual std::vector<ValueState> plan_body(const std::vector<ValueState>& feeds,
                                            const BodyPlaces& places) = 0;
  /// Whether the fetch is a constant tensor whose first byte is not 0; nullopt when it is none.
  virtual std::optional<bool> constant_truth(std::size_t fetch) const = 0;
};

enum class ControlKind { If, Loop, Scan };

/// Where an output of a body comes from: a fetch, or (values that a loop carries) a feed handed on as it is.
struct BodyOutput {
  int fetch = -1;
  int feed = -1;
};

/// A body of a control-flow node. Its feeds are the body's inputs, then the captured outer values.
struct ControlBody {
  std::string attribute;            ///< "then_branch", "body"
  std::string scope;                ///< "loop/body": what names in it are qualified by, for users
  std::vector<ValueId> captured;    ///< outer values
  std::size_t input_count = 0;      ///< feeds before the captured ones
  std::vector<int> input_ranks;     ///< of the body's inputs; -1: unknown
  std::vector<Type> output_types;   ///< as inferred
  std::vector<BodyOutput> outputs;  ///< by the body's output
  std::size_t fetch_count = 0;
  std::shared_ptr<Body> body;
};

/// How a Scan walks its inputs and lays out its outputs.
struct ScanLayout {
  bool batched = false;  ///< version 8: axis 0 of everything is the batch, and lengths may be given
  std::size_t state_count = 0;
  std::vector<bool> input_reversed, output_reversed;
  /// Negative ones count from the back. 0 where normalize_scan could do its work; others go over the host.
  std::vector<std::int64_t> input_axes, output_axes;
};

/// A node that the core runs itself.
struct ControlNode {
  ControlKind kind = ControlKind::If;
  std::vector<ControlBody> bodies;  ///< of an If: then, else
  std::size_t carried_count = 0;    ///< of a Loop and a Scan
  ScanLayout scan;
};

/// What a control-flow node's step was planned as, for one set of shapes.
struct ControlPlan {
  const ControlNode* node = nullptr;
  int branch = -1;                  ///< of an If whose condition is known: the body that runs
  std::vector<BodyPlaces> places;   ///< by body
  std::vector<int> output_spaces;   ///< by the node's output
  std::vector<ValueState> outputs;  ///< by the node's output; Pending where a run must tell
  std::vector<bool> direct;         ///< by output: the body writes into the slot's own memory
  std::vector<std::optional<ValueState>>
      slices;  ///< by output: what one turn adds to it, where that is known
  std::optional<std::int64_t> trip_count;  ///< of a Loop or Scan, where it is known
};

/// True for an operator that the core can run when no provider takes it.
bool is_control_flow(const Node& node);

/// Makes the bodies of such a node of a placed graph. Throws what building their programs throws, naming the body.
std::unique_ptr<ControlNode> make_control_node(const ProgramContext& context,
                                               const PlacedGraph& placed, const Node& node);

/// Scans with axes other than the first: makes transposed values around them, so that slices lie in one piece. True
/// when it changed the graph; it needs the ranks.
bool normalize_scan(Graph& graph, NodeId id);

/// An axis as a Scan's attribute gives it, from the front. Throws InvalidArgument naming `what` it is of.
std::size_t scan_axis(std::int64_t axis, std::size_t rank, const char* what);

/// See Body::homes.
BodyPlaces find_homes(const Program& program);

}  // namespace backplane::core

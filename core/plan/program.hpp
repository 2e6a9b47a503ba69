// A program: a graph cut to what is asked for, placed, rewritten, with its kernels created. Shapes come later.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/mapped_file.hpp"
#include "core/graph/priority_order.hpp"
#include "core/plan/constant_store.hpp"
#include "core/plan/control_flow.hpp"
#include "core/plan/host_evaluator.hpp"
#include "core/plan/insert_casts.hpp"
#include "core/plan/memory_budget.hpp"
#include "core/plan/placed_graph.hpp"
#include "core/plan/plan_record.hpp"
#include "core/plan/prepare.hpp"
#include "core/plan/shape_arithmetic.hpp"
#include "core/plan/value_state.hpp"

namespace backplane::core {

/// What is fed and fetched, by name. Feeds may be graph inputs, overridable initializers or inner values.
struct Cut {
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  bool operator==(const Cut&) const = default;
  bool operator<(const Cut& other) const {
    return std::tie(feeds, fetches) < std::tie(other.feeds, other.fetches);
  }
};

/// What becomes of nodes for which a device's limit of memory leaves no room.
enum class Spill {
  Forbidden,  ///< an error
  Warned,     ///< another device takes them, and the log says so
  Silent,     ///< another device takes them, and the explanation alone says so
};

/// The outputs of a node all of whose inputs are constants; nullopt when nobody can compute them.
using EvaluateConstants =
    std::function<std::optional<std::vector<ConstantPtr>>(const Graph& graph, const Node& node)>;

/// What is known of sizes before a run, see PassOptions.
struct FeedSymbols {
  std::vector<std::string> feeds;
  std::set<std::string> unproven;
};

/// What programs of a session are built from.
struct ProgramContext {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Graph> body;  ///< what to cut instead of the model's main graph
  std::string scope;                  ///< what names in `body` are qualified by: "loop/body/"
  std::shared_ptr<Body> (*make_body)(const ProgramContext& context, const Cut& cut) = nullptr;
  const DeviceSet* devices = nullptr;
  const SchemaRegistry* schemas = nullptr;
  WeightStore* weights = nullptr;
  const Logger* logger = nullptr;
  bp_threads* threads = nullptr;
  std::vector<RuleText> rules;
  CastRules casts;  ///< that may be inserted for a device's sake
  Spill spill = Spill::Forbidden;
  bool deterministic = false;
  bool denormals_as_zero = false;  ///< where the host computes
  bool parallel = false;  ///< steps that do not depend on each other may run at the same time
  unsigned inter_op_threads = 0;  ///< that run them; 0: all of `threads`
  std::size_t max_plans = 1;      ///< kept of a program, the last used; 0: more of smaller ones
  ExecutionOrder execution_order = ExecutionOrder::Default;
  const Graph& graph() const { return body != nullptr ? *body : model->graph; }
  /// The session's passes, for what the cut tells and function bodies bring; `evaluate` computes nodes of constants, and
  /// the feeds are the session's, of a body none. Empty: no passes.
  std::function<void(Graph& graph, const EvaluateConstants& evaluate, const FeedSymbols& feeds,
                     RemovalLog& removed)>
      simplify;
  bool claims = true, rewrites = true;  ///< whether providers may compile and rewrite
  bool memory_pattern = true;           ///< values of a plan share memory
  bool zero_copy =
      true;  ///< devices that share the host's memory work on feeds and fetches where they lie
  bool keep_arenas = true;                         ///< a run's memory stays for the next one
  bool capture = false;                            ///< devices record work that they can do again
  ConstantStore* constants = nullptr;              ///< null: constants are not shared
  std::shared_ptr<MemoryBudget> memory;            ///< null: nobody counts
  const MappedFiles* files = nullptr;              ///< where contents lie; null: in none
  const std::vector<PlanRecord>* saved = nullptr;  ///< of a saved plan: not to be decided again
  std::uint64_t create_flags() const { return deterministic ? BP_CREATE_DETERMINISTIC : 0; }
};

/// What was found out about providers after they had taken nodes; grows from one attempt to the next.
struct Refusals {
  std::vector<LateRefusal> nodes;
  std::map<int, std::string> claims;    ///< devices whose claims are not to be taken, and why
  std::map<int, std::string> rewrites;  ///< devices whose rewrite is not to be used, and why
};

/// Thrown while planning when a kernel's `prepare` refuses a node; the program is then built again without it.
struct KernelRefused {
  NodeId node;
  std::string text;
};

/// Thrown while planning when a device's limit of memory is too small; the program is then built again with fewer nodes
/// on it.
struct DeviceFull {
  int device;
  std::uint64_t missing;  ///< bytes; at the least
  std::uint64_t limit;
  Error error;  ///< where nothing can be done about it
};

/// A kernel made ready, and what was packed for it; shared by the plans for the same inputs.
struct PreparedKernel {
  PrepareResult said;
  std::vector<SharedState> outputs;                ///< by the node's; unset where it has none
  std::vector<std::weak_ptr<const Weight>> packs;  ///< by wish, as long as a plan has them
};

/// What a walk found of a node, for certain inputs. The same inputs get the same answer, so that planning for other sizes
/// prepares anew only what has other sizes.
template <class Answer>
struct KeptAnswer {
  std::vector<SharedState> inputs;  ///< constants' and absent ones' say nothing
  Answer answer{};
};

/// A node of a program with its kernel.
struct ProgramNode {
  int device = -1;
  KernelHandle kernel;  ///< empty for a node that is evaluated on the host
  std::unique_ptr<HostKernel>
      host_kernel;            ///< of a node that is evaluated on the host; made when first needed
  std::size_t candidate = 0;  ///< which of the placement's kernels it is
  std::unique_ptr<ControlNode> control;  ///< of a node that the core runs itself
  /// What `prepare` is asked: made once, but for what its inputs are.
  PrepareRequest request;
  /// Of the last walk that asked the kernels, which they end before.
  KeptAnswer<std::shared_ptr<PreparedKernel>> prepared;
  KeptAnswer<std::vector<SharedState>> evaluated;
};

/// Threads: immutable after it is built, but for what planning caches: one thread plans at a time.
class Program {
 public:
  /// Builds it. Throws with every provider's reasons for a node that nobody takes.
  Program(const ProgramContext& context, const Cut& cut, Refusals& refusals);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const ProgramContext& context() const { return context_; }
  const Graph& graph() const { return *placed_.graph; }
  /// A node for messages: its name, its operator, and the library of custom operators that its kernel is from.
  std::string describe(NodeId id) const;
  const PlacedGraph& placed() const { return placed_; }
  const std::vector<NodeId>& order() const { return order_; }
  ProgramNode& node(NodeId id) { return nodes_[id]; }
  const ProgramNode& node(NodeId id) const { return nodes_[id]; }
  bool is_host_node(NodeId id) const { return arithmetic_.host_node[id]; }
  const std::vector<ValueId>& feeds() const { return feeds_; }
  const std::vector<ValueId>& fetches() const { return fetches_; }
  /// Indices into feeds() of those whose elements are part of a plan's key.
  const std::vector<std::size_t>& keyed_feeds() const { return keyed_feeds_; }
  const std::map<std::string, NodePlacement>& first_placement() const { return first_placement_; }
  /// Original nodes that the session's passes removed of this program, after those of the whole model.
  const RemovalLog& removed() const { return removed_; }
  /// Original nodes that were folded after placement.
  const std::vector<std::int32_t>& folded_origins() const { return folded_origins_; }
  /// Original nodes whose results nobody reads any more: shape arithmetic of what was fused.
  const std::vector<std::int32_t>& idle_origins() const { return idle_origins_; }
  HostEvaluator& evaluator() { return evaluator_; }
  /// A constant in a memory space, as long as a plan has it there.
  std::weak_ptr<const Weight>& plain_weight(ValueId id, int space) {
    return plain_weights_[id.index() * context_.devices->space_count() +
                          static_cast<std::size_t>(space)];
  }
  /// What is known of a constant; unset until somebody asked and said it.
  SharedState& constant_state(ValueId id) { return constant_states_[id]; }
  /// Nodes for which providers were asked; none when the placement came from a saved plan.
  std::size_t asked_count() const { return asked_count_; }
  /// What was decided, for a saved plan.
  PlanRecord record(const Cut& cut, const Refusals& refusals) const;

  /// The kernel to use for a node that planning found too large for the host. Throws when no provider takes it.
  void ensure_kernel(NodeId id);
  /// The node refused its shapes: the next kernel of the same device, if there is one.
  bool next_kernel(NodeId id);
  /// Records for the next attempt that a node was refused.
  void record_refusal(const KernelRefused& refused, Refusals& refusals) const;

 private:
  void find_record(const Cut& cut, Refusals& refusals);
  static PlanRecord record_without_placement(PlanRecord record);
  bool attempt(const Cut& cut, Refusals& refusals);
  void place_graph(const Cut& cut, const Refusals& refusals);
  void place_nodes(const Refusals& refusals);
  /// What depends on constants alone and no rewrite took, such as dequantized weights.
  void fold_constants_left();
  /// Graph edits for nodes that no provider takes; true when there were some, and placement is to be done again.
  bool edit_untaken();
  bool expand(NodeId id);
  /// Folds casts of weights whose readers are on other devices; true when there were some, likewise.
  bool fold_weights_elsewhere();
  void doubt_outputs(const Node& node);
  void warn_of_failed_matches() const;
  /// What bodies compute of constants is computed once, and what several of them compute alike only once a run.
  void simplify();
  /// Nodes of the names `kept` are not folded.
  static void simplify(Graph& graph, const FeedSymbols& feeds, const ProgramContext& context,
                       HostEvaluator& evaluator, RemovalLog& removed,
                       const std::set<std::string>& kept);
  /// The session's graph cut, and without what is known when the feeds are.
  static std::shared_ptr<Graph> graph_of(const Cut& cut, const FeedSymbols& feeds,
                                         const ProgramContext& context, HostEvaluator& evaluator,
                                         RemovalLog& removed);
  static FeedSymbols feed_symbols_of(const Cut& cut, const ProgramContext& context);
  PlacementRequest placement_request(const Refusals& refusals);
  bool add_casts(const Refusals& refusals);
  bool is_shape_arithmetic(NodeId id);
  void check_placed() const;
  void create_kernels();
  void create_kernel_of(NodeId id);

  ProgramContext context_;
  SchemaCache schema_cache_;
  HostEvaluator evaluator_;
  FeedSymbols feed_symbols_;
  PlacedGraph placed_;
  std::map<std::string, NodePlacement>
      first_placement_;  ///< by node name, before rewrites: for the explanation
  std::vector<NodeId> order_;
  std::unique_ptr<GraphView>
      view_;  ///< kernels hold its nodes: declared before them, so it ends after them
  PerNode<ProgramNode> nodes_;
  std::vector<KernelHandle> retired_;  ///< replaced by next_kernel; older plans may still use them
  ShapeArithmetic arithmetic_;
  RemovalLog removed_;
  std::vector<std::int32_t> folded_origins_, idle_origins_;
  std::map<std::string, Reason> casts_;  ///< by node: why it is between Casts
  InsertedCasts inserted_casts_;
  const PlanRecord* record_ = nullptr;  ///< that the program follows
  std::size_t asked_count_ = 0;
  std::vector<ValueId> feeds_, fetches_;
  std::vector<std::size_t> keyed_feeds_;
  std::vector<std::weak_ptr<const Weight>> plain_weights_;  ///< by value, then by space
  ValueStates constant_states_;
};

/// A graph with only what leads from the feeds to the fetches. Throws InvalidArgument for unknown names,
/// for feeds that cannot be replaced, and for inputs that are needed and not fed. `ir_version` is the model's.
std::shared_ptr<Graph> cut_graph(const Graph& whole, const Cut& cut, std::int64_t ir_version);
inline std::shared_ptr<Graph> cut_graph(const Model& model, const Cut& cut) {
  return cut_graph(model.graph, cut, model.ir_version);
}

/// Removes nodes that no output of the graph needs; gives their origins.
std::vector<std::int32_t> remove_unneeded(Graph& graph);

}  // namespace backplane::core

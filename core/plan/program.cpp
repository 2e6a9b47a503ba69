#include "core/plan/program.hpp"

#include <algorithm>

#include "core/graph/verify.hpp"
#include "core/onnx/function_body.hpp"

namespace backplane::core {
namespace {

std::string node_words(const Graph& graph, NodeId id, const Plugin* library = nullptr) {
  const Node& node = graph.node(id);
  return text("node '", node.name, "' (",
              node.domain.empty() ? "" : node.domain + "::", node.op_type,
              library == nullptr ? "" : " of " + library->file().string(), ")");
}

/// Bytes of constants that may be made of the model's own: weights of 4 bits become floats, which are moved and joined;
/// a chain of nodes that join a value to itself is not to fill the memory.
std::uint64_t allowed_folds(const Graph& graph) {
  constexpr std::uint64_t kTimes = 32, kAlways = std::uint64_t{256} << 20;
  std::uint64_t bytes = 0;
  for (const ValueId id : graph.initializers) {
    const ConstantPtr& constant = graph.value(id).constant;
    if (constant != nullptr) bytes += constant->stored_bytes().size();
  }
  return kAlways + kTimes * bytes;
}

}  // namespace

std::string Program::describe(NodeId id) const {
  return node_words(graph(), id, node(id).kernel ? node(id).kernel.library() : nullptr);
}

Program::Program(const ProgramContext& context, const Cut& cut, Refusals& refusals)
    : context_(context),
      schema_cache_(*context.schemas),
      evaluator_(*context.devices, *context.schemas, context.threads) {
  find_record(cut, refusals);
  while (!attempt(cut, refusals)) {
  }
  for (const std::string& name : cut.feeds) feeds_.push_back(graph().find_value(name));
  for (const std::string& name : cut.fetches) fetches_.push_back(graph().find_value(name));
  for (std::size_t i = 0; i < feeds_.size(); ++i) {
    const auto& keyed = arithmetic_.keyed_inputs;
    if (std::find(keyed.begin(), keyed.end(), feeds_[i]) != keyed.end()) keyed_feeds_.push_back(i);
  }
}

/// The record of a saved plan for this cut. It holds what was refused when it was made, and ends where more is refused.
void Program::find_record(const Cut& cut, Refusals& refusals) {
  if (context_.saved == nullptr || context_.body != nullptr || !refusals.nodes.empty() ||
      !refusals.claims.empty() || !refusals.rewrites.empty())
    return;
  for (const PlanRecord& record : *context_.saved) {
    if (record.feeds != cut.feeds || record.fetches != cut.fetches || record.placement.empty())
      continue;
    record_ = &record;
    for (const PlanRecord::Refused& one : record.refused)
      refusals.nodes.push_back(
          {one.node, device_named(one.device, *context_.devices), one.text, one.code});
    for (const auto& [device, why] : record.claims)
      refusals.claims[device_named(device, *context_.devices)] = why;
    for (const auto& [device, why] : record.rewrites)
      refusals.rewrites[device_named(device, *context_.devices)] = why;
    return;
  }
}

PlanRecord Program::record(const Cut& cut, const Refusals& refusals) const {
  PlanRecord record;
  record.feeds = cut.feeds;
  record.fetches = cut.fetches;
  HostEvaluator evaluator(*context_.devices, *context_.schemas, context_.threads);
  RemovalLog removed;
  const std::shared_ptr<Graph> original =
      graph_of(cut, feed_symbols_of(cut, context_), context_, evaluator, removed);
  for (const NodeId id : topological_order(*original)) {
    const Node& node = original->node(id);
    const auto placed = first_placement_.find(node.name);
    // Where nodes were replaced by their function bodies, placing is done again.
    if (placed == first_placement_.end() || original->node_count() != first_placement_.size())
      return record_without_placement(std::move(record));
    record.placement.push_back(record_of(node, placed->second, *context_.devices));
  }
  for (const LateRefusal& refusal : refusals.nodes)
    record.refused.push_back(
        {refusal.node, context_.devices->at(refusal.device).label(), refusal.text, refusal.code});
  for (const auto& [device, why] : refusals.claims)
    record.claims[context_.devices->at(device).label()] = why;
  for (const auto& [device, why] : refusals.rewrites)
    record.rewrites[context_.devices->at(device).label()] = why;
  for (const NodeId id : order_) {
    record.order.push_back(graph().node(id).name);
    if (node(id).candidate > 0) record.later_kernel[graph().node(id).name] = node(id).candidate;
  }
  return record;
}

PlanRecord Program::record_without_placement(PlanRecord record) {
  record.placement.clear();
  return record;
}

bool Program::attempt(const Cut& cut, Refusals& refusals) {
  try {
    nodes_.clear();
    view_.reset();
    placed_ = PlacedGraph();
    removed_.clear();
    folded_origins_.clear();
    idle_origins_.clear();
    casts_.clear();
    inserted_casts_ = InsertedCasts();
    place_graph(cut, refusals);
    create_kernels();
    return true;
  } catch (const KernelRefused& refused) {
    record_refusal(refused, refusals);
    record_ = nullptr;
    return false;
  }
}

void Program::place_graph(const Cut& cut, const Refusals& refusals) {
  feed_symbols_ = feed_symbols_of(cut, context_);
  placed_.graph = graph_of(cut, feed_symbols_, context_, evaluator_, removed_);
  do {  // a record is of nodes that stayed as they were
    place_nodes(refusals);
  } while (record_ == nullptr &&
           (add_casts(refusals) || edit_untaken() || fold_weights_elsewhere()));
  const auto is_constant = [this](ValueId id) { return placed_.is_constant(id); };
  arithmetic_ = find_shape_arithmetic(*placed_.graph, order_, placed_.placement, *context_.devices,
                                      schema_cache_, is_constant);
  check_placed();
  first_placement_.clear();
  for (const NodeId id : order_)
    first_placement_[placed_.graph->node(id).name] = placed_.placement[id];

  for (int device = 0;
       context_.claims && device < static_cast<int>(context_.devices->devices.size()); ++device) {
    if (const auto unwanted = refusals.claims.find(device); unwanted != refusals.claims.end()) {
      placed_.remarks.push_back(unwanted->second);
    } else {
      compile_claims(placed_, device, *context_.devices, context_.threads, context_.create_flags());
      if constexpr (kVerifiesGraphs) verify_placed(placed_, "after claims");
    }
  }
  for (int device = 0;
       context_.rewrites && device < static_cast<int>(context_.devices->devices.size()); ++device) {
    const auto unwanted = refusals.rewrites.find(device);
    if (unwanted == refusals.rewrites.end()) {
      rewrite_nodes(placed_, device, *context_.devices, schema_cache_);
      if constexpr (kVerifiesGraphs) verify_placed(placed_, "after a rewrite");
    } else {
      placed_.remarks.push_back(unwanted->second);
    }
  }
  fold_constants_left();
  idle_origins_ = remove_unneeded(*placed_.graph);
  if constexpr (kVerifiesGraphs) verify_placed(placed_, "after folding what is left");
  if (record_ != nullptr) {
    order_ = order_of(record_->order, *placed_.graph);
  } else {
    order_ = topological_order(*placed_.graph);
    if (context_.execution_order == ExecutionOrder::Priority)
      order_ = priority_order(*placed_.graph, estimated_bytes(*placed_.graph, order_));
  }
  arithmetic_ = find_shape_arithmetic(*placed_.graph, order_, placed_.placement, *context_.devices,
                                      schema_cache_, is_constant);
}

void Program::place_nodes(const Refusals& refusals) {
  order_ = topological_order(*placed_.graph);
  if (record_ != nullptr) {
    placed_.placement =
        placement_of(*record_, *placed_.graph, order_, *context_.devices, schema_cache_);
    return;
  }
  const GraphView view(*placed_.graph, order_);
  placed_.placement = place(*placed_.graph, order_, view, placement_request(refusals));
  warn_of_failed_matches();
  asked_count_ += order_.size();
  for (const auto& [name, reason] : casts_) {
    const NodeId id = placed_.graph->find_node(name);
    if (id != kNone) placed_.placement[id].reasons.push_back(reason);
  }
}

/// Each failure once, with the first node that it was about.
void Program::warn_of_failed_matches() const {
  std::set<std::string_view> told;
  for (const NodeId id : order_) {
    for (const Reason& reason : placed_.placement[id].reasons) {
      if (reason.code != kFailedReason || !told.insert(reason.text).second) continue;
      context_.logger->warning(
          node_words(graph(), id), ": ", reason.text,
          "; only BP_UNSUPPORTED refuses a node. Another kernel takes it, if there is one");
    }
  }
}

PlacementRequest Program::placement_request(const Refusals& refusals) {
  PlacementRequest request;
  request.devices = context_.devices;
  request.schemas = &schema_cache_;
  request.rules = resolve_rules(context_.rules, *context_.devices);
  request.refused = refusals.nodes;
  return request;
}

/// True when nodes got Casts around them, and placement is to be done again.
bool Program::add_casts(const Refusals& refusals) {
  const auto imported = context_.model->opsets.find("");
  const std::int64_t opset = imported == context_.model->opsets.end() ? 0 : imported->second;
  std::map<std::string, Reason> added = insert_casts(placed_, order_, placement_request(refusals),
                                                     context_.casts, opset, inserted_casts_);
  if (added.empty()) return false;
  std::size_t widened = 0;
  for (const auto& [name, reason] : added) {
    if (reason.code == "widened") {
      ++widened;
    } else {
      placed_.remarks.push_back(text("node '", name, "': ", reason.text));
    }
  }
  if (widened > 0)
    placed_.remarks.push_back(text(widened,
                                   " nodes of 16-bit types are computed in float, "
                                   "where their kernels ask for it"));
  casts_.merge(added);
  if constexpr (kVerifiesGraphs) verify_graph(*placed_.graph, "after casts");
  simplify();
  return true;
}

bool Program::edit_untaken() {
  bool changed = false;
  for (const NodeId id : order_) {
    if (placed_.placement[id].device >= 0) continue;
    try {
      const Node& node = graph().node(id);
      changed =
          (is_control_flow(node) ? normalize_scan(*placed_.graph, id) : expand(id)) || changed;
    } catch (const Error& error) {
      throw error.within(node_words(graph(), id));
    }
  }
  if (changed) {
    if constexpr (kVerifiesGraphs) verify_graph(*placed_.graph, "after function bodies and Scans");
    simplify();
  }
  return changed;
}

void Program::simplify() {
  remove_unneeded(*placed_.graph);
  simplify(*placed_.graph, feed_symbols_, context_, evaluator_, removed_, inserted_casts_.weights);
}

bool Program::fold_weights_elsewhere() {
  const auto device_of = [this](NodeId id) { return placed_.placement[id].device; };
  const std::size_t folded = std::erase_if(inserted_casts_.weights, [&](const std::string& name) {
    const NodeId cast = graph().find_node(name);
    if (cast == kNone) return false;
    const std::vector<Use>& uses = graph().value(graph().node(cast).outputs[0]).uses;
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return device_of(use.node) != device_of(cast); });
  });
  if (folded > 0) simplify();
  return folded > 0;
}

FeedSymbols Program::feed_symbols_of(const Cut& cut, const ProgramContext& context) {
  if (context.body != nullptr) return {};
  return {cut.feeds, context.model->unproven_symbols};
}

void Program::simplify(Graph& graph, const FeedSymbols& feeds, const ProgramContext& context,
                       HostEvaluator& evaluator, RemovalLog& removed,
                       const std::set<std::string>& kept) {
  if (!context.simplify) return;
  context.simplify(
      graph,
      [&](const Graph& from, const Node& node) -> std::optional<std::vector<ConstantPtr>> {
        if (kept.contains(node.name)) return std::nullopt;
        try {
          return evaluator.fold(from, node, std::uint64_t{1} << 32);
        } catch (const Error&) {  // the run will tell, if the node runs at all
          return std::nullopt;
        }
      },
      feeds, removed);
}

std::shared_ptr<Graph> Program::graph_of(const Cut& cut, const FeedSymbols& feeds,
                                         const ProgramContext& context, HostEvaluator& evaluator,
                                         RemovalLog& removed) {
  auto graph = cut_graph(context.graph(), cut, context.model->ir_version);
  // Whoever reads inputs for their shapes is told which are fed only now.
  bool reads_shapes = false;
  for (const NodeId id : graph->node_ids())
    reads_shapes = reads_shapes || graph->node(id).op_type == "Shape";
  if (reads_shapes && context.body == nullptr)
    simplify(*graph, feeds, context, evaluator, removed, {});
  return graph;
}

/// Puts ONNX's function body in the place of a node that nobody takes.
bool Program::expand(NodeId id) {
  const Node& node = graph().node(id);
  if (schema_cache_.find(node) == nullptr) return false;  // of a private domain
  if (evaluator_.create(graph(), node) != nullptr && is_shape_arithmetic(id)) return false;
  std::optional<FunctionBody> body;
  try {
    body = function_body(graph(), node, *context_.schemas);
  } catch (const Error& error) {
    if (error.code() != Code::InvalidArgument) throw;
    // ONNX gives some operators types that the operators of their bodies do not take.
    placed_.placement[id].reasons.push_back({"onnx", "function", error.message()});
  }
  if (!body) return false;
  placed_.remarks.push_back(text(node_words(graph(), id),
                                 " is taken by no provider and runs as its function body of ",
                                 body->graph.node_count(), " nodes"));
  context_.logger->info(placed_.remarks.back());
  doubt_outputs(node);
  std::erase(placed_.graph->node(id).outputs, kNone);  // as the body has them
  placed_.graph->splice(id, body->graph, body->inputs);
  return true;
}

/// What the file calls dimensions of a graph's output is what they are called in the body that makes it.
void Program::doubt_outputs(const Node& node) {
  const auto for_each_symbol = [this](const std::vector<ValueId>& values, const auto& visit) {
    for (const ValueId id : values) {
      if (id == kNone || !graph().value(id).type.shape) continue;
      for (const Dim& dim : *graph().value(id).type.shape) visit(graph().value(id), dim.symbol);
    }
  };
  std::set<std::string> given;
  for_each_symbol(node.inputs,
                  [&](const Value&, const std::string& symbol) { given.insert(symbol); });
  for_each_symbol(node.outputs, [&](const Value& value, const std::string& symbol) {
    if (value.has_unproven_symbols && !given.contains(symbol))
      feed_symbols_.unproven.insert(symbol);
  });
}

/// Whether the host will evaluate the node while planning, if its values are small.
bool Program::is_shape_arithmetic(NodeId id) {
  placed_.placement.resize(graph().node_limit());  // other expansions have added nodes
  const ShapeArithmetic found = find_shape_arithmetic(
      *placed_.graph, topological_order(*placed_.graph), placed_.placement, *context_.devices,
      schema_cache_, [this](ValueId value) { return placed_.is_constant(value); });
  return found.host_node[id];
}

void Program::fold_constants_left() {
  std::uint64_t left = allowed_folds(*placed_.graph);
  for (const NodeId id : topological_order(*placed_.graph)) {
    const Node& node = placed_.graph->node(id);
    const auto is_known = [this](ValueId input) {
      return input == kNone || placed_.graph->value(input).constant != nullptr;
    };
    const auto is_output = [this](ValueId output) {
      return output != kNone && placed_.graph->value(output).is_output;
    };
    if (node.has_bodies() || !std::all_of(node.inputs.begin(), node.inputs.end(), is_known))
      continue;
    if (std::any_of(node.outputs.begin(), node.outputs.end(), is_output)) continue;
    std::optional<std::vector<ConstantPtr>> results;
    try {
      results = evaluator_.fold(*placed_.graph, node, std::min(left, std::uint64_t{1} << 32));
    } catch (const Error&) {  // the run will tell, if the node runs at all
    }
    if (!results) continue;
    const std::vector<ValueId> outputs = node.outputs;
    for (const std::int32_t origin : node.origins) folded_origins_.push_back(origin);
    placed_.graph->remove_node(id);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == kNone) continue;
      if ((*results)[i] != nullptr)
        left -= std::min<std::uint64_t>(left, (*results)[i]->stored_bytes().size());
      placed_.graph->value(outputs[i]).constant =
          context_.constants != nullptr ? context_.constants->share((*results)[i]) : (*results)[i];
    }
  }
}

void Program::check_placed() const {
  for (const NodeId id : order_) {
    const NodePlacement& placement = placed_.placement[id];
    if (placement.device >= 0 || is_host_node(id) || is_control_flow(graph().node(id))) continue;
    throw Error(Code::Unsupported, text(node_words(graph(), id), " is taken by no provider: ",
                                        core::describe(placement.reasons)));
  }
}

void Program::create_kernels() {
  view_ = std::make_unique<GraphView>(*placed_.graph, order_);
  constant_states_.resize(placed_.graph->value_count());
  plain_weights_.resize(placed_.graph->value_count() * context_.devices->space_count());
  nodes_.resize(placed_.graph->node_limit());
  for (const NodeId id : order_) {
    ProgramNode& node = nodes_[id];
    node.device = placed_.placement[id].device;
    if (const auto compiled = placed_.compiled.find(id); compiled != placed_.compiled.end()) {
      node.kernel = std::move(compiled->second.kernel);
    } else if (node.device < 0 && is_control_flow(graph().node(id))) {
      node.control = make_control_node(context_, placed_, graph().node(id));
    } else if (!is_host_node(id)) {
      if (record_ != nullptr) {
        const auto later = record_->later_kernel.find(placed_.graph->node(id).name);
        if (later != record_->later_kernel.end()) node.candidate = later->second;
      }
      create_kernel_of(id);
    }
  }
}

void Program::create_kernel_of(NodeId id) {
  ProgramNode& node = nodes_[id];
  const std::vector<RegisteredKernel>& kernels = placed_.placement[id].kernels;
  std::string refusals;
  for (; node.candidate < kernels.size(); ++node.candidate) {
    try {
      node.kernel = create_kernel(*context_.devices, node.device, kernels[node.candidate],
                                  view_->node(id), context_.threads, context_.create_flags());
      return;
    } catch (const Error& error) {
      if (error.code() != Code::Unsupported) {
        const RegisteredKernel& kernel = kernels[node.candidate];
        throw error.within(node_words(graph(), id, kernel.guest ? kernel.plugin.get() : nullptr));
      }
      refusals += (refusals.empty() ? "" : "; ") + error.message();
    }
  }
  throw KernelRefused{id, refusals};
}

void Program::ensure_kernel(NodeId id) {
  ProgramNode& node = nodes_[id];
  if (node.kernel) return;
  if (node.device < 0) {
    throw Error(Code::Unsupported,
                text("no provider takes it: ", core::describe(placed_.placement[id].reasons),
                     "; nor can it be evaluated while planning"));
  }
  create_kernel_of(id);
}

bool Program::next_kernel(NodeId id) {
  ProgramNode& node = nodes_[id];
  if (node.candidate + 1 >= placed_.placement[id].kernels.size()) return false;
  ++node.candidate;
  node.prepared = {};  // ends before its kernel
  retired_.push_back(std::move(node.kernel));
  create_kernel_of(id);
  return true;
}

void Program::record_refusal(const KernelRefused& refused, Refusals& refusals) const {
  const Node& node = graph().node(refused.node);
  const int device = placed_.placement[refused.node].device;
  const std::string& label = context_.devices->at(device).label();
  if (placed_.compiled.contains(refused.node)) {
    refusals.claims[device] = text("the claims of ", label, " are not taken: its compiled node '",
                                   node.name, "' was refused: ", refused.text);
  } else if (first_placement_.contains(node.name)) {
    refusals.nodes.push_back({node.name, device, refused.text});
  } else {
    refusals.rewrites[device] = text("the rewrite of ", label, " is not used: its node '",
                                     node.name, "' was refused: ", refused.text);
  }
  context_.logger->info("node '", node.name, "' was refused by ", label, ": ", refused.text);
}

}  // namespace backplane::core

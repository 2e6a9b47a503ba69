#include "plugins/cpu/rewrite/working_graph.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/activation_attributes.hpp"

namespace backplane::cpu {
namespace {

std::string name_of(const sdk::ValueInfo& value) { return value ? value.name() : ""; }

/// An attribute of the original as a value, for the kinds that nodes of the rewrite have.
bool copy_attribute(const bp_attribute& from, AttributeValue& to) {
  switch (from.type) {
    case BP_ATTRIBUTE_INT:
      to = from.ints[0];
      return true;
    case BP_ATTRIBUTE_FLOAT:
      to = from.floats[0];
      return true;
    case BP_ATTRIBUTE_STRING:
      to = std::string(from.strings[0].data, from.strings[0].size);
      return true;
    case BP_ATTRIBUTE_INTS:
      to = std::vector<int64_t>(from.ints, from.ints + from.count);
      return true;
    case BP_ATTRIBUTE_FLOATS:
      to = std::vector<float>(from.floats, from.floats + from.count);
      return true;
    default:
      return false;
  }
}

}  // namespace

const std::string& WorkNode::input(std::size_t index) const {
  static const std::string kNone;
  return index < inputs.size() ? inputs[index] : kNone;
}

void WorkNode::set_input(std::size_t index, const std::string& value) {
  if (inputs.size() <= index) inputs.resize(index + 1);
  inputs[index] = value;
}

void WorkNode::set_activation(const Activation& activation) {
  attributes[kActivation] = std::string(activation_name(activation.kind));
  attributes[kActivationAlpha] = activation.alpha;
  attributes[kActivationBeta] = activation.beta;
  attributes[kActivationFactor] = activation.factor;
  attributes[kActivationShift] = activation.shift;
}

Activation WorkNode::activation() const {
  const auto number = [this](const char* name) { return std::get<float>(attributes.at(name)); };
  return {activation_kind(std::get<std::string>(attributes.at(kActivation))),
          number(kActivationAlpha), number(kActivationBeta), number(kActivationFactor),
          number(kActivationShift)};
}

WorkingGraph::WorkingGraph(const sdk::Graph& graph, sdk::Rewrite& edit)
    : graph_(graph), edit_(edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    auto work = std::make_unique<WorkNode>();
    work->domain = node.domain();
    work->op = node.op_type();
    work->original = node;
    work->replaced = {node};
    for (std::size_t k = 0; k < node.input_count(); ++k)
      work->inputs.push_back(name_of(node.input(k)));
    for (std::size_t k = 0; k < node.output_count(); ++k)
      work->outputs.push_back(name_of(node.output(k)));
    slots_[work.get()] = nodes_.size();
    by_original_[node.raw()] = work.get();
    link(work.get());
    nodes_.push_back(std::move(work));
  }
}

void WorkingGraph::link(WorkNode* node) {
  for (const std::string& value : node->inputs) {
    if (!value.empty()) consumers_[value].push_back(node);
  }
  for (const std::string& value : node->outputs) {
    if (!value.empty()) producers_[value] = node;
  }
}

void WorkingGraph::unlink(WorkNode* node) {
  for (const std::string& value : node->inputs) {
    auto& readers = consumers_[value];
    const auto found = std::find(readers.begin(), readers.end(), node);
    if (found != readers.end()) readers.erase(found);
  }
  for (const std::string& value : node->outputs) {
    const auto found = producers_.find(value);
    if (found != producers_.end() && found->second == node) producers_.erase(found);
  }
}

WorkNode* WorkingGraph::producer(const std::string& value) const {
  const auto found = producers_.find(value);
  return found == producers_.end() ? nullptr : found->second;
}

std::vector<WorkNode*> WorkingGraph::consumers(const std::string& value) const {
  const auto found = consumers_.find(value);
  return found == consumers_.end() ? std::vector<WorkNode*>() : found->second;
}

WorkNode* WorkingGraph::only_consumer(const std::string& value) const {
  const auto found = consumers_.find(value);
  if (found == consumers_.end() || found->second.size() != 1 || is_output(value)) return nullptr;
  return found->second.front();
}

sdk::ValueInfo WorkingGraph::info(const std::string& value) const {
  return value.empty() ? sdk::ValueInfo() : graph_.value(value.c_str());
}

bool WorkingGraph::is_output(const std::string& value) const {
  const sdk::ValueInfo found = info(value);
  return found && found.is_output();
}

sdk::ValueInfo WorkingGraph::constant_info(const std::string& value) const {
  const sdk::ValueInfo found = info(value);
  return found && found.is_constant() ? found : sdk::ValueInfo();
}

const bp_tensor* WorkingGraph::constant(const std::string& value) const {
  const sdk::ValueInfo found = info(value);
  return found ? sdk::host().graph->value_constant(found.raw()) : nullptr;
}

bool WorkingGraph::is_float(const std::string& value) const {
  const sdk::ValueInfo found = info(value);
  return found && found.type() == sdk::DataType::Float;
}

bool WorkingGraph::scalar(const std::string& value, float& out) const {
  const sdk::ValueInfo found = constant_info(value);
  if (!found || found.type() != sdk::DataType::Float || sdk::element_count(found.dims()) != 1)
    return false;
  const bp_tensor* tensor = constant(value);
  if (tensor->host_ptr == nullptr) return false;
  std::memcpy(&out, tensor->host_ptr, sizeof(out));
  return true;
}

bool WorkingGraph::integers(const std::string& value, std::vector<int64_t>& out) const {
  out.clear();
  if (value.empty()) return true;
  const bp_tensor* tensor = constant(value);
  if (tensor == nullptr || tensor->host_ptr == nullptr) return false;
  out = sdk::Tensor(tensor).to_ints();
  return true;
}

bool WorkingGraph::reduced_axes(const WorkNode& node, std::vector<int64_t>& axes) const {
  if (!node.input(1).empty()) return integers(node.input(1), axes);
  axes = node.original.get_ints("axes");
  return true;
}

bool WorkingGraph::same_dims(const std::string& a, const std::string& b) const {
  const sdk::ValueInfo left = info(a), right = info(b);
  return left && right && patterns::same_dims(left, right);
}

void WorkingGraph::take(const WorkNode* node) {
  for (const sdk::Node& original : node->replaced) {
    taken_.insert(original.raw());
    by_original_.erase(original.raw());
  }
}

void WorkingGraph::change(WorkNode* node) {
  if (node->changed) return;
  node->changed = true;
  take(node);
  if (!node->original) return;
  for (uint64_t i = 0; i < sdk::host().graph->node_attribute_count(node->original.raw()); ++i) {
    const bp_attribute* attribute = sdk::host().graph->node_attribute_at(node->original.raw(), i);
    AttributeValue value;
    if (copy_attribute(*attribute, value)) node->attributes[attribute->name] = value;
  }
}

void WorkingGraph::absorb(WorkNode* into, WorkNode* from) {
  change(into);
  into->replaced.insert(into->replaced.end(), from->replaced.begin(), from->replaced.end());
  take(from);
  unlink(from);
  const std::size_t place = slot(from);
  const std::size_t old = slot(into);
  slots_.erase(from);
  nodes_[place] = std::move(nodes_[old]);
  slots_[into] = place;
}

void WorkingGraph::remove(WorkNode* node, WorkNode* into) {
  change(into);
  into->replaced.insert(into->replaced.end(), node->replaced.begin(), node->replaced.end());
  take(node);
  unlink(node);
  const std::size_t place = slot(node);
  slots_.erase(node);
  nodes_[place].reset();
}

WorkNode* WorkingGraph::merge(const std::vector<sdk::Node>& nodes, const sdk::Node& last,
                              const char* op, std::vector<std::string> inputs) {
  WorkNode* const node = by_original_.at(last.raw());
  for (const sdk::Node& each : nodes) {
    if (each != last) remove(by_original_.at(each.raw()), node);
  }
  change(node);
  node->domain = kPrivateDomain;
  node->op = op;
  node->attributes.clear();
  set_inputs(node, std::move(inputs));
  return node;
}

void WorkingGraph::remove_if_unread(WorkNode* node, WorkNode* into) {
  if (node != nullptr && consumers(node->outputs[0]).empty() && !is_output(node->outputs[0]))
    remove(node, into);
}

void WorkingGraph::set_input(WorkNode* node, std::size_t index, const std::string& value) {
  unlink(node);
  node->set_input(index, value);
  link(node);
}

void WorkingGraph::set_inputs(WorkNode* node, std::vector<std::string> values) {
  unlink(node);
  node->inputs = std::move(values);
  link(node);
}

void WorkingGraph::set_output(WorkNode* node, std::size_t index, const std::string& value) {
  unlink(node);
  if (node->outputs.size() <= index) node->outputs.resize(index + 1);
  node->outputs[index] = value;
  link(node);
}

WorkNode* WorkingGraph::add(const std::string& domain, const std::string& op,
                            std::vector<std::string> inputs, std::vector<std::string> outputs) {
  auto work = std::make_unique<WorkNode>();
  work->domain = domain;
  work->op = op;
  work->inputs = std::move(inputs);
  work->outputs = std::move(outputs);
  work->changed = true;
  link(work.get());
  added_.push_back(std::move(work));
  return added_.back().get();
}

std::string WorkingGraph::fresh(const std::string& base) {
  for (;;) {
    std::string name = base + "_" + std::to_string(fresh_names_[base]++);
    if (!info(name)) return name;
  }
}

void WorkingGraph::emit() {
  const auto hand_over = [this](const WorkNode& node) {
    sdk::NodeDraft draft = edit_.node(node.domain, node.op);
    for (const std::string& value : node.inputs) draft.input(value);
    for (const std::string& value : node.outputs) draft.output(value);
    for (const auto& attribute : node.attributes) {
      const auto give = [&](const auto& value) { draft.attribute(attribute.first, value); };
      std::visit(give, attribute.second);
    }
    for (const sdk::Node& original : node.replaced) draft.replaces(original);
    draft.add();
  };
  for (const auto& node : nodes_) {
    if (node != nullptr && node->changed) hand_over(*node);
  }
  for (const auto& node : added_) {
    const auto is_read = [this](const std::string& value) {
      return !consumers(value).empty() || is_output(value);
    };
    if (std::any_of(node->outputs.begin(), node->outputs.end(), is_read)) hand_over(*node);
  }
}

}  // namespace backplane::cpu

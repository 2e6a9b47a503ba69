#include "plugins/cuda/rewrite/recorded_edit.hpp"

#include <algorithm>
#include <utility>

namespace backplane::cuda {
namespace {

/// False for kinds that nodes of rewrites do not have here: tensors, graphs, lists of strings.
bool copy_attribute(const bp_attribute& from, std::map<std::string, AttributeValue>& to) {
  switch (from.type) {
    case BP_ATTRIBUTE_INT:
      to[from.name] = from.ints[0];
      return true;
    case BP_ATTRIBUTE_FLOAT:
      to[from.name] = from.floats[0];
      return true;
    case BP_ATTRIBUTE_STRING:
      to[from.name] = std::string(from.strings[0].data, from.strings[0].size);
      return true;
    case BP_ATTRIBUTE_INTS:
      to[from.name] = std::vector<std::int64_t>(from.ints, from.ints + from.count);
      return true;
    case BP_ATTRIBUTE_FLOATS:
      to[from.name] = std::vector<float>(from.floats, from.floats + from.count);
      return true;
    default:
      return false;
  }
}

std::vector<std::string> names_of(const char* const* names, std::uint64_t count) {
  std::vector<std::string> list;
  for (std::uint64_t i = 0; i < count; ++i) list.emplace_back(names[i] == nullptr ? "" : names[i]);
  return list;
}

DraftNode draft_of(const sdk::Node& node) {
  DraftNode draft;
  draft.domain = node.domain();
  draft.op_type = node.op_type();
  draft.name = node.name();
  draft.replaces = {node};
  for (std::size_t i = 0; i < node.input_count(); ++i)
    draft.inputs.push_back(name_of(node.input(i)));
  for (std::size_t i = 0; i < node.output_count(); ++i)
    draft.outputs.push_back(name_of(node.output(i)));
  const bp_graph_api& api = *sdk::host().graph;
  for (std::uint64_t i = 0; i < api.node_attribute_count(node.raw()); ++i) {
    if (!copy_attribute(*api.node_attribute_at(node.raw(), i), draft.attributes))
      draft.is_fixed = true;
  }
  return draft;
}

/// The nodes, makers before readers, otherwise in the order of `places`.
std::vector<DraftNode> sorted(std::vector<DraftNode> nodes,
                              const std::vector<std::size_t>& places) {
  std::map<std::string, std::size_t> makers;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].outputs) {
      if (!output.empty()) makers[output] = i;
    }
  }
  std::vector<std::vector<std::size_t>> readers(nodes.size());
  std::vector<std::size_t> missing(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& input : nodes[i].inputs) {
      const auto maker = makers.find(input);
      if (maker == makers.end()) continue;
      readers[maker->second].push_back(i);
      ++missing[i];
    }
  }
  std::set<std::pair<std::size_t, std::size_t>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (missing[i] == 0) ready.emplace(places[i], i);
  }
  std::vector<DraftNode> order;
  while (!ready.empty()) {
    const std::size_t next = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(std::move(nodes[next]));
    for (const std::size_t reader : readers[next]) {
      if (--missing[reader] == 0) ready.emplace(places[reader], reader);
    }
  }
  return order;
}

}  // namespace

std::string name_of(const sdk::ValueInfo& value) { return value ? value.name() : ""; }

std::int64_t DraftNode::get_int(const std::string& attribute, std::int64_t otherwise) const {
  const auto found = attributes.find(attribute);
  const auto* const value =
      found == attributes.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value == nullptr ? otherwise : *value;
}

std::vector<std::int64_t> DraftNode::get_ints(const std::string& attribute) const {
  const auto found = attributes.find(attribute);
  const auto* const value =
      found == attributes.end() ? nullptr : std::get_if<std::vector<std::int64_t>>(&found->second);
  return value == nullptr ? std::vector<std::int64_t>() : *value;
}

RecordedEdit::RecordedEdit(const sdk::Graph& graph, sdk::Rewrite& host)
    : graph_(graph), host_(host), edit_(reinterpret_cast<bp_rewrite*>(this), &table()) {}

const bp_rewrite_api& RecordedEdit::table() {
  static const bp_rewrite_api api = [] {
    auto made = sdk::abi_struct<bp_rewrite_api>();
    made.add_constant = [](bp_rewrite* editor, const bp_constant_desc* desc) {
      return sdk::guarded([&] { reinterpret_cast<RecordedEdit*>(editor)->add_constant(*desc); });
    };
    made.add_node = [](bp_rewrite* editor, const bp_node_desc* desc) {
      return sdk::guarded([&] { reinterpret_cast<RecordedEdit*>(editor)->add_node(*desc); });
    };
    made.set_format = [](bp_rewrite* editor, const char* value, std::uint32_t format) {
      return sdk::guarded(
          [&] { reinterpret_cast<RecordedEdit*>(editor)->host_.set_format(value, format); });
    };
    made.note = [](bp_rewrite* editor, const bp_node* node, const char* text) {
      return sdk::guarded(
          [&] { reinterpret_cast<RecordedEdit*>(editor)->note(sdk::Node(node), text); });
    };
    return made;
  }();
  return api;
}

void RecordedEdit::note(const sdk::Node& node, const std::string& text) {
  std::string& notes = notes_[node.raw()];
  notes += notes.empty() ? text : "; " + text;
  host_.note(node, notes);
}

void RecordedEdit::add_constant(const bp_constant_desc& desc) {
  host_.add(desc);
  constants_[desc.name] = {static_cast<sdk::DataType>(desc.dtype),
                           sdk::Dims(desc.dims, desc.dims + desc.rank)};
}

void RecordedEdit::add_node(const bp_node_desc& desc) {
  DraftNode draft;
  draft.is_added = true;
  draft.domain = desc.domain == nullptr ? "" : desc.domain;
  draft.op_type = desc.op_type;
  draft.name = desc.name == nullptr ? "" : desc.name;
  draft.inputs = names_of(desc.inputs, desc.input_count);
  draft.outputs = names_of(desc.outputs, desc.output_count);
  for (std::uint64_t i = 0; i < desc.attribute_count; ++i) {
    if (!copy_attribute(*desc.attributes[i], draft.attributes)) draft.is_fixed = true;
  }
  for (std::uint64_t i = 0; i < desc.replace_count; ++i) {
    draft.replaces.emplace_back(desc.replaces[i]);
    replaced_.insert(desc.replaces[i]);
  }
  // What attributes of other kinds hold is borrowed for this call alone.
  if (draft.is_fixed) host_.add(desc);
  added_.push_back(std::move(draft));
}

std::vector<DraftNode> RecordedEdit::nodes() const {
  std::map<const bp_node*, std::size_t> place_of;
  std::vector<DraftNode> nodes;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < graph_.node_count(); ++i) {
    const sdk::Node node = graph_.node(i);
    place_of[node.raw()] = i;
    if (replaced_.count(node.raw()) > 0) continue;
    nodes.push_back(draft_of(node));
    places.push_back(i);
  }
  for (const DraftNode& added : added_) {
    std::size_t place = 0;
    for (const sdk::Node& replaced : added.replaces)
      place = std::max(place, place_of[replaced.raw()]);
    nodes.push_back(added);
    places.push_back(place);
  }
  return sorted(std::move(nodes), places);
}

void RecordedEdit::hand_over(const std::vector<DraftNode>& nodes) const {
  for (const DraftNode& node : nodes) {
    if (!node.is_added || node.is_fixed) continue;
    sdk::NodeDraft draft = host_.node(node.domain, node.op_type);
    draft.name(node.name);
    for (const std::string& input : node.inputs) draft.input(input);
    for (const std::string& output : node.outputs) draft.output(output);
    for (const auto& [name, value] : node.attributes)
      std::visit([&draft, &key = name](const auto& held) { draft.attribute(key, held); }, value);
    for (const sdk::Node& replaced : node.replaces) draft.replaces(replaced);
    draft.add();
  }
}

const RecordedEdit::Constant* RecordedEdit::constant(const std::string& name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : &found->second;
}

}  // namespace backplane::cuda

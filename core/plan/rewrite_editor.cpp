#include "core/plan/rewrite_editor.hpp"

#include <cstring>

#include "core/base/quote.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

std::string required(const char* word, const char* what) {
  if (word == nullptr || *word == '\0') invalid("a rewrite gave no ", what);
  return word;
}

void take_name(bp_rewrite& editor, const std::string& name) {
  if (editor.graph->find_value(name) != kNone || !editor.new_names.insert(name).second)
    invalid("the name '", name, "' is taken");
}

bool is_constant(const bp_rewrite& editor, const std::string& name) {
  const ValueId id = editor.graph->find_value(name);
  if (id != kNone && editor.graph->value(id).constant != nullptr) return true;
  for (const bp_rewrite::Constant& constant : editor.constants) {
    if (constant.name == name) return true;
  }
  return false;
}

std::shared_ptr<LazyConstant> read_lazy(const bp_rewrite& editor, const bp_constant_desc& desc,
                                        const std::vector<std::int64_t>& dims) {
  if (desc.compute == nullptr)
    invalid("the constant '", desc.name, "' has neither data nor a function");
  auto lazy = std::make_shared<LazyConstant>(desc.name, static_cast<DataType>(desc.dtype), dims);
  lazy->plugin = editor.plugin;
  lazy->identity = editor.identity;
  lazy->key = desc.key != nullptr ? desc.key : "";
  lazy->self = desc.self;
  lazy->compute = desc.compute;
  lazy->drop = desc.drop;
  return lazy;
}

bp_status* add_constant(bp_rewrite* editor, const bp_constant_desc* desc) {
  return status_of([&] {
    check_struct(desc, BP_SIZE_V1(bp_constant_desc, drop), "a constant of a rewrite");
    bp_rewrite::Constant constant;
    constant.name = required(desc->name, "constant's name");
    const std::string what = "the constant " + core::quoted(constant.name);
    check_dims(desc->rank, desc->dims, what);
    if (element_bits(static_cast<DataType>(desc->dtype)) == 0)
      invalid(what, " has the element type ", desc->dtype, ", which is not of numbers");
    check_array(desc->sources, desc->source_count, what + ": its sources");
    const std::vector<std::int64_t> dims(desc->dims, desc->dims + desc->rank);
    element_count(dims);
    for (std::uint64_t i = 0; i < desc->source_count; ++i) {
      constant.sources.emplace_back(required(desc->sources[i], "source of a constant"));
      if (!is_constant(*editor, constant.sources.back())) {
        invalid("the source '", constant.sources.back(), "' of the constant '", constant.name,
                "' is not a constant");
      }
    }
    take_name(*editor, constant.name);
    if (desc->data != nullptr) {
      const auto* data = static_cast<const std::byte*>(desc->data);
      constant.known =
          Constant::copy_of(static_cast<DataType>(desc->dtype), dims, std::span(data, desc->bytes));
    } else {
      constant.lazy = read_lazy(*editor, *desc, dims);
    }
    editor->constants.push_back(std::move(constant));
  });
}

/// A node of the view: not one of a body, and not one that another device has.
NodeId offered_node(const bp_rewrite& editor, const bp_node* node) {
  const NodeId id = GraphView::id_of(node);
  if (id == kNone || editor.offered->node(id) != node)
    invalid("the rewrite names a node that was not offered");
  return id;
}

void read_replaced(bp_rewrite& editor, const bp_node_desc& desc, bp_rewrite::Draft& draft) {
  for (std::uint64_t i = 0; i < desc.replace_count; ++i) {
    const NodeId id = offered_node(editor, desc.replaces[i]);
    if (!editor.replaced.insert(id).second)
      invalid("the node '", editor.graph->node(id).name, "' is replaced twice");
    draft.replaces.push_back(id);
  }
}

bp_status* add_node(bp_rewrite* editor, const bp_node_desc* desc) {
  return status_of([&] {
    check_struct(desc, BP_SIZE_V1(bp_node_desc, replace_count), "a node of a rewrite");
    bp_rewrite::Draft draft;
    draft.node.op_type = required(desc->op_type, "operator");
    draft.node.domain = desc->domain != nullptr ? desc->domain : "";
    draft.node.name = desc->name != nullptr ? desc->name : "";
    draft.node.since_version = 1;
    const std::string what = "the new node " + core::quoted(draft.node.op_type);
    check_array(desc->inputs, desc->input_count, what + ": its inputs");
    check_array(desc->outputs, desc->output_count, what + ": its outputs");
    check_array(desc->attributes, desc->attribute_count, what + ": its attributes");
    check_array(desc->replaces, desc->replace_count, what + ": the nodes that it replaces");
    for (std::uint64_t i = 0; i < desc->input_count; ++i)
      draft.inputs.emplace_back(desc->inputs[i] != nullptr ? desc->inputs[i] : "");
    for (std::uint64_t i = 0; i < desc->output_count; ++i)
      draft.outputs.emplace_back(desc->outputs[i] != nullptr ? desc->outputs[i] : "");
    for (std::uint64_t i = 0; i < desc->attribute_count; ++i) {
      if (desc->attributes[i] == nullptr) invalid(what, ": attribute ", i, " is NULL");
      draft.node.attributes.insert(read_attribute(*desc->attributes[i]));
    }
    for (const std::string& output : draft.outputs) {
      if (!output.empty() && editor->graph->find_value(output) == kNone) take_name(*editor, output);
    }
    read_replaced(*editor, *desc, draft);
    editor->drafts.push_back(std::move(draft));
  });
}

bp_status* set_format(bp_rewrite* editor, const char* value, std::uint32_t format) {
  return status_of([&] { editor->formats[required(value, "value's name")] = format; });
}

bp_status* note(bp_rewrite* editor, const bp_node* node, const char* sentence) {
  return status_of([&] {
    editor->notes[editor->graph->node(offered_node(*editor, node)).name] =
        required(sentence, "note");
  });
}

}  // namespace

const bp_rewrite_api& rewrite_api() {
  static const bp_rewrite_api api = [] {
    bp_rewrite_api table{};
    table.struct_size = sizeof(table);
    table.add_constant = add_constant;
    table.add_node = add_node;
    table.set_format = set_format;
    table.note = note;
    return table;
  }();
  return api;
}

}  // namespace backplane::core

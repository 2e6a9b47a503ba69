#include "core/onnx/exporter.hpp"

#include <charconv>
#include <cstddef>
#include <functional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/tensors.hpp"
#include "core/onnx/types.hpp"

namespace backplane::core {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

constexpr std::int64_t kFirstWithFreeInitializers = 4;  // IR version

/// By index where that is an order in which the nodes can run; else, of those that can, always the one with the lowest
/// index: a file's order survives.
std::vector<NodeId> sorted_nodes(const Graph& graph) {
  PerNode<std::size_t> missing(graph.node_limit());
  PerNode<std::vector<NodeId>> followers(graph.node_limit());
  const auto depend = [&](NodeId later, NodeId earlier) {
    if (earlier == kNone) return;
    followers[earlier].push_back(later);
    ++missing[later];
  };
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    for (const std::vector<ValueId>* list : {&node.inputs, &node.captured}) {
      for (const ValueId input : *list) {
        if (input != kNone) depend(id, graph.value(input).producer);
      }
    }
    for (const NodeId earlier : node.after) depend(id, earlier);
    if (missing[id] == 0) ready.push(id);
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (const NodeId follower : followers[id]) {
      if (--missing[follower] == 0) ready.push(follower);
    }
  }
  // With a cycle there is none; this one says so.
  return order.size() == graph.node_count() ? order : topological_order(graph);
}

std::vector<NodeId> nodes_by_index(const Graph& graph) {
  std::vector<NodeId> nodes;
  for (const NodeId id : graph.node_ids()) nodes.push_back(id);
  return nodes;
}

class GraphWriter {
 public:
  GraphWriter(const Graph& graph, std::int64_t ir_version, const ExportSettings& settings,
              bool is_main)
      : graph_(graph), ir_version_(ir_version), settings_(settings), is_main_(is_main) {}

  void write(GraphProto& proto) {
    proto.set_name(graph_.name.empty() ? "graph" : graph_.name);  // ONNX wants one
    if (!graph_.doc.empty()) proto.set_doc_string(graph_.doc);
    find_kept();
    for (const ValueId input : graph_.inputs) add_info(*proto.add_input(), input);
    write_constants(proto);
    for (const NodeId id : settings_.sorted ? sorted_nodes(graph_) : nodes_by_index(graph_))
      write_node(*proto.add_node(), graph_.node(id));
    for (const ValueId output : graph_.outputs) add_info(*proto.add_output(), output);
    for (const Value& value : graph_.values()) {
      const bool is_inner = value.producer != kNone && !value.is_output;
      if (is_inner && value.type.kind != Type::Kind::Unknown)
        add_info(*proto.add_value_info(), value.id);
      write_annotation(proto, value);
    }
  }

 private:
  /// Whether somebody sees the value at all.
  bool is_there(const Value& value) const {
    return value.producer != kNone || value.is_input || value.is_output || !value.uses.empty() ||
           (value.constant != nullptr && listed_.contains(value.id) && !settings_.drop_unused);
  }

  /// Annotations name tensors that nobody else may read.
  void find_kept() {
    listed_.insert(graph_.initializers.begin(), graph_.initializers.end());
    for (const Value& value : graph_.values()) {
      if (!is_there(value)) continue;
      for (const auto& [parameter, tensor] : value.quantization) named_.insert(tensor);
    }
  }

  bool is_written(const Value& value) const {
    if (value.constant == nullptr || value.is_outer) return false;
    return is_there(value) || named_.contains(value.name);
  }

  void write_constants(GraphProto& proto) const {
    std::set<ValueId> written;
    const auto write = [&](ValueId id) {
      const Value& value = graph_.value(id);
      if (is_written(value) && written.insert(id).second) write_constant(proto, value);
    };
    for (const ValueId id : graph_.initializers) write(id);
    // What folding and rewrites made.
    for (const ValueId id : graph_.value_ids()) write(id);
  }

  void write_constant(GraphProto& proto, const Value& value) const {
    const bool as_node = !is_main_ && ir_version_ < kFirstWithFreeInitializers && !value.is_input;
    if (as_node) {
      NodeProto& node = *proto.add_node();
      node.set_op_type("Constant");
      node.add_output(value.name);
      AttributeProto& attribute = *node.add_attribute();
      attribute.set_name("value");
      attribute.set_type(AttributeProto::TENSOR);
      *attribute.mutable_t() = to_proto(*value.constant, std::string());
      return;
    }
    TensorProto& tensor = *proto.add_initializer();
    tensor.set_name(value.name);
    tensor.set_data_type(static_cast<int>(value.constant->type()));
    for (const std::int64_t dim : value.constant->dims()) tensor.add_dims(dim);
    settings_.contents(value.constant, tensor);
    if (is_main_ && ir_version_ < kFirstWithFreeInitializers && !value.is_input)
      add_info(*proto.add_input(), value.id);
  }

  void add_info(::onnx::ValueInfoProto& info, ValueId id) const {
    const Value& value = graph_.value(id);
    info.set_name(value.name);
    if (value.type.kind != Type::Kind::Unknown) {
      *info.mutable_type() = to_proto(value.type);
    } else if (value.constant != nullptr) {
      *info.mutable_type() = to_proto(Type::tensor(value.constant->type(), value.constant->dims()));
    }
  }

  static void write_annotation(GraphProto& proto, const Value& value) {
    if (value.quantization.empty()) return;
    auto& annotation = *proto.add_quantization_annotation();
    annotation.set_tensor_name(value.name);
    for (const auto& [parameter, tensor] : value.quantization) {
      auto& entry = *annotation.add_quant_parameter_tensor_names();
      entry.set_key(parameter);
      entry.set_value(tensor);
    }
  }

  void write_node(NodeProto& proto, const Node& node) const {
    proto.set_name(node.name);
    proto.set_op_type(node.op_type);
    if (!node.domain.empty()) proto.set_domain(node.domain);
    const auto name = [&](ValueId id) {
      return id == kNone ? std::string() : graph_.value(id).name;
    };
    for (const ValueId input : node.inputs) proto.add_input(name(input));
    for (const ValueId output : node.outputs) proto.add_output(name(output));
    for (const auto& [attribute_name, attribute] : node.attributes)
      write_attribute(*proto.add_attribute(), attribute_name, attribute);
    const auto note = [&](const std::string& key, const std::string& value) {
      auto& property = *proto.add_metadata_props();
      property.set_key(key);
      property.set_value(value);
    };
    if (node.priority != 0) note(kPriorityKey, std::to_string(node.priority));
    for (std::size_t i = 0; i < node.after.size(); ++i)
      note(kAfterKey + std::to_string(i), graph_.node(node.after[i]).name);
  }

  void write_body(GraphProto& proto, const Graph& body) const {
    GraphWriter(body, ir_version_, settings_, false).write(proto);
  }

  void write_attribute(AttributeProto& proto, const std::string& attribute_name,
                       const Attribute& attribute) const {
    using Kind = Attribute::Type;
    proto.set_name(attribute_name);
    proto.set_type(static_cast<AttributeProto::AttributeType>(attribute.type));
    const auto tensor = [](const ConstantPtr& constant) { return to_proto(*constant, ""); };
    switch (attribute.type) {
      case Kind::Float:
        proto.set_f(attribute.floats.at(0));
        break;
      case Kind::Int:
        proto.set_i(attribute.ints.at(0));
        break;
      case Kind::String:
        proto.set_s(attribute.strings.at(0));
        break;
      case Kind::Tensor:
        *proto.mutable_t() = tensor(attribute.tensors.at(0));
        break;
      case Kind::Graph:
        write_body(*proto.mutable_g(), *attribute.graphs.at(0));
        break;
      case Kind::TypeProto:
        *proto.mutable_tp() = to_proto(attribute.types.at(0));
        break;
      case Kind::Floats:
        for (const float value : attribute.floats) proto.add_floats(value);
        break;
      case Kind::Ints:
        for (const std::int64_t value : attribute.ints) proto.add_ints(value);
        break;
      case Kind::Strings:
        for (const std::string& value : attribute.strings) proto.add_strings(value);
        break;
      case Kind::Tensors:
        for (const ConstantPtr& value : attribute.tensors) *proto.add_tensors() = tensor(value);
        break;
      case Kind::Graphs:
        for (const auto& body : attribute.graphs) write_body(*proto.add_graphs(), *body);
        break;
      case Kind::TypeProtos:
        for (const Type& type : attribute.types) *proto.add_type_protos() = to_proto(type);
        break;
    }
  }

  const Graph& graph_;
  std::int64_t ir_version_;
  const ExportSettings& settings_;
  bool is_main_;
  std::set<ValueId> listed_;
  std::set<std::string> named_;
};

}  // namespace

void write_inline(const ConstantPtr& contents, TensorProto& proto) {
  if (contents->type() == DataType::String) {
    for (const std::string& string : contents->strings()) proto.add_string_data(string);
  } else {
    const auto bytes = contents->stored_bytes();
    proto.set_raw_data(bytes.data(), bytes.size());
  }
}

::onnx::ModelProto export_model(const Model& model, const ExportSettings& settings) {
  ::onnx::ModelProto proto;
  proto.set_ir_version(model.ir_version);
  const auto set = [](const std::string& text, auto&& assign) {
    if (!text.empty()) assign(text);
  };
  set(model.producer_name, [&](const std::string& text) { proto.set_producer_name(text); });
  set(model.producer_version, [&](const std::string& text) { proto.set_producer_version(text); });
  set(model.domain, [&](const std::string& text) { proto.set_domain(text); });
  set(model.doc, [&](const std::string& text) { proto.set_doc_string(text); });
  if (model.model_version != 0) proto.set_model_version(model.model_version);
  // Before IR version 3 there were no imports: everything is opset 1.
  for (const auto& [domain, version] : model.opsets) {
    if (model.ir_version < 3) break;
    auto& import = *proto.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
  }
  for (const auto& [key, value] : model.metadata) {
    auto& property = *proto.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
  }
  GraphWriter(model.graph, model.ir_version, settings, true).write(*proto.mutable_graph());
  return proto;
}

void read_node_metadata(const GraphProto& proto, Graph& graph) {
  for (const NodeProto& node : proto.node()) {
    for (const auto& property : node.metadata_props()) {
      const bool is_edge = property.key().starts_with(kAfterKey);
      if (!is_edge && property.key() != kPriorityKey) continue;
      const NodeId id = graph.find_node(node.name());
      if (id == kNone) continue;
      if (is_edge) {
        const NodeId earlier = graph.find_node(property.value());
        if (earlier != kNone) graph.add_control_edge(earlier, id);
        continue;
      }
      const std::string& text = property.value();
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), graph.node(id).priority);
      if (error != std::errc() || end != text.data() + text.size()) {
        invalid("node ", quoted(node.name()), ": its metadata give it the priority ", quoted(text),
                ", which is no integer");
      }
    }
  }
}

}  // namespace backplane::core

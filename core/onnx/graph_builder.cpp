#include "core/onnx/graph_builder.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/exporter.hpp"
#include "core/onnx/types.hpp"

namespace backplane::core {
namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

Attribute to_attribute(const AttributeProto& proto, const std::string& what, TensorReader& tensors,
                       const BodyBuilder& body) {
  Attribute attribute;
  attribute.type = static_cast<Attribute::Type>(proto.type());
  const auto add_body = [&](const GraphProto& graph) {
    if (body) attribute.graphs.push_back(body(graph));
  };
  switch (proto.type()) {
    case AttributeProto::FLOAT:
      attribute.floats = {proto.f()};
      break;
    case AttributeProto::INT:
      attribute.ints = {proto.i()};
      break;
    case AttributeProto::STRING:
      attribute.strings = {proto.s()};
      break;
    case AttributeProto::TENSOR:
      attribute.tensors = {tensors.read(proto.t(), what)};
      break;
    case AttributeProto::GRAPH:
      add_body(proto.g());
      break;
    case AttributeProto::TYPE_PROTO:
      attribute.types = {to_type(proto.tp())};
      break;
    case AttributeProto::FLOATS:
      attribute.floats.assign(proto.floats().begin(), proto.floats().end());
      break;
    case AttributeProto::INTS:
      attribute.ints.assign(proto.ints().begin(), proto.ints().end());
      break;
    case AttributeProto::STRINGS:
      attribute.strings.assign(proto.strings().begin(), proto.strings().end());
      break;
    case AttributeProto::TENSORS:
      for (const auto& tensor : proto.tensors())
        attribute.tensors.push_back(tensors.read(tensor, what));
      break;
    case AttributeProto::GRAPHS:
      std::for_each(proto.graphs().begin(), proto.graphs().end(), add_body);
      break;
    case AttributeProto::TYPE_PROTOS:
      for (const auto& type : proto.type_protos()) attribute.types.push_back(to_type(type));
      break;
    default:
      throw Error(Code::Unsupported, text(what, ": attributes of type ",
                                          static_cast<int>(proto.type()), " are not supported"));
  }
  return attribute;
}

/// Builds one graph, and those in it. `enclosing` are the graphs around it, the nearest last.
class Builder {
 public:
  Builder(const GraphProto& proto, const GraphSource& source, std::vector<const Graph*> enclosing)
      : proto_(proto), source_(source), enclosing_(std::move(enclosing)) {}

  Graph build(const std::vector<std::int32_t>* origins, int listed_initializers) {
    graph_.name = proto_.name();
    graph_.doc = proto_.doc_string();
    const bool main = enclosing_.empty();
    for (const auto& input : proto_.input()) graph_.add_input(named(input.name(), input.type()));
    for (int i = 0; i < proto_.initializer_size(); ++i) {
      const auto& tensor = proto_.initializer(i);
      add_initializer(tensor.name(), source_.tensors.initializer(tensor), main,
                      i < listed_initializers);
    }
    for (const auto& sparse : proto_.sparse_initializer()) {
      const std::string& name = sparse.values().name();
      add_initializer(name, source_.tensors.read(sparse, "sparse initializer " + quoted(name)),
                      main, false);
    }
    for (const auto& info : proto_.value_info()) types_.emplace(info.name(), &info.type());
    add_nodes(origins);
    read_node_metadata(proto_, graph_);
    for (const auto& output : proto_.output()) {
      const ValueId value = input_value(output.name());
      if (graph_.value(value).type.kind == Type::Kind::Unknown || main) {
        if (!graph_.value(value).constant) set_type(value, output.type());
      }
      graph_.add_output(value);
    }
    add_annotations();
    return std::move(graph_);
  }

 private:
  void set_type(ValueId value, const ::onnx::TypeProto& type) {
    try {
      graph_.value(value).type = to_type(type);
    } catch (const Error& error) {
      throw error.within("value " + core::quoted(graph_.value(value).name));
    }
  }

  ValueId named(const std::string& name, const ::onnx::TypeProto& type) {
    const ValueId value = graph_.value_named(name);
    set_type(value, type);
    return value;
  }

  void add_initializer(const std::string& name, ConstantPtr constant, bool main, bool listed) {
    const bool was_input = graph_.find_value(name) != kNone;
    const ValueId id = graph_.value_named(name);
    Value& value = graph_.value(id);
    const Type type = Type::tensor(constant->type(), constant->dims());
    value.overridable = main && was_input && source_.ir_version >= 4;
    if (value.overridable && value.type.kind != Type::Kind::Unknown) {
      check_default(value, *constant);
    } else {
      value.type = type;
    }
    graph_.add_initializer(id, std::move(constant));
    // Before IR version 4 initializers are inputs by definition.
    if (main && listed && !was_input && source_.ir_version < 4) graph_.add_input(id);
  }

  static void check_default(const Value& value, const Constant& constant) {
    bool fits = value.type.is_tensor() && value.type.element == constant.type();
    if (fits && value.type.shape) {
      const Shape& shape = *value.type.shape;
      fits = shape.size() == constant.dims().size();
      for (std::size_t i = 0; fits && i < shape.size(); ++i) {
        fits = !shape[i].known() || shape[i].size == constant.dims()[i];
      }
    }
    if (fits) return;
    invalid("initializer ", quoted(value.name), " is ", name(constant.type()),
            to_string(constant.dims()), ", but the graph input of this name is declared as ",
            value.type.to_string(),
            value.type.shape ? to_string(*value.type.shape) : std::string());
  }

  /// The value with this name; one of an enclosing graph when nothing here makes it.
  ValueId input_value(const std::string& name) {
    if (const ValueId known = graph_.find_value(name); known != kNone) return known;
    const ValueId value = graph_.value_named(name);
    if (enclosing_.empty()) return value;  // its node is yet to come
    graph_.value(value).is_outer = true;
    for (auto outer = enclosing_.rbegin(); outer != enclosing_.rend(); ++outer) {
      const ValueId found = (*outer)->find_value(name);
      if (found == kNone) continue;
      graph_.value(value).type = (*outer)->value(found).type;
      break;
    }
    return value;
  }

  /// The protos are sorted; nodes get the indices that the file gives them.
  std::vector<int> file_order(const std::vector<std::int32_t>* origins) const {
    std::vector<int> order(static_cast<std::size_t>(proto_.node_size()));
    std::iota(order.begin(), order.end(), 0);
    if (origins == nullptr) return order;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return (*origins)[static_cast<std::size_t>(a)] < (*origins)[static_cast<std::size_t>(b)];
    });
    return order;
  }

  /// Bodies may read what a node makes that the file stores behind them.
  void type_outputs_for_bodies() {
    if (std::none_of(proto_.node().begin(), proto_.node().end(), has_bodies)) return;
    for (const NodeProto& node : proto_.node()) {
      for (const std::string& output : node.output()) {
        const auto type = types_.find(output);
        if (type != types_.end()) named(output, *type->second);
      }
    }
  }

  void add_nodes(const std::vector<std::int32_t>* origins) {
    type_outputs_for_bodies();
    std::vector<const Graph*> around = enclosing_;
    around.push_back(&graph_);
    const BodyBuilder body = [&](const GraphProto& proto) {
      return std::make_shared<Graph>(Builder(proto, source_, around).build(nullptr, 0));
    };
    for (const int i : file_order(origins)) {
      const NodeProto& node = proto_.node(i);
      for (const std::string& input : node.input()) {
        if (!input.empty()) input_value(input);
      }
      const int version = schema_of(node, source_.opsets, source_.schemas).since_version();
      const NodeId id = add_node(graph_, node, version, source_.tensors, body);
      if (origins != nullptr) graph_.node(id).origins = {(*origins)[static_cast<std::size_t>(i)]};
      for (const ValueId output : graph_.node(id).outputs) {
        if (output == kNone) continue;
        const auto type = types_.find(graph_.value(output).name);
        if (type != types_.end()) set_type(output, *type->second);
      }
    }
  }

  void add_annotations() {
    for (const auto& annotation : proto_.quantization_annotation()) {
      const ValueId value = graph_.find_value(annotation.tensor_name());
      if (value == kNone) continue;  // of a value that is gone; it binds nobody
      for (const auto& entry : annotation.quant_parameter_tensor_names()) {
        graph_.value(value).quantization[entry.key()] = entry.value();
      }
    }
  }

  const GraphProto& proto_;
  const GraphSource& source_;
  std::vector<const Graph*> enclosing_;
  Graph graph_;
  std::unordered_map<std::string, const ::onnx::TypeProto*> types_;
};

}  // namespace

bool has_bodies(const NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(),
                     [](const AttributeProto& a) { return a.has_g() || a.graphs_size() > 0; });
}

NodeId add_node(Graph& graph, const NodeProto& proto, int since_version, TensorReader& tensors,
                const BodyBuilder& body) {
  Node node;
  node.name = proto.name();
  node.op_type = proto.op_type();
  node.domain = canonical_domain(proto.domain());
  node.since_version = since_version;
  const auto value = [&](const std::string& name) {
    return name.empty() ? kNone : graph.value_named(name);
  };
  for (const std::string& input : proto.input()) node.inputs.push_back(value(input));
  for (const std::string& output : proto.output()) node.outputs.push_back(value(output));
  for (const AttributeProto& attribute : proto.attribute()) {
    const std::string what = described(proto) + ": attribute " + quoted(attribute.name());
    node.attributes.emplace(attribute.name(), to_attribute(attribute, what, tensors, body));
  }
  return graph.add_node(std::move(node));
}

Graph build_graph(const GraphProto& proto, const GraphSource& source,
                  const std::vector<std::int32_t>& origins, int listed_initializers) {
  Graph graph = Builder(proto, source, {}).build(&origins, listed_initializers);
  graph.update_captures();
  return graph;
}

}  // namespace backplane::core

// https://onnx.ai/onnx/repo-docs/IR.html#functions
#include "core/onnx/function_body.hpp"

#include <algorithm>
#include <map>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/body_proto.hpp"
#include "core/onnx/function_operator.hpp"
#include "core/onnx/import_call.hpp"
#include "core/onnx/opsets.hpp"
#include "core/onnx/schema_registry_impl.hpp"
#include "core/onnx/tensors.hpp"
#include "core/onnx/types.hpp"

namespace backplane::core {
namespace {

using ::onnx::FunctionProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;

constexpr const char* kDomain = "backplane.function";

/// Constants of up to this size are constants of the body too, so that inference can look at them.
constexpr std::size_t kMostConstantBytes = 1024;

/// In ONNX's body of AffineGrid (1.23) rows of the matrices lose every axis of one element, that of a batch of one too,
/// and an axis of the grid with one element and aligned corners divides by zero.
void mend_affine_grid(::google::protobuf::RepeatedPtrField<NodeProto>& nodes) {
  for (int i = 0; i < nodes.size(); ++i) {
    NodeProto& node = *nodes.Mutable(i);
    if (node.op_type() == "Squeeze" && node.input_size() == 1) node.add_input("one_1d");
    const bool is_step = node.op_type() == "Div" && node.output_size() == 1 &&
                         (node.output(0) == "step_h_else" || node.output(0) == "step_w_else");
    if (is_step) {  // of one element: any step will do
      const std::string cells = node.input(1), least = cells + "_or_one";
      node.set_input(1, least);
      NodeProto made;
      made.set_op_type("Max");
      made.add_input(cells);
      made.add_input("one_f");
      made.add_output(least);
      *nodes.Add() = std::move(made);
      for (int at = nodes.size() - 1; at > i; --at) nodes.SwapElements(at, at - 1);
      ++i;
      continue;
    }
    for (::onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) mend_affine_grid(*attribute.mutable_g()->mutable_node());
    }
  }
}

/// The body that was written first: later ones are for later opsets and do the same.
std::optional<FunctionProto> find_function(const ::onnx::OpSchema& schema, const NodeProto& node,
                                           const std::vector<::onnx::TypeProto>& input_types) {
  for (const int version : schema.function_opset_versions()) {
    const FunctionProto* const known = schema.GetFunction(version);
    if (known == nullptr) continue;
    FunctionProto function = *known;
    if (node.op_type() == "AffineGrid" && node.domain().empty())
      mend_affine_grid(*function.mutable_node());
    return function;
  }
  for (const int version : schema.context_dependent_function_opset_versions()) {
    const ::onnx::FunctionBodyBuildContextImpl context(node, input_types);
    FunctionProto function;
    if (schema.BuildContextDependentFunction(context, function, version)) return function;
  }
  return std::nullopt;
}

/// Attributes that are left out count as their defaults: the body refers to them.
void add_defaults(NodeProto& node, const ::onnx::OpSchema& schema) {
  for (const auto& [name, attribute] : schema.attributes()) {
    if (attribute.default_value.type() == ::onnx::AttributeProto::UNDEFINED) continue;
    const auto is_this = [&, wanted = name](const auto& given) { return given.name() == wanted; };
    if (std::none_of(node.attribute().begin(), node.attribute().end(), is_this))
      *node.add_attribute() = attribute.default_value;
  }
}

/// A model of one node that calls the function.
class CallWriter {
 public:
  CallWriter(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  ModelProto write(FunctionProto function, NodeProto call) {
    ModelProto model;
    model.set_ir_version(10);
    for (const auto& entry : function.opset_import()) *model.add_opset_import() = entry;
    const auto is_standard = [](const auto& entry) {
      return canonical_domain(entry.domain()).empty();
    };
    if (std::none_of(function.opset_import().begin(), function.opset_import().end(), is_standard)) {
      const int newest = SchemaRegistry::Impl::newest_version("").value_or(1);
      model.add_opset_import()->set_version(node_.domain.empty() ? node_.since_version : newest);
    }
    auto& own = *model.add_opset_import();
    own.set_domain(kDomain);
    own.set_version(1);
    ::onnx::GraphProto& proto = *model.mutable_graph();
    proto.set_name(node_.name);
    for (const ValueId input : node_.inputs) add_input(proto, input);
    for (const ValueId captured : node_.captured) add_input(proto, captured);
    drop_outputs(call, function);
    for (const std::string& output : call.output()) proto.add_output()->set_name(output);
    function.set_domain(kDomain);
    function.set_name(node_.op_type);
    function.clear_overload();
    for (int i = 0; i < function.node_size(); ++i) {
      NodeProto& inner = *function.mutable_node(i);
      inner.set_name(text(node_.name, "/", inner.op_type(), "_", i));
    }
    call.set_domain(kDomain);
    *proto.add_node() = std::move(call);
    *model.add_functions() = std::move(function);
    return model;
  }

  const std::map<std::string, ValueId>& inputs() const { return inputs_; }

 private:
  /// Outputs that the node leaves out; some bodies do not even make them then.
  static void drop_outputs(NodeProto& call, FunctionProto& function) {
    std::vector<std::string> actual, formal;
    for (int i = 0; i < std::min(call.output_size(), function.output_size()); ++i) {
      if (call.output(i).empty()) continue;
      actual.push_back(call.output(i));
      formal.push_back(function.output(i));
    }
    call.clear_output();
    function.clear_output();
    for (const std::string& output : actual) call.add_output(output);
    for (const std::string& output : formal) function.add_output(output);
  }

  void add_input(::onnx::GraphProto& proto, ValueId id) {
    if (id == kNone || !seen_.emplace(graph_.value(id).name, id).second) return;
    const Value& value = graph_.value(id);
    if (value.constant != nullptr && !value.overridable &&
        value.constant->stored_bytes().size() <= kMostConstantBytes) {
      *proto.add_initializer() = to_proto(*value.constant, value.name);
      return;
    }
    inputs_.emplace(value.name, id);
    auto& info = *proto.add_input();
    info.set_name(value.name);
    if (value.type.kind != Type::Kind::Unknown) *info.mutable_type() = to_proto(value.type);
  }

  const Graph& graph_;
  const Node& node_;
  std::map<std::string, ValueId> inputs_, seen_;
};

/// The operator's own writer of bodies; null where its schema is somebody else's.
const FunctionOperator* writer_of(const Node& node, const ::onnx::OpSchema& schema) {
  const FunctionOperator* known = function_operator(node.domain, node.op_type, node.since_version);
  return known != nullptr && &known->schema == &schema ? known : nullptr;
}

FunctionProto written(const Graph& graph, const Node& node, const NodeProto& call,
                      const FunctionOperator& known) {
  BodyWriter writer(graph, node, call);
  known.write(writer);
  return writer.take();
}

template <class Visit>
void for_each_dim(Graph& graph, Visit&& visit) {
  for (Value& value : graph.values()) {
    if (!value.type.is_tensor() || !value.type.shape) continue;
    for (Dim& dim : *value.type.shape) visit(dim);
  }
}

/// What the node's graph knows of dimensions that inference named anew within the body. What the file calls dimensions of
/// an output may be wrong, so it is no reason to give one of them the name of an input's dimension.
std::map<std::string, Dim> dims_outside(const Graph& graph, const Node& node, const Graph& body,
                                        const std::set<std::string>& given) {
  std::map<std::string, Dim> known;
  std::size_t made = 0;
  for (const ValueId output : node.outputs) {
    if (output == kNone || made == body.outputs.size()) continue;
    const Type& inside = body.value(body.outputs[made++]).type;
    const Type& outside = graph.value(output).type;
    if (!inside.shape || !outside.shape || inside.shape->size() != outside.shape->size()) continue;
    for (std::size_t i = 0; i < inside.shape->size(); ++i) {
      const Dim &one = (*inside.shape)[i], &other = (*outside.shape)[i];
      const bool is_claim = graph.value(output).has_unproven_symbols && !other.known();
      if (is_claim && given.contains(other.symbol)) continue;
      if (!one.symbol.empty() && (other.known() || !other.symbol.empty()))
        known.emplace(one.symbol, other);
    }
  }
  return known;
}

/// Symbols that inference made up within the body are the body's own, since another graph may have made up the same
/// ones; those of outputs are the node's.
void rename_symbols(const Graph& graph, const Node& node, Graph& body) {
  std::set<std::string> given;
  for (const ValueId input : node.inputs) {
    if (input == kNone || !graph.value(input).type.shape) continue;
    for (const Dim& dim : *graph.value(input).type.shape) given.insert(dim.symbol);
  }
  const std::map<std::string, Dim> outside = dims_outside(graph, node, body, given);
  for_each_dim(body, [&](Dim& dim) {
    if (dim.symbol.empty() || given.contains(dim.symbol)) return;
    if (const auto known = outside.find(dim.symbol); known != outside.end()) {
      dim = known->second;
    } else {
      dim.symbol = text(node.name, "/", dim.symbol);
    }
  });
}

/// A symbol of the body's own says nothing outside.
Type without_own_symbols(const Node& node, Type type) {
  if (!type.shape) return type;
  for (Dim& dim : *type.shape) {
    if (dim.symbol.starts_with(node.name + "/")) dim.symbol.clear();
  }
  return type;
}

/// Of the first input of the same type parameter; of unknown rank.
Type type_by_parameter(const Graph& graph, const Node& node, const ::onnx::OpSchema& schema,
                       std::size_t output) {
  if (output >= schema.outputs().size()) return {};
  const std::string& wanted = schema.outputs()[output].GetTypeStr();
  for (std::size_t i = 0; i < std::min(node.inputs.size(), schema.inputs().size()); ++i) {
    if (node.inputs[i] == kNone || schema.inputs()[i].GetTypeStr() != wanted) continue;
    const Type& type = graph.value(node.inputs[i]).type;
    if (type.is_tensor()) return Type::tensor(type.element);
  }
  const auto& types = schema.outputs()[output].GetTypes();
  return types.size() == 1 ? Type::parse(**types.begin()) : Type();
}

}  // namespace

std::vector<Type> output_types_by_body(const Graph& graph, const Node& node,
                                       const SchemaRegistry& schemas) {
  const ::onnx::OpSchema& schema =
      *schemas.impl().GetSchema(node.op_type, node.since_version, node.domain);
  const FunctionOperator* known = writer_of(node, schema);
  std::vector<Type> types(node.outputs.size());
  for (std::size_t i = 0; i < types.size(); ++i)
    types[i] = type_by_parameter(graph, node, schema, i);
  if (known == nullptr) return types;
  if (known->keeps_shape && !node.inputs.empty() && node.inputs[0] != kNone) {
    for (Type& type : types) type = graph.value(node.inputs[0]).type;
    return types;
  }
  try {
    const std::optional<FunctionBody> body = function_body(graph, node, schemas);
    std::size_t made = 0;
    for (std::size_t i = 0; body && i < types.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      const Type& type = body->graph.value(body->graph.outputs[made++]).type;
      if (type.kind != Type::Kind::Unknown) types[i] = without_own_symbols(node, type);
    }
  } catch (const Error& error) {
    if (error.code() != Code::Unsupported) throw;  // a provider may have what the body has not
  }
  return types;
}

std::optional<FunctionBody> function_body(const Graph& graph, const Node& node,
                                          const SchemaRegistry& schemas) {
  const ::onnx::OpSchema* schema =
      schemas.impl().GetSchema(node.op_type, node.since_version, node.domain);
  if (schema == nullptr) return std::nullopt;
  const FunctionOperator* known = writer_of(node, *schema);
  if (known == nullptr && !schema->HasFunction() && !schema->HasContextDependentFunction())
    return std::nullopt;
  const char* const where =
      known != nullptr ? "as a function of ONNX's operators" : "its function body in ONNX";
  NodeProto call = to_proto(graph, node);
  std::vector<::onnx::TypeProto> types;
  for (const ValueId input : node.inputs)
    types.push_back(input != kNone ? to_proto(graph.value(input).type) : ::onnx::TypeProto());
  try {
    std::optional<FunctionProto> function;
    if (known == nullptr) function = find_function(*schema, call, types);
    if (known == nullptr && !function) return std::nullopt;
    add_defaults(call, *schema);
    if (known != nullptr) {
      function = written(graph, node, call, *known);
      call.clear_attribute();  // the body holds what they say
    }
    CallWriter writer(graph, node);
    FunctionBody body{import_call(writer.write(std::move(*function), std::move(call)), schemas),
                      {}};
    for (const ValueId input : body.graph.inputs) {
      const auto found = writer.inputs().find(body.graph.value(input).name);
      body.inputs.push_back(found != writer.inputs().end() ? found->second : kNone);
    }
    rename_symbols(graph, node, body.graph);
    return body;
  } catch (const Error& error) {
    throw error.within(where);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    invalid(where, ": ", single_line(error.what()));
  }
}

}  // namespace backplane::core

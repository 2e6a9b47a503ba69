#include "core/onnx/inference.hpp"

#include <algorithm>
#include <deque>
#include <onnx/shape_inference/implementation.h>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/graph/made_up_symbol.hpp"
#include "core/onnx/function_body.hpp"
#include "core/onnx/function_operator.hpp"
#include "core/onnx/graph_builder.hpp"
#include "core/onnx/mended_types.hpp"
#include "core/onnx/split_types.hpp"
#include "core/onnx/standard_schemas.hpp"
#include "core/onnx/types.hpp"

namespace backplane::core {
namespace {

namespace inference = ::onnx::shape_inference;
using ::onnx::GraphProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::TensorShapeProto;
using ::onnx::TypeProto;

// ONNX's propagation makes a message per element of what may be a shape; a longer vector is none.
constexpr std::int64_t kLongestShape = 1024;

/// Symbols that were taken from declarations.
using Believed = std::set<std::string>;

void note_symbols(const TensorShapeProto& shape, Believed& believed) {
  for (const auto& dim : shape.dim()) {
    if (dim.has_dim_param()) believed.insert(dim.dim_param());
  }
}

void note_symbols(const TypeProto& type, Believed& believed) {
  if (type.has_tensor_type()) note_symbols(type.tensor_type().shape(), believed);
  if (type.has_sparse_tensor_type()) note_symbols(type.sparse_tensor_type().shape(), believed);
  if (type.has_sequence_type()) note_symbols(type.sequence_type().elem_type(), believed);
  if (type.has_optional_type()) note_symbols(type.optional_type().elem_type(), believed);
}

/// Fills in what inference left open from what the file declares.
void complete(TypeProto& inferred, const TypeProto& declared, Believed& believed);

template <class TensorType>
void complete_tensor(TensorType& inferred, const TensorType& declared, Believed& believed) {
  if (inferred.elem_type() == 0) inferred.set_elem_type(declared.elem_type());
  if (!declared.has_shape()) return;
  if (!inferred.has_shape()) {
    *inferred.mutable_shape() = declared.shape();
    note_symbols(declared.shape(), believed);
    return;
  }
  if (inferred.shape().dim_size() != declared.shape().dim_size()) return;
  for (int i = 0; i < declared.shape().dim_size(); ++i) {
    auto& dim = *inferred.mutable_shape()->mutable_dim(i);
    // A name that the file gives says more than one that inference made up.
    const bool open = !dim.has_dim_value() &&
                      (!dim.has_dim_param() || dim.dim_param().starts_with(kMadeUpSymbol));
    if (!open || !declared.shape().dim(i).has_dim_param()) continue;
    dim.set_dim_param(declared.shape().dim(i).dim_param());
    believed.insert(dim.dim_param());
  }
}

void complete(TypeProto& inferred, const TypeProto& declared, Believed& believed) {
  if (declared.value_case() == TypeProto::VALUE_NOT_SET) return;
  if (inferred.value_case() == TypeProto::VALUE_NOT_SET) {
    inferred = declared;
    note_symbols(declared, believed);
    return;
  }
  if (inferred.value_case() != declared.value_case()) return;
  switch (inferred.value_case()) {
    case TypeProto::kTensorType:
      complete_tensor(*inferred.mutable_tensor_type(), declared.tensor_type(), believed);
      break;
    case TypeProto::kSparseTensorType:
      complete_tensor(*inferred.mutable_sparse_tensor_type(), declared.sparse_tensor_type(),
                      believed);
      break;
    case TypeProto::kSequenceType:
      complete(*inferred.mutable_sequence_type()->mutable_elem_type(),
               declared.sequence_type().elem_type(), believed);
      break;
    case TypeProto::kOptionalType:
      complete(*inferred.mutable_optional_type()->mutable_elem_type(),
               declared.optional_type().elem_type(), believed);
      break;
    default:
      break;
  }
}

TypeProto type_of(const TensorProto& tensor) {
  TypeProto type;
  type.mutable_tensor_type()->set_elem_type(tensor.data_type());
  auto* shape = type.mutable_tensor_type()->mutable_shape();
  for (const std::int64_t dim : tensor.dims()) shape->add_dim()->set_dim_value(dim);
  return type;
}

std::string shown(const TypeProto& type) {
  const Type converted = to_type(type);
  return converted.to_string() + (converted.shape ? to_string(*converted.shape) : std::string());
}

class Inference {
 public:
  Inference(std::int64_t ir_version, const Opsets& opsets, const SchemaRegistry& schemas,
            TensorReader& tensors)
      : ir_version_(ir_version), opsets_(opsets), schemas_(schemas), tensors_(tensors) {}

  UnprovenSymbols run(GraphProto& graph) {
    for (const auto& output : graph.output()) unread_outputs_.insert(output.name());
    drop_read(graph);
    inference::TraverseGraphsToAddExistingSymbols(graph, symbols_);
    for (auto& input : *graph.mutable_input())
      bind(input.name(), without_element_shapes(input.type()));
    process(graph, /*main=*/true);
    return {std::move(believed_), std::move(named_outputs_)};
  }

  /// Infers a body for inputs of the given types; the result is valid until the body is inferred again. An error ends
  /// all inference: what the body had bound stays.
  std::vector<const TypeProto*> infer_body(GraphProto& body,
                                           const std::vector<const TypeProto*>& input_types);

 private:
  /// Everything known about a name, put back when a body that hides it ends.
  struct Binding {
    std::string name;
    TypeProto* type;
    const TensorProto* tensor;
    std::optional<TensorShapeProto> shape;
  };

  class Context : public inference::InferenceContextImpl {
   public:
    Context(NodeProto& node, Inference& inference)
        : InferenceContextImpl(node, inference.types_, inference.data_, inference.sparse_,
                               inference.options_, &inference.shapes_),
          owner_(inference) {}

    ::onnx::GraphInferencer* getGraphAttributeInferencer(const std::string& attribute) override;

   private:
    class Body : public ::onnx::GraphInferencer {
     public:
      Body(GraphProto& graph, Inference& inference) : graph_(graph), inference_(inference) {}
      std::vector<const TypeProto*> doInferencing(const std::vector<const TypeProto*>& input_types,
                                                  const std::vector<const TensorProto*>&) override {
        return inference_.infer_body(graph_, input_types);
      }

     private:
      GraphProto& graph_;
      Inference& inference_;
    };

    Inference& owner_;
    std::map<std::string, Body> bodies_;
  };

  void bind(const std::string& name, const TypeProto& type);
  void restore(std::size_t mark);
  void bind_initializers(const GraphProto& graph, bool main);
  void process(GraphProto& graph, bool main);
  void infer(NodeProto& node, const std::unordered_map<std::string, const TypeProto*>& declared);
  void infer_by_function(const NodeProto& node, const ::onnx::OpSchema& schema, Context& context);
  void infer_by_newest(NodeProto& node, const ::onnx::OpSchema& schema, Context& context);
  void infer_custom(const NodeProto& node, const CustomSchema& schema, Context& context);
  void infer_by_body(const NodeProto& node, int since_version, Context& context);
  NodeId add_alone(const NodeProto& node, int since_version, Graph& graph);
  void propagate_shapes(NodeProto& node, const ::onnx::OpSchema& schema);
  bool may_be_shapes(const NodeProto& node) const;
  bool cuts_at_known_places(const NodeProto& node) const;
  std::string words_of_inputs(const NodeProto& node) const;
  void write_back(GraphProto& graph, bool main);
  void drop_read(const GraphProto& graph);
  void complete_named(const std::string& name, TypeProto& inferred, const TypeProto& declared);
  void check_output(const ::onnx::ValueInfoProto& output, const TypeProto& inferred) const;

  std::int64_t ir_version_;
  const Opsets& opsets_;
  const SchemaRegistry& schemas_;
  TensorReader& tensors_;
  inference::SymbolTableImpl symbols_;
  Believed believed_;
  std::set<std::string>
      unread_outputs_;                   // of the main graph: what the file calls them goes nowhere
  std::set<std::string> named_outputs_;  // those to which that matters
  ::onnx::ShapeInferenceOptions options_{true, 1, true};
  std::deque<TypeProto> storage_;
  std::unordered_map<std::string, TypeProto*> types_;
  std::unordered_map<std::string, const TensorProto*>
      data_;  // contents that ONNX's functions may read
  std::unordered_map<std::string, const TensorProto*>
      constants_;  // those, and the ones that lie elsewhere
  std::unordered_map<std::string, const ::onnx::SparseTensorProto*>
      sparse_;  // none: they are made dense
  inference::DataValueMap shapes_;
  std::vector<Binding> hidden_;
  int depth_ = 0;
};

::onnx::GraphInferencer* Inference::Context::getGraphAttributeInferencer(
    const std::string& attribute) {
  const auto graph = graphProtoAttributesByName_.find(attribute);
  if (graph == graphProtoAttributesByName_.end())
    fail_type_inference("Attribute ", attribute, " has no graph.");
  return &bodies_.try_emplace(attribute, *graph->second, owner_).first->second;
}

/// Makes `name` a value of this type that nothing else is known of.
void Inference::bind(const std::string& name, const TypeProto& type) {
  try {
    (void)to_type(type);
  } catch (const Error& error) {
    throw error.within(text("the value ", quoted(name)));
  }
  if (depth_ > 0) {
    Binding old{name, nullptr, nullptr, std::nullopt};
    if (const auto known = types_.find(name); known != types_.end()) old.type = known->second;
    if (const auto known = constants_.find(name); known != constants_.end())
      old.tensor = known->second;
    if (const auto known = shapes_.find(name); known != shapes_.end()) old.shape = known->second;
    hidden_.push_back(std::move(old));
  }
  data_.erase(name);
  constants_.erase(name);
  shapes_.erase(name);
  storage_.push_back(type);
  types_[name] = &storage_.back();
}

void Inference::restore(std::size_t mark) {
  while (hidden_.size() > mark) {
    Binding& old = hidden_.back();
    data_.erase(old.name);
    constants_.erase(old.name);
    shapes_.erase(old.name);
    types_.erase(old.name);
    if (old.type != nullptr) types_[old.name] = old.type;
    if (old.tensor != nullptr) {
      constants_[old.name] = old.tensor;
      if (has_inline_contents(*old.tensor)) data_[old.name] = old.tensor;
    }
    if (old.shape) shapes_[old.name] = std::move(*old.shape);
    hidden_.pop_back();
  }
}

void Inference::bind_initializers(const GraphProto& graph, bool main) {
  std::set<std::string> overridable;
  if (main && ir_version_ >= 4) {
    for (const auto& input : graph.input()) overridable.insert(input.name());
  }
  for (const TensorProto& tensor : graph.initializer()) {
    if (overridable.contains(tensor.name())) {
      if (types_[tensor.name()]->value_case() == TypeProto::VALUE_NOT_SET)
        *types_[tensor.name()] = type_of(tensor);
      continue;
    }
    bind(tensor.name(), type_of(tensor));
    constants_[tensor.name()] = &tensor;
    if (has_inline_contents(tensor)) data_[tensor.name()] = &tensor;
  }
  for (const auto& sparse : graph.sparse_initializer()) {
    TypeProto type;
    type.mutable_tensor_type()->set_elem_type(sparse.values().data_type());
    auto* shape = type.mutable_tensor_type()->mutable_shape();
    for (const std::int64_t dim : sparse.dims()) shape->add_dim()->set_dim_value(dim);
    bind(sparse.values().name(), type);
  }
}

void Inference::process(GraphProto& graph, bool main) {
  bind_initializers(graph, main);
  std::unordered_map<std::string, const TypeProto*> declared;
  for (const auto& info : graph.value_info()) declared[info.name()] = &info.type();
  for (const auto& output : graph.output()) {
    if (output.type().value_case() != TypeProto::VALUE_NOT_SET)
      declared[output.name()] = &output.type();
  }
  for (NodeProto& node : *graph.mutable_node()) infer(node, declared);
  write_back(graph, main);
}

void Inference::infer(NodeProto& node,
                      const std::unordered_map<std::string, const TypeProto*>& declared) {
  const std::string domain = canonical_domain(node.domain());
  const ::onnx::OpSchema& schema = schema_of(node, opsets_, schemas_);
  const SchemaRegistry::Impl::CustomOp* custom =
      schemas_.impl().custom(domain, node.op_type(), opsets_.version_for(node));
  try {
    Context context(node, *this);
    if (custom != nullptr && custom->definition.infer) {
      infer_custom(node, custom->definition, context);
    } else if (custom == nullptr && domain.empty() && node.op_type() == "Split") {
      infer_split(context, schema.since_version());
    } else if (schema.has_type_and_shape_inference_function()) {
      schema.GetTypeAndShapeInferenceFunction()(context);
      infer_by_newest(node, schema, context);
    } else if (domain.empty() && node.op_type() == "MeanVarianceNormalization") {
      // Its body adds floats to whatever the input's type is.
      ::onnx::propagateShapeAndTypeFromFirstInput(context);
    } else if (schema.HasFunction()) {
      infer_by_function(node, schema, context);
    } else if (custom == nullptr &&
               function_operator(domain, node.op_type(), schema.since_version()) != nullptr) {
      infer_by_body(node, schema.since_version(), context);
    }
    mend_output_types(node, context);
    schema.CheckInputOutputType(context);
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string& name = node.output(i);
      if (name.empty()) continue;
      TypeProto type = *context.getOutputType(static_cast<std::size_t>(i));
      if (const auto known = declared.find(name); known != declared.end())
        complete_named(name, type, *known->second);
      inference::MaterializeSymbolicShape(&type, symbols_);
      bind(name, type);
    }
    propagate_shapes(node, schema);
  } catch (const Error& error) {
    throw depth_ > 100 ? error : error.within(described(node));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    invalid(described(node), ": ", single_line(error.what()), words_of_inputs(node));
  }
}

/// For errors of ONNX's own inference, which name neither inputs nor shapes.
std::string Inference::words_of_inputs(const NodeProto& node) const {
  constexpr int kMost = 6;
  std::string list;
  for (int i = 0; i < std::min(node.input_size(), kMost); ++i) {
    const auto known = types_.find(node.input(i));
    if (known == types_.end() || known->second->value_case() != TypeProto::kTensorType) continue;
    const Type type = to_type(*known->second);
    list += text(list.empty() ? "; its inputs are " : ", ", quoted(node.input(i)), " ",
                 type.to_string(), type.shape ? " " + to_string(*type.shape) : "");
  }
  return list;
}

/// Through the operator's function body. Attributes that are left out count as their defaults: the body refers to them.
void Inference::infer_by_function(const NodeProto& node, const ::onnx::OpSchema& schema,
                                  Context& context) {
  NodeProto complete_node = node;
  for (const auto& [name, attribute] : schema.attributes()) {
    if (attribute.default_value.type() == ::onnx::AttributeProto::UNDEFINED) continue;
    if (context.getAttribute(name) != nullptr) continue;
    *complete_node.add_attribute() = attribute.default_value;
  }
  Context complete_context(complete_node, *this);
  inference::InferShapeForFunctionNode(*schema.GetFunction(), &schemas_.impl(), complete_context,
                                       options_, {}, &symbols_, &shapes_);
  for (std::size_t i = 0; i < context.getNumOutputs(); ++i) {
    *context.getOutputType(i) = *complete_context.getOutputType(i);
  }
}

/// Inference of an operator's newest version finds shapes that older ones leave open (Reshape by a computed shape). It is
/// asked where the version at hand found none, and has the same inputs; what it does not like is not the model's fault.
/// Not of nodes with bodies: each body is inferred once, as twice a level would be 2^depth times.
void Inference::infer_by_newest(NodeProto& node, const ::onnx::OpSchema& schema, Context& context) {
  const auto has_shape = [&] {
    const TypeProto& type = *context.getOutputType(0);
    return !type.has_tensor_type() || type.tensor_type().has_shape();
  };
  if (context.getNumOutputs() == 0 || has_shape() || has_bodies(node)) return;
  const ::onnx::OpSchema* newest =
      standard_schema(canonical_domain(node.domain()), node.op_type(), kNewestVersion);
  if (newest == nullptr || newest->since_version() == schema.since_version()) return;
  if (!newest->has_type_and_shape_inference_function() ||
      newest->inputs().size() != schema.inputs().size())
    return;
  for (std::size_t i = 0; i < schema.inputs().size(); ++i) {
    if (schema.inputs()[i].GetName() != newest->inputs()[i].GetName()) return;
  }
  try {
    Context retry(node, *this);
    Believed inferred;  // no declarations
    newest->GetTypeAndShapeInferenceFunction()(retry);
    for (std::size_t i = 0; i < context.getNumOutputs(); ++i)
      complete(*context.getOutputType(i), *retry.getOutputType(i), inferred);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    // The rank stays unknown until the plan.
  }
}

/// Adds the node and what it reads to a graph that holds nothing else.
NodeId Inference::add_alone(const NodeProto& node, int since_version, Graph& graph) {
  for (const std::string& name : node.input()) {
    if (name.empty()) continue;
    Value& value = graph.value(graph.value_named(name));
    if (const auto type = types_.find(name); type != types_.end())
      value.type = to_type(*type->second);
    if (const auto tensor = constants_.find(name); tensor != constants_.end()) {
      value.constant = tensors_.read(*tensor->second, "initializer " + quoted(name));
    }
  }
  return add_node(graph, node, since_version, tensors_, nullptr);
}

/// Through the body that this library writes for the operator.
void Inference::infer_by_body(const NodeProto& node, int since_version, Context& context) {
  Graph graph;
  const NodeId id = add_alone(node, since_version, graph);
  const std::vector<Type> types = output_types_by_body(graph, graph.node(id), schemas_);
  for (std::size_t i = 0; i < types.size(); ++i) *context.getOutputType(i) = to_proto(types[i]);
}

/// Asks the operator's own function, with a graph that holds just this node.
void Inference::infer_custom(const NodeProto& node, const CustomSchema& schema, Context& context) {
  Graph graph;
  const NodeId id = add_alone(node, schema.since_version, graph);
  const std::vector<Type> types = schema.infer(graph, graph.node(id));
  if (types.size() > static_cast<std::size_t>(node.output_size())) {
    throw Error(Code::Internal,
                text("the operator's inference gave ", types.size(), " types for ",
                     node.output_size(), " outputs; this is a fault of ", schema.library));
  }
  for (std::size_t i = 0; i < types.size(); ++i) *context.getOutputType(i) = to_proto(types[i]);
}

bool Inference::may_be_shapes(const NodeProto& node) const {
  for (const std::string& name : node.input()) {
    const auto type = types_.find(name);
    if (type == types_.end() || !type->second->has_tensor_type()) continue;
    const auto& shape = type->second->tensor_type().shape();
    if (shape.dim_size() == 1 && shape.dim(0).dim_value() > kLongestShape) return false;
  }
  return true;
}

/// Whether what cuts a shape is known: ONNX's function takes bounds that it does not know for 0.
bool Inference::cuts_at_known_places(const NodeProto& node) const {
  const auto is_known = [this](const std::string& name) {
    if (const auto shape = shapes_.find(name); shape != shapes_.end()) {
      const auto& dims = shape->second.dim();
      return std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.has_dim_value(); });
    }
    return name.empty() || data_.contains(name);
  };
  return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& name) {
    return &name == &node.input(0) || is_known(name);
  });
}

void Inference::propagate_shapes(NodeProto& node, const ::onnx::OpSchema& schema) {
  if (!schema.has_data_propagation_function() || !may_be_shapes(node)) return;
  if (node.op_type() == "Slice" && !cuts_at_known_places(node)) return;
  inference::DataPropagationContextImpl context(node, types_, data_, shapes_);
  try {
    schema.GetDataPropagationFunction()(context);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    // It takes any integers for a shape, and stumbles over [1,5] + [2,1]: what is wrong with types, inference has said.
  }
}

std::vector<const TypeProto*> Inference::infer_body(
    GraphProto& body, const std::vector<const TypeProto*>& input_types) {
  if (static_cast<int>(input_types.size()) != body.input_size()) {
    invalid("its body ", quoted(body.name()), " has ", body.input_size(), " inputs, but gets ",
            input_types.size());
  }
  const std::size_t mark = hidden_.size();
  ++depth_;
  for (int i = 0; i < body.input_size(); ++i) {
    auto& input = *body.mutable_input(i);
    const TypeProto* given = input_types[static_cast<std::size_t>(i)];
    if (given != nullptr && given->value_case() != TypeProto::VALUE_NOT_SET) {
      TypeProto type = *given;
      complete(type, input.type(), believed_);
      inference::MaterializeSymbolicShape(&type, symbols_);
      *input.mutable_type() = type;
    } else {
      note_symbols(input.type(), believed_);
    }
    *input.mutable_type() = without_element_shapes(input.type());
    bind(input.name(), input.type());
  }
  process(body, /*main=*/false);
  --depth_;
  restore(mark);
  std::vector<const TypeProto*> types;
  for (const auto& output : body.output()) types.push_back(&output.type());
  return types;
}

void Inference::check_output(const ::onnx::ValueInfoProto& output,
                             const TypeProto& inferred) const {
  const TypeProto& declared = output.type();
  if (declared.value_case() == TypeProto::VALUE_NOT_SET ||
      inferred.value_case() == TypeProto::VALUE_NOT_SET)
    return;
  // A wrong rank is left to the node, which knows: exporters and hands write such, and other runtimes run them.
  bool contradiction = declared.value_case() != inferred.value_case();
  if (!contradiction && declared.has_tensor_type()) {
    const int said = declared.tensor_type().elem_type();
    const int found = inferred.tensor_type().elem_type();
    contradiction = said != 0 && found != 0 && said != found;
  }
  if (contradiction) {
    invalid("the graph output ", quoted(output.name()), " is declared as ", shown(declared),
            ", but its node makes ", shown(inferred), "; correct the declaration");
  }
}

/// Outputs that nodes read, be it in bodies, are none that nobody reads.
void Inference::drop_read(const GraphProto& graph) {
  for (const NodeProto& node : graph.node()) {
    for (const std::string& name : node.input()) unread_outputs_.erase(name);
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) drop_read(attribute.g());
      for (const GraphProto& body : attribute.graphs()) drop_read(body);
    }
  }
}

void Inference::complete_named(const std::string& name, TypeProto& inferred,
                               const TypeProto& declared) {
  if (!unread_outputs_.contains(name)) {
    complete(inferred, declared, believed_);
    return;
  }
  Believed own;
  complete(inferred, declared, own);
  if (!own.empty()) named_outputs_.insert(name);
}

/// Leaves the types of a graph's values in the graph.
void Inference::write_back(GraphProto& graph, bool main) {
  for (auto& output : *graph.mutable_output()) {
    const auto type = types_.find(output.name());
    if (type == types_.end()) continue;
    if (main) check_output(output, *type->second);
    TypeProto result = *type->second;
    if (main) {
      complete_named(output.name(), result, output.type());
    } else {
      complete(result, output.type(), believed_);
    }
    *output.mutable_type() = std::move(result);
  }
  graph.clear_value_info();
  for (const NodeProto& node : graph.node()) {
    for (const std::string& name : node.output()) {
      const auto type = types_.find(name);
      if (name.empty() || type == types_.end() ||
          type->second->value_case() == TypeProto::VALUE_NOT_SET)
        continue;
      auto& info = *graph.add_value_info();
      info.set_name(name);
      *info.mutable_type() = *type->second;
    }
  }
}

template <class Visit>
void for_each_dim(TypeProto& type, Visit&& visit) {
  switch (type.value_case()) {
    case TypeProto::kTensorType:
      if (!type.tensor_type().has_shape()) break;  // asking for it would make it a scalar's
      for (auto& dim : *type.mutable_tensor_type()->mutable_shape()->mutable_dim()) visit(dim);
      break;
    case TypeProto::kSequenceType:
      for_each_dim(*type.mutable_sequence_type()->mutable_elem_type(), visit);
      break;
    case TypeProto::kOptionalType:
      for_each_dim(*type.mutable_optional_type()->mutable_elem_type(), visit);
      break;
    default:
      break;
  }
}

void set_dims(GraphProto& graph, const std::map<std::string, std::int64_t>& dims) {
  const auto set = [&](TensorShapeProto::Dimension& dim) {
    if (!dim.has_dim_param()) return;
    if (const auto size = dims.find(dim.dim_param()); size != dims.end())
      dim.set_dim_value(size->second);
  };
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (auto& info : *list) {
      if (info.has_type()) for_each_dim(*info.mutable_type(), set);
    }
  }
  for (NodeProto& node : *graph.mutable_node()) {
    for_each_graph(node, [&](GraphProto& body) { set_dims(body, dims); });
  }
}

/// Gives a dimension of an input the size that its denotation has: to its symbol, or without one to itself.
void set_denoted(const std::string& input, std::int64_t size, TensorShapeProto::Dimension& dim,
                 std::map<std::string, std::int64_t>& dims) {
  const auto disagree = [&](const char* what, const std::string& name, std::int64_t other) {
    invalid("the dimension with the denotation ", quoted(dim.denotation()), " of the input ",
            quoted(input), " is given the size ", size, ", but ", what, name, " is ", other);
  };
  if (dim.has_dim_value()) {
    if (dim.dim_value() != size) disagree("the model says it", "", dim.dim_value());
  } else if (dim.dim_param().empty()) {
    dim.set_dim_value(size);
  } else if (const auto [place, added] = dims.emplace(dim.dim_param(), size);
             !added && place->second != size) {
    disagree("its symbol ", quoted(dim.dim_param()), place->second);
  }
}

/// Sizes for dimensions by their denotation: of a symbolic one its symbol gets the size, one without a symbol gets it
/// itself, and a fixed one must have it.
void apply_denotations(GraphProto& graph, const std::map<std::string, std::int64_t>& sizes,
                       std::map<std::string, std::int64_t>& dims) {
  if (sizes.empty()) return;
  std::set<std::string> known;
  const auto set = [&](const std::string& input, TensorShapeProto::Dimension& dim) {
    if (dim.denotation().empty()) return;
    known.insert(dim.denotation());
    const auto size = sizes.find(dim.denotation());
    if (size != sizes.end()) set_denoted(input, size->second, dim, dims);
  };
  for (auto& input : *graph.mutable_input()) {
    if (!input.has_type()) continue;
    for_each_dim(*input.mutable_type(),
                 [&](TensorShapeProto::Dimension& dim) { set(input.name(), dim); });
  }
  for (const auto& [denotation, size] : sizes) {
    if (known.contains(denotation)) continue;
    std::string list;
    for (const std::string& name : known)
      list += (list.empty() ? "; known: " : ", ") + quoted(name);
    invalid("no graph input has a dimension with the denotation ", quoted(denotation),
            list.empty() ? "; the model has no denotations" : list,
            did_you_mean(denotation, {known.begin(), known.end()}));
  }
}

}  // namespace

void apply_dims(GraphProto& graph, std::map<std::string, std::int64_t> dims,
                const std::map<std::string, std::int64_t>& denotations) {
  apply_denotations(graph, denotations, dims);
  if (dims.empty()) return;
  std::set<std::string> symbols;
  for (auto& input : *graph.mutable_input()) {
    if (!input.has_type()) continue;
    for_each_dim(*input.mutable_type(), [&](const TensorShapeProto::Dimension& dim) {
      if (dim.has_dim_param() && !dim.dim_param().empty()) symbols.insert(dim.dim_param());
    });
  }
  for (const auto& [symbol, size] : dims) {
    if (size < 0)
      invalid("the size of dimension ", quoted(symbol), " is given as ", size,
              ", which is below 0");
    if (symbols.contains(symbol)) continue;
    std::string known;
    for (const std::string& name : symbols) known += (known.empty() ? "" : ", ") + quoted(name);
    invalid(
        "no graph input has a dimension ", quoted(symbol),
        known.empty() ? std::string("; the model has no symbolic dimensions") : "; known: " + known,
        did_you_mean(symbol, {symbols.begin(), symbols.end()}));
  }
  set_dims(graph, dims);
}

UnprovenSymbols infer_types(GraphProto& graph, std::int64_t ir_version, const Opsets& opsets,
                            const SchemaRegistry& schemas, TensorReader& tensors) {
  return Inference(ir_version, opsets, schemas, tensors).run(graph);
}

}  // namespace backplane::core

#include "core/onnx/importer.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <memory>
#include <onnx/onnx_pb.h>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/mapped_file.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/exporter.hpp"
#include "core/onnx/foreign_file.hpp"
#include "core/onnx/functions.hpp"
#include "core/onnx/graph_builder.hpp"
#include "core/onnx/import_call.hpp"
#include "core/onnx/inference.hpp"
#include "core/onnx/normal_form.hpp"
#include "core/onnx/opsets.hpp"
#include "core/onnx/private_operators.hpp"
#include "core/onnx/tensors.hpp"
#include "core/onnx/wire_reader.hpp"

namespace backplane::core {
namespace {

bool parse_reduced(const std::string& model, ::onnx::ModelProto& proto) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(model.data()),
                                                static_cast<int>(model.size()));
  stream.SetRecursionLimit(kDeepestPart);
  return proto.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
}

::onnx::ModelProto parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) invalid("the model is empty (0 bytes)");
  ::onnx::ModelProto proto;
  try {
    if (!parse_reduced(reduce_model(bytes), proto))
      invalid("no ONNX model: protobuf cannot parse it");
    if (!proto.has_graph()) invalid("no ONNX model: it holds no graph");
  } catch (const Error& error) {
    const std::string foreign = describe_foreign(bytes);
    if (foreign.empty()) throw;
    throw Error(error.code(), "no ONNX model: " + foreign);
  }
  return proto;
}

void check_header(const ::onnx::ModelProto& proto) {
  const auto newest = static_cast<std::int64_t>(::onnx::Version::IR_VERSION);
  if (!proto.has_ir_version()) invalid("no ONNX model: it has no ir_version");
  if (proto.ir_version() < 1)
    invalid("its ir_version is ", proto.ir_version(), ", which does not exist");
  if (proto.ir_version() > newest) {
    throw Error(Code::Unsupported,
                text("its ir_version is ", proto.ir_version(), ", newer than this build knows (",
                     newest, "); save it with an older one"));
  }
}

/// Reads the initializers, so that one that is wrong is named before inference stumbles over it. Shape inference reads
/// small tensors in protos; those of other files are fetched for it.
void read_initializers(::onnx::GraphProto& graph, TensorReader& tensors) {
  for (auto& tensor : *graph.mutable_initializer()) {
    const ConstantPtr constant = tensors.initializer(tensor);
    const bool external = tensor.data_location() == ::onnx::TensorProto::EXTERNAL;
    if (external && constant->bytes().size() <= kInlineBytes)
      tensor = to_proto(*constant, tensor.name());
  }
  for (auto& node : *graph.mutable_node()) {
    for_each_graph(node, [&](::onnx::GraphProto& body) { read_initializers(body, tensors); });
  }
}

void clear_origins(Node& node) {
  node.origins.clear();
  for_each_body(node, [](Graph& body) {
    for (const NodeId id : body.node_ids()) clear_origins(body.node(id));
  });
}

/// Lists the nodes of bodies behind those of the main graph, under names that tell where they are.
void list_body_nodes(Graph& graph, const std::string& scope, std::vector<OriginalNode>& original) {
  for (const NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    for (auto& [name, attribute] : node.attributes) {
      for (const std::shared_ptr<Graph>& body : attribute.graphs) {
        const std::string inner = text(scope, node.name, "/", name, "/");
        for (const NodeId inside : body->node_ids()) {
          Node& own = body->node(inside);
          own.origins = {static_cast<std::int32_t>(original.size())};
          original.push_back({inner + own.name, own.op_type, own.domain});
        }
        list_body_nodes(*body, inner, original);
      }
    }
  }
}

Model to_model(::onnx::ModelProto proto, TensorReader& tensors, const SchemaRegistry& schemas,
               const ImportOptions& options) {
  check_header(proto);
  accept_private_operators(proto, options);
  normalize(proto);
  Opsets opsets = Opsets::of(proto);
  Model model;
  model.original = original_nodes(proto.graph());
  std::vector<std::int32_t> origins = inline_functions(proto, opsets);
  ::onnx::GraphProto& graph = *proto.mutable_graph();
  sort_nodes(graph, origins);
  verify_nodes(graph, opsets, schemas);
  const int listed_initializers = graph.initializer_size();
  lift_constants(graph, &origins);
  read_initializers(graph, tensors);
  apply_dims(graph, options.dims, options.denotations);
  UnprovenSymbols unproven = infer_types(graph, proto.ir_version(), opsets, schemas, tensors);

  const GraphSource source{proto.ir_version(), opsets, schemas, tensors};
  model.graph = build_graph(graph, source, origins, listed_initializers);
  model.unproven_symbols = std::move(unproven.symbols);
  for (const std::string& output : unproven.outputs)
    model.graph.value(model.graph.value_named(output)).has_unproven_symbols = true;
  list_body_nodes(model.graph, "", model.original);
  model.ir_version = proto.ir_version();
  model.opsets = opsets.imports();
  model.producer_name = proto.producer_name();
  model.producer_version = proto.producer_version();
  model.domain = proto.domain();
  model.doc = proto.doc_string();
  model.model_version = proto.model_version();
  for (const auto& property : proto.metadata_props())
    model.metadata[property.key()] = property.value();
  return model;
}

Model import_model(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                   ExternalData external, const SchemaRegistry& schemas,
                   const ImportOptions& options) {
  TensorReader tensors(bytes, std::move(owner), std::move(external));
  try {
    return to_model(parse(bytes), tensors, schemas, options);
  } catch (const std::bad_alloc&) {
    throw Error(Code::OutOfMemory, "no memory left to load the model");
  }
}

}  // namespace

Model import_file(const std::string& path, const SchemaRegistry& schemas,
                  const ImportOptions& options) {
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error& error) {
    throw Error(error.code(), text("model: ", error.message()));
  }
  const std::string& place = options.external_data.empty() ? path : options.external_data;
  try {
    Model model = import_model(file->bytes(), file,
                               ExternalData(place, true, options.external_bytes), schemas, options);
    model.path = path;
    return model;
  } catch (const Error& error) {
    throw error.within(single_line(path));
  }
}

Model import_bytes(std::span<const std::byte> bytes, const SchemaRegistry& schemas,
                   const ImportOptions& options) {
  const std::string& place = options.external_data;
  try {
    return import_model(bytes, nullptr, ExternalData(place, !place.empty(), options.external_bytes),
                        schemas, options);
  } catch (const Error& error) {
    throw error.within("model in memory");
  }
}

Graph import_call(::onnx::ModelProto proto, const SchemaRegistry& schemas) {
  TensorReader tensors({}, nullptr, ExternalData("", false));
  Model model = to_model(std::move(proto), tensors, schemas, {});
  for (const NodeId id : model.graph.node_ids()) clear_origins(model.graph.node(id));
  return std::move(model.graph);
}

Model import_built(const Model& built, const SchemaRegistry& schemas,
                   const ImportOptions& options) {
  std::vector<ConstantPtr> contents;
  ExportSettings settings;
  settings.sorted = false;
  settings.contents = [&](const ConstantPtr& constant, ::onnx::TensorProto& proto) {
    if (constant->type() == DataType::String || constant->stored_bytes().size() <= kInlineBytes) {
      write_inline(constant, proto);
      return;
    }
    const auto index = static_cast<std::int64_t>(contents.size());
    proto.mutable_segment()->set_begin(index);
    proto.mutable_segment()->set_end(index);
    contents.push_back(constant);
  };
  ::onnx::ModelProto proto = export_model(built, settings);
  TensorReader tensors(std::move(contents));
  try {
    Model model = to_model(std::move(proto), tensors, schemas, options);
    model.path = built.path;
    return model;
  } catch (const std::bad_alloc&) {
    throw Error(Code::OutOfMemory, "no memory left for the graph");
  }
}

}  // namespace backplane::core

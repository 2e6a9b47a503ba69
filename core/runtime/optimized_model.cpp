// Models saved after optimization, and what becomes of them when they are loaded.
#include <algorithm>
#include <set>

#include "core/onnx/model_file.hpp"
#include "core/onnx/private_operators.hpp"
#include "core/runtime/session.hpp"

namespace backplane::core {
namespace {

/// The domains of nodes that no schema knows: they are what rewrites made.
std::set<std::string> private_domains(const Graph& graph, const SchemaRegistry& schemas) {
  std::set<std::string> domains;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (!schemas.find(node.domain, node.op_type, node.since_version)) domains.insert(node.domain);
  }
  return domains;
}

/// Whether a file that imports the model's opsets would mean the same operator by the node.
bool means_the_same(const Node& node, const Model& model, const SchemaRegistry& schemas) {
  const auto opset = model.opsets.find(node.domain);
  if (opset == model.opsets.end())
    return !schemas.find(node.domain, node.op_type, node.since_version);
  const auto found = schemas.find(node.domain, node.op_type, static_cast<int>(opset->second));
  return !schemas.find(node.domain, node.op_type, node.since_version) ||
         (found && found->since_version == node.since_version);
}

void check_writable(const Program& program, const DeviceSet& devices,
                    const SchemaRegistry& schemas) {
  const auto refuse = [](const auto&... parts) {
    throw Error(Code::Unsupported,
                text(parts..., "; set optimization = basic to save the model without it"));
  };
  for (const auto& [id, compiled] : program.placed().compiled) {
    const int device = program.placed().placement[id].device;
    refuse(devices.at(device).label(), " compiled a part of the model ('",
           program.graph().node(id).name, "'), which no file can hold");
  }
  const Model& model = *program.context().model;
  for (const NodeId id : program.order()) {
    const Node& node = program.graph().node(id);
    if (!means_the_same(node, model, schemas)) {
      refuse("the node '", node.name, "' (", node.op_type, ") of a function's body is of opset ",
             node.since_version, ", and the model imports another one");
    }
  }
  for (const auto& [id, format] : program.placed().formats) {
    if (format != 0)
      refuse("the value '", program.graph().value(id).name,
             "' has a private format, which no file can hold");
  }
}

/// The devices whose provider made nodes of a private domain; more than one cannot be told apart in a file.
const Device& device_of(const Program& program, const std::set<std::string>& domains,
                        const DeviceSet& devices) {
  const Device* found = nullptr;
  for (const NodeId id : program.order()) {
    if (!domains.contains(program.graph().node(id).domain)) continue;
    const Device& device = devices.at(program.placed().placement[id].device);
    if (found != nullptr && found != &device) {
      throw Error(Code::Unsupported,
                  text("the model holds operators of two providers' own, ", found->label(), " and ",
                       device.label(), "; set optimization = basic to save it"));
    }
    found = &device;
  }
  return *found;
}

}  // namespace

/// Writes the model where the option optimized_model_path says. Up to level basic it is plain ONNX. Above that it is what
/// providers made of it, marked as such, unless they made nothing.
void Session::save_optimized() {
  const std::string path = options_.optimized_model.string();
  if (path.empty()) return;
  check_files();
  const std::shared_ptr<Generation> generation = default_->generation();
  const Program& program = *generation->program;
  const std::set<std::string> domains = private_domains(program.graph(), schemas_);
  const bool is_plain = options_.optimization <= OptimizationLevel::Basic ||
                        (domains.empty() && program.placed().compiled.empty());
  if (is_plain) {
    save_model(model_, path, ExternalContents::Auto, true);
    return;
  }
  check_writable(program, devices_, schemas_);
  const Device& device = device_of(program, domains, devices_);
  Model saved(model_);
  saved.graph = Graph(program.graph());
  for (const auto& [id, lazy] : program.placed().lazy)
    saved.graph.value(id).constant = lazy->get(environment_->weights(), &threads_);
  // The cut has fixed the initializers that feeds could replace.
  std::erase_if(saved.graph.inputs,
                [&](ValueId id) { return saved.graph.value(id).constant != nullptr; });
  std::string list;
  for (const std::string& domain : domains) {
    list += (list.empty() ? "" : ",") + domain;
    saved.opsets[domain] = 1;
  }
  saved.metadata[kPrivateDomainsKey] = list;
  saved.metadata[kPrivateDeviceKey] = device.label();
  saved.metadata[kPrivateIdentityKey] = device.identity();
  const std::string warning =
      text("optimized for the device ", device.label(), " by its provider's own operators (", list,
           "): only this device and version of Backplane's provider can run it; keep the model "
           "that it was made from");
  saved.metadata[kPrivateWarningKey] = warning;
  saved.metadata[kPrivateContentsKey] = private_contents(saved);
  save_model(saved, path, ExternalContents::Auto, true);
  environment_->logger().warning(path, ": ", warning);
}

/// Makes schemas for private operators, when a device of this session is the one they are for.
void Session::accept_private(const std::map<std::string, std::string>& metadata,
                             const std::vector<PrivateOperator>& operators) {
  const auto entry = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  std::string here;
  bool found = false, same_name = false;
  for (const SessionDevice& device : devices_.devices) {
    here += (here.empty() ? "" : ", ") + device.device->label();
    same_name = same_name || device.device->label() == entry(kPrivateDeviceKey);
    found = found || device.device->identity() == entry(kPrivateIdentityKey);
  }
  if (!found) {
    refuse_private(metadata,
                   same_name ? text("the device of this name here is another one (another version, "
                                    "processor or option)")
                             : text("this session has the devices ", here));
  }
  for (const PrivateOperator& made : operators) {
    if (schemas_.find(made.domain, made.op_type, 1)) continue;
    CustomSchema schema;
    schema.domain = made.domain;
    schema.name = made.op_type;
    schema.library = "the metadata of the model";
    FormalParam any;
    any.name = "values";
    any.type = "Any";
    any.kind = FormalParam::Kind::Variadic;
    any.heterogeneous = true;
    schema.inputs = {any};
    schema.outputs = {any};
    CustomSchema::TypeParam types{"Any", {}};
    for (auto type = static_cast<int>(DataType::Float); type <= static_cast<int>(DataType::Int2);
         ++type)
      types.types.push_back(Type::tensor(static_cast<DataType>(type)).to_string());
    schema.type_params = {types};
    for (const auto& [name, type] : made.attributes)
      schema.attributes.push_back({name, type, false});
    schemas_.add(std::move(schema));
  }
}

}  // namespace backplane::core

#include "core/plan/kernel_choice.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

bool allows(const bp_type_constraint& constraint, const std::string& type) {
  return type.empty() || std::any_of(constraint.types, constraint.types + constraint.type_count,
                                     [&](const char* allowed) { return type == allowed; });
}

std::string list_of(const bp_type_constraint& constraint) {
  std::string list;
  for (std::uint64_t i = 0; i < constraint.type_count; ++i)
    list += (i > 0 ? ", " : "") + std::string(constraint.types[i]);
  return list;
}

/// The side of a node that a constraint may speak of.
struct Side {
  const char* word;
  const std::vector<ValueId>& values;
  bool inputs;
};

/// A sentence when a value on this side breaks the constraint.
std::optional<std::string> broken_on(const Side& side, const bp_type_constraint& constraint,
                                     const SchemaInfo* schema, const Graph& graph) {
  const std::int32_t fixed = side.inputs ? constraint.input : constraint.output;
  for (std::size_t i = 0; i < side.values.size(); ++i) {
    if (side.values[i] == kNone) continue;
    if (constraint.param == nullptr ? fixed != static_cast<std::int32_t>(i) : schema == nullptr)
      continue;
    if (constraint.param != nullptr) {
      const FormalParam* formal = side.inputs ? schema->input(i) : schema->output(i);
      if (formal == nullptr || formal->type != constraint.param) continue;
    }
    const std::string type = graph.value(side.values[i]).type.to_string();
    if (!allows(constraint, type))
      return text(side.word, " ", i, " is ", type, "; it takes ", list_of(constraint));
  }
  return std::nullopt;
}

std::optional<std::string> broken_type(const bp_kernel_def& def, const SchemaInfo* schema,
                                       const Graph& graph, const Node& node) {
  for (std::uint32_t c = 0; c < def.constraint_count; ++c) {
    for (const Side& side :
         {Side{"input", node.inputs, true}, Side{"output", node.outputs, false}}) {
      if (auto sentence = broken_on(side, *def.constraints[c], schema, graph)) return sentence;
    }
  }
  return std::nullopt;
}

/// What `match` said instead of success. Of a lost device, or where memory ran out, it is no answer about the node.
Reason reason_of(const Error& error, const bp_kernel_def& def, const std::string& label) {
  if (error.code() == Code::Unsupported)
    return {label, "refused", text(def.name, ": ", error.message())};
  if (error.code() == Code::DeviceLost || error.code() == Code::OutOfMemory)
    throw error.within(text("match of kernel '", def.name, "'")).within(label);
  return {label, kFailedReason,
          text("match of kernel '", def.name, "' of ", label, " failed: ", error.message())};
}

std::string operator_name(const Node& node) {
  return node.domain.empty() ? node.op_type : node.domain + "::" + node.op_type;
}

}  // namespace

const SchemaInfo* SchemaCache::find(const Node& node) {
  const auto key = std::make_tuple(node.domain, node.op_type, node.since_version);
  auto place = found_.find(key);
  if (place == found_.end())
    place =
        found_.emplace(key, registry_.find(node.domain, node.op_type, node.since_version)).first;
  return place->second ? &*place->second : nullptr;
}

std::vector<RegisteredKernel> matching_kernels(const SessionDevice& device, SchemaCache& schemas,
                                               const Graph& graph, const Node& node,
                                               const bp_node* view_node,
                                               std::vector<Reason>& reasons, bp_cost* best_cost) {
  const std::string& label = device.device->label();
  const std::vector<RegisteredKernel>& candidates = device.registry.find(node.domain, node.op_type);
  if (candidates.empty()) {
    reasons.push_back(
        {label, "no_such_op", text(label, " has no kernel for ", operator_name(node))});
    return {};
  }
  std::vector<RegisteredKernel> matching;
  const SchemaInfo* schema = schemas.find(node);
  for (const RegisteredKernel& candidate : candidates) {
    const bp_kernel_def& def = *candidate.def;
    if (node.since_version < def.since_min || node.since_version > def.since_max) {
      reasons.push_back(
          {label, "opset",
           text(def.name, " implements ", operator_name(node), " since versions ", def.since_min,
                " to ", def.since_max, "; the model's is ", node.since_version)});
      continue;
    }
    if (auto sentence = broken_type(def, schema, graph, node)) {
      reasons.push_back({label, "type", text(def.name, ": ", *sentence)});
      continue;
    }
    bp_cost cost{};
    cost.struct_size = sizeof(cost);
    if (def.match != nullptr && view_node != nullptr) {
      bp_device* const raw = candidate.guest ? nullptr : device.device->raw();
      if (bp_status* status =
              call_for_status([&] { return def.match(def.self, raw, view_node, &cost); })) {
        reasons.push_back(reason_of(take_error(status), def, label));
        continue;
      }
    }
    if (matching.empty() && best_cost != nullptr) *best_cost = cost;
    matching.push_back(candidate);
  }
  return matching;
}

std::optional<std::string> broken_registration(const bp_kernel_def& def, SchemaCache& schemas,
                                               const Graph& graph, const Node& node) {
  if (node.since_version < def.since_min || node.since_version > def.since_max)
    return text(def.name, " does not implement version ", node.since_version);
  return broken_type(def, schemas.find(node), graph, node);
}

CreateContext make_create_context(const DeviceSet& devices, int device, bool guest,
                                  bp_threads* threads, std::uint64_t flags) {
  CreateContext ctx{};
  ctx.struct_size = sizeof(bp_create_ctx);
  ctx.device = guest ? nullptr : devices.at(device).raw();
  ctx.device_info = &devices.at(device).info();
  ctx.threads = threads;
  ctx.flags = flags;
  ctx.devices = &devices;
  ctx.device_index = device;
  return ctx;
}

KernelHandle create_kernel(const DeviceSet& devices, int device, const RegisteredKernel& kernel,
                           const bp_node* node, bp_threads* threads, std::uint64_t flags,
                           int depth) {
  CreateContext ctx = make_create_context(devices, device, kernel.guest, threads, flags);
  ctx.depth = depth;
  bp_kernel* created = nullptr;
  if (bp_status* status = call_for_status(
          [&] { return kernel.def->create(kernel.def->self, &ctx, node, &created); }))
    throw take_error(status).within(kernel.def->name);
  if (created == nullptr)
    throw Error(Code::Internal,
                text("kernel '", kernel.def->name, "' created nothing and gave no error"));
  return {devices.at(device).shared_from_this(), kernel.plugin, kernel.def, created};
}

}  // namespace backplane::core

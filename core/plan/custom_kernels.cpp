#include "core/plan/custom_kernels.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/quote.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

using OperatorName = std::pair<std::string, std::string>;

OperatorName name_of(const bp_kernel_def& def) {
  const std::string domain = plugin_text(def.domain);
  return {domain == "ai.onnx" ? "" : domain, plugin_text(def.op_type)};
}

std::string describe(const OperatorName& name) {
  return name.first.empty() ? name.second : name.first + "::" + name.second;
}

std::set<OperatorName> defined_by(const std::vector<PluginPtr>& libraries) {
  std::set<OperatorName> names;
  for (const PluginPtr& library : libraries) {
    for (const CustomSchema& schema : library->schemas())
      names.insert({schema.domain, schema.name});
  }
  return names;
}

bool same_subject(const bp_type_constraint& a, const bp_type_constraint& b) {
  if ((a.param == nullptr) != (b.param == nullptr)) return false;
  if (a.param != nullptr) return std::string_view(a.param) == b.param;
  return a.input >= 0 ? a.input == b.input : b.input < 0 && a.output == b.output;
}

bool have_type_in_common(const bp_type_constraint& a, const bp_type_constraint& b) {
  return std::any_of(a.types, a.types + a.type_count, [&](std::string_view type) {
    return std::find(b.types, b.types + b.type_count, type) != b.types + b.type_count;
  });
}

/// Whether a node may exist that both take, so that nothing but the order of the libraries decides.
bool is_undecided(const bp_kernel_def& a, const bp_kernel_def& b) {
  if (a.priority != b.priority || a.since_min > b.since_max || b.since_min > a.since_max)
    return false;
  for (std::uint32_t i = 0; i < a.constraint_count; ++i) {
    for (std::uint32_t k = 0; k < b.constraint_count; ++k) {
      if (same_subject(*a.constraints[i], *b.constraints[k]) &&
          !have_type_in_common(*a.constraints[i], *b.constraints[k]))
        return false;
    }
  }
  return true;
}

/// Receives the kernels of one library after another.
class CustomKernels {
 public:
  CustomKernels(SessionDevice& device, std::set<OperatorName> defined,
                const std::set<std::string>& replace_ops, const SchemaRegistry& schemas,
                const Logger& logger)
      : device_(device),
        defined_(std::move(defined)),
        replace_ops_(replace_ops),
        schemas_(schemas),
        logger_(logger) {}

  void take(const PluginPtr& library) {
    library_ = library;
    const bp_plugin& raw = library->raw();
    const std::string& provider = device_.device->provider_name();
    check_status(raw.kernels_for(raw.self, provider.c_str(), this, show), library->file().string());
    if (library->is_of_process() && device_.device->is_host_evaluator())
      check_status(raw.kernels_for(raw.self, "", this, show), library->file().string());
  }

 private:
  static bp_status* show(void* self, const bp_kernel_def* def) {
    return status_of([&] { static_cast<CustomKernels*>(self)->add(def); });
  }

  void add(const bp_kernel_def* def) {
    RegisteredKernel kernel;
    kernel.def = def;
    kernel.plugin = library_;
    kernel.guest = library_ != device_.device->plugin();
    bool first = true;
    if (def != nullptr && def->domain != nullptr && def->op_type != nullptr) {
      const OperatorName name = name_of(*def);
      first = defined_.contains(name) || replace_ops_.contains("*") ||
              replace_ops_.contains(describe(name));
      kernel.last = !first;
      if (!first && !device_.registry.find(name.first, name.second).empty()) {
        logger_.info("the kernel '", plugin_text(def->name), "' of ",
                     quoted(library_->file().native()), " goes behind those of ",
                     device_.device->label(), " for ", describe(name),
                     "; replace_ops=", describe(name), " puts it before them");
      }
    }
    const std::size_t count = device_.registry.size();
    device_.registry.add(kernel, schemas_, first);
    if (device_.registry.size() > count) check_decided(kernel);
  }

  void check_decided(const RegisteredKernel& kernel) const {
    if (kernel.plugin == device_.device->plugin()) return;
    const OperatorName name = name_of(*kernel.def);
    for (const RegisteredKernel& other : device_.registry.find(name.first, name.second)) {
      const bool is_other_library =
          other.plugin != kernel.plugin && other.plugin != device_.device->plugin();
      if (!is_other_library || !is_undecided(*other.def, *kernel.def)) continue;
      invalid("kernels of ", describe(name), " for ", device_.device->label(),
              " are in two libraries: ", quoted(other.plugin->file().native()), " and ",
              quoted(kernel.plugin->file().native()),
              "; use one of them, or give their kernels different priorities");
    }
  }

  SessionDevice& device_;
  const std::set<OperatorName> defined_;
  const std::set<std::string>& replace_ops_;
  const SchemaRegistry& schemas_;
  const Logger& logger_;
  PluginPtr library_;
};

}  // namespace

void register_custom_kernels(SessionDevice& device, const std::vector<PluginPtr>& libraries,
                             const std::set<std::string>& replace_ops,
                             const SchemaRegistry& schemas, const Logger& logger) {
  CustomKernels kernels(device, defined_by(libraries), replace_ops, schemas, logger);
  std::set<const Plugin*> taken;
  for (const PluginPtr& library : libraries) {
    if (library->raw().kernels_for != nullptr && taken.insert(library.get()).second)
      kernels.take(library);
  }
}

void check_replaced(const DeviceSet& devices, const std::set<std::string>& replace_ops) {
  for (const std::string& name : replace_ops) {
    if (name == "*") continue;
    const std::size_t colons = name.rfind("::");
    const std::string domain = colons == std::string::npos ? "" : name.substr(0, colons);
    const std::string op_type = colons == std::string::npos ? name : name.substr(colons + 2);
    const auto is_replaced = [&](const SessionDevice& device) {
      const std::vector<RegisteredKernel>& kernels = device.registry.find(domain, op_type);
      return !kernels.empty() && kernels.front().plugin != device.device->plugin();
    };
    if (std::none_of(devices.devices.begin(), devices.devices.end(), is_replaced)) {
      invalid("option 'replace_ops' names ", quoted(name),
              ", for which no library of custom operators has a kernel");
    }
  }
}

}  // namespace backplane::core

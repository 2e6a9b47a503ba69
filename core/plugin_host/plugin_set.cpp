#include <algorithm>
#include <set>

#include "backplane/plugin_api/optional/first_look.h"
#include "core/base/nearest_name.hpp"
#include "core/base/quote.hpp"
#include "core/plugin_host/device.hpp"
#include "core/plugin_host/device_choice.hpp"
#include "core/plugin_host/optional_interface.hpp"
#include "core/plugin_host/plugin.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/status.hpp"
#include "core/plugin_host/thread_pool.hpp"

namespace backplane::core {
namespace {

namespace fs = std::filesystem;

/// The file as it is known by: absolute, links resolved where that is possible.
fs::path identity_of(const fs::path& file) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(file, error);
  return error ? fs::absolute(file) : resolved;
}

/// "*.so" in a folder, by name; a folder that is not there has none.
std::vector<fs::path> shared_objects_in(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == ".so" && !entry->is_directory(ignored)) {
      found.push_back(entry->path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Why a folder cannot be searched; "" when it can, or is the default one and not there.
std::string why_not_searched(const fs::path& directory) {
  std::error_code error;
  const fs::directory_iterator entries(directory, error);
  if (!error ||
      (error == std::errc::no_such_file_or_directory && directory == default_plugin_directory()))
    return "";
  return text(quoted(directory.native()), " cannot be searched for plugins: ", error.message());
}

struct DeviceList {
  std::vector<const bp_device_info*> infos;
  std::string broken;
};

bp_status* collect_device(void* sink_ctx, const bp_device_info* info) {
  auto* list = static_cast<DeviceList*>(sink_ctx);
  return status_of([&] {
    try {
      check_device_info(info);
      if (list->infos.size() >= kMaxCount) invalid("more devices than there can be");
    } catch (const Error& error) {
      list->broken = error.message();
      throw;
    }
    list->infos.push_back(info);
  });
}

bp_status* count_kernel(void* sink_ctx, const bp_kernel_def* def) {
  auto* count = static_cast<std::size_t*>(sink_ctx);
  return status_of([&] {
    if (def == nullptr) invalid("a kernel definition is NULL");
    if (++*count > kMaxCount) invalid("more kernels than there can be");
  });
}

/// Kernels as a session would register them.
struct Registration {
  KernelRegistry registry;
  SchemaRegistry schemas;
  RegisteredKernel kernel;
};

bp_status* register_kernel(void* sink_ctx, const bp_kernel_def* def) {
  auto* to = static_cast<Registration*>(sink_ctx);
  return status_of([&] {
    if (def == nullptr) invalid("a kernel definition is NULL");
    if (++to->kernel.rank > static_cast<int>(kMaxCount)) invalid("more kernels than there can be");
    to->kernel.def = def;
    to->registry.add(to->kernel, to->schemas, false);
  });
}

/// Counts the kernels of a provider's best device, opened with its default options; the reason of the row tells of
/// those that are refused.
void count_kernels(PluginRow& row, const bp_provider& provider) {
  ThreadPool pool(1);
  bp_threads threads{&pool, 1};
  const bp_device_info* const info = row.devices[best_device(row.devices)];
  const DevicePtr device = Device::open(row.plugin, &provider, info, row.provider, {}, &threads);
  Registration all;
  all.kernel.plugin = row.plugin;
  for (const CustomSchema& schema : row.plugin->schemas()) all.schemas.add(schema);
  check_status(device->call(device->api().kernels, &all, register_kernel), "kernels");
  row.kernel_count = all.registry.size();
  const std::vector<std::string>& refused = all.registry.refused();
  if (!refused.empty())
    row.reason = text(refused.front(),
                      refused.size() > 1 ? text("; and ", refused.size() - 1, " more") : "");
}

/// The kernels that a plugin brings for devices of the provider.
std::size_t count_guest_kernels(const bp_plugin& plugin, const std::string& provider) {
  std::size_t count = 0;
  if (plugin.kernels_for == nullptr) return 0;
  check_status(
      call_plugin(
          "kernels_for",
          [&] { return plugin.kernels_for(plugin.self, provider.c_str(), &count, count_kernel); }),
      "kernels_for");
  return count;
}

/// Why the provider is not asked for devices by who does not name it; "" where it is.
std::string why_passed_over(const bp_provider& provider) {
  const std::string what = text("provider '", provider.name, "'");
  const auto* const table = static_cast<const bp_first_look*>(
      find_interface(provider, what, BP_FIRST_LOOK_INTERFACE, BP_SIZE_V1(bp_first_look, pass_over),
                     "bp_first_look"));
  if (table == nullptr) return "";
  if (table->pass_over == nullptr) invalid(what, ": its bp_first_look lacks pass_over");
  const char* reason = nullptr;
  bp_status* const status =
      call_plugin(what, [&] { return table->pass_over(provider.self, &reason); });
  if (status != nullptr) {
    take_error(status);
    return "";
  }
  return plugin_text(reason);
}

/// An error is the reason that there are none.
void find_devices(PluginRow& row, const bp_provider& provider) {
  try {
    row.devices = enumerate_devices(provider, &row.no_devices_reason);
  } catch (const Error& error) {
    row.no_devices_reason = error.message();
  }
}

/// Where the first look fails, its error is what there is to say of devices.
void look_for_devices(PluginRow& row, const bp_provider& provider) {
  try {
    row.passed_over = why_passed_over(provider);
  } catch (const Error& error) {
    row.no_devices_reason = error.message();
    return;
  }
  if (row.passed_over.empty()) find_devices(row, provider);
}

const bp_provider* find_provider_in(const bp_plugin& plugin, const std::string& name) {
  for (std::uint32_t i = 0; i < plugin.provider_count; ++i) {
    if (plugin.providers[i]->name == name) return plugin.providers[i];
  }
  return nullptr;
}

}  // namespace

std::vector<const bp_device_info*> enumerate_devices(const bp_provider& provider,
                                                     std::string* reason) {
  DeviceList list;
  const std::string what = text("provider '", provider.name, "': enumerate");
  bp_status* status =
      call_plugin(what, [&] { return provider.enumerate(provider.self, &list, collect_device); });
  std::optional<Error> error;
  if (status != nullptr) error = take_error(status);
  if (!list.broken.empty()) throw Error(Code::Internal, what + ": " + list.broken);
  if (error) list.infos.clear();
  if (reason != nullptr && list.infos.empty()) {
    *reason = error ? error->message() : "it found no device";
  }
  return std::move(list.infos);
}

PluginSet::PluginSet(std::vector<fs::path> directories, const std::vector<fs::path>& excluded,
                     Watch watch)
    : directories_(std::move(directories)),
      watch_(watch ? std::move(watch) : [](const fs::path&) {}) {
  for (const fs::path& file : excluded) excluded_.insert(identity_of(file));
}

std::vector<fs::path> PluginSet::files() const {
  std::vector<fs::path> all = given_;
  std::set<fs::path> seen;
  for (const fs::path& file : given_) seen.insert(identity_of(file));
  for (const fs::path& directory : directories_) {
    for (const fs::path& file : shared_objects_in(directory)) {
      if (seen.insert(identity_of(file)).second) all.push_back(file);
    }
  }
  return all;
}

PluginSet::Outcome& PluginSet::try_load(const fs::path& file) {
  const fs::path identity = identity_of(file);
  const auto known = outcomes_.find(identity);
  if (known != outcomes_.end()) return known->second;
  Outcome outcome;
  try {
    if (excluded_.contains(identity))
      invalid(quoted(file.native()), " is left out, as environment.plugin_exclude says");
    watch_(file);
    // Counted apart from what other sets have of the same file, so that `unload` sees who uses this one's.
    PluginPtr loaded = load_plugin(file);
    const Plugin* plugin = loaded.get();
    outcome.plugin =
        PluginPtr(plugin, [held = std::move(loaded)](const Plugin*) mutable { held.reset(); });
  } catch (const Error& error) {
    outcome.refusal = error;
  }
  return outcomes_.emplace(identity, std::move(outcome)).first->second;
}

/// Why the provider's name cannot be had; "" when it can, or is its own already.
std::string PluginSet::clash(const PluginPtr& plugin, const bp_provider& provider) const {
  const auto entry = providers_.find(provider.name);
  if (entry == providers_.end() || entry->second.raw == &provider) return "";
  return text("the provider '", provider.name, "' of ", quoted(plugin->file().native()), " is in ",
              quoted(entry->second.plugin->file().native()), " already");
}

/// Enters a provider under its name; the result is why not, or "".
std::string PluginSet::adopt(const PluginPtr& plugin, const bp_provider& provider) {
  std::string why = clash(plugin, provider);
  if (why.empty()) providers_.try_emplace(provider.name, Provider{plugin, &provider});
  return why;
}

void PluginSet::add_rows(const fs::path& file) {
  Outcome& outcome = try_load(file);
  PluginRow row;
  row.file = file;
  if (outcome.refusal) {
    row.reason = outcome.refusal->message();
    rows_.push_back(row);
    return;
  }
  const bp_plugin& plugin = outcome.plugin->raw();
  row.abi = outcome.plugin->abi();
  row.name = outcome.plugin->name();
  row.version = outcome.plugin->version();
  row.loaded = true;
  row.plugin = outcome.plugin;
  if (plugin.provider_count == 0) rows_.push_back(row);
  bool wanted = plugin.provider_count == 0;
  for (std::uint32_t i = 0; i < plugin.provider_count; ++i) {
    const bp_provider& provider = *plugin.providers[i];
    PluginRow one = row;
    one.provider = provider.name;
    one.provider_version = provider.version;
    one.reason = adopt(outcome.plugin, provider);
    one.loaded = one.reason.empty();
    wanted = wanted || one.loaded;
    if (one.loaded) {
      if (provider.option_count > 0)
        one.options.assign(provider.options, provider.options + provider.option_count);
      watch_(file);
      look_for_devices(one, provider);
    } else {
      one.plugin = nullptr;
    }
    rows_.push_back(std::move(one));
  }
  if (!wanted) outcome = {nullptr, Error(Code::InvalidArgument, rows_.back().reason)};
}

void PluginSet::search() {
  if (searched_) return;
  rows_.clear();
  for (const fs::path& directory : directories_) {
    PluginRow row;
    row.file = directory;
    row.reason = why_not_searched(directory);
    if (!row.reason.empty()) rows_.push_back(std::move(row));
  }
  for (const fs::path& file : files()) add_rows(file);
  searched_ = true;
}

std::vector<PluginRow> PluginSet::rows() {
  const std::lock_guard lock(mutex_);
  search();
  return rows_;
}

std::vector<PluginRow> PluginSet::counted_rows() {
  const std::lock_guard lock(mutex_);
  search();
  std::vector<PluginRow> counted = rows_;
  for (PluginRow& row : counted) {
    if (!row.loaded) continue;
    watch_(row.file);
    try {
      const bp_plugin& plugin = row.plugin->raw();
      if (row.provider.empty()) {
        for (const auto& [name, provider] : providers_) {
          row.kernel_count += count_guest_kernels(plugin, name);
        }
        continue;
      }
      const bp_provider& provider = *find_provider_in(plugin, row.provider);
      if (!row.passed_over.empty()) find_devices(row, provider);
      if (!row.devices.empty()) count_kernels(row, provider);
    } catch (const Error& error) {
      row.reason = error.message();
    }
  }
  return counted;
}

PluginPtr PluginSet::find_provider(const std::string& provider, const bp_provider** out) {
  const std::lock_guard lock(mutex_);
  const auto found = [&]() -> PluginPtr {
    const auto entry = providers_.find(provider);
    if (entry == providers_.end()) return nullptr;
    if (out != nullptr) *out = entry->second.raw;
    return entry->second.plugin;
  };
  if (PluginPtr plugin = found()) return plugin;
  if (!searched_) {
    for (const fs::path& file : files()) {
      if (file.stem().native().find(provider) == std::string::npos) continue;
      const Outcome& outcome = try_load(file);
      if (outcome.plugin == nullptr) continue;
      const bp_provider* raw = find_provider_in(outcome.plugin->raw(), provider);
      if (raw != nullptr) adopt(outcome.plugin, *raw);
      if (PluginPtr plugin = found()) return plugin;
    }
  }
  search();
  if (PluginPtr plugin = found()) return plugin;
  throw_not_found(provider);
}

bool PluginSet::has_provider(const std::string& provider) {
  try {
    return find_provider(provider, nullptr) != nullptr;
  } catch (const Error& error) {
    if (error.code() != Code::NotFound) throw;
    return false;
  }
}

void PluginSet::throw_not_found(const std::string& provider) const {
  std::string message = text("there is no provider ", quoted(provider));
  std::vector<std::string> known;
  for (const auto& [name, entry] : providers_) known.push_back(name);
  message += did_you_mean(provider, known);
  message += known.empty() ? "; none is known" : "; known: ";
  for (const std::string& name : known) message += (name == known.front() ? "" : ", ") + name;
  throw Error(Code::NotFound, message + searched_text() + refused_text(provider));
}

void PluginSet::throw_no_device() {
  std::string message = "no provider has a device that is taken unless it is named";
  for (const PluginRow& row : rows()) {
    if (row.provider.empty() || !row.loaded) continue;
    const bool serves = !row.devices.empty() || !row.passed_over.empty();
    const std::string& why = row.passed_over.empty() ? row.no_devices_reason : row.passed_over;
    message += text("; ", quoted(row.provider),
                    serves ? " serves only when it is named" : " has no device",
                    why.empty() ? "" : ": ", why);
  }
  throw Error(Code::NotFound, message + searched_text() + refused_text(""));
}

std::string PluginSet::searched_text() const {
  std::string message = directories_.empty() ? "; no folder was searched" : "; searched: ";
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    std::error_code ignored;
    message += (i == 0 ? "" : ", ") + quoted(directories_[i].native());
    if (!fs::is_directory(directories_[i], ignored)) message += " (is not there)";
  }
  return message;
}

/// A file that by its name should have been the one comes first.
std::string PluginSet::refused_text(const std::string& likely_name) const {
  std::string refused;
  for (const PluginRow& row : rows_) {
    if (row.loaded) continue;
    const bool likely =
        !likely_name.empty() && row.file.stem().native().find(likely_name) != std::string::npos;
    refused.insert(likely ? 0 : refused.size(), "; refused: " + row.reason);
  }
  return refused;
}

PluginPtr PluginSet::load(const fs::path& file) {
  const std::lock_guard lock(mutex_);
  Outcome& outcome = try_load(file);
  if (outcome.refusal) throw Error(*outcome.refusal);
  const bp_plugin& plugin = outcome.plugin->raw();
  for (std::uint32_t i = 0; i < plugin.provider_count; ++i) {
    const std::string why = clash(outcome.plugin, *plugin.providers[i]);
    if (why.empty()) continue;
    outcome = {nullptr, Error(Code::InvalidArgument, why + "; use one of them only")};
    throw Error(*outcome.refusal);
  }
  for (std::uint32_t i = 0; i < plugin.provider_count; ++i) {
    adopt(outcome.plugin, *plugin.providers[i]);
  }
  const auto is_given = [&](const fs::path& other) {
    return identity_of(other) == identity_of(file);
  };
  if (!searched_ && std::none_of(given_.begin(), given_.end(), is_given)) given_.push_back(file);
  return outcome.plugin;
}

void PluginSet::unload(const fs::path& file, std::vector<PluginPtr>& owners_list) {
  const std::lock_guard lock(mutex_);
  const fs::path identity = identity_of(file);
  const auto outcome = outcomes_.find(identity);
  if (outcome == outcomes_.end() || outcome->second.plugin == nullptr)
    throw Error(Code::NotFound, text("the library ", quoted(file.native()), " is not loaded"));
  const PluginPtr plugin = outcome->second.plugin;
  if (plugin->raw().provider_count > 0)
    invalid(quoted(file.native()), " brings a provider, which stays as long as its environment");
  const auto is_its = [&](const PluginRow& row) { return row.plugin == plugin; };
  const auto rows = std::count_if(rows_.begin(), rows_.end(), is_its);
  const auto listed = std::count(owners_list.begin(), owners_list.end(), plugin);
  // This set holds it in its outcomes and rows, and once here.
  if (const auto others = plugin.use_count() - rows - listed - 2; others > 0)
    invalid(quoted(file.native()), " is in use; end the sessions that were made with it first");
  owners_list.erase(std::remove(owners_list.begin(), owners_list.end(), plugin), owners_list.end());
  rows_.erase(std::remove_if(rows_.begin(), rows_.end(), is_its), rows_.end());
  given_.erase(
      std::remove_if(given_.begin(), given_.end(),
                     [&](const fs::path& given) { return identity_of(given) == identity; }),
      given_.end());
  outcomes_.erase(outcome);
}

}  // namespace backplane::core

// Loaded plugins: shared objects that answered the query.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backplane/plugin_api.h"
#include "core/base/error.hpp"
#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

/// A plugin that was started: of a shared object, or of the caller's own process.
///
/// Lifetime: the library stays mapped for ever, as one does in which code ran (threads and
///           thread-locals of it may outlive everything). `shutdown` runs when the last shared_ptr
///           goes; devices, kernels, sessions hold one. Until then every load of the same file, by
///           whoever, gives the same object, so `init` runs once; a later load starts it again.
class Plugin {
 public:
  virtual ~Plugin() = default;
  /// Of a plugin of this process: words that tell it from others.
  virtual const std::filesystem::path& file() const = 0;
  virtual const bp_plugin& raw() const = 0;
  std::string name() const { return raw().name; }
  std::string version() const { return raw().version; }
  /// "1.0": the ABI it was built with.
  std::string abi() const;
  /// Whether the caller's process describes it, and no file.
  virtual bool is_of_process() const { return false; }
  /// Its custom operators in the core's form.
  virtual const std::vector<CustomSchema>& schemas() const = 0;
};
using PluginPtr = std::shared_ptr<const Plugin>;

/// What became of a file: a row of `backplane providers`. A plugin with several providers has a row
/// for each.
struct PluginRow {
  std::filesystem::path file;
  bool loaded = false;
  std::string reason;  ///< of a refusal; of a loaded one, why its kernels could not be counted
  std::string abi, name, version;
  std::string provider;  ///< "" for a library of custom operators
  std::string provider_version;
  std::string no_devices_reason;  ///< what `enumerate` said when it found none
  std::string
      passed_over;  ///< why nobody gets the provider unless it is named; `enumerate` was not called then
  std::vector<const bp_device_info*> devices;
  std::vector<const bp_option*> options;  ///< that the provider takes
  std::size_t kernel_count = 0;           ///< in PluginSet::counted_rows alone
  PluginPtr plugin;                       ///< null for a refused one
};

/// Loads one file. Throws Error that names the file and what is wrong: not there, not a shared
/// object, a library it needs is missing (which), no entry symbol, versions (both), a broken
/// description, init failed (the plugin's message). A refused plugin leaves nothing but its mapping.
/// Threads: any; one loads at a time.
PluginPtr load_plugin(const std::filesystem::path& file);

/// Starts what the caller's own process describes: operators, no providers. Throws Error when the description is broken,
/// brings a provider, or its init fails. The same description gives the same plugin while anybody holds that.
/// Lifetime: `description` stays valid until its shutdown was called. Threads: as load_plugin.
PluginPtr start_plugin(const bp_plugin& description);

/// True once the process ends by exit: statics of plugins may be gone then, so nobody calls a plugin
/// any more, and what is still open is left to the system.
bool process_is_ending();

/// The devices that a provider shows, in its order; checked. `reason` gets what it said when there
/// are none. Throws Internal when what it shows breaks the ABI.
std::vector<const bp_device_info*> enumerate_devices(const bp_provider& provider,
                                                     std::string* reason);

/// The plugins of an environment.
/// Threads: all functions may run concurrently.
class PluginSet {
 public:
  /// Told of a file before code of it is called: who it was that ended the process is known then.
  using Watch = std::function<void(const std::filesystem::path& file)>;

  /// Directories are searched for *.so in order, files in name order; nothing is loaded yet. Files that are `excluded`
  /// never are.
  explicit PluginSet(std::vector<std::filesystem::path> directories,
                     const std::vector<std::filesystem::path>& excluded = {}, Watch watch = {});

  /// Loads everything that is found, once, and says what became of each file. A provider whose name
  /// another file has already is refused, naming both. Providers that at first look (bp.first_look) have nothing for
  /// who does not name them are not asked for devices.
  std::vector<PluginRow> rows();

  /// The same with the devices of every provider and `kernel_count`, for which the best device of each is opened with
  /// its default options; a file of custom operators counts its kernels for all providers.
  std::vector<PluginRow> counted_rows();

  /// Loads what it takes to find the provider (a file is tried first if its name contains the
  /// provider's, then all). Throws NotFound naming the directories, every refused file with its
  /// reason, and the nearest known provider.
  PluginPtr find_provider(const std::string& provider, const bp_provider** out);

  /// Whether any file has it; loads as find_provider does.
  bool has_provider(const std::string& provider);

  /// Throws NotFound: no provider has a device that is taken unless it is named, and why.
  [[noreturn]] void throw_no_device();

  /// Loads a file by path (custom operators or a provider), once; later calls give the same one. Its
  /// providers are found by find_provider from then on. Throws what load_plugin throws, and
  /// InvalidArgument naming both files when one of its providers has a name that is taken.
  PluginPtr load(const std::filesystem::path& file);

  /// Lets a file go that brings operators alone: its shutdown runs, and a later load starts it again, also from a
  /// new file of that name. It is taken out of `owners_list` too. Throws NotFound where it is not loaded,
  /// InvalidArgument where it brings providers, or where anybody else holds it; then all stays as it was.
  void unload(const std::filesystem::path& file, std::vector<PluginPtr>& owners_list);

 private:
  struct Provider {
    PluginPtr plugin;
    const bp_provider* raw;
  };
  struct Outcome {
    PluginPtr plugin;
    std::optional<Error> refusal;
  };
  Outcome& try_load(const std::filesystem::path& file);
  std::string clash(const PluginPtr& plugin, const bp_provider& provider) const;
  std::string adopt(const PluginPtr& plugin, const bp_provider& provider);
  std::vector<std::filesystem::path> files() const;
  void add_rows(const std::filesystem::path& file);
  void search();
  [[noreturn]] void throw_not_found(const std::string& provider) const;

  std::string searched_text() const;
  std::string refused_text(const std::string& likely_name) const;

  std::vector<std::filesystem::path> directories_;
  std::set<std::filesystem::path> excluded_;  ///< links resolved
  Watch watch_;
  std::vector<std::filesystem::path> given_;  ///< loaded by path
  std::mutex mutex_;
  std::map<std::filesystem::path, Outcome> outcomes_;  ///< by file, links resolved
  std::map<std::string, Provider> providers_;          ///< by name: who had it first
  std::vector<PluginRow> rows_;
  bool searched_ = false;
};

/// Where plugins lie when nobody says otherwise: backplane/plugins beside the library that this code
/// is in (lib/backplane/plugins).
std::filesystem::path default_plugin_directory();
/// Whether a plugin lies there: it came with this library, whose tests prove that none of its kernels is refused.
bool is_own_plugin(const Plugin& plugin);

}  // namespace backplane::core

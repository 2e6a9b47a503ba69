#include "core/plugin_host/plugin.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <string_view>

#include <boost/dll/shared_library.hpp>

#include "core/base/quote.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/host_api.hpp"
#include "core/plugin_host/plugin_call.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/shared_object.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

/// Entry symbols of later ABI majors that are looked for, to say what a file is.
constexpr int kLastMajorLookedFor = 9;

std::atomic<bool> process_ends{false};

/// What is loaded in this process. Never destroyed, since plugins may outlive every static.
struct Loaded {
  std::mutex mutex;
  std::condition_variable ended;
  /// Started plugins. An entry whose plugin is gone is one whose shutdown is still running.
  std::map<const bp_plugin*, std::weak_ptr<const Plugin>> plugins;
  /// All libraries of which code ran: they stay mapped.
  std::deque<boost::dll::shared_library> libraries;
};

Loaded& loaded() {
  static auto* const state = [] {
    // Registered before any plugin's statics are made, so that it runs when they are gone.
    std::atexit([] { process_ends = true; });
    return new Loaded();
  }();
  return *state;
}

class LoadedPlugin final : public Plugin {
 public:
  LoadedPlugin(std::filesystem::path file, const bp_plugin* raw, std::vector<CustomSchema> schemas,
               bool is_of_process)
      : file_(std::move(file)),
        raw_(raw),
        schemas_(std::move(schemas)),
        is_of_process_(is_of_process) {}
  LoadedPlugin(const LoadedPlugin&) = delete;
  LoadedPlugin& operator=(const LoadedPlugin&) = delete;
  ~LoadedPlugin() override {
    if (!started_ || process_is_ending()) return;
    try {
      raw_->shutdown(raw_->self);
    } catch (...) {  // the plugin broke the contract on its way out; nothing depends on it any more
    }
    const std::lock_guard lock(loaded().mutex);
    loaded().plugins.erase(raw_);
    loaded().ended.notify_all();
  }

  /// Calls the plugin's `init`, at the most once.
  void start() {
    bp_status* status =
        call_plugin("its init", [&] { return raw_->init(raw_->self, &host_api()); });
    if (status != nullptr) throw take_error(status).within("its init failed");
    started_ = true;
  }

  const std::filesystem::path& file() const override { return file_; }
  const bp_plugin& raw() const override { return *raw_; }
  bool is_of_process() const override { return is_of_process_; }
  const std::vector<CustomSchema>& schemas() const override { return schemas_; }

 private:
  std::filesystem::path file_;
  const bp_plugin* raw_;
  std::vector<CustomSchema> schemas_;
  bool is_of_process_;
  bool started_ = false;
};

/// What the dynamic linker's message means for the user.
std::string explain(const std::string& why) {
  constexpr std::string_view kNoLibrary = ": cannot open shared object file";
  constexpr std::string_view kNoSymbol = "undefined symbol: ";
  if (const std::size_t at = why.find(kNoLibrary); at != std::string::npos) {
    return text("it needs the library ", quoted(why.substr(0, at)),
                ", which cannot be found; install it, or name its folder in LD_LIBRARY_PATH (the "
                "loader says: ",
                why, ")");
  }
  if (const std::size_t at = why.find(kNoSymbol); at != std::string::npos) {
    const std::string symbol = why.substr(at + kNoSymbol.size());
    return text("it needs the undefined symbol ",
                quoted(symbol.substr(0, symbol.find_first_of(", "))),
                "; it was linked without a library that it uses, or a library here has another "
                "version (the loader says: ",
                why, ")");
  }
  return text("the loader says: ", why);
}

const boost::dll::shared_library& map_library(const std::filesystem::path& file) {
  boost::dll::shared_library library;
  boost::dll::fs::error_code error;
  library.load(boost::dll::fs::path(file.native()),
               boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local, error);
  if (error) {
    const char* why = dlerror();
    invalid(explain(why != nullptr ? single_line(why) : error.message()));
  }
  std::deque<boost::dll::shared_library>& kept = loaded().libraries;
  for (const boost::dll::shared_library& other : kept) {
    if (other.native() == library.native()) return other;
  }
  return kept.emplace_back(std::move(library));
}

bp_plugin_query_fn find_query(const boost::dll::shared_library& library) {
  if (library.has(BP_PLUGIN_QUERY_SYMBOL)) {
    return &library.get<bp_code(const bp_query_args*, const bp_plugin**)>(BP_PLUGIN_QUERY_SYMBOL);
  }
  for (int major = BP_ABI_MAJOR + 1; major <= kLastMajorLookedFor; ++major) {
    const std::string symbol = text("bp_plugin_query_v", major);
    if (!library.has(symbol)) continue;
    throw Error(Code::Incompatible,
                text("it was built for plugin ABI ", major, " (its entry symbol is ", symbol,
                     "), and this host offers ", BP_ABI_MAJOR, ".", BP_ABI_MINOR,
                     "; update the host, or use an older version of the plugin"));
  }
  invalid("it has no entry symbol ", BP_PLUGIN_QUERY_SYMBOL, ", so it is not a Backplane plugin");
}

[[noreturn]] void throw_incompatible(const bp_plugin* plugin) {
  std::string built;
  if (plugin != nullptr && plugin->struct_size >= 4 * sizeof(std::uint32_t)) {
    built = text("; it was built with ", BP_ABI_MAJOR, ".", plugin->abi_minor_built,
                 " and requires ", BP_ABI_MAJOR, ".", plugin->abi_minor_required);
  }
  throw Error(Code::Incompatible, text("its query refuses this host's plugin ABI ", BP_ABI_MAJOR,
                                       ".", BP_ABI_MINOR, " as incompatible", built));
}

const bp_plugin* query(bp_plugin_query_fn function) {
  constexpr std::string_view kVersion = BACKPLANE_VERSION;
  bp_query_args args{};
  args.struct_size = sizeof(args);
  args.host_major = BP_ABI_MAJOR;
  args.host_minor = BP_ABI_MINOR;
  args.host_version = {kVersion.data(), kVersion.size()};
  const bp_plugin* plugin = nullptr;
  const bp_code code = call_plugin("its query", [&] { return function(&args, &plugin); });
  if (code == BP_INCOMPATIBLE) throw_incompatible(plugin);
  if (code != BP_OK) invalid("its query failed with status code ", code);
  if (plugin == nullptr) invalid("its query gave no description (NULL) and no error");
  return plugin;
}

std::vector<CustomSchema> read_schemas(const bp_plugin& plugin, const std::filesystem::path& file) {
  std::vector<CustomSchema> schemas;
  for (std::uint32_t i = 0; i < plugin.schema_count; ++i) {
    if (plugin.schemas[i] == nullptr) invalid("operator schema ", i, " is NULL");
    schemas.push_back(read_schema(*plugin.schemas[i], file.native()));
    const CustomSchema& read = schemas.back();
    const auto is_same = [&](const CustomSchema& other) {
      return other.name == read.name && other.domain == read.domain &&
             other.since_version == read.since_version;
    };
    if (std::any_of(schemas.begin(), schemas.end() - 1, is_same)) {
      invalid("operator schema ", i, " is ", quoted(read.domain + "::" + read.name), " of version ",
              read.since_version, " a second time");
    }
  }
  return schemas;
}

/// Starts, or finds what is started. The lock is held, except while somebody's shutdown is awaited.
PluginPtr start_locked(const std::filesystem::path& file, const bp_plugin* raw, bool is_of_process,
                       std::unique_lock<std::mutex>& lock) {
  std::map<const bp_plugin*, std::weak_ptr<const Plugin>>& plugins = loaded().plugins;
  for (auto known = plugins.find(raw); known != plugins.end(); known = plugins.find(raw)) {
    if (PluginPtr plugin = known->second.lock()) return plugin;
    loaded().ended.wait(lock);
  }
  const auto plugin =
      std::make_shared<LoadedPlugin>(file, raw, read_schemas(*raw, file), is_of_process);
  const auto entry = plugins.emplace(raw, plugin).first;
  try {
    plugin->start();
  } catch (...) {
    plugins.erase(entry);
    throw;
  }
  return plugin;
}

PluginPtr load_locked(const std::filesystem::path& file, std::unique_lock<std::mutex>& lock) {
  const bp_plugin* raw = query(find_query(map_library(file)));
  check_description(raw);
  name_plugin_code(raw, raw->name);
  return start_locked(file, raw, false, lock);
}

/// What stands for the file of a plugin of this process: no two that live have the same.
std::string words_for(const bp_plugin& description) {
  const std::string words = text(description.name, " of this process");
  int same = 1;
  for (const auto& [raw, plugin] : loaded().plugins) {
    if (raw != &description && text(raw->name, " of this process") == words) ++same;
  }
  return same == 1 ? words : text(words, ", ", same);
}

}  // namespace

std::string Plugin::abi() const { return text(BP_ABI_MAJOR, ".", raw().abi_minor_built); }

bool process_is_ending() { return process_ends; }

PluginPtr load_plugin(const std::filesystem::path& file) {
  const std::filesystem::path absolute = std::filesystem::absolute(file).lexically_normal();
  check_shared_object(absolute);
  std::unique_lock lock(loaded().mutex);
  try {
    return load_locked(absolute, lock);
  } catch (const Error& error) {
    // Whatever the plugin's own code was: to the host it is a file that cannot be used.
    const bool versions = error.code() == Code::Incompatible;
    throw Error(versions ? Code::Incompatible : Code::InvalidArgument, error.message())
        .within(quoted(absolute.native()));
  }
}

PluginPtr start_plugin(const bp_plugin& description) {
  check_description(&description);
  if (description.provider_count > 0)
    invalid("the plugin ", quoted(description.name),
            " of this process brings a provider; providers come in files");
  std::unique_lock lock(loaded().mutex);
  const std::string words = words_for(description);
  try {
    return start_locked(words, &description, true, lock);
  } catch (const Error& error) {
    throw error.within(words);
  }
}

std::filesystem::path default_plugin_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&default_plugin_directory), &info) == 0) return {};
  std::error_code error;
  const std::filesystem::path library = std::filesystem::weakly_canonical(info.dli_fname, error);
  if (error) return {};
  return library.parent_path() / "backplane" / "plugins";
}

bool is_own_plugin(const Plugin& plugin) {
  static const std::filesystem::path own = default_plugin_directory();
  std::error_code error;
  return std::filesystem::equivalent(plugin.file().parent_path(), own, error);
}

}  // namespace backplane::core

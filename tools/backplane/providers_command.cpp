// backplane providers
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/terminal.hpp"
#include "tools/backplane/worker_pool.hpp"

namespace backplane::cli {
namespace {

struct ProvidersRequest {
  Selection selection;
  bool json = false;
  unsigned timeout = 60;
};

std::string word(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

/// Devices, and why there are none or what is wrong with them.
std::string devices_text(const Json& row) {
  std::string result;
  for (const Json& device : row.value("devices", Json::array())) {
    if (!result.empty()) result += "; ";
    const Json id = device.value("id", Json());
    result += (id.is_string() ? id.get<std::string>() : id.dump()) + ": " + word(device, "name");
    const double bytes = device.value("memory_bytes", 0.0);
    if (bytes > 0) result += " (" + bytes_text(bytes) + ")";
  }
  const std::string reason = word(row, "reason");
  return result + (result.empty() || reason.empty() ? "" : "; ") + reason;
}

void print_table(const Json& rows) {
  if (rows.empty()) {
    std::cout << "No plugin was found; --plugin-path names folders to search.\n";
    return;
  }
  Table table({"file", "status", "provider", "version", "ABI", "kernels", "devices or reason"});
  for (const Json& row : rows) {
    const bool is_loaded = word(row, "status") == "loaded";
    table.add({word(row, "file"), word(row, "status"), word(row, "provider"), word(row, "version"),
               word(row, "abi"), is_loaded ? row.value("kernels", Json(0)).dump() : "",
               devices_text(row)});
  }
  std::cout << table.text();
}

/// The file whose code a child process called last: known when the child is dead.
class LastFile {
 public:
  void set(const std::string& file) {
    const std::size_t size = std::min(file.size(), kBytes - 1);
    std::memcpy(chars(), file.data(), size);
    chars()[size] = 0;
  }
  std::string get() const { return chars(); }

 private:
  static constexpr std::size_t kBytes = 1 << 16;
  char* chars() const { return static_cast<char*>(memory_.data()); }

  SharedMemory memory_{kBytes};
};

/// Opens all plugins, in a child process: one of them may end it.
class ProvidersWorker : public Worker {
 public:
  ProvidersWorker(Options& options, LastFile& last) {
    const int wanted = level_of(options.get("environment.log_level"));
    options.set("environment.log_level", "debug");
    const auto sink = [&last, wanted](int level, const std::string& message) {
      const std::string prefix = "plugin file ";
      if (message.rfind(prefix, 0) == 0) last.set(message.substr(prefix.size()));
      if (level >= wanted)
        std::cerr << "backplane: " << kLevels[level] << ": " << message << std::endl;
    };
    try {
      environment_ = new Environment(options, sink);
    } catch (const Error& error) {
      throw Failure(exit_code_of_load(error.code()), error.what());
    }
  }

  std::string work(std::size_t) override { return environment_->providers(); }

 private:
  static constexpr const char* kLevels[] = {"trace", "debug", "info", "warning", "error"};
  static int level_of(const std::string& name) {
    return static_cast<int>(std::find(std::begin(kLevels), std::end(kLevels), name) -
                            std::begin(kLevels));
  }

  Environment* environment_ =
      nullptr;  ///< never ended: the process ends, whatever a plugin's end does
};

/// What became of each file. One that ends the process, or never answers, costs another try without it.
Json all_rows(const ProvidersRequest& request) {
  const std::string exclude = "environment.plugin_exclude";
  PoolOptions pool;
  pool.timeout = std::chrono::seconds(request.timeout);
  std::map<std::string, std::string> deaths;
  while (true) {
    Options options = request.selection.options();
    for (const auto& [file, death] : deaths) {
      const std::string others = options.get(exclude);
      options.set(exclude, others.empty() ? file : text(others, ":", file));
    }
    LastFile last;
    PoolAnswer answer;
    run_in_workers(
        1, pool, [&] { return new ProvidersWorker(options, last); },
        [&](std::size_t, const PoolAnswer& given) { answer = given; });
    if (answer.death.empty()) {
      Json rows = Json::parse(answer.text);
      for (Json& row : rows) {
        if (const auto death = deaths.find(word(row, "file")); death != deaths.end())
          row["reason"] = death->second;
      }
      return rows;
    }
    const std::string file = last.get();
    const std::string what = text("'", file, "': its code ", answer.death, "; ", exclude, "=", file,
                                  " keeps it out of other commands");
    if (file.empty() || !deaths.emplace(file, what).second) run_failed(what);
  }
}

int providers(const ProvidersRequest& request) {
  const Json rows = all_rows(request);
  if (request.json) {
    std::cout << dump(rows);
  } else {
    print_table(rows);
  }
  return kDone;
}

}  // namespace

void add_providers(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<ProvidersRequest>();
  CLI::App& command =
      *program.add_subcommand("providers", "lists the plugin files found and what became of each");
  command.add_flag("--json", request->json, "print one JSON value");
  command
      .add_option("--timeout", request->timeout,
                  "seconds until plugins that do not answer are given up; default 60")
      ->check(CLI::Range(1u, 86400u));
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return providers(*request); }; });
}

}  // namespace backplane::cli

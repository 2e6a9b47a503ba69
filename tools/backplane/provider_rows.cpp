#include "tools/backplane/provider_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/nearest.hpp"
#include "tools/backplane/worker_pool.hpp"

namespace backplane::cli {
namespace {

std::string member(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
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

}  // namespace

Json provider_rows(const Selection& selection, unsigned timeout) {
  const std::string exclude = "environment.plugin_exclude";
  PoolOptions pool;
  pool.timeout = std::chrono::seconds(timeout);
  std::map<std::string, std::string> deaths;
  while (true) {
    Options options = selection.options();
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
        if (const auto death = deaths.find(member(row, "file")); death != deaths.end())
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

void require_known_providers(const Selection& selection, const Json& rows) {
  std::vector<std::string> known;
  std::string list;
  for (const Json& row : rows) {
    const std::string name = member(row, "provider");
    if (!name.empty()) list += (list.empty() ? "" : ", ") + name;
    known.push_back(name.empty() ? std::filesystem::path(member(row, "file")).stem().string()
                                 : name);
  }
  for (const auto& [option, name] : selection.named_providers()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    wrong_request(option, ": there is no provider '", name, "'", did_you_mean(name, known),
                  "; known: ", list);
  }
}

}  // namespace backplane::cli

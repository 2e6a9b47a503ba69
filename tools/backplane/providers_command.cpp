// backplane providers
#include <iostream>
#include <memory>
#include <string>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/numbers.hpp"
#include "tools/backplane/provider_rows.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

struct ProvidersRequest {
  Selection selection;
  bool json = false;
  bool options = false;
  unsigned timeout = 60;
};

std::string row_text(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

/// Devices, and why there are none or what is wrong with them.
std::string devices_text(const Json& row) {
  std::string result;
  const Json devices = row.value("devices", Json::array());
  for (const Json& device : devices) {
    if (!result.empty()) result += "; ";
    const Json id = device.value("id", Json());
    result +=
        (id.is_string() ? id.get<std::string>() : id.dump()) + ": " + row_text(device, "name");
    const double bytes = device.value("memory_bytes", 0.0);
    if (bytes > 0) result += " (" + bytes_text(bytes) + ")";
    if (devices.size() > 1 && id == row.value("best_device", Json()))
      result += ", the one that '" + row_text(row, "provider") + "' alone means";
  }
  const std::string reason = row_text(row, "reason");
  return result + (result.empty() || reason.empty() ? "" : "; ") + reason;
}

void print_table(const Json& rows) {
  if (rows.empty()) {
    std::cout << "No plugin was found; --plugin-path names folders to search.\n";
    return;
  }
  Table table({"file", "status", "provider", "version", "ABI", "kernels", "devices or reason"});
  for (const Json& row : rows) {
    const bool is_loaded = row_text(row, "status") == "loaded";
    table.add({row_text(row, "file"), row_text(row, "status"), row_text(row, "provider"),
               row_text(row, "version"), row_text(row, "abi"),
               is_loaded ? row.value("kernels", Json(0)).dump() : "", devices_text(row)});
  }
  std::cout << table.text();
}

/// What each provider takes: from its plugin, so that it is that of the file which was found.
void print_options(const Json& rows) {
  for (const Json& row : rows) {
    const std::string provider = row_text(row, "provider");
    if (provider.empty() || row_text(row, "status") != "loaded") continue;
    const Json options = row.value("options", Json::array());
    std::cout << "\nOptions of '" << provider << "'"
              << (options.empty() ? ": none\n"
                                  : ", set with --set provider." + provider + ".OPTION=VALUE\n");
    Table table({"option", "default", "values", "meaning"});
    for (const Json& option : options) {
      const std::string range = row_text(option, "range");
      table.add({row_text(option, "name"), row_text(option, "default"),
                 range.empty() ? row_text(option, "type") : range, row_text(option, "meaning")});
    }
    if (!table.empty()) std::cout << table.text("  ");
  }
}

int providers(const ProvidersRequest& request) {
  const Json rows = provider_rows(request.selection, request.timeout);
  require_known_providers(request.selection, rows);
  if (request.json) {
    std::cout << dump(rows);
  } else {
    print_table(rows);
    if (request.options) print_options(rows);
  }
  return kDone;
}

}  // namespace

void add_providers(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<ProvidersRequest>();
  CLI::App& command =
      *program.add_subcommand("providers", "lists the plugin files found and what became of each");
  command.add_flag("--json", request->json, "print one JSON value");
  command.add_flag("--options", request->options,
                   "list the options of each provider, too; --json always has them");
  command
      .add_option("--timeout", request->timeout,
                  "seconds until plugins that do not answer are given up; default 60")
      ->transform(whole_number(1, 86400));
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return providers(*request); }; });
}

}  // namespace backplane::cli

// backplane bench
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/bench_growth.hpp"
#include "tools/backplane/bench_replan.hpp"
#include "tools/backplane/bench_runs.hpp"
#include "tools/backplane/bench_sessions.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/feeds.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/numbers.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

struct BenchRequest {
  Selection selection;
  std::string model;
  std::vector<std::string> inputs;
  std::optional<std::size_t> warmup, runs;
  std::optional<std::string> replan;
  std::vector<std::string> growths;
  std::size_t sessions = 1;
  std::size_t callers = 0;  ///< 0: one for each session
  bool json = false;
};

/// Most memory that was resident at once. Not getrusage's figure, which a process starts with its parent's.
double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

/// What the command line asks for; 0, like nothing, is all processors.
unsigned requested_threads(const Selection& selection) {
  const unsigned asked =
      selection.threads ? static_cast<unsigned>(std::stoul(*selection.threads)) : 0;
  return asked != 0 ? asked : std::max(1u, std::thread::hardware_concurrency());
}

Json report_of(const BenchRequest& request, const Session& session, const Measurement& measured) {
  const Json statistics = Json::parse(session.statistics());
  Json providers = Json::array();
  const Json nodes_on = statistics.value("nodes_on", Json::object());
  for (const auto& [provider, count] : nodes_on.items()) {
    if (count.is_number() && count > 0) providers.push_back(provider);
  }
  const auto figure = [&](const char* key, const Json& otherwise) {
    return statistics.value(key, otherwise);
  };
  Json report;
  report["model"] = request.model;
  report["providers"] = providers;
  report["threads"] = figure("threads", requested_threads(request.selection));
  report["precision"] = figure("precision", request.selection.precision.value_or("fp32"));
  report["load_ms"] = figure("load_ms", nullptr);
  report["plan_ms"] = figure("plan_ms", nullptr);
  report["first_run_ms"] = measured.first_run_ms;
  report["runs"] = measured.runs;
  report["runs_per_s"] = measured.runs_per_s;
  report["median_ms"] = measured.median_ms;
  report["min_ms"] = measured.min_ms;
  report["p90_ms"] = measured.p90_ms;
  report["peak_rss_mb"] = peak_rss_mb();
  report["steady_allocations"] =
      measured.steady_allocations ? Json(*measured.steady_allocations) : Json(nullptr);
  report["arena_bytes"] = figure("arena_bytes", Json::object());
  return report;
}

void print_table(const Json& report) {
  Table table({"figure", "value"});
  const auto time = [&](const char* label, const char* key) {
    if (report[key].is_number()) table.add({label, duration_text(report[key].get<double>())});
  };
  std::string providers;
  for (const Json& provider : report["providers"]) {
    if (provider.is_string())
      providers += (providers.empty() ? "" : ", ") + provider.get<std::string>();
  }
  table.add({"model", report["model"].get<std::string>()});
  table.add({"providers", providers});
  table.add({"threads", report["threads"].dump()});
  table.add(
      {"precision", report["precision"].is_string() ? report["precision"].get<std::string>() : ""});
  time("load", "load_ms");
  time("plan", "plan_ms");
  time("first run", "first_run_ms");
  if (report.contains("replan_ms")) time("plan for a new size", "replan_ms");
  if (report.contains("growing_ms")) time("run of a new size, planned", "growing_ms");
  table.add({"runs", report["runs"].dump()});
  time("median", "median_ms");
  time("fastest", "min_ms");
  time("90th percentile", "p90_ms");
  table.add({"runs per second", text(report["runs_per_s"].get<double>())});
  table.add({"peak memory", bytes_text(report["peak_rss_mb"].get<double>() * (1 << 20))});
  const Json& steady = report["steady_allocations"];
  table.add(
      {"allocations in 10 runs", steady.is_null() ? "not counted in this build" : steady.dump()});
  for (const auto& [device, bytes] : report["arena_bytes"].items()) {
    if (bytes.is_number()) table.add({"arena on " + device, bytes_text(bytes.get<double>())});
  }
  if (const Json shared = report.value("session_memory", Json()); shared.is_object()) {
    table.add({"memory of one session", bytes_text(shared["one_mb"].get<double>() * (1 << 20))});
    table.add({"memory of " + shared["sessions"].dump(),
               bytes_text(shared["all_mb"].get<double>() * (1 << 20))});
    table.add(
        {"of it, arenas of the others", bytes_text(shared["arenas_mb"].get<double>() * (1 << 20))});
    table.add({"ratio without them", shared["ratio"].dump()});
  }
  std::cout << table.text();
}

int bench(const BenchRequest& request) {
  if (request.callers != 0 && request.callers < request.sessions)
    wrong_request("--callers ", request.callers, " leaves some of the sessions idle: --sessions ",
                  request.sessions, " needs as many callers, or more");
  const Options options = request.selection.options();
  const Environment environment(options);
  std::vector<std::unique_ptr<Session>> sessions;
  SessionMemory memory;
  sessions.push_back(std::make_unique<Session>(environment, request.model, options));
  FeedSet feeds(*sessions[0], request.inputs);
  std::map<std::string, std::int64_t> sizes;
  std::optional<DimSize> replan;
  if (request.replan) {
    replan = DimSize::parse(*request.replan, *sessions[0]);
    sizes[replan->name] = replan->size;
  }
  const std::vector<DimGrowth> growths = DimGrowth::parse(request.growths, *sessions[0]);
  for (const DimGrowth& growth : growths) sizes[growth.name] = growth.to;
  const std::vector<std::string> assumed = feeds.fill_missing(sizes);
  for (const std::string& dim : assumed) {
    std::cerr << "backplane: dimension '" << one_line(dim)
              << "' is taken as 1; --dim gives another size\n";
  }
  // A single session's first run is measured, and not made before.
  if (request.sessions > 1) memory.add(*sessions[0], feeds);
  while (sessions.size() < request.sessions) {
    sessions.push_back(std::make_unique<Session>(environment, request.model, options));
    memory.add(*sessions.back(), feeds);
  }
  const std::size_t callers = std::max(request.callers, request.sessions);
  const Measurement measured = measure(sessions, feeds, {request.warmup, request.runs, callers});
  Json report = report_of(request, *sessions[0], measured);
  if (replan) report["replan_ms"] = measure_replan(*sessions[0], feeds, *replan);
  if (!growths.empty()) {
    const GrowthTimes times = measure_growth(*sessions[0], feeds, growths);
    report["growing_runs"] = times.runs;
    report["growing_ms"] = times.median_ms;
    report["growing_p90_ms"] = times.p90_ms;
  }
  if (request.sessions > 1) report["session_memory"] = memory.report();
  if (request.json) {
    std::cout << dump(report);
  } else {
    print_table(report);
  }
  return kDone;
}

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<BenchRequest>();
  CLI::App& command = *program.add_subcommand("bench", "measures the time of a run");
  command.add_option("MODEL", request->model, "ONNX file")->required();
  add_repeatable(command, "--input", request->inputs,
                 "NAME=FILE; inputs not given are filled, the same every time");
  request->selection.add_dims_to(command);
  command.add_option("--warmup", request->warmup, "runs before measuring")
      ->transform(whole_number(0, 100'000'000));
  command
      .add_option("--runs", request->runs,
                  "measured runs of each caller; default: for about a second")
      ->transform(whole_number(1, 100'000'000));
  command
      .add_option("--sessions", request->sessions, "sessions of the model, run at the same time")
      ->transform(whole_number(1, 1024));
  command
      .add_option("--callers", request->callers,
                  "threads that run them; default: one for each session")
      ->transform(whole_number(1, 1024));
  command.add_option(
      "--replan", request->replan,
      "NAME=N: the size of a symbolic dimension that may change; measures what planning for a "
      "new size takes, too");
  add_repeatable(
      command, "--grow", request->growths,
      "NAME=FROM:TO, sizes of a symbolic dimension: also times one run with each, planning "
      "included; several grow together, as past and total length of a decoder do");
  command.add_flag("--json", request->json, "print one JSON value");
  request->selection.add_precision_to(command);
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return bench(*request); }; });
}

}  // namespace backplane::cli

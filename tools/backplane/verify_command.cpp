// backplane verify
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"
#include "tools/backplane/numbers.hpp"
#include "tools/backplane/output_file.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/terminal.hpp"
#include "tools/backplane/verify_case.hpp"
#include "tools/backplane/worker_pool.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;

struct VerifyRequest {
  Selection selection;
  std::vector<std::string> folders;
  std::optional<double> rtol, atol;
  std::size_t jobs = 0;  ///< 0: as many as processors
  unsigned timeout = 600;
  std::optional<std::string> json, report;
};

/// An ONNX model of one Identity node, x to y, float [1]: IR version 8, opset 13, a graph "probe".
constexpr unsigned char kProbe[] = {
    0x08, 0x08, 0x3A, 0x3B, 0x0A, 0x10, 0x0A, 0x01, 'x',  0x12, 0x01, 'y',  0x22, 0x08,
    'I',  'd',  'e',  'n',  't',  'i',  't',  'y',  0x12, 0x05, 'p',  'r',  'o',  'b',
    'e',  0x5A, 0x0F, 0x0A, 0x01, 'x',  0x12, 0x0A, 0x0A, 0x08, 0x08, 0x01, 0x12, 0x04,
    0x0A, 0x02, 0x08, 0x01, 0x62, 0x0F, 0x0A, 0x01, 'y',  0x12, 0x0A, 0x0A, 0x08, 0x08,
    0x01, 0x12, 0x04, 0x0A, 0x02, 0x08, 0x01, 0x42, 0x02, 0x10, 0x0D};

/// Something that one of several processes does: this one's children, and theirs.
class OnceAmongProcesses {
 public:
  OnceAmongProcesses()
      : memory_(::mmap(nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    new (memory_) Flag(false);
  }
  OnceAmongProcesses(const OnceAmongProcesses&) = delete;
  OnceAmongProcesses& operator=(const OnceAmongProcesses&) = delete;
  ~OnceAmongProcesses() { ::munmap(memory_, sizeof(Flag)); }
  /// True for the first that asks.
  bool is_mine() const { return !static_cast<Flag*>(memory_)->exchange(true); }

 private:
  using Flag = std::atomic<bool>;
  static_assert(Flag::is_always_lock_free);
  void* memory_;
};

/// The options of the cases, and those of the model that stands for all of them.
struct WorkerOptions {
  Options cases, probe;
  OnceAmongProcesses warning;
};

/// The side that runs cases, in a child process.
class CaseWorker : public Worker {
 public:
  CaseWorker(const VerifyRequest& request, const WorkerOptions& options,
             const std::vector<VerifyCase>& cases)
      : request_(request), options_(options), cases_(cases) {
    try {
      // Warnings about single cases would drown the results, which hold the reasons anyway. What is said of a model that is
      // in order is about the request: a device that does not open.
      warns_ = options.warning.is_mine();
      environment_.emplace(options.cases, [this](int level, const std::string& message) {
        if (level >= 4) std::cerr << "backplane: error: " << message << std::endl;
        if (level == 3 && warns_) std::cerr << "backplane: warning: " << message << std::endl;
      });
      probe();
      warns_ = false;
    } catch (const Error& error) {
      throw Failure(exit_code_of_load(error.code()), error.what());
    }
  }

  std::string work(std::size_t index) override {
    const CaseResult result =
        run_case(*environment_, options_.cases, cases_[index], request_.rtol, request_.atol);
    return dump(result.json());
  }

 private:
  /// Opens a session on a model that is in order: what is wrong now is wrong with the request. That nobody takes
  /// the node, or that it lacks a dimension or value which the configuration names, says nothing about the cases.
  void probe() const {
    try {
      const Session session(*environment_, kProbe, sizeof kProbe, options_.probe);
    } catch (const Error& error) {
      const std::string message = error.what();
      const bool is_about_model =
          error.code() == BACKPLANE_UNSUPPORTED || error.code() == BACKPLANE_UNIMPLEMENTED ||
          message.find("dim") != std::string::npos || message.find("between:") != std::string::npos;
      if (!is_about_model) throw;
    }
  }

  const VerifyRequest& request_;
  const WorkerOptions& options_;
  const std::vector<VerifyCase>& cases_;
  bool warns_ = false;
  std::optional<Environment> environment_;
};

/// Refuses a file that is a part of a case.
void refuse_part_of_case(const fs::path& path, const char* option,
                         const std::vector<VerifyCase>& cases) {
  std::error_code error;
  const fs::path place = fs::canonical(path, error);
  if (error) return;  // nothing is there
  const fs::path folder = place.parent_path();
  const bool is_model = place.filename() == "model.onnx" || place.filename() == "data.json";
  const bool is_data = folder.filename().string().rfind("test_data_set_", 0) == 0;
  if (!is_model && !is_data) return;
  for (const VerifyCase& test : cases) {
    if (fs::equivalent(is_model ? folder : folder.parent_path(), test.folder, error))
      wrong_request(option, ": '", path.string(), "' is a part of the case '", test.key,
                    "'; give another file");
  }
}

std::vector<VerifyCase> all_cases(const std::vector<std::string>& folders) {
  std::vector<VerifyCase> cases;
  std::set<std::string> keys;
  std::set<fs::path> known;
  for (const std::string& folder : folders) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) wrong_request("'", folder, "' is not a folder");
    for (VerifyCase& test : find_cases(folder)) {
      const fs::path model = fs::absolute(test.folder / "model.onnx").lexically_normal();
      if (!known.insert(model).second) continue;                   // the same folder given twice
      for (int copy = 1; !keys.insert(test.key).second; ++copy) {  // one path below two folders
        test.key = key_of(test.folder.lexically_normal());
        if (copy > 1) test.key += text(" (", copy, ")");
      }
      cases.push_back(std::move(test));
    }
  }
  if (cases.empty()) {
    std::string list;
    for (const std::string& folder : folders) list += " '" + folder + "'";
    wrong_request("no case below", list,
                  ": a case is a folder with model.onnx and test_data_set_0/output_0.pb");
  }
  return cases;
}

std::size_t processors() { return std::max(1u, std::thread::hardware_concurrency()); }

/// Prints results as they come and counts them.
class Report {
 public:
  Report(const std::vector<VerifyCase>& cases, std::ostream& lines,
         const std::optional<std::string>& file)
      : cases_(cases), lines_(lines) {
    if (file) file_.emplace(*file);
  }

  void take(std::size_t index, const PoolAnswer& answer) {
    Json result;
    if (answer.death.empty()) {
      result = Json::parse(answer.text);
    } else {
      CaseResult crashed;
      crashed.status = "error";
      crashed.reason = "it " + answer.death;
      crashed.max_abs = crashed.max_rel = std::numeric_limits<double>::infinity();
      result = crashed.json();
    }
    const std::string status = result["status"].get<std::string>();
    (status == "pass" ? passed_ : status == "skipped" ? skipped_ : failed_) += 1;
    if (status != "pass") {
      progress_.clear();
      lines_ << status << ": " << one_line(cases_[index].key) << ": "
             << result["reason"].get<std::string>() << std::endl;
    }
    if (file_) {
      Json line{{"case", cases_[index].key}};
      line.update(result);
      file_->append(dump(line));
    }
    results_[cases_[index].key] = std::move(result);
    progress_.show(
        text(passed_ + failed_ + skipped_, " of ", cases_.size(), " cases, ", failed_, " failed"));
  }

  /// Sorted by case.
  Json json() const {
    Json object = Json::object();
    for (const auto& [key, result] : results_) object[key] = result;
    return object;
  }

  int close() {
    progress_.clear();
    lines_ << passed_ << " passed, " << failed_ << " failed, " << skipped_ << " skipped\n";
    lines_.flush();
    return failed_ == 0 ? kDone : kCheckFailed;
  }

 private:
  const std::vector<VerifyCase>& cases_;
  std::ostream& lines_;
  std::optional<GrowingFile> file_;
  Progress progress_;
  std::map<std::string, Json> results_;
  std::size_t passed_ = 0, failed_ = 0, skipped_ = 0;
};

int verify(const VerifyRequest& request) {
  const std::vector<VerifyCase> cases = all_cases(request.folders);
  PoolOptions pool;
  pool.jobs = std::min(request.jobs == 0 ? processors() : request.jobs, cases.size());
  pool.timeout = std::chrono::seconds(request.timeout);
  // Workers share the processors, unless somebody says how many threads each is to have.
  const std::string threads = std::to_string(std::max<std::size_t>(1, processors() / pool.jobs));
  const std::vector<std::pair<std::string, std::string>> defaults = {
      {"environment.threads", threads}};
  WorkerOptions options{
      request.selection.options(defaults), request.selection.options(defaults), {}};
  options.probe.set("unused_rules", "allow");  // they are for the cases' nodes
  const bool json_only = request.json && *request.json == "-";
  if (request.json && !json_only) {
    refuse_part_of_case(*request.json, "--json", cases);
    check_output_path(*request.json, "--json");
  }
  if (request.report) {
    refuse_part_of_case(*request.report, "--report", cases);
    KnownFiles known;
    if (request.json && !json_only) known.push_back({"the file of --json", *request.json});
    check_output_path(*request.report, "--report", known);
  }

  Report report(cases, json_only ? std::cerr : std::cout, request.report);
  run_in_workers(
      cases.size(), pool, [&]() -> Worker* { return new CaseWorker(request, options, cases); },
      [&](std::size_t index, const PoolAnswer& answer) { report.take(index, answer); });
  if (json_only) {
    std::cout << dump(report.json());
  } else if (request.json) {
    OutputFiles files;
    files.add(*request.json, dump(report.json(), 1));
    files.commit();
  }
  return report.close();
}

}  // namespace

void add_verify(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<VerifyRequest>();
  CLI::App& command =
      *program.add_subcommand("verify", "runs test cases as ONNX lays them out, and compares");
  command.add_option("DIR", request->folders, "folders below which cases are looked for")
      ->required();
  const CLI::Validator tolerance = real_number(0, std::numeric_limits<double>::max());
  command
      .add_option("--rtol", request->rtol,
                  "relative tolerance; default: the case's data.json, or 1e-3")
      ->check(tolerance);
  command
      .add_option("--atol", request->atol,
                  "absolute tolerance; default: the case's data.json, or 1e-7")
      ->check(tolerance);
  command
      .add_option("--jobs", request->jobs,
                  "cases run at the same time; default: as many as processors")
      ->transform(whole_number(1, 1024));
  command.add_option("--timeout", request->timeout, "seconds that a case may take")
      ->transform(whole_number(1, 1'000'000));
  command.add_option("--json", request->json,
                     "file for the results as JSON; '-' for standard output");
  command.add_option("--report", request->report,
                     "file that gets a line of JSON for each case as soon as it is done");
  request->selection.add_precision_to(command);
  request->selection.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return verify(*request); }; });
}

}  // namespace backplane::cli

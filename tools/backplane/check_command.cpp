// `backplane check`: the conformance suite of the plugin ABI.
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tools/backplane/check/runner.hpp"
#include "tools/backplane/commands.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/numbers.hpp"
#include "tools/backplane/output_file.hpp"
#include "tools/backplane/provider_rows.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/sudden_end.hpp"
#include "tools/backplane/terminal.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;
using check::Row;

/// A folder with a link to the plugin alone, and one with a copy; beside both, as beside the plugin's own, is what it brings
/// along (deps/). All of it goes away with this object.
class PluginFolder {
 public:
  explicit PluginFolder(const fs::path& file) {
    std::error_code error;
    const fs::path place = fs::temp_directory_path(error);
    if (error) {
      const char* const named = std::getenv("TMPDIR");
      wrong_request("TMPDIR: '", named != nullptr ? named : "/tmp",
                    "' is no folder for temporary files: ", error.message());
    }
    std::string pattern = (place / "backplane_check_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      run_failed("cannot make a folder below '", place.string(), "': ", std::strerror(errno));
    path_ = pattern;
    removals_.emplace_back(path_.string());
    try {
      fill(file);
    } catch (const fs::filesystem_error& failed) {
      remove();
      run_failed("cannot copy the plugin to '", path_.string(), "': ", failed.code().message(),
                 "; set TMPDIR to a folder with room for it");
    }
  }
  ~PluginFolder() { remove(); }
  PluginFolder(const PluginFolder&) = delete;
  PluginFolder& operator=(const PluginFolder&) = delete;
  std::string path() const { return (path_ / "plugins").string(); }
  std::string copy() const { return copy_.string(); }

 private:
  void fill(const fs::path& file) {
    for (const char* const name : {"plugins", "apart"}) fs::create_directory(added(name));
    fs::create_symlink(file, added("plugins" / file.filename()));
    copy_ = added("apart" / file.filename());
    fs::copy_file(file, copy_);
    const fs::path deps = file.parent_path().parent_path() / "deps";
    if (fs::is_directory(deps)) fs::create_directory_symlink(deps, added("deps"));
  }

  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  /// The path of what is about to be made in the folder.
  fs::path added(const fs::path& name) {
    removals_.emplace_back((path_ / name).string());
    return path_ / name;
  }

  fs::path path_, copy_;
  std::vector<Removal> removals_;
};

struct Counts {
  std::size_t passed = 0, failed = 0, skipped = 0;
};

Counts counts_of(const std::vector<Row>& rows) {
  Counts counts;
  for (const Row& row : rows)
    ++(row.status == "passed"   ? counts.passed
       : row.status == "failed" ? counts.failed
                                : counts.skipped);
  return counts;
}

/// A line for each case: what failed is told one by one, what was skipped once for each reason, what passed is counted.
void print_rows(const std::vector<Row>& rows) {
  std::map<std::string, std::size_t> passed;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> skipped;
  for (const Row& row : rows) {
    if (row.status == "passed") ++passed[row.name];
    if (row.status == "skipped") skipped[{row.subject, one_line(row.reason)}].push_back(row.name);
    if (row.status == "failed")
      std::cout << "failed " << row.id() << ": " << one_line(row.reason) << "\n";
  }
  for (const auto& [about, names] : skipped) {
    const std::string more =
        names.size() > 1 ? text(" and ", names.size() - 1, " more") : std::string();
    std::cout << "skipped " << names.front() << "/" << about.first << more << ": " << about.second
              << "\n";
  }
  for (const auto& [name, count] : passed) {
    std::cout << "passed " << name;
    if (count > 1) std::cout << " (" << count << ")";
    std::cout << "\n";
  }
  const Counts counts = counts_of(rows);
  std::cout << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
            << " skipped\n";
}

void print_json(const check::Request& request, const std::vector<Row>& rows) {
  const Counts counts = counts_of(rows);
  std::cout << dump({{"plugin", request.file},
                     {"device", request.device},
                     {"seed", request.seed},
                     {"passed", counts.passed},
                     {"failed", counts.failed},
                     {"skipped", counts.skipped},
                     {"cases", check::to_json(rows)}});
}

/// "2/4": the second of four, from 0 on.
std::optional<std::pair<std::size_t, std::size_t>> read_part(const std::string& text) {
  const auto number = [](std::string_view digits) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : 0;
  };
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::size_t part = number(std::string_view(text).substr(0, slash)),
                    parts = number(std::string_view(text).substr(slash + 1));
  if (part < 1 || part > parts) return std::nullopt;
  return std::pair(part - 1, parts);
}

struct CheckRequest : check::Request {
  Selection chosen;
  bool json = false;
  std::optional<std::string> report;
  std::string part_text = "1/1";
};

/// What is known while the suite runs: a line of the report for each verdict, and a running count on a terminal.
class Told {
 public:
  explicit Told(const std::optional<std::string>& file) {
    if (file) file_.emplace(*file);
  }

  void take(const std::vector<Row>& rows) {
    std::string lines;
    for (const Json& row : check::to_json(rows)) lines += dump(row);
    if (file_) file_->append(lines);
    const Counts more = counts_of(rows);
    counts_.passed += more.passed;
    counts_.failed += more.failed;
    counts_.skipped += more.skipped;
    progress_.show(text(counts_.passed, " passed, ", counts_.failed, " failed so far"));
  }

 private:
  std::optional<GrowingFile> file_;
  Counts counts_;
  Progress progress_;
};

int check_plugin(CheckRequest& request) {
  std::error_code error;
  const fs::path file = fs::canonical(request.file, error);
  if (error || !fs::is_regular_file(file, error))
    wrong_request("'", request.file, "' is no file: give the plugin's shared object");
  request.file = file.string();
  request.selection = &request.chosen;
  std::tie(request.part, request.parts) = *read_part(request.part_text);
  request.chosen.options();  // wrong ones are told now
  if (request.report) check_output_path(*request.report, "--report", {{"the plugin", file}});
  const PluginFolder folder(file);
  if (!request.chosen.named_providers().empty()) {
    Selection beside = request.chosen;
    beside.plugin_path.insert(beside.plugin_path.begin(), folder.path());
    require_known_providers(request.chosen, provider_rows(beside, request.timeout));
  }
  request.folder = folder.path();
  request.copy = folder.copy();
  std::vector<Row> rows;
  {
    Told told(request.report);
    rows = check::run_suite(request, [&](const std::vector<Row>& some) { told.take(some); });
  }
  if (request.json) {
    print_json(request, rows);
  } else {
    print_rows(rows);
  }
  return counts_of(rows).failed == 0 ? kDone : kCheckFailed;
}

}  // namespace

void add_check(CLI::App& program, Action& chosen) {
  auto request = std::make_shared<CheckRequest>();
  CLI::App& command = *program.add_subcommand(
      "check", "proves a provider or library of custom operators against the plugin ABI");
  command.add_option("plugin", request->file, "shared object of the plugin")->required();
  command.add_option("--device", request->device, "number of the provider's device (0)")
      ->transform(whole_number(0, 100'000));
  command.add_option("--only", request->only,
                     "cases whose name (CASE, or CASE/SUBJECT) fits a pattern with '*' and '?'");
  command.add_option("--except", request->except, "of those, cases that are left out: a pattern");
  command
      .add_option(
          "--part", request->part_text,
          "I/N: the I-th of N parts of the kernels, for programs beside each other; the first "
          "has all else, too")
      ->check([](const std::string& part) {
        return read_part(part) ? "" : "must be I/N with 1 <= I <= N";
      });
  command.add_option("--seed", request->seed, "of the generated shapes and elements (1)")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  command.add_option("--timeout", request->timeout, "seconds for one call of the plugin (60)")
      ->transform(whole_number(1, 1'000'000));
  command.add_flag("--json", request->json, "print one JSON value");
  command.add_option("--report", request->report,
                     "file that gets a line of JSON for each case as soon as it is known");
  request->chosen.add_to(command);
  command.callback([request, &chosen] { chosen = [request] { return check_plugin(*request); }; });
}

}  // namespace backplane::cli

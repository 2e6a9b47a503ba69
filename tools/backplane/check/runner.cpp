#include "tools/backplane/check/runner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fnmatch.h>
#include <functional>
#include <map>
#include <thread>

#include "tools/backplane/failure.hpp"
#include "tools/backplane/selection.hpp"
#include "tools/backplane/worker_pool.hpp"

namespace backplane::cli::check {
namespace {

/// Processes at a time: each has a device and threads of its own.
constexpr std::size_t kMostJobs = 4;
/// How a piece of work about a kernel may end.
constexpr std::array kEnds = {"kernels.exceptions", "kernels.crashes", "kernels.time"};

std::vector<Row> rows_of(const Json& json) {
  std::vector<Row> rows;
  for (const Json& row : json)
    rows.push_back({row.at("case"), row.at("subject"), row.at("status"), row.at("reason")});
  return rows;
}

Json to_json(const Piece& piece) {
  return {{"kind", piece.kind},
          {"provider", piece.provider},
          {"guest", piece.is_guest},
          {"kernel", piece.kernel},
          {"subject", piece.subject}};
}

Piece piece_of(const Json& json) {
  return {json.at("kind"), json.at("provider"), json.at("guest"), json.at("kernel"),
          json.at("subject")};
}

using CaseFunction = std::function<std::vector<Row>(Subject&, const Piece&)>;

const std::map<std::string, CaseFunction>& functions() {
  static const std::map<std::string, CaseFunction> kFunctions = {
      {"handshake", [](Subject& subject, const Piece&) { return check_handshake(subject); }},
      {"registry", check_registry},
      {"options", check_options},
      {"device.buffers", check_buffers},
      {"device.copies", check_copies},
      {"device.streams", check_streams},
      {"device.fences", check_fences},
      {"device.leaks", check_device_leaks},
      {"device.host_memory", check_host_memory},
      {"device.import_memory", check_import_memory},
      {"device.plan_capture", check_plan_capture},
      {"kernel", check_kernel},
      {"claims.convex", check_claims},
      {"sessions.open", check_session_opens},
      {"sessions", check_sessions}};
  return kFunctions;
}

/// Memory that children write their current step into, so that a death can be reported with it.
class Steps {
 public:
  explicit Steps(std::size_t count)
      : memory_(std::max<std::size_t>(count, 1) * sizeof(StepRecord)) {}
  StepRecord& at(std::size_t index) const {
    return static_cast<StepRecord*>(memory_.data())[index];
  }

 private:
  SharedMemory memory_;  // zeros are a record of no step
};

/// What a plugin has: the answer of the piece "survey".
Json survey(Subject& subject) {
  PluginFile& plugin = subject.plugin();
  Json found{{"providers", Json::array()}, {"pieces", Json::array()}};
  const auto add_kernels = [&](const Piece& about,
                               const std::vector<const bp_kernel_def*>& kernels) {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      Piece piece = about;
      piece.kind = "kernel";
      piece.kernel = i;
      piece.subject = kernels[i]->name == nullptr ? std::to_string(i) : kernels[i]->name;
      found["pieces"].push_back(to_json(piece));
    }
  };
  for (std::uint32_t i = 0; i < plugin->provider_count; ++i) {
    const std::string name = plugin->providers[i]->name;
    const auto devices = PluginFile::devices(plugin->providers[i]);
    found["providers"].push_back({{"name", name}, {"devices", devices.size()}, {"guest", false}});
    if (subject.request().device >= devices.size()) continue;
    const Piece about{"", name, false, 0, name};
    add_kernels(about, subject.kernels(about, *subject.open(about)));
  }
  const Piece guests{"", "cpu", true, 0, "cpu"};
  const auto guest_kernels = plugin.guest_kernels("cpu");
  if (!guest_kernels.empty()) {
    found["providers"].push_back({{"name", "cpu"}, {"devices", 1}, {"guest", true}});
    add_kernels(guests, guest_kernels);
  }
  return found;
}

/// Does pieces in a child; the answer is rows, or what the plugin has.
class SuiteWorker : public Worker {
 public:
  SuiteWorker(const Request& request, const std::vector<Piece>& pieces, const Steps& steps)
      : subject_(request), pieces_(pieces), steps_(steps) {}

  std::string work(std::size_t index) override {
    const Piece& piece = pieces_[index];
    keep_step_in(steps_.at(index));
    enter("starting");
    const auto fail = [&](const char* what, const std::exception& error) {
      return dump({{what, error.what()}});
    };
    try {
      if (piece.kind == "load") return load();
      if (piece.kind == "survey") return dump({{"survey", survey(subject_)}});
      return dump({{"rows", to_json(functions().at(piece.kind)(subject_, piece))}});
    } catch (const Escaped& error) {
      return fail("escaped", error);
    } catch (const std::exception& error) {
      return fail("broken", error);
    }
  }

 private:
  /// Whether the file is a plugin at all.
  std::string load() {
    try {
      PluginFile::open(subject_.request().file);
    } catch (const Broken& error) {
      return dump({{"unusable", error.what()}});
    }
    return dump({{"rows", Json::array()}});
  }

  Subject subject_;
  const std::vector<Piece>& pieces_;
  const Steps& steps_;
};

class Runner {
 public:
  Runner(const Request& request, const TakeRows& take) : request_(request), take_(take) {}

  std::vector<Row> run() {
    run_pieces({{"load", "", false, 0, ""}});
    run_pieces({{"handshake", "", false, 0, ""}});
    const Json found = take_survey();
    if (found.is_null()) return wanted();
    std::vector<Piece> first, devices, kernels, claims, opens, sessions;
    for (const Json& provider : found.at("providers")) {
      const std::string name = provider.at("name");
      const bool is_guest = provider.at("guest");
      const std::size_t count = provider.at("devices");
      const auto about = [&](const char* kind) { return Piece{kind, name, is_guest, 0, name}; };
      if (count == 0) {
        add({skipped("registry.devices", name, "this machine has no device for it")});
        continue;
      }
      if (!is_guest && request_.device >= count)
        wrong_request("--device ", request_.device, ": provider ", name, " has ", count,
                      count == 1 ? " device" : " devices", ", numbered from 0");
      first.push_back(about("registry"));
      opens.push_back(about("sessions.open"));
      sessions.push_back(about("sessions"));
      if (is_guest) continue;
      first.push_back(about("options"));
      claims.push_back(about("claims.convex"));
      for (const char* kind :
           {"device.buffers", "device.copies", "device.streams", "device.fences", "device.leaks",
            "device.host_memory", "device.import_memory", "device.plan_capture"})
        devices.push_back(about(kind));
    }
    const Json& pieces = found.at("pieces");
    for (std::size_t i = request_.part; i < pieces.size(); i += request_.parts)
      kernels.push_back(piece_of(pieces[i]));
    if (request_.part > 0) {
      for (std::vector<Piece>* const of_first : {&first, &devices, &claims, &opens, &sessions})
        of_first->clear();
    }
    run_pieces(first);
    run_pieces(devices);
    run_unless_failed("device.", kernels, "a case of this device failed");
    run_pieces(claims);
    run_unless_failed("", opens, "a case above failed");
    run_unless_failed("", sessions, "a case above failed, and shows here again");
    return wanted();
  }

 private:
  /// A piece's cases, for those that it does not get to.
  static std::vector<std::string> cases_of(const Piece& piece) {
    if (piece.kind == "kernel") return kernel_case_names();
    if (piece.kind == "sessions") return {"sessions.run", "sessions.threads", "sessions.rewrites"};
    if (piece.kind == "registry") return {"registry.entries"};
    if (piece.kind == "options") return {"options.read"};
    if (piece.kind == "load" || piece.kind == "handshake") return {"handshake.init"};
    return {piece.kind};
  }

  static bool fits(const std::string& pattern, const std::string& id) {
    return ::fnmatch(pattern.c_str(), id.c_str(), 0) == 0 ||
           ::fnmatch((pattern + "/*").c_str(), id.c_str(), 0) == 0;
  }

  bool is_wanted(const std::string& id) const {
    return fits(request_.only, id) && (request_.except.empty() || !fits(request_.except, id));
  }

  /// Some row of the piece could be wanted.
  bool is_wanted(const Piece& piece) const {
    if (piece.kind == "load" || piece.kind == "handshake" || piece.kind == "survey" ||
        (request_.only == "*" && request_.except.empty()))
      return true;
    std::vector<std::string> names = cases_of(piece);
    if (piece.kind == "registry") names.insert(names.end(), {"registry.devices", "registry.open"});
    if (piece.kind == "options") names.emplace_back("options.declared");
    if (piece.kind == "kernel") names.insert(names.end(), kEnds.begin(), kEnds.end());
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return is_wanted(Row{name, piece.subject, "", ""}.id());
    });
  }

  Json take_survey() {
    const std::vector<Piece> pieces{{"survey", "", false, 0, ""}};
    Json found;
    std::string problem;
    work_on(pieces, [&](std::size_t, const Piece&, const Ended& ended) {
      if (ended.answer.contains("survey")) found = ended.answer["survey"];
      problem = ended.problem;
    });
    if (found.is_null() && !has_failed(""))
      add({failed("registry.entries", "", "what the plugin has could not be asked: " + problem)});
    return found;
  }

  bool has_failed(const std::string& prefix) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) {
      return row.status == "failed" && row.name.compare(0, prefix.size(), prefix) == 0;
    });
  }

  void run_unless_failed(const std::string& prefix, const std::vector<Piece>& pieces,
                         const std::string& reason) {
    if (!has_failed(prefix)) return run_pieces(pieces);
    for (const Piece& piece : pieces) {
      std::vector<Row> rows;
      for (const std::string& name : cases_of(piece))
        rows.push_back(skipped(name, piece.subject, reason));
      add(std::move(rows));
    }
  }

  void run_pieces(const std::vector<Piece>& pieces) {
    // They end in any order, and are told so; the report has one.
    std::map<std::size_t, std::vector<Row>> made;
    std::string unusable;
    work_on(pieces, [&](std::size_t index, const Piece& piece, const Ended& ended) {
      if (ended.answer.contains("unusable")) {
        unusable = ended.answer["unusable"];
        return;
      }
      made[index] = judged(piece, ended);
      tell(made[index]);
    });
    if (!unusable.empty()) wrong_request("'", request_.file, "' is no plugin: ", unusable);
    for (auto& [index, rows] : made) std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
  }

  void tell(const std::vector<Row>& rows) const {
    std::vector<Row> told;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(told),
                 [&](const Row& row) { return is_wanted(row.id()); });
    if (!told.empty()) take_(told);
  }

  void add(std::vector<Row> rows) {
    tell(rows);
    std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
  }

  /// What became of a piece.
  struct Ended {
    Json answer;        ///< an object, empty when there is none
    std::string death;  ///< the case that judges it, or ""
    std::string problem;
  };

  static std::vector<Row> judged(const Piece& piece, const Ended& ended) {
    if (!ended.answer.contains("rows")) {
      const bool has_escaped = ended.answer.contains("escaped");
      return judged_end(piece, has_escaped ? "kernels.exceptions" : ended.death, ended.problem);
    }
    std::vector<Row> rows = rows_of(ended.answer["rows"]);
    if (piece.kind != "kernel") return rows;
    // A kernel that was not tried has proven nothing of how it ends.
    const bool is_tried = std::any_of(rows.begin(), rows.end(),
                                      [](const Row& row) { return row.status != "skipped"; });
    const std::string reason = is_tried ? "" : rows.front().reason;
    for (const char* name : kEnds)
      rows.push_back(is_tried ? passed(name, piece.subject) : skipped(name, piece.subject, reason));
    return rows;
  }

  /// Kernels have cases for how a piece of work ends; for others it is a failure of theirs.
  static std::vector<Row> judged_end(const Piece& piece, const std::string& failed_name,
                                     const std::string& problem) {
    std::vector<Row> rows;
    if (piece.kind != "kernel") {
      const std::vector<std::string> names = cases_of(piece);
      rows.push_back(failed(names.front(), piece.subject, problem));
      for (std::size_t i = 1; i < names.size(); ++i)
        rows.push_back(skipped(names[i], piece.subject, names.front() + " failed"));
      return rows;
    }
    for (const std::string& name : kernel_case_names())
      rows.push_back(skipped(name, piece.subject, "the kernel did not get so far"));
    for (const char* name : kEnds)
      rows.push_back(failed_name == name ? failed(name, piece.subject, problem)
                                         : passed(name, piece.subject));
    if (failed_name.empty()) rows.push_back(failed("kernels.calls", piece.subject, problem));
    return rows;
  }

  /// Does those that are wanted; `on_end(number, piece, what became of it)` in the order in which they end.
  void work_on(const std::vector<Piece>& all,
               const std::function<void(std::size_t, const Piece&, const Ended&)>& on_end) const {
    std::vector<Piece> pieces;
    std::copy_if(all.begin(), all.end(), std::back_inserter(pieces),
                 [&](const Piece& piece) { return is_wanted(piece); });
    const Steps steps(pieces.size());
    PoolOptions options;
    options.jobs = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostJobs);
    options.timeout = std::chrono::seconds(request_.timeout);
    // What is slow because a device compiles at each call is not late.
    options.progress = [&](std::size_t index) { return steps.at(index).count.load(); };
    run_in_workers(
        pieces.size(), options, [&] { return new SuiteWorker(request_, pieces, steps); },
        [&](std::size_t index, const PoolAnswer& answer) {
          on_end(index, pieces[index], ended(answer, steps.at(index).text));
        });
  }

  static Ended ended(const PoolAnswer& answer, const char* step) {
    Ended made{Json::object(), "", ""};
    if (!answer.death.empty()) {
      made.problem = text("the plugin ", answer.death, " during ", step);
      const bool is_late = answer.death.rfind("gave no result", 0) == 0;
      made.death = is_late ? "kernels.time" : "kernels.crashes";
      return made;
    }
    made.answer = Json::parse(answer.text);
    for (const char* what : {"escaped", "broken"}) {
      if (made.answer.contains(what)) made.problem = made.answer[what];
    }
    return made;
  }

  std::vector<Row> wanted() const {
    std::vector<Row> rows;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(rows),
                 [&](const Row& row) { return is_wanted(row.id()); });
    if (rows.empty())
      wrong_request("--only '", request_.only, "'",
                    request_.except.empty() ? "" : " --except '" + request_.except + "'",
                    " names no case of this plugin");
    return rows;
  }

  const Request& request_;
  const TakeRows& take_;
  std::vector<Row> rows_;
};

}  // namespace

Json to_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"case", row.name},
                    {"subject", row.subject},
                    {"status", row.status},
                    {"reason", row.reason}});
  }
  return list;
}

Options options_of(const Request& request) { return request.selection->options(); }
const std::vector<std::string>& settings_of(const Request& request) {
  return request.selection->settings;
}

std::vector<Row> run_suite(const Request& request, const TakeRows& take) {
  return Runner(request, take).run();
}

}  // namespace backplane::cli::check

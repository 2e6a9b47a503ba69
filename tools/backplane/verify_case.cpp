#include "tools/backplane/verify_case.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "tools/backplane/compare.hpp"
#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/input_file.hpp"
#include "tools/backplane/value_file.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataSet = "test_data_set_";

bool is_data_set(const std::string& name) { return name.rfind(kDataSet, 0) == 0; }

/// "test_data_set_10" comes after "test_data_set_9".
bool has_lower_number(const fs::path& a, const fs::path& b) {
  const std::string x = a.filename().string();
  const std::string y = b.filename().string();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

/// What the search for cases sees of a folder.
struct Listing {
  bool has_model = false;
  std::vector<fs::path> data_sets;
  std::vector<fs::directory_entry> folders;  ///< other ones, links to such, too
  std::string broken;                        ///< why a model or data set is none; "" for nothing
  std::string hidden;  ///< why the folder, or something in it, cannot be looked at; "" for nothing
};

/// What an entry is, where links lead.
fs::file_type type_of(const fs::directory_entry& entry, std::error_code& failure) {
  if (entry.is_symlink(failure)) return entry.status(failure).type();
  if (entry.is_directory(failure)) return fs::file_type::directory;
  return entry.is_regular_file(failure) ? fs::file_type::regular : fs::file_type::unknown;
}

/// Reads the whole folder: it is closed before the next one is opened.
Listing list(const fs::path& folder) {
  Listing listing;
  const auto note = [](std::string& where, const fs::path& path, const std::string& why) {
    if (where.empty()) where = text("'", path.string(), "' ", why);
  };
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_model = name == "model.onnx", is_set = is_data_set(name);
    std::error_code failure;
    const fs::file_type type = type_of(*at, failure);
    const bool leads_nowhere =
        type == fs::file_type::not_found || failure == std::errc::too_many_symbolic_link_levels;
    if (leads_nowhere) {  // of another name it may be anything: editors leave such links
      if (is_model || is_set) note(listing.broken, at->path(), "is a link that leads nowhere");
    } else if (failure) {
      note(listing.hidden, at->path(), "cannot be read: " + failure.message());
    }
    const bool is_broken = leads_nowhere || failure;
    if (is_model) listing.has_model = is_broken || type == fs::file_type::regular;
    if (is_set && (is_broken || type == fs::file_type::directory))
      listing.data_sets.push_back(at->path());
    if (!is_set && type == fs::file_type::directory) listing.folders.push_back(*at);
  }
  if (error) note(listing.hidden, folder, "cannot be read: " + error.message());
  std::sort(listing.data_sets.begin(), listing.data_sets.end(), has_lower_number);
  return listing;
}

/// A link that leads nowhere is there, too: reading it says so.
bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

Tolerance tolerance_of(const VerifyCase& test, std::optional<double> rtol,
                       std::optional<double> atol) {
  Tolerance tolerance;
  const fs::path path = test.folder / "data.json";
  if (is_there(path)) {
    InputFile file(path);
    try {
      const Json data = Json::parse(file.read_all());
      tolerance.rtol = data.value("rtol", tolerance.rtol);
      tolerance.atol = data.value("atol", tolerance.atol);
    } catch (const Json::exception&) {
      wrong_request(file.name(), " is not JSON with the numbers rtol and atol");
    }
    if (!(tolerance.rtol >= 0 && tolerance.atol >= 0))
      wrong_request(file.name(), ": rtol and atol are numbers from 0 on");
  }
  tolerance.rtol = rtol.value_or(tolerance.rtol);
  tolerance.atol = atol.value_or(tolerance.atol);
  return tolerance;
}

/// What the session says of a model, as far as a comparison needs it.
struct ModelFacts {
  std::vector<std::string> graph_inputs;  ///< as the file lists them, initializers included
  std::vector<ValueInfo> known;           ///< inputs and overridable initializers
  std::vector<ValueInfo> outputs;
  Json nodes;

  explicit ModelFacts(const Session& session)
      : known(session.inputs()), outputs(session.outputs()) {
    const Json explanation = Json::parse(session.explain());
    nodes = explanation.value("nodes", Json::array());
    graph_inputs = explanation.at("graph_inputs").get<std::vector<std::string>>();
    for (ValueInfo& info : session.overridable_initializers()) known.push_back(std::move(info));
  }

  std::string type_of(const std::string& name) const {
    const auto at = std::find_if(known.begin(), known.end(),
                                 [&](const ValueInfo& i) { return i.name == name; });
    return at == known.end() ? "tensor(float)" : at->type;
  }
};

/// A file that belongs to nothing of the model would look like a comparison that was made.
void check_count(const fs::path& set, const char* what, std::size_t count) {
  const std::string prefix = text(what, "_"), suffix = ".pb";
  for (const fs::directory_entry& entry : fs::directory_iterator(set)) {
    const std::string name = entry.path().filename().string();
    if (name.size() <= prefix.size() + suffix.size() || name.rfind(prefix, 0) != 0 ||
        entry.path().extension() != suffix)
      continue;
    const std::string number =
        name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    const bool is_number = number.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && number.size() > 1 && number[0] == '0')  // "00" is not read, and looks like "0"
      wrong_request(entry.path().string(), " is not read: ", what,
                    "s are numbered without zeros in front");
    if (is_number && (number.size() > 9 || std::stoul(number) >= count))
      wrong_request(entry.path().string(), " belongs to nothing: the model has ", count, ' ', what,
                    count == 1 ? "" : "s");
  }
}

using OwnedFeeds = std::vector<std::pair<std::string, Value>>;

/// The feeds of a data set. K of input_K.pb counts the graph inputs as the file lists them.
OwnedFeeds read_feeds(const fs::path& set, const ModelFacts& facts) {
  OwnedFeeds feeds;
  for (std::size_t k = 0; k < facts.graph_inputs.size(); ++k) {
    const fs::path path = set / text("input_", k, ".pb");
    const std::string& name = facts.graph_inputs[k];
    const std::string type = facts.type_of(name);
    if (is_there(path))
      feeds.emplace_back(name, read_value(path, type));
    else if (is_optional(type))
      feeds.emplace_back(name, empty_optional());
  }
  check_count(set, "input", facts.graph_inputs.size());
  return feeds;
}

/// A fed scalar that is true: how models are told to train.
bool is_fed_true(const std::string& name, const OwnedFeeds& feeds) {
  return std::any_of(feeds.begin(), feeds.end(), [&](const auto& feed) {
    const Value& value = feed.second;
    return feed.first == name && value.element_type() == ElementType::Bool && value.size() == 1 &&
           element_at(ElementType::Bool, value.bytes(), 0) != 0;
  });
}

/// The operator of the model whose results are random by definition; "" when there is none.
std::string random_operator(const ModelFacts& facts, const OwnedFeeds& feeds) {
  static const std::vector<std::string> kRandom = {"Bernoulli",     "Multinomial",
                                                   "RandomNormal",  "RandomNormalLike",
                                                   "RandomUniform", "RandomUniformLike"};
  for (const Json& node : facts.nodes) {
    std::string op = node.value("op", "");
    if (!node.value("domain", "").empty() && node.value("domain", "") != "ai.onnx") continue;
    if (std::find(kRandom.begin(), kRandom.end(), op) != kRandom.end()) return op;
    if (op != "Dropout") continue;
    if (node.value("random", false)) return op;
    const Json inputs = node.value("inputs", Json::array());
    if (inputs.size() > 2 && inputs[2].is_string() &&
        is_fed_true(inputs[2].get<std::string>(), feeds))
      return op;
  }
  return "";
}

/// Runs one data set and adds what it came to; false when there was nothing to compare with.
bool run_data_set(const Session& session, const ModelFacts& facts, const fs::path& set,
                  const Tolerance& tolerance, CaseResult& result) {
  const OwnedFeeds owned = read_feeds(set, facts);
  Feeds feeds;
  for (const auto& [name, value] : owned) feeds.emplace_back(name, value);
  const std::string random = random_operator(facts, owned);
  check_count(set, "output", facts.outputs.size());
  const std::vector<Value> got = session.run(feeds);
  bool compared = false;
  for (std::size_t k = 0; k < facts.outputs.size(); ++k) {
    const fs::path path = set / text("output_", k, ".pb");
    if (!is_there(path)) continue;
    compared = true;
    const Value want = read_value(path, facts.outputs[k].type);
    const Comparison one = compare(got.at(k), want, tolerance, random.empty());
    result.max_abs = std::max(result.max_abs, one.max_abs);
    result.max_rel = std::max(result.max_rel, one.max_rel);
    if (!one.difference.empty() && result.status != "wrong") {
      result.status = "wrong";
      result.reason =
          text(set.filename().string(), ": output '", facts.outputs[k].name, "': ", one.difference);
    }
  }
  if (!random.empty() && result.status == "pass") {
    result.reason = random + " is random by definition: type and shape were compared";
  }
  return compared;
}

void run_data_sets(const Session& session, const VerifyCase& test, const Tolerance& tolerance,
                   CaseResult& result) {
  const ModelFacts facts(session);
  bool compared = false;
  result.status = "pass";
  for (const fs::path& set : test.data_sets) {
    compared = run_data_set(session, facts, set, tolerance, result) || compared;
  }
  if (!compared) {
    result.status = "skipped";
    result.reason = "it holds no output_K.pb to compare with";
  }
  const Json statistics = Json::parse(session.statistics());
  result.nodes_on = statistics.value("nodes_on", Json::object());
  result.copies = statistics.value("copies", std::uint64_t{0});
}

bool is_refusal(int code) {
  return code == BACKPLANE_UNSUPPORTED || code == BACKPLANE_UNIMPLEMENTED ||
         code == BACKPLANE_INCOMPATIBLE;
}

}  // namespace

std::string key_of(const fs::path& path) {
  std::string key = path.generic_string();
  try {
    Json(key).dump();
    return key;
  } catch (const Json::exception&) {
    std::string escaped;
    for (const char c : key) {
      constexpr const char* kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        escaped += c;
      } else {
        escaped += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
      }
    }
    return escaped;
  }
}

std::vector<VerifyCase> find_cases(const fs::path& root) {
  std::vector<VerifyCase> cases;
  struct Place {
    fs::path folder, key;
    bool is_link;
  };
  std::vector<Place> places = {{root, ".", false}};
  while (!places.empty()) {
    const Place place = std::move(places.back());
    places.pop_back();
    Listing listing = list(place.folder);
    const bool is_case = listing.has_model && !listing.data_sets.empty();
    if (is_case || !listing.hidden.empty()) {
      cases.push_back({key_of(place.key), place.folder, std::move(listing.data_sets),
                       is_case && !listing.broken.empty() ? listing.broken : listing.hidden});
    }
    if (place.is_link) continue;
    for (const fs::directory_entry& entry : listing.folders) {
      const fs::path name = entry.path().filename();
      places.push_back(
          {entry.path(), place.key == "." ? name : place.key / name, entry.is_symlink()});
    }
  }
  std::sort(cases.begin(), cases.end(),
            [](const VerifyCase& a, const VerifyCase& b) { return a.key < b.key; });
  return cases;
}

Json CaseResult::json() const {
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  return {{"status", status},           {"reason", reason},     {"max_abs", number(max_abs)},
          {"max_rel", number(max_rel)}, {"nodes_on", nodes_on}, {"copies", copies}};
}

CaseResult run_case(const Environment& environment, const Options& options, const VerifyCase& test,
                    std::optional<double> rtol, std::optional<double> atol) {
  CaseResult result;
  const auto fail = [&](const char* status, const std::string& reason) {
    result.status = status;
    result.reason = one_line(reason);
    result.max_abs = result.max_rel = INFINITY;
  };
  if (!test.problem.empty()) {
    fail("error", test.problem);
    return result;
  }
  try {
    const Tolerance tolerance = tolerance_of(test, rtol, atol);
    const Session session(environment, (test.folder / "model.onnx").string(), options);
    run_data_sets(session, test, tolerance, result);
  } catch (const Error& error) {
    fail(is_refusal(error.code()) ? "refused" : "error", error.what());
  } catch (const std::exception& error) {
    fail("error", error.what());
  }
  return result;
}

}  // namespace backplane::cli

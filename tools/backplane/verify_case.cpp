#include "tools/backplane/verify_case.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "tools/backplane/compare.hpp"
#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/input_file.hpp"
#include "tools/backplane/value_file.hpp"

namespace backplane::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataSet = "test_data_set_";

bool is_data_set(const fs::directory_entry& entry) {
  return entry.is_directory() && entry.path().filename().string().rfind(kDataSet, 0) == 0;
}

/// Data sets of a case, by number: "test_data_set_10" comes after "test_data_set_9".
std::vector<fs::path> data_sets(const fs::path& folder) {
  std::vector<fs::path> sets;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_data_set(entry)) sets.push_back(entry.path());
  }
  std::sort(sets.begin(), sets.end(), [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename().string();
    const std::string y = b.filename().string();
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  return sets;
}

Tolerance tolerance_of(const VerifyCase& test, std::optional<double> rtol,
                       std::optional<double> atol) {
  Tolerance tolerance;
  const fs::path path = test.folder / "data.json";
  if (fs::exists(path)) {
    InputFile file(path);
    try {
      const Json data = Json::parse(file.read_all());
      tolerance.rtol = data.value("rtol", tolerance.rtol);
      tolerance.atol = data.value("atol", tolerance.atol);
    } catch (const Json::exception&) {
      wrong_request(file.name(), " is not JSON with the numbers rtol and atol");
    }
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
    if (fs::exists(path))
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
    if (!fs::exists(path)) continue;
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
  for (const fs::path& set : data_sets(test.folder)) {
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

std::vector<VerifyCase> find_cases(const fs::path& root) {
  std::vector<VerifyCase> cases;
  std::error_code error;
  const auto visit = [&](const fs::path& folder) {
    if (!fs::is_regular_file(folder / "model.onnx", error) || data_sets(folder).empty()) return;
    cases.push_back({fs::relative(folder, root, error).generic_string(), folder});
  };
  visit(root);
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(root, options, error), end; at != end;
       at.increment(error)) {
    if (error) break;
    if (!at->is_directory(error)) continue;
    if (is_data_set(*at)) {
      at.disable_recursion_pending();
    } else {
      visit(at->path());
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

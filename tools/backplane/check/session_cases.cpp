// The plugin in the runtime itself, by the host interface that every program uses.
#include <cstddef>

#include "tools/backplane/callers.hpp"
#include "tools/backplane/check/recipe.hpp"
#include "tools/backplane/check/reference.hpp"
#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/json.hpp"

namespace backplane::cli::check {
namespace {

/// The nodes that sessions are tried with.
constexpr std::size_t kMostNodes = 40;
constexpr std::size_t kThreads = 3;
constexpr int kRunsEach = 4;

class SessionCheck {
 public:
  SessionCheck(Subject& subject, const Piece& piece) : subject_(subject), piece_(piece) {
    Options options = options_of(subject.request());
    options.set("environment.threads", "2");
    options.set("environment.plugin_path", subject.request().folder);
    environment_ = std::make_unique<Environment>(options, [](int, const std::string&) {});
    session_options().set("optimization", "none");  // throws here what it throws for every session
  }

  std::vector<Row> rows() {
    find_nodes();
    std::vector<Row> rows;
    if (!first_mistake_.empty()) {
      rows.push_back(failed("sessions.run", piece_.subject, first_mistake_));
      for (const char* name : {"sessions.threads", "sessions.rewrites"})
        rows.push_back(skipped(name, piece_.subject, "sessions.run failed"));
      return rows;
    }
    if (taken_.empty()) {
      for (const char* name : {"sessions.run", "sessions.threads", "sessions.rewrites"})
        rows.push_back(skipped(name, piece_.subject,
                               "no node of the suite runs wholly on it: " + first_refusal_));
      return rows;
    }
    return {runs(), threads(), rewrites()};
  }

  /// A session on the device alone, without work for it: its output is a constant.
  Row opens() {
    Graph graph(*environment_, session_options());
    graph.add_initializer("x", to_value(make_tensor(BP_FLOAT, {1})));
    graph.set_outputs({"x"});
    const Session session(*environment_, graph, session_options());
    return passed("sessions.open", piece_.subject);
  }

 private:
  Options session_options() const {
    Options options = options_of(subject_.request());
    const std::size_t device = piece_.is_guest ? 0 : subject_.request().device;
    const std::string index = device == 0 ? "" : ":" + std::to_string(device);
    options.set("providers", piece_.provider + index).set("fallback", "forbid");
    if (piece_.is_guest) options.RegisterCustomOpsLibrary(subject_.request().file);
    return options;
  }

  std::vector<Tensor> run(const NodeCase& node, const Options& options) const {
    Graph graph(*environment_, options);
    add_to(graph, node);
    const Session session(*environment_, graph, options);
    return run(session, node);
  }
  static std::vector<Tensor> run(const Session& session, const NodeCase& node) {
    const auto feeds = feeds_of(node);
    std::vector<Tensor> outputs;
    for (const Value& value : session.run(views_of(feeds))) outputs.push_back(from_value(value));
    return outputs;
  }

  /// One node of each kernel that a session takes with nobody else's help. A kernel of which it takes none, for a reason
  /// that is none to refuse a node, is a mistake.
  void find_nodes() {
    const auto device = subject_.open(piece_);
    for (const bp_kernel_def* def : subject_.kernels(piece_, *device)) {
      if ((def->flags & BP_KERNEL_NOT_DETERMINISTIC) != 0 || taken_.size() >= kMostNodes) continue;
      const KernelCases cases =
          cases_of(def, subject_.plugin().operator->(), subject_.request().seed);
      std::size_t tried = 0;
      bool is_taken = false;
      std::string mistake;
      for (const NodeCase& node : cases.nodes) {
        if (is_taken || ++tried > 4) break;
        try {
          results_.push_back(run(node, session_options()));
          taken_.push_back(node);
          is_taken = true;
        } catch (const Error& error) {
          if (first_refusal_.empty()) first_refusal_ = error.what();
          // A model that is refused for what it is never came to the device; prepare's own mistakes are the kernels' cases.
          const bool is_of_model = error.code() == BACKPLANE_INVALID_ARGUMENT;
          if (mistake.empty() && !is_of_model && !excuses(cases, error.code()))
            mistake = node.text() + ": " + error.what();
        }
      }
      if (!is_taken && first_mistake_.empty()) first_mistake_ = mistake;
    }
  }

  static std::string differs(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      const std::string wrong = difference(got[i], want[i]);
      if (!wrong.empty()) return text("output ", i, ": ", wrong);
    }
    return "";
  }

  /// In the runtime each node computes what it should.
  Row runs() {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      std::optional<std::vector<Tensor>> want;
      if (!piece_.is_guest && piece_.provider != "cpu") want = cpu_.compute(taken_[i]);
      if (!want) want = compute_in_double(taken_[i]);
      if (!want) continue;
      const std::string wrong = differs(results_[i], *want);
      if (!wrong.empty())
        return failed("sessions.run", piece_.subject, taken_[i].text() + ", " + wrong);
    }
    return passed("sessions.run", piece_.subject);
  }

  /// Several threads on one session.
  Row threads() {
    for (std::size_t i = 0; i < taken_.size(); i += 1 + taken_.size() / 8) {
      const Options options = session_options();
      Graph graph(*environment_, options);
      add_to(graph, taken_[i]);
      const Session session(*environment_, graph, options);
      std::vector<std::string> wrong(kThreads);
      in_parallel(wrong.size(), [&](std::size_t caller) {
        std::string& mine = wrong[caller];
        try {
          for (int round = 0; mine.empty() && round < kRunsEach; ++round)
            mine = differs(run(session, taken_[i]), results_[i]);
        } catch (const Error& error) {
          mine = error.what();
        }
      });
      for (const std::string& text : wrong) {
        if (!text.empty())
          return failed("sessions.threads", piece_.subject, taken_[i].text() + ", " + text);
      }
    }
    return passed("sessions.threads", piece_.subject);
  }

  /// What the provider rewrites computes what it did before: chains of its own nodes, optimized and not.
  Row rewrites() {
    const std::string name = "sessions.rewrites";
    if (piece_.is_guest) return skipped(name, piece_.subject, "guests rewrite nothing");
    if (const std::string remark = thrown_by_rewrite(taken_.front()); !remark.empty())
      return failed(name, piece_.subject, remark);
    int compared = 0;
    for (const NodeCase& first : taken_) {
      for (const char* second : {"Relu", "Add", "Sigmoid"}) {
        const NodeCase* next = node_of(second, first.outputs[0]);
        if (next == nullptr || first.outputs.size() != 1) continue;
        try {
          const auto plain = run_chain(first, *next, "none");
          const std::string wrong = differs(run_chain(first, *next, "all"), plain);
          ++compared;
          if (!wrong.empty())
            return failed(name, piece_.subject,
                          first.text() + " and " + second + ", optimized: " + wrong);
        } catch (
            const Error&) {  // a pair that does not fit, or a node that is refused between others
        }
      }
    }
    if (compared == 0)
      return skipped(name, piece_.subject, "no two nodes of the suite make a chain on it");
    return passed(name, piece_.subject);
  }

  /// What a session says where the provider's rewrite throws: it goes on, with the nodes as they were.
  std::string thrown_by_rewrite(const NodeCase& node) const {
    Options options = session_options();
    options.set("optimization", "all");
    Graph graph(*environment_, options);
    add_to(graph, node);
    const Session session(*environment_, graph, options);
    const Json explained = Json::parse(session.explain());
    for (const Json& remark : explained.value("remarks", Json::array())) {
      std::string said = remark.get<std::string>();
      if (said.find("across the plugin interface") != std::string::npos) return said;
    }
    return "";
  }

  const NodeCase* node_of(const std::string& op_type, bp_dtype dtype) const {
    for (const NodeCase& node : taken_) {
      if (node.op_type == op_type && node.inputs.at(0).tensor.dtype == dtype) return &node;
    }
    return nullptr;
  }

  /// The second operator over the first one's output, as all of its inputs.
  std::vector<Tensor> run_chain(const NodeCase& first, const NodeCase& second,
                                const char* optimization) const {
    Options options = session_options();
    options.set("optimization", optimization);
    Graph graph(*environment_, options);
    add_to(graph, first);
    graph.set_opset("", std::max(first.since_version, second.since_version));
    graph.add_node(second.op_type, std::vector<std::string>(second.inputs.size(), "out_0"),
                   {"end"});
    graph.set_outputs({"end"});
    const Session session(*environment_, graph, options);
    return run(session, first);
  }

  Subject& subject_;
  const Piece& piece_;
  std::unique_ptr<Environment> environment_;
  CpuReference cpu_;
  std::vector<NodeCase> taken_;
  std::vector<std::vector<Tensor>> results_;
  std::string first_refusal_;
  std::string first_mistake_;  ///< the first one that is not as refusals should be
};

}  // namespace

std::vector<Row> check_session_opens(Subject& subject, const Piece& piece) {
  try {
    return {SessionCheck(subject, piece).opens()};
  } catch (const Error& error) {
    return {failed("sessions.open", piece.subject, error.what())};
  }
}

std::vector<Row> check_sessions(Subject& subject, const Piece& piece) {
  try {
    return SessionCheck(subject, piece).rows();
  } catch (const Error& error) {
    return {failed("sessions.run", piece.subject, error.what())};
  }
}

}  // namespace backplane::cli::check

// One kernel of a registry, over every node that its registration lets one expect.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tools/backplane/check/bare_kernel.hpp"
#include "tools/backplane/check/recipe.hpp"
#include "tools/backplane/check/reference.hpp"
#include "tools/backplane/check/suite.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli::check {
namespace {

constexpr std::uint8_t kPoison = 0xA5, kOtherPoison = 0x5A;
constexpr int kPairs = 8;       ///< of shapes that share a kernel
constexpr int kRounds = 12;     ///< of a kernel's life, between two looks at the heap
constexpr int kWindows = 12;    ///< of rounds, in some of which the heap stops growing
constexpr int kOddWindows = 4;  ///< in which a leaking heap need not grow: others free blocks, too
constexpr int kLongWindow = 4;  ///< times as many rounds in a second look, at what seems to leak

class KernelCheck {
 public:
  KernelCheck(Subject& subject, const Piece& piece)
      : piece_(piece),
        plugin_(subject.plugin()),
        device_(subject.open(piece)),
        kernels_(subject.kernels(piece, *device_)),
        def_(kernels_.at(piece.kernel)),
        has_cpu_reference_(!piece.is_guest && piece.provider != "cpu"),
        is_deterministic_((def_->flags & BP_KERNEL_NOT_DETERMINISTIC) == 0),
        cases_(cases_of(def_, plugin_.operator->(), subject.request().seed)) {}

  std::vector<Row> rows() {
    if (cases_.nodes.empty()) return all_skipped(cases_.reason);
    std::vector<const NodeCase*> taken;
    for (const NodeCase& node : cases_.nodes) {
      if (check_node(node)) taken.push_back(&node);
    }
    if (!taken.empty() && findings_.empty()) {
      check_pairs(taken);
      check_faults(*taken.front());
      check_leaks(*taken.front());
    }
    const std::size_t tried = cases_.nodes.size();
    if (taken.empty() && findings_.empty() && !first_mistake_.empty())
      findings_.add("kernels.refusals",
                    text("none of ", tried, " right nodes is taken, and not as unsupported; ",
                         first_mistake_));
    if (taken.empty() && !first_failure_.empty() && !excuses(cases_, BP_FAILED))
      findings_.add("kernels.results", "no compute succeeds; " + first_failure_);
    return verdicts(taken.size(), tried);
  }

 private:
  std::vector<Row> all_skipped(const std::string& reason) const {
    std::vector<Row> rows;
    for (const std::string& name : kernel_case_names())
      rows.push_back(skipped(name, piece_.subject, reason));
    return rows;
  }

  std::vector<Row> verdicts(std::size_t taken, std::size_t tried) const {
    std::vector<Row> rows;
    for (const std::string& name : kernel_case_names()) {
      const auto found = findings_.all().find(name);
      if (found != findings_.all().end()) {
        rows.push_back(failed(name, piece_.subject, found->second));
      } else if (taken == 0 && name != "kernels.refusals") {
        rows.push_back(skipped(name, piece_.subject,
                               text("it took none of ", tried, " nodes: ",
                                    first_refusal_.empty() ? first_failure_ : first_refusal_)));
      } else if (name == "kernels.results" && compared_ == 0) {
        rows.push_back(
            skipped(name, piece_.subject,
                    text("of ", taken, " nodes that it took nothing else computes any")));
      } else if (name == "kernels.plans" && pairs_ == 0) {
        rows.push_back(
            skipped(name, piece_.subject, "the suite has no two shapes for one node of it"));
      } else {
        rows.push_back(passed(name, piece_.subject));
      }
    }
    return rows;
  }

  /// A refusal has a code that says who is to blame, and a sentence for users.
  void judge_refusal(const NodeCase& node, const Outcome& outcome) {
    if (first_refusal_.empty()) first_refusal_ = described(outcome);
    if (outcome.message.find_first_not_of(" \t\n") == std::string::npos)
      findings_.add("kernels.refusals",
                    text(current_step(), " was refused without a reason, code ", outcome.code));
    if (first_mistake_.empty() && !excuses(cases_, outcome.code))
      first_mistake_ = node.text() + ": " + described(outcome);
  }

  /// Whether the kernel takes the node.
  bool check_node(const NodeCase& node) {
    Kernel kernel(*device_, def_, node, true);
    if (!kernel.is_created()) {
      judge_refusal(node, kernel.outcome());
      return false;
    }
    Outcome outcome;
    const auto prepared = kernel.prepare(node.inputs, outcome);
    if (prepared == nullptr) {
      judge_refusal(node, outcome);
      if (!kernel.mistake().empty())
        findings_.add("kernels.shapes",
                      text(node.text(), ": prepare asks for what cannot be: ", kernel.mistake()));
      return false;
    }
    if (!check_plans(node, *prepared)) return false;
    const Computed first = prepared->compute(kPoison);
    if (!judge(node, first)) {
      if (first.outcome.is_ok()) return true;
      if (first_failure_.empty()) first_failure_ = node.text() + ": " + described(first.outcome);
      return false;
    }
    const Computed second = prepared->compute(kOtherPoison);
    if (!judge(node, second)) return true;
    const std::string unwritten = not_written(first, second);
    if (!unwritten.empty()) {
      findings_.add("kernels.shapes", node.text() + ": " + unwritten);
      return true;
    }
    compare_with_reference(node, first);
    check_in_place(node, *prepared, first);
    return true;
  }

  /// What prepare said of the outputs, alone.
  bool check_plans(const NodeCase& node, const PreparedKernel& prepared) {
    for (std::size_t i = 0; i < prepared.outputs().size(); ++i) {
      const OutputPlan& plan = prepared.outputs()[i];
      if (!plan.is_said) {
        findings_.add("kernels.shapes", text(node.text(), ": prepare says nothing of output ", i));
        return false;
      }
      if (plan.is_other) {
        if (first_refusal_.empty()) first_refusal_ = "its outputs are no plain tensors of numbers";
        return false;
      }
    }
    return true;
  }

  /// False when nothing more can be said of this node.
  bool judge(const NodeCase& node, const Computed& computed) {
    if (!computed.damage.empty()) {
      findings_.add("kernels.bounds", node.text() + ": " + computed.damage);
      return false;
    }
    if (!computed.disagreement.empty()) {
      findings_.add("kernels.shapes", node.text() + ": " + computed.disagreement);
      return false;
    }
    if (computed.outcome.is_ok()) return true;
    if (computed.outcome.message.empty()) {
      findings_.add("kernels.refusals", node.text() + ": compute failed without a reason");
    } else if (computed.outcome.code != BP_FAILED) {
      findings_.add("kernels.results", node.text() +
                                           ": compute fails after prepare took the shapes: " +
                                           described(computed.outcome));
    }
    return false;
  }

  /// The first element that holds the poison after both runs.
  static std::string not_written(const Computed& first, const Computed& second) {
    for (std::size_t i = 0; i < first.outputs.size(); ++i) {
      const Tensor &a = first.outputs[i], &b = second.outputs[i];
      const std::uint64_t width = element_bytes(a.dtype);
      for (std::uint64_t at = 0; width > 0 && at + width <= std::min(a.data.size(), b.data.size());
           at += width) {
        const auto holds = [&](const Tensor& tensor, std::uint8_t poison) {
          const auto start = tensor.data.begin() + static_cast<std::ptrdiff_t>(at);
          return std::all_of(start, start + static_cast<std::ptrdiff_t>(width),
                             [&](std::uint8_t byte) { return byte == poison; });
        };
        if (holds(a, kPoison) && holds(b, kOtherPoison))
          return text("prepare announced ", a.size(), " elements of output ", i,
                      ", compute did not write element ", at / width);
      }
    }
    return "";
  }

  void compare_with_reference(const NodeCase& node, const Computed& computed) {
    if (!is_deterministic_) return;
    std::optional<std::vector<Tensor>> want;
    std::string by = "the CPU provider";
    if (has_cpu_reference_) want = cpu_.compute(node);
    if (!want) {
      want = compute_in_double(node);
      by = "the suite's formula in double precision";
    }
    if (!want) {
      want = by_kernel_for(node, BP_DOUBLE);
      by = "the kernel for double";
    }
    if (!want) {
      want = by_kernel_for(node, BP_FLOAT);
      by = "the kernel for float";
    }
    if (!want || want->size() != computed.outputs.size()) return;
    ++compared_;
    for (std::size_t i = 0; i < want->size(); ++i) {
      // Doubles by the kernel for floats are held to what floats can be.
      const bool is_float = (*want)[i].dtype == BP_FLOAT && node.outputs[i] == BP_DOUBLE;
      const std::string wrong = difference(
          is_float ? converted(computed.outputs[i], BP_FLOAT) : computed.outputs[i], (*want)[i]);
      if (!wrong.empty())
        findings_.add("kernels.results",
                      text(node.text(), ", output ", i, " against ", by, ": ", wrong));
    }
  }

  /// The node with its floating-point numbers in another type, double or float, computed by whichever kernel of this
  /// registry takes that: narrower types by that for double, doubles by that for float.
  std::optional<std::vector<Tensor>> by_kernel_for(const NodeCase& node, bp_dtype dtype) {
    NodeCase wide = node;
    bool changed = false;
    for (NodeCase::Input& input : wide.inputs) {
      const bool is_other =
          input.tensor.dtype != dtype && (dtype == BP_DOUBLE || input.tensor.dtype == BP_DOUBLE);
      if (!is_floating(input.tensor.dtype) || !is_other) continue;
      input.tensor = converted(input.tensor, dtype);
      changed = true;
    }
    if (!changed) return std::nullopt;
    for (bp_dtype& output : wide.outputs) {
      if (is_floating(output)) output = dtype;
    }
    for (const bp_kernel_def* def : kernels_) {
      if (std::strcmp(def->op_type, def_->op_type) != 0 ||
          std::strcmp(def->domain, def_->domain) != 0 || !lists(def, dtype) ||
          def->since_min > node.since_version || def->since_max < node.since_version)
        continue;
      Kernel kernel(*device_, def, wide, true);
      Outcome outcome;
      if (!kernel.is_created()) continue;
      const auto prepared = kernel.prepare(wide.inputs, outcome);
      if (prepared == nullptr) continue;
      Computed computed = prepared->compute(kPoison);
      if (!computed.outcome.is_ok() || computed.outputs.size() != node.outputs.size()) continue;
      for (std::size_t i = 0; i < computed.outputs.size() && dtype == BP_DOUBLE; ++i)
        computed.outputs[i] = converted(computed.outputs[i], node.outputs[i]);
      return computed.outputs;
    }
    return std::nullopt;
  }

  static bool lists(const bp_kernel_def* def, bp_dtype dtype) {
    const std::string type = type_string(dtype);
    for (std::uint32_t i = 0; i < def->constraint_count; ++i) {
      const bp_type_constraint& constraint = *def->constraints[i];
      for (std::uint64_t t = 0; t < constraint.type_count; ++t) {
        if (constraint.types[t] == type) return true;
      }
    }
    return false;
  }

  static Tensor converted(const Tensor& tensor, bp_dtype dtype) {
    if (tensor.dtype == dtype) return tensor;
    Tensor result = make_tensor(dtype, tensor.dims);
    for (std::int64_t i = 0; i < tensor.size(); ++i) result.set(i, tensor.at(i));
    return result;
  }

  void check_in_place(const NodeCase& node, PreparedKernel& prepared, const Computed& apart) {
    const OutputPlan& plan = prepared.outputs().at(0);
    if (plan.in_place_of < 0 || plan.is_unknown || !is_deterministic_) return;
    const NodeCase::Input& input = node.inputs[static_cast<std::size_t>(plan.in_place_of)];
    if (input.tensor.data.size() != apart.outputs[0].data.size() || input.is_constant ||
        input.tensor.data.empty())
      return;
    const Computed over = prepared.compute(kPoison, true);
    if (!judge(node, over)) return;
    const std::string wrong = difference(over.outputs[0], apart.outputs[0]);
    if (!wrong.empty())
      findings_.add("kernels.in_place", text(node.text(), ": written over input ", plan.in_place_of,
                                             ", as prepare allowed, it ", wrong));
  }

  /// Two nodes that differ in shapes alone; `b` then has the constants of `a`.
  static bool make_pair(const NodeCase& a, NodeCase& b) {
    if (a.since_version != b.since_version || a.attributes != b.attributes ||
        a.outputs != b.outputs || a.inputs.size() != b.inputs.size())
      return false;
    for (std::size_t i = 0; i < a.inputs.size(); ++i) {
      const NodeCase::Input &x = a.inputs[i], &y = b.inputs[i];
      if (x.tensor.dtype != y.tensor.dtype || x.is_constant != y.is_constant ||
          x.tensor.dims.size() != y.tensor.dims.size())
        return false;
      if (!x.is_constant) continue;
      if (x.tensor.dims != y.tensor.dims || (x.is_kept && x.tensor.data != y.tensor.data))
        return false;
      b.inputs[i] = x;
    }
    return true;
  }

  void check_pairs(const std::vector<const NodeCase*>& taken) {
    for (std::size_t i = 0; i < taken.size() && pairs_ < kPairs; ++i) {
      for (std::size_t j = 0; j < taken.size(); ++j) {
        NodeCase other = *taken[j];
        if (i == j || !make_pair(*taken[i], other) || !check_pair(*taken[i], other)) continue;
        ++pairs_;
        break;
      }
    }
  }

  /// One kernel, two plans: computing with one must not change what the other one does.
  bool check_pair(const NodeCase& node, const NodeCase& other) {
    Kernel kernel(*device_, def_, node, false);
    Outcome outcome;
    if (!kernel.is_created()) return false;
    const auto first = kernel.prepare(node.inputs, outcome);
    if (first == nullptr) return false;
    const Computed alone = first->compute(kPoison);
    const auto second = kernel.prepare(other.inputs, outcome);
    if (second == nullptr || !alone.outcome.is_ok()) return false;
    const Computed beside = second->compute(kPoison);
    const Computed again = first->compute(kPoison);
    const std::string what =
        node.text() + ", after the same kernel was prepared for " + other.text();
    if (!again.outcome.is_ok() || !again.damage.empty() || !again.disagreement.empty()) {
      findings_.add("kernels.plans", what + ": " +
                                         (again.outcome.is_ok() ? again.damage + again.disagreement
                                                                : described(again.outcome)));
      return true;
    }
    for (std::size_t i = 0; is_deterministic_ && i < again.outputs.size(); ++i) {
      const std::string wrong = difference(again.outputs[i], alone.outputs[i]);
      if (!wrong.empty()) findings_.add("kernels.plans", text(what, ", output ", i, ": ", wrong));
    }
    return beside.outcome.is_ok();
  }

  /// The host refuses what prepare tells it, and has no memory: an error comes back, and the next try works.
  void check_faults(const NodeCase& node) {
    Kernel kernel(*device_, def_, node, true);
    Outcome outcome;
    const std::int64_t statuses = live_statuses();
    const auto none = kernel.prepare(node.inputs, outcome, true);
    if (none != nullptr)
      findings_.add("kernels.faults",
                    node.text() + ": prepare succeeds though the host refused an output");
    fail_host_memory(true);
    const auto short_of_memory = kernel.prepare(node.inputs, outcome);
    if (short_of_memory != nullptr) short_of_memory->compute(kPoison);
    fail_host_memory(false);
    const auto prepared = kernel.prepare(node.inputs, outcome);
    if (prepared == nullptr) {
      findings_.add("kernels.faults",
                    node.text() + ": after a failure prepare works no more: " + described(outcome));
    } else {
      const Computed computed = prepared->compute(kPoison);
      if (!computed.outcome.is_ok())
        findings_.add("kernels.faults", node.text() + ": after a failure compute works no more: " +
                                            described(computed.outcome));
    }
    if (live_statuses() != statuses)
      findings_.add("kernels.leaks", text(node.text(), ": ", live_statuses() - statuses,
                                          " statuses of the host were not freed"));
  }

  void live_once(const NodeCase& node) {
    Kernel kernel(*device_, def_, node, true);
    Outcome outcome;
    const auto prepared = kernel.prepare(node.inputs, outcome);
    if (prepared != nullptr) prepared->compute(kPoison);
  }

  /// Bytes by which the heap grows in a window of the kernel's lives; 0 where it does not: bounded caches fill up once,
  /// leaks go on. The median window tells, as memory that others keep or free, once, is not the kernel's.
  std::uint64_t growth(const NodeCase& node, int rounds) {
    const std::int64_t least = std::int64_t{16} * rounds;  // a heap's smallest block
    std::array<std::int64_t, kWindows> grown{};
    auto before = static_cast<std::int64_t>(heap_bytes());
    int still = 0;
    for (std::int64_t& bytes : grown) {
      for (int i = 0; i < rounds; ++i) live_once(node);
      const auto now = static_cast<std::int64_t>(heap_bytes());
      bytes = now - std::exchange(before, now);
      if (bytes < least && ++still > kOddWindows) return 0;
    }
    const auto median = grown.begin() + kWindows / 2;
    std::nth_element(grown.begin(), median, grown.end());
    return static_cast<std::uint64_t>(*median);
  }

  void check_leaks(const NodeCase& node) {
    for (int i = 0; i < kRounds; ++i) live_once(node);
    const std::int64_t blocks = live_host_blocks();
    // Other threads' memory hides a leak in one look, not in two; what grew by chance in a short look does not in a long one.
    if (growth(node, kRounds) > 0 || growth(node, kRounds) > 0) {
      if (const std::uint64_t lost = growth(node, kLongWindow * kRounds))
        findings_.add("kernels.leaks",
                      text(node.text(), ": ", lost / (kLongWindow * kRounds),
                           " bytes of heap are lost per create, prepare and compute"));
    }
    if (live_host_blocks() >= blocks + kRounds)
      findings_.add("kernels.leaks",
                    node.text() + ": memory of the host's alloc is not given back");
  }

  const Piece& piece_;
  PluginFile& plugin_;
  std::unique_ptr<OpenDevice> device_;
  std::vector<const bp_kernel_def*> kernels_;
  const bp_kernel_def* def_;
  bool has_cpu_reference_, is_deterministic_;
  KernelCases cases_;
  CpuReference cpu_;
  Findings findings_;
  std::string first_refusal_;
  std::string first_mistake_;  ///< a refusal by a code that blames the node
  std::string first_failure_;  ///< of a compute
  int compared_ = 0, pairs_ = 0;
};

}  // namespace

const std::vector<std::string>& kernel_case_names() {
  static const std::vector<std::string> kNames = {
      "kernels.results", "kernels.bounds",   "kernels.shapes", "kernels.in_place",
      "kernels.plans",   "kernels.refusals", "kernels.faults", "kernels.leaks"};
  return kNames;
}

std::vector<Row> check_kernel(Subject& subject, const Piece& piece) {
  return KernelCheck(subject, piece).rows();
}

}  // namespace backplane::cli::check

// Makes a GoogleTest test of every row and every sweep for every target, and runs them.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::uint64_t kSeed = 20240613;
constexpr int kFailuresShown = 3;  // of one sweep
constexpr int kFullFactor = 10;

std::uint64_t base_seed() {
  const char* text = std::getenv("BACKPLANE_TEST_SEED");
  return text == nullptr ? kSeed : std::strtoull(text, nullptr, 10);
}

/// FNV-1a: the same on every machine, which std::hash is not.
std::uint64_t seed_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325u ^ base_seed();
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// Where BACKPLANE_TEST_SAVE=DIR asks for it, every case is written below DIR before it runs.
void save_if_asked(const GraphCase& graph, Form form, const std::string& name) {
  const char* folder = std::getenv("BACKPLANE_TEST_SAVE");
  if (folder != nullptr) save_case(graph, form, std::string(folder) + "/" + name);
}

/// What a row should give, worked out once for all targets and forms: tests of a row follow one another.
const std::vector<reference::Array>& expected_of_row(const Registered& test) {
  static const Registered* last = nullptr;
  static std::vector<reference::Array> expected;
  if (last != &test) expected = expected_of(test.rows[0]);
  last = &test;
  return expected;
}

const char* name_of(Form form) { return form == Form::Fixed ? "fixed" : "open"; }

class CaseTest : public testing::Test {
 public:
  CaseTest(const Registered& test, const Target& target) : test_(test), target_(target) {}

 protected:
  void TestBody() override {
    if (test_.rows.empty()) {
      run_sweep();
    } else {
      run_row(test_.rows[0]);
    }
  }

 private:
  void run_row(const GraphCase& graph) {
    int refused = 0;
    std::string why;
    const bool many = graph.nodes.size() > 1;
    // Each session builds its programs again, so graphs take turns in which form is optimized.
    const bool takes_turns = many && target_.row_share > 1 && !is_full();
    const bool turn = seed_of(test_.suite + "." + test_.name) >> 32 & 1;
    for (const Form form : {Form::Fixed, Form::Open}) {
      for (const char* optimization : {"all", "none"}) {
        const bool is_none = std::string(optimization) == "none";
        if (!many && is_none) continue;
        if (takes_turns && ((form == Form::Open) == is_none) != turn) continue;
        save_if_asked(graph, form, test_.suite + "." + test_.name + "." + name_of(form));
        const Outcome outcome =
            run_case(graph, expected_of_row(test_), target_, form, optimization);
        if (outcome.kind == Outcome::Kind::Failed) {
          ADD_FAILURE() << describe(graph) << "\n  " << outcome.text << " (optimization "
                        << optimization << ")";
        } else if (outcome.kind == Outcome::Kind::Refused) {
          ++refused;
          why = outcome.text;
        }
      }
    }
    if (refused > 0) GTEST_SKIP() << why;
  }

  /// Cases take turns in form and, for graphs, in optimization.
  void run_sweep() {
    const int all = is_full() ? test_.count * kFullFactor : test_.count;
    const int count = std::max(2, all / target_.sweep_share);
    int failures = 0;
    int refused = 0;
    std::string why;
    for (int i = 0; i < count && failures < kFailuresShown; ++i) {
      // Targets that differ in options get the same cases, whose programs a device's compiler then builds once.
      const std::string& drawn_for = target_.must_run_all ? target_.name : target_.provider;
      const std::string name =
          test_.suite + "." + test_.name + "." + drawn_for + "." + std::to_string(i);
      Random random(seed_of(name));
      const GraphCase graph =
          test_.make_op != nullptr ? to_graph(test_.make_op(random)) : test_.make_graph(random);
      const Form form = i % 2 == 0 ? Form::Fixed : Form::Open;
      const char* optimization = graph.nodes.size() > 1 && i % 4 >= 2 ? "none" : "all";
      save_if_asked(graph, form, name);
      const Outcome outcome = run_case(graph, expected_of(graph), target_, form, optimization);
      if (outcome.kind == Outcome::Kind::Failed) {
        ++failures;
        ADD_FAILURE() << "case " << i << ", BACKPLANE_TEST_SEED=" << base_seed() << ": "
                      << describe(graph) << "\n  " << outcome.text << " (optimization "
                      << optimization << ")";
      } else if (outcome.kind == Outcome::Kind::Refused) {
        ++refused;
        why = outcome.text;
      }
    }
    RecordProperty("cases", count);
    RecordProperty("refused", refused);
    if (refused == count) GTEST_SKIP() << "all cases, the last one: " << why;
  }

  const Registered& test_;
  const Target& target_;
};

void register_tests(const std::vector<Target>& targets) {
  for (const Registered& test : registered()) {
    for (const Target& target : targets) {
      const bool is_refusal = !test.rows.empty() && !test.rows[0].refusal.empty();
      if (is_refusal && target.provider == "fakegpu") continue;
      // Refusals cost no compiler's run.
      const auto share = static_cast<std::uint64_t>(is_full() || is_refusal ? 1 : target.row_share);
      if (!test.rows.empty() && seed_of(test.suite + "." + test.name) % share != 0) continue;
      testing::RegisterTest(
          test.suite.c_str(), (test.name + "/" + target.name).c_str(), nullptr, nullptr, __FILE__,
          __LINE__, [&test, &target]() -> testing::Test* { return new CaseTest(test, target); });
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  static std::vector<backplane::ops_test::Target> targets;
  try {
    targets = backplane::ops_test::find_targets();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cannot ask for the loaded providers: %s\n", error.what());
    return 1;
  }
  if (targets.empty()) {
    std::fprintf(stderr, "no provider is loaded, so there is nothing to test\n");
    return 1;
  }
  backplane::ops_test::register_tests(targets);
  return RUN_ALL_TESTS();
}

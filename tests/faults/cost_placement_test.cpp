// Sessions that place by cost: what is measured, kept, moved and said.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/plan/copy_rates.hpp"
#include "tests/faults/fault_test.hpp"
#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {
namespace {

using Json = nlohmann::json;

/// A file of rates in a folder that does not exist yet.
class CostPlacement : public FaultTest {
 protected:
  void SetUp() override {
    FaultTest::SetUp();
    folder_ = std::filesystem::temp_directory_path() / text("backplane_cost_", ::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    FaultTest::TearDown();
  }
  std::filesystem::path file() const { return folder_ / "deeper" / "rates"; }

  std::unique_ptr<MixedSession> open(const std::string& model, const ProviderOptions& fakegpu = {},
                                     const Placement& placement = {}) {
    return std::make_unique<MixedSession>(model, placement, fakegpu,
                                          std::vector<std::string>{"fakegpu:0", "fakegpu:1", "cpu"},
                                          [&](SessionOptions& options) {
                                            options.placement_policy = PlacementPolicy::Cost;
                                            options.copy_rates = file().string();
                                          });
  }
  std::string contents() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const std::string& text) const {
    std::filesystem::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }

  std::filesystem::path folder_;
};

/// A product between two nodes that only the cpu takes.
std::string island() {
  ModelMaker maker;
  maker.input("x", {8, 8});
  maker.node("before", "Ceil", {"x"}, "a")
      .node("inner", "Relu", {"a"}, "b")
      .node("after", "Floor", {"b"}, "y");
  return maker.output("y").bytes();
}

std::string provider_of(const Json& explanation, const std::string& node) {
  for (const Json& row : explanation["nodes"]) {
    if (row["name"] == node) return row["provider"].get<std::string>();
  }
  return "";
}

TEST_F(CostPlacement, ASmallIslandMovesToItsNeighboursAndSaysWhy) {
  const auto session = open(island());
  const Json explanation = Json::parse(session->core().explain());
  EXPECT_EQ(provider_of(explanation, "inner"), "cpu");
  EXPECT_TRUE(explanation["copies"].empty());
  bool said = false;
  for (const Json& row : explanation["nodes"]) {
    for (const Json& reason : row["reasons"]) {
      if (row["name"] != "inner" || reason["provider"] != "fakegpu:0") continue;
      said = true;
      EXPECT_EQ(reason["code"], "cheaper_elsewhere");
      const auto words = reason["text"].get<std::string>();
      EXPECT_NE(words.find(" us on fakegpu:0 and "), std::string::npos) << words;
      EXPECT_NE(words.find(" us of copies; on cpu "), std::string::npos) << words;
    }
  }
  EXPECT_TRUE(said) << explanation["nodes"];
  const Tensors feeds{{"x", random_tensor({8, 8}, 1)}};
  EXPECT_EQ(difference(session->run(feeds), run_on_cpu(island(), feeds)), "");
  EXPECT_EQ(findings(), "");
}

TEST_F(CostPlacement, RulesHoldWhateverItCosts) {
  const auto session = open(island(), {}, {{"inner", "fakegpu:1"}});
  EXPECT_EQ(provider_of(Json::parse(session->core().explain()), "inner"), "fakegpu:1");
}

TEST_F(CostPlacement, RatesAreMeasuredOnceAndKept) {
  open(island());
  const std::string first = contents();
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 5) << first;
  fakegpu().reset();
  open(island());
  EXPECT_EQ(counters().copies_h2d, 0u) << "nothing is measured again";
  EXPECT_EQ(contents(), first);
  open(island(), {{"peer", "true"}});
  const std::string more = contents();
  EXPECT_EQ(std::count(more.begin(), more.end(), '\n'), 11) << "other options, other rates";
}

TEST_F(CostPlacement, TheSameRatesPlaceTheSameWay) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const RandomGraph graph(seed);
    const Tensors want = run_on_cpu(graph.model(), graph.feeds());
    const auto nodes = [&] {
      const auto session = open(graph.model());
      EXPECT_EQ(difference(session->run(graph.feeds()), want), "") << graph.describe();
      return Json::parse(session->core().explain())["nodes"];
    };
    const Json first = nodes();
    EXPECT_EQ(nodes(), first) << graph.describe();
  }
  EXPECT_EQ(findings(), "");
}

TEST_F(CostPlacement, ABrokenFileIsMadeAnew) {
  open(island());
  const std::string first = contents();
  const auto lines = std::count(first.begin(), first.end(), '\n');
  for (const char* const broken : {"", "backplane copy rates 0\nhost x 1 1\n",
                                   "backplane copy rates 1\nhost x -1 1\nhost y 1\nz\n"}) {
    write(broken);
    open(island());
    const std::string now = contents();
    EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), lines) << broken;
    EXPECT_EQ(now.find("host x"), std::string::npos);
  }
}

TEST_F(CostPlacement, AFileOfSomethingElseIsLeftAlone) {
  for (const char* const other : {"weights", "weights\nhost x 1 1\n", "\n\n"}) {
    write(other);
    open(island());
    EXPECT_EQ(contents(), other);
  }
}

TEST_F(CostPlacement, AFileThatCannotBeWrittenIsNoError) {
  std::ofstream(folder_) << "a file where the folder should be";
  const auto session = open(island());
  EXPECT_EQ(provider_of(Json::parse(session->core().explain()), "inner"), "cpu");
}

}  // namespace
}  // namespace backplane::core::faults

// L1: what sessions of an environment share.
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class EnvironmentLife : public SessionTest {};

/// A node of the operator that windowed_mean.so brings.
ModelMaker custom_model() {
  ModelMaker maker;
  maker.input("x", {6, 4});
  maker.node("mean", "WindowedMean", {"x"}, "y", {{"window", 3}, {"axis", 0}},
             "backplane.examples");
  return maker.output("y");
}

TEST_F(EnvironmentLife, L1TheSinkGetsWhatTheLevelLetsThrough) {
  std::vector<std::string> lines;
  Environment own(options({{"environment.log_level", "warning"}}),
                  [&](int, const std::string& line) { lines.push_back(line); });
  const auto model = small_net().metadata("backplane.option.plan_cache", "3").bytes();
  { TestSession session(model, Settings{}, own); }
  EXPECT_TRUE(lines.empty()) << lines.front();
  own.set_log_level("info");
  { TestSession session(model, Settings{}, own); }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  EXPECT_HOLDS(all, "plan_cache=3");
  EXPECT_HOLDS(failure_of([&] { own.set_log_level("loud"); }).text, "'loud'");
}

TEST_F(EnvironmentLife, L1SessionsMayHaveALevelOfTheirOwn) {
  std::vector<std::string> lines;
  Environment own(options({{"environment.log_level", "info"}}),
                  [&](int, const std::string& line) { lines.push_back(line); });
  const auto model = small_net().metadata("backplane.option.plan_cache", "3").bytes();
  { TestSession quiet(model, {{"log_level", "off"}}, own); }
  EXPECT_TRUE(lines.empty()) << lines.front();
  { TestSession like_the_environment(model, {{"log_level", "environment"}}, own); }
  EXPECT_FALSE(lines.empty());
}

TEST_F(EnvironmentLife, L1ManySessionsShareDevicesAndThePool) {
  const auto model = small_net().bytes();
  std::vector<std::unique_ptr<TestSession>> sessions;
  for (int i = 0; i < 5; ++i)
    sessions.push_back(
        std::make_unique<TestSession>(model, Settings{{"providers", "fakegpu:0,cpu"}}));
  EXPECT_EQ(counters().open_devices, 1u);
  const std::vector<float> x = numbers(8, 3);
  const std::vector<float> want = TestSession(model, {{"providers", "cpu"}}).run(x, {2, 4});
  for (const auto& session : sessions) {
    const std::vector<float> got = session->run(x, {2, 4});
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  }
}

TEST_F(EnvironmentLife, L1LibrariesOfTheEnvironmentServeEverySession) {
  Environment own(options());
  const auto model = custom_model().bytes();
  EXPECT_HOLDS(failure_of([&] { TestSession session(model, Settings{}, own); }).text,
               "WindowedMean");
  own.RegisterCustomOpsLibrary(BACKPLANE_TEST_CUSTOM_OPS_DIR "/windowed_mean.so");
  TestSession first(model, Settings{}, own), second(model, Settings{}, own);
  EXPECT_EQ(first.run(numbers(24, 1), {6, 4}), second.run(numbers(24, 1), {6, 4}));
  EXPECT_HOLDS(failure_of([&] { own.RegisterCustomOpsLibrary("/no/such.so"); }).text,
               "/no/such.so");
}

TEST_F(EnvironmentLife, L1LibrariesCanBeGivenByAnOption) {
  Environment own(
      options({{"environment.custom_ops", BACKPLANE_TEST_CUSTOM_OPS_DIR "/windowed_mean.so"}}));
  TestSession session(custom_model().bytes(), Settings{}, own);
  EXPECT_EQ(session.run(std::vector<float>(24, 2.0f), {6, 4}), std::vector<float>(16, 2.0f));
}

TEST_F(EnvironmentLife, L1AnEnvironmentLivesAsLongAsItsSessions) {
  auto own = std::make_unique<Environment>(options());
  TestSession session(small_net().bytes(), Settings{}, *own);
  own.reset();
  EXPECT_EQ(session.run(numbers(8, 3), {2, 4}).size(), 6u);
}

}  // namespace
}  // namespace backplane::session_test

// Sessions of a program whose locale has decimal commas and grouped digits are those of any other.
#include <optional>

#include "tests/fixtures/comma_locale.hpp"
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

using test_host::CommaLocale;

class Locales : public SessionTest {};

/// So many nodes without names that the last one's is of a number of four digits.
std::string unnamed_nodes() {
  constexpr int kCount = 1030;
  ModelMaker maker;
  maker.input("x", {2, 4});
  for (int i = 0; i < kCount; ++i)
    maker.node("", "Neg", {i == 0 ? "x" : "v" + std::to_string(i)},
               i + 1 == kCount ? "y" : "v" + std::to_string(i + 1));
  return maker.output("y").bytes();
}

std::vector<std::string> names_of(const TestSession& session) {
  std::vector<std::string> names;
  for (const Json& node : session.explain()["nodes"]) names.push_back(node["name"]);
  return names;
}

TEST_F(Locales, NodesHaveTheSameNames) {
  const std::string model = unnamed_nodes();
  const Settings settings = {{"providers", "cpu"}, {"optimization", "none"}};
  const std::vector<std::string> names = names_of(TestSession(model, settings));
  const CommaLocale commas;
  EXPECT_EQ(names_of(TestSession(model, settings)), names);
}

TEST_F(Locales, AnErrorHasPlainNumbers) {
  const CommaLocale commas;
  TestSession session(small_net().bytes(), {{"providers", "cpu"}});
  EXPECT_HOLDS(failure_of([&] { session.run(std::vector<float>(5000), {1250, 4}); }).text, "1250");
}

TEST_F(Locales, ASavedPlanIsOfEveryProgram) {
  const std::string model = small_net().bytes();
  const std::vector<float> x = numbers(8, 3);
  const Settings settings = {{"providers", "cpu"}};
  std::vector<float> y;
  {
    TestSession session(model, settings);
    y = session.run(x, {2, 4});
    session->save_plan(file("plan"));
  }
  const Settings reopening = with(settings, "saved_plan", file("plan"));
  const CommaLocale commas;
  EXPECT_EQ(TestSession(model, reopening).run(x, {2, 4}), y);
  TestSession(model, settings)->save_plan(file("plan"));
  EXPECT_EQ(TestSession(model, reopening).run(x, {2, 4}), y);
}

TEST_F(Locales, MeasuredRatesAreKeptAndReadByEveryProgram) {
  const std::string model = small_net().bytes();
  const Settings settings =
      with(with(kFakeAllowed, "placement", "cost"), "copy_rates", file("rates"));
  std::optional<CommaLocale> commas(std::in_place);
  { const TestSession session(model, settings); }
  const std::string rates = read(file("rates"));
  EXPECT_HOLDS(rates, "host");
  EXPECT_EQ(rates.find(','), std::string::npos) << rates;
  commas.reset();
  { const TestSession session(model, settings); }
  EXPECT_EQ(read(file("rates")), rates) << "they were measured again";
  commas.emplace();
  { const TestSession session(model, settings); }
  EXPECT_EQ(read(file("rates")), rates) << "they were measured again";
}

}  // namespace
}  // namespace backplane::session_test

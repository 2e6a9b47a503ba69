// The precision of a session: who is given it, and what happens where nobody offers it.
#include "tests/session/life/fixture.hpp"

namespace backplane::session_test {
namespace {

class Precision : public SessionTest {};

std::string one_relu() {
  ModelMaker maker;
  maker.input("x", {2, 4}).node("positive", "Relu", {"x"}, "y");
  return maker.output("y").bytes();
}

std::string refusal(const Settings& settings) {
  return failure_of([&] { TestSession(one_relu(), settings); }).text;
}

TEST_F(Precision, IsRefusedWithEveryProvidersReasonWhereNobodyOffersIt) {
  const std::string cpu = refusal({{"providers", "cpu"}, {"precision", "tf32"}});
  EXPECT_HOLDS(cpu, "precision 'tf32' is offered by none");
  EXPECT_HOLDS(cpu, "provider 'cpu': 'tf32' is not one of fp32|bf16");
  const std::string both = refusal({{"providers", "fakegpu:0,cpu"}, {"precision", "tf32"}});
  EXPECT_HOLDS(both, "provider 'fakegpu': 'tf32' is not one of fp32|fp16");
  EXPECT_HOLDS(both, "provider 'cpu'");
}

TEST_F(Precision, IsGivenToTheProviderThatOffersItAsAnOption) {
  const Settings fake = {{"providers", "fakegpu:0"}, {"fallback", "forbid"}};
  TestSession exact(one_relu(), fake);
  EXPECT_EQ(counters().open_devices, 1u);
  TestSession half(one_relu(), with(fake, "precision", "fp16"));
  EXPECT_EQ(counters().open_devices, 2u) << "devices with other options are others";
  TestSession again(one_relu(), with(fake, "provider.fakegpu.precision", "fp16"));
  EXPECT_EQ(counters().open_devices, 2u) << "the same as the option of the provider";
  EXPECT_EQ(half.run({1, -2, 3, -4, 5, -6, 7, -8}, {2, 4}),
            (std::vector<float>{1, 0, 3, 0, 5, 0, 7, 0}));
}

TEST_F(Precision, AnOptionOfTheProviderGoesBeforeThatOfTheSession) {
  const Settings fake = {{"providers", "fakegpu:0"}, {"fallback", "forbid"}};
  TestSession exact(one_relu(), with(fake, "provider.fakegpu.precision", "fp32"));
  TestSession both(one_relu(),
                   with(with(fake, "provider.fakegpu.precision", "fp32"), "precision", "fp16"));
  EXPECT_EQ(counters().open_devices, 1u);
}

TEST_F(Precision, OfAPathIsThePathsAlone) {
  TestSession session(one_relu(), {{"providers", "cpu"},
                                   {"path.p.providers", "fakegpu:0"},
                                   {"path.p.backup", "none"},
                                   {"path.p.precision", "fp16"},
                                   {"path.plain.providers", "fakegpu:0"}});
  EXPECT_EQ(counters().open_devices, 2u);
  const Json paths = session.explain()["paths"];
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0]["precision"], "fp16");
  EXPECT_EQ(paths[1]["precision"], "fp32") << "the session's";
  EXPECT_HOLDS(
      refusal({{"providers", "fakegpu:0"}, {"precision", "fp16"}, {"path.p.providers", "cpu"}}),
      "precision 'fp16' is offered by none of the providers: provider 'cpu'");
}

}  // namespace
}  // namespace backplane::session_test

// Option denormals_as_zero: numbers below the normal ones are 0 in a run, on every thread, and the caller's thread is left as it was.
#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {
namespace {

constexpr std::int64_t kMany = 1 << 20;  // both threads take a part of a loop

/// y = x * factor, and what is beside it runs at the same time where the session is parallel.
ModelMaker scale() {
  ModelMaker model;
  model.input("x", {"n"}).output("y").output("z");
  model.weight("factor", {1}, {1e20F});
  return model.node("Mul", {"x", "factor"}, {"y"}).node("Sqrt", {"x"}, {"z"});
}

/// How many elements of y are not 0, of `count` subnormal ones.
std::ptrdiff_t kept(Session& session, std::int64_t count) {
  Value x = Value::tensor<float>({count});
  std::fill_n(x.data<float>(), count, 1e-40F);
  const Value y = std::move(session.run({{"x", x}}).at(0));
  return count - std::count(y.data<float>(), y.data<float>() + count, 0.0F);
}

Options options_with(const char* value) {
  Options options = cpu_options();
  options.set("denormals_as_zero", value);
  return options;
}

TEST(Denormals, AreNumbersByDefault) {
  TestSession session(scale());
  EXPECT_EQ(kept(*session, 5), 5);
  EXPECT_EQ(kept(*session, kMany), kMany);
}

TEST(Denormals, AreZeroOnEveryThreadWhereTheOptionSaysSo) {
  TestSession zero(scale(), options_with("true")), plain(scale(), options_with("false"));
  Options options = options_with("true");
  options.set("execution_mode", "parallel");
  TestSession parallel(scale(), options);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(kept(*zero, 5), 0);
    EXPECT_EQ(kept(*zero, kMany), 0);
    EXPECT_EQ(kept(*parallel, kMany), 0);
    EXPECT_EQ(kept(*plain, kMany), kMany) << "workers went on with another session's";
  }
}

/// Whether the calling thread computes with them.
bool are_numbers_here() {
  volatile float number = 1e-40F;
  return number * 1e20F != 0;
}

TEST(Denormals, TheCallersThreadIsLeftAsItWas) {
  TestSession zero(scale(), options_with("true"));
  kept(*zero, 5);
  EXPECT_TRUE(are_numbers_here());
}

TEST(Denormals, TheCallersThreadIsLeftAsItWasWhereARunFails) {
  Probe probe;
  probe.fails = true;
  ModelMaker model;
  model.input("x", {"n"}).output("y").probe("x", "y", probe);
  TestSession zero(model, options_with("true"));
  const Value x = Value::tensor<float>({3});
  EXPECT_NE(failure_of([&] { zero->run({{"x", x}}); }).first, 0);
  EXPECT_TRUE(are_numbers_here());
}

}  // namespace
}  // namespace backplane::session_test

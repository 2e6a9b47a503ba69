// Outputs: made by the session or given to it, outputs of the model or inner values.
#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

class Outputs : public SessionTest {
 protected:
  /// x float [n] -> inner = relu x -> y = -inner, where = positions of what is not 0 in inner.
  Session session() {
    ModelMaker maker;
    maker.input("x", {"n"}).node("Relu", {"x"}, "inner").node("Neg", {"inner"}, "y");
    maker.node("NonZero", {"inner"}, "where").output("y").output("where", ModelMaker::kInt64);
    return open(maker, on_cpu().set("optimization", "none"));
  }
  /// Runs into the values given.
  static std::vector<Value> run(const Session& session, const Value& x,
                                const std::vector<std::string>& fetches,
                                std::vector<Value> results) {
    session.run({{"x", x}}, fetches, results);
    return results;
  }
  template <class... Values>
  static std::vector<Value> list(Values... values) {
    std::vector<Value> all;
    (all.push_back(std::move(values)), ...);
    return all;
  }
  const Value x_ = tensor<float>({4}, {1, -2, 3, 4});
};

TEST_F(Outputs, AreMadeWhereNoneIsGiven) {
  const std::vector<Value> results = session().run({{"x", x_}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(elements(results[0]), (std::vector<float>{-1, 0, -3, -4}));
  EXPECT_EQ(results[1].dims(), (Dims{1, 3}));
  EXPECT_EQ(elements<std::int64_t>(results[1]), (std::vector<std::int64_t>{0, 2, 3}));
}

TEST_F(Outputs, ThatFitAreWritten) {
  const Session made = session();
  std::vector<float> memory(4, 99);
  const std::vector<Value> results =
      run(made, x_, {"y"}, list(Value::borrow<float>({4}, memory.data(), 4)));
  EXPECT_EQ(memory, (std::vector<float>{-1, 0, -3, -4}));
  EXPECT_EQ(results[0].bytes(), memory.data());
  Value own = Value::tensor<float>({4});
  const void* place = own.bytes();
  const std::vector<Value> again = run(made, x_, {"y"}, list(std::move(own)));
  EXPECT_EQ(again[0].bytes(), place);
  EXPECT_EQ(elements(again[0])[3], -4);
}

TEST_F(Outputs, OfAllMayHaveNoPlaceYet) {
  const Session made = session();
  std::vector<Value> results;
  made.run({{"x", x_}}, {}, results);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(elements(results[0])[3], -4);
  std::vector<Value> wrong(3);
  expect_words(failure([&] { made.run({{"x", x_}}, {}, wrong); }), {"3 results for 2 outputs"});
  expect_words(failure([&] { made.run({{"x", x_}}, {"y"}, wrong); }), {"3 results for 1 fetches"});
}

TEST_F(Outputs, OfAMapAreWrittenByName) {
  const Session made = session();
  std::vector<float> memory(4, 99);
  Fetches fetches;
  fetches["y"] = Value::borrow<float>({4}, memory.data(), 4);
  fetches["inner"];
  made.run({{"x", x_}}, fetches);
  EXPECT_EQ(memory, (std::vector<float>{-1, 0, -3, -4}));
  EXPECT_EQ(fetches.at("y").bytes(), memory.data());
  EXPECT_EQ(elements(fetches.at("inner")), (std::vector<float>{1, 0, 3, 4}));
  const void* inner = fetches.at("inner").bytes();
  made.run({{"x", tensor<float>({4}, {5, 6, 7, 8})}}, fetches, RunOptions());
  EXPECT_EQ(memory[3], -8);
  EXPECT_EQ(fetches.at("inner").bytes(), inner);
  Fetches all;
  made.run({{"x", x_}}, all);
  EXPECT_EQ(all.size(), 2u);
  EXPECT_EQ(elements(all.at("y"))[2], -3);
  EXPECT_EQ(all.at("where").dims(), (Dims{1, 3}));
}

TEST_F(Outputs, OfAMapAreTheSameAfterAFailure) {
  const Session made = session();
  Fetches fetches;
  fetches["y"] = tensor<float>({3}, {1, 2, 3});
  const void* place = fetches.at("y").bytes();
  expect_words(failure([&] { made.run({{"x", x_}}, fetches); }), {"'y'", "[3]", "[4]"});
  EXPECT_EQ(fetches.at("y").bytes(), place);
  Fetches none;
  failure([&] { made.run({}, none); });
  EXPECT_TRUE(none.empty());
}

/// A feed, and no output, by whatever way.
TEST_F(Outputs, InMemoryThatIsOnlyReadAreRefused) {
  const Session made = session();
  const std::vector<float> numbers = {1, -2, 3, 4};
  Value lent = Value::borrow<float>({4}, numbers.data(), 4);
  EXPECT_EQ(std::as_const(lent).bytes(), numbers.data());
  EXPECT_EQ(elements(made.run({{"x", lent}}, {"y"})[0]), (std::vector<float>{-1, 0, -3, -4}));
  const char* why = "for reading alone";
  Binding binding(made);
  binding.bind_input("x", lent);
  binding.bind_output("y");
  binding.run();
  EXPECT_EQ(elements(binding.output("y")), (std::vector<float>{-1, 0, -3, -4}));
  expect_words(failure([&] { binding.bind_output("y", lent); }), {"'y'", why});
  expect_words(failure([&] { lent.write_numbers({1, 2, 3, 4}); }), {why});
  Fetches fetches;
  fetches["y"] = std::move(lent);
  expect_words(failure([&] { made.run({{"x", x_}}, fetches); }), {"'y'", why});
  EXPECT_EQ(numbers, (std::vector<float>{1, -2, 3, 4}));
  EXPECT_EQ(elements(Value::borrow_const(ElementType::Float, {4}, numbers.data(), 16)), numbers);
}

TEST_F(Outputs, OfTheWrongSizeAreNamed) {
  const Session made = session();
  for (const Dims& dims : {Dims{3}, Dims{5}, Dims{4, 1}, Dims{2, 2}, Dims{}}) {
    const std::string message =
        failure([&] { run(made, x_, {"y"}, list(Value::tensor<float>(dims))); });
    expect_words(message, {"output 'y'", "the run makes tensor(float) [4]"});
  }
  std::vector<float> memory(5, 99);
  expect_words(
      failure([&] { run(made, x_, {"y"}, list(Value::borrow<float>({5}, memory.data(), 5))); }),
      {"output 'y'", "is tensor(float) [5]", "makes tensor(float) [4]"});
  EXPECT_EQ(memory, std::vector<float>(5, 99)) << "nothing was written";
}

TEST_F(Outputs, OfTheWrongTypeAreNamed) {
  const Session made = session();
  expect_words(failure([&] { run(made, x_, {"y"}, list(Value::tensor<double>({4}))); }),
               {"output 'y'", "tensor(double) [4]", "makes tensor(float) [4]"});
}

/// The size of `where` is known only when its kernel has run.
TEST_F(Outputs, OfASizeFoundByRunningAreCheckedToo) {
  const Session made = session();
  std::vector<std::int64_t> memory(4, 99);
  const auto borrowed = [&](const Dims& dims, std::uint64_t count) {
    return list(Value::borrow<std::int64_t>(dims, memory.data(), count));
  };
  expect_words(failure([&] {
                 run(made, x_, {"where"}, borrowed({1, 4}, 4));
               }),
               {"output 'where'", "tensor(int64) [1,4]", "makes tensor(int64) [1,3]"});
  EXPECT_EQ(memory, std::vector<std::int64_t>(4, 99));
  expect_words(failure([&] {
                 run(made, x_, {"where"}, list(Value::tensor<std::int64_t>({1, 2})));
               }),
               {"output 'where'", "tensor(int64) [1,2]", "makes tensor(int64) [1,3]"});
  expect_words(failure([&] {
                 run(made, x_, {"where"}, list(Value::tensor<float>({1, 3})));
               }),
               {"output 'where'", "tensor(float) [1,3]", "makes tensor(int64) [1,3]"});
  const std::vector<Value> results = run(made, x_, {"where"}, borrowed({1, 3}, 3));
  EXPECT_EQ(memory, (std::vector<std::int64_t>{0, 2, 3, 99}));
  EXPECT_EQ(results[0].bytes(), memory.data());
}

/// A size that no machine has: 2^40 floats, in an output, then between two nodes. The session is as good as before.
TEST_F(Outputs, TooLargeForAnyMemoryAreNamedWithTheirBytes) {
  ModelMaker maker;
  maker.input("x", {"1"}).input("sizes", {"2"}, ModelMaker::kInt64);
  maker.node("Expand", {"x", "sizes"}, "y").node("ReduceMax", {"y"}, "most").output("y");
  const Session made = open(maker.output("most"), on_cpu());
  const Value one = tensor<float>({1}, {7});
  const Value huge = tensor<std::int64_t>({2}, {1 << 20, 1 << 20});
  const auto run_of = [&](const Value& sizes, const char* fetch) {
    return made.run({{"x", one}, {"sizes", sizes}}, {fetch});
  };
  for (int turn = 0; turn < 2; ++turn) {
    expect_words(failure([&] { run_of(huge, "y"); }, BACKPLANE_OUT_OF_MEMORY),
                 {"'y'", "'make_y'", "[1048576,1048576]", "4398046511104 bytes"});
    expect_words(failure([&] { run_of(huge, "most"); }, BACKPLANE_OUT_OF_MEMORY),
                 {"'y'", "'make_y'", "4398046511104 bytes"});
    const Value small = tensor<std::int64_t>({2}, {2, 1});
    EXPECT_EQ(elements(run_of(small, "y")[0]), (std::vector<float>{7, 7}));
    EXPECT_EQ(elements(run_of(small, "most")[0]), (std::vector<float>{7}));
  }
}

TEST_F(Outputs, InnerValuesCanBeFetched) {
  const Session made = session();
  const std::vector<Value> inner = made.run({{"x", x_}}, {"inner"});
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_EQ(elements(inner[0]), (std::vector<float>{1, 0, 3, 4}));
  const std::vector<Value> mixed = made.run({{"x", x_}}, {"where", "inner", "y"});
  EXPECT_EQ(elements<std::int64_t>(mixed[0]), (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(elements(mixed[1]), (std::vector<float>{1, 0, 3, 4}));
  EXPECT_EQ(elements(mixed[2]), (std::vector<float>{-1, 0, -3, -4}));
}

/// A fusion must give way to a fetch of what it swallows.
TEST_F(Outputs, InnerValuesOfFusedNodesCanBeFetched) {
  ModelMaker maker;
  maker.input("x", {"1", "2", "4", "4"}).weight("w", {2, 2, 1, 1}, {1, 2, 3, 4});
  maker.node("Conv", {"x", "w"}, "conv").node("Relu", {"conv"}, "y").output("y");
  const Session made = open(maker);
  const Value x = tensor<float>({1, 2, 4, 4}, std::vector<float>(32, -1));
  EXPECT_EQ(elements(made.run({{"x", x}})[0]), std::vector<float>(32, 0));
  const std::vector<Value> both = made.run({{"x", x}}, {"y", "conv"});
  EXPECT_EQ(elements(both[0]), std::vector<float>(32, 0));
  EXPECT_EQ(elements(both[1])[0], -3);
  EXPECT_EQ(elements(both[1])[31], -7);
}

TEST_F(Outputs, AFetchCanBeAFeed) {
  const Session made = session();
  const std::vector<Value> results = made.run({{"x", x_}}, {"x", "y"});
  EXPECT_EQ(elements(results[0]), elements(x_));
  EXPECT_NE(results[0].bytes(), x_.bytes()) << "a copy of its own";
}

TEST_F(Outputs, AFetchMayBeNamedTwice) {
  const Session made = session();
  const std::vector<Value> results = made.run({{"x", x_}}, {"y", "inner", "y"});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(elements(results[0]), (std::vector<float>{-1, 0, -3, -4}));
  EXPECT_EQ(elements(results[2]), (std::vector<float>{-1, 0, -3, -4}));
}

TEST_F(Outputs, UnknownOnesAreNamedWithTheNearest) {
  const Session made = session();
  expect_words(failure([&] {
                 made.run({{"x", x_}}, {"iner"});
               }),
               {"'iner'", "did you mean 'inner'"});
  Binding binding(made);
  expect_words(failure([&] { binding.bind_output("wher"); }), {"'wher'", "did you mean 'where'"});
}

/// What a fetch does not need is neither run nor asked for.
TEST_F(Outputs, OnlyWhatIsNeededIsRun) {
  ModelMaker maker;
  maker.input("a", {"2"}).input("b", {"2"});
  maker.node("Relu", {"a"}, "ya").node("Relu", {"b"}, "yb").output("ya").output("yb");
  const Session made = open(maker);
  const Value a = tensor<float>({2}, {-1, 1});
  EXPECT_EQ(elements(made.run({{"a", a}}, {"ya"})[0]), (std::vector<float>{0, 1}));
  expect_words(failure([&] { made.run({{"a", a}}, {"yb"}); }), {"'b'", "not fed"});
}

TEST_F(Outputs, OfABindingAreReusedWhileTheirShapeStays) {
  const Session made = session();
  Binding binding(made);
  binding.bind_input("x", x_);
  binding.bind_output("y");
  binding.run();
  const void* place = binding.output("y").bytes();
  binding.run();
  EXPECT_EQ(binding.output("y").bytes(), place);
  const Value longer = tensor<float>({6}, {1, 2, 3, 4, 5, 6});
  binding.bind_input("x", longer);
  binding.run();
  EXPECT_EQ(elements(binding.output("y")), (std::vector<float>{-1, -2, -3, -4, -5, -6}));
}

TEST_F(Outputs, BoundToMemoryOfTheCallersMustFit) {
  const Session made = session();
  Binding binding(made);
  binding.bind_input("x", x_);
  std::vector<float> memory(5, 99);
  Value five = Value::borrow<float>({5}, memory.data(), 5);
  binding.bind_output("y", five);
  expect_words(failure([&] { binding.run(); }), {"output 'y'", "[5]", "[4]"});
  Value four = Value::borrow<float>({4}, memory.data(), 5);
  binding.bind_output("y", four);
  binding.run();
  EXPECT_EQ(memory, (std::vector<float>{-1, 0, -3, -4, 99}));
}

TEST_F(Outputs, BoundValuesOfTheCallersMustFitToo) {
  const Session made = session();
  Binding binding(made);
  binding.bind_input("x", x_);
  Value shorter = Value::tensor<float>({3}), other = Value::tensor<double>({4}),
        right = Value::tensor<float>({4});
  binding.bind_output("y", shorter);
  expect_words(failure([&] { binding.run(); }), {"output 'y'", "[3]", "[4]"});
  EXPECT_EQ(shorter.dims(), (std::vector<std::int64_t>{3}));
  binding.bind_output("y", other);
  expect_words(failure([&] { binding.run(); }), {"output 'y'", "double", "float"});
  EXPECT_EQ(other.type(), "tensor(double)");
  binding.bind_output("y", right);
  binding.run();
  EXPECT_EQ(elements(right), (std::vector<float>{-1, 0, -3, -4}));
}

}  // namespace
}  // namespace backplane::runtime_test

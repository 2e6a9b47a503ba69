// Feeds that do not fit: each message names the input, what it is and what it should be.
#include <onnx/onnx-data.pb.h>

#include "tests/unit/runtime/session_test.hpp"

namespace backplane::runtime_test {
namespace {

class Feeds : public SessionTest {
 protected:
  /// sum = a + b with a float [batch,3], b float [batch,3].
  Session sum() {
    ModelMaker maker;
    maker.input("left", {"batch", "3"}).input("right", {"batch", "3"});
    return open(maker.node("Add", {"left", "right"}, "sum").output("sum", {"batch", "3"}));
  }
  const Value good_ = tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
};

TEST_F(Feeds, ThatFitAreTaken) {
  const Session session = sum();
  const std::vector<Value> results = session.run({{"left", good_}, {"right", good_}});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].dims(), (Dims{2, 3}));
  EXPECT_EQ(elements(results[0]), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(elements(session.run({{"right", good_}, {"left", good_}})[0])[5], 12) << "in any order";
}

TEST_F(Feeds, AMissingOneIsNamedWithItsTypeAndShape) {
  const Session session = sum();
  expect_words(failure([&] {
                 session.run({{"left", good_}});
               }),
               {"'right'", "tensor(float)", "[batch,3]", "not fed"});
  expect_words(failure([&] { session.run(backplane::Feeds{}); }), {"'left'"});
}

TEST_F(Feeds, AnEmptyOneIsNamed) {
  const Session session = sum();
  Value moved = tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Value there = std::move(moved);
  // NOLINTNEXTLINE(bugprone-use-after-move): that it is told is what is tested
  expect_words(failure([&] {
                 session.run({{"left", there}, {"right", moved}});
               }),
               {"'right'", "no value", "moved from"});
  expect_words(failure([&] { moved.data<float>(); }), {"is empty", "tensor(float)"});
  expect_words(failure([&] { there.data<double>(); }), {"tensor(float)", "not a tensor(double)"});
}

TEST_F(Feeds, AnUnknownOneIsNamedWithTheNearest) {
  const Session session = sum();
  expect_words(failure([&] {
                 session.run({{"left", good_}, {"rigth", good_}});
               }),
               {"no input 'rigth'", "did you mean 'right'", "its inputs are 'left', 'right'"});
  expect_words(failure([&] {
                 session.run({{"left", good_}, {"zzzzz", good_}});
               }),
               {"'zzzzz'", "its inputs are 'left', 'right'"});
}

TEST_F(Feeds, OneFedTwiceIsNamed) {
  const Session session = sum();
  expect_words(failure([&] {
                 session.run({{"left", good_}, {"right", good_}, {"left", good_}});
               }),
               {"'left'", "fed twice"});
}

TEST_F(Feeds, AWrongElementTypeIsNamed) {
  const Session session = sum();
  const Value doubles = tensor<double>({2, 3}, std::vector<double>(6));
  expect_words(failure([&] {
                 session.run({{"left", good_}, {"right", doubles}});
               }),
               {"'right'", "should be tensor(float) [batch,3]", "is tensor(double) [2,3]"});
}

TEST_F(Feeds, AWrongRankIsNamed) {
  const Session session = sum();
  const Value flat = tensor<float>({3}, {1, 2, 3});
  expect_words(failure([&] {
                 session.run({{"left", flat}, {"right", good_}});
               }),
               {"'left'", "should be tensor(float) [batch,3]", "is tensor(float) [3]"});
  const Value scalar = tensor<float>({}, {1});
  expect_words(failure([&] {
                 session.run({{"left", scalar}, {"right", good_}});
               }),
               {"'left'", "is tensor(float) []"});
}

TEST_F(Feeds, WrongDimsAreNamed) {
  const Session session = sum();
  const Value wide = tensor<float>({2, 4}, std::vector<float>(8));
  expect_words(failure([&] {
                 session.run({{"left", wide}, {"right", good_}});
               }),
               {"'left'", "should be tensor(float) [batch,3]", "is tensor(float) [2,4]"});
}

TEST_F(Feeds, ASymbolHasOneSize) {
  const Session session = sum();
  const Value longer = tensor<float>({5, 3}, std::vector<float>(15));
  expect_words(failure([&] {
                 session.run({{"left", good_}, {"right", longer}});
               }),
               {"'batch'", "2 in the input 'left'", "5 in the input 'right'"});
  EXPECT_EQ(session.run({{"left", longer}, {"right", longer}})[0].dims(), (Dims{5, 3}));
}

TEST_F(Feeds, ASymbolHasOneSizeWithinAnInputToo) {
  ModelMaker maker;
  maker.input("square", {"side", "side"}).node("Relu", {"square"}, "y");
  const Session session = open(maker.output("y"));
  expect_words(failure([&] {
                 session.run({{"square", good_}});
               }),
               {"'side'", "2 in the input 'square'", "3 in the input 'square'"});
}

TEST_F(Feeds, SymbolsMayBeZero) {
  const Session session = sum();
  const Value none = tensor<float>({0, 3}, {});
  const Value sums = std::move(session.run({{"left", none}, {"right", none}})[0]);
  EXPECT_EQ(sums.dims(), (Dims{0, 3}));
}

TEST_F(Feeds, AFixedSymbolIsChecked) {
  ModelMaker maker;
  maker.input("x", {"batch", "3"}).node("Relu", {"x"}, "y").output("y");
  const Session session = open(maker, on_cpu().set("dim.batch", "4"));
  expect_words(failure([&] {
                 session.run({{"x", good_}});
               }),
               {"'x'", "[4,3]", "is tensor(float) [2,3]"});
}

TEST_F(Feeds, OfAnotherKindAreNamed) {
  const Session session = sum();
  ::onnx::SequenceProto proto;
  proto.set_elem_type(::onnx::SequenceProto::TENSOR);
  const std::string bytes = proto.SerializeAsString();
  const Value sequence = Value::parse("sequence", bytes.data(), bytes.size());
  expect_words(failure([&] {
                 session.run({{"left", sequence}, {"right", good_}});
               }),
               {"'left'", "should be tensor(float) [batch,3]", "seq("});
}

/// What a graph would have made can be fed; what leads to it is then not needed.
TEST_F(Feeds, AnInnerValueCanBeFed) {
  ModelMaker maker;
  maker.input("x", {"3"}).node("Relu", {"x"}, "inner").node("Neg", {"inner"}, "y").output("y");
  const Session session = open(maker, on_cpu().set("optimization", "none"));
  const Value fed = tensor<float>({3}, {1, -2, 3});
  EXPECT_EQ(elements(session.run({{"inner", fed}})[0]), (std::vector<float>{-1, 2, -3}));
  EXPECT_EQ(elements(session.run({{"x", fed}})[0]), (std::vector<float>{-1, 0, -3}));
  const Value wrong = tensor<double>({3}, {1, 2, 3});
  expect_words(failure([&] { session.run({{"inner", wrong}}); }), {"'inner'", "tensor(double)"});
}

TEST_F(Feeds, AnInitializerIsReplacedOnlyWhereTheModelSaysSo) {
  for (const bool listed : {true, false}) {
    ModelMaker maker;
    maker.input("x", {"3"});
    if (listed) maker.input("w", {"3"});
    maker.weight("w", {3}, {10, 20, 30}).node("Add", {"x", "w"}, "y").output("y");
    const Session session = open(maker);
    const Value x = tensor<float>({3}, {1, 2, 3});
    EXPECT_EQ(elements(session.run({{"x", x}})[0])[2], 33);
    EXPECT_EQ(session.inputs().size(), 1u);
    EXPECT_EQ(session.overridable_initializers().size(), listed ? 1u : 0u);
    if (listed) {
      EXPECT_EQ(elements(session.run({{"x", x}, {"w", x}})[0])[2], 6);
      EXPECT_EQ(elements(session.run({{"x", x}})[0])[2], 33) << "for that run only";
    } else {
      expect_words(failure([&] {
                     session.run({{"x", x}, {"w", x}});
                   }),
                   {"'w'", "cannot be replaced"});
    }
  }
}

// The same by a binding, which checks once per value that is bound.

class BoundFeeds : public Feeds {};

TEST_F(BoundFeeds, AreCheckedLikeOthers) {
  const Session session = sum();
  Binding binding(session);
  expect_words(failure([&] { binding.bind_input("rigth", good_); }), {"'rigth'", "'right'"});
  binding.bind_input("left", good_);
  expect_words(failure([&] { binding.run(); }), {"'right'", "not fed"});
  const Value doubles = tensor<double>({2, 3}, std::vector<double>(6));
  binding.bind_input("right", doubles);
  expect_words(failure([&] { binding.run(); }), {"'right'", "tensor(double)"});
  const Value longer = tensor<float>({5, 3}, std::vector<float>(15));
  binding.bind_input("right", longer);
  expect_words(failure([&] { binding.run(); }),
               {"'batch'", "2 in the input 'left'", "5 in the input 'right'"});
  binding.bind_input("right", good_);
  binding.run();
  EXPECT_EQ(elements(binding.output("sum"))[5], 12) << "after all that";
}

TEST_F(BoundFeeds, MayChangeShape) {
  const Session session = sum();
  Binding binding(session);
  for (const std::int64_t rows : {2, 7, 1, 0, 2}) {
    const Value x =
        tensor<float>({rows, 3}, std::vector<float>(static_cast<std::size_t>(rows) * 3, 1));
    binding.bind_input("left", x);
    binding.bind_input("right", x);
    binding.run();
    EXPECT_EQ(binding.output("sum").dims(), (Dims{rows, 3}));
    EXPECT_EQ(elements(binding.output("sum")),
              std::vector<float>(static_cast<std::size_t>(rows) * 3, 2));
  }
}

}  // namespace
}  // namespace backplane::runtime_test

// Operators that draw numbers: what the numbers are distributed as, and when they repeat.
// https://onnx.ai/onnx/operators/onnx__Dropout.html and the others
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/ops/cases.hpp"
#include "tests/ops/host.hpp"
#include "tests/ops/model_writer.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kCount = 20000;
/// Five standard deviations of a share of kCount draws: a right one fails less than once in a million.
constexpr double kSlack = 5 * 0.5 / 141.4;

/// A node that reads x and initializers, y and mask its outputs.
struct Drawn {
  Node node;
  std::int64_t opset = 22;
  Tensor x;
  std::vector<std::pair<std::string, Tensor>> constants;
  std::vector<ValueInfo> outputs;

  std::string model() const {
    Model model;
    model.nodes = {node};
    model.inputs = {{"x", x.type, x.dims}};
    model.outputs = outputs;
    model.initializers = constants;
    model.opsets = {{"", opset}};
    return write_model(model);
  }
};

Drawn dropout(ElementType type, double ratio, bool trains = true) {
  Drawn drawn;
  drawn.node = {.op_type = "Dropout", .opset = 22};
  drawn.node.inputs = {"x", "ratio", "trains"};
  drawn.node.outputs = {"y", "mask"};
  drawn.x = tensor(type, {kCount}, std::vector<double>(kCount, 3));
  drawn.constants = {{"ratio", f32({}, {ratio})}, {"trains", boolean({}, {trains ? 1.0 : 0.0})}};
  drawn.outputs = {{"y", type, {kCount}}, {"mask", ElementType::Bool, {kCount}}};
  return drawn;
}

std::vector<Tensor> run(const Drawn& drawn) {
  Session session(drawn.model(), {{"providers", "cpu"}});
  return session.run({{"x", drawn.x}}, {"y", "mask"});
}

std::vector<double> values(const Tensor& tensor) { return to_array(tensor).values; }

double share(const Tensor& mask) {
  const std::vector<double> kept = values(mask);
  return std::accumulate(kept.begin(), kept.end(), 0.0) / static_cast<double>(kept.size());
}

TEST(Dropout, DropsTheShareAndScalesTheRest) {
  for (const ElementType type : {ElementType::Float, ElementType::Double, ElementType::Float16}) {
    for (const double ratio : {0.25, 0.5, 0.75}) {
      const std::vector<Tensor> results = run(dropout(type, ratio));
      EXPECT_NEAR(share(results[1]), 1 - ratio, kSlack);
      const std::vector<double> y = values(results[0]), mask = values(results[1]);
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_NEAR(y[i], mask[i] * 3 / (1 - ratio), mask[i] * 1e-2) << i;
    }
  }
}

TEST(Dropout, DropsNothingWhereItDoesNotTrain) {
  for (const Drawn& drawn :
       {dropout(ElementType::Float, 0.5, false), dropout(ElementType::Float, 0)}) {
    const std::vector<Tensor> results = run(drawn);
    EXPECT_EQ(share(results[1]), 1);
    EXPECT_EQ(values(results[0]), std::vector<double>(kCount, 3));
  }
}

TEST(Dropout, DrawsAnewInEachRunAndTheSameOfASeed) {
  Drawn drawn = dropout(ElementType::Float, 0.5);
  drawn.node.attributes = {{"seed", 7}};
  Session one(drawn.model(), {{"providers", "cpu"}}), other(drawn.model(), {{"providers", "cpu"}});
  const auto draw = [&](Session& session) { return session.run({{"x", drawn.x}}, {"y"}).at(0); };
  const Tensor first = draw(one), second = draw(one);
  EXPECT_NE(first.bytes, second.bytes);
  EXPECT_EQ(draw(other).bytes, first.bytes);
  drawn.node.attributes = {{"seed", 8}};
  Session third(drawn.model(), {{"providers", "cpu"}});
  EXPECT_NE(draw(third).bytes, first.bytes);
}

TEST(Dropout, FollowsAModeThatIsFed) {
  Drawn drawn = dropout(ElementType::Float, 0.5);
  drawn.constants.pop_back();
  Model model;
  model.nodes = {drawn.node};
  model.inputs = {{"x", drawn.x.type, drawn.x.dims}, {"trains", ElementType::Bool, {}}};
  model.outputs = drawn.outputs;
  model.initializers = drawn.constants;
  model.opsets = {{"", drawn.opset}};
  Session session(write_model(model), {{"providers", "cpu"}});
  for (const bool trains : {false, true, false, true}) {
    const Tensor mode = boolean({}, {trains ? 1.0 : 0.0});
    const double kept = share(session.run({{"x", drawn.x}, {"trains", mode}}, {"mask"}).at(0));
    EXPECT_NEAR(kept, trains ? 0.5 : 1, kSlack) << trains;
  }
}

TEST(Dropout, OfTheFirstVersionsTrainsWhereItsMaskIsUsed) {
  Drawn drawn = dropout(ElementType::Float, 0.5);
  drawn.opset = drawn.node.opset = 6;
  drawn.node.inputs = {"x"};
  drawn.node.attributes = {{"ratio", 0.25f}};
  drawn.constants.clear();
  drawn.outputs[1].type = ElementType::Float;
  EXPECT_NEAR(share(run(drawn)[1]), 0.75, kSlack);
  drawn.node.attributes = {{"ratio", 0.25f}, {"is_test", 1}};
  EXPECT_EQ(share(run(drawn)[1]), 1);
}

TEST(Dropout, RefusesARatioThatIsNone) {
  for (const double ratio : {-0.5, 1.0, 2.0, std::nan("")}) {
    try {
      run(dropout(ElementType::Float, ratio));
      ADD_FAILURE() << "a ratio of " << ratio << " is taken";
    } catch (const HostError& error) {
      EXPECT_NE(std::string(error.what()).find("ratio"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test

// Constant weights below the normal numbers: products of the CPU provider take them as 0 where other weights are so large that they
// say nothing, and as they are elsewhere.
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/runner.hpp"

namespace backplane::ops_test {
namespace {

constexpr double kSubnormal = 1e-40;
constexpr double kHuge = 1e38;  // what makes a number of a subnormal one
constexpr double kKept = kSubnormal * kHuge;
constexpr double kTiny = 1e-30;  // a normal number, but too small to say that others are nothing

enum class Product { MatMul, Gemm, TurnedGemm, Conv, ScaledConv, ConvTranspose };

/// `depth` rows of 16 columns, every other one subnormal, the last among them, or turned.
Tensor weights(std::int64_t depth, double other, bool turned, Dims dims) {
  constexpr std::int64_t kColumns = 16;
  std::vector<double> values;
  for (std::int64_t i = 0; i < depth * kColumns; ++i) {
    const std::int64_t row = turned ? i % depth : i / kColumns;
    values.push_back((depth - row) % 2 == 1 ? kSubnormal : other);
  }
  return f32(std::move(dims), values);
}

/// A product whose last element of `depth` alone is not 0, and meets the subnormal weights.
GraphCase product(Product kind, std::int64_t depth, double other) {
  Random random(1);
  GraphWriter g(17, random);
  std::vector<double> values(static_cast<std::size_t>(depth), 0);
  values.back() = kHuge;
  const bool turned =
      kind == Product::TurnedGemm || kind == Product::Conv || kind == Product::ScaledConv;
  const bool image = turned && kind != Product::TurnedGemm;
  const auto row = [&](Dims dims) { return g.feed(f32(std::move(dims), values)); };
  const auto matrix = [&](Dims dims) {
    return g.constant(weights(depth, other, turned, std::move(dims)));
  };
  if (kind == Product::MatMul)
    return g.done({g.node("MatMul", {row({1, depth}), matrix({depth, 16})})});
  if (kind == Product::Gemm)
    return g.done({g.node("Gemm", {row({1, depth}), matrix({depth, 16})})});
  if (kind == Product::TurnedGemm)
    return g.done({g.node("Gemm", {row({1, depth}), matrix({16, depth})}, {{"transB", 1}})});
  if (!image)
    return g.done({g.node("ConvTranspose", {row({1, depth, 1, 1}), matrix({depth, 16, 1, 1})})});
  std::string y = g.node("Conv", {row({1, depth, 1, 1}), matrix({16, depth, 1, 1})});
  if (kind == Product::ScaledConv)
    y = g.node("Mul", {y, g.constant(f32({16, 1, 1}, std::vector<double>(16, 1)))});
  return g.done({y});
}

std::vector<reference::Array> expected(const GraphCase& graph, Product kind, double value) {
  const bool image =
      kind == Product::Conv || kind == Product::ScaledConv || kind == Product::ConvTranspose;
  return std::vector<reference::Array>(
      graph.outputs.size(),
      reference::filled(ElementType::Float, image ? Dims{1, 16, 1, 1} : Dims{1, 16}, value));
}

void expect(double other, Form form, double value) {
  for (const Target& target : find_targets()) {
    if (target.provider != "cpu") continue;
    for (const Product kind : {Product::MatMul, Product::Gemm, Product::TurnedGemm, Product::Conv,
                               Product::ScaledConv, Product::ConvTranspose}) {
      for (const std::int64_t depth : {2, 37, 1100}) {
        const GraphCase graph = product(kind, depth, other);
        const Outcome outcome = run_case(graph, expected(graph, kind, value), target, form, "all");
        EXPECT_EQ(outcome.kind, Outcome::Kind::Passed)
            << target.name << ", product " << static_cast<int>(kind) << ", depth " << depth << ": "
            << outcome.text;
      }
    }
  }
}

TEST(SubnormalWeights, CountAsZeroBesideLargeOnes) { expect(1, Form::Fixed, 0); }
TEST(SubnormalWeights, StayBesideSmallOnes) { expect(kTiny, Form::Fixed, kKept); }
TEST(SubnormalWeights, StayWhereTheyAreFed) { expect(1, Form::Open, kKept); }

}  // namespace
}  // namespace backplane::ops_test

// Gelu behind products, as an operator and as exporters write it: which of them a product takes over.
#include <cmath>

#include "tests/cuda/models.hpp"
#include "tests/ops/explained.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

constexpr std::int64_t kWidth = 12, kColumns = 20;

/// A graph that ends in something of a product.
class Perceptron {
 public:
  Perceptron() : random_(3), g_(20, random_) {
    const std::string product =
        g_.node("MatMul", {g_.feed({2, 5, kWidth}), g_.constant({kWidth, kColumns})});
    x_ = g_.node("Add", {product, g_.constant({kColumns}, -4, 4)});
  }
  const std::string& x() const { return x_; }
  GraphWriter& graph() { return g_; }
  std::string number(double value) { return g_.constant(f32({}, {value})); }
  std::string binary(const char* op_type, const std::string& a, const std::string& b) {
    return g_.node(op_type, {a, b});
  }
  std::string scaled(const std::string& a, double factor) {
    return binary("Mul", a, number(factor));
  }
  std::string raised(const std::string& a, double addend = 1) {
    return binary("Add", a, number(addend));
  }
  /// What the provider made of it; its results are right, but for `error`.
  Explained made(const std::string& y, double error, const std::string& precision = "fp32",
                 const std::string& form = "exact") {
    const GraphCase graph = g_.done({y});
    Session session(model_of(graph, 3), {{"providers", "cuda_stand_in:0"},
                                         {"fallback", "forbid"},
                                         {"precision", precision},
                                         {"provider.cuda_stand_in.gelu", form}});
    Session processor(model_of(graph, 3), {{"providers", "cpu"}});
    expect_same(session.run(graph.feeds, graph.outputs), processor.run(graph.feeds, graph.outputs),
                error);
    return explained(session);
  }

 private:
  Random random_;
  GraphWriter g_;
  std::string x_;
};

using Form = std::string (*)(Perceptron&);

std::string erf_operator(Perceptron& p) { return p.graph().node("Gelu", {p.x()}); }
std::string erf_halved_last(Perceptron& p) {
  const std::string erf = p.graph().node("Erf", {p.binary("Div", p.x(), p.number(std::sqrt(2.0)))});
  return p.scaled(p.binary("Mul", p.x(), p.raised(erf)), 0.5);
}
std::string erf_halved_first(Perceptron& p) {
  const std::string erf = p.graph().node("Erf", {p.scaled(p.x(), std::sqrt(0.5))});
  return p.binary("Mul", p.raised(erf), p.scaled(p.x(), 0.5));
}
std::string tanh_operator(Perceptron& p) {
  return p.graph().node("Gelu", {p.x()}, {{"approximate", std::string("tanh")}});
}
std::string tanh_of_a_power(Perceptron& p) {
  const std::string cube = p.scaled(p.binary("Pow", p.x(), p.number(3)), 0.044715);
  const std::string inner = p.scaled(p.binary("Add", p.x(), cube), 0.7978845608);
  return p.binary("Mul", p.scaled(p.x(), 0.5), p.raised(p.graph().node("Tanh", {inner})));
}
std::string tanh_of_products(Perceptron& p) {
  const std::string square = p.scaled(p.binary("Mul", p.x(), p.x()), 0.044715);
  const std::string inner = p.binary("Mul", p.scaled(p.x(), 0.7978845608), p.raised(square));
  const std::string gate = p.scaled(p.raised(p.graph().node("Tanh", {inner})), 0.5);
  return p.binary("Mul", p.x(), gate);
}

constexpr Form kErfForms[] = {erf_operator, erf_halved_last, erf_halved_first};
constexpr Form kTanhForms[] = {tanh_operator, tanh_of_a_power, tanh_of_products};

TEST(CudaGelu, TheFormWithTanhIsPartOfTheProduct) {
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    for (const Form form : kTanhForms) {
      Perceptron p;
      const double error = precision == std::string("fp32") ? 1e-5 : 8e-2;
      const Explained made = p.made(form(p), error, precision);
      EXPECT_EQ(made.steps, precision == std::string("fp32") ? 1u : 3u) << made.text;
    }
  }
}

TEST(CudaGelu, TheOtherOneIsExactAndBehindItUnlessTheProgramSaysSo) {
  for (const Form form : kErfForms) {
    Perceptron exact, by_tanh;
    EXPECT_EQ(exact.made(form(exact), 1e-5).steps, 2u);
    EXPECT_EQ(by_tanh.made(form(by_tanh), 1e-3, "fp32", "tanh").steps, 1u);
  }
}

/// However it is written, it is one expression, also within a larger one.
TEST(CudaGelu, WhatIsDecomposedIsPutTogetherAgain) {
  for (const Form form : kErfForms) {
    for (const char* precision : {"fp32", "fp16", "bf16"}) {
      Perceptron alone, gated;
      const double error = precision == std::string("fp32") ? 1e-5 : 8e-2;
      const Explained made = alone.made(form(alone), error, precision);
      const std::string gelu = form(gated);
      const Explained inner = gated.made(gated.binary("Mul", gated.graph().node("Neg", {gelu}),
                                                      gated.graph().feed({2, 5, kColumns})),
                                         error, precision);
      EXPECT_EQ(inner.steps, made.steps) << inner.text;
    }
  }
}

/// Each is Gelu but for one thing.
TEST(CudaGelu, WhatIsAlmostGeluIsNone) {
  const auto steps = [](Form form) {
    Perceptron p;
    return p.made(form(p), 1e-5, "fp32", "tanh").steps;
  };
  EXPECT_GT(steps([](Perceptron& p) {
              const std::string erf = p.graph().node("Erf", {p.scaled(p.x(), 0.7)});
              return p.binary("Mul", p.raised(erf), p.scaled(p.x(), 0.5));
            }),
            1u)
      << "another factor";
  EXPECT_GT(steps([](Perceptron& p) {
              const std::string erf = p.graph().node("Erf", {p.scaled(p.x(), std::sqrt(0.5))});
              const std::string gelu = p.binary("Mul", p.raised(erf), p.scaled(p.x(), 0.5));
              return p.binary("Add", gelu, p.graph().node("Abs", {p.x()}));
            }),
            1u)
      << "another reader of x";
  EXPECT_GT(steps([](Perceptron& p) {
              const std::string erf = p.graph().node("Erf", {p.scaled(p.x(), std::sqrt(0.5))});
              const std::string gelu = p.binary("Mul", p.raised(erf), p.scaled(p.x(), 0.5));
              return p.binary("Add", gelu, p.graph().node("Abs", {erf}));
            }),
            1u)
      << "another reader of a part";
  EXPECT_GT(steps([](Perceptron& p) {
              const std::string erf = p.graph().node("Erf", {p.scaled(p.x(), std::sqrt(0.5))});
              return p.binary("Mul", p.raised(erf),
                              p.binary("Mul", p.x(), p.graph().constant(f32({1, 1, 1, 1}, {0.5}))));
            }),
            1u)
      << "a constant that adds an axis";
}

}  // namespace
}  // namespace backplane::ops_test

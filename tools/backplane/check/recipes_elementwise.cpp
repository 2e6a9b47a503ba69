// Operators that work element by element.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

/// One input of any shape with elements in [low, high]; the attributes as they are.
Recipe unary(double low, double high, const Attributes& attributes = {}, bp_dtype result = BP_NONE,
             const char* param = "T") {
  return {param, [=](const Draft& draft) {
            std::vector<NodeCase> cases;
            for (const Dims& dims : any_shapes(draft.numbers())) {
              NodeCase node = draft.node(attributes);
              node.inputs = {draft.data(dims, low, high)};
              if (result != BP_NONE) node.outputs = {result};
              cases.push_back(node);
            }
            return cases;
          }};
}

/// Pairs of shapes: equal ones, and ones that broadcast in each way.
std::vector<std::pair<Dims, Dims>> shape_pairs(Generator& numbers) {
  std::vector<std::pair<Dims, Dims>> pairs;
  for (const Dims& dims : any_shapes(numbers)) pairs.emplace_back(dims, dims);
  const std::vector<std::pair<Dims, Dims>> broadcast = {{{2, 3}, {}},
                                                        {{}, {5}},
                                                        {{4, 7}, {7}},
                                                        {{4, 1}, {1, 6}},
                                                        {{2, 3, 4}, {3, 1}},
                                                        {{3, 1, 5}, {2, 1, 4, 1}},
                                                        {{1, 8, 5, 5}, {8, 1, 1}},
                                                        {{2, 0}, {2, 1}}};
  pairs.insert(pairs.end(), broadcast.begin(), broadcast.end());
  return pairs;
}

struct Range {
  double low, high;
};

Recipe binary(Range a, Range b, bp_dtype result = BP_NONE, const Attributes& attributes = {}) {
  return {"T", [=](const Draft& draft) {
            std::vector<NodeCase> cases;
            for (const auto& [first, second] : shape_pairs(draft.numbers())) {
              NodeCase node = draft.node(attributes);
              node.inputs = {draft.data(first, a.low, a.high), draft.data(second, b.low, b.high)};
              if (result != BP_NONE) node.outputs = {result};
              cases.push_back(node);
            }
            return cases;
          }};
}

/// One to three inputs that broadcast.
std::vector<NodeCase> variadic(const Draft& draft) {
  std::vector<NodeCase> cases;
  const bool broadcasts = draft.since() >= 8;
  for (const Dims& dims : any_shapes(draft.numbers())) {
    for (const int count : {1, 2, 3}) {
      NodeCase node = draft.node();
      for (int i = 0; i < count; ++i)
        node.inputs.push_back(draft.data(i == 1 && broadcasts && !dims.empty() ? Dims{1} : dims));
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> power(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const auto& [first, second] : shape_pairs(draft.numbers())) {
    NodeCase node = draft.node();
    node.inputs = {draft.data(first, 0.5, 3), draft.data(second, 0, 3)};
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> clip(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (draft.since() < 12 && !is_floating(draft.dtype())) return cases;  // not yet of integers
  for (const Dims& dims : any_shapes(draft.numbers())) {
    NodeCase node = draft.node();
    if (draft.since() < 11) {
      node.attributes = {{"min", -1.0f}, {"max", 1.0f}};
      node.inputs = {draft.data(dims)};
    } else {
      node.inputs = {draft.data(dims), {}, {}};
      for (const std::size_t limit : {1, 2}) {
        NodeCase::Input& bound = node.inputs[limit];
        bound = {make_tensor(draft.dtype(), {}), true, true};
        bound.tensor.set(0, limit == 1 ? 0 : 1);
      }
    }
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> where(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const auto& [first, second] : shape_pairs(draft.numbers())) {
    NodeCase node = draft.node();
    node.inputs = {draft.data_of(BP_BOOL, first, 0, 1), draft.data(second), draft.data(first)};
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> slopes(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{2, 3}, Dims{7, 3}, Dims{33}}) {
    for (const Dims& slope : {Dims{1}, Dims{dims.back()}}) {
      NodeCase node = draft.node();
      node.inputs = {draft.data(dims), draft.weight(slope, 0, 2)};
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> cast(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype to :
       {BP_FLOAT, BP_DOUBLE, BP_INT32, BP_INT64, BP_UINT8, BP_BOOL, BP_FLOAT16}) {
    for (const Dims& dims : any_shapes(draft.numbers())) {
      NodeCase node = draft.node({{"to", static_cast<std::int64_t>(to)}});
      node.inputs = {draft.data(dims, 0, 100)};
      node.outputs = {to};
      cases.push_back(node);
    }
  }
  return cases;
}

}  // namespace

void add_elementwise_recipes(RecipeBook& book) {
  for (const char* name : {"Abs",       "Neg",         "Relu",
                           "Sigmoid",   "Tanh",        "Exp",
                           "Ceil",      "Floor",       "Round",
                           "Sign",      "Erf",         "Sin",
                           "Cos",       "Atan",        "Sinh",
                           "Cosh",      "Asinh",       "Softplus",
                           "Softsign",  "HardSwish",   "Mish",
                           "LeakyRelu", "Elu",         "Selu",
                           "Celu",      "HardSigmoid", "ThresholdedRelu",
                           "Gelu",      "Shrink",      "Not",
                           "BitwiseNot"})
    book[name] = unary(-3, 3);
  for (const char* name : {"Identity"}) book[name] = unary(-100, 100);
  for (const char* name : {"Log", "Sqrt"}) book[name] = unary(0.125, 9);
  for (const char* name : {"Tan", "Asin", "Acos", "Atanh"}) book[name] = unary(-0.9, 0.9);
  book["Identity"].param = "V";
  book["Acosh"] = unary(1.25, 9);
  book["Reciprocal"] = unary(0.25, 4);
  book["LeakyRelu"] = unary(-3, 3, {{"alpha", 0.25f}});
  book["Elu"] = unary(-3, 3, {{"alpha", 0.75f}});
  book["IsNaN"] = unary(-3, 3, {}, BP_BOOL, "T1");
  book["IsInf"] = unary(-3, 3, {}, BP_BOOL, "T1");

  for (const char* name :
       {"Add", "Sub", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    book[name] = binary({-4, 4}, {-4, 4});
  book["BitShift"] = binary({0, 100}, {0, 7}, BP_NONE, {{"direction", std::string("RIGHT")}});
  // Positive numbers: their remainder is the same in each of its two ways.
  book["Mod"] = binary({0, 100}, {1, 9}, BP_NONE, {{"fmod", std::int64_t{1}}});
  book["PRelu"] = {"T", slopes};
  book["Swish"] = unary(-3, 3, {{"alpha", 1.5f}});
  book["Div"] = binary({-9, 9}, {1, 4});
  for (const char* name :
       {"And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
    book[name] = binary({-2, 2}, {-2, 2}, BP_BOOL);
  for (const char* name : {"Max", "Min", "Sum", "Mean"}) book[name] = {"T", variadic};
  book["Pow"] = {"T", power};
  book["Clip"] = {"T", clip};
  book["Where"] = {"T", where};
  book["Cast"] = {"T1", cast};
}

}  // namespace backplane::cli::check

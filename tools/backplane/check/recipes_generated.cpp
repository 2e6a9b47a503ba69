// Operators that make values from sizes, seeds and attributes, and those that only change what elements are called.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

/// Shapes that a value of sizes spells out.
const std::vector<Ints>& shapes() {
  static const std::vector<Ints> kShapes = {{2, 3}, {7, 1}, {3, 0}, {33, 4}};
  return kShapes;
}

std::vector<NodeCase> constant_of_shape(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T2", BP_FLOAT)) return cases;
  for (const Ints& shape : shapes()) {
    cases.push_back(with_inputs(draft.node(), {{int64s(shape), false, false}}));
    cases.back().outputs = {BP_FLOAT};
    cases.push_back(with_inputs(draft.node(), {Draft::ints(shape)}));
    cases.back().outputs = {BP_FLOAT};
  }
  return cases;
}

std::vector<NodeCase> constant(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (draft.since() < 12) return cases;
  if (draft.dtype() == BP_FLOAT) cases.push_back(draft.node({{"value_float", 1.5f}}));
  if (draft.dtype() == BP_INT64) cases.push_back(draft.node({{"value_ints", Ints{1, 2, 3}}}));
  return cases;
}

std::vector<NodeCase> diagonal(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t k : {-1, 0, 2}) {
    for (const Dims& dims : {Dims{3, 4}, Dims{5, 2}})
      cases.push_back(with_inputs(draft.node({{"k", k}}), {draft.data(dims)}));
  }
  return cases;
}

std::vector<NodeCase> range(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const double limit : {1.0, 9.0, 40.0}) {
    NodeCase node = draft.node();
    for (const double number : {1.0, limit, 2.0}) {
      node.inputs.push_back(draft.number(draft.dtype(), number));
      node.inputs.back().is_constant = false;
    }
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> random_numbers(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Ints& shape : shapes())
    cases.push_back(draft.node(
        {{"shape", shape}, {"seed", 3.0f}, {"dtype", static_cast<std::int64_t>(draft.dtype())}}));
  return cases;
}

/// RandomNormalLike, RandomUniformLike, Bernoulli.
std::vector<NodeCase> random_like(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T2", draft.dtype())) return cases;
  for (const Ints& dims : shapes())
    cases.push_back(with_inputs(draft.node({{"seed", 3.0f}}), {draft.data(dims, 0, 1)}));
  return cases;
}

std::vector<NodeCase> multinomial(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{2, 3}, Dims{4, 7}}) {
    cases.push_back(with_inputs(draft.node({{"sample_size", std::int64_t{5}}, {"seed", 3.0f}}),
                                {draft.data(dims, 0, 1)}));
    cases.back().outputs = {BP_INT32};
  }
  return cases;
}

std::vector<NodeCase> window(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T2", BP_FLOAT)) return cases;
  for (const std::int64_t periodic : {0, 1}) {
    for (const double size : {4.0, 17.0}) {
      cases.push_back(
          with_inputs(draft.node({{"periodic", periodic}}), {draft.number(draft.dtype(), size)}));
      cases.back().outputs = {BP_FLOAT};
    }
  }
  return cases;
}

std::vector<NodeCase> mel_weights(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T2", BP_FLOAT) || !draft.lists("T3", BP_FLOAT)) return cases;
  for (const double bins : {8.0, 12.0}) {
    const bp_dtype type = draft.dtype();
    if (element_bytes(type) == 1) continue;
    cases.push_back(with_inputs(
        draft.node(), {draft.number(type, bins), draft.number(type, 128), draft.number(type, 8192),
                       draft.number(BP_FLOAT, 0), draft.number(BP_FLOAT, 4096)}));
    cases.back().outputs = {BP_FLOAT};
  }
  return cases;
}

std::vector<NodeCase> dropout(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{2, 3}, Dims{4, 5}, Dims{7}, Dims{33}})
    cases.push_back(with_inputs(draft.node(), {draft.data(dims)}));
  return cases;
}

std::vector<NodeCase> cast_like(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype to : {BP_FLOAT, BP_DOUBLE, BP_INT32, BP_INT64, BP_UINT8, BP_FLOAT16}) {
    if (!draft.lists("T2", to)) continue;
    for (const Dims& dims : {Dims{2, 3}, Dims{7, 33}, Dims{}}) {
      cases.push_back(
          with_inputs(draft.node(), {draft.data(dims, 0, 100), draft.fixed(to, {1}, 0, 1)}));
      cases.back().outputs = {to};
    }
  }
  return cases;
}

std::vector<NodeCase> bit_cast(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const bp_dtype to : {BP_UINT8, BP_UINT16, BP_UINT32, BP_UINT64}) {
    if (element_bytes(to) != element_bytes(draft.dtype()) || !draft.lists("T2", to)) continue;
    for (const Dims& dims : {Dims{2, 3}, Dims{7, 33}, Dims{}}) {
      cases.push_back(with_inputs(draft.node({{"to", static_cast<std::int64_t>(to)}}),
                                  {draft.data(dims, 0, 100)}));
      cases.back().outputs = {to};
    }
  }
  return cases;
}

}  // namespace

void add_generated_recipes(RecipeBook& book) {
  book["Constant"] = {"T", constant};
  book["ConstantOfShape"] = {"T1", constant_of_shape};
  book["EyeLike"] = {"T1", diagonal};
  book["Range"] = {"T", range};
  for (const char* name : {"RandomNormal", "RandomUniform"}) book[name] = {"T", random_numbers};
  for (const char* name : {"RandomNormalLike", "RandomUniformLike", "Bernoulli"})
    book[name] = {"T1", random_like};
  book["Multinomial"] = {"T1", multinomial};
  for (const char* name : {"HannWindow", "HammingWindow", "BlackmanWindow"})
    book[name] = {"T1", window};
  book["MelWeightMatrix"] = {"T1", mel_weights};
  book["Dropout"] = {"T", dropout};
  book["CastLike"] = {"T1", cast_like};
  book["BitCast"] = {"T1", bit_cast};
}

}  // namespace backplane::cli::check

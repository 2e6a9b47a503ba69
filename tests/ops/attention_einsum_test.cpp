// Attention whose products are Einsum nodes: that those which one node computes are one, and others stay apart; right are all.
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/ops/graph_writer.hpp"
#include "tests/ops/symbolic.hpp"

namespace backplane::ops_test {
namespace {

/// Equations of both products; "": a MatMul, of as many axes as the other has.
struct Writing {
  std::string scores, values;
  ElementType type = ElementType::Float;
  bool is_scaled = true, is_masked = true;
  bool is_read = false;                        ///< the scores are an output, too
  bool is_turned = false;                      ///< heads and positions change over before and after
  bool keys_first = false;                     ///< among the operands of the scores
  bool values_first = false;                   ///< among the operands of the other product
  std::string narrow_keys{}, narrow_values{};  ///< letters of these operands whose size is 1
};

/// Sizes by letters, which differ where letters of one term do.
struct LetterSizes {
  Sizes sizes{{"b", 2}, {"h", 3}, {"i", 7}, {"j", 5}, {"d", 9},  {"e", 4}, {"n", 7},
              {"m", 5}, {"w", 8}, {"X", 2}, {"y", 6}, {"Z", 11}, {"u", 3}};

  Dims operator()(const std::string& letters, const std::string& narrow = "") const {
    Dims dims;
    for (const char letter : letters)
      dims.push_back(narrow.find(letter) == std::string::npos ? sizes.at(std::string(1, letter))
                                                              : 1);
    return dims;
  }
};

/// The letters of both terms and of the result.
struct Terms {
  std::string left, right, result;
};
Terms terms_of(std::string equation) {
  std::erase(equation, ' ');
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  return {equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1),
          equation.substr(arrow + 2)};
}

/// Heads and positions of the letters change over.
std::string turned(std::string letters) {
  std::swap(letters[1], letters[2]);
  return letters;
}

/// Operands by their letters; `narrow` ones have one element.
class Operands {
 public:
  Operands(GraphWriter& g, Random& random, const Writing& w, const LetterSizes& size)
      : g_(g), random_(random), w_(w), size_(size) {}

  std::string feed(const std::string& letters, const std::string& narrow = "") const {
    if (!w_.is_turned || letters.size() != 4)
      return g_.feed(random_.tensor(w_.type, size_(letters, narrow), -1, 1));
    const std::string x = g_.feed(random_.tensor(w_.type, size_(turned(letters), narrow), -1, 1));
    return g_.node("Transpose", {x}, {{"perm", ints({0, 2, 1, 3})}});
  }
  bool is_flat() const { return (w_.scores.empty() ? w_.values : w_.scores).find(',') == 3; }

  /// Of queries and keys; `rows` becomes their letters.
  std::string scores(std::string& rows) const {
    if (!w_.scores.empty()) {
      const Terms terms = terms_of(w_.scores);
      rows = terms.result;
      const std::string left = feed(terms.left, w_.keys_first ? w_.narrow_keys : "");
      const std::string right = feed(terms.right, w_.keys_first ? "" : w_.narrow_keys);
      return g_.node("Einsum", {left, right}, {{"equation", w_.scores}});
    }
    rows = is_flat() ? "bij" : "bhij";
    const std::string k = g_.node("Transpose", {feed(is_flat() ? "bjd" : "bhjd")},
                                  {{"perm", is_flat() ? ints({0, 2, 1}) : ints({0, 1, 3, 2})}});
    return g_.node("MatMul", {feed(is_flat() ? "bid" : "bhid"), k});
  }

  std::string weighted(const std::string& weights) const {
    if (w_.values.empty()) return g_.node("MatMul", {weights, feed(is_flat() ? "bje" : "bhje")});
    const Terms terms = terms_of(w_.values);
    const std::string v = feed(w_.values_first ? terms.left : terms.right, w_.narrow_values);
    return g_.node("Einsum",
                   w_.values_first ? std::vector<std::string>{v, weights}
                                   : std::vector<std::string>{weights, v},
                   {{"equation", w_.values}});
  }

 private:
  GraphWriter& g_;
  Random& random_;
  const Writing& w_;
  const LetterSizes& size_;
};

/// With a mask of rows and columns alone, and of all batches.
GraphCase written(Random& random, const Writing& w, const LetterSizes& size = {}) {
  GraphWriter g(w.type == ElementType::BFloat16 ? 28 : 18, random);
  const auto number = [&](double value) { return g.constant(tensor(w.type, {}, {value})); };
  const Operands operands(g, random, w, size);
  std::string rows;
  std::string scores = operands.scores(rows);
  if (w.is_scaled) scores = g.node("Mul", {scores, number(0.5)});
  if (w.is_masked) {
    Dims mask = size(rows);
    if (rows.size() == 4) mask[1] = 1;
    scores = g.node("Add", {scores, g.feed(random.tensor(w.type, mask, -4, 2))});
  }
  const std::string weights = g.node("Softmax", {scores}, {{"axis", -1}});
  std::string y = operands.weighted(weights);
  if (w.is_turned && !operands.is_flat())
    y = g.node("Transpose", {y}, {{"perm", ints({0, 2, 1, 3})}});
  std::vector<std::string> outputs{y};
  if (w.is_read) outputs.push_back(scores);
  if (w.type == ElementType::Float) return g.done(outputs, {64, 256});
  const double step = w.type == ElementType::Float16 ? 0x1p-8 : 0x1p-5;
  return g.done(outputs, {step / 0x1p-23, step / 0x1p-23});
}

/// The case is right on the processor and on devices that fuse; in one step, or, where it is none, in several.
void expect_steps(const Writing& writing, bool is_one) {
  Random random(1);
  const GraphCase graph = written(random, writing);
  auto steps = steps_where_right(graph);
  if (writing.type == ElementType::Float) {
    const Target processor{.name = "cpu", .provider = "cpu"};
    const Outcome outcome = run_case(graph, expected_of(graph), processor, Form::Fixed, "all");
    EXPECT_EQ(outcome.kind, Outcome::Kind::Passed) << outcome.text;
    Session session(model_of(graph, Form::Fixed), options_for(processor));
    session.run(graph.feeds, graph.outputs);
    steps["cpu"] = step_count(session.explain());
  }
  for (const auto& [target, count] : steps)
    EXPECT_EQ(count == 1, is_one) << target << ": " << count << " of " << describe(graph);
}

/// As lucidrains' transformers have them, latent diffusion, and what has positions before heads.
const std::vector<std::pair<std::string, std::string>> kForms = {
    {"bhid,bhjd->bhij", "bhij,bhje->bhie"},
    {"bid,bjd->bij", "bij,bje->bie"},
    {"bnhd,bmhd->bhnm", "bhnm,bmhe->bnhe"},
};

TEST(AttentionEinsum, IsOneStepOfDevicesInEachForm) {
  for (const auto& [scores, values] : kForms) {
    for (const bool is_scaled : {false, true}) {
      for (const bool is_masked : {false, true}) {
        expect_steps(
            {.scores = scores, .values = values, .is_scaled = is_scaled, .is_masked = is_masked},
            true);
      }
    }
    expect_steps({.scores = scores, .values = values, .is_turned = true}, true);
    expect_steps({.scores = scores, .values = ""}, true);
    expect_steps({.scores = scores, .values = values, .type = ElementType::Float16}, true);
    expect_steps({.scores = scores, .values = values, .type = ElementType::BFloat16}, true);
  }
  expect_steps({.scores = "", .values = "bhij,bhje->bhie"}, true);
  expect_steps({.scores = "", .values = "bhij,bjhe->bihe"}, true);
  expect_steps({.scores = "", .values = "bij,bje->bie"}, true);
}

TEST(AttentionEinsum, IsOneStepOfDevicesWhateverItsLettersAndItsOrderOfOperands) {
  expect_steps({.scores = "XuyZ,XujZ->Xuyj", .values = "bhyj,bhjw->bhyw"}, true);
  expect_steps({.scores = "b h i d, b j h d -> b h i j", .values = "bhij,bjhe->bhie"}, true);
  expect_steps({.scores = "bjhd,bhid->bhij", .values = "bhij,bhje->bihe", .keys_first = true},
               true);
  expect_steps({.scores = "bhid,bhjd->bhji", .values = "bhji,bhie->bhje"}, true);
  expect_steps({.scores = "bid,bjd->bij", .values = "bje,bij->bie", .values_first = true}, true);
  expect_steps({.scores = "bnhd,bmhd->bhnm", .values = "bmhe,bhnm->bnhe", .values_first = true},
               true);
}

TEST(AttentionEinsum, OfOtherSumsAndOrdersIsSeveralStepsOfDevices) {
  const auto expect_apart = [](const std::string& scores, const std::string& values) {
    expect_steps({.scores = scores, .values = values}, false);
  };
  const std::string scores = "bhid,bhjd->bhij", values = "bhij,bhje->bhie";
  expect_apart(scores, "bhij,bhie->bhje");  // sums over the queries
  expect_apart(scores, "bhij,bhje->bhei");
  expect_apart(scores, "bhij,bhje->hbie");
  expect_apart(scores, "bhij,hje->bhie");
  expect_apart(scores, "bhij,bhje->bie");  // sums over the heads
  expect_apart("bhid,bhjd->hbij", "hbij,hbje->hbie");
  expect_apart("bnhd,bmhd->bnhm", "bnhm,bmhe->bnhe");
  expect_apart("bhid,bhdj->bhij", values);
  expect_apart("bhid,bhjj->bhij", values);
  expect_apart("bhid,bhje->bhij", values);
  expect_apart("bhid,hjd->bhij", values);
  expect_apart("bid,bjd->bij", "bij,bie->bje");
  expect_apart("ibd,jbd->bij", "bij,bje->bie");
  expect_steps({.scores = scores, .values = values, .is_read = true}, false);
  expect_steps({.scores = "bnhd,bmhd->bhnm", .values = "bhnm,bmhe->bnhe", .is_read = true}, false);
}

TEST(AttentionEinsum, WhatIsRepeatedIsRightInStepsOfDevices) {
  for (const char* const letters : {"b", "h", "bh"}) {
    expect_steps({.scores = kForms[0].first,
                  .values = kForms[0].second,
                  .narrow_keys = letters,
                  .narrow_values = letters},
                 true);
    expect_steps({.scores = kForms[2].first, .values = kForms[2].second, .narrow_keys = letters},
                 true);
  }
  for (const auto& [scores, values] : kForms) {
    const std::string key(1, terms_of(scores).result.back());
    expect_steps({.scores = scores, .values = values, .narrow_keys = "d"}, false);
    expect_steps({.scores = scores, .values = values, .narrow_values = key}, false);
  }
}

/// Whether it is one step, of feeds with these axes.
void expect_symbolic(const std::vector<Axes>& axes, const std::vector<Sizes>& sizes, bool is_one) {
  Random random(1);
  const GraphCase graph = written(random, {.scores = kForms[2].first, .values = kForms[2].second});
  const SymbolicCase symbolic = symbolic_case(graph, axes, sizes, random);
  std::vector<Target> targets = compiling_targets();
  targets.push_back({.name = "cpu", .provider = "cpu"});
  for (const Target& target : targets) {
    std::string explanation;
    const Outcome outcome = run_symbolic(symbolic, options_for(target), &explanation);
    ASSERT_EQ(outcome.kind, Outcome::Kind::Passed) << target.name << ": " << outcome.text;
    EXPECT_EQ(step_count(explanation) == 1, is_one) << target.name << explanation;
  }
}

TEST(AttentionEinsum, OfSymbolsIsOneStepOfDevicesWhereItsSumsSurelyRepeatNothing) {
  expect_symbolic(
      {{"n", "s", "3", "8"}, {"n", "t", "3", "8"}, {"n", "1", "s", "t"}, {"n", "t", "3", "w"}},
      {{{"n", 2}, {"s", 7}, {"t", 5}, {"w", 3}},
       {{"n", 1}, {"s", 1}, {"t", 1}, {"w", 1}},
       {{"n", 0}, {"s", 2}, {"t", 3}, {"w", 4}},
       {{"n", 3}, {"s", 2}, {"t", 40}, {"w", 6}}},
      true);
  // Numbers of values that may be 1, and of the elements of keys.
  expect_symbolic(
      {{"n", "s", "3", "8"}, {"n", "t", "3", "8"}, {"n", "1", "s", "t"}, {"n", "v", "3", "8"}},
      {{{"n", 2}, {"s", 7}, {"t", 5}, {"v", 5}}, {{"n", 2}, {"s", 7}, {"t", 5}, {"v", 1}}}, false);
  expect_symbolic(
      {{"n", "s", "3", "d"}, {"n", "t", "3", "e"}, {"n", "1", "s", "t"}, {"n", "t", "3", "8"}},
      {{{"n", 2}, {"s", 7}, {"t", 5}, {"d", 4}, {"e", 4}},
       {{"n", 2}, {"s", 7}, {"t", 5}, {"d", 4}, {"e", 1}}},
      false);
}

/// One of the forms, of odd and even sizes, few rows and many.
GraphCase any_form(Random& random) {
  static const std::vector<std::string> scores{"bhid,bhjd->bhij", "bihd,bjhd->bhij",
                                               "bihd,bhjd->bhij", "bhjd,bihd->bhij"},
      values{"bhij,bhje->bhie", "bhij,bjhe->bihe", "bhij,bhje->bihe", "bhij,bjhe->bhie"};
  LetterSizes size;
  const auto pick = [&](std::initializer_list<std::int64_t> of) {
    return random.pick<std::int64_t>(of);
  };
  size.sizes = {{"b", random.integer(1, 3)},    {"h", random.integer(1, 4)},
                {"i", pick({1, 3, 7, 16, 33})}, {"j", pick({1, 2, 5, 16, 63, 300})},
                {"d", pick({1, 7, 8, 24, 64})}, {"e", pick({1, 5, 8, 20})}};
  Writing w;
  w.is_scaled = random.one_in(2);
  w.is_masked = random.one_in(2);
  w.is_turned = random.one_in(4);
  if (random.one_in(3)) {
    w.scores = kForms[1].first;
    w.values = kForms[1].second;
  } else {
    w.scores = random.one_in(6) ? "" : random.pick(scores);
    w.values = random.one_in(6) && !w.scores.empty() ? "" : random.pick(values);
  }
  return written(random, w, size);
}
const Sweep kAny("AttentionEinsum", "AnyForm", 40, any_form);

}  // namespace
}  // namespace backplane::ops_test

// Recurrent networks, sums over named axes, determinants, transforms.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

std::vector<NodeCase> recurrent(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::string& op = draft.op_type();
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  constexpr std::int64_t kHidden = 4, kInput = 3;
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    const std::int64_t ways = std::string(direction) == "bidirectional" ? 2 : 1;
    for (const Dims& dims : {Dims{1, 1, kInput}, Dims{5, 2, kInput}, Dims{3, 1, kInput}}) {
      NodeCase node =
          with_inputs(draft.node({{"hidden_size", kHidden}, {"direction", std::string(direction)}}),
                      {draft.data(dims, -1, 1), draft.weight({ways, gates * kHidden, kInput}),
                       draft.weight({ways, gates * kHidden, kHidden}),
                       draft.weight({ways, 2 * gates * kHidden})});
      node.outputs.assign(op == "LSTM" ? 3 : 2, draft.dtype());
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> einsum(const Draft& draft) {
  struct Row {
    const char* equation;
    std::vector<Dims> shapes, others;
  };
  const std::vector<Row> rows = {
      {"ij,jk->ik", {{2, 3}, {3, 4}}, {{5, 3}, {3, 7}}},
      {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}, {{1, 7, 4}, {1, 4, 3}}},
      {"ij->ji", {{2, 3}}, {{5, 4}}},
      {"ii->i", {{3, 3}}, {{5, 5}}},
      {"ij,ij->", {{2, 3}, {2, 3}}, {{4, 5}, {4, 5}}},
      {"...ij,...jk->...ik", {{2, 1, 3, 4}, {2, 1, 4, 2}}, {{1, 3, 3, 4}, {1, 3, 4, 2}}}};
  std::vector<NodeCase> cases;
  for (const Row& row : rows) {
    for (const std::vector<Dims>& shapes : {row.shapes, row.others}) {
      NodeCase node = draft.node({{"equation", std::string(row.equation)}});
      for (const Dims& dims : shapes) node.inputs.push_back(draft.data(dims, -1, 1));
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> determinant(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{2, 2}, Dims{4, 4}, Dims{3, 2, 2}, Dims{2, 5, 5}})
    cases.push_back(with_inputs(draft.node(), {draft.data(dims)}));
  return cases;
}

/// The axis is an attribute in version 17.
std::vector<NodeCase> fourier(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t last : {1, 2}) {
    for (const std::int64_t length : {8, 15}) {
      NodeCase node = draft.node();
      node.inputs = {draft.data({2, length, last}, -1, 1)};
      if (draft.since() < 20) {
        node.attributes["axis"] = std::int64_t{1};
      } else {
        node.inputs.insert(node.inputs.end(), {Draft::none(), draft.number(BP_INT64, 1)});
      }
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> short_fourier(const Draft& draft) {
  std::vector<NodeCase> cases;
  if (!draft.lists("T2", BP_INT64)) return cases;
  for (const Dims& dims : {Dims{1, 32, 1}, Dims{2, 40, 1}})
    cases.push_back(with_inputs(draft.node(), {draft.data(dims, -1, 1), draft.number(BP_INT64, 4),
                                               draft.weight({16}, 0.25, 1)}));
  return cases;
}

}  // namespace

void add_recurrent_recipes(RecipeBook& book) {
  for (const char* name : {"RNN", "GRU", "LSTM"}) book[name] = {"T", recurrent};
  book["Einsum"] = {"T", einsum};
  book["Det"] = {"T", determinant};
  book["DFT"] = {"T1", fourier};
  book["STFT"] = {"T1", short_fourier};
}

}  // namespace backplane::cli::check

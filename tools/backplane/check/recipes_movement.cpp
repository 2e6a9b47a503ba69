// Operators that move elements.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

std::vector<NodeCase> reshape(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<std::pair<Dims, Ints>> rows = {{{2, 3}, {3, 2}},
                                                   {{2, 3, 4}, {0, -1}},
                                                   {{4, 6}, {0, -1}},
                                                   {{1}, {1, 1, 1}},
                                                   {{0, 3}, {3, 0}}};
  for (const auto& [dims, shape] : rows) {
    cases.push_back(with_inputs(draft.node(), {draft.data(dims), Draft::ints(shape)}));
  }
  return cases;
}

std::vector<NodeCase> flatten(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    cases.push_back(with_inputs(draft.node({{"axis", axis}}), {draft.data({2, 3, 5})}));
    cases.push_back(with_inputs(draft.node({{"axis", axis}}), {draft.data({1, 7, 4})}));
  }
  return cases;
}

/// Axes as an attribute, and as an input from version 13 on.
NodeCase with_axes(const Draft& draft, const Dims& dims, const Ints& axes) {
  if (draft.since() < 13) return with_inputs(draft.node({{"axes", axes}}), {draft.data(dims)});
  return with_inputs(draft.node(), {draft.data(dims), Draft::ints(axes)});
}

std::vector<NodeCase> squeeze(const Draft& draft) {
  return {with_axes(draft, {1, 3, 1, 5}, {0, 2}), with_axes(draft, {4, 1}, {1}),
          with_axes(draft, {7, 1}, {1})};
}

std::vector<NodeCase> unsqueeze(const Draft& draft) {
  return {with_axes(draft, {3, 5}, {0, 3}), with_axes(draft, {4}, {1}), with_axes(draft, {7}, {1})};
}

std::vector<NodeCase> transpose(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<std::pair<Dims, Ints>> rows = {
      {{2, 3}, {1, 0}},       {{33, 17}, {1, 0}},           {{2, 3, 5}, {2, 0, 1}},
      {{4, 1, 7}, {2, 0, 1}}, {{2, 3, 4, 5}, {0, 2, 3, 1}}, {{3, 0, 2}, {1, 2, 0}}};
  for (const auto& [dims, perm] : rows)
    cases.push_back(with_inputs(draft.node({{"perm", perm}}), {draft.data(dims)}));
  cases.push_back(with_inputs(draft.node(), {draft.data({3, 4, 2})}));
  return cases;
}

std::vector<NodeCase> concat(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1}) {
    for (const std::int64_t extra : {1, 4, 0}) {
      Dims other{2, 3, 5};
      other[static_cast<std::size_t>(axis)] = extra;
      cases.push_back(
          with_inputs(draft.node({{"axis", axis}}),
                      {draft.data({2, 3, 5}), draft.data(other), draft.data({2, 3, 5})}));
    }
  }
  return cases;
}

std::vector<NodeCase> split(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{4, 6}, Dims{2, 8, 3}}) {
    NodeCase node = draft.node({{"axis", std::int64_t{1}}});
    const Ints parts{2, dims[1] - 2};
    node.inputs = {draft.data(dims)};
    if (draft.since() < 13) {
      node.attributes["split"] = parts;
    } else {
      node.inputs.push_back(Draft::ints(parts));
    }
    node.outputs = {draft.dtype(), draft.dtype()};
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> slice(const Draft& draft) {
  std::vector<NodeCase> cases;
  struct Row {
    Ints starts, ends, axes, steps;
  };
  const std::vector<Row> rows = {{{1}, {3}, {0}, {1}},
                                 {{0, 1}, {4, 5}, {0, 1}, {1, 2}},
                                 {{-1}, {-100}, {1}, {-1}},
                                 {{3}, {3}, {0}, {1}}};
  for (const Row& row : rows) {
    for (const Dims& dims : {Dims{4, 6}, Dims{5, 7, 3}}) {
      if (draft.since() >= 10) {
        cases.push_back(with_inputs(
            draft.node(), {draft.data(dims), Draft::ints(row.starts), Draft::ints(row.ends),
                           Draft::ints(row.axes), Draft::ints(row.steps)}));
      } else if (row.steps == Ints{1}) {
        cases.push_back(with_inputs(
            draft.node({{"starts", row.starts}, {"ends", row.ends}, {"axes", row.axes}}),
            {draft.data(dims)}));
      }
    }
  }
  return cases;
}

std::vector<NodeCase> gather(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1}) {
    for (const Dims& indices : {Dims{}, Dims{3}, Dims{2, 4}}) {
      for (const Dims& dims : {Dims{5, 4}, Dims{3, 6, 2}}) {
        const double last = static_cast<double>(dims[static_cast<std::size_t>(axis)]) - 1;
        cases.push_back(with_inputs(draft.node({{"axis", axis}}),
                                    {draft.data(dims), draft.data_of(BP_INT64, indices, 0, last)}));
      }
    }
  }
  return cases;
}

std::vector<NodeCase> expand(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::vector<std::pair<Dims, Ints>> rows = {
      {{3, 1}, {2, 3, 6}}, {{1}, {4}}, {{}, {2, 2}}, {{2, 3}, {1, 1}}, {{1, 3}, {0, 3}}};
  for (const auto& [dims, shape] : rows)
    cases.push_back(with_inputs(draft.node(), {draft.data(dims), Draft::ints(shape)}));
  return cases;
}

std::vector<NodeCase> tile(const Draft& draft) {
  return {with_inputs(draft.node(), {draft.data({2, 3}), Draft::ints({2, 2})}),
          with_inputs(draft.node(), {draft.data({5, 1}), Draft::ints({2, 2})}),
          with_inputs(draft.node(), {draft.data({4}), Draft::ints({3})})};
}

std::vector<NodeCase> pad(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const char* mode : {"constant", "reflect", "edge"}) {
    for (const Dims& dims : {Dims{3, 4}, Dims{5, 6}}) {
      const Ints pads{1, 0, 2, 1};
      NodeCase node = draft.node({{"mode", std::string(mode)}});
      node.inputs = {draft.data(dims)};
      if (draft.since() < 11) {
        node.attributes["pads"] = pads;
      } else {
        node.inputs.push_back(Draft::ints(pads));
      }
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> blocks(const Draft& draft) {
  const bool to_depth = draft.op_type() == "SpaceToDepth";
  const Attributes attributes{{"blocksize", std::int64_t{2}}};
  return {with_inputs(draft.node(attributes),
                      {draft.data(to_depth ? Dims{1, 2, 4, 6} : Dims{1, 8, 2, 3})}),
          with_inputs(draft.node(attributes),
                      {draft.data(to_depth ? Dims{2, 3, 2, 2} : Dims{2, 4, 3, 3})})};
}

std::vector<NodeCase> shape_of(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : any_shapes(draft.numbers())) {
    cases.push_back(with_inputs(draft.node(), {draft.data(dims)}));
    cases.back().outputs = {BP_INT64};
  }
  return cases;
}

std::vector<NodeCase> triangle(const Draft& draft) {
  return {with_inputs(draft.node({{"upper", std::int64_t{0}}}), {draft.data({4, 5})}),
          with_inputs(draft.node({{"upper", std::int64_t{1}}}), {draft.data({2, 3, 3})})};
}

std::vector<NodeCase> gather_elements(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t axis : {0, 1}) {
    for (const Dims& indices : {Dims{2, 3}, Dims{4, 2}}) {
      cases.push_back(with_inputs(draft.node({{"axis", axis}}),
                                  {draft.data({5, 4}), draft.data_of(BP_INT64, indices, -3, 3)}));
    }
  }
  return cases;
}

std::vector<NodeCase> non_zero(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{6}, Dims{3, 4}, Dims{2, 0}, Dims{2, 3, 5}}) {
    cases.push_back(with_inputs(draft.node(), {draft.data(dims, 0, 1)}));
    Tensor& tensor = cases.back().inputs[0].tensor;
    for (std::int64_t i = 0; i < tensor.size(); i += 3) tensor.set(i, 0);
    cases.back().outputs = {BP_INT64};
  }
  return cases;
}

}  // namespace

void add_movement_recipes(RecipeBook& book) {
  book["Reshape"] = {"T", reshape};
  book["Flatten"] = {"T", flatten};
  book["Squeeze"] = {"T", squeeze};
  book["Unsqueeze"] = {"T", unsqueeze};
  book["Transpose"] = {"T", transpose};
  book["Concat"] = {"T", concat};
  book["Split"] = {"T", split};
  book["Slice"] = {"T", slice};
  book["Gather"] = {"T", gather};
  book["GatherElements"] = {"T", gather_elements};
  book["Expand"] = {"T", expand};
  book["Tile"] = {"T", tile};
  book["Pad"] = {"T", pad};
  book["DepthToSpace"] = {"T", blocks};
  book["SpaceToDepth"] = {"T", blocks};
  book["Shape"] = {"T", shape_of};
  book["Size"] = {"T", shape_of};
  book["Trilu"] = {"T", triangle};
  book["NonZero"] = {"T", non_zero};
}

}  // namespace backplane::cli::check

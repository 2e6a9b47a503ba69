// Operators on images and channels: sizes, samples, regions, columns, and the rarer pools and normalizations.
#include "tools/backplane/check/recipe.hpp"

namespace backplane::cli::check {
namespace {

using Ints = std::vector<std::int64_t>;

/// Sizes as scales, which is what all versions have; the input for regions came with version 11.
std::vector<NodeCase> resize(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    if (draft.since() < 11 && std::string(mode) == "cubic") continue;
    for (const double scale : {2.0, 0.5}) {
      for (const Dims& dims : {Dims{1, 2, 4, 6}, Dims{2, 1, 6, 4}}) {
        NodeCase node = draft.node({{"mode", std::string(mode)}});
        NodeCase::Input scales = draft.fixed(BP_FLOAT, {4}, 1, 1);
        scales.is_kept = true;
        for (const std::int64_t axis : {2, 3}) scales.tensor.set(axis, scale);
        node.inputs = {draft.data(dims)};
        if (draft.since() >= 11) node.inputs.push_back(Draft::none());
        node.inputs.push_back(scales);
        cases.push_back(node);
      }
    }
  }
  return cases;
}

std::vector<NodeCase> upsample(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const char* mode : {"nearest", "linear"}) {
    for (const Dims& dims : {Dims{1, 2, 4, 6}, Dims{2, 1, 3, 5}}) {
      NodeCase node = draft.node({{"mode", std::string(mode)}});
      node.inputs = {draft.data(dims)};
      if (draft.since() < 9) {
        node.attributes["scales"] = std::vector<float>{1, 1, 2, 2};
      } else {
        NodeCase::Input scales = draft.fixed(BP_FLOAT, {4}, 1, 1);
        scales.is_kept = true;
        for (const std::int64_t axis : {2, 3}) scales.tensor.set(axis, 2);
        node.inputs.push_back(scales);
      }
      cases.push_back(node);
    }
  }
  return cases;
}

std::vector<NodeCase> grid_sample(const Draft& draft) {
  std::vector<NodeCase> cases;
  const bp_dtype grid = draft.lists("T2", draft.dtype()) ? draft.dtype() : BP_FLOAT;
  if (!draft.lists("T2", grid) || !is_floating(grid)) return cases;
  const std::string smooth = draft.since() < 20 ? "bilinear" : "linear";
  for (const std::string& mode : {smooth, std::string("nearest")}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const Dims& dims : {Dims{1, 2, 4, 5}, Dims{2, 1, 6, 3}})
        cases.push_back(
            with_inputs(draft.node({{"mode", mode}, {"padding_mode", std::string(padding)}}),
                        {draft.data(dims), draft.data_of(grid, {dims[0], 3, 4, 2}, -0.9, 0.9)}));
    }
  }
  return cases;
}

std::vector<NodeCase> roi_align(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t rois : {1, 3}) {
    NodeCase node = draft.node({{"output_height", std::int64_t{3}},
                                {"output_width", std::int64_t{2}},
                                {"sampling_ratio", std::int64_t{2}}});
    node.inputs = {draft.data({2, 2, 8, 8}), draft.data({rois, 4}, 0, 3),
                   draft.data_of(BP_INT64, {rois}, 0, 1)};
    for (std::int64_t roi = 0; roi < rois; ++roi) {
      for (const std::int64_t end : {2, 3})
        node.inputs[1].tensor.set(roi * 4 + end, static_cast<double>(4 + roi));
    }
    cases.push_back(node);
  }
  return cases;
}

std::vector<NodeCase> deformable_convolution(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t images : {1, 2}) {
    cases.push_back(with_inputs(draft.node({{"pads", Ints{1, 1, 1, 1}}}),
                                {draft.data({images, 2, 5, 6}, -1, 1), draft.weight({3, 2, 3, 3}),
                                 draft.data({images, 18, 5, 6}, -1, 1)}));
  }
  return cases;
}

std::vector<NodeCase> columns_to_image(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t images : {1, 2})
    cases.push_back(with_inputs(
        draft.node(), {draft.data({images, 8, 12}), Draft::ints({4, 5}), Draft::ints({2, 2})}));
  return cases;
}

std::vector<NodeCase> lp_pool(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t p : {1, 2}) {
    for (const Dims& dims : {Dims{1, 3, 8, 8}, Dims{2, 1, 9, 7}})
      cases.push_back(
          with_inputs(draft.node({{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"p", p}}),
                      {draft.data(dims)}));
  }
  return cases;
}

std::vector<NodeCase> images(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{1, 3, 7, 7}, Dims{2, 5, 4, 9}, Dims{2, 3, 3, 1}})
    cases.push_back(with_inputs(draft.node(), {draft.data(dims)}));
  return cases;
}

std::vector<NodeCase> lp_normalization(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const std::int64_t p : {1, 2}) {
    for (const std::int64_t axis : {0, -1}) {
      for (const Dims& dims : {Dims{4, 5}, Dims{3, 33}})
        cases.push_back(
            with_inputs(draft.node({{"p", p}, {"axis", axis}}), {draft.data(dims, 0.5, 2)}));
    }
  }
  return cases;
}

/// Version 18 scales groups, version 21 channels.
std::vector<NodeCase> group_normalization(const Draft& draft) {
  std::vector<NodeCase> cases;
  const std::int64_t scales = draft.since() < 21 ? 2 : 4;
  for (const Dims& dims : {Dims{1, 4, 5, 5}, Dims{2, 4, 3, 7}})
    cases.push_back(
        with_inputs(draft.node({{"num_groups", std::int64_t{2}}}),
                    {draft.data(dims), draft.weight({scales}), draft.weight({scales})}));
  return cases;
}

std::vector<NodeCase> center_crop_pad(const Draft& draft) {
  std::vector<NodeCase> cases;
  for (const Dims& dims : {Dims{4, 7}, Dims{6, 3}, Dims{5, 5}})
    cases.push_back(with_inputs(draft.node(), {draft.data(dims), Draft::ints({5, 5})}));
  return cases;
}

}  // namespace

void add_image_recipes(RecipeBook& book) {
  book["Resize"] = {"T1", resize};
  book["Upsample"] = {"T", upsample};
  book["GridSample"] = {"T1", grid_sample};
  book["RoiAlign"] = {"T1", roi_align};
  book["DeformConv"] = {"T", deformable_convolution};
  book["Col2Im"] = {"T", columns_to_image};
  book["LpPool"] = {"T", lp_pool};
  for (const char* name : {"GlobalLpPool", "MeanVarianceNormalization"}) book[name] = {"T", images};
  book["LpNormalization"] = {"T", lp_normalization};
  book["GroupNormalization"] = {"T", group_normalization};
  book["CenterCropPad"] = {"T", center_crop_pad};
}

}  // namespace backplane::cli::check

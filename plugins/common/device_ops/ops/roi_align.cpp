// RoiAlign: https://onnx.ai/onnx/operators/onnx__RoiAlign.html, after https://arxiv.org/abs/1703.06870
#include <algorithm>
#include <string>

#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"
#include "plugins/common/roi_align_node.hpp"

namespace backplane::device_ops {
namespace {

/// Products are rounded before anything is added, since the number of samples is a bin's size rounded up.
constexpr char kAxes[] = R"kernel(
#define UNROLL _Pragma("unroll")

// How a region lies along an axis: where it begins, a bin's size, and how many samples that has.
FUNCTION i64 bins_of(REAL low, REAL high, REAL scale, i64 bins, REAL *begin, REAL *bin) {
  EACH_ROUNDED
  *begin = product_of(low, scale) - SHIFT;
  REAL size = product_of(high, scale) - SHIFT - *begin;
#if LEAST_IS_ONE
  if (size < 1) size = 1;
#endif
  *bin = size / (REAL)bins;
  if (SAMPLES > 0) return SAMPLES;
  return *bin > 0 ? *bin < MOST_SAMPLES ? (i64)ceil(*bin) : MOST_SAMPLES + 1 : 0;
}

// The two neighbours of a position, and their weights, both 0 outside of the image.
FUNCTION void neighbours_of(REAL at, i64 size, INDEX *low, INDEX *high, REAL *low_weight, REAL *high_weight) {
  *low = *high = 0;
  *low_weight = *high_weight = 0;
  if (!(at >= -1 && at <= (REAL)size)) return;
  if (at < 0) at = 0;
  *low = (INDEX)at < size - 1 ? (INDEX)at : (INDEX)(size - 1);
  *high = *low + 1 < size ? *low + 1 : *low;
  *high_weight = *low == *high ? 0 : at - (REAL)*low;
  *low_weight = 1 - *high_weight;
}
)kernel";

/// An item has a bin of region i3, in row i1 and column i0, of W channels from the i2-th W on: the weights of a sample are worked out
/// once for these.
constexpr char kPoolBin[] = R"kernel(
  REAL top, left, high_bin, wide_bin;
  i64 rows_of_bin = bins_of(LOAD(T, boxes, i3 * 4 + 1), LOAD(T, boxes, i3 * 4 + 3), scale, out_high, &top, &high_bin);
  i64 columns_of_bin = bins_of(LOAD(T, boxes, i3 * 4), LOAD(T, boxes, i3 * 4 + 2), scale, out_wide, &left, &wide_bin);
  i64 image = images[i3];
  if (image < 0 || image >= batch || rows_of_bin > MOST_SAMPLES || columns_of_bin > MOST_SAMPLES) {
    FAULT;
    image = rows_of_bin = 0;
  }
  i64 samples = rows_of_bin * columns_of_bin, plane = high * wide, channel = i2 * W;
  GLOBAL const STORAGE(T) *from = x + (image * channels + channel) * plane;
  REAL results[W];
  UNROLL for (int e = 0; e < W; ++e) results[e] = 0;
  for (i64 s = 0; s < rows_of_bin; ++s) {
    INDEX above, below, before, behind;
    REAL of_above, of_below, of_before, of_behind;
    REAL row_at = top + (REAL)i1 * high_bin + ((REAL)s + (REAL)0.5f) * high_bin / (REAL)rows_of_bin;
    neighbours_of(row_at, high, &above, &below, &of_above, &of_below);
    for (i64 t = 0; t < columns_of_bin; ++t) {
      REAL column_at = left + (REAL)i0 * wide_bin + ((REAL)t + (REAL)0.5f) * wide_bin / (REAL)columns_of_bin;
      neighbours_of(column_at, wide, &before, &behind, &of_before, &of_behind);
      UNROLL for (int e = 0; e < W; ++e) {
        GLOBAL const STORAGE(T) *pixels = from + (channel + e < channels ? e * plane : 0);
        REAL a = of_above * of_before * (REAL)LOAD(T, pixels, above * (INDEX)wide + before);
        REAL b = of_above * of_behind * (REAL)LOAD(T, pixels, above * (INDEX)wide + behind);
        REAL c = of_below * of_before * (REAL)LOAD(T, pixels, below * (INDEX)wide + before);
        REAL d = of_below * of_behind * (REAL)LOAD(T, pixels, below * (INDEX)wide + behind);
#if AVERAGES
        results[e] += a + b + (c + d);
#else
        REAL best = (s > 0 || t > 0) && !(results[e] < a) ? results[e] : a;
        best = best < b ? b : best;
        best = best < c ? c : best;
        results[e] = best < d ? d : best;
#endif
      }
    }
  }
  UNROLL for (int e = 0; e < W; ++e) {
    if (channel + e < channels) {
      REAL result = AVERAGES && samples > 0 ? results[e] / (REAL)samples : results[e];
      STORE(T, y, ((i3 * channels + channel + e) * out_high + i1) * out_wide + i0, result);
    }
  }
)kernel";

class RoiAlign {
 public:
  RoiAlign(const Device&, const sdk::Node& node) : rule_(common::roi_align_rule(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const Dims dims = common::set_roi_align_dims(ctx, rule_);
    if (sdk::element_count(dims) > 0) add_launch(work, ctx.input(0), dims);
  }

 private:
  void add_launch(Work& work, const sdk::Tensor& x, const Dims& dims) const {
    constexpr std::int64_t kMostByInt = std::int64_t{1} << 30, kMostWidth = 8;
    const std::int64_t width =
        outputs_at_once(work.device(), dims[1], kMostWidth, dims[0] * dims[2] * dims[3]);
    Walk walk(Dims{dims[0], ceil_divide(dims[1], width), rule_.out_height, rule_.out_width});
    walk.in("x", input(0), x.type()).in("boxes", input(1), x.type());
    walk.in("images", input(2), DataType::Int64).out("y", output(0), x.type());
    walk.number("batch", x.dim(0)).number("channels", x.dim(1)).number("high", x.dim(2));
    walk.number("wide", x.dim(3))
        .number("out_high", rule_.out_height)
        .number("out_wide", rule_.out_width);
    walk.real("scale", rule_.scale).real_type(x.type()).define("T", type_code(x.type()));
    walk.define("INDEX", x.dim(2) * x.dim(3) < kMostByInt ? "int" : "i64").define("W", width);
    walk.define("SHIFT", rule_.half_pixel ? "(REAL)0.5f" : "(REAL)0");
    walk.define("LEAST_IS_ONE", rule_.half_pixel ? 0 : 1).define("AVERAGES", rule_.average ? 1 : 0);
    walk.define("SAMPLES", rule_.samples).define("MOST_SAMPLES", common::kMostRoiSamples);
    walk.may_fault(sdk::message(
        "a batch index is out of range for axis 0, or a bin spans too many pixels; at most ",
        common::kMostRoiSamples, " are handled"));
    walk.functions = std::string(common::kRoundedProducts) + kAxes;
    walk.body = kPoolBin;
    const std::int64_t samples = std::max<std::int64_t>(1, rule_.samples * rule_.samples);
    walk.in_bands(samples * width * 8).add_to(work);
  }

  common::RoiAlignRule rule_;
};

}  // namespace

KernelList roi_align_kernels() {
  return {device_kernel<RoiAlign>(sdk::op("RoiAlign")
                                      .name(kernel_name("roi align"))
                                      .types("T1", float_types())
                                      .types("T2", {DataType::Int64}))};
}

}  // namespace backplane::device_ops

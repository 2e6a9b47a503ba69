// GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html
#include <algorithm>
#include <string>

#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/grid_sample_node.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

using Mode = common::SampleMode;
using Padding = common::SamplePadding;
using common::kMostSampledAxes;

/// Of an item that has no core to itself, whose reads are to be on their way together.
constexpr std::int64_t kChannelsAtOnce = 4;

/// The TAPS places along an axis that a point reads, as what they add to an element's offset, and their weights; outside of the image
/// -1. Coordinates are of COORD, whose products are rounded before anything is added: at halves the last digit decides.
constexpr char kAxisTaps[] = R"kernel(
#define UNROLL _Pragma("unroll")

// In elements of an axis.
FUNCTION COORD element_of(COORD at, COORD size) {
  EACH_ROUNDED
#if ALIGNED
  return product_of((at + 1) / 2, size - 1);
#else
  return (product_of(at + 1, size) - 1) / 2;
#endif
}

// Mirrors x at the ends of [low, high] until it lies inside.
FUNCTION COORD reflected(COORD x, COORD low, COORD high) {
  EACH_ROUNDED
  COORD range = high - low;
  if (!(range > 0)) return low;
  if (x >= low && x <= high) return x;
  COORD beyond = x < low ? low - x : x - high;
  COORD turns = trunc(beyond / range);
  COORD rest = beyond - product_of(turns, range);
  int from_low = (x < low) == (fmod(turns, (COORD)2) == 0);
  return from_low ? low + rest : high - rest;
}

FUNCTION i64 kept_inside(i64 place, i64 dim) { return place < 0 ? 0 : place < dim ? place : dim - 1; }

FUNCTION void axis_taps(COORD at, i64 dim, i64 stride, INDEX *places, REAL *weights) {
  EACH_ROUNDED
  COORD size = (COORD)dim;
  COORD low = ALIGNED ? (COORD)0 : (COORD)-0.5f, high = ALIGNED ? size - 1 : size - (COORD)0.5f;
  COORD x = element_of(at, size);
  if (MODE == NEAREST) x = rint(x);
  if (!(x > (COORD)-1e9f)) x = (COORD)-1e9f;  // NaN too: far outside
  if (x > (COORD)1e9f) x = (COORD)1e9f;
  // A point between an edge and the middle of its element stays: its cubic weights count.
  if (PADDING == BORDER && (x < low || x > high)) x = x < 0 ? (COORD)0 : size - 1;
  if (PADDING == REFLECTION) x = reflected(x, low, high);
  i64 begin = (i64)floor(x);
#if MODE == LINEAR
  COORD f = x - (COORD)begin;
  weights[0] = (REAL)(1 - f);
  weights[1] = (REAL)f;
#elif MODE == CUBIC
  // Keys' weights with -0.75, of a point between the second and the third of four.
  COORD f = x - (COORD)begin, a = (COORD)-0.75f, g = 1 - f, far = f + 1, near = 2 - f;
  weights[0] = (REAL)(((a * far - 5 * a) * far + 8 * a) * far - 4 * a);
  weights[1] = (REAL)(((a + 2) * f - (a + 3)) * f * f + 1);
  weights[2] = (REAL)(((a + 2) * g - (a + 3)) * g * g + 1);
  weights[3] = (REAL)(((a * near - 5 * a) * near + 8 * a) * near - 4 * a);
  --begin;
#endif
  UNROLL for (int k = 0; k < TAPS; ++k) {
    i64 place = begin + k;
    int is_inside = place >= 0 && place < dim;
    if (PADDING == BORDER) place = kept_inside(place, dim);
    if (PADDING == REFLECTION && !is_inside)
      place = kept_inside((i64)reflected((COORD)place, low, high), dim);
    places[k] = PADDING == ZEROS && !is_inside ? -1 : (INDEX)(place * stride);
  }
}
)kernel";

/// An item has a point, i0, of image i2, and of its channels `run`, from the i1-th run on, of which W are read before any is
/// stored. Three loops go over TAPS of each axis, in which PLACE and WEIGHT are those of all axes together; IS_INSIDE says whether
/// the place is of the image.
constexpr char kSampleChannels[] = R"kernel(
#if MODE == NEAREST
#define SUM VALUE(T)
#define ADD(sum, weight, value) sum = value
#else
#define SUM REAL
#define ADD(sum, weight, value) sum += (weight) * (REAL)(value)
#endif
  GLOBAL const STORAGE(TG) *point = grid + (i2 * points + i0) * AXES;
  INDEX places[AXES][TAPS];
  REAL weights[AXES][TAPS];
  FIND_TAPS;
  i64 begin = i1 * run, end = begin + run < channels ? begin + run : channels;
  GLOBAL const STORAGE(T) *plane = x + (i2 * channels + begin) * image;
  GLOBAL STORAGE(T) *to = y + (i2 * channels + begin) * points + i0;
  for (i64 c = begin; c < end; c += W) {
    SUM sums[W];
    UNROLL for (int e = 0; e < W; ++e) sums[e] = 0;
    UNROLL for (int i = 0; i < TAPS_0; ++i) {
      UNROLL for (int j = 0; j < TAPS_1; ++j) {
        UNROLL for (int k = 0; k < TAPS_2; ++k) {
          if (IS_INSIDE(i, j, k)) {
            GLOBAL const STORAGE(T) *from = plane + PLACE(i, j, k);
            UNROLL for (int e = 0; e < W; ++e)
              ADD(sums[e], WEIGHT(i, j, k), LOAD(T, from, c + e < end ? e * image : 0));
          }
        }
      }
    }
    UNROLL for (int e = 0; e < W; ++e)
      if (c + e < end) STORE(T, to, e * points, sums[e]);
    plane += W * image;
    to += W * points;
  }
)kernel";

class GridSample {
 public:
  GridSample(const Device&, const sdk::Node& node) : rule_(common::grid_sample_rule(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const Dims dims = common::set_grid_sample_dims(ctx);
    if (sdk::element_count(dims) > 0) add_launch(work, ctx.input(0), ctx.input(1));
  }

 private:
  void add_launch(Work& work, const sdk::Tensor& x, const sdk::Tensor& grid) const {
    const int axes = x.rank() - 2;
    const std::int64_t image = common::product(x.dims(), 2, x.rank());
    const std::int64_t batch = x.dim(0), channels = x.dim(1), points = grid.size() / (batch * axes);
    // Weights are worked out once for a run: of all channels, if the device has enough to do with that.
    constexpr std::int64_t kManyRuns = 1 << 16;
    const std::int64_t runs = shares_rows(work.device())
                                  ? std::min(channels, ceil_divide(kManyRuns, batch * points))
                                  : std::int64_t{1};
    const std::int64_t run = ceil_divide(channels, runs);
    const std::int64_t at_once = shares_rows(work.device()) ? std::min(run, kChannelsAtOnce) : 1;
    Walk walk(Dims{batch, ceil_divide(channels, run), points});
    walk.in("x", input(0), x.type()).in("grid", input(1), grid.type());
    walk.out("y", output(0), x.type());
    walk.number("points", points).number("channels", channels).number("run", run);
    walk.number("image", image);
    define_form(walk, x.type(), grid.type(), image);
    std::int64_t taps = 1;
    std::string find;
    const Dims strides = common::dense_strides(x.dims());
    for (int a = 0; a < axes; ++a) {
      const auto axis = static_cast<std::size_t>(a) + 2;
      walk.number(sdk::message("dim", a), x.dims()[axis]);
      walk.number(sdk::message("stride", a), strides[axis]);
      find += sdk::message(a > 0 ? "; " : "", "axis_taps((COORD)LOAD(TG, point, ", axes - 1 - a,
                           "), dim", a, ", stride", a, ", places[", a, "], weights[", a, "])");
      taps *= taps_of_axis();
    }
    walk.define("AXES", axes).define("FIND_TAPS", find).define("W", at_once);
    define_axes(walk, axes);
    walk.functions = std::string(common::kRoundedProducts) + kAxisTaps;
    walk.body = kSampleChannels;
    walk.in_bands(run * (taps + 8)).add_to(work);
  }

  std::int64_t taps_of_axis() const {
    return rule_.mode == Mode::Nearest ? 1 : rule_.mode == Mode::Linear ? 2 : 4;
  }

  void define_form(Walk& walk, DataType type, DataType grid, std::int64_t image) const {
    constexpr std::int64_t kMostByInt = std::int64_t{1} << 30;
    walk.define("T", type_code(type)).define("TG", type_code(grid)).real_type(type);
    walk.define("COORD", grid == DataType::Double ? "double" : "float");
    walk.define("INDEX", image < kMostByInt ? "int" : "i64");
    walk.define("NEAREST", 0).define("LINEAR", 1).define("CUBIC", 2);
    walk.define("ZEROS", 0).define("BORDER", 1).define("REFLECTION", 2);
    walk.define("MODE", static_cast<int>(rule_.mode))
        .define("PADDING", static_cast<int>(rule_.padding));
    walk.define("ALIGNED", rule_.align_corners ? 1 : 0).define("TAPS", taps_of_axis());
  }

  /// What three loops, of which those of missing axes have one turn, have of the axes that there are.
  void define_axes(Walk& walk, int axes) const {
    const char* const indices[] = {"i", "j", "k"};
    std::string place, weight, inside;
    for (int a = 0; a < kMostSampledAxes; ++a) {
      walk.define(sdk::message("TAPS_", a).c_str(), a < axes ? taps_of_axis() : 1);
      if (a >= axes) continue;
      const std::string at = sdk::message("[", a, "][", indices[a], "]");
      place += sdk::message(a > 0 ? " + " : "", "places", at);
      weight += sdk::message(a > 0 ? " * " : "", "weights", at);
      inside += sdk::message(a > 0 ? " | " : "", "places", at);
    }
    walk.define("PLACE(i, j, k)", sdk::message("(", place, ")"));
    walk.define("WEIGHT(i, j, k)", sdk::message("(", weight, ")"));
    walk.define("IS_INSIDE(i, j, k)", rule_.padding == Padding::Zeros
                                          ? sdk::message("((", inside, ") >= 0)")
                                          : std::string("1"));
  }

  common::GridSampleRule rule_;
};

}  // namespace

KernelList grid_sample_kernels() {
  return {device_kernel<GridSample>(sdk::op("GridSample")
                                        .name(kernel_name("grid sample"))
                                        .types("T1", float_types())
                                        .types("T2", float_types()))};
}

}  // namespace backplane::device_ops

#include "plugins/opencl/kernels/image.hpp"

#include <algorithm>

#include "plugins/common/kernels/lines.hpp"

namespace backplane::opencl {
namespace {

/// The image as taps find it: [channel][phase][depth][height][width], see above.
struct Spread {
  std::array<std::int64_t, 3> phases, size;

  explicit Spread(const Window& window) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const bool one = window.kernel[axis] == 1 || window.dilation[axis] % window.stride[axis] == 0;
      phases[axis] = one ? 1 : window.stride[axis];
      size[axis] = window.out[axis] +
                   (window.kernel[axis] - 1) * window.dilation[axis] / window.stride[axis];
    }
  }
  std::int64_t phase_points() const { return size[0] * size[1] * size[2]; }
  std::int64_t channel_points() const { return phases[0] * phases[1] * phases[2] * phase_points(); }
};

std::vector<std::int32_t> tap_offsets(const Window& window, const Spread& spread) {
  std::vector<std::int32_t> offsets;
  std::array<std::int64_t, 3> k{};
  for (k[0] = 0; k[0] < window.kernel[0]; ++k[0]) {
    for (k[1] = 0; k[1] < window.kernel[1]; ++k[1]) {
      for (k[2] = 0; k[2] < window.kernel[2]; ++k[2]) {
        std::int64_t phase = 0, point = 0;
        for (std::size_t axis = 0; axis < 3; ++axis) {
          const std::int64_t at = k[axis] * window.dilation[axis];
          phase = phase * spread.phases[axis] +
                  (spread.phases[axis] == 1 ? 0 : at % window.stride[axis]);
          point = point * spread.size[axis] + at / window.stride[axis];
        }
        offsets.push_back(static_cast<std::int32_t>(phase * spread.phase_points() + point));
      }
    }
  }
  return offsets;
}

/// Where a work item is: of plane, phase and depth i2.
constexpr char kSpreadPlace[] = R"kernel(
#if IS_FLAT
  i64 plane = i2, oz = 0, px = 0, py = 0, pz = 0;
#else
  i64 oz = i2 % size0, plane = i2 / size0;
  i64 px = plane % f2;
  plane /= f2;
  i64 py = plane % f1;
  plane /= f1;
  i64 pz = plane % f0;
  plane /= f0;
#endif
  i64 z = oz * s0 + pz - b0;
)kernel";

constexpr char kSpreadPoint[] = R"kernel(
  i64 v = i1 * s1 + py - b1, u = i0 * s2 + px - b2;
  VALUE(T) value = 0;
  if (z >= 0 && z < n_0 && v >= 0 && v < n_1 && u >= 0 && u < n_2)
    value = SOURCE(((plane * n_0 + z) * n_1 + v) * n_2 + u);
  STORE(T, y, (i2 * size1 + i1) * size2 + i0, value);
)kernel";

/// For processors: `band` lines of a plane, without a question for each element, and by vectors of VW floats unless that is 0.
constexpr char kSpreadLines[] = R"kernel(
  int begin = b2 > px ? (int)((b2 - px + STEP - 1) / STEP) : 0;
  int end = (int)((n_2 + b2 - px + STEP - 1) / STEP);
  if (n_2 + b2 <= px) end = 0;
  if (end > size2) end = (int)size2;
  if (begin > end) begin = end;
  i64 last = (i1 + 1) * band < size1 ? (i1 + 1) * band : size1;
  for (i64 row = i1 * band; row < last; ++row) {
    i64 v = row * s1 + py - b1, at = (i2 * size1 + row) * size2;
    int from = begin, to = end;
    if (z < 0 || z >= n_0 || v < 0 || v >= n_1) from = to = (int)size2;
    for (int i = 0; i < from; ++i) STORE(T, y, at + i, 0);
    i64 line = ((plane * n_0 + z) * n_1 + v) * n_2 + px - b2;
#if VW > 0
    // Every other element is taken from two vectors, which must not pass the line's end.
    int most = (int)((n_2 + b2 - px) / STEP), stop = to < most ? to : most, start = from;
    while (from < stop && stop - start >= VW) {
      if (stop - from < VW) from = stop - VW;
      GLOBAL const float *source = x + line + (i64)from * STEP;
#if STEP == 2
      VSTORE((VT)(VLOAD(0, source).even, VLOAD(1, source).even), 0, y + at + from);
#else
      VSTORE(VLOAD(0, source), 0, y + at + from);
#endif
      from += VW;
    }
#endif
    for (int i = from; i < to; ++i) STORE(T, y, at + i, SOURCE(line + (i64)i * STEP));
    for (int i = to; i < size2; ++i) STORE(T, y, at + i, 0);
  }
)kernel";

}  // namespace

bool needs_spread(const Window& window) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (window.kernel[axis] != 1 || window.stride[axis] != 1 || window.pad_begin[axis] != 0 ||
        window.pad_end[axis] != 0)
      return true;
  }
  return false;
}

std::int64_t spread_elements(const Window& window, std::int64_t planes) {
  const std::int64_t channel = Spread(window).channel_points();
  if (channel > std::int64_t{1} << 30) sdk::unsupported("a channel of ", channel, " points");
  return planes * channel + kImageSlack;
}

void add_spread(Work& work, const SpreadSource& source, DataType type, std::int64_t planes,
                const Window& window) {
  const Spread spread(window);
  const std::int64_t phases = spread.phases[0] * spread.phases[1] * spread.phases[2];
  const bool by_lines = work.device().limits().is_processor;
  constexpr std::int64_t kLeastPoints = 2048;
  const std::int64_t band =
      std::clamp<std::int64_t>(kLeastPoints / spread.size[2], 1, spread.size[1]);
  const std::int64_t items = planes * phases * spread.size[0];
  Walk walk(by_lines ? Dims{items, (spread.size[1] + band - 1) / band, 1}
                     : Dims{items, spread.size[1], spread.size[2]});
  walk.name("spread").define("IS_FLAT", phases == 1 && spread.size[0] == 1 ? 1 : 0);
  walk.in("x", source.memory, source.type).out("y", workspace(), type);
  walk.define("T", type_code(type)).define("TX", type_code(source.type));
  walk.define("SOURCE(i)",
              source.is_integer ? "(float)((i32)LOAD(TX, x, i) - x_zero_point)" : "LOAD(TX, x, i)");
  if (source.has_zero) walk.in("x_zero", source.zero, source.type);
  for (std::size_t axis = 0; axis < 3; ++axis) {
    walk.number(sdk::message("f", axis), spread.phases[axis]);
    walk.number(sdk::message("s", axis), window.stride[axis]);
    walk.number(sdk::message("b", axis), window.pad_begin[axis]);
    walk.number(sdk::message("n_", axis), window.in[axis]);
    walk.number(sdk::message("size", axis), spread.size[axis]);
  }
  if (source.is_integer)
    walk.body =
        sdk::message("  i32 x_zero_point = ", source.has_zero ? "LOAD(TX, x_zero, 0)" : "0", ";\n");
  walk.body += kSpreadPlace;
  const bool is_moved =
      type == DataType::Float && source.type == type && !source.is_integer && window.stride[2] <= 2;
  if (by_lines) {
    walk.number("band", band).define("STEP", window.stride[2]);
    walk.define("VW", is_moved ? work.device().limits().vector_floats : 0);
    if (is_moved) walk.functions = common::kVectorWords;
  }
  walk.body += by_lines ? kSpreadLines : kSpreadPoint;
  walk.add_to(work);
}

void place_image(const Window& window, std::int64_t channels, std::int64_t groups,
                 Product& product) {
  std::int64_t channel = window.in_points();
  product.columns = window.out_points();
  if (needs_spread(window)) {
    const Spread spread(window);
    channel = spread.channel_points();
    product.b_has_slack = true;
    product.tap_offsets = tap_offsets(window, spread);
    product.columns =
        ((window.out[0] - 1) * spread.size[1] + window.out[1] - 1) * spread.size[2] + window.out[2];
    product.is_rowed = product.columns != window.out_points();
    product.is_deep = window.out[0] > 1 && spread.size[1] != window.out[1];
    product.pitch = spread.size[2];
    product.line = window.out[2];
    product.lines = spread.size[1];
    product.line_rows = window.out[1];
  }
  product.b_channel = channel;
  product.b_batch = {channels * channel, channels / groups * channel};
}

}  // namespace backplane::opencl

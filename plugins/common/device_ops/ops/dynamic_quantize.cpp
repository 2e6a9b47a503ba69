// DynamicQuantizeLinear: https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/saturation.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

/// A range that contains 0, `least` to `greatest`, as a scale and a zero point: all zeros have any scale but 0. What is no number
/// (the infinite by the infinite) is 0.
constexpr char kRange[] = R"kernel(
FUNCTION float scale_of(float least, float greatest) {
  return least == greatest ? 1.0f : (greatest - least) / 255.0f;
}
FUNCTION i32 zero_of(float least, float scale) {
  float zero = rint(-least / scale);
  return zero > 0.0f ? zero < 255.0f ? (i32)zero : 255 : 0;
}
// NaN is passed over.
#define LOWER(a, b) ((b) < (a) ? (b) : (a))
#define HIGHER(a, b) ((b) > (a) ? (b) : (a))
)kernel";

/// The ends of all that the parts of PHASE 1 found are what those of PHASE 2 begin with; in PHASE 0 there is one part.
constexpr char kPartOfItem[] = R"kernel(
  i64 first = i0 * part_n, last = first + part_n < n ? first + part_n : n;
  float least = 0.0f, greatest = 0.0f;
#if PHASE == 2
  for (i64 p = 0; p < parts; ++p) {
    least = LOWER(least, found[p]);
    greatest = HIGHER(greatest, found[parts + p]);
  }
#else
  float low[16], high[16];
  for (int j = 0; j < 16; ++j) low[j] = high[j] = 0.0f;
  i64 r = first;
  for (; r + 16 <= last; r += 16) {
    for (int j = 0; j < 16; ++j) {
      low[j] = LOWER(low[j], x[r + j]);
      high[j] = HIGHER(high[j], x[r + j]);
    }
  }
  for (; r < last; ++r) {
    low[0] = LOWER(low[0], x[r]);
    high[0] = HIGHER(high[0], x[r]);
  }
  for (int j = 0; j < 16; ++j) {
    least = LOWER(least, low[j]);
    greatest = HIGHER(greatest, high[j]);
  }
#endif
#if PHASE == 1
  found[i0] = least;
  found[parts + i0] = greatest;
#else
  float scale = scale_of(least, greatest);
  i32 zero = zero_of(least, scale);
  if (i0 == 0) {
    out_scale[0] = scale;
    out_zero[0] = (u8)zero;
  }
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#endif
  for (i64 k = first; k < last; ++k) y[k] = (u8)saturate(x[k] / scale, zero);
#endif
)kernel";

/// The same by the items of a group, as kernels/rows.hpp has rows: of one row, whose bytes are written four at a time where elements
/// are read so.
constexpr char kPartOfGroup[] = R"kernel(
  HOLD
  float least = 0.0f, greatest = 0.0f;
#if PHASE == 2
  for (INDEX p = lane; p < parts; p += LANES) {
    least = LOWER(least, found[p]);
    greatest = HIGHER(greatest, found[parts + p]);
  }
#else
  EACH_ELEMENT
    least = LOWER(least, v);
    greatest = HIGHER(greatest, v);
  END_EACH
#endif
  FOLD(float, least, LOWER)
  FOLD(float, greatest, HIGHER)
#if PHASE == 1
  if (lane == 0 && is_row) {
    found[part] = least;
    found[parts + part] = greatest;
  }
#else
  float scale = scale_of(least, greatest);
  i32 zero = zero_of(least, scale);
  if (lane == 0 && is_row && part == 0) {
    out_scale[0] = scale;
    out_zero[0] = (u8)zero;
  }
  EACH_STEP
    u8 made[V];
    UNROLL for (int e = 0; e < V; ++e) made[e] = (u8)saturate(w[e] / scale, zero);
#if V == 4
    if (((size_t)(y + at) & 3) == 0) {
      *(GLOBAL u32 *)(y + at) = (u32)made[0] | (u32)made[1] << 8 | (u32)made[2] << 16 | (u32)made[3] << 24;
    } else
#endif
      UNROLL for (int e = 0; e < V; ++e) y[at + e] = made[e];
    }
  }
#endif
)kernel";

class DynamicQuantize {
 public:
  DynamicQuantize(const Device&, const sdk::Node&) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, DataType::UInt8, x.dims());
    ctx.set_output(1, DataType::Float, DimsView());
    ctx.set_output(2, DataType::UInt8, DimsView());
    const bool is_shared = shares_rows(work.device()) && x.size() > 0;
    const std::int64_t parts = is_shared ? add_groups(work, x.size()) : add_items(work, x.size());
    if (parts > 1)
      ctx.set_workspace(static_cast<std::uint64_t>(parts) * 2 * sizeof(float),
                        work.device().limits().alignment);
  }

 private:
  static Walk walk_of(std::int64_t items) {
    Walk walk(Dims{items});
    walk.in("x", input(0), DataType::Float).out("y", output(0), DataType::UInt8);
    walk.out("out_scale", output(1), DataType::Float).out("out_zero", output(2), DataType::UInt8);
    walk.functions = saturation_text(DataType::UInt8) + kRange;
    return walk;
  }

  /// How many parts there are.
  static std::int64_t add_groups(Work& work, std::int64_t n) {
    const RowForm form = choose_rows(
        work.device(),
        {.n = n, .type = DataType::Float, .is_dense = true, .holds = true, .may_divide = true});
    Walk walk = walk_of(1);
    walk.define("T", "f32").define("REAL", "float").define("BASE", 0).define("OFFSET(k)", "(k)");
    walk.body = kPartOfGroup;
    walk.add_phases(work, form, workspace());
    return form.parts;
  }

  /// For no elements, too, which have a scale and a zero point.
  static std::int64_t add_items(Work& work, std::int64_t n) {
    // A part is worth an item; more of them would read for long what each other found.
    constexpr std::int64_t kLeast = 16384, kMostParts = 256;
    const std::int64_t part_n = std::max(kLeast, ceil_divide(n, kMostParts)),
                       parts = std::max<std::int64_t>(1, ceil_divide(n, part_n));
    for (const int phase : {0, 1, 2}) {
      if ((phase == 0) != (parts == 1)) continue;
      Walk walk = walk_of(parts);
      if (phase != 0) walk.out("found", workspace(), DataType::Float);
      walk.number("n", n).number("part_n", part_n).number("parts", parts).define("PHASE", phase);
      walk.body = kPartOfItem;
      walk.add_to(work);
    }
    return parts;
  }
};

}  // namespace

KernelList dynamic_quantize_kernels() {
  return {device_kernel<DynamicQuantize>(sdk::op("DynamicQuantizeLinear")
                                             .name(kernel_name("dynamic quantize"))
                                             .types("T1", {DataType::Float})
                                             .types("T2", {DataType::UInt8}))};
}

}  // namespace backplane::device_ops

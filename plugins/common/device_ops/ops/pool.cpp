// MaxPool, AveragePool, LpPool, ConvTranspose: windows read directly, one work item an output element, and on processors
// one for lines of a plane.
// https://onnx.ai/onnx/operators/onnx__MaxPool.html and the pages beside it.
#include <optional>

#include "op_table.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/device_ops/window_lines.hpp"
#include "plugins/common/kernels/lines.hpp"
#include "plugins/common/kernels/neighbours.hpp"

namespace backplane::device_ops {
namespace {

DimsView spatial_of(DimsView dims) { return {dims.data() + 2, dims.size() - 2}; }

/// Taps of a window that begins at `start`: the first one that does not lie before the image, and how many lie before `end`.
constexpr char kTaps[] = R"kernel(
FUNCTION i64 first_tap(i64 start, i64 dilation) {
  return start >= 0 ? 0 : (dilation - 1 - start) / dilation;
}
FUNCTION i64 taps_before(i64 end, i64 start, i64 dilation, i64 taps) {
  if (start + (taps - 1) * dilation < end) return taps;
  return start < end ? (end - start - 1) / dilation + 1 : 0;
}
)kernel";

/// The place of an output element, oz, oy and ox, is found before. What is done with a pixel, at `at`, stands between these;
/// `counted` is how many there were inside of the input.
constexpr char kBeginTaps[] = R"kernel(
  i64 counted = 0, best = 0;
  i64 z_0 = oz * s_0 - b_0, v_0 = oy * s_1 - b_1, u_0 = ox * s_2 - b_2;
  i64 z_end = taps_before(in_0, z_0, d_0, k_0), v_end = taps_before(in_1, v_0, d_1, k_1);
  i64 u_end = taps_before(in_2, u_0, d_2, k_2);
  for (i64 kz = first_tap(z_0, d_0); kz < z_end; ++kz) {
    i64 z = z_0 + kz * d_0;
    for (i64 ky = first_tap(v_0, d_1); ky < v_end; ++ky) {
      i64 v = v_0 + ky * d_1;
      for (i64 kx = first_tap(u_0, d_2); kx < u_end; ++kx) {
        i64 u = u_0 + kx * d_2;
        i64 at = (z * in_1 + v) * in_2 + u;
)kernel";
constexpr char kEndTaps[] = R"kernel(
        ++counted;
      }
    }
  }
)kernel";

/// One element a pixel, which lie PIXEL elements apart. START, STEP and FINISH fold them; `best` is the place of the greatest.
constexpr char kBeginOne[] = "  ACC acc = START;\n";
constexpr char kFoldOne[] = "        ACC value = LOAD(T, source, at * PIXEL);\n        STEP;\n";

std::string fold_taps() { return sdk::message(kBeginOne, kBeginTaps, kFoldOne, kEndTaps); }

constexpr char kFindFirst[] = R"kernel(
  i64 plane = i2 / out_0, oz = i2 % out_0, oy = i1, ox = i0;
  source += plane * in_0 * in_1 * in_2;
)kernel";
constexpr char kStoreFirst[] = R"kernel(
  i64 to = (i2 * out_1 + i1) * out_2 + i0;
  STORE(T, y, to, FINISH);
)kernel";

/// With the channels last i0 is the channel, or one of as many times V of them, and places, which nobody wants, are not found.
constexpr char kFindLast[] = R"kernel(
  i64 ox = i1 % out_2, oy = i1 / out_2 % out_1, oz = i1 / (out_2 * out_1);
  source += i2 * in_0 * in_1 * in_2 * channels + i0 * V;
  y += (i2 * out_0 * out_1 * out_2 + i1) * channels + i0 * V;
)kernel";
constexpr char kStoreLast[] = "  STORE(T, y, 0, FINISH);\n";

/// Taps whose pixels are asked for before any is folded.
constexpr std::int64_t kTapsAtOnce = 9;

/// V channels of a pixel, an item's. The taps are known, KERNEL_0 to KERNEL_2, and AT_ONCE_1 times AT_ONCE_2 of them are read together:
/// where a pixel lies outside, in place of another, whose value is not folded. TAKE reads WORDs from `pixel`.
constexpr char kFoldChannels[] = R"kernel(
#ifdef GREATER_WORD
  WORD best = least_word();
#endif
  int high = (int)in_1, wide = (int)in_2, counted = 0;
  int z_0 = (int)(oz * s_0 - b_0), v_0 = (int)(oy * s_1 - b_1), u_0 = (int)(ox * s_2 - b_2);
  for (int kz = 0; kz < KERNEL_0; ++kz) {
    int z = z_0 + kz * (int)d_0;
    if (z < 0 || z >= (int)in_0) continue;
    for (int ky = 0; ky < KERNEL_1; ky += AT_ONCE_1) {
      for (int kx = 0; kx < KERNEL_2; kx += AT_ONCE_2) {
        WORD words[AT_ONCE_1 * AT_ONCE_2];
        GLOBAL const STORAGE(T) *pixels[AT_ONCE_1 * AT_ONCE_2];
        int inside[AT_ONCE_1 * AT_ONCE_2];
        UNROLL for (int i = 0; i < AT_ONCE_1 * AT_ONCE_2; ++i) {
          int v = v_0 + (ky + i / AT_ONCE_2) * (int)d_1, u = u_0 + (kx + i % AT_ONCE_2) * (int)d_2;
          inside[i] = v >= 0 && v < high && u >= 0 && u < wide;
          pixels[i] = source + (inside[i] ? ((z * high + v) * wide + u) * (int)channels : 0);
          counted += inside[i];
        }
        if (is_wide) {
          UNROLL for (int i = 0; i < AT_ONCE_1 * AT_ONCE_2; ++i) words[i] = READ_WORD(pixels[i]);
        } else {
          UNROLL for (int i = 0; i < AT_ONCE_1 * AT_ONCE_2; ++i) words[i] = gather_word(pixels[i]);
        }
#ifdef GREATER_WORD
        UNROLL for (int i = 0; i < AT_ONCE_1 * AT_ONCE_2; ++i)
          if (inside[i]) best = greater_word(best, words[i]);
#else
        UNROLL for (int i = 0; i < AT_ONCE_1 * AT_ONCE_2; ++i) {
          STORAGE(T) taken[V];
          unpack_word(words[i], taken);
          UNROLL for (int e = 0; e < V; ++e) {
            ACC acc = all[e], value = LOAD(T, taken, e);
            STEP;
            all[e] = inside[i] ? acc : all[e];
          }
        }
#endif
      }
    }
  }
)kernel";

std::string word_functions(const common::NeighbourText& vector) {
  return sdk::message(
      "#define WORD ", vector.type(), "\n#define READ_WORD read_", vector.total(),
      "\nFUNCTION void unpack_word(WORD word, STORAGE(T) *to) {\n", vector.unpack("word", "to"),
      "}\nFUNCTION WORD gather_word(GLOBAL const STORAGE(T) *from) {\n    WORD word;\n",
      vector.pack("from", "word"), "    return word;\n}\n");
}

/// The greater ones of two words of elements of 16 bits, of which CUDA's devices compare two at once.
std::string greater_words(const common::NeighbourText& vector, DataType type) {
  std::string meet, least;
  for (std::int64_t k = 0; k < vector.total() / 4; ++k) {
    const std::string a = vector.part("a", k), b = vector.part("b", k);
    meet += sdk::message("    ", a, " = greater_pair(", a, ", ", b, ");\n");
    least += sdk::message("    ", vector.part("word", k), " = LEAST_PAIR;\n");
  }
  const bool is_half = type == DataType::Float16;
  return sdk::message(
      "#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800\n#define GREATER_WORD\n#define LEAST_PAIR ",
      is_half ? "0xFC00FC00u" : "0xFF80FF80u",
      "\nFUNCTION u32 greater_pair(u32 a, u32 b) {\n    u32 made;\n    asm(\"max.NaN.",
      is_half ? "f16x2" : "bf16x2",
      " %0, %1, %2;\" : \"=r\"(made) : \"r\"(a), \"r\"(b));\n    return made;\n}\n"
      "FUNCTION WORD greater_word(WORD a, WORD b) {\n",
      meet, "    return a;\n}\nFUNCTION WORD least_word(void) {\n    WORD word;\n", least,
      "    return word;\n}\n#endif\n");
}

std::string fold_channels(const common::NeighbourText& vector) {
  const std::string each = "UNROLL for (int e = 0; e < V; ++e) ";
  return sdk::message(
      "  ACC all[V];\n  ", each, "all[e] = START;\n  int is_wide = IS_AT(source, ", vector.total(),
      ") && IS_AT(y, ", vector.total(), ");\n", kFoldChannels,
      "  STORAGE(T) made[V];\n#ifdef GREATER_WORD\n  unpack_word(best, made);\n#else\n  ", each,
      "{\n    ACC acc = all[e];\n    STORE(T, made, e, FINISH);\n  }\n#endif\n",
      "  if (is_wide) {\n", vector.write("y", "made"), "  } else {\n    ", each,
      "y[e] = made[e];\n  }\n");
}

/// Windows over lines, for processors: see kWindowLines. An average is divided by how many taps its window has in the image,
/// or with COUNTS_PADDING in image and padding, which is a number of columns times one of lines.
constexpr char kPoolLines[] = R"kernel(
#define PLANE_MEMORY GLOBAL const float *restrict x, i64 x_at,
#define PLANE_NUMBERS i64 pad_end_y, i64 pad_end_x,
#define FIND_PLANE \
  AT(x); \
  GLOBAL const float *restrict from = x + plane * in_h * in_w
#if IS_MAX
#define BORDER -INFINITY
#define FOLD(acc, value, tap) acc = (value > acc) | (value != value) ? value : acc
#define PREPARE_SUMS
#define STORE_SUMS(sums, count, to, row, begin) store_line(sums, count, y + (to))
#else
#define BORDER 0.0f
#define FOLD(acc, value, tap) acc += value

/* Taps of a window that begins at `first` and lie between 0, or with COUNTS_PADDING anywhere, and `end`. */
FUNCTION int taps_inside(i64 first, i64 dilation, int taps, i64 end, i64 padded_end) {
  int count = 0;
  for (int k = 0; k < taps; ++k) {
    i64 at = first + k * dilation;
#if COUNTS_PADDING
    count += at < padded_end ? 1 : 0;
#else
    count += at >= 0 && at < end ? 1 : 0;
#endif
  }
  return count;
}
#define PREPARE_SUMS \
  float columns[COLUMNS]; \
  for (int j = 0; j < width; ++j) \
    columns[j] = (float)taps_inside((column + j) * STRIDE - pad_x, dilation_x, KERNEL_W, in_w, in_w + pad_end_x)
#define STORE_SUMS(sums, count, to, row, begin) \
  { \
    VT taps = VLOAD(0, columns + (begin)) * (VT)((float)taps_inside( \
        (line + (row)) * stride_y - pad_y, dilation_y, KERNEL_H, in_h, in_h + pad_end_y)); \
    VT mean = VLOAD(0, sums) / taps; \
    VSTORE(taps == (VT)(0.0f) ? (VT)(0.0f) : mean, 0, sums); \
    store_line(sums, count, y + (to)); \
  }
#endif
#define START (VT)(BORDER)
)kernel";

class Pool {
 public:
  Pool(const Device&, const sdk::Node& node)
      : kind_(node.op_type()),
        attributes_(node),
        counts_padding_(node.get_int("count_include_pad", 0) != 0),
        is_column_major_(node.get_int("storage_order", 0) != 0),
        is_channels_last_(node.get_int("channels_last", 0) != 0),
        p_(node.get_int("p", 2)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 3) sdk::invalid(kind_, " of dims ", to_string(x.dims()));
    if (is_channels_last_) return prepare_last(ctx, work);
    const Window window = window_of(spatial_of(x.dims()));
    const Dims dims = output_dims(x.dims(), x.dim(1), window);
    ctx.set_output(0, x.type(), dims);
    const bool wants_places = kind_ == "MaxPool" && ctx.output_wanted(1);
    if (wants_places) ctx.set_output(1, DataType::Int64, dims);
    if (sdk::element_count(dims) == 0) return;
    if (x.type() == DataType::Float && !wants_places && kind_ != "LpPool") {
      if (const std::optional<WindowLines> lines = WindowLines::over(work.device(), window))
        return add_lines(work, x.dim(0) * x.dim(1), window, *lines);
    }
    Walk walk(Dims{x.dim(0) * x.dim(1) * window.out[0], window.out[1], window.out[2]});
    walk.in("source", input(0), x.type()).out("y", output(0), x.type());
    if (wants_places) walk.out("places", output(1), DataType::Int64);
    add_numbers(walk, window);
    walk.define("T", type_code(x.type()));
    walk.define("ACC", "VALUE(T)");
    set_fold(walk, x.type(), wants_places);
    walk.functions = kTaps;
    walk.define("PIXEL", 1);
    walk.body = sdk::message(kFindFirst, fold_taps(), kStoreFirst);
    if (wants_places)
      walk.body +=
          is_column_major_
              ? "  STORE(i64, places, to, plane * in_0 * in_1 * in_2 + (best % in_2 * in_1 "
                "+ best / in_2 % in_1) * in_0 + best / (in_1 * in_2));\n"
              : "  STORE(i64, places, to, plane * in_0 * in_1 * in_2 + best);\n";
    walk.add_to(work);
  }

 private:
  Window window_of(DimsView spatial) const {
    const Window window = attributes_.resolve(spatial, attributes_.kernel_shape);
    // What is summed over nothing is zero.
    if (kind_ == "LpPool" || (kind_ == "AveragePool" && counts_padding_)) return window;
    const std::size_t first = 3 - spatial.size();
    for (std::size_t axis = first; axis < 3; ++axis)
      common::require_elements(axis - first, window.axis(axis));
    return window;
  }

  /// A node of a rewrite: [batch, spatial ..., channels], one output.
  void prepare_last(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    Dims dims(x.dims().begin(), x.dims().end());
    const std::int64_t channels = dims.back();
    const Window window = window_of(DimsView(dims.data() + 1, dims.size() - 2));
    for (std::size_t axis = 1; axis + 1 < dims.size(); ++axis)
      dims[axis] = window.out[axis + 4 - dims.size()];
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    const std::int64_t width =
        fits_ints(window, channels) ? channels_at_once(work.device(), x.type(), channels) : 1;
    Walk walk(Dims{x.dim(0), window.out_points(), channels / width});
    walk.in("source", input(0), x.type()).out("y", output(0), x.type());
    add_numbers(walk, window);
    walk.number("channels", channels).define("T", type_code(x.type())).define("ACC", "VALUE(T)");
    set_fold(walk, x.type(), false);
    walk.functions = kTaps;
    walk.define("PIXEL", "channels").define("V", width);
    walk.body = kFindLast;
    if (width > 1) {
      const common::NeighbourText vector(type_code(x.type()), width);
      define_taps(walk, window);
      walk.functions = sdk::message(common::kNeighbourWords, kTaps, word_functions(vector));
      if (kind_ == "MaxPool" && is_half(x.type()))
        walk.functions += greater_words(vector, x.type());
      walk.body += fold_channels(vector);
    } else {
      walk.body += fold_taps() + kStoreLast;
    }
    walk.add_to(work);
  }

  static void define_taps(Walk& walk, const Window& window) {
    const std::int64_t across = window.kernel[2], down = window.kernel[1];
    for (std::size_t axis = 0; axis < 3; ++axis)
      walk.define(sdk::message("KERNEL_", axis).c_str(), window.kernel[axis]);
    walk.define("AT_ONCE_1", across * down <= kTapsAtOnce ? down : 1);
    walk.define("AT_ONCE_2", across <= kTapsAtOnce ? across : 1);
  }

  /// Whether ints number what an image has, and what a window of it may reach; of no pixel, none is read in place of others.
  static bool fits_ints(const Window& window, std::int64_t channels) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    if (window.in_points() == 0 || window.in_points() > kMost / channels) return false;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (window.out[axis] > kMost / window.stride[axis] ||
          window.kernel[axis] > kMost / window.dilation[axis] || window.pad_begin[axis] > kMost)
        return false;
    }
    return true;
  }

  /// As many as one access moves, or fewer, of which a pixel has a whole number.
  static std::int64_t channels_at_once(const Device& device, DataType type, std::int64_t channels) {
    if (device.limits().is_processor) return 1;
    std::int64_t width = common::kWidestBytes / sdk::element_bytes(type);
    while (channels % width != 0) width /= 2;
    return width;
  }

  void add_lines(Work& work, std::int64_t planes, const Window& window,
                 const WindowLines& lines) const {
    KernelText text;
    text.define("ACTIVATE(s)", "s").define("ACTIVATE_VECTOR(v)", "v");
    text.define("IS_MAX", kind_ == "MaxPool" ? 1 : 0);
    text.define("COUNTS_PADDING", counts_padding_ ? 1 : 0);
    text.define("COLUMNS", WindowLines::kMostColumns + lines.width);
    lines.define(text, window);
    text.add(common::kVectorWords).add(common::kStoreLine);
    LaunchPlan plan;
    plan.name = "pool lines";
    plan.source = text.add(kPoolLines).add(common::kWindowLines).str();
    plan.arg(input(0), DataType::Float).arg(output(0), DataType::Float);
    plan.scalar(window.pad_end[1]).scalar(window.pad_end[2]);
    lines.set(plan, window, planes);
    work.add(plan);
  }

  const char* average() const {
    return counts_padding_ ? "acc / ((ACC)taps_before(in_0 + e_0, z_0, d_0, k_0) * "
                             "(ACC)taps_before(in_1 + e_1, "
                             "v_0, d_1, k_1) * (ACC)taps_before(in_2 + e_2, u_0, d_2, k_2))"
                           : "counted == 0 ? (ACC)0 : acc / (ACC)counted";
  }

  void set_fold(Walk& walk, DataType type, bool finds_place) const {
    if (kind_ == "MaxPool") {
      const bool is_integer = type == DataType::Int8 || type == DataType::UInt8;
      walk.define("START", is_integer ? type == DataType::Int8 ? "-128" : "0" : "-INFINITY");
      walk.define("STEP", finds_place
                              ? "if (counted == 0 || value > acc || value != value) { acc = "
                                "value; best = at; }"
                              : "acc = value > acc || value != value ? value : acc");
      walk.define("FINISH", "acc");
    } else if (kind_ == "AveragePool") {
      walk.define("START", "0").define("STEP", "acc += value");
      walk.define("FINISH", average());
    } else {
      walk.define("START", "0");
      walk.define("STEP", p_ == 1   ? "acc += fabs(value)"
                          : p_ == 2 ? "acc += value * value"
                                    : sdk::message("acc += pow(fabs(value), (ACC)", p_, ")"));
      walk.define("FINISH", p_ == 1   ? "acc"
                            : p_ == 2 ? "sqrt(acc)"
                                      : sdk::message("pow(acc, (ACC)1 / (ACC)", p_, ")"));
    }
  }

  std::string kind_;
  WindowAttributes attributes_;
  bool counts_padding_, is_column_major_, is_channels_last_;
  std::int64_t p_;
};

/// Each output element gathers what a transposed convolution would add to it.
constexpr char kTransposedBody[] = R"kernel(
  i64 plane = i2 / out_0, oz = i2 % out_0;
  i64 image = plane / filters, filter = plane % filters;
  i64 group = filter / group_filters, within = filter % group_filters;
  i64 points = in_0 * in_1 * in_2, taps = k_0 * k_1 * k_2;
  x += (image * groups + group) * group_channels * points;
  w += (group * group_channels * group_filters + within) * taps;
  ACC acc = 0;
  for (i64 kz = 0; kz < k_0; ++kz) {
    i64 z = oz + b_0 - kz * d_0;
    if (z < 0 || z % s_0 != 0 || z / s_0 >= in_0) continue;
    for (i64 ky = 0; ky < k_1; ++ky) {
      i64 v = i1 + b_1 - ky * d_1;
      if (v < 0 || v % s_1 != 0 || v / s_1 >= in_1) continue;
      for (i64 kx = 0; kx < k_2; ++kx) {
        i64 u = i0 + b_2 - kx * d_2;
        if (u < 0 || u % s_2 != 0 || u / s_2 >= in_2) continue;
        i64 from = (z / s_0 * in_1 + v / s_1) * in_2 + u / s_2, tap = (kz * k_1 + ky) * k_2 + kx;
        for (i64 c = 0; c < group_channels; ++c)
          acc += (ACC)LOAD(T, x, c * points + from) *
                 (ACC)LOAD(T, w, c * group_filters * taps + tap);
      }
    }
  }
#if HAS_BIAS
  acc += LOAD(T, bias, filter);
#endif
  STORE(T, y, (i2 * out_1 + i1) * out_2 + i0, acc);
)kernel";

class ConvTranspose {
 public:
  ConvTranspose(const Device&, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), w = ctx.input(1);
    if (groups_ < 1 || x.rank() < 3 || w.rank() != x.rank() || x.dim(1) != w.dim(0) ||
        w.dim(0) % groups_ != 0)
      sdk::invalid("ConvTranspose of ", to_string(x.dims()), " with weights ", to_string(w.dims()),
                   " in ", groups_, " groups");
    const Window window =
        attributes_.resolve_transposed(spatial_of(x.dims()), spatial_of(w.dims()));
    const std::int64_t filters = w.dim(1) * groups_;
    const Dims dims = output_dims(x.dims(), filters, window);
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    const bool has_bias = ctx.input(2).present();
    Walk walk(Dims{x.dim(0) * filters * window.out[0], window.out[1], window.out[2]});
    walk.in("x", input(0), x.type()).in("w", input(1), x.type());
    if (has_bias) walk.in("bias", input(2), x.type());
    walk.out("y", output(0), x.type());
    add_numbers(walk, window);
    walk.number("filters", filters).number("groups", groups_).number("group_filters", w.dim(1));
    walk.number("group_channels", w.dim(0) / groups_).define("T", type_code(x.type()));
    walk.define("ACC", x.type() == DataType::Double ? "double" : "float");
    walk.define("HAS_BIAS", has_bias ? 1 : 0);
    walk.body = kTransposedBody;
    walk.add_to(work);
  }

 private:
  WindowAttributes attributes_;
  std::int64_t groups_;
};

}  // namespace

KernelList pool_kernels() {
  const common::TypeList max_types = common::join(float_types(), {DataType::Int8, DataType::UInt8});
  return {
      device_kernel<Pool>(sdk::op("MaxPool").name(kernel_name("pool")).types("T", max_types)),
      device_kernel<Pool>(
          sdk::op("AveragePool").name(kernel_name("pool")).types("T", float_types())),
      device_kernel<Pool>(
          sdk::op("LpPool").name(kernel_name("pool")).since(2).types("T", float_types())),
      device_kernel<Pool>(sdk::op("MaxPool", private_domain()).name(kernel_name("pool"))),
      device_kernel<Pool>(sdk::op("AveragePool", private_domain()).name(kernel_name("pool"))),
      device_kernel<ConvTranspose>(
          sdk::op("ConvTranspose").name(kernel_name("conv transpose")).types("T", float_types())),
  };
}

}  // namespace backplane::device_ops

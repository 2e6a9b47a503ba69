// MaxPool, AveragePool, LpPool and their global forms: https://onnx.ai/onnx/operators/onnx__MaxPool.html
// and their channels-last forms in backplane.cpu, on x [batch, spatial ..., channels].
#include <cmath>
#include <limits>

#include "plugins/cpu/dense/image_tensor.hpp"
#include "plugins/cpu/dense/plain_product.hpp"
#include "plugins/cpu/dense/sliding.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/fold_loops.hpp"
#include "plugins/cpu/kernels/pool_lines.hpp"

namespace backplane::cpu {
namespace {

enum class PoolKind { kMax, kMean, kNorm };

/// What all forms share: the attributes, and the window for an input.
struct PoolAttributes {
  PoolKind kind;
  bool global;
  bool last;
  bool count_padding;
  bool column_major;
  int64_t p = 2;  // of the norm
  WindowAttributes window;

  PoolAttributes(PoolKind pool_kind, const sdk::Node& node)
      : kind(pool_kind),
        global(node.op_type().substr(0, 6) == "Global"),
        last(node.domain() != ""),
        count_padding(node.get_int("count_include_pad", 0) != 0),
        column_major(node.get_int("storage_order", 0) != 0),
        window(node) {
    if (kind == PoolKind::kNorm) p = node.get_int("p", 2);
    if (p < 1) sdk::invalid(node.op_type(), ": attribute 'p' is ", p, "; it must be positive");
    if (!global && window.kernel_shape.empty())
      sdk::invalid(node.op_type(), ": the attribute 'kernel_shape' is missing");
  }

  Window resolve(sdk::DimsView x) const {
    if (x.size() < 3) sdk::invalid("pooling: x has rank ", x.size(), ", at least 3 is needed");
    const sdk::DimsView spatial(x.data() + (last ? 1 : 2), x.size() - 2);
    if (global) return window.resolve(spatial, spatial);
    const Window resolved = resolve_sliding(spatial);
    for (std::size_t axis = 3 - spatial.size(); axis < 3; ++axis) {
      // What is summed over nothing is zero.
      if (kind == PoolKind::kMax || (kind == PoolKind::kMean && !count_padding))
        common::require_elements(axis + spatial.size() - 3, resolved.axis(axis));
    }
    return resolved;
  }

  Window resolve_sliding(sdk::DimsView spatial) const {
    if (window.kernel_shape.size() != spatial.size()) {
      sdk::invalid("pooling: attribute 'kernel_shape' has ", window.kernel_shape.size(),
                   " entries, x needs ", spatial.size());
    }
    return window.resolve(spatial, window.kernel_shape);
  }

  int64_t channels(sdk::DimsView x) const { return last ? x.back() : x[1]; }

  sdk::Dims output(sdk::DimsView x, const Window& resolved) const {
    sdk::Dims dims(x.begin(), x.end());
    for (std::size_t axis = 5 - x.size(); axis < 3; ++axis) {
      dims[axis + x.size() - 3 - (last ? 1 : 0)] = resolved.out[axis];
    }
    return dims;
  }
};

/// Channels-last float.
class LastPool {
 public:
  struct Prepared {
    Pooling pooling;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(0);
      const sdk::Tensor y = ctx.output(0);
      if (y.size() == 0) return;
      pooling.run(x.data<float>(), image_strides(x), y.mutable_data<float>(), image_strides(y),
                  ctx.threads());
    }
  };

  LastPool(PoolKind kind, const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(kind, node), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    const Window window = attributes_.resolve(x);
    if (window.most_inside() > Pooling::kMaxTaps) {
      sdk::unsupported("a pooling window of ", window.most_inside(), " positions; up to ",
                       Pooling::kMaxTaps, " are handled");
    }
    const sdk::Dims dims = attributes_.output(x, window);
    ctx.set_output(0, sdk::DataType::Float, dims);
    ctx.allow_strided_input(0);
    ctx.allow_strided_output(0);
    const Pooling::Kind kind = attributes_.kind == PoolKind::kMax ? Pooling::kMax
                               : attributes_.count_padding        ? Pooling::kMeanWithPadding
                                                                  : Pooling::kMean;
    return {Pooling(window, x[0], attributes_.channels(x), kind, isa_)};
  }

 private:
  PoolAttributes attributes_;
  Isa isa_;
};

/// The mean over all pixels, channels last: y [batch, 1 ..., channels].
class LastGlobalMean {
 public:
  struct Prepared {
    int64_t batch, channels;
    Window window;
    Isa isa;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor x = ctx.input(0);
      const ImageStrides strides = image_strides(x);
      auto* y = ctx.output(0).mutable_data<float>();
      // A few channels at a time, so that many threads share even one image.
      constexpr int64_t kPart = 64;
      const int64_t parts = (channels + kPart - 1) / kPart;
      const uint64_t grain = 32768 / static_cast<uint64_t>(window.in_pixels() * kPart + 1) + 1;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(batch * parts), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
              const int64_t first = i % parts * kPart;
              mean(x.data<float>() + i / parts * strides.batch + first, strides,
                   std::min(kPart, channels - first), y + i / parts * channels + first);
            }
          });
    }

    void mean(const float* x, const ImageStrides& strides, int64_t count, float* y) const {
      constexpr int64_t kTaps = 32;
      const float scale = 1.0f / static_cast<float>(window.in_pixels());
      std::array<float, 64> sum{};
      std::array<float, 64> part{};
      std::array<const float*, kTaps> taps{};
      WindowRun run{};
      run.taps = taps.data();
      run.pixels = 1;
      run.y = part.data();
      run.channels = count;
      run.scale = 1.0f;
      for (int64_t pixel = 0; pixel < window.in_pixels(); pixel += kTaps) {
        run.tap_count = std::min(kTaps, window.in_pixels() - pixel);
        for (int64_t t = 0; t < run.tap_count; ++t) {
          const int64_t px = (pixel + t) % window.in[2];
          const int64_t py = (pixel + t) / window.in[2] % window.in[1];
          const int64_t pz = (pixel + t) / (window.in[2] * window.in[1]);
          taps[static_cast<std::size_t>(t)] =
              x + pz * strides.depth + py * strides.height + px * strides.width;
        }
        window_kernels(isa).mean(run);
        for (int64_t c = 0; c < count; ++c)
          sum[static_cast<std::size_t>(c)] += part[static_cast<std::size_t>(c)];
      }
      for (int64_t c = 0; c < count; ++c) y[c] = sum[static_cast<std::size_t>(c)] * scale;
    }
  };

  LastGlobalMean(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(PoolKind::kMean, node), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    sdk::Dims dims(x.size(), 1);
    dims[0] = x[0];
    dims.back() = x.back();
    ctx.set_output(0, sdk::DataType::Float, dims);
    ctx.allow_strided_input(0);
    return {x[0], x.back(), attributes_.resolve(x), isa_};
  }

 private:
  PoolAttributes attributes_;
  Isa isa_;
};

/// Channels first, any type, MaxPool's second output too: plain loops, but for means and largest ones of floats and
/// largest ones of bytes, which go line by line, or are reductions where windows are whole lines or images.
template <class T>
class FirstPool {
 public:
  struct Prepared {
    PoolAttributes attributes;
    Window window;
    int64_t planes;
    PoolLines lines = {};
    PoolPlane<T> by_lines = nullptr;
    bool folds = false;
    ReductionShape shape = {};
    Isa isa = Isa::kBaseline;

    template <Fold fold, class Finish>
    void run_fold(const sdk::ComputeContext& ctx, const Finish& finish) const {
      constexpr double kNs = std::is_same_v<T, float> ? 0.08 : 0.6;
      run_reduction(shape, fold_loops<fold, T>(isa), ctx.input(0).data<T>(),
                    ctx.output(0).mutable_data<T>(), ctx.threads(), kNs, finish);
    }

    void compute_folds(const sdk::ComputeContext& ctx) const {
      if constexpr (std::is_arithmetic_v<T>) {
        if (attributes.kind == PoolKind::kMax) {
          return run_fold<Fold::kMax>(
              ctx, [](const T* acc, T* y, int64_t n) { std::copy_n(acc, n, y); });
        }
      }
      if constexpr (std::is_floating_point_v<T>) {
        const auto count = static_cast<T>(shape.depth());
        run_fold<Fold::kSum>(ctx, [count](const T* acc, T* y, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[i] = acc[i] / count;
        });
      }
    }

    void compute_by_lines(const sdk::ComputeContext& ctx) const {
      const T* x = ctx.input(0).data<T>();
      T* y = ctx.output(0).mutable_data<T>();
      T* scratch = ctx.workspace().mutable_data<T>();
      const int64_t size = lines.scratch_size();
      const int64_t work = window.out_pixels() * (window.kernel[2] + window.taps() / 8);
      const uint64_t grain = 16384 / static_cast<uint64_t>(std::max<int64_t>(1, work)) + 1;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(planes), grain, [&](uint64_t begin, uint64_t end, uint32_t worker) {
            for (auto p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); ++p)
              by_lines(lines, x + p * window.in_pixels(), y + p * window.out_pixels(),
                       scratch + worker * size);
          });
    }

    void compute(const sdk::ComputeContext& ctx) const {
      if (folds) return compute_folds(ctx);
      if (by_lines != nullptr) return compute_by_lines(ctx);
      const T* x = ctx.input(0).data<T>();
      T* y = ctx.output(0).mutable_data<T>();
      int64_t* indices = ctx.has_output(1) ? ctx.output(1).mutable_data<int64_t>() : nullptr;
      const int64_t work = window.out_pixels() * window.most_inside();
      const uint64_t grain = 16384 / static_cast<uint64_t>(std::max<int64_t>(1, work)) + 1;
      ctx.threads().parallel_for(
          static_cast<uint64_t>(planes), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
            for (auto p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); ++p) {
              const T* plane = x + p * window.in_pixels();
              const int64_t out = p * window.out_pixels();
              for (int64_t i = 0; i < window.out_pixels(); ++i) {
                if (attributes.kind == PoolKind::kMax) {
                  max(plane, p, i, y[out + i], indices != nullptr ? indices + out + i : nullptr);
                } else if (attributes.kind == PoolKind::kNorm) {
                  norm(plane, i, y[out + i]);
                } else {
                  mean(plane, i, y[out + i]);
                }
              }
            }
          });
    }

    /// Calls body(z, y, x) for the positions of the window of output pixel `pixel` inside of the image;
    /// returns how many positions lie inside of the padded image.
    template <class Body>
    double visit(int64_t pixel, const Body& body) const {
      std::array<int64_t, 3> start{}, first{}, end{};
      double padded = 1;
      const std::array<int64_t, 3> out{pixel / (window.out[2] * window.out[1]),
                                       pixel / window.out[2] % window.out[1],
                                       pixel % window.out[2]};
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const common::WindowAxis along = window.axis(axis);
        start[axis] = along.start(out[axis]);
        first[axis] = along.first_inside(out[axis]);
        end[axis] = along.count_before(along.in, out[axis]);
        padded *= static_cast<double>(along.count_before(along.in + along.pad_end, out[axis]));
      }
      for (int64_t kz = first[0]; kz < end[0]; ++kz) {
        const int64_t z = start[0] + kz * window.dilation[0];
        for (int64_t ky = first[1]; ky < end[1]; ++ky) {
          const int64_t y = start[1] + ky * window.dilation[1];
          for (int64_t kx = first[2]; kx < end[2]; ++kx)
            body(z, y, start[2] + kx * window.dilation[2]);
        }
      }
      return padded;
    }

    void max(const T* plane, int64_t plane_index, int64_t pixel, T& y, int64_t* index) const {
      using Sum = SumOf<T>;
      Sum best{};
      int64_t at = -1;
      visit(pixel, [&](int64_t pz, int64_t py, int64_t px) {
        const int64_t offset = (pz * window.in[1] + py) * window.in[2] + px;
        const Sum value = to_sum(plane[offset]);
        bool better = at < 0 || value > best;
        if constexpr (std::is_floating_point_v<Sum>) better = better || std::isnan(value);
        if (!better) return;
        if constexpr (std::is_floating_point_v<Sum>) {
          if (at >= 0 && std::isnan(best)) return;
        }
        best = value;
        at = attributes.column_major ? (px * window.in[1] + py) * window.in[0] + pz : offset;
      });
      if (at < 0) {
        at = 0;
        best = std::numeric_limits<Sum>::has_infinity ? -std::numeric_limits<Sum>::infinity()
                                                      : std::numeric_limits<Sum>::lowest();
      }
      y = from_sum<T>(best);
      if (index != nullptr) *index = plane_index * window.in_pixels() + at;
    }

    void norm(const T* plane, int64_t pixel, T& y) const {
      if constexpr (!std::is_integral_v<T>) {
        const auto p = static_cast<double>(attributes.p);
        double sum = 0;
        visit(pixel, [&](int64_t pz, int64_t py, int64_t px) {
          const double x = std::abs(
              static_cast<double>(to_sum(plane[(pz * window.in[1] + py) * window.in[2] + px])));
          sum += attributes.p == 1 ? x : attributes.p == 2 ? x * x : std::pow(x, p);
        });
        const double root = attributes.p == 1   ? sum
                            : attributes.p == 2 ? std::sqrt(sum)
                                                : std::pow(sum, 1 / p);
        y = from_sum<T>(static_cast<SumOf<T>>(root));
      }
    }

    void mean(const T* plane, int64_t pixel, T& y) const {
      if constexpr (!std::is_integral_v<T>) {
        SumOf<T> sum{};
        int64_t inside = 0;
        const double padded = visit(pixel, [&](int64_t pz, int64_t py, int64_t px) {
          sum += to_sum(plane[(pz * window.in[1] + py) * window.in[2] + px]);
          ++inside;
        });
        const double count =
            std::max(1.0, attributes.count_padding ? padded : static_cast<double>(inside));
        y = from_sum<T>(sum / static_cast<SumOf<T>>(count));
      }
    }
  };

  FirstPool(PoolKind kind, const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(kind, node), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const Window window = attributes_.resolve(x.dims());
    const sdk::Dims dims = attributes_.output(x.dims(), window);
    ctx.set_output(0, x.type(), dims);
    if (ctx.output_wanted(1)) ctx.set_output(1, sdk::DataType::Int64, dims);
    Prepared prepared{attributes_, window, x.dim(0) * x.dim(1)};
    if (!ctx.output_wanted(1) && prepared.planes > 0 && window.in_pixels() > 0 &&
        window.out_pixels() > 0) {
      if (std::is_arithmetic_v<T> && attributes_.kind != PoolKind::kNorm && folds_lines(window)) {
        const int64_t results = prepared.planes * window.out_pixels();
        const sdk::Dims rows{results, window.in_pixels() / window.out_pixels()};
        prepared.folds = true;
        prepared.shape = plan_reduction(rows, {1});
        prepared.isa = isa_;
      } else if (stays_near(window)) {
        go_by_lines(ctx, prepared);
      }
    }
    return prepared;
  }

 private:
  /// Whether each window is all of the innermost axes, or of all, and one position of the others.
  static bool folds_lines(const Window& window) {
    bool whole = true;
    for (std::size_t axis = 3; axis-- > 0;) {
      const int64_t in = window.in[axis];
      if (window.pad_begin[axis] != 0 || window.pad_end[axis] != 0) return false;
      const bool all = window.kernel[axis] == in && window.out[axis] == 1 &&
                       (window.dilation[axis] == 1 || in == 1);
      whole = whole && all;
      if (axis == 2 && !whole) return false;
      const bool each = window.kernel[axis] == 1 && window.out[axis] == in &&
                        (window.stride[axis] == 1 || in == 1);
      if (!whole && !each) return false;
    }
    return true;
  }

  /// Whether an image with its padding is not much more than the image: lines are gone over with what lies beside them,
  /// and with all positions of a window. Elsewhere those inside of the image are.
  static bool stays_near(const Window& window) {
    constexpr int64_t kTimes = 16, kBeside = 4096;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const int64_t in = window.in[axis];
      if (in + window.pad_begin[axis] + window.pad_end[axis] > kTimes * in + kBeside) return false;
    }
    return true;
  }

  /// Null where there is none.
  PoolPlane<T> pool_plane() const {
    const PoolLoops& loops = pool_loops(isa_);
    const bool is_max = attributes_.kind == PoolKind::kMax;
    if constexpr (std::is_same_v<T, float>) {
      if (attributes_.kind == PoolKind::kMean) return loops.mean;
      if (is_max) return loops.max;
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
      if (is_max) return loops.max_u8;
    } else if constexpr (std::is_same_v<T, std::int8_t>) {
      if (is_max) return loops.max_s8;
    }
    return nullptr;
  }

  void go_by_lines(sdk::PrepareContext& ctx, Prepared& prepared) const {
    PoolLines& lines = prepared.lines;
    lines.window = prepared.window;
    lines.count_padding = attributes_.count_padding;
    prepared.by_lines = pool_plane();
    if (prepared.by_lines == nullptr) return;
    if (attributes_.kind == PoolKind::kMean) {
      for (int64_t i = 0; i < lines.window.out[2]; ++i)
        lines.counts.push_back(static_cast<float>(lines.count_at(2, i)));
      lines.counts.resize(lines.counts.size() + PoolLines::kBeyond, 1.0f);
    }
    ctx.set_workspace(static_cast<uint64_t>(lines.scratch_size()) * sizeof(T) *
                      ctx.threads().count());
  }

  PoolAttributes attributes_;
  Isa isa_;
};

// The forms with their kind fixed, as the registry constructs them.
template <class T, PoolKind kKind>
struct First : FirstPool<T> {
  First(const sdk::CreateContext& ctx, const sdk::Node& node) : FirstPool<T>(kKind, ctx, node) {}
};
template <PoolKind kKind>
struct Last : LastPool {
  Last(const sdk::CreateContext& ctx, const sdk::Node& node) : LastPool(kKind, ctx, node) {}
};

template <class T, PoolKind kKind>
sdk::KernelEntry first(const char* op_type, int since = 1) {
  constexpr sdk::DataType kType = sdk::data_type_of<T>();
  return sdk::op(op_type)
      .name(std::string("cpu:") + op_type + "_" + sdk::type_name(kType))
      .since(since)
      .types("T", {kType})
      .flags(BP_KERNEL_WIDENS_HALF)
      .template kernel<First<T, kKind>>();
}

template <PoolKind kKind>
void add_float_types(sdk::KernelList& list, const char* op_type, int since = 1) {
  list.push_back(first<float, kKind>(op_type, since));
  list.push_back(first<double, kKind>(op_type, since));
  list.push_back(first<sdk::Half, kKind>(op_type, since));
  list.push_back(first<sdk::BFloat16, kKind>(op_type, 22));
}

}  // namespace

sdk::KernelList pool_kernels() {
  sdk::KernelList list;
  add_float_types<PoolKind::kMax>(list, "MaxPool");
  add_float_types<PoolKind::kMax>(list, "GlobalMaxPool");
  add_float_types<PoolKind::kMean>(list, "AveragePool");
  add_float_types<PoolKind::kMean>(list, "GlobalAveragePool");
  // Their first version had a p that is no whole number.
  add_float_types<PoolKind::kNorm>(list, "LpPool", 2);
  add_float_types<PoolKind::kNorm>(list, "GlobalLpPool", 2);
  list.push_back(first<int8_t, PoolKind::kMax>("MaxPool", 12));
  list.push_back(first<uint8_t, PoolKind::kMax>("MaxPool", 12));
  list.push_back(
      sdk::op("MaxPool", "backplane.cpu").name("cpu:max_pool_last").kernel<Last<PoolKind::kMax>>());
  list.push_back(sdk::op("AveragePool", "backplane.cpu")
                     .name("cpu:average_pool_last")
                     .kernel<Last<PoolKind::kMean>>());
  list.push_back(sdk::op("GlobalAveragePool", "backplane.cpu")
                     .name("cpu:global_average_pool_last")
                     .kernel<LastGlobalMean>());
  return list;
}

}  // namespace backplane::cpu

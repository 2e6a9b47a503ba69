// GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html
#include <algorithm>
#include <cmath>

#include "backplane/plugin.hpp"
#include "backplane/plugin_api/optional/widening.h"
#include "plugins/common/grid_sample_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"

namespace backplane::cpu {
namespace {

using Mode = common::SampleMode;
using Padding = common::SamplePadding;

constexpr int kMaxAxes = common::kMostSampledAxes;
constexpr int kMaxTaps = 64;  // 4 of a cubic axis, three axes

/// Mirrors x at the ends of [low, high] until it lies inside.
template <class T>
T reflect(T x, T low, T high) {
  const T range = high - low;
  if (!(range > 0)) return low;
  if (x >= low && x <= high) return x;
  const T beyond = x < low ? low - x : x - high;
  const T turns = std::trunc(beyond / range);
  const T rest = beyond - turns * range;
  const bool from_low = (x < low) == (std::fmod(turns, T(2)) == 0);
  return from_low ? low + rest : high - rest;
}

/// Keys' cubic weights with a = -0.75 for a point at `f` between the second and the third of four.
template <class T>
void cubic_weights(T f, T* weights) {
  constexpr T a = T(-0.75);
  const T x0 = f + 1, x3 = 2 - f, g = 1 - f;
  weights[0] = ((a * x0 - 5 * a) * x0 + 8 * a) * x0 - 4 * a;
  weights[1] = ((a + 2) * f - (a + 3)) * f * f + 1;
  weights[2] = ((a + 2) * g - (a + 3)) * g * g + 1;
  weights[3] = ((a * x3 - 5 * a) * x3 + 8 * a) * x3 - 4 * a;
}

class GridSample {
 public:
  /// Points that go through the channels together.
  static constexpr std::int64_t kTogether = 64;
  template <class Sum>
  struct Together {
    static constexpr int kTaps = 16;  // of a point; with more, points go alone
    std::int64_t count = 0;
    bool is_whole = false;  // points[i] is i
    std::int64_t points[kTogether];
    std::int64_t places[kTaps][kTogether];
    Sum weights[kTaps][kTogether];
  };

  struct Prepared {
    common::GridSampleRule rule;
    int axes;
    std::int64_t batch, channels, points, image;  // output points and input elements of one channel
    std::int64_t dims[kMaxAxes], strides[kMaxAxes];

    void compute(const sdk::ComputeContext& ctx) const {
      if (batch * channels * points == 0) return;
      common::with_number(ctx.input(0).type(),
                          [&](auto element) { run<typename decltype(element)::type>(ctx); });
    }

   private:
    // What reads the grid does not know the type of the elements, and what reads those not the grid's: code for each of their
    // 48 pairs was a twentieth of the plugin.

    /// Samples the channels of point `i`, which goes alone, from `from` to `to`, arrays of the elements' type.
    template <class Sum>
    using SampleAlone = void (Prepared::*)(const std::int64_t* places, const Sum* weights, int taps,
                                           const void* from, void* to, std::int64_t i) const;

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      using Sum =
          std::conditional_t<std::is_same_v<T, float> || common::kIsHalfType<T>, float, double>;
      const T* input = ctx.input(0).data<T>();
      const sdk::Tensor grid = ctx.input(1);
      T* output = ctx.output(0).mutable_data<T>();
      const auto gather = common::with_float(grid.type(), [](auto coordinate) {
        return &Prepared::gather<typename decltype(coordinate)::type, Sum>;
      });
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        const auto last = static_cast<std::int64_t>(end);
        Together<Sum> all;
        for (auto p = static_cast<std::int64_t>(begin); p < last;) {
          const std::int64_t n = p / points, within = p % points;
          const std::int64_t count = std::min({kTogether, last - p, points - within});
          const T* from = input + n * channels * image;
          T* to = output + n * channels * points + within;
          (this->*gather)(grid.bytes_data(), p, count, all, &Prepared::sample_alone<Sum, T>, from,
                          to);
          if (all.count > 0) sample(all, from, to);
          p += count;
        }
      };
      const std::int64_t work = channels * 8 + 32;
      ctx.threads().parallel_for(static_cast<std::uint64_t>(batch * points),
                                 static_cast<std::uint64_t>(1 + 16 * 1024 / work), part);
    }

    /// Neighbouring points of one image, from `first` of all on. Those that read as many places as a point can are to go through
    /// the channels together, so that lines of the input and of the output are found in the cache; others, at the edges, are
    /// sampled here, one by one.
    template <class G, class Sum>
    void gather(const void* grid, std::int64_t first, std::int64_t count, Together<Sum>& all,
                SampleAlone<Sum> alone, const void* from, void* to) const {
      const int most = most_taps();
      const G* point = static_cast<const G*>(grid) + first * axes;
      all.count = 0;
      for (std::int64_t i = 0; i < count; ++i, point += axes) {
        if (most == 4 && axes == 2 && add_inside(point, i, all)) continue;
        std::int64_t places[kMaxTaps];
        Sum weights[kMaxTaps];
        const int taps = find_taps(point, places, weights);
        if (taps != most || most > Together<Sum>::kTaps) {
          (this->*alone)(places, weights, taps, from, to, i);
          continue;
        }
        for (int k = 0; k < taps; ++k) {
          all.places[k][all.count] = places[k];
          all.weights[k][all.count] = weights[k];
        }
        all.points[all.count++] = i;
      }
      all.is_whole = all.count == count;
    }

    template <class Sum, class T>
    void sample(const Together<Sum>& all, const T* from, T* to) const {
      const int taps = most_taps();
      for (std::int64_t c = 0; c < channels; ++c, from += image, to += points) {
        if (taps == 1) {
          sample_together<1>(all, from, to);
        } else if (taps == 4) {
          sample_together<4>(all, from, to);
        } else if (taps == 8) {
          sample_together<8>(all, from, to);
        } else if (taps == 2) {
          sample_together<2>(all, from, to);
        } else {
          sample_together<16>(all, from, to);
        }
      }
    }

    /// Adds point `i` where all four places that it reads of a plane are inside: what find_taps says, in a fraction of its time.
    template <class Sum, class G>
    bool add_inside(const G* point, std::int64_t i, Together<Sum>& all) const {
      using F = common::Wide<G>;
      const F y = unnormalized(static_cast<F>(common::widen(point[1])), dims[0]);
      const F x = unnormalized(static_cast<F>(common::widen(point[0])), dims[1]);
      if (!(y >= 0 && x >= 0 && y < static_cast<F>(dims[0] - 1) && x < static_cast<F>(dims[1] - 1)))
        return false;
      const auto row = static_cast<std::int64_t>(y), column = static_cast<std::int64_t>(x);
      const auto down = static_cast<Sum>(y - static_cast<F>(row)),
                 right = static_cast<Sum>(x - static_cast<F>(column));
      const auto up = static_cast<Sum>(1 - (y - static_cast<F>(row))),
                 left = static_cast<Sum>(1 - (x - static_cast<F>(column)));
      const std::int64_t at = all.count++, place = row * strides[0] + column;
      all.points[at] = i;
      all.places[0][at] = place;
      all.places[1][at] = place + 1;
      all.places[2][at] = place + strides[0];
      all.places[3][at] = place + strides[0] + 1;
      all.weights[0][at] = up * left;
      all.weights[1][at] = up * right;
      all.weights[2][at] = down * left;
      all.weights[3][at] = down * right;
      return true;
    }

    /// A coordinate in elements of an axis.
    template <class F>
    F unnormalized(F coordinate, std::int64_t dim) const {
      const F size = static_cast<F>(dim);
      return rule.align_corners ? (coordinate + 1) / 2 * (size - 1)
                                : ((coordinate + 1) * size - 1) / 2;
    }

    /// A channel of points with kCount places each.
    template <int kCount, class Sum, class T>
    void sample_together(const Together<Sum>& all, const T* from, T* to) const {
      for (std::int64_t i = 0; i < all.count; ++i) {
        T& result = to[all.is_whole ? i : all.points[i]];
        if (kCount == 1 && rule.mode == Mode::Nearest) {
          result = from[all.places[0][i]];
          continue;
        }
        Sum sum = 0;
        for (int k = 0; k < kCount; ++k)
          sum += all.weights[k][i] * static_cast<Sum>(common::widen(from[all.places[k][i]]));
        result = common::narrow<T>(sum);
      }
    }

    template <class Sum, class T>
    void sample_alone(const std::int64_t* places, const Sum* weights, int taps,
                      const void* elements, void* results, std::int64_t i) const {
      const T* from = static_cast<const T*>(elements);
      T* to = static_cast<T*>(results) + i;
      for (std::int64_t c = 0; c < channels; ++c, from += image, to += points) {
        if (rule.mode == Mode::Nearest) {
          *to = taps == 0 ? T{} : from[places[0]];
          continue;
        }
        Sum sum = 0;
        for (int k = 0; k < taps; ++k)
          sum += weights[k] * static_cast<Sum>(common::widen(from[places[k]]));
        *to = common::narrow<T>(sum);
      }
    }

    /// The places that a point reads that is not near an edge.
    int most_taps() const {
      int taps = 1;
      for (int a = 0; a < axes; ++a)
        taps *= rule.mode == Mode::Nearest ? 1 : rule.mode == Mode::Linear ? 2 : 4;
      return taps;
    }

    // The places of the input that a point reads, and their weights. The grid's coordinates are in reverse order of the axes.
    template <class G, class Sum>
    int find_taps(const G* point, std::int64_t* places, Sum* weights) const {
      int count = 1;
      places[0] = 0;
      weights[0] = 1;
      for (int a = 0; a < axes; ++a) {
        std::int64_t axis_places[4];
        Sum axis_weights[4];
        const int taps = axis_taps(static_cast<common::Wide<G>>(common::widen(point[axes - 1 - a])),
                                   dims[a], axis_places, axis_weights);
        if (taps == 0) return 0;
        for (int i = count;
             i-- > 0;) {  // from the end, so that nothing is overwritten before it is read
          for (int k = taps; k-- > 0;) {
            places[i * taps + k] = places[i] + axis_places[k] * strides[a];
            weights[i * taps + k] = weights[i] * axis_weights[k];
          }
        }
        count *= taps;
      }
      return count;
    }

    /// Where a point lies on an axis whose edges are `low` and `high`.
    template <class F>
    F point_of(F normalized, std::int64_t dim, F low, F high) const {
      F x = unnormalized(normalized, dim);
      if (rule.mode == Mode::Nearest) x = std::nearbyint(x);
      if (!(x > F(-1e9))) x = F(-1e9);  // NaN too: far outside
      if (x > F(1e9)) x = F(1e9);
      // A point between an edge and the middle of its element stays: its cubic weights count.
      if (rule.padding == Padding::Border && (x < low || x > high))
        x = std::clamp(x, F(0), static_cast<F>(dim) - 1);
      return rule.padding == Padding::Reflection ? reflect(x, low, high) : x;
    }

    template <class F, class Sum>
    int axis_taps(F normalized, std::int64_t dim, std::int64_t* places, Sum* weights) const {
      const F size = static_cast<F>(dim);
      const F low = rule.align_corners ? F(0) : F(-0.5),
              high = rule.align_corners ? size - 1 : size - F(0.5);
      const F x = point_of(normalized, dim, low, high);
      std::int64_t first = static_cast<std::int64_t>(x);  // rounded down, without a call
      if (static_cast<F>(first) > x) --first;
      const F fraction = x - static_cast<F>(first);
      int taps = 1;
      F local[4] = {1, 0, 0, 0};
      if (rule.mode == Mode::Linear) {
        taps = 2;
        local[0] = 1 - fraction;
        local[1] = fraction;
        if (first >= 0 && first + 1 < dim) {  // nearly always
          for (int k = 0; k < 2; ++k) {
            places[k] = first + k;
            weights[k] = static_cast<Sum>(local[k]);
          }
          return 2;
        }
      } else if (rule.mode == Mode::Cubic) {
        taps = 4;
        --first;
        cubic_weights(fraction, local);
      }
      int kept = 0;
      for (int k = 0; k < taps; ++k) {
        std::int64_t place = first + k;
        if (place < 0 || place >= dim) {
          if (rule.padding == Padding::Zeros) continue;
          if (rule.padding == Padding::Reflection)
            place = static_cast<std::int64_t>(reflect(static_cast<F>(place), low, high));
          place = std::clamp<std::int64_t>(place, 0, dim - 1);
        }
        places[kept] = place;
        weights[kept++] = static_cast<Sum>(local[k]);
      }
      return kept;
    }
  };

  GridSample(const sdk::CreateContext&, const sdk::Node& node)
      : rule_(common::grid_sample_rule(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Dims dims = common::set_grid_sample_dims(ctx);
    const sdk::Tensor input = ctx.input(0);
    const int axes = input.rank() - 2;
    Prepared p{rule_, axes, dims[0], dims[1], 1, 1, {}, {}};
    const sdk::Dims strides = dense_strides(input.dims());
    for (int a = 0; a < axes; ++a) {
      const auto axis = static_cast<std::size_t>(a) + 2;
      p.points *= dims[axis];
      p.image *= input.dim(a + 2);
      p.dims[a] = input.dim(a + 2);
      p.strides[a] = strides[axis];
    }
    return p;
  }

 private:
  common::GridSampleRule rule_;
};

}  // namespace

sdk::KernelList grid_sample_kernels() {
  return {sdk::op("GridSample")
              .name("cpu:grid_sample")
              .types("T1", common::number_types())
              .types("T2", common::float_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<GridSample>()};
}

}  // namespace backplane::cpu

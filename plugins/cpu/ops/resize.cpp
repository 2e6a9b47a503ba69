// Resize, Upsample: https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Upsample.html
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "backplane/plugin.hpp"
#include "backplane/plugin_api/optional/widening.h"
#include "plugins/common/resize_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_value.hpp"
#include "plugins/cpu/kernels/resample.hpp"
#include "plugins/cpu/kernels/row_sources.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// Rounds to nearest even and saturates where T is an integer.
template <class T, class Wide>
T round_to(Wide value) {
  if constexpr (std::is_integral_v<T>) {
    const double rounded = std::nearbyint(static_cast<double>(value));
    if (!(rounded > static_cast<double>(std::numeric_limits<T>::min())))
      return std::numeric_limits<T>::min();
    if (rounded >= static_cast<double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    return static_cast<T>(rounded);
  } else {
    return common::narrow<T>(value);
  }
}

ElementValue element_of(sdk::DataType type, double value) {
  if (type == sdk::DataType::Bool) return ElementValue::of(value != 0);
  if (type == sdk::DataType::String || type == sdk::DataType::Complex64 ||
      type == sdk::DataType::Complex128)
    return {};
  return common::with_number(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return ElementValue::of(round_to<T>(value));
  });
}

/// What both ways of resizing share: the axes, and the elements that lie outside of the input.
struct Resampled {
  sdk::Dims input, output;
  std::vector<ResampledAxis> axes;
  ElementValue extrapolation;
  int bits = 0;

  void extrapolate(const sdk::ComputeContext& ctx) const {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const ResampledAxis& axis = axes[a];
      if (!common::any_outside(axis.rule, axis.request)) continue;
      const std::int64_t outer = dims_product(output, 0, a);
      const std::int64_t inner = dims_product(output, a + 1, output.size());
      for (std::int64_t y = 0; y < axis.count(); ++y) {
        if (!common::is_outside(axis.rule, axis.request, y)) continue;
        for (std::int64_t o = 0; o < outer; ++o) {
          extrapolation.fill(ctx.output(0).mutable_data<void>(), (o * axis.count() + y) * inner,
                             inner, bits);
        }
      }
    }
  }
};

/// Picks elements of any type.
struct NearestResize : Resampled {
  RowSources<ResampledAxis> rows;
  ResampledAxis columns;   // the last axis that changes
  std::int64_t block = 1;  // elements after it, which stay together
  std::int64_t repeat =
      0;  // how often each element of a row stands in the output; 0: not equally often

  /// Takes the tables of the axes.
  void finish() {
    std::size_t count = axes.size();
    while (count > 0 && axes[count - 1].same()) block *= input[--count];
    for (std::size_t a = 0; a + 1 < count; ++a) rows.add(std::move(axes[a]), input[a]);
    if (count > 0) columns = std::move(axes[count - 1]);
    if (!columns.has_table() || columns.count() % columns.input() != 0) return;
    repeat = columns.count() / columns.input();
    for (std::int64_t x = 0; x < columns.count(); ++x) {
      if (columns.place(x) != x / repeat) repeat = 0;
      if (repeat == 0) return;
    }
  }

  void compute(const sdk::ComputeContext& ctx) const {
    if (sdk::element_count(output) == 0) return;
    const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
    if (columns.has_table()) {
      pick_all_columns(mover, ctx);
    } else {
      pick_blocks(mover, ctx);
    }
    extrapolate(ctx);
  }

 private:
  /// Output elements [begin, end) of an axis and where they come from.
  struct Columns {
    std::int64_t begin, end;
    const std::int64_t* places;
  };

  void pick_all_columns(const ElementMover& mover, const sdk::ComputeContext& ctx) const {
    const Columns all{0, columns.count(), columns.table.places.data()};
    const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
      pick_rows(mover, ctx, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end), all);
    };
    const std::int64_t row_bytes = std::max<std::int64_t>(1, columns.count() * block * bits / 8);
    const auto count = static_cast<std::uint64_t>(rows.rows());
    if (!mover.parallel() || rows.rows() * row_bytes < kParallelBytes) return part(0, count, 0);
    ctx.threads().parallel_for(
        count, static_cast<std::uint64_t>(1 + kParallelBytes / 4 / row_bytes), part);
  }

  /// Without a table: the places of a block of columns, and all rows of it.
  void pick_blocks(const ElementMover& mover, const sdk::ComputeContext& ctx) const {
    constexpr std::int64_t kColumns = ResampledAxis::kBlockTaps;
    const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
      std::array<std::int64_t, kColumns> places;  // written as far as they are read
      for (auto b = static_cast<std::int64_t>(begin); b < static_cast<std::int64_t>(end); ++b) {
        const Columns some{b * kColumns, std::min(columns.count(), (b + 1) * kColumns),
                           places.data()};
        for (std::int64_t x = some.begin; x < some.end; ++x)
          places[static_cast<std::size_t>(x - some.begin)] = columns.place(x);
        pick_rows(mover, ctx, 0, rows.rows(), some);
      }
    };
    const auto blocks = static_cast<std::uint64_t>(ceil_div(columns.count(), kColumns));
    if (!mover.parallel()) return part(0, blocks, 0);
    const std::int64_t bytes = std::max<std::int64_t>(1, rows.rows() * kColumns * block * bits / 8);
    ctx.threads().parallel_for(blocks, static_cast<std::uint64_t>(1 + kParallelBytes / 4 / bytes),
                               part);
  }

  void pick_rows(const ElementMover& mover, const sdk::ComputeContext& ctx, std::int64_t begin,
                 std::int64_t end, const Columns& some) const {
    const std::int64_t width = columns.count() * block;
    const std::int64_t count = some.end - some.begin;
    if (!mover.parallel() || block > 1) {
      rows.each(begin, end, [&](std::int64_t row, std::int64_t source) {
        for (std::int64_t x = 0; x < count; ++x) {
          mover.copy(row * width + (some.begin + x) * block,
                     (source * columns.input() + some.places[x]) * block, block);
        }
      });
      return;
    }
    with_unit(bits / 8, [&](auto unit) {
      using T = decltype(unit);
      const T* data = ctx.input(0).data<T>();
      T* target = ctx.output(0).mutable_data<T>() + some.begin;
      std::int64_t before = -1;
      rows.each(begin, end, [&](std::int64_t row, std::int64_t source) {
        if (source == before) {  // the same row again
          std::memcpy(target + row * width, target + (row - 1) * width,
                      static_cast<std::size_t>(count) * sizeof(T));
        } else {
          pick_row(data + source * columns.input(), target + row * width, some.places, count);
        }
        before = source;
      });
    });
  }

  template <class T>
  void pick_row(const T* from, T* to, const std::int64_t* places, std::int64_t count) const {
    if (repeat == 2) {
      for (std::int64_t x = 0; x < columns.input(); ++x) {
        const T value = from[x];
        to[2 * x] = value;
        to[2 * x + 1] = value;
      }
      return;
    }
    for (std::int64_t x = 0; x < count; ++x) to[x] = from[places[x]];
  }
};

/// Weighted sums, one axis after the other, in float (double for double).
struct SmoothResize : Resampled {
  std::vector<std::size_t> order;  // of the axes that change
  std::int64_t buffer = 0;         // elements of each of two buffers
  sdk::DataType type = sdk::DataType::Float;

  // Axes that shrink most come first, so that the later passes have less to do. An element of the last axis, whose
  // sums are within rows and not of whole ones, costs about four times as much: before an axis that shrinks
  // by s and after it are 4 / r + 1 / (r s) and 1 / s + 4 / (r s), equal where s is (r + 3) / 4.
  void finish() {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (!axes[a].same()) order.push_back(a);
    }
    const auto shrinkage = [this](std::size_t axis) {
      const double ratio = static_cast<double>(axes[axis].input()) /
                           static_cast<double>(std::max<std::int64_t>(1, axes[axis].count()));
      return dims_product(input, axis + 1, input.size()) == 1 ? (ratio + 3) / 4 : ratio;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return shrinkage(a) > shrinkage(b); });
    sdk::Dims dims = input;
    buffer = sdk::element_count(dims);
    for (const std::size_t a : order) {
      dims[a] = axes[a].count();
      buffer = std::max(buffer, sdk::element_count(dims));
    }
  }

  std::uint64_t workspace_bytes(unsigned threads) const {
    std::uint64_t scratch = 0;
    for (const ResampledAxis& axis : axes) scratch = std::max(scratch, axis.scratch_bytes());
    return buffer_bytes() + scratch * threads;
  }

  void compute(const sdk::ComputeContext& ctx) const {
    if (sdk::element_count(output) == 0) return;
    if (order.empty()) {
      copy_all(ctx, 0, 0);
    } else {
      common::with_number(type, [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }
    extrapolate(ctx);
  }

 private:
  /// Of both buffers.
  std::uint64_t buffer_bytes() const {
    const std::uint64_t element = type == sdk::DataType::Double ? 8 : 4;
    const bool direct =
        (type == sdk::DataType::Float || type == sdk::DataType::Double) && order.size() < 2;
    return direct ? 0 : align64(2 * static_cast<std::uint64_t>(buffer) * element);
  }

  /// The product of the dims of axes begin ... end - 1 in a pass; those of earlier passes have their new size.
  std::int64_t elements_within(std::size_t begin, std::size_t end, std::size_t pass) const {
    const auto earlier = order.begin() + static_cast<std::ptrdiff_t>(pass);
    std::int64_t count = 1;
    for (std::size_t axis = begin; axis < end; ++axis) {
      const bool is_done = std::find(order.begin(), earlier, axis) != earlier;
      count *= is_done ? output[axis] : input[axis];
    }
    return count;
  }

  template <class T>
  void run(const sdk::ComputeContext& ctx) const {
    using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
    constexpr bool kDirect = std::is_same_v<T, Sum>;
    auto* buffers = ctx.workspace().mutable_data<Sum>();
    char* scratch = ctx.workspace().mutable_data<char>() + buffer_bytes();
    const T* source = ctx.input(0).data<T>();
    T* target = ctx.output(0).mutable_data<T>();
    const Sum* current = nullptr;
    int next = 0;
    if constexpr (kDirect) {
      current = source;
    } else {
      for (std::int64_t i = 0; i < sdk::element_count(input); ++i)
        buffers[i] = static_cast<Sum>(common::widen(source[i]));
      current = buffers;
      next = 1;
    }
    for (std::size_t step = 0; step < order.size(); ++step) {
      const std::size_t axis = order[step];
      const std::int64_t before = elements_within(0, axis, step);
      const std::int64_t after = elements_within(axis + 1, input.size(), step);
      Sum* to = buffers + next * buffer;
      if constexpr (kDirect) {
        if (step + 1 == order.size()) to = target;
      }
      resample_pass(axes[axis], current, to, before, after, scratch, ctx.threads());
      current = to;
      next = 1 - next;
    }
    if constexpr (!kDirect) {
      for (std::int64_t i = 0; i < sdk::element_count(output); ++i)
        target[i] = round_to<T>(current[i]);
    }
  }
};

/// One of the two, as a prepared object.
struct PreparedResize {
  NearestResize nearest;
  SmoothResize smooth;
  bool is_nearest;
  void compute(const sdk::ComputeContext& ctx) const {
    is_nearest ? nearest.compute(ctx) : smooth.compute(ctx);
  }
};

class Resize {
 public:
  using Prepared = PreparedResize;

  Resize(const sdk::CreateContext&, const sdk::Node& node) : node_(node) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    require_storable(input.type());
    const std::vector<common::AxisRequest> requests = node_.requests(ctx);
    Prepared prepared;
    prepared.is_nearest = node_.rule().interpolation == common::Interpolation::Nearest;
    Resampled& common_part =
        prepared.is_nearest ? static_cast<Resampled&>(prepared.nearest) : prepared.smooth;
    common_part.input = to_dims(input.dims());
    common_part.bits = sdk::element_bits(input.type());
    common_part.extrapolation = element_of(input.type(), node_.extrapolation());
    for (const common::AxisRequest& request : requests) {
      if (request.input == 0 && request.output > 0)
        sdk::invalid("Resize: an axis without elements cannot be resized to ", request.output);
      common_part.output.push_back(request.output);
    }
    // Before the tables of places, as it refuses what is too large.
    ctx.set_output(0, input.type(), common_part.output);
    if (sdk::element_count(common_part.output) == 0) return prepared;
    for (const common::AxisRequest& request : requests) {
      common_part.axes.emplace_back(node_.rule(), request, input.type() == sdk::DataType::Double);
      if (common::any_outside(node_.rule(), request) && sdk::element_bytes(input.type()) == 0) {
        sdk::unsupported("Resize: extrapolation for elements of type ",
                         sdk::type_name(input.type()));
      }
    }
    if (prepared.is_nearest) {
      prepared.nearest.finish();
      return prepared;
    }
    prepared.smooth.type = input.type();
    common::with_number(input.type(), [](auto) {});
    prepared.smooth.finish();
    ctx.set_workspace(prepared.smooth.workspace_bytes(ctx.threads().count()));
    return prepared;
  }

 private:
  common::ResizeNode node_;
};

}  // namespace

sdk::KernelList resize_kernels() {
  const auto roles = {BP_INPUT_DATA, BP_INPUT_HOST_VALUE};
  return {sdk::op("Resize")
              .name("cpu:resize")
              .roles(roles)
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Resize>(),
          sdk::op("Upsample")
              .name("cpu:upsample")
              .roles(roles)
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Resize>()};
}

}  // namespace backplane::cpu

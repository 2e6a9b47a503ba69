// Gather, GatherElements, GatherND: elements picked by index tensors. An index counts from the end when negative.
// https://onnx.ai/onnx/operators/onnx__Gather.html, onnx__GatherElements.html, onnx__GatherND.html
#include <array>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/index_tensor.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"
#include "plugins/cpu/kernels/unit.hpp"

namespace backplane::cpu {
namespace {

/// Gathering of runs: target run n is source run number source_of(n), each of `run` elements.
template <class SourceOf>
void gather_runs(const ElementMover& mover, const sdk::Threads& threads, const sdk::Tensor& source,
                 const sdk::Tensor& target, std::int64_t count, std::int64_t run,
                 const SourceOf& source_of) {
  if (!mover.parallel()) {
    for (std::int64_t n = 0; n < count; ++n) mover.copy(n * run, source_of(n), run);
    return;
  }
  const auto unit = static_cast<std::int64_t>(mover.element_bytes());
  const char* from = source.data<char>();
  char* to = target.mutable_data<char>();
  const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    const auto first = static_cast<std::int64_t>(begin), last = static_cast<std::int64_t>(end);
    if (run > 1) {
      for (std::int64_t n = first; n < last; ++n) {
        std::memcpy(to + n * run * unit, from + source_of(n) * unit,
                    static_cast<std::size_t>(run * unit));
      }
      return;
    }
    with_unit(unit, [&](auto type) {
      using T = decltype(type);
      for (std::int64_t n = first; n < last; ++n) {
        std::memcpy(to + n * unit, from + source_of(n) * unit, sizeof(T));
      }
    });
  };
  // Touching an element elsewhere costs about as much as moving 16 bytes.
  const std::int64_t cost = run * unit + 16;
  if (count * cost < kParallelBytes) return part(0, static_cast<std::uint64_t>(count), 0);
  threads.parallel_for(static_cast<std::uint64_t>(count),
                       static_cast<std::uint64_t>(1 + kParallelBytes / 4 / cost), part);
}

class Gather {
 public:
  struct Prepared {
    std::int64_t outer, axis_dim, run, picks;
    int axis;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = outer * picks;
      if (count == 0 || run == 0) return;
      with_index_type(ctx.input(1), [&](const auto* indices) {
        check_indices("Gather", indices, picks, axis_dim, axis);
        const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
        if (outer == 1) {
          gather_runs(mover, ctx.threads(), ctx.input(0), ctx.output(0), count, run,
                      [&](std::int64_t n) { return wrap_index(indices[n], axis_dim) * run; });
        } else {
          gather_runs(
              mover, ctx.threads(), ctx.input(0), ctx.output(0), count, run, [&](std::int64_t n) {
                return (n / picks * axis_dim + wrap_index(indices[n % picks], axis_dim)) * run;
              });
        }
      });
    }
  };

  Gather(const sdk::CreateContext&, const sdk::Node& node) : axis_(node.get_int("axis", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(0), indices = ctx.input(1);
    require_storable(data.type());
    const int axis = normalize_axis(axis_, data.rank());
    const auto at = static_cast<std::size_t>(axis);
    sdk::Dims dims(data.dims().begin(), data.dims().begin() + axis);
    dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
    dims.insert(dims.end(), data.dims().begin() + axis + 1, data.dims().end());
    ctx.set_output(0, data.type(), dims);
    const Prepared prepared{dims_product(data.dims(), 0, at), data.dims()[at],
                            dims_product(data.dims(), at + 1, data.dims().size()), indices.size(),
                            axis};
    if (prepared.picks == 1 && ctx.input_constant(1)) offer_view(ctx, prepared, dims);
    return prepared;
  }

 private:
  // One known index: the output is a part of the data.
  static void offer_view(sdk::PrepareContext& ctx, const Prepared& p, const sdk::Dims& dims) {
    const sdk::DataType type = ctx.input(0).type();
    if (sdk::element_bytes(type) == 0 || p.outer * p.run == 0) return;
    const std::int64_t given = ctx.input(1).to_ints()[0];
    if (given < -p.axis_dim || given >= p.axis_dim) return;  // compute says so
    const auto offset = static_cast<std::uint64_t>(wrap_index(given, p.axis_dim) * p.run *
                                                   sdk::element_bytes(type));
    if (p.outer == 1) return ctx.set_view(0, 0, offset);
    if (p.run == 1) return;  // the last axis would not be dense
    sdk::Dims strides = dense_strides(dims);
    for (int i = 0; i < p.axis; ++i) strides[static_cast<std::size_t>(i)] *= p.axis_dim;
    ctx.set_view(0, 0, offset, strides.data());
  }

  std::int64_t axis_;
};

/// output[i][j][k] = data[i][indices[i][j][k]][k] for axis 1.
class GatherElements {
 public:
  struct Prepared {
    RowWalk walk;
    std::int64_t count, axis_dim, axis_stride;
    int axis;

    void compute(const sdk::ComputeContext& ctx) const {
      if (count == 0) return;
      with_index_type(ctx.input(1), [&](const auto* indices) {
        const bool wraps = check_indices("GatherElements", indices, count, axis_dim, axis);
        const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
        if (!mover.parallel()) {
          walk.each_row(0, walk.rows, [&](std::int64_t first, std::int64_t base) {
            for (std::int64_t i = 0; i < walk.columns; ++i) {
              mover.copy(first + i,
                         base + i * walk.column_stride +
                             wrap_index(indices[first + i], axis_dim) * axis_stride,
                         1);
            }
          });
          return;
        }
        const auto unit = static_cast<std::int64_t>(mover.element_bytes());
        if (wraps)
          gather<true>(ctx, indices, unit);
        else
          gather<false>(ctx, indices, unit);
      });
    }

   private:
    /// kWraps: some indices count from the end.
    template <bool kWraps, class Index>
    void gather(const sdk::ComputeContext& ctx, const Index* indices, std::int64_t unit) const {
      const char* from = ctx.input(0).data<char>();
      char* to = ctx.output(0).mutable_data<char>();
      const auto part = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
        with_unit(unit, [&](auto type) {
          using T = decltype(type);
          walk.each_row(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end),
                        [&](std::int64_t first, std::int64_t base) {
                          gather_row<kWraps>(reinterpret_cast<const T*>(from) + base,
                                             indices + first, reinterpret_cast<T*>(to) + first);
                        });
        });
      };
      const std::int64_t cost = walk.columns * 24;
      if (walk.rows * cost < kParallelBytes)
        return part(0, static_cast<std::uint64_t>(walk.rows), 0);
      ctx.threads().parallel_for(static_cast<std::uint64_t>(walk.rows),
                                 static_cast<std::uint64_t>(1 + kParallelBytes / 4 / cost), part);
    }

    template <bool kWraps, class T, class Index>
    void gather_row(const T* row, const Index* indices, T* target) const {
      const std::int64_t n = walk.columns, stride = axis_stride, step = walk.column_stride;
      const std::int64_t wrap = kWraps ? axis_dim : 0;
      if (step == 0) {  // along the last axis
        for (std::int64_t i = 0; i < n; ++i) target[i] = row[wrap_index(indices[i], wrap)];
        return;
      }
      for (std::int64_t i = 0; i < n; ++i, row += step)
        target[i] = row[wrap_index(indices[i], wrap) * stride];
    }
  };

  GatherElements(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(0), indices = ctx.input(1);
    require_storable(data.type());
    const int axis = normalize_axis(axis_, data.rank());
    ctx.set_output(0, data.type(), indices.dims());
    const RowWalk walk("GatherElements", data.dims(), indices.dims(), axis);
    return {walk, indices.size(), data.dim(axis),
            dense_strides(data.dims())[static_cast<std::size_t>(axis)], axis};
  }

 private:
  std::int64_t axis_;
};

/// Each row of `indices` names the leading coordinates of a run of `data`.
class GatherND {
 public:
  struct Prepared {
    IndexRows rows;
    std::int64_t run;

    void compute(const sdk::ComputeContext& ctx) const {
      if (rows.count == 0 || run == 0) return;
      const auto* indices = ctx.input(1).data<std::int64_t>();
      rows.check("GatherND", indices);
      const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
      gather_runs(mover, ctx.threads(), ctx.input(0), ctx.output(0), rows.count, run,
                  [&](std::int64_t n) { return rows.offset(indices, n); });
    }
  };

  GatherND(const sdk::CreateContext&, const sdk::Node& node)
      : batch_dims_(node.get_int("batch_dims", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(0), indices = ctx.input(1);
    require_storable(data.type());
    const IndexRows rows("GatherND", data.dims(), indices.dims(), batch_dims_);
    sdk::Dims dims(indices.dims().begin(), indices.dims().end() - 1);
    const std::size_t named = static_cast<std::size_t>(batch_dims_ + rows.width);
    dims.insert(dims.end(), data.dims().begin() + named, data.dims().end());
    ctx.set_output(0, data.type(), dims);
    return {rows, dims_product(data.dims(), named, data.dims().size())};
  }

 private:
  std::int64_t batch_dims_;
};

}  // namespace

sdk::KernelList gather_kernels() {
  return {sdk::op("Gather").name("cpu:gather").kernel<Gather>(),
          sdk::op("GatherElements").name("cpu:gather_elements").kernel<GatherElements>(),
          sdk::op("GatherND").name("cpu:gather_nd").kernel<GatherND>()};
}

}  // namespace backplane::cpu

// Scatter, ScatterElements, ScatterND, TensorScatter: a copy of the data with updates written into it.
// https://onnx.ai/onnx/operators/onnx__ScatterElements.html, onnx__ScatterND.html, onnx__TensorScatter.html
#include <complex>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/tensor_scatter_node.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/index_tensor.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"
#include "plugins/cpu/kernels/unit.hpp"

namespace backplane::cpu {
namespace {

enum class Reduction { None, Add, Mul, Max, Min };

Reduction reduction_of(const sdk::Node& node) {
  const std::string name = node.get_string("reduction", "none");
  if (name == "none") return Reduction::None;
  if (name == "add") return Reduction::Add;
  if (name == "mul") return Reduction::Mul;
  // Opset 16 had no other ones.
  if (node.since_version() >= 18 && name == "max") return Reduction::Max;
  if (node.since_version() >= 18 && name == "min") return Reduction::Min;
  sdk::invalid("the reduction '", name, "' is not one of ", node.op_type(), " of opset ",
               node.since_version());
}

template <class T>
constexpr bool kOrdered =
    !std::is_same_v<T, std::complex<float>> && !std::is_same_v<T, std::complex<double>>;

template <class T>
T reduce_integers(Reduction how, T left, T right) {
  // Unsigned arithmetic wraps around where signed overflow would be undefined.
  const auto a = static_cast<std::uint64_t>(left), b = static_cast<std::uint64_t>(right);
  if (how == Reduction::Add) return static_cast<T>(a + b);
  if (how == Reduction::Mul) return static_cast<T>(a * b);
  return how == Reduction::Max ? std::max(left, right) : std::min(left, right);
}

// NaN wins over every number, as in numpy.
template <class T>
T reduce_reals(Reduction how, T left, T right) {
  if (how == Reduction::Add) return left + right;
  if (how == Reduction::Mul) return left * right;
  if constexpr (kOrdered<T>) {
    if (left != left) return left;
    const bool keep = how == Reduction::Max ? left >= right : left <= right;
    return keep ? left : right;
  }
  return right;
}

template <class T>
T reduce(Reduction how, T left, T right) {
  if constexpr (std::is_same_v<T, bool>) {
    return how == Reduction::Add || how == Reduction::Max ? left || right : left && right;
  } else if constexpr (std::is_integral_v<T>) {
    return reduce_integers(how, left, right);
  } else {
    return reduce_reals(how, left, right);
  }
}

template <class T>
void reduce_run(Reduction how, T* target, const T* update, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (common::kIsHalfType<T>) {
      target[i] =
          common::narrow<T>(reduce(how, common::widen(target[i]), common::widen(update[i])));
    } else {
      target[i] = reduce(how, target[i], update[i]);
    }
  }
}

/// body(T*, const T*) for the types that the reduction is defined for.
template <class Body>
void with_reducible(const sdk::Tensor& target, const sdk::Tensor& updates, const Body& body) {
  const auto call = [&](auto tag) {
    using T = typename decltype(tag)::type;
    body(target.mutable_data<T>(), updates.data<T>());
  };
  switch (target.type()) {
    case sdk::DataType::Bool:
      return call(common::TypeTag<bool>());
    case sdk::DataType::Complex64:
      return call(common::TypeTag<std::complex<float>>());
    case sdk::DataType::Complex128:
      return call(common::TypeTag<std::complex<double>>());
    default:
      return common::with_number(target.type(), call);
  }
}

void check_reducible(Reduction how, sdk::DataType type) {
  require_storable(type);
  const bool is_complex = type == sdk::DataType::Complex64 || type == sdk::DataType::Complex128;
  if (how != Reduction::None &&
      (type == sdk::DataType::String || (is_complex && how > Reduction::Mul))) {
    sdk::unsupported("a reduction of elements of type ", sdk::type_name(type));
  }
}

/// Copies the data, then writes runs: run n of the updates goes to element place_of(n) of the output.
template <class EachRun>
void scatter_runs(const sdk::ComputeContext& ctx, Reduction how, const EachRun& each_run) {
  copy_all(ctx, 0, 0);
  const sdk::Tensor output = ctx.output(0), updates = ctx.input(2);
  if (how == Reduction::None) {
    const ElementMover mover(ctx.input_value(2), ctx.output_value(0));
    each_run([&](std::int64_t place, std::int64_t update, std::int64_t count) {
      mover.copy(place, update, count);
    });
    return;
  }
  with_reducible(output, updates, [&](auto* target, const auto* source) {
    each_run([&](std::int64_t place, std::int64_t update, std::int64_t count) {
      reduce_run(how, target + place, source + update, count);
    });
  });
}

class ScatterElements {
 public:
  struct Prepared {
    RowWalk walk;
    std::int64_t count, axis_dim, axis_stride;
    int axis;
    Reduction how;

    void compute(const sdk::ComputeContext& ctx) const {
      with_index_type(ctx.input(1), [&](const auto* indices) {
        check_indices("ScatterElements", indices, count, axis_dim, axis);
        const std::int64_t bytes = sdk::element_bytes(ctx.output(0).type());
        if (how == Reduction::None && bytes > 0) return scatter(ctx, indices, bytes);
        scatter_runs(ctx, how, [&](const auto& write) {
          walk.each_row(0, count == 0 ? 0 : walk.rows, [&](std::int64_t first, std::int64_t base) {
            for (std::int64_t i = 0; i < walk.columns; ++i) {
              write(base + i * walk.column_stride +
                        wrap_index(indices[first + i], axis_dim) * axis_stride,
                    first + i, 1);
            }
          });
        });
      });
    }

   private:
    /// Of elements of whole bytes, one by one.
    template <class Index>
    void scatter(const sdk::ComputeContext& ctx, const Index* indices, std::int64_t unit) const {
      copy_all(ctx, 0, 0);
      if (count == 0) return;
      const char* const from = ctx.input(2).data<char>();
      char* const to = ctx.output(0).mutable_data<char>();
      with_unit(unit, [&](auto type) {
        using T = decltype(type);
        walk.each_row(0, walk.rows, [&](std::int64_t first, std::int64_t base) {
          const T* updates = reinterpret_cast<const T*>(from) + first;
          T* row = reinterpret_cast<T*>(to) + base;
          for (std::int64_t i = 0; i < walk.columns; ++i) {
            const std::int64_t place = wrap_index(indices[first + i], axis_dim) * axis_stride;
            row[i * walk.column_stride + place] = updates[i];
          }
        });
      });
    }
  };

  ScatterElements(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)), how_(reduction_of(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(0), indices = ctx.input(1), updates = ctx.input(2);
    check_reducible(how_, data.type());
    const int axis = normalize_axis(axis_, data.rank());
    if (to_dims(updates.dims()) != to_dims(indices.dims())) {
      sdk::invalid("ScatterElements: updates of dims ", sdk::to_string(updates.dims()),
                   " and indices of dims ", sdk::to_string(indices.dims()), " differ");
    }
    ctx.set_output(0, data.type(), data.dims());
    if (has_memory(data.type())) ctx.allow_in_place(0, 0);
    const RowWalk walk("ScatterElements", data.dims(), indices.dims(), axis);
    return {walk,           indices.size(),
            data.dim(axis), dense_strides(data.dims())[static_cast<std::size_t>(axis)],
            axis,           how_};
  }

 private:
  std::int64_t axis_;
  Reduction how_;
};

class ScatterND {
 public:
  struct Prepared {
    IndexRows rows;
    std::int64_t run;
    Reduction how;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* indices = ctx.input(1).data<std::int64_t>();
      rows.check("ScatterND", indices);
      scatter_runs(ctx, how, [&](const auto& write) {
        for (std::int64_t n = 0; n < rows.count && run > 0; ++n)
          write(rows.offset(indices, n), n * run, run);
      });
    }
  };

  ScatterND(const sdk::CreateContext&, const sdk::Node& node) : how_(reduction_of(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor data = ctx.input(0), indices = ctx.input(1), updates = ctx.input(2);
    check_reducible(how_, data.type());
    const IndexRows rows("ScatterND", data.dims(), indices.dims(), 0);
    sdk::Dims wanted(indices.dims().begin(), indices.dims().end() - 1);
    wanted.insert(wanted.end(), data.dims().begin() + rows.width, data.dims().end());
    if (to_dims(updates.dims()) != wanted) {
      sdk::invalid("ScatterND: updates of dims ", sdk::to_string(updates.dims()), ", ",
                   sdk::to_string(wanted), " are needed");
    }
    ctx.set_output(0, data.type(), data.dims());
    if (has_memory(data.type())) ctx.allow_in_place(0, 0);
    return {rows,
            dims_product(data.dims(), static_cast<std::size_t>(rows.width), data.dims().size()),
            how_};
  }

 private:
  Reduction how_;
};

/// Writes `update` into a cache from each batch's write index on.
class TensorScatter {
 public:
  struct Prepared {
    common::TensorScatterSizes sizes;
    bool circular;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t length = sizes.length, cache_length = sizes.cache_length, run = sizes.run;
      const std::int64_t* starts = ctx.has_input(2) ? ctx.input(2).data<std::int64_t>() : nullptr;
      for (std::int64_t b = 0; starts != nullptr && b < sizes.batches; ++b) {
        if (starts[b] < 0 || (!circular && starts[b] > cache_length - length)) {
          sdk::failed("TensorScatter: write index ", starts[b], " of batch ", b,
                      " leaves a cache of length ", cache_length);
        }
      }
      copy_all(ctx, 0, 0);
      const ElementMover mover(ctx.input_value(1), ctx.output_value(0));
      for (std::int64_t n = 0; n < sizes.batches * sizes.prefixes && run > 0; ++n) {
        const std::int64_t start = starts == nullptr ? 0 : starts[n / sizes.prefixes];
        for (std::int64_t s = 0; s < length; ++s) {
          const std::int64_t at = circular ? (start % cache_length + s) % cache_length : start + s;
          mover.copy((n * cache_length + at) * run, (n * length + s) * run, run);
        }
      }
    }
  };

  TensorScatter(const sdk::CreateContext&, const sdk::Node& node)
      : rule_(common::tensor_scatter_rule(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DataType type = ctx.input(0).type();
    require_storable(type);
    const common::TensorScatterSizes sizes = common::set_tensor_scatter_dims(ctx, rule_);
    if (has_memory(type)) ctx.allow_in_place(0, 0);
    return {sizes, rule_.circular};
  }

 private:
  common::TensorScatterRule rule_;
};

}  // namespace

sdk::KernelList scatter_kernels() {
  return {sdk::op("Scatter").name("cpu:scatter").kernel<ScatterElements>(),
          sdk::op("ScatterElements").name("cpu:scatter_elements").kernel<ScatterElements>(),
          sdk::op("ScatterND").name("cpu:scatter_nd").kernel<ScatterND>(),
          sdk::op("TensorScatter").name("cpu:tensor_scatter").kernel<TensorScatter>()};
}

}  // namespace backplane::cpu

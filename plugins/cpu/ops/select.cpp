// NonZero, Compress, Unique: outputs whose sizes depend on the data.
// https://onnx.ai/onnx/operators/onnx__NonZero.html, onnx__Compress.html, onnx__Unique.html
#include <algorithm>
#include <complex>
#include <numeric>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"

namespace backplane::cpu {
namespace {

/// body(TypeTag<T>()) for every type but strings: numbers, bool, complex numbers.
template <class Body>
void with_comparable(sdk::DataType type, const Body& body) {
  switch (type) {
    case sdk::DataType::Bool:
      return body(common::TypeTag<bool>());
    case sdk::DataType::Complex64:
      return body(common::TypeTag<std::complex<float>>());
    case sdk::DataType::Complex128:
      return body(common::TypeTag<std::complex<double>>());
    default:
      return common::with_number(type, body);
  }
}

class NonZero {
 public:
  struct Prepared {
    sdk::Dims dims;
    std::int64_t count;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor input = ctx.input(0);
      if (input.type() == sdk::DataType::String) {
        const sdk::Value value = ctx.input_value(0);
        return write(ctx, [&](std::int64_t i) {
          return !value.string_at(static_cast<std::uint64_t>(i)).empty();
        });
      }
      with_comparable(input.type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* data = input.data<T>();
        write(ctx, [&](std::int64_t i) {
          if constexpr (common::kIsHalfType<T>) {
            return common::widen(data[i]) != 0;
          } else {
            return data[i] != T(0);
          }
        });
      });
    }

   private:
    template <class Test>
    void write(const sdk::ComputeContext& ctx, const Test& is_set) const {
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < count; ++i) found += is_set(i) ? 1 : 0;
      const std::size_t rank = dims.size();
      const std::int64_t target_dims[2] = {static_cast<std::int64_t>(rank), found};
      auto* target =
          ctx.alloc_output(0, sdk::DimsView(target_dims, 2)).mutable_data<std::int64_t>();
      if (rank == 0 || found == 0) return;
      const std::int64_t columns = dims.back();
      std::int64_t* last = target + static_cast<std::int64_t>(rank - 1) * found;
      std::int64_t n = 0;
      for (std::int64_t row = 0; row < count / columns; ++row) {
        const std::int64_t first = n;
        for (std::int64_t x = 0; x < columns && n < found; ++x) {  // no branch on the data
          last[n] = x;
          n += is_set(row * columns + x) ? 1 : 0;
        }
        if (n == first) continue;
        std::int64_t rest = row;
        for (std::size_t axis = rank - 1; axis-- > 0;) {
          std::int64_t* coordinates = target + static_cast<std::int64_t>(axis) * found;
          std::fill(coordinates + first, coordinates + n, rest % dims[axis]);
          rest /= dims[axis];
        }
      }
    }
  };

  NonZero(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    ctx.set_output_unknown(0, sdk::DataType::Int64, 2);
    return {to_dims(ctx.input(0).dims()), ctx.input(0).size()};
  }
};

/// Keeps the slices along `axis` (or the elements) whose condition is true.
/// A condition of several dimensions is read flat, where the standard asks for one: converters write a mask that is
/// shaped like the input, and ONNX Runtime takes it.
class Compress {
 public:
  struct Prepared {
    sdk::Dims dims;  // of the output; the one at `axis` is set by compute
    std::size_t axis;
    std::int64_t outer, axis_dim, run;

    void compute(const sdk::ComputeContext& ctx) const {
      const bool* keep = ctx.input(1).data<bool>();
      const std::int64_t conditions = std::min(ctx.input(1).size(), axis_dim);
      for (std::int64_t i = axis_dim; i < ctx.input(1).size(); ++i) {
        if (keep[i])
          sdk::failed("Compress: condition ", i, " is true, axis ", axis, " has ", axis_dim,
                      " elements");
      }
      const std::int64_t kept = std::count(keep, keep + conditions, true);
      auto* sized = ctx.workspace().mutable_data<std::int64_t>();
      std::copy(dims.begin(), dims.end(), sized);
      sized[axis] = kept;
      ctx.alloc_output(0, sdk::DimsView(sized, dims.size()));
      if (outer * run * kept == 0) return;
      const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
      std::int64_t target = 0;
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < conditions; ++i) {
          if (!keep[i]) continue;
          mover.copy(target, (o * axis_dim + i) * run, run);
          target += run;
        }
      }
    }
  };

  Compress(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)), flat_(!node.has("axis")) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    require_storable(input.type());
    ctx.set_workspace(8 * static_cast<std::uint64_t>(1 + input.rank()));  // for the output's dims
    if (flat_) {
      ctx.set_output_unknown(0, input.type(), 1);
      return {{0}, 0, 1, input.size(), 1};
    }
    const auto axis = static_cast<std::size_t>(normalize_axis(axis_, input.rank()));
    ctx.set_output_unknown(0, input.type(), input.rank());
    return {to_dims(input.dims()), axis, dims_product(input.dims(), 0, axis), input.dims()[axis],
            dims_product(input.dims(), axis + 1, input.dims().size())};
  }

 private:
  std::int64_t axis_;
  bool flat_;
};

/// Three-way comparison: numbers with NaN last and equal to itself, complex numbers by their parts in order.
template <class T>
int compare(const T& left, const T& right) {
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    const int real = compare(left.real(), right.real());
    return real != 0 ? real : compare(left.imag(), right.imag());
  } else {
    const auto a = common::widen(left), b = common::widen(right);
    if (a < b) return -1;
    if (a > b) return 1;
    if (a == b) return 0;
    return (a != a ? 1 : 0) - (b != b ? 1 : 0);
  }
}

class Unique {
 public:
  struct Prepared {
    sdk::Dims dims;
    std::size_t axis;
    std::int64_t outer, count,
        run;  // the input as [outer, count, run]; slices along the middle are compared
    bool sorted;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor input = ctx.input(0);
      if (input.type() == sdk::DataType::String) {
        const sdk::Value value = ctx.input_value(0);
        return find(ctx, [&](std::int64_t a, std::int64_t b) {
          return value.string_at(static_cast<std::uint64_t>(a))
              .compare(value.string_at(static_cast<std::uint64_t>(b)));
        });
      }
      with_comparable(input.type(), [&](auto tag) {
        const auto* data = input.data<typename decltype(tag)::type>();
        find(ctx, [&](std::int64_t a, std::int64_t b) { return compare(data[a], data[b]); });
      });
    }

   private:
    template <class Compare>
    int compare_slices(const Compare& elements, std::int64_t left, std::int64_t right) const {
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t r = 0; r < run; ++r) {
          const int order = elements((o * count + left) * run + r, (o * count + right) * run + r);
          if (order != 0) return order;
        }
      }
      return 0;
    }

    // Sorts the slices, numbers the groups of equal ones, then orders the groups.
    template <class Compare>
    void find(const sdk::ComputeContext& ctx, const Compare& elements) const {
      auto* order = ctx.workspace().mutable_data<std::int64_t>();
      std::int64_t *group_of = order + count, *first = group_of + count, *groups = first + count,
                   *sizes = groups + count;
      std::iota(order, order + count, std::int64_t{0});
      std::sort(order, order + count, [&](std::int64_t a, std::int64_t b) {
        const int result = compare_slices(elements, a, b);
        return result != 0 ? result < 0 : a < b;
      });
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        if (i == 0 || compare_slices(elements, order[i - 1], order[i]) != 0) {
          first[found] = order[i];
          sizes[found] = 0;
          groups[found] = found;
          ++found;
        }
        group_of[order[i]] = found - 1;
        ++sizes[found - 1];
      }
      if (!sorted)
        std::sort(groups, groups + found,
                  [&](std::int64_t a, std::int64_t b) { return first[a] < first[b]; });
      for (std::int64_t g = 0; g < found; ++g)
        order[groups[g]] = g;  // from here on: the place of each group
      write(ctx, found, groups, first, sizes, group_of, order);
    }

    void write(const sdk::ComputeContext& ctx, std::int64_t found, const std::int64_t* groups,
               const std::int64_t* first, const std::int64_t* sizes, const std::int64_t* group_of,
               const std::int64_t* place) const {
      if (ctx.has_output(0)) {
        auto* sized = ctx.workspace().mutable_data<std::int64_t>() + 5 * count;
        std::copy(dims.begin(), dims.end(), sized);
        sized[axis] = found;
        ctx.alloc_output(0, sdk::DimsView(sized, dims.size()));
        const ElementMover mover(ctx.input_value(0), ctx.output_value(0));
        for (std::int64_t o = 0; o < outer && run > 0; ++o) {
          for (std::int64_t g = 0; g < found; ++g)
            mover.copy((o * found + g) * run, (o * count + first[groups[g]]) * run, run);
        }
      }
      if (ctx.has_output(1)) {
        auto* target = ctx.alloc_output(1, sdk::DimsView(&found, 1)).mutable_data<std::int64_t>();
        for (std::int64_t g = 0; g < found; ++g) target[g] = first[groups[g]];
      }
      if (ctx.has_output(2)) {
        auto* target = ctx.alloc_output(2, sdk::DimsView(&count, 1)).mutable_data<std::int64_t>();
        for (std::int64_t i = 0; i < count; ++i) target[i] = place[group_of[i]];
      }
      if (ctx.has_output(3)) {
        auto* target = ctx.alloc_output(3, sdk::DimsView(&found, 1)).mutable_data<std::int64_t>();
        for (std::int64_t g = 0; g < found; ++g) target[g] = sizes[groups[g]];
      }
    }
  };

  Unique(const sdk::CreateContext&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        flat_(!node.has("axis")),
        sorted_(node.get_int("sorted", 1) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    require_storable(input.type());
    Prepared prepared{{input.size()}, 0, 1, input.size(), 1, sorted_};
    if (!flat_) {
      const auto axis = static_cast<std::size_t>(normalize_axis(axis_, input.rank()));
      prepared = {to_dims(input.dims()),
                  axis,
                  dims_product(input.dims(), 0, axis),
                  input.dims()[axis],
                  dims_product(input.dims(), axis + 1, input.dims().size()),
                  sorted_};
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (!ctx.output_wanted(i)) continue;
      if (i == 0) ctx.set_output_unknown(0, input.type(), static_cast<int>(prepared.dims.size()));
      if (i > 0) ctx.set_output_unknown(i, sdk::DataType::Int64, 1);
    }
    ctx.set_workspace(8 * (static_cast<std::uint64_t>(prepared.count) * 5 + prepared.dims.size()));
    return prepared;
  }

 private:
  std::int64_t axis_;
  bool flat_, sorted_;
};

}  // namespace

sdk::KernelList select_kernels() {
  return {
      sdk::op("NonZero").name("cpu:non_zero").flags(BP_KERNEL_DATA_DEPENDENT).kernel<NonZero>(),
      sdk::op("Compress").name("cpu:compress").flags(BP_KERNEL_DATA_DEPENDENT).kernel<Compress>(),
      sdk::op("Unique").name("cpu:unique").flags(BP_KERNEL_DATA_DEPENDENT).kernel<Unique>()};
}

}  // namespace backplane::cpu

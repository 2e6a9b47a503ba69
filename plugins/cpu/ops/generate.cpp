// Range, ConstantOfShape, EyeLike, OneHot: tensors made from a few numbers.
// https://onnx.ai/onnx/operators/onnx__Range.html, onnx__ConstantOfShape.html, onnx__EyeLike.html, onnx__OneHot.html
#include <cmath>
#include <limits>
#include <string>

#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/element_value.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

/// Element n is start + n * delta, up to but without limit.
class Range {
 public:
  struct Prepared {
    std::int64_t count = 0;
    std::int64_t start = 0, delta = 0;        // of integers
    double float_start = 0, float_delta = 0;  // of floating-point numbers

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      common::with_type<float, double, common::Half, common::BFloat16, std::int16_t, std::int32_t,
                        std::int64_t>(output.type(), [&](auto tag) {
        write(output.mutable_data<typename decltype(tag)::type>());
      });
    }

   private:
    template <class T>
    void write(T* target) const {
      using Wide = common::Wide<T>;
      for (std::int64_t n = 0; n < count; ++n) {
        if constexpr (std::is_integral_v<T>) {
          // Unsigned: what is added may not fit where the sum does.
          target[n] =
              static_cast<T>(static_cast<std::uint64_t>(start) +
                             static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(delta));
        } else {
          target[n] = common::narrow<T>(static_cast<Wide>(float_start) +
                                        static_cast<Wide>(n) * static_cast<Wide>(float_delta));
        }
      }
    }
  };

  Range(const sdk::CreateContext&, const sdk::Node&) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (ctx.input(i).size() != 1)
        sdk::invalid("Range: input ", i, " has dims ", sdk::to_string(ctx.input(i).dims()),
                     ", a scalar is needed");
    }
    const sdk::DataType type = ctx.input(0).type();
    Prepared prepared = common::with_type<float, double, common::Half, common::BFloat16,
                                          std::int16_t, std::int32_t, std::int64_t>(
        type, [&](auto tag) { return plan<typename decltype(tag)::type>(ctx); });
    ctx.set_output(0, type, sdk::DimsView(&prepared.count, 1));
    return prepared;
  }

 private:
  template <class T>
  static Prepared plan(const sdk::PrepareContext& ctx) {
    const auto start = common::widen(ctx.input(0).data<T>()[0]);
    const auto limit = common::widen(ctx.input(1).data<T>()[0]);
    const auto delta = common::widen(ctx.input(2).data<T>()[0]);
    if (delta == 0) sdk::invalid("Range: delta is 0");
    Prepared p;
    if constexpr (std::is_integral_v<T>) {
      p.start = start;
      p.delta = delta;
      const auto from = static_cast<std::uint64_t>(p.start),
                 to = static_cast<std::uint64_t>(static_cast<std::int64_t>(limit));
      const auto step = static_cast<std::uint64_t>(p.delta);
      if (delta > 0 && limit > start) p.count = count_of(to - from, step);
      if (delta < 0 && limit < start) p.count = count_of(from - to, 0 - step);
    } else {
      p.float_start = static_cast<double>(start);
      p.float_delta = static_cast<double>(delta);
      const double steps = std::ceil((static_cast<double>(limit) - p.float_start) / p.float_delta);
      if (!(steps < 9e15))
        sdk::invalid("Range: from ", p.float_start, " to ", static_cast<double>(limit), " by ",
                     p.float_delta, " has no end");
      p.count = steps > 0 ? static_cast<std::int64_t>(steps) : 0;
    }
    return p;
  }

  /// How often `step` goes into `span`, which is not 0.
  static std::int64_t count_of(std::uint64_t span, std::uint64_t step) {
    const std::uint64_t last = (span - 1) / step;
    if (last >= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      sdk::invalid("Range: the number of steps of ", step, " in ", span, " is too large");
    return static_cast<std::int64_t>(last) + 1;
  }
};

class ConstantOfShape {
 public:
  struct Prepared {
    ElementValue value;
    std::int64_t count;
    int bits;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      if (count == 0) return;
      char* memory = output.mutable_data<char>();
      if (bits < 8) std::memset(memory, 0, output.bytes());
      if (bits < 8 || count * bits / 8 < kParallelBytes) return value.fill(memory, 0, count, bits);
      ctx.threads().parallel_for(static_cast<std::uint64_t>(count), kParallelBytes / 16,
                                 [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                                   value.fill(memory, static_cast<std::int64_t>(begin),
                                              static_cast<std::int64_t>(end - begin), bits);
                                 });
    }
  };

  ConstantOfShape(const sdk::CreateContext&, const sdk::Node& node) {
    const bp_attribute* attribute = node.attribute("value");
    if (attribute == nullptr) return;
    if (attribute->type != BP_ATTRIBUTE_TENSOR)
      sdk::invalid("ConstantOfShape: the attribute 'value' is not a tensor");
    const sdk::Tensor tensor(attribute->tensors[0]);
    require_storable(tensor.type());
    if (tensor.size() != 1 || !has_memory(tensor.type()))
      sdk::invalid("ConstantOfShape: the attribute 'value' must hold one number");
    type_ = tensor.type();
    value_ = ElementValue::first_of(tensor);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Dims dims = ctx.input(0).to_ints();
    for (const std::int64_t dim : dims) {
      if (dim < 0)
        sdk::invalid("ConstantOfShape: the shape ", sdk::to_string(dims), " has a negative dim");
    }
    ctx.set_output(0, type_, dims);
    return {value_, sdk::element_count(dims), sdk::element_bits(type_)};
  }

 private:
  sdk::DataType type_ = sdk::DataType::Float;
  ElementValue value_;
};

/// 1 as an element of a number type or bool.
ElementValue one_of(sdk::DataType type) {
  if (type == sdk::DataType::Bool) return ElementValue::of(true);
  return common::with_number(type, [](auto tag) {
    using T = typename decltype(tag)::type;
    return ElementValue::of(common::narrow<T>(common::Wide<T>(1)));
  });
}

class EyeLike {
 public:
  struct Prepared {
    ElementValue one;
    std::int64_t rows, columns, diagonal;
    int bits;

    void compute(const sdk::ComputeContext& ctx) const {
      const sdk::Tensor output = ctx.output(0);
      if (rows * columns == 0) return;
      std::memset(output.mutable_data<char>(), 0, output.bytes());
      for (std::int64_t r = std::max<std::int64_t>(0, -diagonal);
           r < rows && r + diagonal < columns; ++r) {
        one.fill(output.mutable_data<char>(), r * columns + r + diagonal, 1, bits);
      }
    }
  };

  EyeLike(const sdk::CreateContext&, const sdk::Node& node)
      : type_(node.get_int("dtype", 0)), diagonal_(node.get_int("k", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    if (input.rank() != 2)
      sdk::invalid("EyeLike: the input has dims ", sdk::to_string(input.dims()),
                   ", two are needed");
    const sdk::DataType type = type_ == 0 ? input.type() : static_cast<sdk::DataType>(type_);
    ctx.set_output(0, type, input.dims());
    return {one_of(type), input.dim(0), input.dim(1),
            std::clamp(diagonal_, -input.dim(0), input.dim(1)), sdk::element_bits(type)};
  }

 private:
  std::int64_t type_, diagonal_;
};

/// Indices outside [-depth, depth) give a row without a "hot" element.
class OneHot {
 public:
  struct Prepared {
    std::int64_t count, depth, inner;

    void compute(const sdk::ComputeContext& ctx) const {
      const ElementMover mover(ctx.input_value(2), ctx.output_value(0));
      if (mover.parallel()) {
        const int bits = sdk::element_bits(ctx.output(0).type());
        ElementValue::first_of(ctx.input(2))
            .fill(ctx.output(0).mutable_data<void>(), 0, count * depth, bits);
      } else {
        mover.fill(0, 0, count * depth);
      }
      common::with_number(ctx.input(0).type(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* indices = ctx.input(0).data<T>();
        for (std::int64_t n = 0; n < count; ++n) {
          const auto wide = common::widen(indices[n]);
          if constexpr (std::is_unsigned_v<T>) {
            if (wide >= static_cast<std::uint64_t>(depth)) continue;
          } else {
            if (!(wide >= -depth && wide < depth)) continue;
          }
          auto index = static_cast<std::int64_t>(wide);
          if (index < 0) index += depth;
          mover.copy((n / inner * depth + index) * inner + n % inner, 1, 1);
        }
      });
    }
  };

  OneHot(const sdk::CreateContext&, const sdk::Node& node) : axis_(node.get_int("axis", -1)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor indices = ctx.input(0), depth_input = ctx.input(1), values = ctx.input(2);
    if (depth_input.size() != 1 || values.size() != 2) {
      sdk::invalid("OneHot: depth has ", depth_input.size(), " elements, 1 is needed; values has ",
                   values.size(), ", 2 are needed");
    }
    const std::int64_t depth = common::with_number(depth_input.type(), [&](auto tag) {
      const auto given = common::widen(depth_input.data<typename decltype(tag)::type>()[0]);
      if constexpr (std::is_floating_point_v<std::decay_t<decltype(given)>>) {
        return common::whole_size(static_cast<double>(given), "OneHot: depth ", given);
      } else {
        return static_cast<std::int64_t>(given);
      }
    });
    if (depth < 0) sdk::invalid("OneHot: depth is ", depth);
    const auto axis = static_cast<std::size_t>(normalize_axis(axis_, indices.rank() + 1));
    sdk::Dims dims = to_dims(indices.dims());
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), depth);
    ctx.set_output(0, values.type(), dims);
    return {indices.size(), depth,
            std::max<std::int64_t>(1, dims_product(dims, axis + 1, dims.size()))};
  }

 private:
  std::int64_t axis_;
};

}  // namespace

sdk::KernelList generate_kernels() {
  return {sdk::op("Range").name("cpu:range").roles({BP_INPUT_HOST_VALUE}).kernel<Range>(),
          sdk::op("ConstantOfShape")
              .name("cpu:constant_of_shape")
              .roles({BP_INPUT_HOST_VALUE})
              .kernel<ConstantOfShape>(),
          sdk::op("EyeLike").name("cpu:eye_like").roles({BP_INPUT_SHAPE_ONLY}).kernel<EyeLike>(),
          sdk::op("OneHot")
              .name("cpu:one_hot")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA})
              .kernel<OneHot>()};
}

}  // namespace backplane::cpu

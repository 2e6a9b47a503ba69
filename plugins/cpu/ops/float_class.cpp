// IsNaN, IsInf: https://onnx.ai/onnx/operators/onnx__IsNaN.html, onnx__IsInf.html
#include <array>
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/float8.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Which values count.
struct Wanted {
  bool nan = false;
  bool negative_infinity = false;
  bool positive_infinity = false;

  bool operator()(double value) const {
    if (std::isnan(value)) return nan;
    if (!std::isinf(value)) return false;
    return value < 0 ? negative_infinity : positive_infinity;
  }
};

using Loop = void (*)(const Wanted& wanted, const void* x, std::uint8_t* y, std::int64_t n);

template <class T>
void loop(const Wanted& wanted, const void* x, std::uint8_t* y, std::int64_t n) {
  const T* from = static_cast<const T*>(x);
  if (wanted.nan) {  // and nothing else
    for (std::int64_t i = 0; i < n; ++i) {
      const auto value = common::widen(from[i]);
      y[i] = value != value;
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = wanted(static_cast<double>(common::widen(from[i]))) ? 1 : 0;
  }
}

template <class Format>
void loop_float8(const Wanted& wanted, const void* x, std::uint8_t* y, std::int64_t n) {
  const auto* from = static_cast<const std::uint8_t*>(x);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = wanted(static_cast<double>(Format::decode(from[i]))) ? 1 : 0;
  }
}

Loop loop_for(DataType type) {
  switch (type) {
    case DataType::Float8E4M3FN:
      return loop_float8<common::Float8E4M3FN>;
    case DataType::Float8E4M3FNUZ:
      return loop_float8<common::Float8E4M3FNUZ>;
    case DataType::Float8E5M2:
      return loop_float8<common::Float8E5M2>;
    case DataType::Float8E5M2FNUZ:
      return loop_float8<common::Float8E5M2FNUZ>;
    default:
      return common::with_float(
          type, [](auto tag) -> Loop { return loop<typename decltype(tag)::type>; });
  }
}

class FloatClass {
 public:
  struct Prepared {
    Wanted wanted;
    Loop run;
    std::int64_t count;
    std::int64_t bytes;

    void compute(const sdk::ComputeContext& ctx) const {
      const char* x = ctx.input(0).data<char>();
      auto* y = ctx.output(0).mutable_data<std::uint8_t>();
      split_elements(ctx.threads(), count, 1.0, [=, this](std::int64_t begin, std::int64_t end) {
        run(wanted, x + begin * bytes, y + begin, end - begin);
      });
    }
  };

  FloatClass(const sdk::CreateContext&, const sdk::Node& node) {
    if (node.is("IsNaN")) {
      wanted_.nan = true;
    } else {
      wanted_.negative_infinity = node.get_int("detect_negative", 1) != 0;
      wanted_.positive_infinity = node.get_int("detect_positive", 1) != 0;
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, DataType::Bool, x.dims());
    return {wanted_, loop_for(x.type()), x.size(), sdk::element_bytes(x.type())};
  }

 private:
  Wanted wanted_;
};

}  // namespace

sdk::KernelList float_class_kernels() {
  const common::TypeList types =
      common::join(common::float_types(), {DataType::Float8E4M3FN, DataType::Float8E4M3FNUZ,
                                           DataType::Float8E5M2, DataType::Float8E5M2FNUZ});
  return {sdk::op("IsNaN").name("cpu:IsNaN").types("T1", types).kernel<FloatClass>(),
          sdk::op("IsInf").name("cpu:IsInf").types("T1", types).kernel<FloatClass>()};
}

}  // namespace backplane::cpu

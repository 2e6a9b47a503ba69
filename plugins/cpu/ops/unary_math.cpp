// Functions of one variable whose output has the input's type and shape: Abs, Exp, Relu, Sigmoid ...
// https://onnx.ai/onnx/operators/ (one page an operator).
#include <array>
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/unary_f32.hpp"
#include "plugins/cpu/kernels/unary_f64.hpp"
#include "plugins/cpu/kernels/unary_scalar.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;
using Loop = void (*)(const void* x, void* y, std::int64_t n, const UnaryParams& params);

/// An attribute that becomes UnaryParams::a or b.
struct Parameter {
  const char* name = nullptr;
  float default_value = 0;
};

/// One operator. `ns` is the time of an element in the vector loop, `scalar_ns` in the plain one.
struct Row {
  const char* op_type;
  UnaryOp op;
  common::TypeList (*types)();
  double ns;
  Parameter a = {};
  Parameter b = {};
};

common::TypeList signed_number_types() {
  return common::join(common::float_types(), common::signed_types());
}

constexpr double kCheap = 0.1;
constexpr double kCostly = 0.6;
constexpr double kLibrary = 8;  // by the C library, one at a time

constexpr float kSeluAlpha = 1.67326319217681884765625f;
constexpr float kSeluGamma = 1.05070102214813232421875f;

constexpr auto kFloats = common::float_types;
constexpr auto kNumbers = common::number_types;
constexpr Row kRows[] = {
    {"Abs", UnaryOp::kAbs, kNumbers, kCheap},
    {"Neg", UnaryOp::kNeg, signed_number_types, kCheap},
    {"Sign", UnaryOp::kSign, kNumbers, kCheap},
    {"Floor", UnaryOp::kFloor, kFloats, kCheap},
    {"Ceil", UnaryOp::kCeil, kFloats, kCheap},
    {"Round", UnaryOp::kRound, kFloats, kCheap},
    {"Sqrt", UnaryOp::kSqrt, kFloats, kCheap},
    {"Reciprocal", UnaryOp::kReciprocal, kFloats, kCheap},
    {"Exp", UnaryOp::kExp, kFloats, kCostly},
    {"Log", UnaryOp::kLog, kFloats, kCostly},
    {"Erf", UnaryOp::kErf, kNumbers, kCostly},
    {"Tanh", UnaryOp::kTanh, kFloats, kCostly},
    {"Sigmoid", UnaryOp::kSigmoid, kFloats, kCostly},
    {"Softplus", UnaryOp::kSoftplus, kFloats, kCostly},
    {"Softsign", UnaryOp::kSoftsign, kFloats, kCheap},
    {"Relu", UnaryOp::kRelu, signed_number_types, kCheap},
    {"LeakyRelu", UnaryOp::kLeakyRelu, kFloats, kCheap, {"alpha", 0.01f}},
    {"ThresholdedRelu", UnaryOp::kThresholdedRelu, kFloats, kCheap, {"alpha", 1.0f}},
    {"Elu", UnaryOp::kElu, kFloats, kCostly, {"alpha", 1.0f}},
    {"Celu", UnaryOp::kCelu, kFloats, kCostly, {"alpha", 1.0f}},
    {"Selu", UnaryOp::kSelu, kFloats, kCostly, {"alpha", kSeluAlpha}, {"gamma", kSeluGamma}},
    {"HardSigmoid", UnaryOp::kHardSigmoid, kFloats, kCheap, {"alpha", 0.2f}, {"beta", 0.5f}},
    {"HardSwish", UnaryOp::kHardSwish, kFloats, kCheap},
    {"Mish", UnaryOp::kMish, kFloats, kCostly},
    {"Swish", UnaryOp::kSwish, kFloats, kCostly, {"alpha", 1.0f}},
    {"Shrink", UnaryOp::kShrink, kNumbers, kCheap, {"bias", 0.0f}, {"lambd", 0.5f}},
    {"Gelu", UnaryOp::kGelu, kFloats, kCostly},
    {"Sin", UnaryOp::kSin, kFloats, kCostly},
    {"Cos", UnaryOp::kCos, kFloats, kCostly},
    {"Tan", UnaryOp::kTan, kFloats, kLibrary},
    {"Asin", UnaryOp::kAsin, kFloats, kCostly},
    {"Acos", UnaryOp::kAcos, kFloats, kCostly},
    {"Atan", UnaryOp::kAtan, kFloats, kCostly},
    {"Sinh", UnaryOp::kSinh, kFloats, kLibrary},
    {"Cosh", UnaryOp::kCosh, kFloats, kLibrary},
    {"Asinh", UnaryOp::kAsinh, kFloats, kLibrary},
    {"Acosh", UnaryOp::kAcosh, kFloats, kLibrary},
    {"Atanh", UnaryOp::kAtanh, kFloats, kLibrary},
};

const Row& find_row(std::string_view op_type) {
  for (const Row& row : kRows) {
    if (op_type == row.op_type) return row;
  }
  sdk::unsupported("the unary kernel has no function for operator '", op_type, "'");
}

constexpr int kOpCount = static_cast<int>(UnaryOp::kAtanh) + 1;

template <class T, int... ops>
constexpr std::array<Loop, kOpCount> float_loops(std::integer_sequence<int, ops...>) {
  return {(static_cast<UnaryOp>(ops) == UnaryOp::kClip                 ? nullptr
           : &unary_loop < static_cast<UnaryOp>(ops) == UnaryOp::kClip ? UnaryOp::kAbs
                                                                       : static_cast<UnaryOp>(ops),
           T >)...};
}

/// A function of numbers over integers: in double, truncated.
template <UnaryOp op, class T>
void by_double(const void* x, void* y, std::int64_t n, const UnaryParams& params) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<T>(apply_unary<op>(static_cast<double>(from[i]), params));
  }
}

/// The plain loop over elements of type T.
template <class T>
Loop scalar_loop(UnaryOp op) {
  if constexpr (std::is_floating_point_v<T>) {
    static constexpr auto kLoops = float_loops<T>(std::make_integer_sequence<int, kOpCount>());
    return kLoops[static_cast<std::size_t>(op)];
  } else {
    switch (op) {
      case UnaryOp::kAbs:
        return unary_loop<UnaryOp::kAbs, T>;
      case UnaryOp::kNeg:
        return unary_loop<UnaryOp::kNeg, T>;
      case UnaryOp::kSign:
        return unary_loop<UnaryOp::kSign, T>;
      case UnaryOp::kRelu:
        return unary_loop<UnaryOp::kRelu, T>;
      case UnaryOp::kErf:
        return by_double<UnaryOp::kErf, T>;
      case UnaryOp::kShrink:
        return by_double<UnaryOp::kShrink, T>;
      default:
        sdk::unsupported("no such function of integers");
    }
  }
}

/// y = f(x), element by element.
class UnaryMath {
 public:
  struct Prepared {
    UnaryF32 f32 = nullptr;  // float, and the 16-bit types block by block
    Loop loop = nullptr;     // everything else
    const HalfConversion* half = nullptr;
    UnaryParams params;
    std::int64_t count = 0;
    std::int64_t element_bytes = 0;
    double ns_each = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      const char* x = ctx.input(0).data<char>();
      char* y = ctx.output(0).mutable_data<char>();
      split_elements(ctx.threads(), count, ns_each, [&](std::int64_t begin, std::int64_t end) {
        run(x + begin * element_bytes, y + begin * element_bytes, end - begin);
      });
    }

   private:
    void run(const char* x, char* y, std::int64_t n) const {
      if (half != nullptr) {
        run_halves(x, y, n);
      } else if (f32 != nullptr) {
        f32(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), n, params);
      } else {
        loop(x, y, n, params);
      }
    }

    void run_halves(const char* x, char* y, std::int64_t n) const {
      constexpr std::int64_t kBlock = 512;
      alignas(64) float block[kBlock];
      for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t size = std::min(kBlock, n - begin);
        half->to_float(x + 2 * begin, block, size);
        if (f32 != nullptr) {
          f32(block, block, size, params);
        } else {
          loop(block, block, size, params);
        }
        half->from_float(block, y + 2 * begin, size);
      }
    }
  };

  UnaryMath(const sdk::CreateContext& ctx, const sdk::Node& node)
      : row_(find_row(node.op_type())), isa_(isa_of(ctx)), op_(row_.op) {
    if (row_.a.name != nullptr) params_.a = node.get_float(row_.a.name, row_.a.default_value);
    if (row_.b.name != nullptr) params_.b = node.get_float(row_.b.name, row_.b.default_value);
    if (op_ == UnaryOp::kGelu) {
      const std::string approximate = node.get_string("approximate", "none");
      if (approximate == "tanh") {
        op_ = UnaryOp::kGeluTanh;
      } else if (approximate != "none") {
        sdk::invalid("attribute 'approximate' of Gelu is '", approximate, "'; use none or tanh");
      }
    }
    if (op_ == UnaryOp::kSelu && node.since_version() < 6) {  // shorter constants then
      params_.a = node.get_float("alpha", 1.6732f);
      params_.b = node.get_float("gamma", 1.0507f);
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    Prepared prepared;
    prepared.params = params_;
    prepared.count = x.size();
    prepared.element_bytes = sdk::element_bytes(x.type());
    prepared.ns_each = row_.ns;
    const bool is_half = x.type() == DataType::Float16 || x.type() == DataType::BFloat16;
    if (is_half) prepared.half = &half_conversion(isa_, x.type());
    if (is_half || x.type() == DataType::Float) {
      prepared.f32 = unary_f32(isa_, op_);
      if (prepared.f32 == nullptr) prepared.ns_each = kLibrary;
      prepared.loop = scalar_loop<float>(op_);
    } else {
      prepared.loop = common::with_number(x.type(), [this](auto tag) -> Loop {
        using T = typename decltype(tag)::type;
        if constexpr (common::kIsHalfType<T>)
          return nullptr;
        else
          return scalar_loop<T>(op_);
      });
      prepared.ns_each = std::max(row_.ns, row_.ns > kCheap ? kLibrary : 0.5);
      const UnaryF64 f64 = x.type() == DataType::Double ? unary_f64(isa_, op_) : nullptr;
      if (f64 != nullptr) {
        prepared.loop = f64;
        prepared.ns_each = 4 * row_.ns;
      }
    }
    return prepared;
  }

 private:
  const Row& row_;
  Isa isa_;
  UnaryOp op_;
  UnaryParams params_;
};

}  // namespace

sdk::KernelList unary_math_kernels() {
  sdk::KernelList list;
  for (const Row& row : kRows) {
    list.push_back(sdk::op(row.op_type)
                       .name(std::string("cpu:") + row.op_type)
                       .types("T", row.types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<UnaryMath>());
  }
  // The one that the rewrite makes of x * Sigmoid(alpha * x).
  list.push_back(sdk::op("Swish", "backplane.cpu").name("cpu:swish_fused").kernel<UnaryMath>());
  return list;
}

}  // namespace backplane::cpu

#include "plugins/cpu/dense/activation.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const ActivationKernels& activation_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

struct Clamp {
  float lo, hi;
  // NaN comes through.
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    return at_least(hn::Set(d, lo), at_most(hn::Set(d, hi), x));
  }
};
struct LeakyRelu {
  float alpha;
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, hn::Set(d, alpha)), x);
  }
};
struct Sigmoid {
  HWY_INLINE Vector operator()(Tag d, Vector x) const { return vector_sigmoid(d, x); }
};
struct HardSigmoid {
  float alpha, beta;
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    const Vector y = hn::MulAdd(hn::Set(d, alpha), x, hn::Set(d, beta));
    return at_least(hn::Zero(d), at_most(hn::Set(d, 1.0f), y));
  }
};
struct Silu {
  HWY_INLINE Vector operator()(Tag d, Vector x) const { return hn::Mul(x, vector_sigmoid(d, x)); }
};
struct HardSwish {
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    return hn::Mul(x, HardSigmoid{1.0f / 6.0f, 0.5f}(d, x));
  }
};
struct Tanh {
  HWY_INLINE Vector operator()(Tag d, Vector x) const { return vector_tanh(d, x); }
};
struct Gelu {
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    const Vector half = hn::Mul(x, hn::Set(d, 0.5f));
    return hn::MulAdd(half, vector_erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f))), half);
  }
};

struct GeluTanh {
  // (1 + tanh(z)) / 2 is the sigmoid of 2 z.
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    const Vector cubic = hn::Mul(hn::Mul(x, x), hn::Set(d, 0.044715f));
    const Vector inner = hn::Mul(hn::Set(d, 1.5957691216057308f), hn::MulAdd(cubic, x, x));
    return hn::Mul(x, vector_sigmoid(d, inner));
  }
};

/// Rounds to the numbers that 8 bits can hold; halves go to the even neighbour, as ONNX says. NaN is
/// not a number of 8 bits and becomes one of them.
struct RoundTo8Bits {
  float scale, zero_point, least, most;
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    const Vector zero = hn::Set(d, zero_point);
    const Vector q = hn::Add(hn::Round(hn::Div(x, hn::Set(d, scale))), zero);
    const Vector bounded = hn::Min(hn::Max(q, hn::Set(d, least)), hn::Set(d, most));
    return hn::Mul(hn::Sub(bounded, zero), hn::Set(d, scale));
  }
};

/// Calls body(f) with the functor for an activation.
template <class Body>
HWY_INLINE void with_functor(const Activation& a, const Body& body) {
  switch (a.kind) {
    case Activation::kClamp:
      return body(Clamp{a.alpha, a.beta});
    case Activation::kLeakyRelu:
      return body(LeakyRelu{a.alpha});
    case Activation::kSigmoid:
      return body(Sigmoid{});
    case Activation::kHardSigmoid:
      return body(HardSigmoid{a.alpha, a.beta});
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kHardSwish:
      return body(HardSwish{});
    case Activation::kTanh:
      return body(Tanh{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
    case Activation::kRoundUint8:
      return body(RoundTo8Bits{a.alpha, a.beta, 0.0f, 255.0f});
    case Activation::kRoundInt8:
      return body(RoundTo8Bits{a.alpha, a.beta, -128.0f, 127.0f});
  }
}

template <class Functor>
HWY_NOINLINE void apply_rows(const Functor& f, float* x, int64_t stride, int64_t rows,
                             int64_t columns) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, x + i);
    if (i < columns) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(columns - i));
      store_first(mask, d, f(d, load_first(mask, d, x + i)), x + i);
    }
  }
}

struct Rescale {
  float factor, shift;
  HWY_INLINE Vector operator()(Tag d, Vector x) const {
    return hn::MulAdd(x, hn::Set(d, factor), hn::Set(d, shift));
  }
};

/// Of rows that f made, which lie in a cache: a second visit costs little, where a form of every loop for it would double them.
void rescale(const Activation& activation, float* x, int64_t stride, int64_t rows,
             int64_t columns) {
  if (!activation.rescales()) return;
  apply_rows(Rescale{activation.factor, activation.shift}, x, stride, rows, columns);
}

void apply(const Activation& activation, float* x, int64_t stride, int64_t rows, int64_t columns) {
  with_functor(activation,
               [&](const auto& f) HWY_ATTR { apply_rows(f, x, stride, rows, columns); });
  rescale(activation, x, stride, rows, columns);
}

template <class Functor>
HWY_NOINLINE void scale_shift_rows(const Functor& f, const float* x, int64_t x_stride,
                                   const float* scale, const float* shift, float* y,
                                   int64_t y_stride, int64_t rows, int64_t columns) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += y_stride) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      if (HWY_LIKELY(c + kLanes <= columns)) {
        const Vector a = scale ? hn::LoadU(d, scale + c) : hn::Set(d, 1.0f);
        const Vector b = shift ? hn::LoadU(d, shift + c) : hn::Zero(d);
        hn::StoreU(f(d, hn::MulAdd(hn::LoadU(d, x + c), a, b)), d, y + c);
      } else {
        const auto mask = hn::FirstN(d, static_cast<size_t>(columns - c));
        const Vector a = scale ? load_first(mask, d, scale + c) : hn::Set(d, 1.0f);
        const Vector b = shift ? load_first(mask, d, shift + c) : hn::Zero(d);
        store_first(mask, d, f(d, hn::MulAdd(load_first(mask, d, x + c), a, b)), y + c);
      }
    }
  }
}

void scale_shift(const Activation& activation, const float* x, int64_t x_stride, const float* scale,
                 const float* shift, float* y, int64_t y_stride, int64_t rows, int64_t columns) {
  with_functor(activation, [&](const auto& f) HWY_ATTR {
    scale_shift_rows(f, x, x_stride, scale, shift, y, y_stride, rows, columns);
  });
  rescale(activation, y, y_stride, rows, columns);
}

template <class Functor>
HWY_NOINLINE void add_rows(const Functor& f, const float* a, int64_t a_stride, const float* b,
                           int64_t b_stride, float* y, int64_t y_stride, int64_t rows,
                           int64_t columns) {
  const Tag d;
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride, y += y_stride) {
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      hn::StoreU(f(d, hn::Add(hn::LoadU(d, a + c), hn::LoadU(d, b + c))), d, y + c);
    }
    if (c < columns) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(columns - c));
      const Vector sum = hn::Add(load_first(mask, d, a + c), load_first(mask, d, b + c));
      store_first(mask, d, f(d, sum), y + c);
    }
  }
}

void add(const Activation& activation, const float* a, int64_t a_stride, const float* b,
         int64_t b_stride, float* y, int64_t y_stride, int64_t rows, int64_t columns) {
  with_functor(activation, [&](const auto& f) HWY_ATTR {
    add_rows(f, a, a_stride, b, b_stride, y, y_stride, rows, columns);
  });
  rescale(activation, y, y_stride, rows, columns);
}

}  // namespace

const ActivationKernels& activation_table() {
  static constexpr ActivationKernels kKernels = {apply, scale_shift, add};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <iterator>

#include "backplane/plugin/error.hpp"

namespace backplane::cpu {
namespace {

constexpr const char* kNames[] = {"Clamp",    "LeakyRelu",  "Sigmoid",  "HardSigmoid",
                                  "Silu",     "HardSwish",  "Tanh",     "Gelu",
                                  "GeluTanh", "RoundUint8", "RoundInt8"};

}  // namespace

const char* activation_name(Activation::Kind kind) { return kNames[kind]; }

Activation::Kind activation_kind(const std::string& name) {
  for (int kind = 0; kind < static_cast<int>(std::size(kNames)); ++kind) {
    if (name == kNames[kind]) return static_cast<Activation::Kind>(kind);
  }
  sdk::unsupported("no activation is called '", name, "'");
}

const ActivationKernels& activation_kernels(Isa isa) { BP_SELECT_TARGET(isa, activation_table()); }

}  // namespace backplane::cpu
#endif

// Activations that dense kernels apply to their results while these are still in the cache.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "plugins/cpu/dense/isa.hpp"

namespace backplane::cpu {

/// y = f(x) * factor + shift. Relu and Clip are one form (kClamp), which the tile kernels apply in registers; the others, and a
/// factor and a shift, run over the finished rows.
struct Activation {
  enum Kind : int {
    kClamp,        // min(max(x, lo), hi); with infinities: nothing
    kLeakyRelu,    // x < 0 ? alpha * x : x
    kSigmoid,      // 1 / (1 + exp(-x))
    kHardSigmoid,  // clamp(alpha * x + beta, 0, 1)
    kSilu,         // x * sigmoid(x)
    kHardSwish,    // x * clamp(x / 6 + 0.5, 0, 1)
    kTanh,
    kGelu,      // x * (1 + erf(x / sqrt(2))) / 2
    kGeluTanh,  // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2
    // QuantizeLinear and DequantizeLinear to and from 8 bits, scale alpha, zero point beta:
    // (clamp(round(x / alpha) + beta, least, most) - beta) * alpha
    kRoundUint8,
    kRoundInt8,
  };
  Kind kind = kClamp;
  float alpha = -std::numeric_limits<float>::infinity();  // kClamp: lo
  float beta = std::numeric_limits<float>::infinity();    // kClamp: hi
  float factor = 1, shift = 0;

  float lo() const { return kind == kClamp ? alpha : -std::numeric_limits<float>::infinity(); }
  float hi() const { return kind == kClamp ? beta : std::numeric_limits<float>::infinity(); }
  /// Whether nothing remains to be done after clamping.
  bool in_registers() const { return kind == kClamp && !rescales(); }
  bool rescales() const { return factor != 1 || shift != 0; }
  /// Whether it is anything but y = x.
  bool changes() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return !in_registers() || lo() > -kInfinity || hi() < kInfinity;
  }
};

/// The activation as a text that an attribute can hold, and back. Throws sdk::Error for an unknown one.
const char* activation_name(Activation::Kind kind);
Activation::Kind activation_kind(const std::string& name);

struct ActivationKernels {
  /// In place over `rows` rows of `columns`, each `stride` floats after the last.
  void (*apply)(const Activation& activation, float* x, int64_t stride, int64_t rows,
                int64_t columns);
  /// y[r][c] = f(x[r][c] * scale[c] + shift[c]) over `rows` rows of `columns`; `scale` or `shift` may be
  /// null (then 1, then 0). x may equal y. Strides count floats.
  void (*scale_shift)(const Activation& activation, const float* x, int64_t x_stride,
                      const float* scale, const float* shift, float* y, int64_t y_stride,
                      int64_t rows, int64_t columns);
  /// y[r][c] = f(a[r][c] + b[r][c]).
  void (*add)(const Activation& activation, const float* a, int64_t a_stride, const float* b,
              int64_t b_stride, float* y, int64_t y_stride, int64_t rows, int64_t columns);
};

const ActivationKernels& activation_kernels(Isa isa);

}  // namespace backplane::cpu

// Fourier transforms of any length, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace backplane::cpu {

struct Complex {
  double re = 0;
  double im = 0;
};

/// Transforms of `length` numbers, made ready: roots of unity, and for lengths that are no power of two a
/// longer transform of one (Bluestein's algorithm). Immutable.
class Fourier {
 public:
  Fourier() = default;
  explicit Fourier(std::int64_t length);

  std::int64_t length() const { return length_; }
  /// Numbers that `forward` needs beside x.
  std::int64_t scratch_size() const { return padded_; }
  /// x[k] = sum over n of x[n] * exp(-2 pi i k n / length), in place.
  void forward(Complex* x, Complex* scratch) const;
  /// x[n] = sum over k of x[k] * exp(2 pi i k n / length) / length, in place.
  void inverse(Complex* x, Complex* scratch) const;

 private:
  /// Of a power of two, with exp(-2 pi i j / n) for j < n / 2.
  static void power_of_two(Complex* x, std::int64_t n, const std::vector<Complex>& roots);

  std::int64_t length_ = 0;
  std::int64_t padded_ = 0;      // 0: length is a power of two
  std::vector<Complex> roots_;   // of length, or of padded
  std::vector<Complex> chirp_;   // exp(-pi i n^2 / length)
  std::vector<Complex> filter_;  // the transform of the chirp's conjugate, divided by padded
};

}  // namespace backplane::cpu

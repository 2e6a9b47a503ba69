#include "plugins/cpu/kernels/fourier.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace backplane::cpu {
namespace {

constexpr double kPi = 3.14159265358979323846;

Complex multiply(const Complex& a, const Complex& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/// exp(-2 pi i part / whole).
Complex root(std::int64_t part, std::int64_t whole) {
  const double angle = -2 * kPi * static_cast<double>(part) / static_cast<double>(whole);
  return {std::cos(angle), std::sin(angle)};
}

std::vector<Complex> half_circle(std::int64_t n) {
  std::vector<Complex> roots;
  roots.reserve(static_cast<std::size_t>(n / 2));
  for (std::int64_t j = 0; j < n / 2; ++j) roots.push_back(root(j, n));
  return roots;
}

void conjugate(Complex* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i].im = -x[i].im;
}

}  // namespace

Fourier::Fourier(std::int64_t length) : length_(length) {
  if (length <= 1) return;
  if ((length & (length - 1)) == 0) {
    roots_ = half_circle(length);
    return;
  }
  padded_ = 1;
  while (padded_ < 2 * length - 1) padded_ *= 2;
  // All of it before the work begins: where there is no room, that is said at once.
  filter_.reserve(static_cast<std::size_t>(padded_));
  chirp_.reserve(static_cast<std::size_t>(length));
  roots_ = half_circle(padded_);
  for (std::int64_t n = 0; n < length; ++n) {
    chirp_.push_back(root(n * n % (2 * length), 2 * length));  // reduced: the angle stays exact
  }
  filter_.resize(static_cast<std::size_t>(padded_));
  for (std::int64_t n = 0; n < length; ++n) {
    const Complex& c = chirp_[static_cast<std::size_t>(n)];
    const Complex value{c.re / static_cast<double>(padded_), -c.im / static_cast<double>(padded_)};
    filter_[static_cast<std::size_t>(n)] = value;
    filter_[static_cast<std::size_t>((padded_ - n) % padded_)] = value;
  }
  power_of_two(filter_.data(), padded_, roots_);
}

void Fourier::power_of_two(Complex* x, std::int64_t n, const std::vector<Complex>& roots) {
  for (std::int64_t i = 1, j = 0; i < n; ++i) {  // bits in reverse order
    std::int64_t bit = n / 2;
    for (; (j & bit) != 0; bit /= 2) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (std::int64_t size = 2; size <= n; size *= 2) {
    const std::int64_t half = size / 2;
    const std::int64_t step = n / size;
    for (std::int64_t first = 0; first < n; first += size) {
      for (std::int64_t k = 0; k < half; ++k) {
        const Complex odd =
            multiply(x[first + half + k], roots[static_cast<std::size_t>(k * step)]);
        const Complex even = x[first + k];
        x[first + k] = {even.re + odd.re, even.im + odd.im};
        x[first + half + k] = {even.re - odd.re, even.im - odd.im};
      }
    }
  }
}

void Fourier::forward(Complex* x, Complex* scratch) const {
  if (length_ <= 1) return;
  if (padded_ == 0) {
    power_of_two(x, length_, roots_);
    return;
  }
  // k n = (k^2 + n^2 - (k - n)^2) / 2 makes the sum a convolution with the chirp.
  for (std::int64_t n = 0; n < length_; ++n)
    scratch[n] = multiply(x[n], chirp_[static_cast<std::size_t>(n)]);
  std::fill(scratch + length_, scratch + padded_, Complex{});
  power_of_two(scratch, padded_, roots_);
  for (std::int64_t n = 0; n < padded_; ++n)
    scratch[n] = multiply(scratch[n], filter_[static_cast<std::size_t>(n)]);
  conjugate(scratch, padded_);
  power_of_two(scratch, padded_, roots_);
  conjugate(scratch, padded_);
  for (std::int64_t n = 0; n < length_; ++n)
    x[n] = multiply(scratch[n], chirp_[static_cast<std::size_t>(n)]);
}

void Fourier::inverse(Complex* x, Complex* scratch) const {
  conjugate(x, length_);
  forward(x, scratch);
  const double factor = 1.0 / static_cast<double>(length_);
  for (std::int64_t n = 0; n < length_; ++n) x[n] = {x[n].re * factor, -x[n].im * factor};
}

}  // namespace backplane::cpu

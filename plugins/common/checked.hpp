// Arithmetic of sizes that a model or a caller may set to anything.
#pragma once

#include <cmath>
#include <cstdint>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// A whole number that knows whether 63 bits held everything it was computed from. For create and prepare: what
/// came out of `value` fits, and loops need not ask again.
class Checked {
 public:
  Checked(std::int64_t value) : value_(value) {}  // implicit: sizes mix with literals

  friend Checked operator+(Checked a, Checked b) {
    Checked sum(0);
    sum.fits_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.fits_ && b.fits_;
    return sum;
  }
  friend Checked operator-(Checked a, Checked b) {
    Checked difference(0);
    difference.fits_ =
        !__builtin_sub_overflow(a.value_, b.value_, &difference.value_) && a.fits_ && b.fits_;
    return difference;
  }
  friend Checked operator*(Checked a, Checked b) {
    Checked product(0);
    product.fits_ =
        !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.fits_ && b.fits_;
    return product;
  }

  bool fits() const { return fits_; }

  /// Errors: BP_INVALID_ARGUMENT where it does not fit: "`what` is too large". `what` names the quantity and the
  /// numbers that it comes from.
  template <class... What>
  std::int64_t value(const What&... what) const {
    if (!fits_) sdk::invalid(what..., " is too large");
    return value_;
  }
  /// As `value`, and an error above `most`, too.
  template <class... What>
  std::int64_t at_most(std::int64_t most, const What&... what) const {
    if (value(what...) > most)
      sdk::invalid(what..., " is too large: ", value_, ", where up to ", most, " are handled");
    return value_;
  }

 private:
  std::int64_t value_;
  bool fits_ = true;
};

/// The number of parts that `size` elements make, the last of which may be a smaller one.
inline std::int64_t ceil_quotient(std::int64_t size, std::int64_t part) {
  return size > 0 ? (size - 1) / part + 1 : 0;
}

/// The product of `dims`.
inline Checked checked_product(sdk::DimsView dims) {
  Checked product(1);
  for (const std::int64_t dim : dims) product = product * dim;
  return product;
}

/// A size that was computed in floating point. Errors: BP_INVALID_ARGUMENT where it is no number or does not fit.
template <class... What>
std::int64_t whole_size(double size, const What&... what) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (std::isnan(size)) sdk::invalid(what..., " is not a number");
  if (!(size > -kEnd && size < kEnd)) sdk::invalid(what..., " is too large");
  return static_cast<std::int64_t>(size);
}

}  // namespace backplane::common

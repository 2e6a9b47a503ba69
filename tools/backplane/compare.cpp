#include "tools/backplane/compare.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"
#include "tools/backplane/value_file.hpp"

namespace backplane::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string index_text(std::uint64_t index, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> at(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    at[axis] = static_cast<std::int64_t>(index % static_cast<std::uint64_t>(dims[axis]));
    index /= static_cast<std::uint64_t>(dims[axis]);
  }
  return shape_text(at);
}

/// Collects the elements that differ: how many, and the first.
class Differences {
 public:
  void add(std::uint64_t index) {
    if (count_++ == 0) first_ = index;
  }
  std::string text(const std::vector<std::int64_t>& dims, std::uint64_t size,
                   const std::string& got, const std::string& want) const {
    return cli::text("element ", index_text(first_, dims), " is ", got, ", should be ", want, " (",
                     count_, " of ", size, " differ)");
  }
  bool any() const { return count_ > 0; }
  std::uint64_t first() const { return first_; }

 private:
  std::uint64_t count_ = 0;
  std::uint64_t first_ = 0;
};

template <class T>
std::complex<double> complex_at(const void* data, std::uint64_t index) {
  std::complex<T> value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof value, sizeof value);
  return value;
}

bool is_right_complex(std::complex<double> got, std::complex<double> want,
                      const Tolerance& tolerance, Comparison& comparison) {
  const auto finite = [](std::complex<double> z) {
    return std::isfinite(z.real()) && std::isfinite(z.imag());
  };
  if (finite(got) && finite(want)) {
    const double error = std::abs(got - want);
    const double size = std::abs(want);
    comparison.max_abs = std::max(comparison.max_abs, error);
    if (error > 0) comparison.max_rel = std::max(comparison.max_rel, error / size);
    return error <= tolerance.atol + tolerance.rtol * size;
  }
  const bool real = is_right(got.real(), want.real(), tolerance, comparison);
  return is_right(got.imag(), want.imag(), tolerance, comparison) && real;
}

Comparison compare_strings(const ValueView& got, const ValueView& want) {
  Comparison comparison;
  Differences differences;
  const std::uint64_t size = want.size();
  for (std::uint64_t i = 0; i < size; ++i) {
    if (got.string(i) != want.string(i)) differences.add(i);
  }
  if (differences.any()) {
    const auto word = [&](const ValueView& value) {
      return "\"" + one_line(value.string(differences.first())).substr(0, 60) + "\"";
    };
    comparison.difference = differences.text(want.dims(), size, word(got), word(want));
  }
  return comparison;
}

Comparison compare_elements(const ValueView& got, const ValueView& want,
                            const Tolerance& tolerance) {
  const ElementType type = want.element_type();
  if (type == ElementType::String) return compare_strings(got, want);
  Comparison comparison;
  Differences differences;
  const void* a = got.bytes();
  const void* b = want.bytes();
  const std::uint64_t size = want.size();
  for (std::uint64_t i = 0; i < size; ++i) {
    bool right = false;
    if (type == ElementType::Complex64) {
      right =
          is_right_complex(complex_at<float>(a, i), complex_at<float>(b, i), tolerance, comparison);
    } else if (type == ElementType::Complex128) {
      right = is_right_complex(complex_at<double>(a, i), complex_at<double>(b, i), tolerance,
                               comparison);
    } else if (is_floating(type)) {
      right = is_right(element_at(type, a, i), element_at(type, b, i), tolerance, comparison);
    } else if (type == ElementType::Bool) {
      right = is_right(element_at(type, a, i), element_at(type, b, i), {0, 0}, comparison);
    } else {  // doubles do not hold all 64-bit integers: the bits decide
      right = element_bits_at(type, a, i) == element_bits_at(type, b, i);
      if (!right) {
        const double error = integer_distance(type, a, b, i);
        comparison.max_abs = std::max(comparison.max_abs, error);
        comparison.max_rel =
            std::max(comparison.max_rel, error / std::fabs(element_at(type, b, i)));
      }
    }
    if (!right) differences.add(i);
  }
  if (differences.any()) {
    comparison.difference =
        differences.text(want.dims(), size, element_text(type, a, differences.first()),
                         element_text(type, b, differences.first()));
  }
  return comparison;
}

Comparison different(const std::string& what) { return {what, 0, 0}; }

Comparison compare_containers(const ValueView& got, const ValueView& want,
                              const Tolerance& tolerance, bool values) {
  const std::uint64_t count = want.element_count();
  if (got.element_count() != count) {
    return different(text("it has ", got.element_count(), " elements, should have ", count));
  }
  Comparison worst;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Value got_element = got.element(i);
    const Value want_element = want.element(i);
    Comparison one = compare(got_element, want_element, tolerance, values);
    worst.max_abs = std::max(worst.max_abs, one.max_abs);
    worst.max_rel = std::max(worst.max_rel, one.max_rel);
    if (worst.difference.empty() && !one.difference.empty()) {
      worst.difference = text("part ", i, ": ", one.difference);
    }
  }
  return worst;
}

}  // namespace

bool is_right(double got, double want, const Tolerance& tolerance, Comparison& comparison) {
  if (std::isnan(got) && std::isnan(want)) return true;
  if (!std::isfinite(got) || !std::isfinite(want)) {
    if (got == want) return true;
    comparison.max_abs = comparison.max_rel = kInfinity;
    return false;
  }
  const double error = std::fabs(got - want);
  comparison.max_abs = std::max(comparison.max_abs, error);
  if (error > 0) comparison.max_rel = std::max(comparison.max_rel, error / std::fabs(want));
  return error <= tolerance.atol + tolerance.rtol * std::fabs(want);
}

Comparison compare(const ValueView& got, const ValueView& want, const Tolerance& tolerance,
                   bool values) {
  if (want.element_type() == ElementType::None) {
    // An empty sequence or optional in a file may not say what it would hold.
    const bool is_empty = want.element_count() == 0;
    if (is_empty ? proto_kind(got.type()) != proto_kind(want.type()) : got.type() != want.type()) {
      return different(text("its type is ", got.type(), ", should be ", want.type()));
    }
    return compare_containers(got, want, tolerance, values);
  }
  if (got.type() != want.type())
    return different(text("its type is ", got.type(), ", should be ", want.type()));
  if (got.dims() != want.dims()) {
    return different(
        text("its shape is ", shape_text(got.dims()), ", should be ", shape_text(want.dims())));
  }
  if (!values) return {};
  return compare_elements(got, want, tolerance);
}

}  // namespace backplane::cli

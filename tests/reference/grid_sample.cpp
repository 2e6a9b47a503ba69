// GridSample: each output element is summed over the neighbours of its point, one axis inside the other.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/reference.hpp"

namespace backplane::reference {
namespace {

struct Rule {
  std::string mode, padding;
  bool is_aligned;
};

/// Walks back and forth between the ends until it has gone as far as x lies beyond the first one.
double mirrored(double x, double low, double high) {
  if (high <= low) return low;
  while (x < low || x > high) x = x < low ? 2 * low - x : 2 * high - x;
  return x;
}

/// An element's place along an axis where the image goes on beyond its edges; -1: zero.
std::int64_t padded(const Rule& rule, std::int64_t place, std::int64_t size) {
  if (place >= 0 && place < size) return place;
  if (rule.padding == "zeros") return -1;
  if (rule.padding == "border") return place < 0 ? 0 : size - 1;
  const double shift = rule.is_aligned ? 0 : 0.5;
  return static_cast<std::int64_t>(
      mirrored(static_cast<double>(place), 0 - shift, static_cast<double>(size) - 1 + shift));
}

/// Keys' kernel with -0.75.
double cubic(double distance) {
  constexpr double a = -0.75;
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? a * (((d - 5) * d + 8) * d - 4) : 0;
}

/// The sum over the axes from `axis` on, of the part of an image that begins at `offset`.
double sampled(const Rule& rule, const Array& x, const std::vector<double>& at, std::size_t axis,
               std::int64_t offset) {
  if (axis == at.size()) return x.values[static_cast<std::size_t>(offset)];
  const std::int64_t size = x.dims[axis + 2];
  const auto part = [&](std::int64_t place, double weight) {
    const std::int64_t found = padded(rule, place, size);
    return found < 0 ? 0 : weight * sampled(rule, x, at, axis + 1, offset * size + found);
  };
  if (rule.mode == "nearest") return part(static_cast<std::int64_t>(at[axis]), 1);
  const auto first = static_cast<std::int64_t>(std::floor(at[axis]));
  double sum = 0;
  for (std::int64_t place = first - 1; place <= first + 2; ++place) {
    const double distance = at[axis] - static_cast<double>(place);
    const bool is_cubic = rule.mode == "cubic" || rule.mode == "bicubic";
    const double weight = is_cubic ? cubic(distance) : std::max(0.0, 1 - std::fabs(distance));
    if (is_cubic || weight > 0) sum += part(place, weight);
  }
  return sum;
}

/// A coordinate from -1 to 1 in elements of an axis, brought back into the image where the padding does that to points.
double element_of(const Rule& rule, double coordinate, std::int64_t dim) {
  const auto size = static_cast<double>(dim);
  const double shift = rule.is_aligned ? 0 : 0.5, low = -shift, high = size - 1 + shift;
  double x =
      rule.is_aligned ? (coordinate + 1) / 2 * (size - 1) : ((coordinate + 1) * size - 1) / 2;
  if (rule.mode == "nearest") x = std::nearbyint(x);
  if (rule.padding == "border" && (x < low || x > high)) x = x < 0 ? 0 : size - 1;
  return rule.padding == "reflection" ? mirrored(x, low, high) : x;
}

Arrays grid_sample(const Call& call) {
  const Array &x = call.input(0), &grid = call.input(1);
  const Rule rule{call.text("mode", "linear"), call.text("padding_mode", "zeros"),
                  call.integer("align_corners", 0) != 0};
  const std::size_t axes = x.dims.size() - 2;
  Array y{x.type, {x.dims[0], x.dims[1]}, {}};
  y.dims.insert(y.dims.end(), grid.dims.begin() + 1, grid.dims.end() - 1);
  for_each_index(y.dims, [&](const Dims& at) {
    Dims point = at;
    point.erase(point.begin() + 1);
    point.push_back(0);
    std::vector<double> elements;
    for (std::size_t axis = 0; axis < axes; ++axis) {  // coordinates stand from the last axis on
      point.back() = static_cast<std::int64_t>(axes - 1 - axis);
      const auto from = static_cast<std::size_t>(offset_of(grid.dims, point));
      elements.push_back(element_of(rule, grid.values[from], x.dims[axis + 2]));
    }
    y.values.push_back(sampled(rule, x, elements, 0, at[0] * x.dims[1] + at[1]));
  });
  return {y};
}

const Registration kGridSample({"GridSample"}, grid_sample);

}  // namespace
}  // namespace backplane::reference

#include "tools/detect/picture.hpp"

#include <algorithm>
#include <cmath>

namespace backplane::detect {
namespace {

/// The two pixels between which a place lies, and how much of the second one it is.
struct Between {
  int first, second;
  float share;
};

std::vector<Between> places(int from, int to) {
  std::vector<Between> all;
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (int i = 0; i < to; ++i) {
    const float at = std::clamp((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f,
                                static_cast<float>(from - 1));
    const int first = static_cast<int>(std::floor(at));
    all.push_back({first, std::min(first + 1, from - 1), at - static_cast<float>(first)});
  }
  return all;
}

}  // namespace

std::vector<float> to_planes(const Picture& picture, int width, int height, float offset,
                             float divisor) {
  const std::size_t plane = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  std::vector<float> planes(3 * plane);
  const std::vector<Between> columns = places(picture.width, width);
  const std::vector<Between> rows = places(picture.height, height);
  std::size_t to = 0;
  for (const Between& row : rows) {
    for (const Between& column : columns) {
      for (int channel = 0; channel < 3; ++channel) {
        const auto value = [&](int x, int y) {
          return static_cast<float>(picture.pixel(x, y)[channel]);
        };
        const float upper = value(column.first, row.first) * (1 - column.share) +
                            value(column.second, row.first) * column.share;
        const float lower = value(column.first, row.second) * (1 - column.share) +
                            value(column.second, row.second) * column.share;
        planes[static_cast<std::size_t>(channel) * plane + to] =
            (upper * (1 - row.share) + lower * row.share - offset) / divisor;
      }
      ++to;
    }
  }
  return planes;
}

void draw_rectangle(Picture& picture, int left, int top, int right, int bottom,
                    const std::uint8_t (&colour)[3]) {
  const int edge = std::max(1, std::max(picture.width, picture.height) / 300);
  for (int y = std::max(0, top); y <= std::min(bottom, picture.height - 1); ++y) {
    for (int x = std::max(0, left); x <= std::min(right, picture.width - 1); ++x) {
      const bool inside =
          x >= left + edge && x <= right - edge && y >= top + edge && y <= bottom - edge;
      if (!inside) std::copy_n(colour, 3, picture.pixel(x, y));
    }
  }
}

}  // namespace backplane::detect

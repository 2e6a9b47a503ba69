// Pictures: 8 bits each of red, green and blue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace backplane::detect {

/// Rows from the top, three bytes a pixel.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> bytes;

  std::uint8_t* pixel(int x, int y) {
    return bytes.data() + (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
                           static_cast<std::size_t>(x)) *
                              3;
  }
  const std::uint8_t* pixel(int x, int y) const { return const_cast<Picture*>(this)->pixel(x, y); }
};

/// What the network is given: [3, height, width] of the picture, resized with bilinear weights between the centres of
/// pixels, each value as (v - offset) / divisor.
std::vector<float> to_planes(const Picture& picture, int width, int height, float offset,
                             float divisor);

/// An edge of some pixels around a rectangle, cut at the picture's own.
void draw_rectangle(Picture& picture, int left, int top, int right, int bottom,
                    const std::uint8_t (&colour)[3]);

/// PPM (P6), and JPEG where libjpeg was there. Throw std::runtime_error that names the file.
Picture read_picture(const std::string& path);
/// By the name's ending: .ppm, .jpg, .jpeg. As a whole or not at all.
void write_picture(const Picture& picture, const std::string& path);

}  // namespace backplane::detect

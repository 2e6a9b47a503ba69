#include "tools/detect/boxes.hpp"

#include <algorithm>

namespace backplane::detect {
namespace {

float shared_area(const Box& a, const Box& b) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return std::max(width, 0.0f) * std::max(height, 0.0f);
}

float area(const Box& box) { return (box.right - box.left) * (box.bottom - box.top); }

}  // namespace

std::vector<Box> decode_things(const ValueView& output, int width, int height, float threshold) {
  std::vector<Box> boxes;
  const std::int64_t count = output.dims().at(1), columns = output.dims().at(2);
  const float* row = output.data<float>();
  for (std::int64_t i = 0; i < count; ++i, row += columns) {
    const float* best = std::max_element(row + 5, row + columns);
    const float score = row[4] * *best;
    if (score < threshold) continue;
    const float x = row[0] / static_cast<float>(width), y = row[1] / static_cast<float>(height);
    const float half_width = row[2] / static_cast<float>(2 * width);
    const float half_height = row[3] / static_cast<float>(2 * height);
    boxes.push_back({x - half_width, y - half_height, x + half_width, y + half_height, score,
                     static_cast<int>(best - (row + 5))});
  }
  return boxes;
}

std::vector<Box> decode_faces(const ValueView& scores, const ValueView& corners, float threshold) {
  std::vector<Box> boxes;
  const float* score = scores.data<float>();
  const float* corner = corners.data<float>();
  for (std::int64_t i = 0; i < scores.dims().at(1); ++i, score += 2, corner += 4) {
    if (score[1] >= threshold)
      boxes.push_back({corner[0], corner[1], corner[2], corner[3], score[1], 0});
  }
  return boxes;
}

// [nms]
std::vector<Box> best_boxes(std::vector<Box> boxes, float overlap) {
  std::stable_sort(boxes.begin(), boxes.end(),
                   [](const Box& a, const Box& b) { return a.score > b.score; });
  std::vector<Box> kept;
  for (const Box& box : boxes) {
    const bool is_new = std::none_of(kept.begin(), kept.end(), [&](const Box& better) {
      const float shared = shared_area(box, better);
      return box.kind == better.kind && shared > overlap * (area(box) + area(better) - shared);
    });
    if (is_new) kept.push_back(box);
  }
  return kept;
}
// [/nms]

}  // namespace backplane::detect

// What networks find in a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"

namespace backplane::detect {

/// A rectangle and what is in it. Places are shares of the picture's width and height.
struct Box {
  float left, top, right, bottom;
  float score;  ///< 0 .. 1
  int kind;     ///< the class's number
};

/// Boxes of the layout [1, n, 5 + classes]: centre and size in pixels of the network's input, how sure it is that there
/// is anything, and how sure of each class.
std::vector<Box> decode_things(const ValueView& output, int width, int height, float threshold);

/// Boxes of two outputs: scores [1, n, 2] (nothing, a face) and corners [1, n, 4] as shares.
std::vector<Box> decode_faces(const ValueView& scores, const ValueView& corners, float threshold);

/// Non-maximum suppression: the best boxes first, without those that share more than `overlap` (intersection over union)
/// with a better one of their class.
std::vector<Box> best_boxes(std::vector<Box> boxes, float overlap);

/// The word for class `kind` of `count` classes: those of COCO's 80, or "class N".
std::string class_name(int kind, std::int64_t count);

}  // namespace backplane::detect

// The classes of COCO in the order of detectors trained on it: https://cocodataset.org/#explore
#include "tools/detect/boxes.hpp"

namespace backplane::detect {
namespace {

constexpr const char* kNames[] = {"person",        "bicycle",      "car",
                                  "motorcycle",    "airplane",     "bus",
                                  "train",         "truck",        "boat",
                                  "traffic light", "fire hydrant", "stop sign",
                                  "parking meter", "bench",        "bird",
                                  "cat",           "dog",          "horse",
                                  "sheep",         "cow",          "elephant",
                                  "bear",          "zebra",        "giraffe",
                                  "backpack",      "umbrella",     "handbag",
                                  "tie",           "suitcase",     "frisbee",
                                  "skis",          "snowboard",    "sports ball",
                                  "kite",          "baseball bat", "baseball glove",
                                  "skateboard",    "surfboard",    "tennis racket",
                                  "bottle",        "wine glass",   "cup",
                                  "fork",          "knife",        "spoon",
                                  "bowl",          "banana",       "apple",
                                  "sandwich",      "orange",       "broccoli",
                                  "carrot",        "hot dog",      "pizza",
                                  "donut",         "cake",         "chair",
                                  "couch",         "potted plant", "bed",
                                  "dining table",  "toilet",       "tv",
                                  "laptop",        "mouse",        "remote",
                                  "keyboard",      "cell phone",   "microwave",
                                  "oven",          "toaster",      "sink",
                                  "refrigerator",  "book",         "clock",
                                  "vase",          "scissors",     "teddy bear",
                                  "hair drier",    "toothbrush"};
constexpr std::int64_t kNameCount = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kNameCount == 80);

}  // namespace

std::string class_name(int kind, std::int64_t count) {
  return count == kNameCount ? kNames[kind] : "class " + std::to_string(kind);
}

}  // namespace backplane::detect

// What a GroupQueryAttention reads and makes, by place:
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#pragma once

#include <cstdint>

namespace backplane::common {

/// A base of kernels, which then call the places by name.
struct GroupQueryValues {
  enum Input : std::uint32_t {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLengths,
    kTotal,
    kCos,
    kSin,
    kPositions,
    kBias,
    kSink,
    kKeyScale,
    kValueScale,
    kQueryNorm,
    kKeyNorm,
  };
  enum Output : std::uint32_t { kOutput, kPresentKey, kPresentValue, kScores };
};

}  // namespace backplane::common

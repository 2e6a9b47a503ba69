#include "plugins/cpu/kernels/subnormals.hpp"

#include <algorithm>
#include <cstring>

namespace backplane::cpu {
namespace {

constexpr std::int32_t kMagnitude = 0x7fffffff;
constexpr std::int32_t kLeastNormal = 0x00800000;  // 2^-126
constexpr std::int32_t kLarge = (127 - 60) << 23;  // 2^-60
constexpr std::int32_t kNotFinite = 0x7f800000;
constexpr std::int64_t kLine = 16;                // floats
constexpr std::int64_t kSampledFrom = 16 * 1024;  // floats
constexpr std::int64_t kBlock = 16 * kLine;

struct Seen {
  std::int32_t subnormal = 0, large = 0;  // as truth values
  bool idle() const { return subnormal != 0 && large != 0; }
};

/// By bits, since a comparison of subnormal floats is itself slow.
void look(const char* floats, std::int64_t count, Seen& seen) {
  std::int32_t bits[kLine];
  std::memcpy(bits, floats, static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = bits[i] & kMagnitude;
    seen.subnormal |= static_cast<std::int32_t>(magnitude > 0) &
                      static_cast<std::int32_t>(magnitude < kLeastNormal);
    seen.large |= static_cast<std::int32_t>(magnitude >= kLarge) &
                  static_cast<std::int32_t>(magnitude < kNotFinite);
  }
}

}  // namespace

bool has_idle_subnormals(const void* floats, std::int64_t count) {
  const char* data = static_cast<const char*>(floats);
  const bool is_sampled = count > kSampledFrom;
  const std::int64_t step = is_sampled ? kBlock : kLine;
  Seen seen;
  for (std::int64_t i = 0; i < count && !seen.idle(); i += step) {
    // Another line in each block, since weights repeat with the sizes of their axes.
    const auto line = is_sampled ? static_cast<std::uint32_t>(i / kBlock) * 0x9e3779b9U >> 28U : 0U;
    const std::int64_t begin = std::min(i + line * kLine, count - 1);
    look(data + begin * static_cast<std::int64_t>(sizeof(float)), std::min(kLine, count - begin),
         seen);
  }
  return seen.idle();
}

void flush_idle_subnormals(float* floats, std::int64_t count) {
  Seen seen;
  for (std::int64_t i = 0; i < count && !seen.idle(); i += kLine)
    look(reinterpret_cast<const char*>(floats + i), std::min(kLine, count - i), seen);
  if (!seen.idle()) return;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t bits = 0;
    std::memcpy(&bits, floats + i, sizeof(bits));
    if ((bits & kMagnitude) < kLeastNormal) bits &= ~kMagnitude;
    std::memcpy(floats + i, &bits, sizeof(bits));
  }
}

}  // namespace backplane::cpu

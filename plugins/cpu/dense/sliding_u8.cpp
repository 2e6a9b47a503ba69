#include "plugins/cpu/dense/sliding_u8.hpp"

#include <algorithm>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/sliding_u8.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/dense/bytes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

SlideU8 find_slide();

#if HWY_TARGET == HWY_AVX2
namespace {
namespace hn = hwy::HWY_NAMESPACE;

struct WholeUnit {
  HWY_INLINE hn::Vec<Tag8Of16> load(const std::uint8_t* x) const {
    return hn::LoadU(Tag8Of16(), x);
  }
};
/// The last channels, fewer than a unit's: those before them are read, too, and shifted out.
struct PartUnit {
  std::int64_t before;
  hn::Vec<Tag8Of16> places;
  explicit PartUnit(std::int64_t width)
      : before(kColumns - width),
        places(hn::Add(hn::Iota(Tag8Of16(), 0),
                       hn::Set(Tag8Of16(), static_cast<std::uint8_t>(before)))) {}
  HWY_INLINE hn::Vec<Tag8Of16> load(const std::uint8_t* x) const {
    // Places from 16 on are taken modulo 16, and meet weights of zero.
    return hn::TableLookupBytes(hn::LoadU(Tag8Of16(), x - before), places);
  }
};

/// Numbers of 16 bits of the lanes of a unit, two of each lane.
struct LanePairs {
  Vector16 v[2];
  LanePairs() = default;
  HWY_INLINE LanePairs(Vector16 a, Vector16 b)
      : v{hn::InterleaveLower(Tag16(), a, b), hn::InterleaveUpper(Tag16(), a, b)} {}
};

/// Three numbers of each lane, one below the other.
struct LaneColumn {
  LanePairs upper;
  Vector16 lower;
};

/// A unit of channels of `count` pixels, from `first` on. A number is read once, and goes into all windows that it is in.
/// kStride: 1, 2, or 3 for all greater ones.
template <int kStride, bool kSigned, class Access>
HWY_INLINE HWY_ATTR void slide_unit(const Access& access, const SlidingU8Args& run,
                                    std::int64_t channel, std::int64_t first, std::int64_t count,
                                    const TileStore& store, char* out) {
  const Tag16 d16;
  const Tag32 d32;
  const std::uint8_t* x[3];
  std::int64_t at = run.first + first * run.stride;
#pragma GCC unroll 3
  for (int r = 0; r < 3; ++r) x[r] = run.lines[r] + at * run.steps[r] + channel;
  const std::uint8_t* zeros = run.zeros + channel;
  const auto flip = hn::Set(Tag8Of16(), static_cast<std::uint8_t>(kSigned ? 0x80 : 0));
  const auto column = [&]() HWY_ATTR {
    const bool inside = static_cast<std::uint64_t>(at) < static_cast<std::uint64_t>(run.width);
    Vector16 rows[3];
#pragma GCC unroll 3
    for (int r = 0; r < 3; ++r) {
      auto bytes = access.load(inside ? x[r] : zeros);
      if constexpr (kSigned) bytes = hn::Xor(bytes, flip);
      rows[r] = hn::PromoteTo(d16, bytes);
      x[r] += run.steps[r];
    }
    ++at;
    return LaneColumn{LanePairs(rows[0], rows[1]), rows[2]};
  };
  const auto skip = [&]() HWY_ATTR {
#pragma GCC unroll 3
    for (int r = 0; r < 3; ++r) x[r] += (run.stride - 3) * run.steps[r];
    at += run.stride - 3;
  };
  const auto* weights = static_cast<const std::int16_t*>(run.weights) + channel * kSlidingTaps;
  Sums<1> sums;
  const auto add = [&](const LanePairs& x2, int pair) HWY_ATTR {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      const auto w = hn::LoadU(d16, weights + (pair * kVectors + j) * kColumns);
      sums[0][j] = hn::Add(sums[0][j], Vector32{_mm256_madd_epi16(x2.v[j].raw, w.raw)});
    }
  };
  LaneColumn left = column(), middle = left;
  LanePairs lower(left.lower, left.lower);  // two neighbours, of which the last one is wanted
  if constexpr (kStride == 1) {
    middle = column();
    lower = LanePairs(left.lower, middle.lower);
  }
  for (std::int64_t i = 0; i < count; ++i, out += store.row_bytes) {
    if constexpr (kStride == 3) {
      if (i > 0) left = column();
    }
    if constexpr (kStride > 1) middle = column();
    if constexpr (kStride == 3) lower = LanePairs(left.lower, middle.lower);
    const LaneColumn right = column();
    const LanePairs next(middle.lower, right.lower);
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j)
      sums[0][j] = hn::LoadU(d32, store.args.columns.start + j * kLanes);
    add(left.upper, 0);
    add(middle.upper, 1);
    add(right.upper, 2);
    add(next, 3);
    // With stride 2 the second one of the neighbours.
    add(lower, kStride == 2 ? 5 : 4);
    store.rows<1>(sums, out);
    lower = next;
    left = kStride == 1 ? middle : right;
    middle = right;
    if constexpr (kStride == 3) skip();
  }
}

// Bytes of three lines that all channels go over before the next ones.
constexpr std::int64_t kSlidingBytes = 16 * 1024;

template <int kStride, bool kSigned>
HWY_ATTR void slide_line(const SlidingU8Args& run) {
  const std::int64_t block =
      std::max<std::int64_t>(8, kSlidingBytes / (3 * run.stride * run.channels));
  const std::int64_t blocks = (run.pixels + block - 1) / block;
  TileU8Args unit{};
  unit.finish = run.finish;
  unit.out_stride = run.channels;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = run.pixels * b / blocks;
    const std::int64_t count = run.pixels * (b + 1) / blocks - first;
    for (std::int64_t c = 0; c < run.channels; c += kColumns) {
      unit.columns = run.columns.from(c);
      unit.width = std::min<std::int64_t>(kColumns, run.channels - c);
      const TileStore store(unit);
      char* out =
          static_cast<char*>(run.out) + first * store.row_bytes + c * run.finish->element_bytes();
      if (unit.width == kColumns) {
        slide_unit<kStride, kSigned>(WholeUnit{}, run, c, first, count, store, out);
      } else {
        slide_unit<kStride, kSigned>(PartUnit(unit.width), run, c, first, count, store, out);
      }
    }
  }
}

void slide(const SlidingU8Args& run, bool x_signed) {
  if (run.stride == 1) return x_signed ? slide_line<1, true>(run) : slide_line<1, false>(run);
  if (run.stride == 2) return x_signed ? slide_line<2, true>(run) : slide_line<2, false>(run);
  x_signed ? slide_line<3, true>(run) : slide_line<3, false>(run);
}

}  // namespace

SlideU8 find_slide() { return slide; }
#else
SlideU8 find_slide() { return nullptr; }
#endif

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

SlideU8 slide_u8(Isa isa) {
  if (kernels_u8(isa).wide == nullptr) return nullptr;
  BP_SELECT_TARGET(isa, find_slide());
}

void sliding_taps(const std::int8_t* weights, std::int8_t* taps) {
  const std::int8_t lower = weights[6];
  const std::int8_t pairs[kSlidingTaps] = {weights[0], weights[3], weights[1], weights[4],
                                           weights[2], weights[5], weights[7], weights[8],
                                           lower,      0,          0,          lower};
  std::copy_n(pairs, kSlidingTaps, taps);
}

}  // namespace backplane::cpu
#endif

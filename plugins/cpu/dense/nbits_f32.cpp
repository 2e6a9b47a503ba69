#include "plugins/cpu/dense/nbits_f32.hpp"

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/nbits_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const NBitsKernels& nbits_table();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using WholeTag = hn::RebindToSigned<Tag>;
using UnsignedTag = hn::RebindToUnsigned<Tag>;
using Vector = hn::Vec<Tag>;
using Word = hn::Vec<UnsignedTag>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

// How numbers of 4 bits become floats. With 16 lanes: by looking them up in a vector, which takes 8 off for nothing.
// Otherwise: a number is masked out of its word where it stands, so that it is 16 to some power too great, and that
// power is taken off the row's element (`factor`).
#if HWY_TARGET == HWY_AVX3
constexpr bool kLooksUp = true;
#else
constexpr bool kLooksUp = false;
#endif

/// The bits of step `step` of eight in a word.
constexpr int shift_of(int step) { return step % 4 * 8 + step / 4 * 4; }
constexpr int kLastShift = 28;  // the sign is there: this number is shifted down

/// What a row's element of step `step` of eight is multiplied by.
float factor(int bits, int step) {
  const int shift = shift_of(step);
  if (kLooksUp || bits == 8 || shift == kLastShift) return 1;
  return 1.0F / static_cast<float>(std::uint32_t{1} << shift);
}

/// What has already been taken off the numbers that `Numbers` gives.
template <int kBits>
constexpr float kCentre = kBits == 8 ? 128 : (kLooksUp ? 8 : 0);
template <int kBits>
constexpr float kMiddle = kBits == 8 ? 128 : 8;

#if HWY_TARGET == HWY_AVX3
HWY_INLINE HWY_ATTR Vector table() {
  alignas(64) static constexpr float kNumbers[] = {-8, -7, -6, -5, -4, -3, -2, -1,
                                                   0,  1,  2,  3,  4,  5,  6,  7};
  return hn::Load(Tag(), kNumbers);
}

/// The numbers of step `kStep` of eight, less 8. The permutation looks at the lowest 4 bits alone.
template <int kStep>
HWY_INLINE HWY_ATTR Vector number(Word word, Vector table) {
  return Vector{_mm512_permutexvar_ps(hn::ShiftRight<shift_of(kStep)>(word).raw, table.raw)};
}
template <int kStep>
HWY_INLINE HWY_ATTR Vector plain_number(Word word, Vector table) {
  return number<kStep>(word, table);
}
#else
HWY_INLINE HWY_ATTR Vector table() { return hn::Zero(Tag()); }

/// The numbers of step `kStep` of eight, each times 1 / factor.
template <int kStep>
HWY_INLINE HWY_ATTR Vector number(Word word, Vector) {
  const UnsignedTag du;
  constexpr int kShift = shift_of(kStep);
  const Word masked = kShift == kLastShift ? hn::ShiftRight<kLastShift>(word)
                                           : hn::And(word, hn::Set(du, 15U << kShift));
  return hn::ConvertTo(Tag(), hn::BitCast(WholeTag(), masked));
}
template <int kStep>
HWY_INLINE HWY_ATTR Vector plain_number(Word word, Vector) {
  const Word masked = hn::And(hn::ShiftRight<shift_of(kStep)>(word), hn::Set(UnsignedTag(), 15U));
  return hn::ConvertTo(Tag(), hn::BitCast(WholeTag(), masked));
}
#endif

HWY_INLINE HWY_ATTR Vector bytes_to_float(const std::int8_t* from) {
  const hn::Rebind<std::int8_t, Tag> narrow;
  return hn::ConvertTo(Tag(), hn::PromoteTo(WholeTag(), hn::LoadU(narrow, from)));
}

/// What is to be added to the numbers, before they are scaled: what was taken off them less the zero points.
template <int kBits>
HWY_INLINE HWY_ATTR Vector shifts(const NBitsLayout& layout, const char* zeros, int lane) {
  const Tag d;
  const Vector centre = hn::Set(d, kCentre<kBits>);
  switch (layout.shape().zeros) {
    case NBitsShape::kBytes: {
      const hn::Rebind<std::uint8_t, Tag> narrow;
      const auto bytes = hn::LoadU(narrow, reinterpret_cast<const std::uint8_t*>(zeros) + lane);
      return hn::Sub(centre, hn::ConvertTo(d, hn::PromoteTo(WholeTag(), bytes)));
    }
    case NBitsShape::kFloats:
      return hn::Sub(centre, hn::LoadU(d, reinterpret_cast<const float*>(zeros) + lane));
    case NBitsShape::kMiddle:
      break;
  }
  return hn::Sub(centre, hn::Set(d, kMiddle<kBits>));
}

template <int kBits>
bool has_shifts(const NBitsLayout& layout) {
  return layout.shape().zeros != NBitsShape::kMiddle || kCentre<kBits> != kMiddle<kBits>;
}

// More sums than rows and vectors ask for, where there are few: additions then do not wait for each other.
template <int kRows, int kVectors>
constexpr int kSums = kRows* kVectors > (kLanes == 16 ? 8 : 2) ? 1 : 2;

template <int kRows, int kVectors>
using Sums = Vector[kSums<kRows, kVectors>][kRows][kVectors];

/// Step `kStep` of eight of 4 bits.
template <int kStep, int kRows, int kVectors>
HWY_INLINE HWY_ATTR void add_step(const Word (&words)[kVectors], const float* x, Vector table,
                                  Sums<kRows, kVectors>& sums) {
  constexpr int kSum = kStep % kSums<kRows, kVectors>;
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) {
    const Vector w = number<kStep>(words[j], table);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
      sums[kSum][i][j] = hn::MulAdd(hn::Set(Tag(), x[i * 8 + kStep]), w, sums[kSum][i][j]);
  }
}

/// Eight steps.
template <int kBits, int kRows, int kVectors>
HWY_INLINE HWY_ATTR void add_eight(const char* from, std::int64_t pitch, const float* x,
                                   Vector table, Sums<kRows, kVectors>& sums) {
  if constexpr (kBits == 4) {
    Word words[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      words[j] =
          hn::LoadU(UnsignedTag(), reinterpret_cast<const std::uint32_t*>(from) + j * kLanes);
    add_step<0, kRows, kVectors>(words, x, table, sums);
    add_step<1, kRows, kVectors>(words, x, table, sums);
    add_step<2, kRows, kVectors>(words, x, table, sums);
    add_step<3, kRows, kVectors>(words, x, table, sums);
    add_step<4, kRows, kVectors>(words, x, table, sums);
    add_step<5, kRows, kVectors>(words, x, table, sums);
    add_step<6, kRows, kVectors>(words, x, table, sums);
    add_step<7, kRows, kVectors>(words, x, table, sums);
  } else {
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      const auto* bytes = reinterpret_cast<const std::int8_t*>(from) + step * pitch;
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        const Vector w = bytes_to_float(bytes + j * kLanes);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          Vector& sum = sums[step % kSums<kRows, kVectors>][i][j];
          sum = hn::MulAdd(hn::Set(Tag(), x[i * 8 + step]), w, sum);
        }
      }
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void clear_sums(Sums<kRows, kVectors>& sums) {
#pragma GCC unroll 2
  for (int s = 0; s < kSums<kRows, kVectors>; ++s) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[s][i][j] = hn::Zero(Tag());
    }
  }
}

/// What the sums of vector `j` of a block add to the results.
template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void add_block(const Sums<kRows, kVectors>& sums, int j, Vector scale,
                                   bool shifted, Vector shift, const float* row_sums,
                                   std::int64_t row_step, Vector (&totals)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    Vector sum = sums[0][i][j];
    if constexpr (kSums < kRows, kVectors >> 1) sum = hn::Add(sum, sums[1][i][j]);
    if (shifted) sum = hn::MulAdd(hn::Set(Tag(), row_sums[i * row_step]), shift, sum);
    totals[i][j] = hn::MulAdd(sum, scale, totals[i][j]);
  }
}

/// `kVectors` vectors of a panel from the `first` on.
template <int kBits, int kRows, int kVectors>
void thin_part(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const ThinRows& rows, int first, float* out) {
  const Tag d;
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * kLanes;
  const std::int64_t lane = static_cast<std::int64_t>(first) * kLanes;
  const std::int64_t eight_bytes = layout.value_bytes(8) * pitch;
  const bool shifted = has_shifts<kBits>(layout);
  const Vector numbers = table();
  Vector totals[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) totals[i][j] = hn::Zero(d);
  }
  const char* from = static_cast<const char*>(packed) + layout.offset(panel, 0);
  const float* x = rows.x;
  for (std::int64_t block = 0; block < layout.blocks(); ++block) {
    Sums<kRows, kVectors> sums;
    clear_sums<kRows, kVectors>(sums);
    const std::int64_t steps = layout.steps(block);
    const char* values = from + lane * (kBits == 4 ? 4 : 1);
    for (std::int64_t k = 0; k < steps; k += 8, values += eight_bytes, x += 8 * kRows) {
      for (std::int64_t at = 0; at < eight_bytes; at += 64)
        __builtin_prefetch(values + kNBitsFetchedAhead + at, 0, 3);
      add_eight<kBits, kRows, kVectors>(values, pitch, x, numbers, sums);
    }
    from += steps / 8 * eight_bytes;
    const auto* scales = reinterpret_cast<const float*>(from) + lane;
    from += pitch * 4;
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const Vector scale = hn::LoadU(d, scales + j * kLanes);
      const Vector shift =
          shifted ? shifts<kBits>(layout, from, static_cast<int>(lane) + j * kLanes) : hn::Zero(d);
      add_block<kRows, kVectors>(sums, j, scale, shifted, shift, rows.sums + block, layout.blocks(),
                                 totals);
    }
    from += layout.zero_bytes() * pitch;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      hn::StoreU(totals[i][j], d, out + i * pitch + lane + j * kLanes);
  }
}

// As many vectors at a time as leave the sums in registers.
template <int kRows>
constexpr int kWidestPart = kLanes == 16 ? (kRows <= 2 ? 4 : 2) : (kRows <= 2 ? 2 : 1);

template <int kBits, int kRows>
void thin_rows(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const ThinRows& rows, float* out) {
  int first = 0;
  if constexpr (kWidestPart<kRows> >= 4) {
    for (; first + 4 <= panel.vectors; first += 4)
      thin_part<kBits, kRows, 4>(layout, packed, panel, rows, first, out);
  }
  if constexpr (kWidestPart<kRows> >= 2) {
    for (; first + 2 <= panel.vectors; first += 2)
      thin_part<kBits, kRows, 2>(layout, packed, panel, rows, first, out);
  }
  for (; first < panel.vectors; ++first)
    thin_part<kBits, kRows, 1>(layout, packed, panel, rows, first, out);
}

template <int kBits>
void thin_bits(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
               const ThinRows& rows, int count, float* out) {
  switch (count) {
    case 1:
      return thin_rows<kBits, 1>(layout, packed, panel, rows, out);
    case 2:
      return thin_rows<kBits, 2>(layout, packed, panel, rows, out);
    case 3:
      return thin_rows<kBits, 3>(layout, packed, panel, rows, out);
    default:
      return thin_rows<kBits, 4>(layout, packed, panel, rows, out);
  }
}

void thin(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
          const ThinRows& rows, int count, float* out) {
  if (layout.shape().bits == 4) return thin_bits<4>(layout, packed, panel, rows, count, out);
  thin_bits<8>(layout, packed, panel, rows, count, out);
}

void spread_rows(const NBitsLayout& layout, const float* x, std::int64_t stride, std::int64_t rows,
                 const ThinRows& to) {
  float factors[8];
  for (int step = 0; step < 8; ++step) factors[step] = factor(layout.shape().bits, step);
  const std::int64_t depth = layout.shape().depth;
  for (std::int64_t r = 0; r < rows; ++r, x += stride) {
    const std::int64_t group = r / kThinRows * kThinRows;
    const std::int64_t count = std::min<std::int64_t>(kThinRows, rows - group);
    float* copy = to.x + group * layout.padded_depth() + (r - group) * 8;
    for (std::int64_t block = 0; block < layout.blocks(); ++block) {
      const std::int64_t begin = block * layout.block();
      const std::int64_t end = begin + layout.steps(block);
      float parts[8] = {};
      for (std::int64_t k = begin; k < end; k += 8) {
        for (int step = 0; step < 8; ++step) {
          const float value = k + step < depth ? x[k + step] : 0.0F;
          copy[k * count + step] = value * factors[step];
          parts[step] += value;
        }
      }
      to.sums[r * layout.blocks() + block] = ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
                                             ((parts[4] + parts[5]) + (parts[6] + parts[7]));
    }
  }
}

/// One vector of eight steps as floats; `pitch` floats between steps.
template <int kBits>
HWY_INLINE HWY_ATTR void unpack_eight(const char* from, std::int64_t pitch, Vector numbers,
                                      Vector scale, Vector addend, float* to) {
  const Tag d;
  if constexpr (kBits == 4) {
    const Word word = hn::LoadU(UnsignedTag(), reinterpret_cast<const std::uint32_t*>(from));
    hn::StoreU(hn::MulAdd(plain_number<0>(word, numbers), scale, addend), d, to);
    hn::StoreU(hn::MulAdd(plain_number<1>(word, numbers), scale, addend), d, to + pitch);
    hn::StoreU(hn::MulAdd(plain_number<2>(word, numbers), scale, addend), d, to + 2 * pitch);
    hn::StoreU(hn::MulAdd(plain_number<3>(word, numbers), scale, addend), d, to + 3 * pitch);
    hn::StoreU(hn::MulAdd(plain_number<4>(word, numbers), scale, addend), d, to + 4 * pitch);
    hn::StoreU(hn::MulAdd(plain_number<5>(word, numbers), scale, addend), d, to + 5 * pitch);
    hn::StoreU(hn::MulAdd(plain_number<6>(word, numbers), scale, addend), d, to + 6 * pitch);
    hn::StoreU(hn::MulAdd(plain_number<7>(word, numbers), scale, addend), d, to + 7 * pitch);
  } else {
    const auto* bytes = reinterpret_cast<const std::int8_t*>(from);
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      const Vector q = bytes_to_float(bytes + step * pitch);
      hn::StoreU(hn::MulAdd(q, scale, addend), d, to + step * pitch);
    }
  }
}

template <int kBits>
void unpack_bits(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
                 std::int64_t first, std::int64_t steps, float* to) {
  const Tag d;
  const std::int64_t pitch = static_cast<std::int64_t>(panel.vectors) * kLanes;
  const std::int64_t end = first + steps;
  const Vector numbers = table();
  const bool shifted = has_shifts<kBits>(layout);
  for (std::int64_t k = first; k < end;) {
    const std::int64_t block = k / layout.block();
    const std::int64_t begin = block * layout.block();
    const std::int64_t stop = std::min(end, begin + layout.steps(block));
    const char* values = static_cast<const char*>(packed) + layout.offset(panel, block);
    const char* parameters = values + layout.value_bytes(layout.steps(block)) * pitch;
    for (int v = 0; v < panel.vectors; ++v) {
      const int lane = v * kLanes;
      const Vector scale = hn::LoadU(d, reinterpret_cast<const float*>(parameters) + lane);
      const Vector addend =
          shifted ? hn::Mul(shifts<kBits>(layout, parameters + pitch * 4, lane), scale)
                  : hn::Zero(d);
      for (std::int64_t at = k; at < stop; at += 8) {
        const char* from =
            values + layout.value_bytes(at - begin) * pitch + lane * (kBits == 4 ? 4 : 1);
        unpack_eight<kBits>(from, pitch, numbers, scale, addend, to + (at - first) * pitch + lane);
      }
    }
    k = stop;
  }
}

void unpack(const NBitsLayout& layout, const void* packed, const Panels::Panel& panel,
            std::int64_t first, std::int64_t steps, float* to) {
  if (layout.shape().bits == 4) return unpack_bits<4>(layout, packed, panel, first, steps, to);
  unpack_bits<8>(layout, packed, panel, first, steps, to);
}

}  // namespace

const NBitsKernels& nbits_table() {
  static constexpr NBitsKernels kKernels{spread_rows, thin, unpack};
  return kKernels;
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const NBitsKernels& nbits_kernels(Isa isa) { BP_SELECT_TARGET(isa, nbits_table()); }

}  // namespace backplane::cpu
#endif

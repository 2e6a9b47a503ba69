#include "plugins/cpu/dense/finish_sums.hpp"

#include <algorithm>
#include <cstring>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/finish_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

FinishSums::Function find_finish(int terms, bool floats);
SumBytes find_sum_bytes();

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Tag32 = hn::RebindToSigned<Tag>;
using Vector = hn::Vec<Tag>;
using Vector32 = hn::Vec<Tag32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));

std::int32_t wrapping_add_product(std::int32_t sum, std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) +
                                   static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
}

/// A row of a tile: its numbers of the terms, its residual.
struct Line {
  std::int32_t row[2];
  const float* residual;
};

template <int kTerms, bool kFloats>
void finish_one(const FinishSums& finish, const Line& line, std::int64_t column, void* y) {
  std::int32_t sum = 0;
  std::memcpy(&sum, y, sizeof(sum));
  for (int t = 0; t < kTerms; ++t)
    sum = wrapping_add_product(sum, line.row[t], finish.terms[t].column[column]);
  if (!kFloats) {
    std::memcpy(y, &sum, sizeof(sum));
    return;
  }
  const SumsToFloats& to = finish.to_floats;
  float value = static_cast<float>(sum) * (to.factor * to.scale[column * to.scale_step]);
  if (to.bias != nullptr) value += to.bias[column];
  if (line.residual != nullptr) value += line.residual[column];
  // NaN comes through.
  if (value > to.activation.hi()) value = to.activation.hi();
  if (value < to.activation.lo()) value = to.activation.lo();
  std::memcpy(y, &value, sizeof(value));
}

template <int kTerms, bool kFloats>
HWY_INLINE void finish_vector(const FinishSums& finish, const Line& line, std::int64_t column,
                              void* y) {
  const Tag d;
  const Tag32 d32;
  Vector32 sum = hn::LoadU(d32, static_cast<std::int32_t*>(y));
  for (int t = 0; t < kTerms; ++t) {
    const Vector32 factors = hn::LoadU(d32, finish.terms[t].column + column);
    sum = hn::Add(sum, hn::Mul(hn::Set(d32, line.row[t]), factors));
  }
  if constexpr (!kFloats) {
    hn::StoreU(sum, d32, static_cast<std::int32_t*>(y));
  } else {
    const SumsToFloats& to = finish.to_floats;
    const Vector scale =
        to.scale_step == 0 ? hn::Set(d, *to.scale) : hn::LoadU(d, to.scale + column);
    Vector value = hn::Mul(hn::ConvertTo(d, sum), hn::Mul(hn::Set(d, to.factor), scale));
    if (to.bias != nullptr) value = hn::Add(value, hn::LoadU(d, to.bias + column));
    if (line.residual != nullptr) value = hn::Add(value, hn::LoadU(d, line.residual + column));
    value = at_most(hn::Set(d, to.activation.hi()), value);
    value = at_least(hn::Set(d, to.activation.lo()), value);
    hn::StoreU(value, d, static_cast<float*>(y));
  }
}

template <int kTerms, bool kFloats>
void finish_tile(const FinishSums& finish, const SumTile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const std::int64_t row = tile.row + i;
    Line line{};
    for (int t = 0; t < kTerms; ++t)
      line.row[t] = finish.terms[t].row[row * finish.terms[t].row_step];
    if (kFloats && finish.to_floats.residual != nullptr)
      line.residual = finish.to_floats.residual + row * finish.to_floats.residual_stride;
    char* y = static_cast<char*>(tile.data) + i * tile.stride * 4;
    std::int64_t j = 0;
    for (; j + kLanes <= tile.columns; j += kLanes)
      finish_vector<kTerms, kFloats>(finish, line, tile.column + j, y + j * 4);
    for (; j < tile.columns; ++j)
      finish_one<kTerms, kFloats>(finish, line, tile.column + j, y + j * 4);
  }
}

std::uint32_t sum_of_bytes(const std::uint8_t* x, std::int64_t n, std::uint8_t flip) {
  std::uint64_t total = 0;
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<std::uint8_t> d8;
  const hn::ScalableTag<std::uint64_t> d64;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d8));
  auto sums = hn::Zero(d64);
  const auto flips = hn::Set(d8, flip);
  for (; i + step <= n; i += step)
    sums = hn::Add(sums, hn::SumsOf8(hn::Xor(hn::LoadU(d8, x + i), flips)));
  total = hn::GetLane(hn::SumOfLanes(d64, sums));
#endif
  for (; i < n; ++i) total += static_cast<std::uint8_t>(x[i] ^ flip);
  return static_cast<std::uint32_t>(total);
}

}  // namespace

FinishSums::Function find_finish(int terms, bool floats) {
  if (terms == 0) return floats ? finish_tile<0, true> : nullptr;
  if (terms == 1) return floats ? finish_tile<1, true> : finish_tile<1, false>;
  return floats ? finish_tile<2, true> : finish_tile<2, false>;
}

SumBytes find_sum_bytes() { return sum_of_bytes; }

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <utility>

namespace backplane::cpu {
namespace {

FinishSums::Function finish_function(Isa isa, int terms, bool floats) {
  BP_SELECT_TARGET(isa, find_finish(terms, floats));
}

}  // namespace

SumBytes sum_bytes(Isa isa) { BP_SELECT_TARGET(isa, find_sum_bytes()); }

void FinishSums::choose(Isa isa) {
  if (terms[0].column == nullptr) std::swap(terms[0], terms[1]);
  const int count = (terms[0].column != nullptr ? 1 : 0) + (terms[1].column != nullptr ? 1 : 0);
  function = finish_function(isa, count, floats);
  if (floats) activations = &activation_kernels(isa);
}

void FinishSums::run(const SumTile& tile) const {
  if (function != nullptr) function(*this, tile);
  if (floats && !to_floats.activation.in_registers()) {
    activations->apply(to_floats.activation, static_cast<float*>(tile.data), tile.stride, tile.rows,
                       tile.columns);
  }
}

}  // namespace backplane::cpu
#endif

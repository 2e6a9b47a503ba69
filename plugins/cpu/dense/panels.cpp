#include "plugins/cpu/dense/panels.hpp"

#include <cstring>
#include <memory>

#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/transpose_plain.hpp"

namespace backplane::cpu {
namespace {

float scaled(float number, float scale) { return number * scale; }
uint16_t scaled(uint16_t number, float) { return number; }

/// Rows of as many numbers as a panel has, whose count the compiler knows.
template <int kPitch, class T>
void copy_rows(const T* from, int64_t from_step, int64_t rows, float scale, T* out) {
  for (int64_t k = 0; k < rows; ++k, from += from_step, out += kPitch) {
    if (scale == 1.0f) {
      std::memcpy(out, from, kPitch * sizeof(T));
    } else {
      for (int j = 0; j < kPitch; ++j) out[j] = scaled(from[j], scale);
    }
  }
}

template <class T>
void copy_rows(const T* from, int64_t from_step, const Panels::Panel& panel, int64_t pitch,
               int64_t rows, float scale, T* out) {
  if (panel.width == pitch) {
    if (pitch == 8) return copy_rows<8>(from, from_step, rows, scale, out);
    if (pitch == 16) return copy_rows<16>(from, from_step, rows, scale, out);
    if (pitch == 32) return copy_rows<32>(from, from_step, rows, scale, out);
    if (pitch == 64) return copy_rows<64>(from, from_step, rows, scale, out);
  }
  for (int64_t k = 0; k < rows; ++k, from += from_step, out += pitch) {
    for (int64_t j = 0; j < panel.width; ++j) out[j] = scaled(from[j], scale);
    std::fill(out + panel.width, out + pitch, T{});
  }
}

/// `depth` steps of a panel, each `pitch` numbers, of a matrix whose columns or whose depth lie side by side.
template <class T>
void pack_dense(const WeightView& weights, const T* from, const Panels::Panel& panel, int64_t pitch,
                T* out) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const T* first = from + panel.column * weights.column_stride;
  const int64_t depth = weights.depth;
  if (weights.column_stride == 1)
    return copy_rows(first, weights.depth_stride, panel, pitch, depth, weights.scale, out);
  cpu::transpose_plain(kBytes, reinterpret_cast<const char*>(first), weights.column_stride * kBytes,
                       reinterpret_cast<char*>(out), pitch * kBytes, depth, panel.width);
  if (weights.scale != 1.0f || panel.width != pitch)
    copy_rows<T>(out, pitch, panel, pitch, depth, weights.scale, out);
}

/// A few steps of the depth from `from` on, column by column.
template <class T>
void pack_steps(const WeightView& weights, const T* from, int64_t steps, const Panels::Panel& panel,
                int64_t pitch, T* out) {
  for (int64_t j = 0; j < panel.width; ++j) {
    const int64_t column = panel.column + j;
    const float scale =
        weights.column_scales ? weights.scale * weights.column_scales[column] : weights.scale;
    const T* source = from + column * weights.column_stride;
    for (int64_t k = 0; k < steps; ++k)
      out[k * pitch + j] = scaled(source[k * weights.depth_stride], scale);
  }
  for (int64_t k = 0; k < steps; ++k)
    std::fill(out + k * pitch + panel.width, out + (k + 1) * pitch, T{});
}

template <class T>
void pack(const Panels& panels, const WeightView& weights, const Panels::Panel& panel, T* out) {
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * panels.lanes();
  // A few steps of the depth at a time, so that both sides of a transposition stay in the cache.
  constexpr int64_t kSteps = 16;
  for (int64_t tap = 0; tap < weights.taps; ++tap) {
    const T* from = static_cast<const T*>(weights.data) + tap * weights.tap_stride;
    if (weights.column_scales == nullptr &&
        (weights.column_stride == 1 || weights.depth_stride == 1)) {
      pack_dense(weights, from, panel, pitch, out);
      out += weights.depth * pitch;
      continue;
    }
    for (int64_t k = 0; k < weights.depth; k += kSteps) {
      const int64_t steps = std::min(kSteps, weights.depth - k);
      pack_steps(weights, from + k * weights.depth_stride, steps, panel, pitch, out);
      out += steps * pitch;
    }
  }
}

void pack_panel_pairs(const Panels& panels, const WeightView& weights, sdk::DataType type,
                      const Panels::Panel& panel, Isa isa, uint32_t* packed) {
  const int64_t pitch = static_cast<int64_t>(panel.vectors) * panels.lanes();
  const auto count = static_cast<std::size_t>(weights.taps * weights.depth * pitch);
  const auto halves = std::make_unique_for_overwrite<uint16_t[]>(count);
  if (type != sdk::DataType::Float) pack(panels, weights, panel, halves.get());
  if (type != sdk::DataType::BFloat16) {
    const auto floats = std::make_unique_for_overwrite<float[]>(count);
    const auto numbers = static_cast<int64_t>(count);
    if (type == sdk::DataType::Float) {
      pack(panels, weights, panel, floats.get());
    } else {
      half_conversion(isa, type).to_float(halves.get(), floats.get(), numbers);
    }
    half_conversion(isa, sdk::DataType::BFloat16).from_float(floats.get(), halves.get(), numbers);
  }
  const uint16_t* from = halves.get();
  for (int64_t tap = 0; tap < weights.taps; ++tap) {
    for (int64_t k = 0; k < weights.depth; k += 2, packed += pitch) {
      const bool is_last = k + 1 == weights.depth;
      const uint16_t* next = from + pitch;
      for (int64_t j = 0; j < pitch; ++j)
        packed[j] = from[j] | (is_last ? 0U : uint32_t{next[j]} << 16);
      from += is_last ? pitch : 2 * pitch;
    }
  }
}

}  // namespace

void pack_panel(const Panels& panels, const WeightView& weights, int64_t index, float* packed) {
  const Panels::Panel panel = panels.at(index);
  pack(panels, weights, panel, packed + panel.column * weights.taps * weights.depth);
}

void pack_panel(const Panels& panels, const WeightView& weights, const Panels::Panel& panel,
                float* packed) {
  pack(panels, weights, panel, packed);
}

void pack_panel(const Panels& panels, const WeightView& weights, const Panels::Panel& panel,
                uint16_t* packed) {
  pack(panels, weights, panel, packed);
}

void pack_panels(const Panels& panels, const WeightView& weights, float* packed,
                 const sdk::Threads& threads) {
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    pack(panels, weights, panel, packed + panel.column * weights.taps * weights.depth);
  });
}

void pack_pairs(const Panels& panels, const WeightView& weights, sdk::DataType type, Isa isa,
                uint32_t* packed, const sdk::Threads& threads) {
  const int64_t steps = weights.taps * ((weights.depth + 1) / 2);
  for_each_panel(panels, threads, [&](const Panels::Panel& panel) {
    pack_panel_pairs(panels, weights, type, panel, isa, packed + panel.column * steps);
  });
}

}  // namespace backplane::cpu

// Copies between two strided views of the same dims: transposes, slices, concatenations, broadcasts.
#pragma once

#include <array>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/isa.hpp"
#include "plugins/cpu/kernels/element_mover.hpp"

namespace backplane::cpu {

/// A copy target[i0, i1, ...] = source[i0, i1, ...] between strided views.
///
/// Axes are added from the outermost to the innermost of the target; neighbours that can be walked as one are
/// merged at once. Then `finish` picks the loop. A plain value without memory of its own: it can be built
/// in `prepare`, or on the stack in `compute` when strides come late.
/// Strides of the source may be 0 (broadcast) or negative (reversal); those of the target may not.
class StridedCopy {
 public:
  static constexpr int kMaxAxes = 16;

  StridedCopy() = default;
  /// `isa` is for copies that exchange axes.
  explicit StridedCopy(sdk::DataType type, Isa isa = Isa::kBaseline);

  /// An axis of `dim` elements; strides in elements.
  void axis(std::int64_t dim, std::int64_t source_stride, std::int64_t target_stride);
  /// Where the views start, in elements.
  void offsets(std::int64_t source, std::int64_t target);
  /// After the last axis.
  void finish();

  std::int64_t size() const { return size_; }

  /// Copies from input to output of a node; bits past the end of the target are left alone.
  void run(const sdk::ComputeContext& ctx, std::uint32_t input, std::uint32_t output) const;
  /// Copies strings (elements one by one).
  void run_values(const sdk::Value& source, const sdk::Value& target) const;
  /// Copies bytes or bits.
  void run_memory(const void* source, void* target, const sdk::Threads& threads) const;

 private:
  // Strides in bytes where elements are whole bytes, in elements otherwise.
  struct Axis {
    std::int64_t dim, source, target;
  };
  enum class Loop : std::uint8_t { Rows, Fill, Transpose, Strided };

  void choose_loop();
  void widen_elements();
  void copy_block(const char* source, char* target, std::int64_t row_begin,
                  std::int64_t row_end) const;
  void copy_tasks(const char* source, char* target, std::uint64_t begin, std::uint64_t end) const;
  template <class Visit>
  void each_element(const Visit& visit) const;

  std::array<Axis, kMaxAxes> axes_{};  // outer axes, once finished
  Axis row_{1, 0, 0};                  // the second innermost axis of the chosen loop
  Axis column_{1, 0, 0};               // the innermost axis of the chosen loop
  std::int64_t source_offset_ = 0;
  std::int64_t target_offset_ = 0;
  std::int64_t size_ = 1;  // elements
  std::int64_t unit_ = 1;  // bytes of what is copied at a time; 1 for bits and strings
  std::int64_t tasks_per_block_ = 1;
  std::int64_t rows_per_task_ = 1;
  std::int64_t task_count_ = 1;
  int axis_count_ = 0;
  int bits_ = 0;
  Storage storage_ = Storage::Bytes;
  Loop loop_ = Loop::Rows;
  Isa isa_ = Isa::kBaseline;
};

/// Copies of fewer bytes than this are not worth a second thread.
inline constexpr std::int64_t kParallelBytes = 256 * 1024;

}  // namespace backplane::cpu

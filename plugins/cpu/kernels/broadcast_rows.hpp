// Walking over two operands that broadcast to one output, a row at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {

/// Which operands step along a row; the other one stays at its element.
enum class RowForm { kBoth, kFirst, kSecond };

/// y[r][i] = f(a[r][i], b[r][i]) for r < rows, i < n. Strides are bytes from row to row. `y` may be the
/// same memory as an operand that steps.
struct RowArgs {
  const char* a;
  std::int64_t a_stride;
  const char* b;
  std::int64_t b_stride;
  char* y;
  std::int64_t y_stride;
  std::int64_t rows;
  std::int64_t n;
};
using RowLoop = void (*)(const RowArgs& args);

/// The loops of one function, by RowForm.
struct RowLoops {
  RowLoop by_form[3];
  RowLoop operator[](RowForm form) const { return by_form[static_cast<int>(form)]; }
};

/// A binary function planned for shapes.
///
/// Invariants: immutable after construction; holds no memory of tensors.
class BroadcastRows {
 public:
  /// Bytes of an element of each operand and of the output, and the estimated time of an element.
  struct Elements {
    std::int64_t a_bytes;
    std::int64_t b_bytes;
    std::int64_t y_bytes;
    double ns_each;
  };

  BroadcastRows() = default;
  /// `a` and `b` broadcast to `y`. With `half`, the loops are those of float, and elements of the
  /// operands are converted block by block; the output too if `half_output`.
  BroadcastRows(sdk::DimsView a, sdk::DimsView b, sdk::DimsView y, const Elements& elements,
                const RowLoops& loops, const HalfConversion* half = nullptr,
                bool half_output = false);

  void run(const void* a, const void* b, void* y, const sdk::Threads& threads) const;

 private:
  void run_rows(const RowArgs& base, std::int64_t begin, std::int64_t end) const;
  void run_columns(const RowArgs& base, std::int64_t begin, std::int64_t end,
                   std::int64_t chunk) const;
  void call(const RowArgs& args) const;
  void call_half(const RowArgs& args) const;

  struct Axis {
    std::int64_t dim;
    std::int64_t a_stride;  // bytes
    std::int64_t b_stride;
  };
  std::vector<Axis> outer_;  // all axes but the last two
  RowArgs rows_{};           // one block of rows; its pointers are unused
  Elements elements_{};
  std::int64_t row_count_ = 0;  // over all outer axes
  bool small_ = false;          // one block of rows, not worth a second thread
  RowLoop loop_ = nullptr;
  RowForm form_ = RowForm::kBoth;
  const HalfConversion* half_ = nullptr;
  bool half_output_ = false;
};

}  // namespace backplane::cpu

// Which row of the input each row of the output comes from, where every axis has places of its own.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace backplane::cpu {

/// Rows over some outer axes, added from the outermost to the innermost. An Axis has count(), the places of the
/// output, and place(index), the place of one in the input's axis, or -1 for a row that comes from nowhere.
template <class Axis>
class RowSources {
 public:
  /// `input_dim` is the size of the axis in the input.
  void add(Axis axis, std::int64_t input_dim) {
    for (Outer& outer : axes_) outer.step *= input_dim;
    rows_ *= axis.count();
    axes_.push_back({std::move(axis), 1});
  }

  std::int64_t rows() const { return rows_; }

  /// body(output row, input row or -1) for the output's rows in [begin, end).
  template <class Body>
  void each(std::int64_t begin, std::int64_t end, const Body& body) const {
    if (axes_.empty()) {
      if (begin < end) body(0, 0);
      return;
    }
    const Axis& inner = axes_.back().axis;
    const std::int64_t count = inner.count();
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t base = outer_place(row / count);
      const std::int64_t first = row % count;
      const std::int64_t last = first + (end - row) < count ? first + (end - row) : count;
      for (std::int64_t y = first; y < last; ++y, ++row) {
        const std::int64_t place = inner.place(y);
        body(row, base < 0 || place < 0 ? -1 : base + place);
      }
    }
  }

 private:
  struct Outer {
    Axis axis;
    std::int64_t step;  // rows of the input from one place to the next one
  };

  std::int64_t outer_place(std::int64_t index) const {
    std::int64_t place = 0;
    for (std::size_t a = axes_.size() - 1; a-- > 0;) {
      const Outer& outer = axes_[a];
      const std::int64_t count = outer.axis.count();
      const std::int64_t from = outer.axis.place(index % count);
      if (from < 0) return -1;
      place += from * outer.step;
      index /= count;
    }
    return place;
  }

  std::vector<Outer> axes_;
  std::int64_t rows_ = 1;
};

}  // namespace backplane::cpu

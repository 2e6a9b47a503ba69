// Which row of the input each row of the output comes from, where every axis has its own table.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace backplane::cpu {

/// Rows over some outer axes. Axes are added from the outermost to the innermost; an entry of a table is the
/// place in the input's axis, or -1 for a row that comes from nowhere.
class RowSources {
 public:
  /// `input_dim` is the size of the axis in the input.
  void add(std::vector<std::int64_t> places, std::int64_t input_dim) {
    for (std::vector<std::int64_t>& table : tables_) {
      for (std::int64_t& place : table) place = place < 0 ? place : place * input_dim;
    }
    rows_ *= static_cast<std::int64_t>(places.size());
    tables_.push_back(std::move(places));
  }

  std::int64_t rows() const { return rows_; }

  /// body(output row, input row or -1) for the output's rows in [begin, end).
  template <class Body>
  void each(std::int64_t begin, std::int64_t end, const Body& body) const {
    if (tables_.empty()) {
      if (begin < end) body(0, 0);
      return;
    }
    const std::vector<std::int64_t>& inner = tables_.back();
    const auto count = static_cast<std::int64_t>(inner.size());
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t base = outer_place(row / count);
      const std::int64_t first = row % count;
      const std::int64_t last = first + (end - row) < count ? first + (end - row) : count;
      for (std::int64_t y = first; y < last; ++y, ++row) {
        const std::int64_t place = inner[static_cast<std::size_t>(y)];
        body(row, base < 0 || place < 0 ? -1 : base + place);
      }
    }
  }

 private:
  std::int64_t outer_place(std::int64_t index) const {
    std::int64_t place = 0;
    for (std::size_t a = tables_.size() - 1; a-- > 0;) {
      const auto count = static_cast<std::int64_t>(tables_[a].size());
      const std::int64_t from = tables_[a][static_cast<std::size_t>(index % count)];
      if (from < 0) return -1;
      place += from;
      index /= count;
    }
    return place;
  }

  std::vector<std::vector<std::int64_t>> tables_;
  std::int64_t rows_ = 1;
};

}  // namespace backplane::cpu

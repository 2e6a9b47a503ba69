#include "plugins/common/device_ops/einsum_layout.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace backplane::device_ops {
namespace {

using Step = std::int64_t EinsumAxis::*;

/// Launches of a batch beyond which its operands are copied, so that it is one.
constexpr std::int64_t kMostLaunches = 8;
/// Rows or columns that are enough for a product of their own, and few enough that it does not matter.
constexpr std::int64_t kEnoughLines = 16, kFewLines = 256;

std::int64_t total(const EinsumAxes& axes) {
  std::int64_t count = 1;
  for (const EinsumAxis& axis : axes) count *= axis.dim;
  return count;
}

/// How many of the last axes can be walked as one, by each of the steps.
std::size_t walked_as_one(const EinsumAxes& axes, std::initializer_list<Step> steps) {
  std::size_t count = std::min<std::size_t>(1, axes.size());
  for (; count < axes.size(); ++count) {
    const EinsumAxis& outer = axes[axes.size() - count - 1];
    const EinsumAxis& inner = axes[axes.size() - count];
    const auto fits = [&](Step step) { return outer.*step == inner.*step * inner.dim; };
    if (!std::all_of(steps.begin(), steps.end(), fits)) break;
  }
  return count;
}

bool is_one(const EinsumAxes& axes, Step step) {
  return walked_as_one(axes, {step}) == axes.size();
}

std::int64_t step_of(const EinsumAxes& axes, Step step) {
  return axes.empty() ? 1 : axes.back().*step;
}

void sort_by(EinsumAxes& axes, Step step) {
  std::stable_sort(axes.begin(), axes.end(),
                   [step](const EinsumAxis& x, const EinsumAxis& y) { return x.*step > y.*step; });
}

/// Axes that cannot be walked together with the last ones become part of the batch, where these are enough for a product.
void move_to_batch(EinsumAxes& axes, EinsumAxes& batch, std::initializer_list<Step> steps) {
  const auto split = axes.end() - static_cast<std::ptrdiff_t>(walked_as_one(axes, steps));
  if (total(EinsumAxes(split, axes.end())) < kEnoughLines && total(axes) >= kFewLines) return;
  batch.insert(batch.end(), axes.begin(), split);
  axes.erase(axes.begin(), split);
}

/// Steps of a dense tensor of these groups; `has_all`: also of the axes that it is the same along.
void set_dense(std::initializer_list<EinsumAxes*> groups, Step step, bool has_all) {
  std::vector<EinsumAxis*> axes;
  for (EinsumAxes* group : groups) {
    for (EinsumAxis& axis : *group) {
      if (has_all || axis.*step != 0) axes.push_back(&axis);
    }
  }
  std::int64_t dense = 1;
  for (std::size_t i = axes.size(); i-- > 0; dense *= axes[i]->dim) axes[i]->*step = dense;
}

/// The axes of a batch, merged, the longest last.
common::StridedLoops merged(EinsumAxes batch) {
  sort_by(batch, &EinsumAxis::y);
  common::StridedLoops loops;
  loops.strides.resize(3);
  for (const EinsumAxis& axis : batch) {
    loops.dims.push_back(axis.dim);
    loops.strides[0].push_back(axis.a);
    loops.strides[1].push_back(axis.b);
    loops.strides[2].push_back(axis.y);
  }
  loops = common::merge_axes(loops);
  for (std::size_t end = loops.dims.size(); end > 1; --end) {
    const auto first = loops.dims.begin();
    const auto longest = std::max_element(first, first + static_cast<std::ptrdiff_t>(end));
    const auto place = static_cast<std::size_t>(longest - first);
    std::swap(loops.dims[place], loops.dims[end - 1]);
    for (Dims& strides : loops.strides) std::swap(strides[place], strides[end - 1]);
  }
  return loops;
}

}  // namespace

std::int64_t launch_count(const common::StridedLoops& batch, std::size_t in_launch) {
  std::int64_t launches = 1;
  for (std::size_t axis = 0; axis + in_launch < batch.dims.size(); ++axis)
    launches *= batch.dims[axis];
  return launches;
}

void EinsumMatrices::add(const EinsumAxis& axis, bool is_kept) {
  if (axis.a == 0 && axis.b == 0) return;
  if (!is_kept) {
    depth.push_back(axis);
  } else if (axis.a != 0 && axis.b != 0) {
    batch.push_back(axis);
  } else {
    (axis.a != 0 ? rows : columns).push_back(axis);
  }
}

void EinsumMatrices::swap() {
  std::swap(rows, columns);
  for (EinsumAxes* group : {&batch, &rows, &columns, &depth}) {
    for (EinsumAxis& axis : *group) std::swap(axis.a, axis.b);
  }
}

bool EinsumMatrices::wants_swap(const EinsumTarget& target, DataType type, bool is_free) const {
  if (rows.empty() && columns.empty()) return false;
  const bool is_row = rows.empty(), is_column = columns.empty();
  if (!is_row && !is_column) return !is_free && rows.back().y == 1;
  const EinsumAxes& lines = is_row ? columns : rows;
  bool lie_together = false;
  for (const EinsumAxis& axis : lines) lie_together = lie_together || axis.a + axis.b == 1;
  const bool may_be_row = is_free || lines.back().y == 1;
  return is_row != (may_be_row && target.wants_lone_row(type, lie_together));
}

std::int64_t EinsumMatrices::results() const { return total(batch) * total(rows) * total(columns); }

EinsumLayout EinsumLayout::of(const EinsumMatrices& matrices, const EinsumTarget& target,
                              EinsumProduct product, const Given& given) {
  EinsumLayout layout = arranged(matrices, target, product, given, false);
  layout.set_steps(product);
  if (launch_count(product.batch, target.batch_axes(product.type)) <= kMostLaunches) return layout;
  return arranged(matrices, target, product, given, true);
}

void EinsumLayout::place_result(const Given& given, bool is_dense) {
  EinsumMatrices& m = matrices;
  copies_y = given.copies_y || (!m.columns.empty() && m.columns.back().y != 1);
  if (given.y_is_free) copies_y = false;
  const bool is_bound = !given.y_is_free && !copies_y;
  if (!is_bound) {
    sort_by(m.rows, &EinsumAxis::a);
    sort_by(m.columns, &EinsumAxis::b);
  }
  if (!is_dense && is_bound) {
    move_to_batch(m.rows, m.batch, {&EinsumAxis::a, &EinsumAxis::y});
    move_to_batch(m.columns, m.batch, {&EinsumAxis::b, &EinsumAxis::y});
  } else if (!is_dense) {
    move_to_batch(m.rows, m.batch, {&EinsumAxis::a});
    move_to_batch(m.columns, m.batch, {&EinsumAxis::b});
  }
  if (is_bound) {
    copies_y = !is_one(m.rows, &EinsumAxis::y) || !is_one(m.columns, &EinsumAxis::y) ||
               (is_dense && !is_one(m.batch, &EinsumAxis::y));
  }
  if (copies_y || given.y_is_free) set_dense({&m.batch, &m.rows, &m.columns}, &EinsumAxis::y, true);
}

void EinsumLayout::place_operands(const Given& given, bool is_dense) {
  EinsumMatrices& m = matrices;
  sort_by(m.depth, &EinsumAxis::a);
  if (!is_one(m.depth, &EinsumAxis::a) || !is_one(m.depth, &EinsumAxis::b)) {
    sort_by(m.depth, &EinsumAxis::b);
    if (!is_one(m.depth, &EinsumAxis::b)) sort_by(m.depth, &EinsumAxis::a);
  }
  const auto scatters = [&](const EinsumAxes& lines, Step step) {
    return !is_one(lines, step) || !is_one(m.depth, step) || (is_dense && !is_one(m.batch, step));
  };
  copies_a = given.copies_a || scatters(m.rows, &EinsumAxis::a);
  copies_b = given.copies_b || scatters(m.columns, &EinsumAxis::b);
}

EinsumLayout EinsumLayout::arranged(const EinsumMatrices& matrices, const EinsumTarget& target,
                                    EinsumProduct product, const Given& given, bool is_dense) {
  EinsumLayout layout;
  layout.matrices = matrices;
  EinsumMatrices& m = layout.matrices;
  layout.place_result(given, is_dense);
  layout.place_operands(given, is_dense);
  product.a = given.a;
  product.b = given.b;
  layout.set_steps(product);
  layout.copies_a = layout.copies_a || !target.reads_a(product);
  layout.copies_b = layout.copies_b || !target.reads_b(product);
  if (layout.copies_a)
    set_dense({&m.batch, &m.rows, &m.depth}, &EinsumAxis::a,
              is_dense && !is_one(m.batch, &EinsumAxis::a));
  if (layout.copies_b)
    set_dense({&m.batch, &m.depth, &m.columns}, &EinsumAxis::b,
              is_dense && !is_one(m.batch, &EinsumAxis::b));
  return layout;
}

void EinsumLayout::set_steps(EinsumProduct& product) const {
  const EinsumMatrices& m = matrices;
  product.rows = total(m.rows);
  product.columns = total(m.columns);
  product.depth = total(m.depth);
  product.a_row = step_of(m.rows, &EinsumAxis::a);
  product.a_depth = step_of(m.depth, &EinsumAxis::a);
  product.b_depth = step_of(m.depth, &EinsumAxis::b);
  product.b_column = step_of(m.columns, &EinsumAxis::b);
  product.y_row = m.rows.empty() ? product.columns : step_of(m.rows, &EinsumAxis::y);
  product.batch = merged(m.batch);
}

}  // namespace backplane::device_ops

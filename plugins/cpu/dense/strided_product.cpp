#include "plugins/cpu/dense/strided_product.hpp"

#include <algorithm>

#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using AxisStep = std::int64_t ProductAxis::*;

constexpr AxisStep kStepA = &ProductAxis::a, kStepB = &ProductAxis::b, kStepY = &ProductAxis::y;
/// Products of fewer multiplications, or with fewer results, cost more in calls and packing than plain loops do.
constexpr std::int64_t kLeastWork = 256;
constexpr std::int64_t kLeastResults = 16;
/// Rows or columns that are enough for a product of their own.
constexpr std::int64_t kEnoughLines = 16;

std::int64_t element_total(const ProductAxes& axes) {
  std::int64_t count = 1;
  for (const ProductAxis& axis : axes) count *= axis.dim;
  return count;
}

/// How many of the last axes can be walked as one, by each of the steps.
std::size_t walked_as_one(const ProductAxes& axes, std::initializer_list<AxisStep> steps) {
  std::size_t count = std::min<std::size_t>(1, axes.size());
  for (; count < axes.size(); ++count) {
    const ProductAxis& outer = axes[axes.size() - count - 1];
    const ProductAxis& inner = axes[axes.size() - count];
    const auto fits = [&](AxisStep step) { return outer.*step == inner.*step * inner.dim; };
    if (!std::all_of(steps.begin(), steps.end(), fits)) break;
  }
  return count;
}

bool is_one(const ProductAxes& axes, AxisStep step) {
  return walked_as_one(axes, {step}) == axes.size();
}

/// The step of axes that are walked as one; 1 where there are none.
std::int64_t step_of(const ProductAxes& axes, AxisStep step) {
  return axes.empty() ? 1 : axes.back().*step;
}

/// Axes that cannot be walked together with the last ones become products of their own, where these are long enough.
void move_to_batch(ProductAxes& axes, ProductAxes& batch, std::initializer_list<AxisStep> steps) {
  const std::size_t count = walked_as_one(axes, steps);
  const auto split = axes.end() - static_cast<std::ptrdiff_t>(count);
  if (element_total(ProductAxes(split, axes.end())) < kEnoughLines) return;
  batch.insert(batch.end(), axes.begin(), split);
  axes.erase(axes.begin(), split);
}

void sort_by(ProductAxes& axes, AxisStep step) {
  std::stable_sort(axes.begin(), axes.end(), [step](const ProductAxis& x, const ProductAxis& y) {
    return x.*step > y.*step;
  });
}

/// The copy of one tensor between its own steps and dense ones in the order of `groups`, which take the place of its own;
/// `gather`: from its own to the dense ones.
StridedCopy dense_copy(std::initializer_list<ProductAxes*> groups, AxisStep step, bool gather,
                       Isa isa) {
  std::vector<ProductAxis*> axes;
  for (ProductAxes* group : groups) {
    for (ProductAxis& axis : *group) {
      if (axis.*step != 0) axes.push_back(&axis);
    }
  }
  std::vector<std::int64_t> own;
  std::int64_t dense = 1;
  for (std::size_t i = axes.size(); i-- > 0; dense *= axes[i]->dim) {
    own.push_back(axes[i]->*step);
    axes[i]->*step = dense;
  }
  std::reverse(own.begin(), own.end());
  // A copy goes through its target in order.
  std::vector<std::size_t> order(axes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!gather)
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t x, std::size_t y) { return own[x] > own[y]; });
  StridedCopy copy(sdk::DataType::Float, isa);
  for (const std::size_t i : order) {
    const std::int64_t step_dense = axes[i]->*step;
    copy.axis(axes[i]->dim, gather ? own[i] : step_dense, gather ? step_dense : own[i]);
  }
  copy.finish();
  return copy;
}

}  // namespace

std::uint64_t StridedProduct::Copy::bytes() const {
  return needed ? align64(static_cast<std::uint64_t>(copy.size()) * sizeof(float)) : 0;
}

bool StridedProduct::classify(const ProductAxes& axes, Classes& classes) {
  for (const ProductAxis& axis : axes) {
    if (axis.dim == 1) continue;
    const bool in_a = axis.a != 0, in_b = axis.b != 0;
    if (axis.y == 0) {
      if (!in_a || !in_b) return false;
      classes.depth.push_back(axis);
    } else if (in_a && in_b) {
      classes.batch.push_back(axis);
    } else {
      (in_a ? classes.rows : classes.columns).push_back(axis);
    }
  }
  return true;
}

std::optional<StridedProduct> StridedProduct::make(ProductAxes axes, Isa isa, unsigned threads) {
  Classes classes;
  if (axes.size() > StridedCopy::kMaxAxes || !classify(axes, classes)) return std::nullopt;
  const std::int64_t results = element_total(classes.rows) * element_total(classes.columns);
  if (results < kLeastResults || results * element_total(classes.depth) < kLeastWork)
    return std::nullopt;
  // The result's columns should lie side by side.
  const bool swapped =
      !classes.columns.empty() && !classes.rows.empty() && classes.rows.back().y == 1;
  if (swapped) {
    classes = {};
    for (ProductAxis& axis : axes) std::swap(axis.a, axis.b);
    classify(axes, classes);
  }
  return StridedProduct(std::move(classes), swapped, isa, threads);
}

StridedProduct::StridedProduct(Classes classes, bool swapped, Isa isa, unsigned threads)
    : swapped_(swapped) {
  copy_operands(classes, isa);
  MatMulShape shape;
  shape.rows = element_total(classes.rows);
  shape.columns = element_total(classes.columns);
  shape.depth = element_total(classes.depth);
  shape.batch = element_total(classes.batch);
  shape.b_depth_stride = step_of(classes.depth, kStepB);
  shape.b_column_stride = step_of(classes.columns, kStepB);
  list_products(classes.batch);
  shape.shared_b = std::all_of(b_offsets_.begin(), b_offsets_.end(),
                               [](std::int64_t offset) { return offset == 0; });
  a_stride_ = step_of(classes.rows, kStepA);
  y_stride_ = step_of(classes.rows, kStepY);
  product_.emplace(shape, false, Activation{}, isa, threads);
}

// Chooses the copies, and gives the axes the steps in them.
void StridedProduct::copy_operands(Classes& classes, Isa isa) {
  y_.needed = !classes.columns.empty() && classes.columns.back().y != 1;
  if (!y_.needed) {
    move_to_batch(classes.rows, classes.batch, {kStepA, kStepY});
    move_to_batch(classes.columns, classes.batch, {kStepB, kStepY});
    y_.needed = !is_one(classes.rows, kStepY) || !is_one(classes.columns, kStepY);
  }
  const auto a_fits = [&] {
    return is_one(classes.rows, kStepA) && is_one(classes.depth, kStepA) &&
           step_of(classes.depth, kStepA) == 1;
  };
  sort_by(classes.depth, kStepA);
  if (!a_fits()) {
    sort_by(classes.depth, kStepB);
    a_.needed = true;
    a_.copy = dense_copy({&classes.batch, &classes.rows, &classes.depth}, kStepA, true, isa);
  }
  b_.needed = !is_one(classes.columns, kStepB) || !is_one(classes.depth, kStepB);
  if (b_.needed)
    b_.copy = dense_copy({&classes.batch, &classes.depth, &classes.columns}, kStepB, true, isa);
  if (y_.needed)
    y_.copy = dense_copy({&classes.batch, &classes.rows, &classes.columns}, kStepY, false, isa);
}

void StridedProduct::list_products(const ProductAxes& batch) {
  a_offsets_ = b_offsets_ = y_offsets_ = {0};
  const auto add = [](std::vector<std::int64_t>& offsets, std::int64_t dim, std::int64_t step) {
    const std::vector<std::int64_t> before = std::move(offsets);
    offsets.clear();
    for (const std::int64_t offset : before) {
      for (std::int64_t i = 0; i < dim; ++i) offsets.push_back(offset + i * step);
    }
  };
  for (const ProductAxis& axis : batch) {
    add(a_offsets_, axis.dim, axis.a);
    add(b_offsets_, axis.dim, axis.b);
    add(y_offsets_, axis.dim, axis.y);
  }
}

std::uint64_t StridedProduct::workspace_bytes() const {
  return a_.bytes() + b_.bytes() + y_.bytes() + product_->workspace_bytes(false);
}

void StridedProduct::run(const float* a, const float* b, float* y, void* workspace,
                         const sdk::Threads& threads) const {
  if (swapped_) std::swap(a, b);
  auto* memory = static_cast<char*>(workspace);
  const auto take = [&](const Copy& copy) {
    auto* taken = reinterpret_cast<float*>(memory);
    memory += copy.bytes();
    return taken;
  };
  const auto gather = [&](const Copy& copy, const float* source) -> const float* {
    if (!copy.needed) return source;
    float* target = take(copy);
    copy.copy.run_memory(source, target, threads);
    return target;
  };
  MatMulArgs args;
  args.a = gather(a_, a);
  args.a_stride = a_stride_;
  args.a_offsets = a_offsets_.data();
  args.b = gather(b_, b);
  args.b_offsets = b_offsets_.data();
  args.y = y_.needed ? take(y_) : y;
  args.y_stride = y_stride_;
  args.y_offsets = y_offsets_.data();
  product_->run(args, memory, threads);
  if (y_.needed) y_.copy.run_memory(args.y, y, threads);
}

}  // namespace backplane::cpu

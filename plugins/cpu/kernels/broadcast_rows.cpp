#include "plugins/cpu/kernels/broadcast_rows.hpp"

#include <algorithm>

#include "plugins/common/broadcast.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {

BroadcastRows::BroadcastRows(sdk::DimsView a, sdk::DimsView b, sdk::DimsView y,
                             const Elements& elements, const RowLoops& loops,
                             const HalfConversion* half, bool half_output)
    : elements_(elements), half_(half), half_output_(half_output) {
  common::BroadcastLoops plan = common::plan_broadcast(y, {a, b});
  if (plan.dims.back() != 1 && plan.strides[0].back() == 0 && plan.strides[1].back() == 0) {
    // The output is larger than what both operands broadcast to: rows of one element.
    plan.dims.push_back(1);
    for (sdk::Dims& strides : plan.strides) strides.push_back(0);
  }
  const std::size_t rank = plan.dims.size();
  const std::size_t last = rank - 1;
  const bool a_steps = plan.strides[0][last] != 0;
  const bool b_steps = plan.strides[1][last] != 0;
  form_ = a_steps == b_steps ? RowForm::kBoth : (a_steps ? RowForm::kFirst : RowForm::kSecond);
  loop_ = loops[form_];
  rows_.n = plan.dims[last];
  rows_.rows = 1;
  rows_.y_stride = rows_.n * elements.y_bytes;
  row_count_ = 1;
  if (rank > 1) {
    rows_.rows = plan.dims[last - 1];
    rows_.a_stride = plan.strides[0][last - 1] * elements.a_bytes;
    rows_.b_stride = plan.strides[1][last - 1] * elements.b_bytes;
  }
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) {
    outer_.push_back({plan.dims[axis], plan.strides[0][axis] * elements.a_bytes,
                      plan.strides[1][axis] * elements.b_bytes});
    row_count_ *= plan.dims[axis];
  }
  row_count_ *= rows_.rows;
  const double elements_all = static_cast<double>(rows_.n) * static_cast<double>(row_count_);
  small_ = outer_.empty() && elements_all > 0 && elements_all * elements.ns_each < kParallelNs;
}

void BroadcastRows::run(const void* a, const void* b, void* y, const sdk::Threads& threads) const {
  RowArgs base = rows_;
  base.a = static_cast<const char*>(a);
  base.b = static_cast<const char*>(b);
  base.y = static_cast<char*>(y);
  if (small_) {  // the way of tiny tensors: a few nanoseconds
    call(base);
    return;
  }
  const double ns_row = elements_.ns_each * static_cast<double>(rows_.n);
  const double ns_all = ns_row * static_cast<double>(row_count_);
  if (ns_all < kParallelNs) {
    if (ns_all > 0) run_rows(base, 0, row_count_);
    return;
  }
  constexpr std::int64_t kFewRows = 32;
  if (row_count_ >= kFewRows) {
    split_loop(threads, row_count_, ns_row, 1,
               [&](std::int64_t begin, std::int64_t end) { run_rows(base, begin, end); });
    return;
  }
  constexpr std::int64_t kChunk = 8192;
  const std::int64_t chunks = (rows_.n + kChunk - 1) / kChunk;
  split_loop(threads, row_count_ * chunks, ns_row / static_cast<double>(chunks), 1,
             [&](std::int64_t begin, std::int64_t end) { run_columns(base, begin, end, kChunk); });
}

/// Rows [begin, end), counted over all outer axes.
void BroadcastRows::run_rows(const RowArgs& base, std::int64_t begin, std::int64_t end) const {
  if (outer_.empty() && begin == 0 && end == base.rows) {
    call(base);
    return;
  }
  while (begin < end) {
    std::int64_t block = begin / base.rows;
    const std::int64_t first = begin - block * base.rows;
    RowArgs args = base;
    args.rows = std::min(base.rows - first, end - begin);
    args.y += begin * base.y_stride;
    args.a += first * base.a_stride;
    args.b += first * base.b_stride;
    for (std::size_t axis = outer_.size(); axis-- > 0;) {
      const std::int64_t index = block % outer_[axis].dim;
      block /= outer_[axis].dim;
      args.a += index * outer_[axis].a_stride;
      args.b += index * outer_[axis].b_stride;
    }
    call(args);
    begin += args.rows;
  }
}

/// Parts [begin, end) of rows that are cut into chunks of `chunk` elements.
void BroadcastRows::run_columns(const RowArgs& base, std::int64_t begin, std::int64_t end,
                                std::int64_t chunk) const {
  const std::int64_t chunks = (base.n + chunk - 1) / chunk;
  for (std::int64_t part = begin; part < end; ++part) {
    std::int64_t block = part / chunks / base.rows;
    const std::int64_t row = part / chunks % base.rows;
    const std::int64_t from = part % chunks * chunk;
    RowArgs args = base;
    args.rows = 1;
    args.n = std::min(chunk, base.n - from);
    args.y += part / chunks * base.y_stride + from * elements_.y_bytes;
    args.a += row * base.a_stride;
    args.b += row * base.b_stride;
    if (form_ != RowForm::kSecond) args.a += from * elements_.a_bytes;
    if (form_ != RowForm::kFirst) args.b += from * elements_.b_bytes;
    for (std::size_t axis = outer_.size(); axis-- > 0;) {
      const std::int64_t index = block % outer_[axis].dim;
      block /= outer_[axis].dim;
      args.a += index * outer_[axis].a_stride;
      args.b += index * outer_[axis].b_stride;
    }
    call(args);
  }
}

void BroadcastRows::call(const RowArgs& args) const {
  if (half_ == nullptr) {
    loop_(args);
  } else {
    call_half(args);
  }
}

void BroadcastRows::call_half(const RowArgs& args) const {
  constexpr std::int64_t kBlock = 512;
  alignas(64) float a[kBlock];
  alignas(64) float b[kBlock];
  alignas(64) float y[kBlock];
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const char* a_row = args.a + row * args.a_stride;
    const char* b_row = args.b + row * args.b_stride;
    char* y_row = args.y + row * args.y_stride;
    for (std::int64_t begin = 0; begin < args.n; begin += kBlock) {
      const std::int64_t n = std::min(kBlock, args.n - begin);
      const bool a_steps = form_ != RowForm::kSecond;
      const bool b_steps = form_ != RowForm::kFirst;
      half_->to_float(a_row + (a_steps ? begin * 2 : 0), a, a_steps ? n : 1);
      half_->to_float(b_row + (b_steps ? begin * 2 : 0), b, b_steps ? n : 1);
      RowArgs block{};
      block.a = reinterpret_cast<const char*>(a);
      block.b = reinterpret_cast<const char*>(b);
      block.y = half_output_ ? reinterpret_cast<char*>(y) : y_row + begin * elements_.y_bytes;
      block.rows = 1;
      block.n = n;
      loop_(block);
      if (half_output_) half_->from_float(y, y_row + begin * 2, n);
    }
  }
}

}  // namespace backplane::cpu

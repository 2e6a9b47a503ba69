#include "plugins/cpu/kernels/strided_copy.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "plugins/cpu/kernels/transpose_tile.hpp"
#include "plugins/cpu/kernels/unit.hpp"

namespace backplane::cpu {
namespace {

constexpr std::int64_t kTaskBytes = 64 * 1024;
constexpr std::int64_t kLineBytes = 64;  // what tasks of a transposition read of a row at least

template <class T>
void fill_row(const char* source, char* target, std::int64_t count) {
  constexpr std::int64_t kMany = 64 / sizeof(T);  // what vectors store at once
  std::array<T, kMany> many;
  std::memcpy(many.data(), source, sizeof(T));
  std::fill(many.begin() + 1, many.end(), many[0]);
  std::int64_t i = 0;
  for (; i + kMany <= count; i += kMany)
    std::memcpy(target + i * sizeof(T), many.data(), sizeof(many));
  for (; i < count; ++i) std::memcpy(target + i * sizeof(T), many.data(), sizeof(T));
}

template <class T>
void strided_row(const char* source, std::int64_t source_step, char* target,
                 std::int64_t target_step, std::int64_t count) {
  // A loop of so few instructions takes twice the time where it lies across two lines of the cache.
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, source + i * source_step, sizeof(T));
    std::memcpy(target + i * target_step, &value, sizeof(T));
  }
}

}  // namespace

StridedCopy::StridedCopy(sdk::DataType type, Isa isa)
    : bits_(sdk::element_bits(type)), storage_(storage_of(type)), isa_(isa) {
  require_storable(type);
  if (storage_ == Storage::Bytes) unit_ = sdk::element_bytes(type);
}

void StridedCopy::axis(std::int64_t dim, std::int64_t source_stride, std::int64_t target_stride) {
  size_ *= dim;
  if (dim == 1) return;
  const Axis next{dim, source_stride * unit_, target_stride * unit_};
  if (axis_count_ > 0) {
    Axis& last = axes_[static_cast<std::size_t>(axis_count_ - 1)];
    if (last.source == next.source * dim && last.target == next.target * dim) {
      last = Axis{last.dim * dim, next.source, next.target};
      return;
    }
  }
  if (axis_count_ == kMaxAxes)
    sdk::unsupported("a copy over more than ", kMaxAxes, " separate axes");
  axes_[static_cast<std::size_t>(axis_count_++)] = next;
}

void StridedCopy::offsets(std::int64_t source, std::int64_t target) {
  source_offset_ = source * unit_;
  target_offset_ = target * unit_;
}

void StridedCopy::finish() {
  if (size_ == 0 || storage_ != Storage::Bytes) return;
  widen_elements();
  choose_loop();
  const std::int64_t row_bytes = std::max<std::int64_t>(1, column_.dim * unit_);
  rows_per_task_ = std::clamp<std::int64_t>(kTaskBytes / row_bytes, 1, row_.dim);
  if (loop_ == Loop::Transpose) {
    const std::int64_t line = std::max<std::int64_t>(1, kLineBytes / unit_);
    rows_per_task_ = std::min(row_.dim, (rows_per_task_ + line - 1) / line * line);
  }
  tasks_per_block_ = (row_.dim + rows_per_task_ - 1) / rows_per_task_;
  task_count_ = tasks_per_block_;
  for (int i = 0; i < axis_count_; ++i) task_count_ *= axes_[static_cast<std::size_t>(i)].dim;
}

// A run of a few elements is copied as one wider element: half the work for pairs of floats.
void StridedCopy::widen_elements() {
  if (axis_count_ == 0) return;
  const Axis& last = axes_[static_cast<std::size_t>(axis_count_ - 1)];
  const std::int64_t run = last.dim * unit_;
  if (last.source != unit_ || last.target != unit_ || axis_count_ < 2) return;
  if (run != 2 && run != 4 && run != 8 && run != 16) return;
  unit_ = run;
  --axis_count_;
}

void StridedCopy::choose_loop() {
  if (axis_count_ == 0) {
    column_ = {1, unit_, unit_};
    loop_ = Loop::Rows;
    return;
  }
  column_ = axes_[static_cast<std::size_t>(--axis_count_)];
  if (column_.source == unit_ && column_.target == unit_) {
    loop_ = Loop::Rows;
  } else if (column_.source == 0 && column_.target == unit_) {
    loop_ = Loop::Fill;
  } else {
    loop_ = Loop::Strided;
  }
  // One long run is cut into rows, so that threads can share it.
  if (axis_count_ == 0 && column_.dim * unit_ > 2 * kTaskBytes && column_.dim % 64 == 0 &&
      loop_ != Loop::Strided) {
    const std::int64_t rows = 64;
    const std::int64_t dim = column_.dim / rows;
    row_ = {rows, column_.source * dim, column_.target * dim};
    column_.dim = dim;
    return;
  }
  int row = axis_count_ - 1;
  if (loop_ == Loop::Strided && column_.target == unit_ && column_.source > unit_) {
    for (int i = axis_count_ - 1; i >= 0; --i) {
      const Axis& candidate = axes_[static_cast<std::size_t>(i)];
      if (candidate.source == unit_ && candidate.dim >= 2 && column_.dim >= 2) {
        loop_ = Loop::Transpose;
        row = i;
        break;
      }
    }
  }
  if (row < 0) return;
  row_ = axes_[static_cast<std::size_t>(row)];
  --axis_count_;
  for (auto i = static_cast<std::size_t>(row); i < static_cast<std::size_t>(axis_count_); ++i)
    axes_[i] = axes_[i + 1];
}

void StridedCopy::copy_block(const char* source, char* target, std::int64_t row_begin,
                             std::int64_t row_end) const {
  const char* from = source + row_begin * row_.source;
  char* to = target + row_begin * row_.target;
  const std::int64_t rows = row_end - row_begin;
  switch (loop_) {
    case Loop::Rows: {
      const auto bytes = static_cast<std::size_t>(column_.dim * unit_);
      for (std::int64_t r = 0; r < rows; ++r, from += row_.source, to += row_.target)
        std::memcpy(to, from, bytes);
      return;
    }
    case Loop::Fill:
      return with_unit(unit_, [&](auto type) {
        for (std::int64_t r = 0; r < rows; ++r) {
          fill_row<decltype(type)>(from + r * row_.source, to + r * row_.target, column_.dim);
        }
      });
    case Loop::Transpose:
      return transpose_tile(isa_, unit_, from, column_.source, to, row_.target, rows, column_.dim);
    case Loop::Strided:
      return with_unit(unit_, [&](auto type) {
        for (std::int64_t r = 0; r < rows; ++r) {
          strided_row<decltype(type)>(from + r * row_.source, column_.source, to + r * row_.target,
                                      column_.target, column_.dim);
        }
      });
  }
}

void StridedCopy::copy_tasks(const char* source, char* target, std::uint64_t begin,
                             std::uint64_t end) const {
  const auto per_block = static_cast<std::uint64_t>(tasks_per_block_);
  std::int64_t part = static_cast<std::int64_t>(begin % per_block);
  std::array<std::int64_t, kMaxAxes> index{};
  std::uint64_t rest = begin / per_block;
  for (int i = axis_count_ - 1; i >= 0; --i) {
    const Axis& axis = axes_[static_cast<std::size_t>(i)];
    const auto dim = static_cast<std::uint64_t>(axis.dim);
    const auto at = static_cast<std::int64_t>(rest % dim);
    rest /= dim;
    index[static_cast<std::size_t>(i)] = at;
    source += at * axis.source;
    target += at * axis.target;
  }
  while (begin < end) {
    const std::int64_t parts =
        std::min(static_cast<std::int64_t>(end - begin), tasks_per_block_ - part);
    const std::int64_t row = part * rows_per_task_;
    copy_block(source, target, row, std::min(row + parts * rows_per_task_, row_.dim));
    begin += static_cast<std::uint64_t>(parts);
    part = 0;
    for (int i = axis_count_ - 1; i >= 0; --i) {
      const Axis& axis = axes_[static_cast<std::size_t>(i)];
      source += axis.source;
      target += axis.target;
      if (++index[static_cast<std::size_t>(i)] < axis.dim) break;
      index[static_cast<std::size_t>(i)] = 0;
      source -= axis.source * axis.dim;
      target -= axis.target * axis.dim;
    }
  }
}

template <class Visit>
void StridedCopy::each_element(const Visit& visit) const {
  std::array<std::int64_t, kMaxAxes> index{};
  std::int64_t source = source_offset_;
  std::int64_t target = target_offset_;
  for (std::int64_t n = 0; n < size_; ++n) {
    visit(source, target);
    for (int i = axis_count_ - 1; i >= 0; --i) {
      const Axis& axis = axes_[static_cast<std::size_t>(i)];
      source += axis.source;
      target += axis.target;
      if (++index[static_cast<std::size_t>(i)] < axis.dim) break;
      index[static_cast<std::size_t>(i)] = 0;
      source -= axis.source * axis.dim;
      target -= axis.target * axis.dim;
    }
  }
}

void StridedCopy::run_values(const sdk::Value& source, const sdk::Value& target) const {
  each_element([&](std::int64_t from, std::int64_t to) {
    target.set_string(static_cast<std::uint64_t>(to),
                      source.string_at(static_cast<std::uint64_t>(from)));
  });
}

void StridedCopy::run_memory(const void* source, void* target, const sdk::Threads& threads) const {
  if (size_ == 0) return;
  if (storage_ == Storage::Bits) {
    each_element([&](std::int64_t from, std::int64_t to) {
      set_bits(target, to, bits_, get_bits(source, from, bits_));
    });
    return;
  }
  const char* from = static_cast<const char*>(source) + source_offset_;
  char* to = static_cast<char*>(target) + target_offset_;
  const auto tasks = static_cast<std::uint64_t>(task_count_);
  const std::int64_t task_bytes = std::max<std::int64_t>(1, rows_per_task_ * column_.dim * unit_);
  if (tasks < 2 || static_cast<std::int64_t>(tasks) * task_bytes < kParallelBytes) {
    copy_tasks(from, to, 0, tasks);
    return;
  }
  const auto grain = static_cast<std::uint64_t>(std::max<std::int64_t>(1, kTaskBytes / task_bytes));
  threads.parallel_for(tasks, grain, [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
    copy_tasks(from, to, begin, end);
  });
}

void StridedCopy::run(const sdk::ComputeContext& ctx, std::uint32_t input,
                      std::uint32_t output) const {
  if (size_ == 0) return;
  if (storage_ == Storage::Strings)
    return run_values(ctx.input_value(input), ctx.output_value(output));
  run_memory(ctx.input(input).bytes_data(), ctx.output(output).mutable_data<void>(), ctx.threads());
}

void copy_all(const sdk::ComputeContext& ctx, std::uint32_t input, std::uint32_t output) {
  const sdk::Tensor target = ctx.output(output);
  const std::int64_t count = target.size();
  if (count == 0) return;
  if (target.type() == sdk::DataType::String) {
    ElementMover(ctx.input_value(input), ctx.output_value(output)).copy(0, 0, count);
    return;
  }
  const char* from = ctx.input(input).data<char>();
  char* to = target.mutable_data<char>();
  if (from == to) return;
  const std::uint64_t bytes = target.bytes();
  if (bytes < static_cast<std::uint64_t>(kParallelBytes)) {
    std::memcpy(to, from, bytes);
    return;
  }
  ctx.threads().parallel_for(bytes, kTaskBytes,
                             [&](std::uint64_t begin, std::uint64_t end, std::uint32_t) {
                               std::memcpy(to + begin, from + begin, end - begin);
                             });
}

}  // namespace backplane::cpu

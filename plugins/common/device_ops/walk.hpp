// Kernels with one work item per point of a box, whose body is written by the operator.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/kernels/pointwise.hpp"

namespace backplane::device_ops {

/// The body reads i0 (the last axis), i1 ..., the memory by the names given, and the named numbers.
///
///   Walk walk(dims);
///   walk.in("x", input(0), type).out("y", output(0), type).number("n", n);
///   walk.body = "STORE(T, y, i1 * n + i0, LOAD(T, x, i1 * n));";
///   walk.add_to(work);
class Walk {
 public:
  explicit Walk(DimsView dims) : dims_(dims.begin(), dims.end()) {
    if (dims_.empty()) dims_.push_back(1);
  }
  Walk& in(const std::string& name, const MemoryRef& memory, DataType type);
  Walk& out(const std::string& name, const MemoryRef& memory, DataType type);
  /// An i64 argument.
  Walk& number(const std::string& name, std::int64_t value);
  /// A float argument.
  Walk& real(const std::string& name, double value);
  template <class Value>
  Walk& define(const char* name, const Value& value) {
    definitions_ += sdk::message("#define ", name, ' ', value, '\n');
    return *this;
  }
  /// The index, as text, that `strides` over the walk's axes give; its numbers begin with `name`.
  std::string index(const std::string& name, const Dims& strides);
  /// REAL and LIT for programs that compute in double or float.
  Walk& real_type(DataType type);
  /// The body may say FAULT, which means this.
  Walk& may_fault(std::string text) { return fault_ = std::move(text), *this; }
  /// On processors a work item does a band of points in loops, of which compilers make vectors: for bodies that neither
  /// leave nor move what they are given, and whose points share nothing. `cost`: of a point, in elements that are moved.
  Walk& in_bands(std::int64_t cost = 1) { return band_points_ = band_of(cost), *this; }
  /// What it is called in traces.
  Walk& name(std::string text) { return plan_.name = std::move(text), *this; }
  void add_to(Work& work) const;
  /// A launch of groups that share rows. The body reads lane, row, is_row, part and the elements from `first` to
  /// `last`, as kernels/rows.hpp says, and the numbers rows, n, part_n and parts; `elements` is how many the largest
  /// tensor has. The dims do not count.
  void add_to(Work& work, const RowForm& form, std::int64_t elements) const;
  /// The same for a body with phases: one launch, or two where rows are divided, of which the first tells the second by two
  /// numbers a part, in `found`.
  void add_phases(Work& work, const RowForm& form, const MemoryRef& found) const;
  /// A launch of so many groups of `items` items each, whose body finds its place by GROUP_ID and LOCAL_ID. The dims do not count.
  void add_groups(Work& work, const std::array<std::size_t, 3>& groups, std::size_t items) const;
  /// The same launch, for what adds it as a part of something: its first number is its first scalar.
  LaunchPlan plan_groups(const std::array<std::size_t, 3>& groups, std::size_t items) const;

  std::string functions;  ///< before the kernel
  std::string body;

 private:
  static std::int64_t band_of(std::int64_t cost);

  Dims dims_;
  std::int64_t band_points_ = 0;  ///< 0: an item does a point
  std::string memory_, starts_, definitions_, declarations_, fault_;
  std::vector<Scalar> numbers_;
  LaunchPlan plan_;
};

/// Sets items and group of a launch over these dims, as indices_text takes them apart; an item has `width` elements along
/// the last axis.
void set_sizes(LaunchPlan& plan, const Device& device, const Dims& dims, std::int64_t width = 1);
/// The same for a work item of each band.
void set_bands(LaunchPlan& plan, const Dims& dims, const common::Band& band);

}  // namespace backplane::device_ops

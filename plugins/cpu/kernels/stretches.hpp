// How scales and zero points are spread over a tensor: one for all, one per index of an axis, or one per
// block along an axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/checked.hpp"

namespace backplane::cpu {

/// A run of neighbouring elements whose parameters are one or lie side by side.
struct Stretch {
  std::int64_t begin;  // of the tensor
  std::int64_t n;
  std::int64_t parameter;  // the first one's index
};

/// All stretches of a tensor, in order.
class Stretches {
 public:
  Stretches() = default;

  /// `block` is 0 for one parameter per index of `axis`. A parameter tensor of one element without a
  /// block serves for all. Errors: BP_INVALID_ARGUMENT when the parameters' shape does not fit.
  Stretches(sdk::DimsView x, sdk::DimsView parameters, std::int64_t axis_given,
            std::int64_t block) {
    const std::int64_t size = sdk::element_count(x);
    parameter_count_ = sdk::element_count(parameters);
    if (block == 0 && parameter_count_ == 1 && parameters.size() <= 1) {
      count_ = size > 0 ? 1 : 0;
      length_ = size;
      return;
    }
    const int rank = static_cast<int>(x.size());
    const int axis = common::normalize_axis(axis_given, rank);
    outer_ = common::product(x, 0, axis);
    dim_ = x[static_cast<std::size_t>(axis)];
    inner_ = common::product(x, axis + 1, rank);
    if (block == 0) {
      if (parameter_count_ != dim_ || parameters.size() != 1) refuse(x, parameters, axis, block);
      by_axis();
    } else {
      check_blocks(x, parameters, axis, block);
      by_block(block);
    }
    if (size == 0) count_ = 0;
  }

  std::int64_t count() const { return count_; }
  /// The elements of the longest one.
  std::int64_t length() const { return length_; }
  std::int64_t parameter_count() const { return parameter_count_; }
  /// 1: a parameter for each element of a stretch; 0: one for all of it.
  std::int64_t step() const { return step_; }

  Stretch at(std::int64_t index) const {
    if (blocks_ == 0) {
      return {index * length_, length_, step_ == 0 && dim_ > 0 ? index % dim_ : 0};
    }
    if (step_ == 0) {  // blocks along the last axis
      const std::int64_t first = index % blocks_ * block_;
      return {index / blocks_ * dim_ + first, std::min(block_, dim_ - first), index};
    }
    const std::int64_t row = index / dim_ * blocks_ + index % dim_ / block_;
    return {index * inner_, inner_, row * inner_};
  }

 private:
  void by_axis() {
    if (inner_ > 1) {
      count_ = outer_ * dim_;
      length_ = inner_;
    } else {
      count_ = outer_;
      length_ = dim_;
      step_ = 1;
    }
  }

  void by_block(std::int64_t block) {
    block_ = block;
    blocks_ = common::ceil_quotient(dim_, block);
    if (inner_ > 1) {
      count_ = outer_ * dim_;
      length_ = inner_;
      step_ = 1;
    } else {
      count_ = outer_ * blocks_;
      length_ = std::min(block, dim_);
    }
  }

  static void check_blocks(sdk::DimsView x, sdk::DimsView parameters, int axis,
                           std::int64_t block) {
    bool fits = block > 0 && parameters.size() == x.size();
    for (std::size_t k = 0; fits && k < x.size(); ++k) {
      const std::int64_t wanted =
          k == static_cast<std::size_t>(axis) ? common::ceil_quotient(x[k], block) : x[k];
      fits = parameters[k] == wanted;
    }
    if (!fits) refuse(x, parameters, axis, block);
  }

  [[noreturn]] static void refuse(sdk::DimsView x, sdk::DimsView parameters, int axis,
                                  std::int64_t block) {
    sdk::invalid("scales of shape ", to_string(parameters), " do not fit an input of shape ",
                 to_string(x), " with axis ", axis, " and block size ", block);
  }

  std::int64_t outer_ = 1;
  std::int64_t dim_ = 0;
  std::int64_t inner_ = 1;
  std::int64_t block_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t count_ = 0;
  std::int64_t length_ = 0;
  std::int64_t parameter_count_ = 1;
  std::int64_t step_ = 0;
};

}  // namespace backplane::cpu

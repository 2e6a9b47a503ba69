// What the stand-in's libraries compute, by the definitions, and what CUDA's have algorithms for.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "plugins/common/half.hpp"
#include "tests/cuda/stand_in.hpp"

namespace backplane::cuda {

/// An element of any type that libraries compute with.
inline double load(Address start, sdk::DataType type, std::int64_t index) {
  switch (type) {
    case sdk::DataType::Double:
      return memory_at<double>(start)[index];
    case sdk::DataType::Float16:
      return static_cast<double>(common::to_float(memory_at<sdk::Half>(start)[index]));
    case sdk::DataType::BFloat16:
      return static_cast<double>(common::to_float(memory_at<sdk::BFloat16>(start)[index]));
    case sdk::DataType::Int8:
      return memory_at<std::int8_t>(start)[index];
    case sdk::DataType::Int32:
      return memory_at<std::int32_t>(start)[index];
    default:
      return static_cast<double>(memory_at<float>(start)[index]);
  }
}

inline void store(Address start, sdk::DataType type, std::int64_t index, double value) {
  switch (type) {
    case sdk::DataType::Double:
      memory_at<double>(start)[index] = value;
      return;
    case sdk::DataType::Float16:
      memory_at<sdk::Half>(start)[index] = common::to_half(static_cast<float>(value));
      return;
    case sdk::DataType::BFloat16:
      memory_at<sdk::BFloat16>(start)[index] = common::to_bfloat16(static_cast<float>(value));
      return;
    case sdk::DataType::Int32:
      memory_at<std::int32_t>(start)[index] = static_cast<std::int32_t>(value);
      return;
    default:
      memory_at<float>(start)[index] = static_cast<float>(value);
  }
}

/// What the library does: matrices lie column after column.
class LibraryArithmetic {
 public:
  LibraryArithmetic(const LibraryProduct& product, double factor, double addend_factor,
                    const ProductAddresses& at)
      : product_(product), factor_(factor), addend_factor_(addend_factor), at_(at) {}

  void multiply() const {
    const std::int64_t of_batch = product_.d.rows * product_.d.columns;
    for (std::int64_t i = 0; i < product_.batch * of_batch; ++i) {
      const std::int64_t batch = i / of_batch, row = i % of_batch / product_.d.columns;
      const std::int64_t column = i % product_.d.columns;
      store(at_.d, product_.d.type, place(product_.d, batch, row, column),
            finished(sum(batch, row, column), batch, row, column));
    }
  }

 private:
  static std::int64_t place(const LibraryMatrix& matrix, std::int64_t batch, std::int64_t row,
                            std::int64_t column) {
    const std::int64_t r = matrix.is_transposed ? column : row;
    const std::int64_t c = matrix.is_transposed ? row : column;
    if (r >= matrix.rows || c >= matrix.columns || matrix.step < matrix.rows)
      throw std::logic_error("an element is not in its matrix");
    return batch * matrix.batch_step + c * matrix.step + r;
  }
  static double element(Address start, const LibraryMatrix& matrix, std::int64_t batch,
                        std::int64_t row, std::int64_t column) {
    return load(start, matrix.type, place(matrix, batch, row, column));
  }

  double sum(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const std::int64_t depth = product_.a.is_transposed ? product_.a.rows : product_.a.columns;
    double total = 0;
    for (std::int64_t k = 0; k < depth; ++k)
      total +=
          element(at_.a, product_.a, batch, row, k) * element(at_.b, product_.b, batch, k, column);
    return total;
  }

  double finished(double sum, std::int64_t batch, std::int64_t row, std::int64_t column) const {
    sum *= factor_;
    if (product_.has_addend) sum += addend_factor_ * element(at_.c, product_.c, batch, row, column);
    if (product_.has_bias)
      sum += load(at_.bias, product_.d.type, batch * product_.bias_batch_step + row);
    if (product_.epilogue == Epilogue::kRelu) sum = std::max(sum, 0.0);
    if (product_.epilogue == Epilogue::kGelu)
      sum *= 0.5 * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    return sum;
  }

  const LibraryProduct& product_;
  double factor_, addend_factor_;
  const ProductAddresses& at_;
};

/// What the library wants of int8: a transposed, b not, columns, steps and the depth in whole words; nothing is added.
inline void require_int8_form(const LibraryProduct& product) {
  const bool is_right =
      product.a.is_transposed && !product.b.is_transposed && !product.has_addend &&
      !product.has_bias && product.epilogue == Epilogue::kNone && product.a.step % 4 == 0 &&
      product.b.step % 4 == 0 && product.d.step % 4 == 0 && product.d.rows % 4 == 0 &&
      product.a.rows % 4 == 0 && product.alignment % 4 == 0;
  if (!is_right) throw std::logic_error("no form of int8: " + product.key());
}

inline void multiply(const LibraryProduct& product, double factor, double addend_factor,
                     const ProductAddresses& at) {
  if (product.a.type == sdk::DataType::Int8) require_int8_form(product);
  LibraryArithmetic(product, factor, addend_factor, at).multiply();
}

/// Whether cuBLASLt has algorithms for it, by its documentation of cublasLtMatmul: types of 16 bits with results of theirs or of float;
/// int8 in the form TN alone, of whole words, with sums of int32 and nothing after them; and as many matrices as a grid's axis has groups.
inline bool has_algorithms(const LibraryProduct& product) {
  constexpr std::int64_t kMostMatrices = 65535;
  for (const LibraryMatrix* const matrix : {&product.a, &product.b, &product.c, &product.d}) {
    if (matrix->step < matrix->rows || matrix->rows < 1 || matrix->columns < 1)
      throw std::logic_error("CUBLAS_STATUS_INVALID_VALUE: " + product.key());
  }
  if (product.batch > kMostMatrices) return false;
  if (product.batch > 1 && product.d.batch_step == 0)
    throw std::logic_error("results that lie on each other: " + product.key());
  const bool is_half =
      product.a.type == sdk::DataType::Float16 || product.a.type == sdk::DataType::BFloat16;
  if (is_half && product.d.type == sdk::DataType::Float) return true;
  if (product.a.type != sdk::DataType::Int8) return product.d.type == product.a.type;
  const auto is_whole = [](std::int64_t count) { return count % kInt8Word == 0; };
  return product.d.type == sdk::DataType::Int32 && product.a.is_transposed &&
         !product.b.is_transposed && product.epilogue == Epilogue::kNone && !product.has_bias &&
         product.alignment >= kInt8Word && is_whole(product.d.rows) && is_whole(product.a.rows) &&
         is_whole(product.a.step) && is_whole(product.b.step) && is_whole(product.d.step);
}

/// Of a tensor of `channels` channels and `size` points: where an element lies.
inline std::int64_t place_in(const Convolution& form, std::int64_t image, std::int64_t channel,
                             std::int64_t point, std::int64_t channels, std::int64_t size) {
  return form.is_channels_last ? (image * size + point) * channels + channel
                               : (image * channels + channel) * size + point;
}

/// A tap of a window, and the point of the image that it meets.
struct MetPoint {
  std::int64_t tap = 0, point = 0;
};

/// The taps that meet the image, of the window whose result is this one.
inline std::vector<MetPoint> window_at(const Convolution& form, std::int64_t result) {
  const auto place = [](std::int64_t index, const std::array<std::int64_t, 3>& dims) {
    return std::array<std::int64_t, 3>{index / (dims[1] * dims[2]), index / dims[2] % dims[1],
                                       index % dims[2]};
  };
  const auto to = place(result, form.out);
  std::vector<MetPoint> met;
  for (std::int64_t i = 0; i < form.kernel[0] * form.kernel[1] * form.kernel[2]; ++i) {
    const auto tap = place(i, form.kernel);
    std::int64_t from = 0;
    bool is_inside = true;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::int64_t p =
          to[axis] * form.stride[axis] + tap[axis] * form.dilation[axis] - form.pad_begin[axis];
      is_inside = is_inside && p >= 0 && p < form.in[axis];
      from = from * form.in[axis] + p;
    }
    if (is_inside) met.push_back({i, from});
  }
  return met;
}

/// Convolves by the definition. Networks' tests spend their time here: each element is read once and each window found once.
inline void convolve(const Convolution& form, const ConvolutionAddresses& at) {
  const auto count = [](const std::array<std::int64_t, 3>& dims) {
    return dims[0] * dims[1] * dims[2];
  };
  const auto loaded = [&](Address start, std::int64_t elements) {
    std::vector<double> made;
    for (std::int64_t i = 0; i < elements; ++i) made.push_back(load(start, form.type, i));
    return made;
  };
  const std::int64_t points = count(form.out), taps = count(form.kernel), size = count(form.in);
  const std::int64_t depth = form.channels / form.groups;
  const std::vector<double> x = loaded(at.x, form.batch * form.channels * size);
  const std::vector<double> w = loaded(at.w, form.filters * depth * taps);
  // Sums are of channels, and of taps in each.
  const auto sum_of = [&](std::int64_t image, std::int64_t filter,
                          const std::vector<MetPoint>& met) {
    const std::int64_t first = filter / (form.filters / form.groups) * depth;
    double sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      for (const MetPoint& each : met)
        sum += x.data()[place_in(form, image, first + k, each.point, form.channels, size)] *
               w.data()[place_in(form, filter, k, each.tap, depth, taps)];
    }
    return sum;
  };
  for (std::int64_t point = 0; point < points; ++point) {
    const std::vector<MetPoint> met = window_at(form, point);
    for (std::int64_t i = 0; i < form.batch * form.filters; ++i) {
      const std::int64_t image = i / form.filters, filter = i % form.filters;
      double sum = sum_of(image, filter, met);
      const std::int64_t y = place_in(form, image, filter, point, form.filters, points);
      if (form.has_addend) sum += load(at.addend, form.type, y);
      if (form.has_bias) sum += load(at.bias, form.type, filter);
      store(at.y, form.result_type(), y, form.has_relu ? std::max(sum, 0.0) : sum);
    }
  }
}

/// The transposed one, by gathering.
inline void convolve_transposed(const Convolution& form, const ConvolutionAddresses& at) {
  std::int64_t points = 1, taps = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    points *= form.out[axis];
    taps *= form.kernel[axis];
    // Of a convolution from y to x, the sizes must be right.
    const std::int64_t span = form.out[axis] + form.pad_begin[axis] + form.pad_end[axis] -
                              (form.kernel[axis] - 1) * form.dilation[axis] - 1;
    if (axis < form.rank && (span < 0 || span / form.stride[axis] + 1 != form.in[axis]))
      throw std::logic_error("no gradient: " + form.key());
  }
  const std::int64_t depth = form.channels / form.groups, width = form.filters / form.groups;
  for (std::int64_t i = 0; i < form.batch * form.filters * points; ++i) {
    const std::int64_t filter = i / points % form.filters, image = i / points / form.filters;
    double sum = form.has_bias ? load(at.bias, form.type, filter) : 0;
    for (std::int64_t k = 0; k < depth * taps; ++k) {
      const std::int64_t channel = filter / width * depth + k / taps;
      std::int64_t place = i % points, tap = k % taps, from = 0, step = 1;
      bool is_reached = true;
      for (std::size_t axis = form.rank; axis-- > 0;) {
        const std::int64_t moved = place % form.out[axis] + form.pad_begin[axis] -
                                   tap % form.kernel[axis] * form.dilation[axis];
        place /= form.out[axis];
        tap /= form.kernel[axis];
        is_reached = is_reached && moved >= 0 && moved % form.stride[axis] == 0 &&
                     moved / form.stride[axis] < form.in[axis];
        from += moved / form.stride[axis] * step;
        step *= form.in[axis];
      }
      if (is_reached)
        sum +=
            load(at.x, form.type, place_in(form, image, channel, from, form.channels, step)) *
            load(at.w, form.type, place_in(form, channel, filter % width, k % taps, width, taps));
    }
    store(at.y, form.type, place_in(form, image, filter, i % points, form.filters, points), sum);
  }
}

/// Attention by its definition; exponentials are powers of two, whose exponents are floats, as the library's are.
inline void attend(const Attention& form, const AttentionAddresses& at, float scale) {
  const auto row_of = [](const AttentionSteps& steps, std::int64_t b, std::int64_t h,
                         std::int64_t i) {
    return b * steps.batch + h * steps.head + i * steps.position;
  };
  const std::array<std::int64_t, 4>& mask = form.mask_dims;
  std::vector<double> weights(static_cast<std::size_t>(form.columns));
  for (std::int64_t i = 0; i < form.batch * form.heads * form.rows; ++i) {
    const std::int64_t b = i / form.rows / form.heads, h = i / form.rows % form.heads,
                       row = i % form.rows, group = h / (form.heads / form.groups);
    double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < form.columns; ++j) {
      double score = 0;
      for (std::int64_t e = 0; e < form.width; ++e)
        score += load(at.q, form.type, row_of(form.q, b, h, row) + e) *
                 load(at.k, form.type, row_of(form.k, b, group, j) + e);
      score *= static_cast<double>(scale);
      const auto index = [&](std::size_t axis, std::int64_t place) {
        return mask[axis] == 1 ? 0 : place;
      };
      if (form.has_mask)
        score += load(at.mask, form.type,
                      ((index(0, b) * mask[1] + index(1, h)) * mask[2] + index(2, row)) * mask[3] +
                          index(3, j));
      if (form.is_causal && j > row) score = -std::numeric_limits<double>::infinity();
      score = static_cast<double>(static_cast<float>(score) * 1.442695041f);
      greatest = std::max(greatest, weights[static_cast<std::size_t>(j)] = score);
    }
    for (double& weight : weights) sum += weight = std::exp2(weight - greatest);
    for (std::int64_t e = 0; e < form.value_width; ++e) {
      double value = 0;
      for (std::int64_t j = 0; j < form.columns; ++j)
        value += weights[static_cast<std::size_t>(j)] / sum *
                 load(at.v, form.type, row_of(form.v, b, group, j) + e);
      store(at.y, form.type, row_of(form.y, b, h, row) + e, value);
    }
  }
}

}  // namespace backplane::cuda

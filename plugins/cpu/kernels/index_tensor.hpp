// Index tensors: their element types, their checks, and how they are walked.
#pragma once

#include <cstdint>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/cpu/kernels/dims.hpp"

namespace backplane::cpu {

/// Calls body(pointer) with the elements as int32 or int64.
template <class Body>
void with_index_type(const sdk::Tensor& indices, const Body& body) {
  if (indices.type() == sdk::DataType::Int32) return body(indices.data<std::int32_t>());
  if (indices.type() == sdk::DataType::Int64) return body(indices.data<std::int64_t>());
  sdk::unsupported("indices of type ", sdk::type_name(indices.type()));
}

/// An index that counts from the end when negative, of a checked tensor.
template <class Index>
std::int64_t wrap_index(Index index, std::int64_t dim) {
  const auto given = static_cast<std::int64_t>(index);
  return given +
         (dim & (given >> 63));  // compilers make a jump of a condition, one for each element
}

/// Fails for an index out of range, before anything is written. Returns whether some count from the end.
template <class Index>
bool check_indices(const char* op, const Index* indices, std::int64_t count, std::int64_t dim,
                   int axis) {
  // The sign bit of index or of dim - 1 - index is set where the index is less than 0 or too large: sums and bits, of which
  // compilers make vectors.
  const auto last = static_cast<std::uint64_t>(dim) - 1;
  std::uint64_t signs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(static_cast<std::int64_t>(indices[i]));
    signs |= index | (last - index);
  }
  if (signs >> 63 == 0) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::int64_t>(indices[i]);
    if (index < -dim || index >= dim) {
      sdk::failed(op, ": index ", index, " (element ", i,
                  " of the indices) is out of range for axis ", axis, " of ", dim, " elements");
    }
  }
  return true;
}

/// Walks an index tensor row by row, together with the data that its elements point into: for each row the
/// place of the data when the index along the operator's axis is 0.
struct RowWalk {
  sdk::Dims dims;     // of the index tensor, without the last axis
  sdk::Dims strides;  // of the data along them; 0 along the operator's axis
  std::int64_t rows = 1, columns = 1, column_stride = 0;

  RowWalk(const char* op, sdk::DimsView data, sdk::DimsView indices, int axis) {
    bool fits = data.size() == indices.size();
    for (std::size_t i = 0; fits && i < data.size(); ++i)
      fits = static_cast<int>(i) == axis || indices[i] <= data[i];
    if (!fits) {
      sdk::invalid(op, ": indices of dims ", sdk::to_string(indices), " do not fit data of dims ",
                   sdk::to_string(data), " along axis ", axis);
    }
    const sdk::Dims dense = dense_strides(data);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t stride = static_cast<int>(i) == axis ? 0 : dense[i];
      if (i + 1 == indices.size()) {
        columns = indices[i];
        column_stride = stride;
      } else {
        rows *= indices[i];
        dims.push_back(indices[i]);
        strides.push_back(stride);
      }
    }
  }

  /// body(first element of the row in the index tensor, place of its data)
  template <class Body>
  void each_row(std::int64_t begin, std::int64_t end, const Body& body) const {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t rest = row, base = 0;
      for (std::size_t i = dims.size(); i-- > 0;) {
        base += rest % dims[i] * strides[i];
        rest /= dims[i];
      }
      body(row * columns, base);
    }
  }
};

/// An index tensor whose last axis holds coordinates: GatherND, ScatterND.
struct IndexRows {
  std::int64_t count;  // coordinates
  std::int64_t width;  // axes that each of them names
  std::int64_t batch_dims;
  std::int64_t rows_per_batch;                // coordinates that share a batch
  std::int64_t batch_stride;                  // elements of data from one batch to the next
  std::vector<std::int64_t> limits, strides;  // of the named axes

  IndexRows(const char* op, sdk::DimsView data, sdk::DimsView indices, std::int64_t batch)
      : count(1), width(0), batch_dims(batch), rows_per_batch(1), batch_stride(0) {
    if (indices.empty() || data.empty())
      sdk::invalid(op, ": data and indices need one dimension at least");
    width = indices.back();
    const auto rank = static_cast<std::int64_t>(data.size()),
               index_rank = static_cast<std::int64_t>(indices.size());
    if (batch < 0 || batch >= index_rank || batch + width > rank) {
      sdk::invalid(op, ": indices of dims ", sdk::to_string(indices), " with ", batch,
                   " batch dims do not fit data of dims ", sdk::to_string(data));
    }
    for (std::int64_t i = 0; i + 1 < index_rank; ++i) {
      const auto at = static_cast<std::size_t>(i);
      count *= indices[at];
      if (i >= batch) rows_per_batch *= indices[at];
      if (i < batch && indices[at] != data[at]) {
        sdk::invalid(op, ": batch dim ", i, " is ", indices[at], " in the indices and ", data[at],
                     " in the data");
      }
    }
    const sdk::Dims dense = dense_strides(data);
    batch_stride = dims_product(data, static_cast<std::size_t>(batch), data.size());
    for (std::int64_t i = batch; i < batch + width; ++i) {
      limits.push_back(data[static_cast<std::size_t>(i)]);
      strides.push_back(dense[static_cast<std::size_t>(i)]);
    }
  }

  /// Fails for a coordinate out of range, before anything is written.
  void check(const char* op, const std::int64_t* indices) const {
    const auto axes = static_cast<std::size_t>(width);
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::size_t i = 0; i < axes; ++i) {
        const std::int64_t index = indices[n * width + static_cast<std::int64_t>(i)];
        if (index < -limits[i] || index >= limits[i]) {
          sdk::failed(op, ": index ", index, " (of coordinate ", n, ") is out of range for axis ",
                      batch_dims + static_cast<std::int64_t>(i), " of ", limits[i], " elements");
        }
      }
    }
  }

  /// The place in the data that coordinate n names, in elements.
  std::int64_t offset(const std::int64_t* indices, std::int64_t n) const {
    std::int64_t at = batch_dims == 0 ? 0 : n / rows_per_batch * batch_stride;
    const auto axes = static_cast<std::size_t>(width);
    const std::int64_t* row = indices + n * width;
    for (std::size_t i = 0; i < axes; ++i) at += wrap_index(row[i], limits[i]) * strides[i];
    return at;
  }
};

}  // namespace backplane::cpu

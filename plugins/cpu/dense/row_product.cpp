#include "plugins/cpu/dense/row_product.hpp"

#include <algorithm>
#include <type_traits>

#include "plugins/cpu/dense/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/cpu/dense/row_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "plugins/cpu/kernels/half_loads-inl.hpp"
#include "plugins/cpu/kernels/vector_math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace backplane::cpu::HWY_NAMESPACE {

const RowProductKernels* find_row_products(sdk::DataType type);

namespace {
namespace hn = hwy::HWY_NAMESPACE;
using ProductTag = hn::ScalableTag<float>;
using ProductVector = hn::Vec<ProductTag>;
constexpr std::int64_t kProductLanes = static_cast<std::int64_t>(hn::MaxLanes(ProductTag()));
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;

// Rows of a wide matrix that are read together: each is a stream of its own to the processor's prefetching.
constexpr std::int64_t kStreams = 16;
// Columns, read along the depth, that are still in the second-level cache when the next rows of A need them.
constexpr std::int64_t kColumnsAtOnce = 16;

HWY_INLINE HWY_ATTR ProductVector load_part(const float* from, std::size_t count) {
  return load_some(ProductTag(), from, count);
}

#ifdef BP_HAS_HALF_LOADS
template <class T>
HWY_INLINE HWY_ATTR ProductVector load_part(const T* from, std::size_t count) {
  T whole[kProductLanes] = {};
  std::copy_n(from, count, whole);
  return load_floats(whole);
}
#endif

/// A part of a product: `k` is where its depth begins in the rows of A.
template <class T>
struct RowPart {
  const float* const* a;
  std::int64_t rows, k, depth;
  const T* b;
  std::int64_t b_stride, columns;
  float* y;
  std::int64_t y_stride;
  bool adds;

  explicit RowPart(const RowProductArgs& args)
      : a(args.a),
        rows(args.rows),
        k(0),
        depth(args.depth),
        b(static_cast<const T*>(args.b)),
        b_stride(args.b_stride),
        columns(args.columns),
        y(args.y),
        y_stride(args.y_stride),
        adds(args.adds) {}
};

/// Calls body(part) for parts of at most `most` rows.
template <class T, class Body>
void each_rows(const RowPart<T>& all, std::int64_t most, const Body& body) {
  RowPart<T> part = all;
  for (std::int64_t left = all.rows; left > 0; left -= part.rows) {
    part.rows = std::min(left, most);
    body(part);
    part.a += part.rows;
    part.y += part.rows * part.y_stride;
  }
}

/// Vectors of columns whose sums stay in registers.
constexpr int strip_vectors(int rows) {
  if (rows == 1) return 8;
  return kManyRegisters || rows == 2 ? 4 : 2;
}

template <bool kIsPart>
HWY_INLINE HWY_ATTR void store_strip(ProductVector sums, float* y, std::size_t count) {
  if (kIsPart) {
    store_some(ProductTag(), sums, y, count);
  } else {
    hn::StoreU(sums, ProductTag(), y);
  }
}

/// A strip of kVectors vectors, or of `count` elements of one.
template <int kRows, int kVectors, bool kIsPart, class T>
HWY_ATTR void add_strip(const RowPart<T>& part, std::size_t count) {
  const ProductTag d;
  const float* a[kRows];
  ProductVector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    a[i] = part.a[i] + part.k;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* y = part.y + i * part.y_stride + v * kProductLanes;
      sums[i][v] = !part.adds ? hn::Zero(d) : kIsPart ? load_part(y, count) : load_floats(y);
    }
  }
  const T* b = part.b;
  for (std::int64_t k = 0; k < part.depth; ++k, b += part.b_stride) {
    ProductVector w[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      w[v] = kIsPart ? load_part(b, count) : load_floats(b + v * kProductLanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const ProductVector x = hn::Set(d, a[i][k]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(x, w[v], sums[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      store_strip<kIsPart>(sums[i][v], part.y + i * part.y_stride + v * kProductLanes, count);
  }
}

/// All strips of kVectors vectors that fit, then those of half as many.
template <int kRows, int kVectors, class T>
HWY_ATTR void add_strips(RowPart<T>& part) {
  constexpr std::int64_t kWidth = kVectors * kProductLanes;
  for (; part.columns >= kWidth; part.columns -= kWidth, part.b += kWidth, part.y += kWidth)
    add_strip<kRows, kVectors, false>(part, 0);
  if constexpr (kVectors > 1) {
    add_strips<kRows, kVectors / 2>(part);
  } else if (part.columns > 0) {
    add_strip<kRows, 1, true>(part, static_cast<std::size_t>(part.columns));
  }
}

template <class T>
void add_rows(RowPart<T> part) {
  switch (part.rows) {
    case 1:
      return add_strips<1, strip_vectors(1)>(part);
    case 2:
      return add_strips<2, strip_vectors(2)>(part);
    case 3:
      return add_strips<3, strip_vectors(3)>(part);
    default:
      return add_strips<4, strip_vectors(4)>(part);
  }
}

template <class T>
void along_columns(const RowProductArgs& args) {
  const bool is_narrow = args.columns <= strip_vectors(1) * kProductLanes;
  const std::int64_t step = is_narrow ? std::max<std::int64_t>(1, args.depth) : kStreams;
  RowPart<T> part(args);
  // Once where there is nothing to sum, too: the sums are zero then.
  do {
    part.depth = std::min(step, args.depth - part.k);
    each_rows(part, 4, [](const RowPart<T>& rows) { add_rows(rows); });
    part.k += part.depth;
    part.b += part.depth * part.b_stride;
    part.adds = true;
  } while (part.k < args.depth);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
/// The sum of a vector's blocks of four lanes.
template <class D>
HWY_INLINE HWY_ATTR hn::Vec<hn::Full128<float>> sum_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// The sums of four vectors, each in the same order.
HWY_INLINE HWY_ATTR void store_four_sums(const ProductVector* v, float* y) {
  const ProductTag d;
  const auto even = hn::Add(hn::InterleaveLower(d, v[0], v[2]), hn::InterleaveUpper(d, v[0], v[2]));
  const auto odd = hn::Add(hn::InterleaveLower(d, v[1], v[3]), hn::InterleaveUpper(d, v[1], v[3]));
  // In each block of four lanes, the sums of these lanes of each vector.
  const auto sums = hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd));
  hn::StoreU(sum_of_blocks(d, sums), hn::Full128<float>(), y);
}
#else
HWY_INLINE HWY_ATTR void store_four_sums(const ProductVector* v, float* y) {
  for (int i = 0; i < 4; ++i) y[i] = hn::GetLane(hn::SumOfLanes(ProductTag(), v[i]));
}
#endif

/// The products of kRows rows with kColumns columns: one, or a multiple of four.
template <int kRows, int kColumns, class T>
HWY_ATTR void dot_columns(const RowPart<T>& part) {
  constexpr int kSums = std::max(kColumns, 4);
  const ProductTag d;
  ProductVector sums[kRows][kSums];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kSums; ++j) sums[i][j] = hn::Zero(d);
  }
  const auto add = [&](std::int64_t k, std::size_t count, auto is_part) HWY_ATTR {
    const auto load = [&](const auto* from) HWY_ATTR {
      return decltype(is_part)::value ? load_part(from, count) : load_floats(from);
    };
    ProductVector x[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) x[i] = load(part.a[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const ProductVector w = load(part.b + j * part.b_stride + k);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i][j] = hn::MulAdd(x[i], w, sums[i][j]);
    }
  };
  std::int64_t k = 0;
  for (; k + kProductLanes <= part.depth; k += kProductLanes) add(k, 0, std::false_type());
  if (k < part.depth) add(k, static_cast<std::size_t>(part.depth - k), std::true_type());
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    float* y = part.y + i * part.y_stride;
    if constexpr (kColumns == 1) {
      float four[4];
      store_four_sums(sums[i], four);
      y[0] = four[0];
    } else {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; j += 4) store_four_sums(sums[i] + j, y + j);
    }
  }
}

template <int kRows, int kColumns, class T>
HWY_ATTR void dot_rows(RowPart<T>& part) {
  for (; part.columns >= kColumns; part.columns -= kColumns) {
    dot_columns<kRows, kColumns>(part);
    part.b += kColumns * part.b_stride;
    part.y += kColumns;
  }
  if constexpr (kColumns > 1) dot_rows<kRows, kColumns == 8 ? 4 : 1>(part);
}

template <class T>
void along_depth(const RowProductArgs& args) {
  RowPart<T> part(args);
  for (std::int64_t column = 0; column < args.columns; column += kColumnsAtOnce) {
    part.columns = std::min(kColumnsAtOnce, args.columns - column);
    each_rows(part, kManyRegisters ? 4 : 2, [](RowPart<T> rows) {
      switch (rows.rows) {
        case 1:
          return dot_rows<1, 8>(rows);
        case 2:
          return dot_rows<2, 4>(rows);
        case 3:
          return dot_rows<3, 4>(rows);
        default:
          return dot_rows<4, 4>(rows);
      }
    });
    part.b += part.columns * part.b_stride;
    part.y += part.columns;
  }
}

template <class T>
constexpr RowProductKernels kRowProducts{along_columns<T>, along_depth<T>};

}  // namespace

const RowProductKernels* find_row_products(sdk::DataType type) {
  switch (type) {
    case sdk::DataType::Float:
      return &kRowProducts<float>;
#ifdef BP_HAS_HALF_LOADS
    case sdk::DataType::Float16:
      return &kRowProducts<HalfBits>;
    case sdk::DataType::BFloat16:
      return &kRowProducts<BFloatBits>;
#endif
    default:
      return nullptr;
  }
}

}  // namespace backplane::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace backplane::cpu {

const RowProductKernels* row_product_kernels(Isa isa, sdk::DataType type) {
  BP_SELECT_TARGET(isa, find_row_products(type));
}

}  // namespace backplane::cpu
#endif

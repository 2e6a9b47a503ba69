// Tiles that read four bytes of a row at a time ("quads") by vectors of 32 bytes, for whichever instructions multiply them.
// Included by kernel files of AVX2 alone, which declare before it, in the anonymous namespace,
//   Vector32 add_products(Vector32 sums, __m256i x, __m256i weights);
// that adds to each sum four products of an unsigned byte of x and a signed one of the weights, and
//   constexpr bool kSplitWeights
// which tells whether panels end with rests (RestsU8), as panels of one tap may.
// No guard: each file includes it once, within its own attributes.
namespace backplane::cpu::HWY_NAMESPACE {
namespace {

// As many as the registers hold sums of, beside a quad of a row and the panel's vectors.
constexpr int kTileRows = 6;
constexpr int kVectorBytes = 32;
constexpr int kQuadBytes = kVectors * kVectorBytes;  // of a panel, or of channels

/// What stands behind the weights of a panel of which some were split: further quads, of which each is at its place among the
/// bytes of a row. Byte: std::int8_t, const or not.
template <class Byte>
struct RestsU8 {
  using Number = std::conditional_t<std::is_const_v<Byte>, const std::int32_t, std::int32_t>;

  Number* count;
  Number* places;
  Byte* weights;

  HWY_INLINE RestsU8(Byte* behind, std::int64_t quads)
      : count(reinterpret_cast<Number*>(behind)),
        places(count + 1),
        weights(behind + align64(number_bytes(quads))) {}

  /// With a third of the quads, numbers of 16 bits are as fast. Shallow panels have shares that differ more, and take little room.
  static std::int64_t most(std::int64_t quads) { return quads / 8 + 8; }
  static std::uint64_t bytes(std::int64_t quads) {
    return align64(number_bytes(quads)) + static_cast<std::uint64_t>(most(quads) * kQuadBytes);
  }

 private:
  static std::uint64_t number_bytes(std::int64_t quads) {
    return 4 * static_cast<std::uint64_t>(1 + most(quads));
  }
};

HWY_INLINE __m256i load_vector(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

HWY_INLINE __m256i flip_of(bool x_signed) {
  return _mm256_set1_epi8(static_cast<char>(x_signed ? 0x80 : 0));
}

template <int kRows>
HWY_INLINE void begin_sums(const ColumnsU8& columns, Sums<kRows>& sums) {
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::LoadU(Tag32(), columns.start + j * kLanes);
  }
}

/// Adds the products of the quad at byte `at` of each row and the weights at `panel`.
template <int kRows, bool kSigned>
HWY_INLINE void add_quad(const std::uint8_t* const (&x)[kRows], std::int64_t at,
                         const std::int8_t* panel, Sums<kRows>& sums) {
  const __m256i w0 = load_vector(panel);
  const __m256i w1 = load_vector(panel + kVectorBytes);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    std::int32_t quad = 0;
    std::memcpy(&quad, x[i] + at, sizeof(quad));
    __m256i all = _mm256_set1_epi32(quad);
    if constexpr (kSigned) all = _mm256_xor_si256(all, flip_of(true));
    sums[i][0] = add_products(sums[i][0], all, w0);
    sums[i][1] = add_products(sums[i][1], all, w1);
  }
}

template <int kRows, bool kSigned>
HWY_INLINE void sum_tile(const TileU8Args& args, Sums<kRows>& sums) {
  begin_sums<kRows>(args.columns, sums);
  const auto* panel = static_cast<const std::int8_t*>(args.panel);
  const std::uint8_t* const* rows = args.rows;
  for (std::int64_t t = 0; t < args.taps; ++t, rows += args.row_pitch) {
    const std::uint8_t* x[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) x[i] = rows[i] + args.offset;
    for (std::int64_t q = 0; q < args.quads; ++q, panel += kQuadBytes)
      add_quad<kRows, kSigned>(x, 4 * q, panel, sums);
    if constexpr (kSplitWeights) {
      const RestsU8<const std::int8_t> rests(panel, args.quads);
      const std::int8_t* weights = rests.weights;
      for (std::int32_t r = 0; r < *rests.count; ++r, weights += kQuadBytes)
        add_quad<kRows, kSigned>(x, rests.places[r], weights, sums);
    }
  }
}

template <int kRows, bool kSigned>
void tile(const TileU8Args& args) {
  Sums<kRows> sums;
  sum_tile<kRows, kSigned>(args, sums);
  TileStore(args).rows<kRows>(sums, static_cast<char*>(args.out));
}

template <int kRows>
KernelsU8::Tile find_rows(int rows, bool x_signed) {
  if (rows == kRows) return x_signed ? tile<kRows, true> : tile<kRows, false>;
  if constexpr (kRows > 1) return find_rows<kRows - 1>(rows, x_signed);
  return nullptr;
}

KernelsU8::Tile find_tile(int rows, int, bool x_signed) {
  return find_rows<kTileRows>(rows, x_signed);
}

/// Of four rows of 16 bytes, each with its halves at the beginnings of a vector's, the quads of each column in the order of the
/// lanes.
struct Quads {
  HWY_INLINE explicit Quads(const __m256i (&rows)[4]) {
    const __m256i low = _mm256_unpacklo_epi8(rows[0], rows[1]);
    const __m256i high = _mm256_unpacklo_epi8(rows[2], rows[3]);
    v0 = _mm256_unpacklo_epi16(low, high);
    v1 = _mm256_unpackhi_epi16(low, high);
  }
  __m256i v0, v1;
};

/// A row of kColumns bytes.
HWY_INLINE __m256i load_spread(const void* row) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(row));
  return _mm256_permute4x64_epi64(_mm256_castsi128_si256(bytes), 0x10);
}

/// Four rows become quads as pixels do; a row of ones sums the columns.
void pack_rows(const PackRowsU8& args) {
  const __m256i ones = _mm256_set1_epi8(1);
  auto* to = static_cast<char*>(args.panel);
  Vector32 sums[kVectors] = {hn::Zero(Tag32()), hn::Zero(Tag32())};
  for (std::int64_t k = 0; k < args.depth; k += 4, to += kQuadBytes) {
    __m256i rows[4];
    for (int i = 0; i < 4; ++i) {
      std::int8_t bytes[kColumns];
      load_weights(args, k + i, bytes);
      rows[i] = load_spread(bytes);
    }
    const Quads quads(rows);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), quads.v0);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kVectorBytes), quads.v1);
    sums[0] = add_products(sums[0], ones, quads.v0);
    sums[1] = add_products(sums[1], ones, quads.v1);
  }
  store_columns(sums[0], sums[1], args.width, args.sums);
}

/// What products of quads have, and for all else what pairs have.
KernelsU8 quad_kernels() {
  KernelsU8 k = kernels_u8_pairs(Isa::kAvx2);
  k.columns_for = [](std::int64_t) { return kColumns; };
  k.max_rows = [](int) { return kTileRows; };
  k.place = [](int lane, int number, int) { return lane * 4 + number; };
  k.pack_rows = pack_rows;
  k.wide = nullptr;
  k.tile = find_tile;
  return k;
}

}  // namespace
}  // namespace backplane::cpu::HWY_NAMESPACE

#include "plugins/cpu/kernels/convert.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "plugins/common/half.hpp"
#include "plugins/common/packed.hpp"
#include "plugins/cpu/kernels/convert_native.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// double to float as a step on the way to fewer bits.
void double_to_odd_float(const void* from, void* to, std::int64_t n) {
  const auto* x = static_cast<const double*>(from);
  auto* y = static_cast<float*>(to);
  for (std::int64_t i = 0; i < n; ++i) y[i] = common::round_to_odd(x[i]);
}

template <class Format>
void decode_bytes(const void* from, std::int64_t begin, void* wide, std::int64_t n) {
  // Made by the first conversion; 256 numbers are faster looked up than worked out.
  static const auto table = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = Format::decode(static_cast<std::uint8_t>(i));
    }
    return values;
  }();
  const auto* x = static_cast<const std::uint8_t*>(from) + begin;
  auto* y = static_cast<float*>(wide);
  for (std::int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}

template <class Format>
void encode_bytes(const void* wide, void* to, std::int64_t begin, std::int64_t n,
                  const ConvertOptions& options) {
  const auto* x = static_cast<const float*>(wide);
  auto* y = static_cast<std::uint8_t*>(to) + begin;
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<Format, common::Float8E8M0>) {
      y[i] = Format::encode(x[i], options.saturate, options.rounding);
    } else {
      y[i] = Format::encode(x[i], options.saturate);
    }
  }
}

void decode_float4(const void* from, std::int64_t begin, void* wide, std::int64_t n) {
  const auto* x = static_cast<const std::uint8_t*>(from);
  auto* y = static_cast<float*>(wide);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = common::Float4E2M1::decode(common::get_packed<4>(x, begin + i));
  }
}

void encode_float4(const void* wide, void* to, std::int64_t begin, std::int64_t n,
                   const ConvertOptions&) {
  const auto* x = static_cast<const float*>(wide);
  auto* y = static_cast<std::uint8_t*>(to);
  for (std::int64_t i = 0; i < n; ++i) {
    if ((begin + i) % 2 == 0) y[(begin + i) / 2] = 0;  // the half after the last element is 0
    common::set_packed<4>(y, begin + i, common::Float4E2M1::encode(x[i]));
  }
}

template <int kBits, bool kSigned>
void decode_packed(const void* from, std::int64_t begin, void* wide, std::int64_t n) {
  const auto* x = static_cast<const std::uint8_t*>(from);
  auto* y = static_cast<std::uint8_t*>(wide);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = kSigned ? static_cast<std::uint8_t>(common::get_packed_signed<kBits>(x, begin + i))
                   : common::get_packed<kBits>(x, begin + i);
  }
}

template <int kBits>
void encode_packed(const void* wide, void* to, std::int64_t begin, std::int64_t n,
                   const ConvertOptions&) {
  constexpr std::int64_t kPerByte = 8 / kBits;
  const auto* x = static_cast<const std::uint8_t*>(wide);
  auto* y = static_cast<std::uint8_t*>(to);
  for (std::int64_t i = 0; i < n; ++i) {
    if ((begin + i) % kPerByte == 0) y[(begin + i) / kPerByte] = 0;
    common::set_packed<kBits>(y, begin + i, x[i]);
  }
}

template <class Format>
constexpr Codec kByteCodec{DataType::Float, decode_bytes<Format>, encode_bytes<Format>};

template <int kBits, bool kSigned>
constexpr Codec kPackedCodec{kSigned ? DataType::Int8 : DataType::UInt8,
                             decode_packed<kBits, kSigned>, encode_packed<kBits>};

/// For types with a C++ type of their own, by their number.
const Codec& plain_codec(DataType type) {
  static const auto codecs = [] {
    std::array<Codec, 32> table{};
    for (std::size_t i = 0; i < table.size(); ++i) table[i].wide = static_cast<DataType>(i);
    for (const DataType half : {DataType::Float16, DataType::BFloat16}) {
      table[static_cast<std::size_t>(half)].wide = DataType::Float;
    }
    return table;
  }();
  return codecs[static_cast<std::size_t>(type)];
}

}  // namespace

const Codec& codec_of(DataType type) {
  static constexpr Codec kFloat4{DataType::Float, decode_float4, encode_float4};
  switch (type) {
    case DataType::Float8E4M3FN:
      return kByteCodec<common::Float8E4M3FN>;
    case DataType::Float8E4M3FNUZ:
      return kByteCodec<common::Float8E4M3FNUZ>;
    case DataType::Float8E5M2:
      return kByteCodec<common::Float8E5M2>;
    case DataType::Float8E5M2FNUZ:
      return kByteCodec<common::Float8E5M2FNUZ>;
    case DataType::Float8E8M0:
      return kByteCodec<common::Float8E8M0>;
    case DataType::Float4E2M1:
      return kFloat4;
    case DataType::Int4:
      return kPackedCodec<4, true>;
    case DataType::UInt4:
      return kPackedCodec<4, false>;
    case DataType::Int2:
      return kPackedCodec<2, true>;
    case DataType::UInt2:
      return kPackedCodec<2, false>;
    case DataType::String:
    case DataType::Complex64:
    case DataType::Complex128:
    case DataType::None:
      sdk::unsupported("elements of type ", sdk::type_name(type), " are not converted here");
    default:
      return plain_codec(type);
  }
}

Converter::Side Converter::make_side(DataType type, Isa isa, DataType& wide) const {
  const Codec& codec = codec_of(type);
  wide = codec.wide;
  Side side;
  side.type = type;
  side.bytes = sdk::element_bytes(type);
  side.wide_bytes = sdk::element_bytes(wide);
  if (codec.decode != nullptr) {
    side.codec = &codec;
  } else if (wide != type) {
    side.half_to_float = half_conversion(isa, type).to_float;
    side.float_to_half = half_conversion(isa, type).from_float;
  }
  return side;
}

Converter::Converter(DataType from, DataType to, const ConvertOptions& options, Isa isa)
    : options_(options) {
  DataType from_wide = from;
  DataType to_wide = to;
  from_ = make_side(from, isa, from_wide);
  to_ = make_side(to, isa, to_wide);
  native_ = native_conversion(isa, from_wide, to_wide);
  if (from == DataType::Double && to_wide == DataType::Float && to != DataType::Float) {
    native_ = double_to_odd_float;
  }
  const bool coded = from_.codec != nullptr || to_.codec != nullptr;
  ns_each_ = coded ? 4 : (from_.native() && to_.native() ? 0.4 : 0.6);
}

void Converter::decode(const void* from, std::int64_t begin, void* wide, std::int64_t n) const {
  if (from_.codec != nullptr) {
    from_.codec->decode(from, begin, wide, n);
  } else {
    from_.half_to_float(static_cast<const char*>(from) + begin * from_.bytes,
                        static_cast<float*>(wide), n);
  }
}

void Converter::encode(const void* wide, void* to, std::int64_t begin, std::int64_t n) const {
  if (to_.codec != nullptr) {
    to_.codec->encode(wide, to, begin, n, options_);
  } else {
    to_.float_to_half(static_cast<const float*>(wide), static_cast<char*>(to) + begin * to_.bytes,
                      n);
  }
}

void Converter::run(const void* from, std::int64_t from_begin, void* to, std::int64_t to_begin,
                    std::int64_t n) const {
  constexpr std::int64_t kBlock = 512;
  alignas(64) char source[kBlock * 8];
  alignas(64) char target[kBlock * 8];
  const bool decodes = !from_.native();
  const bool encodes = !to_.native();
  const char* x = static_cast<const char*>(from) + from_begin * from_.bytes;
  char* y = static_cast<char*>(to) + to_begin * to_.bytes;
  if (!decodes && !encodes) {
    native_(x, y, n);
    return;
  }
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = std::min(kBlock, n - i);
    if (decodes) decode(from, from_begin + i, source, count);
    const void* wide = decodes ? source : static_cast<const void*>(x + i * from_.bytes);
    if (encodes) {
      native_(wide, target, count);
      encode(target, to, to_begin + i, count);
    } else {
      native_(wide, y + i * to_.bytes, count);
    }
  }
}

}  // namespace backplane::cpu

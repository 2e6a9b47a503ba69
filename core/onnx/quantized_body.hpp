// What the bodies of quantized operators share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/onnx/body_writer.hpp"

namespace backplane::core {

/// Input `index`, of one element, without dimensions: a scale [1] would be one of each channel.
BodyWriter::Name one_number(BodyWriter& body, std::size_t index);

/// The real values of bytes at input `index`, with one scale and zero point, which may be left out.
BodyWriter::Name real_of(BodyWriter& body, std::size_t index, std::size_t scale, std::size_t zero);

/// The bytes of real values, of input `like`'s type: with one scale and zero point, which may be left out.
BodyWriter::Name bytes_of(BodyWriter& body, const BodyWriter::Name& value, std::size_t scale,
                          std::size_t zero, DataType type);

inline constexpr std::int64_t kByteBits = 8;

/// Bytes [..., n] as their numbers of `bits` bits, uint8 [..., n, 8 / bits], the lowest bits first.
BodyWriter::Name unpacked(BodyWriter& body, const BodyWriter::Name& bytes, std::int64_t bits);

/// An axis between 0 and `rank`.
std::int64_t counted_axis(std::int64_t axis, std::int64_t rank);

/// For images that are channels last: the axes that put the channels second, and back.
std::vector<std::int64_t> channels_second(std::int64_t rank);
std::vector<std::int64_t> channels_last(std::int64_t rank);

}  // namespace backplane::core

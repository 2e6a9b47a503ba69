// Protobuf's encoding: https://protobuf.dev/programming-guides/encoding. The input is hostile.
#include "core/onnx/model_metadata.hpp"

#include <cstdint>
#include <optional>

namespace backplane::core {
namespace {

constexpr std::uint32_t kModelMetadata = 14;  // ModelProto.metadata_props
constexpr std::uint32_t kEntryKey = 1;        // StringStringEntryProto
constexpr std::uint32_t kEntryValue = 2;

struct Field {
  std::uint32_t number = 0;
  std::span<const std::byte> contents;  ///< of one with a length
};

/// Walks over the fields of one message.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> message) : rest_(message) {}

  /// The next field; nullopt at the end, or where the bytes are no message.
  std::optional<Field> next() {
    const auto tag = varint();
    if (!tag) return std::nullopt;
    Field field;
    field.number = static_cast<std::uint32_t>(*tag >> 3);
    if (field.number == 0) return std::nullopt;  // a file of zeros ends here, not after all of them
    switch (*tag & 7) {
      case 0:
        return varint() ? std::optional(field) : std::nullopt;
      case 1:
        return take(8, field);
      case 2: {
        const auto length = varint();
        return length ? take(*length, field) : std::nullopt;
      }
      case 5:
        return take(4, field);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = static_cast<std::uint64_t>(rest_.front());
      rest_ = rest_.subspan(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<Field> take(std::uint64_t length, Field field) {
    if (length > rest_.size()) return std::nullopt;
    field.contents = rest_.subspan(0, static_cast<std::size_t>(length));
    rest_ = rest_.subspan(static_cast<std::size_t>(length));
    return field;
  }

  std::span<const std::byte> rest_;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::map<std::string, std::string> read_metadata(std::span<const std::byte> model) {
  std::map<std::string, std::string> metadata;
  Fields fields(model);
  while (const auto field = fields.next()) {
    if (field->number != kModelMetadata) continue;
    std::string key, value;
    Fields parts(field->contents);
    while (const auto part = parts.next()) {
      if (part->number == kEntryKey) key = text_of(part->contents);
      if (part->number == kEntryValue) value = text_of(part->contents);
    }
    metadata[key] = value;
  }
  return metadata;
}

}  // namespace backplane::core

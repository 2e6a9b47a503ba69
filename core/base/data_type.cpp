#include "core/base/data_type.hpp"

#include <array>
#include <limits>

namespace backplane::core {
namespace {

struct Entry {
  std::string_view name;
  int bits;
};

// Indexed by the number of the type.
constexpr std::array<Entry, 27> kEntries = {{
    {"undefined", 0},      {"float", 32},       {"uint8", 8},          {"int8", 8},
    {"uint16", 16},        {"int16", 16},       {"int32", 32},         {"int64", 64},
    {"string", 0},         {"bool", 8},         {"float16", 16},       {"double", 64},
    {"uint32", 32},        {"uint64", 64},      {"complex64", 64},     {"complex128", 128},
    {"bfloat16", 16},      {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8}, {"float8e5m2", 8},
    {"float8e5m2fnuz", 8}, {"uint4", 4},        {"int4", 4},           {"float4e2m1", 4},
    {"float8e8m0", 8},     {"uint2", 2},        {"int2", 2},
}};

const Entry& entry(DataType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kEntries.size() ? kEntries[index] : kEntries[0];
}

}  // namespace

int element_bits(DataType type) { return entry(type).bits; }

std::string_view name(DataType type) { return entry(type).name; }

std::optional<DataType> data_type_named(std::string_view name) {
  for (std::size_t i = 1; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> storage_bytes(DataType type, std::uint64_t count) {
  const auto bits = static_cast<std::uint64_t>(element_bits(type));
  constexpr auto kLimit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (bits == 0) return 0;
  if (bits >= 8) {
    const std::uint64_t bytes = bits / 8;
    if (count > kLimit / bytes) return std::nullopt;
    return count * bytes;
  }
  if (count > kLimit) return std::nullopt;
  const std::uint64_t per_byte = 8 / bits;
  return count / per_byte + (count % per_byte != 0 ? 1 : 0);
}

}  // namespace backplane::core

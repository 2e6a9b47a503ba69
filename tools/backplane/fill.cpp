#include "tools/backplane/fill.hpp"

#include <cstring>
#include <string_view>

#include "tools/backplane/elements.hpp"
#include "tools/backplane/failure.hpp"

namespace backplane::cli {
namespace {

/// FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

/// SplitMix64: https://prng.di.unimi.it/splitmix64.c
std::uint64_t mixed(std::uint64_t state) {
  state += 0x9E3779B97F4A7C15;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
  return state ^ (state >> 31);
}

/// In [-1, 1), with 24 bits: exact as a float.
float unit_float(std::uint64_t hash) {
  return static_cast<float>(static_cast<std::int64_t>(hash >> 39) - (1 << 24)) * 0x1p-24f;
}

template <class T>
void store(void* data, std::uint64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

void store_element(ElementType type, void* data, std::uint64_t i, std::uint64_t hash) {
  switch (type) {
    case ElementType::Float:
      return store(data, i, unit_float(hash));
    case ElementType::Double:
      return store(data, i, static_cast<double>(unit_float(hash)));
    case ElementType::Float16:
      return store(data, i, float16_bits(unit_float(hash)));
    case ElementType::BFloat16:
      return store(data, i, bfloat16_bits(unit_float(hash)));
    case ElementType::Complex64:
      store(data, 2 * i, unit_float(hash));
      return store(data, 2 * i + 1, unit_float(mixed(hash)));
    case ElementType::Complex128:
      store(data, 2 * i, static_cast<double>(unit_float(hash)));
      return store(data, 2 * i + 1, static_cast<double>(unit_float(mixed(hash))));
    case ElementType::UInt8:
    case ElementType::Int8:
      return store(data, i, static_cast<std::uint8_t>(hash % 128));
    case ElementType::Int16:
    case ElementType::UInt16:
    case ElementType::Int32:
    case ElementType::UInt32:
    case ElementType::Int64:
    case ElementType::UInt64: {
      const std::uint64_t bit = hash % 2;  // little-endian: the first bytes are the lowest
      std::memcpy(static_cast<char*>(data) + i * static_cast<std::uint64_t>(element_bits(type)) / 8,
                  &bit, static_cast<std::size_t>(element_bits(type)) / 8);
      return;
    }
    case ElementType::Bool:
      return store(data, i, static_cast<std::uint8_t>(hash % 2));
    case ElementType::Float8E8M0:
      return store(data, i, static_cast<std::uint8_t>(126 + hash % 2));
    default:  // other float8s: at most 1.875 in size, never the bits of NaN
      return store(data, i, static_cast<std::uint8_t>(hash % 0x38 + 1));
  }
}

}  // namespace

Value filled_tensor(const std::string& name, ElementType type,
                    const std::vector<std::int64_t>& dims) {
  Value value = Value::tensor(type, dims);
  const std::uint64_t seed = hash_of(name);
  const std::uint64_t count = value.size();
  if (type == ElementType::String) {
    for (std::uint64_t i = 0; i < count; ++i)
      value.set_string(i, (mixed(seed + i) & 1) != 0 ? "one" : "zero");
  } else if (element_bits(type) < 8) {
    for (std::uint64_t i = 0; i < value.byte_count(); ++i) {
      store(value.mutable_bytes(), i, static_cast<std::uint8_t>(mixed(seed + i) & 0x77));
    }
  } else {
    void* data = value.mutable_bytes();
    for (std::uint64_t i = 0; i < count; ++i) store_element(type, data, i, mixed(seed + i));
  }
  return value;
}

}  // namespace backplane::cli

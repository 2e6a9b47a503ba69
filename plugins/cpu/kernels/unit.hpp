// Elements by their size alone: what moving them without reading them needs.
#pragma once

#include <cstdint>

namespace backplane::cpu {

/// An element, or a run of them, of 16 bytes.
struct Chunk16 {
  std::uint64_t low, high;
};

/// Calls body(T()) with a plain type of `bytes` bytes: 1, 2, 4, 8 or 16.
template <class Body>
decltype(auto) with_unit(std::int64_t bytes, const Body& body) {
  if (bytes == 1) return body(std::uint8_t());
  if (bytes == 2) return body(std::uint16_t());
  if (bytes == 4) return body(std::uint32_t());
  if (bytes == 8) return body(std::uint64_t());
  return body(Chunk16());
}

}  // namespace backplane::cpu

// Several neighbouring elements read or written at once, as text for kernels: words of 32 bits from memory, taken apart
// into the elements' STORAGE, so that LOAD and STORE do the rest as they do it of memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// What one access moves at most: devices have none that are wider.
inline constexpr std::int64_t kWidestBytes = 16;

/// The size of an element by its short name, which ends with its bits: 2 for "bf16".
inline std::int64_t code_bytes(std::string_view code) {
  std::int64_t bits = 0;
  for (const char c : code) {
    if (c >= '0' && c <= '9') bits = 10 * bits + (c - '0');
  }
  return bits / 8;
}

/// What the statements below need before the kernel.
inline constexpr char kNeighbourWords[] = R"kernel(
#define UNROLL _Pragma("unroll")
#define IS_AT(p, bytes) (((size_t)(p) & ((bytes) - 1)) == 0)
#ifdef __CUDACC__
#define BITS_DOUBLE(x) __longlong_as_double((i64)(x))
#define DOUBLE_BITS(x) (u64)__double_as_longlong(x)
#else
#define BITS_DOUBLE(x) as_double((u64)(x))
#define DOUBLE_BITS(x) as_ulong(x)
#endif
// By instruction, since NVRTC may take the stores of a uint4 apart.
#ifdef __CUDACC__
FUNCTION uint4 read_16(const void *p) {
  uint4 w;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(p) : "memory");
  return w;
}
FUNCTION uint2 read_8(const void *p) {
  uint2 w;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(p) : "memory");
  return w;
}
FUNCTION void write_16(void *p, uint4 w) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               : : "l"(p), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
}
FUNCTION void write_8(void *p, uint2 w) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" : : "l"(p), "r"(w.x), "r"(w.y) : "memory");
}
#else
#define read_16(p) (*(GLOBAL const uint4 *)(p))
#define read_8(p) (*(GLOBAL const uint2 *)(p))
#define write_16(p, w) (*(GLOBAL uint4 *)(p) = (w))
#define write_8(p, w) (*(GLOBAL uint2 *)(p) = (w))
#endif
#define read_4(p) (*(GLOBAL const u32 *)(p))
#define read_2(p) (*(GLOBAL const u16 *)(p))
#define write_4(p, w) (*(GLOBAL u32 *)(p) = (w))
#define write_2(p, w) (*(GLOBAL u16 *)(p) = (w))
)kernel";

/// `width` elements of a type, 2 to 16 bytes in all.
class NeighbourText {
 public:
  NeighbourText(std::string_view code, std::int64_t width)
      : code_(code), bytes_(code_bytes(code)), width_(width) {}

  /// The bytes of an access, and what its address must be a multiple of.
  std::int64_t total() const { return bytes_ * width_; }

  /// Reads from a pointer into `word`, a variable that this declares.
  std::string read(std::string_view pointer, std::string_view word) const {
    return sdk::message("    ", type(), ' ', word, " = read_", total(), '(', pointer, ");\n");
  }
  /// Takes `word` apart into the array `to`.
  std::string unpack(std::string_view word, std::string_view to) const {
    std::string text;
    for (std::int64_t e = 0; e < width_; ++e)
      text += sdk::message("    ", to, '[', e, "] = ", element(word, e), ";\n");
    return text;
  }
  /// Puts the array `from` together in `word`, a variable of type().
  std::string pack(std::string_view from, std::string_view word) const {
    std::string text;
    for (std::int64_t k = 0; k < (total() + 3) / 4; ++k)
      text += sdk::message("    ", part(word, k), " = (", total() < 4 ? "u16" : "u32", ")(",
                           part_of(from, k), ");\n");
    return text;
  }
  /// Writes the array `from` to a pointer.
  std::string write(std::string_view pointer, std::string_view from) const {
    return sdk::message("    ", type(), " word;\n", pack(from, "word"), "    write_", total(), '(',
                        pointer, ", word);\n");
  }

  const char* type() const {
    return total() == 16 ? "uint4" : total() == 8 ? "uint2" : total() == 4 ? "u32" : "u16";
  }

  /// Word `k` of a variable of type().
  std::string part(std::string_view word, std::int64_t k) const {
    return total() <= 4 ? std::string(word) : sdk::message(word, '.', "xyzw"[k]);
  }

 private:
  bool is_float() const { return code_ == "f32" || code_ == "f64"; }

  std::string element(std::string_view word, std::int64_t e) const {
    if (bytes_ == 8) {
      const std::string bits =
          sdk::message("(u64)", part(word, 2 * e), " | (u64)", part(word, 2 * e + 1), " << 32");
      return sdk::message(is_float() ? "BITS_DOUBLE" : "(STORAGE(" + code_ + "))", '(', bits, ')');
    }
    const std::int64_t shift = e * bytes_ % 4 * 8;
    const std::string bits = shift == 0 ? part(word, e * bytes_ / 4)
                                        : sdk::message(part(word, e * bytes_ / 4), " >> ", shift);
    return sdk::message(is_float() ? "BITS_FLOAT" : "(STORAGE(" + code_ + "))", '(', bits, ')');
  }

  /// Word `k` of the elements in an array, in an expression.
  std::string part_of(std::string_view from, std::int64_t k) const {
    if (bytes_ == 8) {
      const std::string element = sdk::message(from, '[', k / 2, ']');
      const std::string bits = is_float() ? "DOUBLE_BITS(" + element + ")" : "(u64)" + element;
      return k % 2 == 0 ? bits : bits + " >> 32";
    }
    if (bytes_ == 4) return sdk::message(is_float() ? "FLOAT_BITS(" : "(u32)(", from, '[', k, "])");
    const std::int64_t count = total() < 4 ? width_ : 4 / bytes_;
    std::string text;
    for (std::int64_t e = 0; e < count; ++e) {
      text += sdk::message(e == 0 ? "" : " | ", "(u32)(", bytes_ == 1 ? "u8" : "u16", ')', from,
                           '[', k * count + e, ']');
      if (e > 0) text += sdk::message(" << ", e * bytes_ * 8);
    }
    return text;
  }

  std::string code_;
  std::int64_t bytes_, width_;
};

}  // namespace backplane::common

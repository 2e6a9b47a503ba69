// Moving single elements and runs of elements of any type: whole bytes, packed bits, strings.
#pragma once

#include <cstdint>
#include <cstring>

#include "backplane/plugin.hpp"

namespace backplane::cpu {

/// How a type's elements are stored, as far as moving them goes.
enum class Storage : std::uint8_t { Bytes, Bits, Strings };

inline Storage storage_of(sdk::DataType type) {
  if (type == sdk::DataType::String) return Storage::Strings;
  return sdk::element_bytes(type) > 0 ? Storage::Bytes : Storage::Bits;
}

/// Refuses element types that nobody knows how to store.
inline void require_storable(sdk::DataType type) {
  if (type != sdk::DataType::String && sdk::element_bits(type) == 0) {
    sdk::unsupported("elements of type number ", static_cast<int>(type),
                     " cannot be moved on the CPU");
  }
}

/// Reads and writes one element of 2 or 4 bits; the first lies in the low bits.
inline unsigned get_bits(const void* base, std::int64_t index, int bits) {
  const std::int64_t bit = index * bits;
  return (static_cast<const std::uint8_t*>(base)[bit >> 3] >> (bit & 7)) & ((1U << bits) - 1);
}

inline void set_bits(void* base, std::int64_t index, int bits, unsigned value) {
  const std::int64_t bit = index * bits;
  std::uint8_t& byte = static_cast<std::uint8_t*>(base)[bit >> 3];
  const unsigned mask = ((1U << bits) - 1) << (bit & 7);
  byte = static_cast<std::uint8_t>((byte & ~mask) | ((value << (bit & 7)) & mask));
}

/// Copies runs of elements from one value to another of the same type. Packed bits of the target must be
/// zeroed once (clear_padding) so that the bits past the last element are defined.
///
/// Threads: bytes from any thread for disjoint targets; bits and strings from one thread.
class ElementMover {
 public:
  ElementMover(const sdk::Value& source, const sdk::Value& target)
      : source_(source),
        target_(target),
        type_(target.tensor().type()),
        storage_(storage_of(type_)) {
    bits_ = sdk::element_bits(type_);
    element_bytes_ = static_cast<std::size_t>(sdk::element_bytes(type_));
    from_ = source.tensor().data<char>();
    to_ = target.tensor().mutable_data<char>();
  }

  Storage storage() const { return storage_; }
  bool parallel() const { return storage_ == Storage::Bytes; }
  std::size_t element_bytes() const { return element_bytes_; }

  /// Defines the bits past the last element; nothing for other storages.
  void clear_padding() const {
    if (storage_ == Storage::Bits && to_ != nullptr) std::memset(to_, 0, target_.tensor().bytes());
  }

  void copy(std::int64_t to, std::int64_t from, std::int64_t count) const {
    if (storage_ == Storage::Bytes) {
      std::memcpy(to_ + static_cast<std::size_t>(to) * element_bytes_,
                  from_ + static_cast<std::size_t>(from) * element_bytes_,
                  static_cast<std::size_t>(count) * element_bytes_);
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (storage_ == Storage::Strings) {
        target_.set_string(static_cast<std::uint64_t>(to + i),
                           source_.string_at(static_cast<std::uint64_t>(from + i)));
      } else {
        set_bits(to_, to + i, bits_, get_bits(from_, from + i, bits_));
      }
    }
  }

  /// Writes the source's element `from` to `count` places of the target.
  void fill(std::int64_t to, std::int64_t from, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) copy(to + i, from, 1);
  }

 private:
  sdk::Value source_;
  sdk::Value target_;
  sdk::DataType type_;
  Storage storage_;
  int bits_ = 0;
  std::size_t element_bytes_ = 0;
  const char* from_ = nullptr;
  char* to_ = nullptr;
};

/// Copies all elements between two dense values of equal type and count.
void copy_all(const sdk::ComputeContext& ctx, std::uint32_t input, std::uint32_t output);

}  // namespace backplane::cpu

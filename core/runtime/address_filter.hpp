// A set of addresses that is quick at saying no.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace backplane::core {

/// Where it says no, the address is not among them; where it says yes, it may be.
class AddressFilter {
 public:
  void add(const void* address) {
    const std::size_t bit = bit_of(address);
    words_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  bool may_hold(const void* address) const {
    const std::size_t bit = bit_of(address);
    return (words_[bit / 64] >> (bit % 64) & 1) != 0;
  }

 private:
  static constexpr int kLogBits = 11;  // a decoder's hundred caches leave most of it empty

  static std::size_t bit_of(const void* address) {
    const auto number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address));
    return static_cast<std::size_t>(number * 0x9e3779b97f4a7c15U >> (64 - kLogBits));
  }

  std::array<std::uint64_t, (1U << kLogBits) / 64> words_{};
};

}  // namespace backplane::core

// Constants: the contents of initializers and of tensors in attributes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/data_type.hpp"

namespace backplane::core {

/// 128 bits that two constants share exactly when type, dims and contents are equal (up to hash collisions).
struct ContentHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const ContentHash&) const = default;
  bool operator<(const ContentHash& other) const {
    return high != other.high ? high < other.high : low < other.low;
  }
};

/// A tensor that never changes. Its bytes are dense and row-major, sub-byte elements packed.
///
/// Lifetime: `owner` keeps the bytes alive (a mapped file, a vector); without one, whoever lent them.
/// Threads:  all functions may run concurrently.
class Constant {
 public:
  /// Borrows bytes that `owner` keeps alive; their number must fit type and dims, or InvalidArgument.
  Constant(DataType type, std::vector<std::int64_t> dims, std::span<const std::byte> bytes,
           std::shared_ptr<const void> owner);
  /// A string tensor.
  Constant(std::vector<std::int64_t> dims, std::vector<std::string> strings);
  /// Copies bytes.
  static std::shared_ptr<const Constant> copy_of(DataType type, std::vector<std::int64_t> dims,
                                                 std::span<const std::byte> bytes);

  DataType type() const { return type_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  std::int64_t element_count() const { return element_count_; }
  /// The bytes, aligned for their elements. A model's file places raw data anywhere, so the first call may copy.
  std::span<const std::byte> bytes() const { return aligned_ ? bytes_ : aligned_bytes(); }
  /// The bytes where they lie, at any alignment; never copies. For packing, hashing, writing.
  std::span<const std::byte> stored_bytes() const { return bytes_; }
  /// Whether bytes() are stored_bytes(): no copy is made, nor was one.
  bool lies_aligned() const { return aligned_; }
  const std::vector<std::string>& strings() const { return strings_; }
  /// Computed once, when first asked for; reads all bytes.
  ContentHash hash() const;
  /// The alignment of bytes(): the element's size, at most 8.
  static std::size_t alignment(DataType type);

 private:
  std::span<const std::byte> aligned_bytes() const;

  DataType type_;
  std::vector<std::int64_t> dims_;
  std::int64_t element_count_;
  std::span<const std::byte> bytes_;
  std::vector<std::string> strings_;
  std::shared_ptr<const void> owner_;
  bool aligned_ = true;
  mutable std::once_flag copied_;
  mutable std::vector<std::byte> copy_;
  mutable std::once_flag hashed_;
  mutable ContentHash hash_;
};

using ConstantPtr = std::shared_ptr<const Constant>;

}  // namespace backplane::core

// Backplane SDK: views of tensors and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/plugin/types.hpp"

namespace backplane::sdk {

/// A borrowed run of elements.
template <class T>
class Span {
 public:
  constexpr Span() = default;
  constexpr Span(T* data, std::size_t size) : data_(data), size_(size) {}
  template <class Container, class = decltype(std::declval<Container&>().data())>
  constexpr Span(Container& container) : data_(container.data()), size_(container.size()) {}
  /// A run of constants may also be borrowed from a temporary, for the length of a call.
  template <class Container, class = decltype(std::declval<const Container&>().data()),
            class = std::enable_if_t<std::is_const_v<T> && !std::is_lvalue_reference_v<Container>>>
  constexpr Span(const Container& container) : data_(container.data()), size_(container.size()) {}
  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr T& operator[](std::size_t index) const { return data_[index]; }
  constexpr T& back() const { return data_[size_ - 1]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

using Dims = std::vector<std::int64_t>;
using DimsView = Span<const std::int64_t>;

/// The number of elements of dims that are all known.
inline std::int64_t element_count(DimsView dims) {
  std::uint64_t count = 1;  // beside a 0 the other dims may be any, and their product wraps
  for (const std::int64_t dim : dims) count *= static_cast<std::uint64_t>(dim);
  return static_cast<std::int64_t>(count);
}

/// "[2,3]".
inline std::string to_string(DimsView dims) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(dims[axis]);
  }
  return text + "]";
}

/// A borrowed tensor: see bp_tensor.
class Tensor {
 public:
  explicit Tensor(const bp_tensor* raw) : raw_(raw) {}

  /// False for an optional input or output that is left out.
  bool present() const { return raw_->dtype != BP_NONE; }
  DataType type() const { return static_cast<DataType>(raw_->dtype); }
  int rank() const { return raw_->rank; }
  DimsView dims() const { return {raw_->dims, static_cast<std::size_t>(raw_->rank)}; }
  std::int64_t dim(int axis) const { return raw_->dims[axis]; }
  std::int64_t size() const { return element_count(dims()); }
  std::uint64_t bytes() const { return raw_->bytes; }
  std::uint32_t format() const { return raw_->format; }
  /// Strides in elements; nullptr when dense.
  const std::int64_t* strides() const { return raw_->strides; }

  /// The elements in host memory; nullptr where they are not known (in `prepare`) or there are none.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(raw_->host_ptr);
  }
  const void* bytes_data() const { return raw_->host_ptr; }
  /// The elements of an output, or of a workspace, to be written.
  template <class T>
  T* mutable_data() const {
    return static_cast<T*>(raw_->host_ptr);
  }

  /// All elements as int64, of a known host tensor of int32 or int64: shape inputs, axes.
  std::vector<std::int64_t> to_ints() const {
    const auto count = static_cast<std::size_t>(size());
    if (type() == DataType::Int64) return {data<std::int64_t>(), data<std::int64_t>() + count};
    if (type() == DataType::Int32) return {data<std::int32_t>(), data<std::int32_t>() + count};
    invalid("expected int32 or int64 elements, got ", type_name(type()));
  }

  const bp_tensor* raw() const { return raw_; }

 private:
  const bp_tensor* raw_;
};

/// A borrowed value: see bp_value and bp_value_api. May be empty (an attribute that is not given).
class Value {
 public:
  explicit Value(const bp_value* raw = nullptr) : raw_(raw) {}
  explicit operator bool() const { return raw_ != nullptr; }
  bool present() const { return raw_->kind != BP_VALUE_ABSENT; }
  int kind() const { return raw_->kind; }
  Tensor tensor() const { return Tensor(raw_->tensor); }

  std::string_view string_at(std::uint64_t index) const {
    bp_str text{nullptr, 0};
    check(host().value->string_get(raw_, index, &text));
    return {text.data, static_cast<std::size_t>(text.size)};
  }
  void set_string(std::uint64_t index, std::string_view text) const {
    check(host().value->string_set(raw_, index, bp_str{text.data(), text.size()}));
  }
  std::uint64_t sequence_size() const {
    std::uint64_t size = 0;
    check(host().value->sequence_size(raw_, &size));
    return size;
  }
  Value sequence_at(std::uint64_t index) const {
    const bp_value* element = nullptr;
    check(host().value->sequence_at(raw_, index, &element));
    return Value(element);
  }
  Value append(DataType type, DimsView dims) const {
    const bp_value* element = nullptr;
    check(host().value->sequence_append(raw_, static_cast<bp_dtype>(type),
                                        static_cast<std::int32_t>(dims.size()), dims.data(),
                                        &element));
    return Value(element);
  }
  void append(const Value& element) const {
    check(host().value->sequence_append_value(raw_, element.raw()));
  }

  Value map_keys() const { return map_part(true); }
  Value map_values() const { return map_part(false); }
  /// Writes a map: one-dimensional keys, and as many values, a tensor or a sequence.
  void set_map(const Value& keys, const Value& values) const {
    check(host().value->map_set(raw_, keys.raw(), values.raw()));
  }

  const bp_value* raw() const { return raw_; }

 private:
  Value map_part(bool keys) const {
    const bp_value* parts[2] = {nullptr, nullptr};
    check(host().value->map_parts(raw_, &parts[0], &parts[1]));
    return Value(parts[keys ? 0 : 1]);
  }

  const bp_value* raw_;
};

/// A value of the plugin's own, in host memory: see bp_value_api::tensor_new and value_new.
class OwnedValue {
 public:
  OwnedValue() = default;
  /// Takes over what a host function made.
  explicit OwnedValue(const bp_value* raw) : raw_(raw) {}
  /// A dense tensor; strings are empty, other elements undefined.
  static OwnedValue tensor(DataType type, DimsView dims) {
    const bp_value* made = nullptr;
    check(host().value->tensor_new(static_cast<bp_dtype>(type),
                                   static_cast<std::int32_t>(dims.size()), dims.data(), &made));
    return OwnedValue(made);
  }
  /// An empty sequence, optional or map: of_type("map(int64,tensor(float))").
  static OwnedValue of_type(const char* type) {
    const bp_value* made = nullptr;
    check(host().value->value_new(type, &made));
    return OwnedValue(made);
  }
  OwnedValue(OwnedValue&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  OwnedValue& operator=(OwnedValue&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~OwnedValue() {
    if (raw_ != nullptr) host().value->value_free(raw_);
  }
  /// Valid as long as this object.
  Value get() const { return Value(raw_); }

 private:
  const bp_value* raw_ = nullptr;
};

}  // namespace backplane::sdk

// Errors and values of the C++ interface: a part of backplane.hpp, which is the file to include.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backplane/backplane.h"

namespace backplane {

/// A failure: what to do next (one of BACKPLANE_*), and one line that says what is wrong.
class Error : public std::runtime_error {
 public:
  Error(std::int32_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// One of BACKPLANE_*.
  std::int32_t code() const noexcept { return code_; }

 private:
  std::int32_t code_;
};

/// Element types of tensors: the numbers of ONNX's TensorProto.DataType.
enum class ElementType : std::int32_t {
  None = 0,
  Float = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  Float8E8M0 = 24,
  UInt2 = 25,
  Int2 = 26,
};

namespace detail {

/// Ends a C object; for unique_ptr.
template <class Object, void (*kDestroy)(Object*)>
struct Deleter {
  void operator()(Object* object) const noexcept { kDestroy(object); }
};

using OwnedString =
    std::unique_ptr<backplane_string, Deleter<backplane_string, backplane_string_destroy>>;
using OwnedStatus =
    std::unique_ptr<backplane_status, Deleter<backplane_status, backplane_status_free>>;

/// Throws what a function returned, unless that was success.
inline void check(backplane_status* status) {
  if (status == nullptr) return;
  const OwnedStatus owned(status);
  throw Error(backplane_status_code(status), backplane_status_message(status));
}

/// The text that `make` gives.
template <class Object>
std::string text_of(Object* object, backplane_status* (*make)(Object*, backplane_string**)) {
  backplane_string* string = nullptr;
  check(make(object, &string));
  const OwnedString owned(string);
  return {backplane_string_data(string), static_cast<std::size_t>(backplane_string_size(string))};
}

template <class T>
struct ElementOf;
#define BACKPLANE_ELEMENT(type, value, name)                 \
  template <>                                                \
  struct ElementOf<type> {                                   \
    static constexpr ElementType kType = ElementType::value; \
    static constexpr const char* kName = name;               \
  }
BACKPLANE_ELEMENT(float, Float, "float");
BACKPLANE_ELEMENT(double, Double, "double");
BACKPLANE_ELEMENT(bool, Bool, "bool");
BACKPLANE_ELEMENT(std::int8_t, Int8, "int8");
BACKPLANE_ELEMENT(std::uint8_t, UInt8, "uint8");
BACKPLANE_ELEMENT(std::int16_t, Int16, "int16");
BACKPLANE_ELEMENT(std::uint16_t, UInt16, "uint16");
BACKPLANE_ELEMENT(std::int32_t, Int32, "int32");
BACKPLANE_ELEMENT(std::uint32_t, UInt32, "uint32");
BACKPLANE_ELEMENT(std::int64_t, Int64, "int64");
BACKPLANE_ELEMENT(std::uint64_t, UInt64, "uint64");
BACKPLANE_ELEMENT(std::complex<float>, Complex64, "complex64");
BACKPLANE_ELEMENT(std::complex<double>, Complex128, "complex128");
#undef BACKPLANE_ELEMENT

}  // namespace detail

class Value;

/// A value that somebody else owns: to look at. Cheap to copy.
///
/// Lifetime: as long as the value it came from.
class ValueView {
 public:
  ValueView() = default;
  explicit ValueView(const backplane_value* value) : value_(value) {}

  explicit operator bool() const { return value_ != nullptr; }
  /// The handle, which stays its owner's.
  const backplane_value* get() const { return value_; }

  /// ONNX's type string: "tensor(float)", "seq(tensor(int64))".
  std::string type() const { return backplane_value_type(value_); }
  /// None for anything but a tensor; then there are no dims, data and bytes either.
  ElementType element_type() const {
    return static_cast<ElementType>(backplane_value_dtype(value_));
  }
  std::size_t rank() const { return backplane_value_rank(value_); }
  /// A copy, in elements.
  std::vector<std::int64_t> dims() const {
    const std::int64_t* first = backplane_value_dims(value_);
    return first == nullptr ? std::vector<std::int64_t>()
                            : std::vector<std::int64_t>(first, first + rank());
  }
  /// The number of elements of a tensor.
  std::uint64_t size() const {
    const std::int64_t* dims = backplane_value_dims(value_);
    const std::size_t axes = rank();
    std::uint64_t count = 1;
    for (std::size_t axis = 0; axis < axes; ++axis) count *= static_cast<std::uint64_t>(dims[axis]);
    return count;
  }

  /// The elements, row-major, sub-byte ones packed; null for strings, for what is no tensor and in a device's memory.
  const void* bytes() const { return backplane_value_data(const_cast<backplane_value*>(value_)); }
  /// Of the elements; nothing of what strings hold.
  std::uint64_t byte_count() const { return backplane_value_bytes(value_); }
  /// The elements as `T`; any other element type is an Error.
  template <class T>
  const T* data() const {
    check_type<T>();
    return static_cast<const T*>(bytes());
  }
  /// An element of a string tensor.
  std::string string(std::uint64_t index) const {
    const char* data = nullptr;
    std::uint64_t size = 0;
    detail::check(backplane_value_get_string(value_, index, &data, &size));
    return {data, static_cast<std::size_t>(size)};
  }

  /// All numbers of a tensor, converted from whatever type they have; a complex one is two.
  std::vector<double> numbers() const {
    const bool is_complex =
        element_type() == ElementType::Complex64 || element_type() == ElementType::Complex128;
    std::vector<double> numbers(size() * (is_complex ? 2 : 1));
    detail::check(backplane_value_read_numbers(value_, 0, numbers.data(), numbers.size()));
    return numbers;
  }
  /// The device in whose memory it lies; "" for the host's.
  std::string device() const { return backplane_value_device(value_); }
  /// A copy in host memory.
  inline Value to_host() const;
  /// One of BACKPLANE_KIND_*.
  std::int32_t kind() const { return backplane_value_kind(value_); }

  /// Elements of a sequence or an optional; a map has two, its keys and its values.
  std::uint64_t element_count() const { return backplane_value_element_count(value_); }
  /// One of these, shared and not copied; an Error past the end.
  inline Value element(std::uint64_t index) const;

  /// The serialized TensorProto, SequenceProto, OptionalProto or MapProto.
  std::string serialize() const {
    backplane_string* string = nullptr;
    detail::check(backplane_value_serialize(value_, &string));
    const detail::OwnedString owned(string);
    return {backplane_string_data(string), static_cast<std::size_t>(backplane_string_size(string))};
  }

 protected:
  template <class T>
  void check_type() const {
    if (element_type() == detail::ElementOf<T>::kType) return;
    const std::string is = value_ == nullptr ? "the value is empty" : "the value is a " + type();
    throw Error(BACKPLANE_INVALID_ARGUMENT,
                is + ", not a tensor(" + detail::ElementOf<T>::kName + ")");
  }

  const backplane_value* value_ = nullptr;
};

/// A value that somebody else owns and that may be written.
///
/// Lifetime: as long as the value it came from.
class MutableView : public ValueView {
 public:
  MutableView() = default;
  explicit MutableView(backplane_value* value) : ValueView(value) {}

  backplane_value* get() const { return const_cast<backplane_value*>(value_); }
  /// As bytes(), to be written.
  void* mutable_bytes() const { return backplane_value_data(get()); }
  using ValueView::data;
  template <class T>
  T* data() {
    check_type<T>();
    return static_cast<T*>(mutable_bytes());
  }
  /// Writes numbers from element `index` on, converted to the tensor's type; see backplane_value_write_numbers.
  void write_numbers(const std::vector<double>& numbers, std::uint64_t index = 0) {
    detail::check(backplane_value_write_numbers(get(), index, numbers.data(), numbers.size()));
  }
  void set_string(std::uint64_t index, const std::string& text) {
    detail::check(backplane_value_set_string(get(), index, text.data(), text.size()));
  }
};

/// A value of our own. A default-constructed or moved-from one is empty: give it to a run as an output and the
/// session makes the value.
class Value : public ValueView {
 public:
  Value() = default;
  /// Takes over a handle.
  explicit Value(backplane_value* value) : ValueView(value) {}
  Value(Value&& other) noexcept : ValueView(other.release()) {}
  Value& operator=(Value&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  ~Value() { reset(nullptr); }

  /// A tensor with memory of its own, zeroed.
  static Value tensor(ElementType type, const std::vector<std::int64_t>& dims) {
    backplane_value* value = nullptr;
    detail::check(
        backplane_value_create(static_cast<std::int32_t>(type), dims.data(), dims.size(), &value));
    return Value(value);
  }
  template <class T>
  static Value tensor(const std::vector<std::int64_t>& dims) {
    return tensor(detail::ElementOf<T>::kType, dims);
  }
  /// A copy of `elements`; their number must be what `dims` say.
  template <class T>
  static Value tensor(const std::vector<std::int64_t>& dims, const std::vector<T>& elements) {
    Value value = tensor<T>(dims);
    if (value.size() != elements.size()) {
      throw Error(BACKPLANE_INVALID_ARGUMENT, "a tensor of " + std::to_string(value.size()) +
                                                  " elements was given " +
                                                  std::to_string(elements.size()));
    }
    for (std::size_t i = 0; i < elements.size(); ++i) value.data<T>()[i] = elements[i];
    return value;
  }
  /// A tensor over memory of the caller's, which must outlive the value and the runs that use it.
  static Value borrow(ElementType type, const std::vector<std::int64_t>& dims, void* data,
                      std::uint64_t bytes) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_borrow(static_cast<std::int32_t>(type), dims.data(), dims.size(),
                                         data, bytes, &value));
    return Value(value);
  }
  template <class T>
  static Value borrow(const std::vector<std::int64_t>& dims, T* data, std::uint64_t count) {
    return borrow(detail::ElementOf<T>::kType, dims, data, count * sizeof(T));
  }
  /// Likewise over memory that is only read: a feed, and never a fetch. Its elements are to be read alone.
  static Value borrow_const(ElementType type, const std::vector<std::int64_t>& dims,
                            const void* data, std::uint64_t bytes) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_borrow_const(static_cast<std::int32_t>(type), dims.data(),
                                               dims.size(), data, bytes, &value));
    return Value(value);
  }
  template <class T>
  static Value borrow(const std::vector<std::int64_t>& dims, const T* data, std::uint64_t count) {
    return borrow_const(detail::ElementOf<T>::kType, dims, data, count * sizeof(T));
  }
  /// A container, of a type such as "seq(tensor(float))"; elements are copied.
  static Value sequence(const std::string& type, const std::vector<ValueView>& elements) {
    std::vector<const backplane_value*> handles;
    for (const ValueView& element : elements) handles.push_back(element.get());
    backplane_value* value = nullptr;
    detail::check(
        backplane_value_create_sequence(type.c_str(), handles.data(), handles.size(), &value));
    return Value(value);
  }
  /// An optional; an empty view: it holds nothing.
  static Value optional(const std::string& type, const ValueView& element = {}) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_create_optional(type.c_str(), element.get(), &value));
    return Value(value);
  }
  /// A map: a tensor of keys of rank 1, and as many values in a tensor or a sequence.
  static Value map(const std::string& type, const ValueView& keys, const ValueView& values) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_create_map(type.c_str(), keys.get(), values.get(), &value));
    return Value(value);
  }
  /// A copy of strings; their number must be what `dims` say.
  static Value strings(const std::vector<std::int64_t>& dims,
                       const std::vector<std::string>& elements) {
    Value value = tensor(ElementType::String, dims);
    if (value.size() != elements.size()) {
      throw Error(BACKPLANE_INVALID_ARGUMENT, "a tensor of " + std::to_string(value.size()) +
                                                  " strings was given " +
                                                  std::to_string(elements.size()));
    }
    for (std::size_t i = 0; i < elements.size(); ++i) value.set_string(i, elements[i]);
    return value;
  }
  /// From a serialized proto; `kind` is "tensor", "sequence", "optional" or "map".
  static Value parse(const std::string& kind, const void* data, std::uint64_t bytes) {
    backplane_value* value = nullptr;
    detail::check(backplane_value_parse(kind.c_str(), data, bytes, &value));
    return Value(value);
  }

  backplane_value* get() { return const_cast<backplane_value*>(value_); }
  using ValueView::get;
  /// Gives the handle away.
  backplane_value* release() noexcept {
    return const_cast<backplane_value*>(std::exchange(value_, nullptr));
  }

  /// As bytes(), to be written; not of what borrow_const made.
  void* mutable_bytes() { return backplane_value_data(get()); }
  using ValueView::data;
  template <class T>
  T* data() {
    check_type<T>();
    return static_cast<T*>(mutable_bytes());
  }
  /// Writes numbers from element `index` on, converted to the tensor's type; see backplane_value_write_numbers.
  void write_numbers(const std::vector<double>& numbers, std::uint64_t index = 0) {
    detail::check(backplane_value_write_numbers(get(), index, numbers.data(), numbers.size()));
  }
  void set_string(std::uint64_t index, const std::string& text) {
    detail::check(backplane_value_set_string(get(), index, text.data(), text.size()));
  }

 private:
  void reset(backplane_value* value) noexcept {
    backplane_value_destroy(get());
    value_ = value;
  }
};

inline Value ValueView::to_host() const {
  backplane_value* copy = nullptr;
  detail::check(backplane_value_copy_to_host(value_, &copy));
  return Value(copy);
}

inline Value ValueView::element(std::uint64_t index) const {
  backplane_value* element = nullptr;
  detail::check(backplane_value_element(value_, index, &element));
  return Value(element);
}

}  // namespace backplane

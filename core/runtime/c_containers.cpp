// The C host interface: sequences, optionals and maps; numbers of every element type.
#include <cstring>

#include "core/base/element_numbers.hpp"
#include "core/runtime/c_objects.hpp"
#include "core/runtime/download.hpp"

namespace backplane::core {
namespace {

Type read_type(const char* type, Type::Kind kind, const char* example) {
  Type parsed = Type::parse(&required(type, "type"));
  if (parsed.kind != kind) invalid("the type '", type, "' is not of the form ", example);
  return parsed;
}

/// A copy that nobody else writes. Containers inside are shared: their elements never change.
RuntimeValuePtr copy_of(const RuntimeValue& value) {
  auto copy = std::make_shared<RuntimeValue>();
  if (value.kind == BP_VALUE_ABSENT) invalid("there is no value yet");
  if (value.is_tensor()) {
    copy->set_owned_tensor(value.element(), value.dims);
    copy->strings = value.strings;
    if (value.description.bytes > 0) {
      if (value.description.host_ptr == nullptr)
        invalid("a value in a device's memory cannot become an element; copy it to the host first");
      copy_dense(value.description, static_cast<std::byte*>(copy->description.host_ptr));
    }
  } else {
    copy->set_type(value.type);
    copy->elements = value.elements;
  }
  copy->is_element = true;
  return copy;
}

void check_element(const Type& container, const RuntimeValue& element, const std::string& what) {
  const std::string is =
      element.is_tensor() ? Type::tensor(element.element()).to_string() : element.type.to_string();
  if (container.inner == nullptr || is == container.inner->to_string()) return;
  invalid("a ", container.to_string(), " cannot hold ", what, ", which is ",
          is.empty() ? "no value yet" : is);
}

std::unique_ptr<backplane_value> empty_of(const Type& type) {
  auto made = std::make_unique<backplane_value>();
  made->value->set_type(type);
  return made;
}

/// How many entries a map's keys or values are.
std::int64_t entries_of(const RuntimeValue& value) {
  if (!value.is_tensor()) return static_cast<std::int64_t>(value.elements.size());
  return value.dims.empty() ? -1 : value.dims.front();
}

void fill_map(RuntimeValue& map, const RuntimeValue& keys, const RuntimeValue& values) {
  if (!keys.is_tensor() || keys.element() != map.type.element || keys.dims.size() != 1)
    invalid("the keys of a ", map.type.to_string(), " are a tensor(", name(map.type.element),
            ") of rank 1");
  const Type& inner = *map.type.inner;
  if (values.is_tensor()) {
    check_element(map.type, values, "these values");
  } else if (values.kind != BP_VALUE_SEQUENCE || values.type.inner == nullptr ||
             values.type.inner->to_string() != inner.to_string()) {
    invalid("the values of a ", map.type.to_string(), " are a ", inner.to_string(), " or a seq(",
            inner.to_string(), ")");
  }
  if (entries_of(keys) != entries_of(values))
    invalid("a map of ", entries_of(keys), " keys cannot have ", entries_of(values), " values");
  map.elements = {copy_of(keys), copy_of(values)};
}

/// The dense elements of a tensor of numbers; checks that `count` of them from `index` on exist.
std::byte* numbers_of(const RuntimeValue& value, std::uint64_t index, std::uint64_t count) {
  if (!value.is_tensor() || !has_numbers(value.element()))
    invalid("the value is ", value.is_tensor() ? "a tensor of strings" : "no tensor",
            "; it has no numbers");
  const bool is_complex =
      value.element() == DataType::Complex64 || value.element() == DataType::Complex128;
  const auto size = static_cast<std::uint64_t>(element_count(value.dims)) * (is_complex ? 2 : 1);
  if (index > size || count > size - index)
    invalid("numbers ", index, " to ", index + count, " do not exist; the tensor has ", size);
  if (count > 0 && value.description.host_ptr == nullptr)
    invalid("the tensor's elements are not on the host");
  if (value.description.strides != nullptr || value.description.format != BP_FORMAT_PLAIN)
    invalid("the tensor is not dense");
  return static_cast<std::byte*>(value.description.host_ptr);
}

}  // namespace
}  // namespace backplane::core

using namespace backplane::core;  // the functions below are C

backplane_status* backplane_value_create_sequence(const char* type,
                                                  const backplane_value* const* elements,
                                                  std::size_t count, backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = empty_of(read_type(type, Type::Kind::Sequence, "seq(tensor(float))"));
    if (count > 0) required(elements, "elements");
    for (std::size_t i = 0; i < count; ++i) {
      const RuntimeValue& element = *required(elements[i], "elements").value;
      check_element(made->value->type, element, text("element ", i));
      made->value->elements.push_back(copy_of(element));
    }
    *out = made.release();
  });
}

backplane_status* backplane_value_create_optional(const char* type, const backplane_value* element,
                                                  backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = empty_of(read_type(type, Type::Kind::Optional, "optional(tensor(float))"));
    if (element != nullptr) {
      const RuntimeValue& held = *required(element, "element").value;
      check_element(made->value->type, held, "the element");
      made->value->elements.push_back(copy_of(held));
    }
    *out = made.release();
  });
}

backplane_status* backplane_value_create_map(const char* type, const backplane_value* keys,
                                             const backplane_value* values, backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    auto made = empty_of(read_type(type, Type::Kind::Map, "map(int64,tensor(float))"));
    if (made->value->type.inner == nullptr) invalid("the type '", type, "' says no value type");
    fill_map(*made->value, *required(keys, "keys").value, *required(values, "values").value);
    *out = made.release();
  });
}

std::int32_t backplane_value_kind(const backplane_value* value) {
  if (usable(value) == nullptr) return BACKPLANE_KIND_NONE;
  switch (value->value->kind) {
    case BP_VALUE_TENSOR:
      return BACKPLANE_KIND_TENSOR;
    case BP_VALUE_SEQUENCE:
      return BACKPLANE_KIND_SEQUENCE;
    case BP_VALUE_OPTIONAL:
      return BACKPLANE_KIND_OPTIONAL;
    case BP_VALUE_MAP:
      return BACKPLANE_KIND_MAP;
    default:
      return BACKPLANE_KIND_NONE;
  }
}

backplane_status* backplane_value_read_numbers(const backplane_value* value, std::uint64_t index,
                                               double* numbers, std::uint64_t count) {
  return guarded([&] {
    const RuntimeValue& from = *required(value, "value").value;
    const std::byte* elements = numbers_of(from, index, count);
    if (count > 0) required(numbers, "numbers");
    for (std::uint64_t i = 0; i < count; ++i)
      numbers[i] = read_number(from.element(), elements, index + i);
  });
}

backplane_status* backplane_value_write_numbers(backplane_value* value, std::uint64_t index,
                                                const double* numbers, std::uint64_t count) {
  return guarded([&] {
    const RuntimeValue& to = *required(value, "value").value;
    if (to.read_only) invalid("the value lies in memory that was lent for reading alone");
    std::byte* elements = numbers_of(to, index, count);
    if (count > 0) required(numbers, "numbers");
    for (std::uint64_t i = 0; i < count; ++i)
      write_number(to.element(), elements, index + i, numbers[i]);
  });
}

const char* backplane_value_device(const backplane_value* value) {
  if (usable(value) == nullptr || value->device == nullptr) return "";
  return value->device->label().c_str();
}

backplane_status* backplane_value_copy_to_host(const backplane_value* value,
                                               backplane_value** out) {
  return guarded([&] {
    required(out, "out") = nullptr;
    const backplane_value& from = required(value, "value");
    auto made = std::make_unique<backplane_value>();
    made->value = from.device != nullptr && from.value->is_tensor()
                      ? download(*from.device, *from.value)
                      : copy_of(*from.value);
    *out = made.release();
  });
}

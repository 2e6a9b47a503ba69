// Strings, sequences, optionals and maps, as plugins read and write them.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/runtime_value.hpp"
#include "core/plugin_host/spare_elements.hpp"
#include "core/plugin_host/status.hpp"

namespace backplane::core {
namespace {

template <class Out>
void check_out(const Out* out) {
  if (out == nullptr) invalid("the pointer for the result is NULL");
}

const RuntimeValue& read(const bp_value* value) {
  if (value == nullptr) invalid("the value is NULL");
  return *static_cast<const RuntimeValue*>(value);
}

/// Outputs are handed to kernels as const values, since only the host changes what they are.
RuntimeValue& written(const bp_value* value) { return const_cast<RuntimeValue&>(read(value)); }

const char* kind_name(const RuntimeValue& value) {
  switch (value.kind) {
    case BP_VALUE_TENSOR:
      return value.element() == DataType::String ? "a string tensor" : "a tensor";
    case BP_VALUE_SEQUENCE:
      return "a sequence";
    case BP_VALUE_OPTIONAL:
      return "an optional";
    case BP_VALUE_MAP:
      return "a map";
    default:
      return "absent";
  }
}

/// The index of a string, checked.
std::size_t string_index(const RuntimeValue& value, std::uint64_t index) {
  if (!value.is_tensor() || value.element() != DataType::String) {
    invalid("the value is ", kind_name(value), ", not a string tensor");
  }
  if (index >= value.strings.size()) {
    invalid("string ", index, " does not exist; the tensor has ", value.strings.size());
  }
  return static_cast<std::size_t>(index);
}

void check_container(const RuntimeValue& value) {
  if (value.kind != BP_VALUE_SEQUENCE && value.kind != BP_VALUE_OPTIONAL) {
    invalid("the value is ", kind_name(value), ", not a sequence or an optional");
  }
}

/// A container that has room, and takes elements of the kind and type.
void check_appendable(const RuntimeValue& value, std::int32_t kind, bp_dtype dtype) {
  check_container(value);
  if (value.kind == BP_VALUE_OPTIONAL && !value.elements.empty()) {
    invalid("the optional holds a value already");
  }
  if (value.type.inner == nullptr) return;
  const Type& wanted = *value.type.inner;
  const bool tensor = kind == BP_VALUE_TENSOR;
  const bool fits =
      (wanted.kind == Type::Kind::Unknown) ||
      (wanted.kind == Type::Kind::Tensor && tensor &&
       (wanted.element == DataType::None || wanted.element == static_cast<DataType>(dtype))) ||
      (wanted.kind == Type::Kind::Sequence && kind == BP_VALUE_SEQUENCE) ||
      (wanted.kind == Type::Kind::Optional && kind == BP_VALUE_OPTIONAL) ||
      (wanted.kind == Type::Kind::Map && kind == BP_VALUE_MAP);
  if (!fits) {
    const std::string_view given = tensor ? name(static_cast<DataType>(dtype)) : "no tensor";
    invalid("an element of ", value.type.to_string(), " is ", wanted.to_string(), ", not ", given);
  }
}

/// A copy that shares what cannot change: elements of other containers.
RuntimeValuePtr as_element(const RuntimeValue& value) {
  if (value.is_element) {
    if (auto shared = value.weak_from_this().lock()) {
      return std::const_pointer_cast<RuntimeValue>(std::move(shared));
    }
  }
  RuntimeValuePtr copy = SpareElements::take();
  if (value.is_tensor()) {
    copy->set_owned_tensor(value.element(), value.dims);
    copy->strings = value.strings;
    if (value.element() != DataType::String) {
      copy_dense(value.description, static_cast<std::byte*>(copy->description.host_ptr));
    }
  } else if (value.kind != BP_VALUE_ABSENT) {
    copy->set_type(value.type);
    copy->elements.clear();
    for (const RuntimeValuePtr& element : value.elements) {
      copy->elements.push_back(as_element(*element));
    }
  }
  return copy;
}

bp_status* string_get(const bp_value* value, std::uint64_t index, bp_str* out) {
  return status_of([&] {
    check_out(out);
    const std::string& string = read(value).strings[string_index(read(value), index)];
    *out = {string.data(), string.size()};
  });
}

bp_status* string_set(const bp_value* value, std::uint64_t index, bp_str text) {
  return status_of([&] {
    RuntimeValue& target = written(value);
    const std::size_t at = string_index(target, index);
    if (text.data == nullptr && text.size != 0) invalid("a text of ", text.size, " bytes is NULL");
    target.strings[at].assign(text.data == nullptr ? "" : text.data, text.size);
  });
}

bp_status* sequence_size(const bp_value* value, std::uint64_t* out) {
  return status_of([&] {
    check_out(out);
    check_container(read(value));
    *out = read(value).elements.size();
  });
}

bp_status* sequence_at(const bp_value* value, std::uint64_t index, const bp_value** out) {
  return status_of([&] {
    check_out(out);
    const RuntimeValue& container = read(value);
    check_container(container);
    if (index >= container.elements.size()) {
      invalid("element ", index, " does not exist; ", kind_name(container), " has ",
              container.elements.size());
    }
    *out = container.elements[static_cast<std::size_t>(index)].get();
  });
}

/// A dense tensor in host memory of its own, which containers share.
RuntimeValuePtr make_tensor(bp_dtype dtype, std::int32_t rank, const std::int64_t* dims) {
  const auto type = static_cast<DataType>(dtype);
  if (type != DataType::String && element_bits(type) == 0) {
    invalid("the element type ", dtype, " is not known");
  }
  if (rank < 0 || rank > kMaxRank) invalid("a rank of ", rank, " is not from 0 to ", kMaxRank);
  if (rank > 0 && dims == nullptr) invalid("the dims of a tensor of rank ", rank, " are NULL");
  thread_local std::vector<std::int64_t> wanted;  // small, and made once
  wanted.assign(dims, dims + rank);
  RuntimeValuePtr tensor = SpareElements::take();
  tensor->set_owned_tensor(type, wanted);
  return tensor;
}

bp_status* sequence_append(const bp_value* value, bp_dtype dtype, std::int32_t rank,
                           const std::int64_t* dims, const bp_value** out) {
  return status_of([&] {
    check_out(out);
    RuntimeValue& container = written(value);
    RuntimeValuePtr element = make_tensor(dtype, rank, dims);
    check_appendable(container, BP_VALUE_TENSOR, dtype);
    container.elements.push_back(std::move(element));
    *out = container.elements.back().get();
  });
}

bp_status* sequence_append_value(const bp_value* value, const bp_value* element) {
  return status_of([&] {
    RuntimeValue& container = written(value);
    const RuntimeValue& added = read(element);
    if (&added == &container) invalid("a sequence cannot hold itself");
    check_appendable(container, added.kind, added.description.dtype);
    container.elements.push_back(as_element(added));
  });
}

bp_status* map_parts(const bp_value* value, const bp_value** keys, const bp_value** values) {
  return status_of([&] {
    check_out(keys);
    check_out(values);
    const RuntimeValue& map = read(value);
    if (map.kind != BP_VALUE_MAP || map.elements.size() != 2) {
      invalid("the value is ", kind_name(map), ", not a map");
    }
    *keys = map.elements[0].get();
    *values = map.elements[1].get();
  });
}

/// The number of keys or values in a part of a map, and that it is one that such a map may have.
std::int64_t part_size(const RuntimeValue& part, const Type& wanted, const char* word) {
  if (!wanted.is_tensor()) {
    if (part.kind != BP_VALUE_SEQUENCE) {
      invalid("the ", word, " of the map are ", kind_name(part), ", not a sequence");
    }
    if (part.type.inner != nullptr && part.type.inner->to_string() != wanted.to_string()) {
      invalid("the ", word, " of the map are ", part.type.to_string(), ", not of ",
              wanted.to_string());
    }
    return static_cast<std::int64_t>(part.elements.size());
  }
  if (!part.is_tensor() || part.element() != wanted.element || part.description.rank != 1) {
    invalid("the ", word, " of the map are ",
            part.is_tensor() ? text("tensor(", name(part.element()), ") ", to_string(part.dims))
                             : std::string(kind_name(part)),
            ", not a one-dimensional ", wanted.to_string());
  }
  return part.description.dims[0];
}

bp_status* map_set(const bp_value* value, const bp_value* keys, const bp_value* values) {
  return status_of([&] {
    RuntimeValue& map = written(value);
    if (map.kind != BP_VALUE_MAP) invalid("the value is ", kind_name(map), ", not a map");
    const Type element = map.type.inner != nullptr ? *map.type.inner : Type();
    const std::int64_t key_count = part_size(read(keys), Type::tensor(map.type.element), "keys");
    const std::int64_t value_count = part_size(read(values), element, "values");
    if (key_count != value_count) {
      invalid("the map is given ", key_count, " keys and ", value_count, " values");
    }
    RuntimeValuePtr parts[] = {as_element(read(keys)), as_element(read(values))};
    std::move(std::begin(parts), std::end(parts), map.elements.begin());
    for (const RuntimeValuePtr& part : map.elements) part->is_element = true;
  });
}

bp_status* tensor_new(bp_dtype dtype, std::int32_t rank, const std::int64_t* dims,
                      const bp_value** out) {
  return status_of([&] {
    check_out(out);
    *out = release_to_plugin(make_tensor(dtype, rank, dims));
  });
}

/// The type; a kernel that makes many values asks for one type again and again.
const Type& parsed(const char* text) {
  thread_local std::string last;
  thread_local Type type;
  if (text == nullptr || last.empty() || last != text) {
    last.clear();  // should it be none
    type = Type::parse(plugin_text(text));
    last = text;
  }
  return type;
}

bp_status* value_new(const char* type, const bp_value** out) {
  return status_of([&] {
    check_out(out);
    const Type& wanted = parsed(type);
    if (wanted.is_tensor() || wanted.kind == Type::Kind::SparseTensor) {
      invalid("'", wanted.to_string(),
              "' is no sequence, optional or map; tensor_new makes tensors");
    }
    RuntimeValuePtr made = SpareElements::take();
    made->set_type(wanted);
    *out = release_to_plugin(std::move(made));
  });
}

void value_free(const bp_value* value) {
  if (value == nullptr) return;
  const RuntimeValuePtr last = std::move(written(value).kept);  // ends after the value let go of it
}

}  // namespace

const bp_value* release_to_plugin(RuntimeValuePtr value) {
  RuntimeValue& released = *value;
  released.kept = std::move(value);
  return &released;
}

const bp_value_api& value_api() {
  static const bp_value_api api = [] {
    bp_value_api table{};
    table.struct_size = sizeof(table);
    table.string_get = string_get;
    table.string_set = string_set;
    table.sequence_size = sequence_size;
    table.sequence_at = sequence_at;
    table.sequence_append = sequence_append;
    table.sequence_append_value = sequence_append_value;
    table.map_parts = map_parts;
    table.map_set = map_set;
    table.tensor_new = tensor_new;
    table.value_new = value_new;
    table.value_free = value_free;
    return table;
  }();
  return api;
}

}  // namespace backplane::core

// Attributes that plugins give, checked and copied.
#include <algorithm>
#include <cstddef>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/plugin_host/graph_view.hpp"
#include "core/plugin_host/limits.hpp"
#include "core/plugin_host/plugin_description.hpp"
#include "core/plugin_host/plugin_text.hpp"
#include "core/plugin_host/runtime_value.hpp"

namespace backplane::core {
namespace {

bool is_list(std::int32_t type) {
  return type == BP_ATTRIBUTE_FLOATS || type == BP_ATTRIBUTE_INTS || type == BP_ATTRIBUTE_STRINGS ||
         type == BP_ATTRIBUTE_TENSORS || type == BP_ATTRIBUTE_GRAPHS || type == BP_ATTRIBUTE_TYPES;
}

/// The entries of the array that fits the type.
template <class Entry>
const Entry* entries(const Entry* array, std::uint32_t count, const std::string& what) {
  if (count > 0 && array == nullptr) invalid(what, ": ", count, " entries are NULL");
  return array;
}

ConstantPtr read_tensor(const bp_tensor* tensor, const std::string& what) {
  check_struct(tensor, BP_SIZE_V1(bp_tensor, format), what);
  const auto type = static_cast<DataType>(tensor->dtype);
  if (type == DataType::String) {
    invalid(what, ": a string tensor has no memory; give it in `values`");
  }
  if (element_bits(type) == 0) invalid(what, ": the element type ", tensor->dtype, " is not known");
  if (tensor->rank < 0 || tensor->rank > kMaxRank ||
      (tensor->rank > 0 && tensor->dims == nullptr)) {
    invalid(what, ": a rank of ", tensor->rank, " or its dims are wrong");
  }
  const std::vector<std::int64_t> dims(tensor->dims, tensor->dims + tensor->rank);
  const auto bytes = storage_bytes(type, static_cast<std::uint64_t>(element_count(dims)));
  if (!bytes || *bytes != tensor->bytes) {
    invalid(what, ": ", tensor->bytes, " bytes do not fit ", name(type), to_string(dims));
  }
  std::vector<std::byte> dense(static_cast<std::size_t>(tensor->bytes));
  copy_dense(*tensor, dense.data());
  return Constant::copy_of(type, dims, dense);
}

/// A value that the host made, of any element type.
ConstantPtr read_value(const bp_value* value, const std::string& what) {
  check_struct(value, BP_SIZE_V1(bp_value, tensor), what);
  const auto& given = *static_cast<const RuntimeValue*>(value);
  if (!given.is_tensor()) invalid(what, ": one of its values is no tensor");
  return given.element() == DataType::String ? given.to_constant()
                                             : read_tensor(given.tensor, what);
}

std::string read_string(const bp_str& string, const std::string& what) {
  if (string.data == nullptr && string.size != 0) invalid(what, ": a text is NULL");
  return string.data == nullptr ? "" : std::string(string.data, string.size);
}

void read_entries(const bp_attribute& raw, const std::string& what, Attribute& attribute) {
  const std::uint32_t count = raw.count;
  switch (raw.type) {
    case BP_ATTRIBUTE_FLOAT:
    case BP_ATTRIBUTE_FLOATS:
      entries(raw.floats, count, what);
      attribute.floats.assign(raw.floats, raw.floats + count);
      break;
    case BP_ATTRIBUTE_INT:
    case BP_ATTRIBUTE_INTS:
      entries(raw.ints, count, what);
      attribute.ints.assign(raw.ints, raw.ints + count);
      break;
    case BP_ATTRIBUTE_STRING:
    case BP_ATTRIBUTE_STRINGS:
      entries(raw.strings, count, what);
      std::for_each(raw.strings, raw.strings + count, [&](const bp_str& string) {
        attribute.strings.push_back(read_string(string, what));
      });
      break;
    case BP_ATTRIBUTE_TENSOR:
    case BP_ATTRIBUTE_TENSORS:
      if (raw.values != nullptr) {
        std::for_each(raw.values, raw.values + count, [&](const bp_value* value) {
          attribute.tensors.push_back(read_value(value, what));
        });
        break;
      }
      entries(raw.tensors, count, what);
      std::for_each(raw.tensors, raw.tensors + count, [&](const bp_tensor* tensor) {
        attribute.tensors.push_back(read_tensor(tensor, what));
      });
      break;
    case BP_ATTRIBUTE_TYPE:
    case BP_ATTRIBUTE_TYPES:
      entries(raw.types, count, what);
      std::for_each(raw.types, raw.types + count, [&](const char* type) {
        attribute.types.push_back(Type::parse(plugin_text(type)));
      });
      break;
    case BP_ATTRIBUTE_GRAPH:
    case BP_ATTRIBUTE_GRAPHS:
      invalid(what, ": graphs are for reading only");
    default:
      invalid(what, ": the attribute type ", raw.type, " is not known");
  }
}

}  // namespace

std::pair<std::string, Attribute> read_attribute(const bp_attribute& attribute) {
  check_struct(&attribute, BP_SIZE_V1(bp_attribute, values), "an attribute");
  if (!is_plain_text(attribute.name)) invalid("an attribute has no name");
  const std::string what = "attribute " + quoted(attribute.name);
  if (!is_list(attribute.type) && attribute.count != 1) {
    invalid(what, ": a single value has a count of 1, not ", attribute.count);
  }
  std::pair<std::string, Attribute> read{attribute.name, {}};
  read.second.type = static_cast<Attribute::Type>(attribute.type);
  read_entries(attribute, what, read.second);
  return read;
}

}  // namespace backplane::core

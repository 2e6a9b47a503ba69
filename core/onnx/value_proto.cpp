// https://onnx.ai/onnx/repo-docs/IR.html; SequenceProto, MapProto and OptionalProto in onnx-data.proto
#include "core/onnx/value_proto.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <onnx/onnx_pb.h>
#include <utility>

#include <onnx/onnx-data.pb.h>

#include "core/base/error.hpp"
#include "core/base/quote.hpp"
#include "core/onnx/tensors.hpp"

namespace backplane::core {
namespace {

using ::onnx::MapProto;
using ::onnx::OptionalProto;
using ::onnx::SequenceProto;
using ::onnx::TensorProto;

std::shared_ptr<const Type> shared(Type type) {
  return std::make_shared<const Type>(std::move(type));
}

class ValueReader {
 public:
  ValueReader() : tensors_({}, nullptr, ExternalData({}, false)) {}

  Datum read(const TensorProto& proto) {
    Datum datum;
    datum.name = proto.name();
    datum.tensor = tensors_.read(
        proto, proto.name().empty() ? std::string("tensor") : "tensor " + quoted(proto.name()));
    datum.type = Type::tensor(datum.tensor->type(), datum.tensor->dims());
    return datum;
  }

  Datum read(const SequenceProto& proto) {
    Datum datum;
    datum.name = proto.name();
    switch (proto.elem_type()) {
      case SequenceProto::UNDEFINED:
        break;
      case SequenceProto::TENSOR:
        add_all(datum, proto.tensor_values());
        break;
      case SequenceProto::SPARSE_TENSOR:
        refuse_sparse();
      case SequenceProto::SEQUENCE:
        add_all(datum, proto.sequence_values());
        break;
      case SequenceProto::MAP:
        add_all(datum, proto.map_values());
        break;
      case SequenceProto::OPTIONAL:
        add_all(datum, proto.optional_values());
        break;
    }
    const int held = proto.tensor_values_size() + proto.sequence_values_size() +
                     proto.map_values_size() + proto.optional_values_size() +
                     proto.sparse_tensor_values_size();
    if (static_cast<std::size_t>(held) != datum.elements.size()) {
      invalid("sequence ", quoted(proto.name()),
              " has elements of another kind than its elem_type says");
    }
    datum.type.kind = Type::Kind::Sequence;
    datum.type.inner = inner_type(datum);
    return datum;
  }

  Datum read(const OptionalProto& proto) {
    Datum datum;
    datum.name = proto.name();
    switch (proto.elem_type()) {
      case OptionalProto::UNDEFINED:
        break;
      case OptionalProto::TENSOR:
        if (proto.has_tensor_value()) datum.elements.push_back(read(proto.tensor_value()));
        break;
      case OptionalProto::SPARSE_TENSOR:
        refuse_sparse();
      case OptionalProto::SEQUENCE:
        if (proto.has_sequence_value()) datum.elements.push_back(read(proto.sequence_value()));
        break;
      case OptionalProto::MAP:
        if (proto.has_map_value()) datum.elements.push_back(read(proto.map_value()));
        break;
      case OptionalProto::OPTIONAL:
        if (proto.has_optional_value()) datum.elements.push_back(read(proto.optional_value()));
        break;
    }
    datum.type.kind = Type::Kind::Optional;
    datum.type.inner = inner_type(datum);
    return datum;
  }

  Datum read(const MapProto& proto) {
    const auto key_type = to_data_type(proto.key_type());
    Datum datum;
    datum.name = proto.name();
    Datum keys;
    keys.tensor = key_type == DataType::String ? string_keys(proto) : number_keys(proto, key_type);
    keys.type = Type::tensor(key_type, keys.tensor->dims());
    Datum values = read(proto.values());
    if (static_cast<std::uint64_t>(keys.tensor->element_count()) != values.elements.size()) {
      invalid("map ", quoted(proto.name()), " has ", keys.tensor->element_count(), " keys and ",
              values.elements.size(), " values");
    }
    datum.type.kind = Type::Kind::Map;
    datum.type.element = key_type;
    datum.type.inner = values.type.inner;
    datum.elements.push_back(std::move(keys));
    datum.elements.push_back(std::move(values));
    return datum;
  }

 private:
  template <class Values>
  void add_all(Datum& datum, const Values& values) {
    for (const auto& value : values) datum.elements.push_back(read(value));
  }

  [[noreturn]] static void refuse_sparse() {
    throw Error(Code::Unsupported, "values with sparse tensors are not supported");
  }

  /// The type of the elements; of several tensors without a shape, unless all have the same.
  static std::shared_ptr<const Type> inner_type(const Datum& datum) {
    if (datum.elements.empty()) return nullptr;
    Type type = datum.elements.front().type;
    for (const Datum& element : datum.elements) {
      if (element.type.to_string() != type.to_string()) {
        invalid("value ", quoted(datum.name), " has elements of types ", type.to_string(), " and ",
                element.type.to_string());
      }
      if (element.type.shape != type.shape) type.shape.reset();
    }
    return shared(std::move(type));
  }

  static ConstantPtr string_keys(const MapProto& proto) {
    return std::make_shared<const Constant>(
        std::vector<std::int64_t>{proto.string_keys_size()},
        std::vector<std::string>(proto.string_keys().begin(), proto.string_keys().end()));
  }

  static ConstantPtr number_keys(const MapProto& proto, DataType type) {
    switch (type) {
      case DataType::Int8:
        return keys_of<std::int8_t>(proto, type);
      case DataType::Int16:
        return keys_of<std::int16_t>(proto, type);
      case DataType::Int32:
        return keys_of<std::int32_t>(proto, type);
      case DataType::Int64:
        return keys_of<std::int64_t>(proto, type);
      case DataType::UInt8:
        return keys_of<std::uint8_t>(proto, type);
      case DataType::UInt16:
        return keys_of<std::uint16_t>(proto, type);
      case DataType::UInt32:
        return keys_of<std::uint32_t>(proto, type);
      case DataType::UInt64:
        return keys_of<std::uint64_t>(proto, type);
      default:
        invalid("map ", quoted(proto.name()), " has keys of type ", name(type),
                ", which ONNX does not allow");
    }
  }

  template <class Key>
  static ConstantPtr keys_of(const MapProto& proto, DataType type) {
    std::vector<Key> keys;
    keys.reserve(static_cast<std::size_t>(proto.keys_size()));
    for (const std::int64_t key : proto.keys()) keys.push_back(static_cast<Key>(key));
    return Constant::copy_of(type, {proto.keys_size()}, std::as_bytes(std::span<const Key>(keys)));
  }

  TensorReader tensors_;
};

template <class Proto>
Datum parse(std::span<const std::byte> bytes, const char* what) {
  Proto proto;
  const bool fits = bytes.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max());
  if (!fits || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    invalid("the bytes are no ", what, ", or a truncated one");
  }
  return ValueReader().read(proto);
}

template <class Key>
void add_keys(MapProto& proto, const Constant& keys) {
  std::vector<Key> values(keys.stored_bytes().size() / sizeof(Key));
  if (!values.empty())
    std::memcpy(values.data(), keys.stored_bytes().data(), values.size() * sizeof(Key));
  for (const Key value : values) proto.add_keys(static_cast<std::int64_t>(value));
}

void set_keys(MapProto& proto, const Constant& keys) {
  proto.set_key_type(static_cast<int>(keys.type()));
  switch (keys.type()) {
    case DataType::Int8:
      return add_keys<std::int8_t>(proto, keys);
    case DataType::Int16:
      return add_keys<std::int16_t>(proto, keys);
    case DataType::Int32:
      return add_keys<std::int32_t>(proto, keys);
    case DataType::Int64:
      return add_keys<std::int64_t>(proto, keys);
    case DataType::UInt8:
      return add_keys<std::uint8_t>(proto, keys);
    case DataType::UInt16:
      return add_keys<std::uint16_t>(proto, keys);
    case DataType::UInt32:
      return add_keys<std::uint32_t>(proto, keys);
    case DataType::UInt64:
      return add_keys<std::uint64_t>(proto, keys);
    case DataType::String:
      for (const std::string& key : keys.strings()) proto.add_string_keys(key);
      return;
    default:
      invalid("a map cannot have keys of type ", name(keys.type()));
  }
}

const Constant& tensor_of(const Datum& value) {
  if (!value.tensor) invalid("value ", quoted(value.name), " is no tensor, or has no contents");
  return *value.tensor;
}

void write(const Datum& value, SequenceProto& proto);

/// A slice of `tensor` for each entry of its first dimension.
void add_slices(const Constant& tensor, SequenceProto& proto) {
  const std::int64_t count = tensor.dims().empty() ? 0 : tensor.dims().front();
  const std::vector<std::int64_t> dims(tensor.dims().begin() + 1, tensor.dims().end());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    if (tensor.type() == DataType::String) {
      const std::size_t size = tensor.strings().size() / static_cast<std::size_t>(count);
      const auto begin = tensor.strings().begin() + static_cast<std::ptrdiff_t>(index * size);
      *proto.add_tensor_values() = to_proto(
          Constant(dims, {begin, begin + static_cast<std::ptrdiff_t>(size)}), std::string());
      continue;
    }
    if (element_bits(tensor.type()) < 8)
      invalid("a map's values of ", name(tensor.type()), " must be given one by one");
    const std::size_t size = tensor.stored_bytes().size() / static_cast<std::size_t>(count);
    *proto.add_tensor_values() = to_proto(
        *Constant::copy_of(tensor.type(), dims, tensor.stored_bytes().subspan(index * size, size)),
        std::string());
  }
}

void write(const Datum& value, MapProto& proto) {
  if (value.elements.size() != 2)
    invalid("map ", quoted(value.name), " needs two elements, its keys and its values");
  proto.set_name(value.name);
  const Constant& keys = tensor_of(value.elements[0]);
  set_keys(proto, keys);
  const Datum& values = value.elements[1];
  if (values.type.kind == Type::Kind::Sequence) {
    write(values, *proto.mutable_values());
  } else {
    const Constant& tensor = tensor_of(values);
    if (tensor.dims().empty() || tensor.dims().front() != keys.element_count()) {
      invalid("map ", quoted(value.name), " has ", keys.element_count(),
              " keys, but values of shape ", to_string(tensor.dims()));
    }
    proto.mutable_values()->set_elem_type(SequenceProto::TENSOR);
    add_slices(tensor, *proto.mutable_values());
  }
}

void write(const Datum& value, OptionalProto& proto);

SequenceProto::DataType element_kind(const Type& sequence) {
  if (!sequence.inner) return SequenceProto::UNDEFINED;
  switch (sequence.inner->kind) {
    case Type::Kind::Tensor:
      return SequenceProto::TENSOR;
    case Type::Kind::Sequence:
      return SequenceProto::SEQUENCE;
    case Type::Kind::Map:
      return SequenceProto::MAP;
    case Type::Kind::Optional:
      return SequenceProto::OPTIONAL;
    default:
      return SequenceProto::UNDEFINED;
  }
}

void write(const Datum& value, SequenceProto& proto) {
  if (!value.name.empty()) proto.set_name(value.name);
  proto.set_elem_type(element_kind(value.type));
  for (const Datum& element : value.elements) {
    switch (element.type.kind) {
      case Type::Kind::Tensor:
        *proto.add_tensor_values() = to_proto(tensor_of(element), element.name);
        break;
      case Type::Kind::Sequence:
        write(element, *proto.add_sequence_values());
        break;
      case Type::Kind::Map:
        write(element, *proto.add_map_values());
        break;
      case Type::Kind::Optional:
        write(element, *proto.add_optional_values());
        break;
      default:
        invalid("sequence ", quoted(value.name), " has an element of no known type");
    }
    if (proto.elem_type() == SequenceProto::UNDEFINED) {
      Type type;
      type.inner = shared(element.type);
      proto.set_elem_type(element_kind(type));
    }
  }
}

void write(const Datum& value, OptionalProto& proto) {
  if (!value.name.empty()) proto.set_name(value.name);
  const Type::Kind kind = !value.elements.empty() ? value.elements.front().type.kind
                          : value.type.inner      ? value.type.inner->kind
                                                  : Type::Kind::Unknown;
  const Datum* element = value.elements.empty() ? nullptr : &value.elements.front();
  switch (kind) {
    case Type::Kind::Tensor:
      proto.set_elem_type(OptionalProto::TENSOR);
      if (element != nullptr)
        *proto.mutable_tensor_value() = to_proto(tensor_of(*element), element->name);
      break;
    case Type::Kind::Sequence:
      proto.set_elem_type(OptionalProto::SEQUENCE);
      if (element != nullptr) write(*element, *proto.mutable_sequence_value());
      break;
    case Type::Kind::Map:
      proto.set_elem_type(OptionalProto::MAP);
      if (element != nullptr) write(*element, *proto.mutable_map_value());
      break;
    case Type::Kind::Optional:
      proto.set_elem_type(OptionalProto::OPTIONAL);
      if (element != nullptr) write(*element, *proto.mutable_optional_value());
      break;
    default:
      proto.set_elem_type(OptionalProto::UNDEFINED);
      break;
  }
}

template <class Proto>
std::string serialized(const Datum& value) {
  Proto proto;
  write(value, proto);
  return proto.SerializeAsString();
}

}  // namespace

Datum parse_value(std::span<const std::byte> bytes, Type::Kind kind) {
  switch (kind) {
    case Type::Kind::Unknown:
    case Type::Kind::Tensor:
      return parse<TensorProto>(bytes, "TensorProto");
    case Type::Kind::Sequence:
      return parse<SequenceProto>(bytes, "SequenceProto");
    case Type::Kind::Optional:
      return parse<OptionalProto>(bytes, "OptionalProto");
    case Type::Kind::Map:
      return parse<MapProto>(bytes, "MapProto");
    case Type::Kind::SparseTensor:
      break;
  }
  throw Error(Code::Unsupported, "sparse tensors are not supported as values");
}

std::string serialize_value(const Datum& value) {
  switch (value.type.kind) {
    case Type::Kind::Tensor:
      return to_proto(tensor_of(value), value.name).SerializeAsString();
    case Type::Kind::Sequence:
      return serialized<SequenceProto>(value);
    case Type::Kind::Optional:
      return serialized<OptionalProto>(value);
    case Type::Kind::Map:
      return serialized<MapProto>(value);
    default:
      throw Error(Code::Unsupported,
                  text("value ", quoted(value.name), " is of a type that has no proto"));
  }
}

}  // namespace backplane::core

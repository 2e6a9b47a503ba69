#include "core/onnx/types.hpp"

#include <memory>

#include "core/base/error.hpp"
#include "core/onnx/tensors.hpp"

namespace backplane::core {
namespace {

using ::onnx::TypeProto;

template <class TensorType>
Type to_tensor_type(const TensorType& proto, Type::Kind kind) {
  Type type;
  type.kind = kind;
  if (proto.elem_type() != 0) type.element = to_data_type(proto.elem_type());
  if (!proto.has_shape()) return type;
  type.shape.emplace();
  for (const auto& dim : proto.shape().dim()) {
    Dim result;
    if (dim.has_dim_value() && dim.dim_value() >= 0) result.size = dim.dim_value();
    if (dim.has_dim_param()) result.symbol = dim.dim_param();
    type.shape->push_back(std::move(result));
  }
  return type;
}

std::shared_ptr<const Type> to_inner(bool present, const TypeProto& proto) {
  return present ? std::make_shared<const Type>(to_type(proto)) : nullptr;
}

template <class TensorType>
void fill(TensorType& proto, const Type& type) {
  proto.set_elem_type(static_cast<int>(type.element));
  if (!type.shape) return;
  auto* shape = proto.mutable_shape();
  for (const Dim& dim : *type.shape) {
    auto* added = shape->add_dim();
    if (dim.known()) {
      added->set_dim_value(dim.size);
    } else if (!dim.symbol.empty()) {
      added->set_dim_param(dim.symbol);
    }
  }
}

}  // namespace

Type to_type(const TypeProto& proto) {
  Type type;
  switch (proto.value_case()) {
    case TypeProto::kTensorType:
      return to_tensor_type(proto.tensor_type(), Type::Kind::Tensor);
    case TypeProto::kSparseTensorType:
      return to_tensor_type(proto.sparse_tensor_type(), Type::Kind::SparseTensor);
    case TypeProto::kSequenceType:
      type.kind = Type::Kind::Sequence;
      type.inner =
          to_inner(proto.sequence_type().has_elem_type(), proto.sequence_type().elem_type());
      return type;
    case TypeProto::kOptionalType:
      type.kind = Type::Kind::Optional;
      type.inner =
          to_inner(proto.optional_type().has_elem_type(), proto.optional_type().elem_type());
      return type;
    case TypeProto::kMapType:
      type.kind = Type::Kind::Map;
      if (proto.map_type().key_type() != 0)
        type.element = to_data_type(proto.map_type().key_type());
      type.inner = to_inner(proto.map_type().has_value_type(), proto.map_type().value_type());
      return type;
    case TypeProto::kOpaqueType:
      throw Error(Code::Unsupported, "opaque types are not supported");
    default:
      return type;
  }
}

TypeProto to_proto(const Type& type) {
  TypeProto proto;
  switch (type.kind) {
    case Type::Kind::Unknown:
      break;
    case Type::Kind::Tensor:
      fill(*proto.mutable_tensor_type(), type);
      break;
    case Type::Kind::SparseTensor:
      fill(*proto.mutable_sparse_tensor_type(), type);
      break;
    case Type::Kind::Sequence:
      proto.mutable_sequence_type();
      if (type.inner) *proto.mutable_sequence_type()->mutable_elem_type() = to_proto(*type.inner);
      break;
    case Type::Kind::Optional:
      proto.mutable_optional_type();
      if (type.inner) *proto.mutable_optional_type()->mutable_elem_type() = to_proto(*type.inner);
      break;
    case Type::Kind::Map:
      proto.mutable_map_type()->set_key_type(static_cast<int>(type.element));
      if (type.inner) *proto.mutable_map_type()->mutable_value_type() = to_proto(*type.inner);
      break;
  }
  return proto;
}

}  // namespace backplane::core

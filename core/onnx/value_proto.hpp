// Values as serialized protos: TensorProto, SequenceProto, OptionalProto, MapProto.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/graph/constant.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {

/// A value outside any graph. A sequence has its elements; an optional has one or none; a map has two: its keys
/// (a tensor) and its values (a tensor or a sequence).
struct Datum {
  Type type;
  std::string name;
  ConstantPtr tensor;  ///< of a tensor
  std::vector<Datum> elements;
};

/// Reads a value of the given kind (Unknown: TensorProto). Throws InvalidArgument for bytes that are none.
Datum parse_value(std::span<const std::byte> bytes, Type::Kind kind);

/// The serialized proto of a value.
std::string serialize_value(const Datum& value);

}  // namespace backplane::core

// Types and shapes of values, as far as they are known before a run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/data_type.hpp"

namespace backplane::core {

/// A dimension: a size, or unknown (-1), then perhaps with a symbol. Equal symbols are equal sizes.
struct Dim {
  std::int64_t size = -1;
  std::string symbol;

  bool known() const { return size >= 0; }
  bool operator==(const Dim&) const = default;
};

using Shape = std::vector<Dim>;

/// The type of a value: ONNX's TypeProto.
struct Type {
  enum class Kind { Unknown, Tensor, SparseTensor, Sequence, Optional, Map };

  Kind kind = Kind::Unknown;
  DataType element = DataType::None;  ///< of a tensor; the key's type of a map
  std::optional<Shape> shape;         ///< of a tensor; nullopt: rank unknown
  std::shared_ptr<const Type> inner;  ///< of a sequence, optional, map

  static Type tensor(DataType element, std::optional<Shape> shape = std::nullopt);
  /// From dims, -1 for an unknown one.
  static Type tensor(DataType element, const std::vector<std::int64_t>& dims);

  bool is_tensor() const { return kind == Kind::Tensor; }
  bool is_static() const;  ///< a tensor all of whose dims are known

  /// ONNX's type string without shape: "tensor(float)", "seq(tensor(int64))"; "" when unknown.
  std::string to_string() const;
  /// The inverse; throws InvalidArgument naming the text.
  static Type parse(const std::string& text);
};

/// "[1,batch,?]".
std::string to_string(const Shape& shape);
std::string to_string(const std::vector<std::int64_t>& dims);

/// The product of dims; throws InvalidArgument when one is negative or the product overflows.
std::int64_t element_count(const std::vector<std::int64_t>& dims);

}  // namespace backplane::core

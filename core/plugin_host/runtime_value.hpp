// Values while they are alive: what plugins see as bp_value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backplane/plugin_api.h"
#include "core/graph/constant.hpp"
#include "core/graph/type.hpp"

namespace backplane::core {

class ImportedMemory;
struct RuntimeValue;
using RuntimeValuePtr = std::shared_ptr<RuntimeValue>;

/// A value of a run. `bp_value::tensor` points at `description`, whose dims and strides point into
/// this object: it stays where it is.
///
/// Elements of sequences, optionals and maps never change once the kernel that made them is done, so
/// containers share them.
struct RuntimeValue : bp_value, std::enable_shared_from_this<RuntimeValue> {
  bp_tensor description;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::vector<std::string> strings;       ///< of a string tensor
  std::vector<RuntimeValuePtr> elements;  ///< of a sequence; of an optional, one or none; of a map,
                                          ///< keys and values
  Type type;                              ///< kept for what is no tensor
  std::shared_ptr<void> memory;           ///< keeps host memory alive, where this value owns it
  std::shared_ptr<ImportedMemory>
      imported;  ///< memory of the program's that it lies in: neither replaced nor resized
  bool is_element = false;  ///< of a container: shared instead of copied
  bool read_only = false;   ///< lies in host memory of the program's that nobody may write
  RuntimeValuePtr kept;     ///< itself, while a plugin owns it: see release_to_plugin

  RuntimeValue();  ///< absent
  RuntimeValue(const RuntimeValue&) = delete;
  RuntimeValue& operator=(const RuntimeValue&) = delete;

  bool is_tensor() const { return kind == BP_VALUE_TENSOR; }
  DataType element() const { return static_cast<DataType>(description.dtype); }

  void set_absent();
  /// Lets go of what it owns: host memory, strings, elements. To be described anew.
  void give_back();
  /// A tensor of plain format without memory; `bytes` follows from type and dims. Throws
  /// InvalidArgument when they do not fit into 63 bits.
  void set_tensor(DataType type, const std::vector<std::int64_t>& new_dims);
  /// Dense tensor with host memory of its own, at `alignment` bytes, a power of two (empty strings for string tensors;
  /// other contents are undefined); reuses what it has when that is large enough, aligned, and nobody shares it.
  void set_owned_tensor(DataType type, const std::vector<std::int64_t>& new_dims,
                        std::uint64_t alignment = 64);
  /// Whether `memory` is such memory, of at most `bytes`, that nobody shares.
  bool has_own_memory(std::uint64_t bytes) const;
  /// A constant's contents, borrowed; strings are copied.
  void set_constant(const Constant& constant);
  /// Another kind of value, empty: sequence, optional, map (of no keys).
  void set_type(const Type& new_type);

  /// A dense or strided host tensor's contents as a constant (copied).
  ConstantPtr to_constant() const;
};

/// Copies the elements of a plain host tensor, strided or dense, to dense memory of tensor.bytes.
/// Throws InvalidArgument when the tensor has no host memory, or packed elements with strides.
void copy_dense(const bp_tensor& tensor, std::byte* to);

/// Hands a value to a plugin, which ends it by bp_value_api::value_free.
const bp_value* release_to_plugin(RuntimeValuePtr value);

/// The table that plugins read and write such values by.
const bp_value_api& value_api();

}  // namespace backplane::core

// Operator schemas: ONNX's own, those that plugins bring, and those that this library writes in ONNX's operators
// (function_operator.hpp); a plugin's goes before one of these.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// An input or output of an operator.
struct FormalParam {
  enum class Kind { Required, Optional, Variadic };
  std::string name;
  std::string type;  ///< a type parameter's name, or a fixed ONNX type string
  Kind kind = Kind::Required;
  bool heterogeneous = false;   ///< variadic: each may have a type of its own
  std::uint64_t min_count = 0;  ///< variadic
};

/// An operator as a plugin defines it.
struct CustomSchema {
  struct AttributeDef {
    std::string name;
    Attribute::Type type;
    bool required;
  };
  struct TypeParam {
    std::string name;
    std::vector<std::string> types;  ///< ONNX type strings
  };
  std::string domain, name, doc;
  int since_version = 1;
  std::vector<FormalParam> inputs, outputs;
  std::vector<AttributeDef> attributes;
  std::vector<TypeParam> type_params;
  std::string library;  ///< the file that defines it, for messages
  /// The outputs' types for a node of a graph that holds just that node; empty function: by type parameters.
  std::function<std::vector<Type>(const Graph& graph, const Node& node)> infer;
};

/// What placement needs of a schema, whoever defines it.
struct SchemaInfo {
  int since_version = 0;
  std::vector<FormalParam> inputs, outputs;
  std::map<std::string, std::vector<std::string>> type_params;  ///< name -> ONNX type strings
  bool deterministic = true;

  /// The formal parameter of input `index`, variadic ones extended; nullptr past the end.
  const FormalParam* input(std::size_t index) const;
  const FormalParam* output(std::size_t index) const;
};

/// All schemas that a session knows. Filled before models are loaded, then read-only.
/// Threads: const functions may run concurrently.
class SchemaRegistry {
 public:
  SchemaRegistry();
  ~SchemaRegistry();
  SchemaRegistry(const SchemaRegistry&) = delete;
  SchemaRegistry& operator=(const SchemaRegistry&) = delete;

  /// Adds an operator. Throws InvalidArgument naming both libraries when another one defines the same operator
  /// and version, or when the name is one of ONNX's own in its domain; the same library twice is all right.
  void add(CustomSchema schema);

  /// The schema that version `opset` of the domain selects; nullopt when there is none.
  std::optional<SchemaInfo> find(const std::string& domain, const std::string& op_type,
                                 int opset) const;
  /// All versions of an operator, oldest first; empty when it is unknown. Valid until `add`.
  std::span<const SchemaInfo> versions(const std::string& domain, const std::string& op_type) const;
  /// The nearest known operator names, for messages.
  std::vector<std::string> similar(const std::string& domain, const std::string& op_type) const;

  class Impl;  ///< for the importer: adapts to ONNX's ISchemaRegistry
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace backplane::core

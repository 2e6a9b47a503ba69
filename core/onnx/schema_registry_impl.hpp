// What the importer sees of the schemas: ONNX's own interface, with custom operators in front.
#pragma once

#include <map>
#include <onnx/defs/schema.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

class SchemaRegistry::Impl : public ::onnx::ISchemaRegistry {
 public:
  struct CustomOp {
    CustomSchema definition;
    ::onnx::OpSchema schema;  ///< for ONNX's checks of counts, attributes and types
  };

  /// The custom operator that the version selects, or ONNX's own, or else one of function_operators(); null when there
  /// is none.
  const ::onnx::OpSchema* GetSchema(const std::string& op_type, int version,
                                    const std::string& domain) const override;
  /// The custom operator that the version selects; null for ONNX's own and unknown ones.
  const CustomOp* custom(const std::string& domain, const std::string& op_type, int version) const;
  bool is_known_domain(const std::string& domain) const;
  /// The newest version of a domain of ONNX's own; nullopt for others.
  static std::optional<int> newest_version(const std::string& domain);

  /// Operators of plugins, by domain and name.
  struct CustomVersions {
    std::map<int, CustomOp> ops;
    std::vector<SchemaInfo> infos;  ///< of each, oldest first
  };
  std::map<std::pair<std::string, std::string>, CustomVersions> ops;
};

/// ONNX writes its own domain in two ways; here it is "".
std::string canonical_domain(const std::string& domain);
/// For messages: "ai.onnx" for "".
std::string shown_domain(const std::string& domain);

}  // namespace backplane::core

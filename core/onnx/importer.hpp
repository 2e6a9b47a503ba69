// From ONNX files to models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

/// Metadata of a model that was saved with nodes of a provider's private domains: the domains, separated by ','; the
/// device they are for, and all that makes it differ from others; a sentence for who reads the file.
inline constexpr const char* kPrivateDomainsKey = "backplane.private_domains";
inline constexpr const char* kPrivateDeviceKey = "backplane.device";
inline constexpr const char* kPrivateIdentityKey = "backplane.device_identity";
inline constexpr const char* kPrivateWarningKey = "backplane.warning";

/// An operator of a private domain, which has no schema: what the model's nodes show of it.
struct PrivateOperator {
  std::string domain, op_type;
  std::map<std::string, Attribute::Type> attributes;
};

struct ImportOptions {
  /// Where external data of a model given as bytes lie: a folder, or the file that the bytes were read from. A file's are
  /// beside it. See external_data.hpp for what they may be.
  std::string external_data;
  /// Sizes for symbolic dimensions of graph inputs, by symbol; an unknown symbol is an error naming the known.
  std::map<std::string, std::int64_t> dims;
  /// Likewise by denotation ("DATA_BATCH").
  std::map<std::string, std::int64_t> denotations;
  /// External data in memory, by location; looked at before the folder. The bytes must stay as long as the model.
  std::map<std::string, std::span<const std::byte>> external_bytes;
  /// Asked about a model with private operators before their schemas are looked up; throws when it cannot run here.
  /// Without it such a model is refused.
  std::function<void(const std::map<std::string, std::string>& metadata,
                     const std::vector<PrivateOperator>& operators)>
      accept_private;
};

/// Reads a model. Large initializers stay in the mapped file. Steps: wire check, order, schemas (each node's
/// inputs, outputs, attributes against its operator's schema), function inlining, type and shape inference.
/// Errors: InvalidArgument, Unsupported (an operator, domain or opset that nobody knows), NotFound (the file);
///         one line that names the file, and the node or value.
Model import_file(const std::string& path, const SchemaRegistry& schemas,
                  const ImportOptions& options);

/// Likewise from bytes, which must stay as long as the model: initializers refer to them.
Model import_bytes(std::span<const std::byte> bytes, const SchemaRegistry& schemas,
                   const ImportOptions& options);

/// Likewise of a model whose graph was built and resolved: checks it, inlines nothing, infers types. Contents of
/// initializers are shared.
Model import_built(const Model& built, const SchemaRegistry& schemas, const ImportOptions& options);

/// A sentence that refuses a model with private operators for want of its device.
[[noreturn]] void refuse_private(const std::map<std::string, std::string>& metadata,
                                 const std::string& here);

}  // namespace backplane::core

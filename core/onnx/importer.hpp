// From ONNX files to models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/graph/graph.hpp"
#include "core/onnx/schema_registry.hpp"

namespace backplane::core {

struct ImportOptions {
  /// Where external data of a model given as bytes lies; a file's are beside it. They cannot leave the folder.
  std::string external_data_folder;
  /// Sizes for symbolic dimensions of graph inputs, by symbol; an unknown symbol is an error naming the known.
  std::map<std::string, std::int64_t> dims;
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

}  // namespace backplane::core

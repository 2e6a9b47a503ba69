// What standard_schemas.cpp looks schemas up in; generated.
#pragma once

#include <onnx/defs/schema.h>
#include <span>
#include <string_view>

namespace backplane::core {

/// How to make the schema of a version of one of ONNX's operators.
struct StandardSchema {
  std::string_view name;
  int version;
  std::string_view set;  ///< of which of ONNX's operator sets, "OnnxML"
  ::onnx::OpSchema (*make)();
};

/// All of them, by name and then version.
std::span<const StandardSchema> standard_schema_table();

}  // namespace backplane::core

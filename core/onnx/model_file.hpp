// Writing models to files.
#pragma once

#include <string>

#include "core/graph/graph.hpp"

namespace backplane::core {

/// Where contents of initializers go.
enum class ExternalContents {
  Auto,    ///< into a second file when one would exceed protobuf's 2 GiB
  Always,  ///< into a second file, from 1 KiB on
  Never,
};

/// Writes the model as an ONNX file, in one step: a failure leaves what was there. External contents go to
/// "<file name>.data" beside it, which is put in place first; contents begin at multiples of 4 KiB there, or of 64 bytes
/// below that size.
/// Errors: InvalidArgument naming the path; for Never above 2 GiB; Failed for a full disk.
void save_model(const Model& model, const std::string& path, ExternalContents external,
                bool drop_unused);

/// The model's bytes, as they would stand in a file. Errors: InvalidArgument above 2 GiB.
std::string serialize_model(const Model& model);

}  // namespace backplane::core

// Values in files: .npy, or serialized protos (.pb).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/npy.hpp"
#include "tools/backplane/output_file.hpp"

namespace backplane::cli {

/// The proto that holds a value of an ONNX type: "tensor", "sequence" or "optional".
std::string proto_kind(const std::string& type);

bool is_optional(const std::string& type);
/// Of any optional type, holding nothing.
Value empty_optional();

/// Reads a value for an input of the given ONNX type. Throws Failure (wrong request) naming the file. `check` is
/// asked where the file tells type and shape at its start.
Value read_value(const std::filesystem::path& path, const std::string& type,
                 const HeaderCheck& check = {});

/// ".npy" where numpy has the type, else ".pb".
std::string file_suffix(const ValueView& value);
/// Those that a value of an ONNX type may have: both where the type is "", or says not enough.
std::vector<std::string> file_suffixes(const std::string& type);

/// Writes the value in the form of file_suffix.
void write_value(const ValueView& value, const Append& append);

/// File names for values: safe characters only, and all different.
class FileNames {
 public:
  /// A stem for `name`: [A-Za-z0-9._-], others '_', with a number where it is taken.
  std::string stem(const std::string& name);

 private:
  std::vector<std::string> taken_;
};

}  // namespace backplane::cli

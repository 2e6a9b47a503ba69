// NumPy's .npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "backplane/backplane.hpp"
#include "tools/backplane/output_file.hpp"

namespace backplane::cli {

/// Looks at type and shape before the elements are read; throws where they will not do.
using HeaderCheck = std::function<void(ElementType type, const std::vector<std::int64_t>& dims)>;

/// Reads a tensor: any byte order and axis order, all of numpy's own number types, text and bytes as strings. The
/// types that numpy writes as unnamed bytes (bfloat16, float8) are taken for `expected` where the sizes agree.
/// Throws Failure (wrong request) naming the file and what is wrong with it.
Value read_npy(const std::filesystem::path& path, ElementType expected,
               const HeaderCheck& check = {});

/// True for types that numpy has.
bool npy_holds(ElementType type);

/// Writes a dense tensor of such a type.
void write_npy(const ValueView& value, const Append& append);

}  // namespace backplane::cli

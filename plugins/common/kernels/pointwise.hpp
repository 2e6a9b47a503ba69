// Kernels that compute each element of an output from one element of each operand, wherever those lie: the
// text is made for the operands' types, the number of axes and which operands are repeated along the
// last axis; sizes and strides are arguments, so that nodes of other shapes share the program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"

namespace backplane::common {

/// Walks over operands and one output, all with strides in elements (which may be negative or 0).
struct StridedLoops {
  sdk::Dims dims;                  ///< outermost first; at least one axis
  std::vector<sdk::Dims> strides;  ///< by operand; the output's are the last
};

/// The same walk with as few axes as possible: axes of one element are dropped, neighbours merged where
/// all strides allow it.
inline StridedLoops merge_axes(const StridedLoops& loops) {
  StridedLoops merged;
  merged.strides.resize(loops.strides.size());
  for (std::size_t axis = 0; axis < loops.dims.size(); ++axis) {
    if (loops.dims[axis] == 1) continue;
    bool fits = !merged.dims.empty();
    for (std::size_t k = 0; fits && k < loops.strides.size(); ++k)
      fits = merged.strides[k].back() == loops.strides[k][axis] * loops.dims[axis];
    if (!fits) merged.dims.push_back(1);
    merged.dims.back() *= loops.dims[axis];
    for (std::size_t k = 0; k < loops.strides.size(); ++k) {
      if (!fits) merged.strides[k].push_back(0);
      merged.strides[k].back() = loops.strides[k][axis];
    }
  }
  if (merged.dims.empty()) {
    merged.dims.push_back(1);
    for (sdk::Dims& strides : merged.strides) strides.push_back(0);
  }
  return merged;
}

/// The value of operand `index` in an expression: v0, v1 ...
inline std::string operand_name(std::size_t index) { return sdk::message('v', index); }

/// The index, in elements, that `strides` give: "i0 * s2_0 + i1". Strides 0 and 1 of the last axis (i0) are
/// written into the text, the others are arguments, whose declarations are appended.
inline std::string index_text(const sdk::Dims& strides, const std::string& name,
                              std::string& declarations, std::vector<std::int64_t>& arguments) {
  std::string text;
  const std::size_t rank = strides.size();
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t stride = strides[rank - 1 - axis];
    const std::string index = sdk::message('i', axis);
    if (stride == 0) continue;
    if (!text.empty()) text += " + ";
    if (axis == 0 && stride == 1) {
      text += index;
      continue;
    }
    const std::string argument = sdk::message(name, '_', axis);
    declarations += sdk::message(", i64 ", argument);
    arguments.push_back(stride);
    text += sdk::message(index, " * ", argument);
  }
  return text.empty() ? "0" : text;
}

/// Declares the indices of the axes that stand third from the end and before; the sizes' arguments are appended.
inline std::string outer_indices_text(const sdk::Dims& dims, std::string& declarations,
                                      std::vector<std::int64_t>& arguments) {
  const std::size_t rank = dims.size();
  std::string text;
  if (rank > 2) text += "  i64 rest = GLOBAL_ID(2);\n";
  for (std::size_t axis = 2; axis < rank; ++axis) {
    if (axis + 1 == rank) {
      text += sdk::message("  i64 i", axis, " = rest;\n");
      break;
    }
    declarations += sdk::message(", i64 n", axis);
    arguments.push_back(dims[rank - 1 - axis]);
    text += sdk::message("  i64 i", axis, " = rest % n", axis, ";\n  rest /= n", axis, ";\n");
  }
  return text;
}

/// Declares i0 (last axis) ... and leaves when i0 or i1 is past the end; the sizes' arguments are appended.
inline std::string indices_text(const sdk::Dims& dims, std::string& declarations,
                                std::vector<std::int64_t>& arguments) {
  declarations += ", i64 n0";
  arguments.push_back(dims.back());
  std::string text = "  i64 i0 = GLOBAL_ID(0);\n  if (i0 >= n0) return;\n";
  if (dims.size() > 1) {
    declarations += ", i64 n1";
    arguments.push_back(dims[dims.size() - 2]);
    text += "  i64 i1 = GLOBAL_ID(1);\n  if (i1 >= n1) return;\n";
  }
  return text + outer_indices_text(dims, declarations, arguments);
}

/// How many elements along the last two axes a work item does on processors: loops without a question for each
/// element, of which compilers make vectors, and as much work as is worth an item.
struct Band {
  std::int64_t columns = 1, rows = 1;
  static constexpr std::int64_t kElements = 4096;
  explicit Band(const sdk::Dims& dims, std::int64_t elements = kElements) {
    columns = std::clamp<std::int64_t>(dims.back(), 1, elements);
    if (dims.size() > 1)
      rows = std::clamp<std::int64_t>(elements / columns, 1,
                                      std::max<std::int64_t>(1, dims[dims.size() - 2]));
  }
  /// The work items of launch_sizes() in bands.
  void divide(std::vector<std::int64_t>& sizes) const {
    sizes[0] = (sizes[0] + columns - 1) / columns;
    sizes[1] = (sizes[1] + rows - 1) / rows;
  }
};

/// Opens loops over the elements of a band, which declare i0 and i1; `close` is set to what ends them.
inline std::string loops_text(const sdk::Dims& dims, const Band& band, std::string& declarations,
                              std::vector<std::int64_t>& arguments, std::string& close) {
  declarations += ", i64 n0, i64 columns";
  arguments.push_back(dims.back());
  arguments.push_back(band.columns);
  std::string text = outer_indices_text(dims, declarations, arguments);
  text += "  i64 first = GLOBAL_ID(0) * columns;\n";
  text += "  i64 last = first + columns < n0 ? first + columns : n0;\n";
  if (dims.size() > 1) {
    declarations += ", i64 n1, i64 rows";
    arguments.push_back(dims[dims.size() - 2]);
    arguments.push_back(band.rows);
    text += "  i64 top = GLOBAL_ID(1) * rows;\n";
    text += "  i64 bottom = top + rows < n1 ? top + rows : n1;\n";
    text += "  for (i64 i1 = top; i1 < bottom; ++i1)\n";
  }
  text += "#if defined(__clang__)\n#pragma clang loop vectorize(assume_safety)\n#endif\n";
  close = "  }\n";
  return text + "  for (i64 i0 = first; i0 < last; ++i0) {\n";
}

/// The sizes of the three dimensions that indices_text takes apart, innermost first.
inline std::vector<std::int64_t> launch_sizes(const sdk::Dims& dims) {
  std::vector<std::int64_t> sizes{1, 1, 1};
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    sizes[axis < 2 ? axis : 2] *= dims[dims.size() - 1 - axis];
  return sizes;
}

struct PointwiseText {
  std::string text;
  std::vector<std::int64_t> arguments;  ///< after the memory arguments
};

/// `expression` is of v0, v1 ..., of what `statements` before it declare, and of p0, p1 ..., which are
/// `parameters` further arguments of type `parameter_type`. `types` names the operands' elements and, last, the output's.
/// `in_bands`: a work item does a Band.
inline PointwiseText pointwise_text(const StridedLoops& loops,
                                    const std::vector<std::string>& types,
                                    const std::string& statements, const std::string& expression,
                                    std::size_t parameters, const std::string& parameter_type,
                                    bool in_bands) {
  PointwiseText result;
  std::string memory, declarations, loads, starts, close;
  const std::size_t operands = types.size() - 1;
  const std::string indices =
      in_bands ? loops_text(loops.dims, Band(loops.dims), declarations, result.arguments, close)
               : indices_text(loops.dims, declarations, result.arguments);
  for (std::size_t k = 0; k < operands; ++k) {
    const std::string index =
        index_text(loops.strides[k], sdk::message('s', k), declarations, result.arguments);
    memory += sdk::message("IN(", types[k], ", x", k, "), ");
    starts += sdk::message("  AT(x", k, ");\n");
    loads += sdk::message("  VALUE(", types[k], ") v", k, " = LOAD(", types[k], ", x", k, ", ",
                          index, ");\n");
  }
  const std::string target =
      index_text(loops.strides[operands], "t", declarations, result.arguments);
  for (std::size_t k = 0; k < parameters; ++k)
    declarations += sdk::message(", ", parameter_type, " p", k);
  result.text =
      sdk::message("KERNEL run(", memory, "OUT(", types[operands], ", y)", declarations, ") {\n",
                   starts, "  AT(y);\n", indices, loads, statements, "  STORE(", types[operands],
                   ", y, ", target, ", ", expression, ");\n", close, "}\n");
  return result;
}

}  // namespace backplane::common

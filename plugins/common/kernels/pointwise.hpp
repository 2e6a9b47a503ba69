// Kernels that compute each element of an output from one element of each operand, wherever those lie: the
// text is made for the operands' types, the number of axes and which operands are repeated along the
// last axis; sizes and strides are arguments, so that nodes of other shapes share the program.
//
// Three forms: an item for each element, an item for a few neighbours that are read and written at once (on GPUs, whose
// memory wants that), and an item for a Band of elements (on processors).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "backplane/plugin.hpp"
#include "plugins/common/kernels/neighbours.hpp"

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

/// Declares i0 (last axis) ... and leaves when i0 or i1 is past the end; the sizes' arguments are appended. An item
/// has `width` elements along the last axis, of which i0 is the first.
inline std::string indices_text(const sdk::Dims& dims, std::string& declarations,
                                std::vector<std::int64_t>& arguments, std::int64_t width = 1) {
  declarations += ", i64 n0";
  arguments.push_back(dims.back());
  std::string text = sdk::message("  i64 i0 = GLOBAL_ID(0)",
                                  width == 1 ? std::string() : sdk::message(" * ", width),
                                  ";\n  if (i0 >= n0) return;\n");
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

/// An operand or the output of a walk: the short name of its type, and where its first element is known to lie, in bytes
/// from an address that is a multiple of kWidestBytes.
struct PointwiseOperand {
  std::string type;
  std::uint64_t offset = 0;
};

/// Whether each `width` elements along the last axis begin at a multiple of their size in all that lies along it.
inline bool divides(std::int64_t width, const StridedLoops& loops,
                    const std::vector<PointwiseOperand>& operands) {
  const std::size_t last = loops.dims.size() - 1;
  if (last > 0 && loops.dims[last] % width != 0) return false;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const sdk::Dims& strides = loops.strides[k];
    if (strides[last] == 0) continue;
    const auto bytes = static_cast<std::uint64_t>(width * code_bytes(operands[k].type));
    if (operands[k].offset % bytes != 0) return false;
    for (std::size_t axis = 0; axis < last; ++axis) {
      if (strides[axis] % width != 0) return false;
    }
  }
  return true;
}

/// How many neighbours along the last axis an item has where they are read and written at once: such that the widest
/// access has kWidestBytes, and fewer where rows, or what lies before them, are no multiple of that; 1 where elements do not
/// lie together. What addresses turn out to be is the kernel's question.
inline std::int64_t vector_width(const StridedLoops& loops,
                                 const std::vector<PointwiseOperand>& operands) {
  const std::size_t last = loops.dims.size() - 1;
  if (loops.strides.back()[last] != 1) return 1;
  std::int64_t widest = 1;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const std::int64_t stride = loops.strides[k][last];
    if (stride != 0 && stride != 1) return 1;
    if (stride == 1) widest = std::max(widest, code_bytes(operands[k].type));
  }
  std::int64_t width = kWidestBytes / widest;
  while (width > 1 && !divides(width, loops, operands)) width /= 2;
  return loops.dims[last] < width ? 1 : width;
}

struct PointwiseText {
  std::string text;
  std::vector<std::int64_t> arguments;  ///< after the memory arguments
};

/// `expression` is of v0, v1 ..., of what `statements` before it declare, and of p0, p1 ..., which are
/// `parameters` further arguments of type `parameter_type`.
struct PointwiseBody {
  std::string statements, expression;
  std::size_t parameters = 0;
  std::string parameter_type;
};

/// What a work item does.
struct PointwiseForm {
  bool in_bands = false;   ///< a Band
  std::int64_t width = 1;  ///< as many neighbours: see vector_width
};

/// The statements of an item that has `width` elements from where x0, x1 ... and y point: all at once where there are so
/// many and addresses are multiples of what is moved, and else one by one, where the missing ones are repetitions of the first
/// that nobody stores.
inline std::string vector_statements(const StridedLoops& loops,
                                     const std::vector<PointwiseOperand>& operands,
                                     const PointwiseBody& body, std::int64_t width) {
  const std::size_t inputs = operands.size() - 1;
  const std::string each = sdk::message("UNROLL for (int e = 0; e < ", width, "; ++e)");
  const NeighbourText out(operands[inputs].type, width);
  std::string once, arrays, question = sdk::message("IS_AT(y, ", out.total(), ")");
  std::string words, parts, singles, values;
  for (std::size_t k = 0; k < inputs; ++k) {
    const std::string& type = operands[k].type;
    if (loops.strides[k].back() == 0) {
      once += sdk::message("  VALUE(", type, ") v", k, " = LOAD(", type, ", x", k, ", 0);\n");
      continue;
    }
    const NeighbourText vector(type, width);
    const std::string pointer = sdk::message('x', k), word = sdk::message("word", k),
                      array = sdk::message("near", k);
    question += sdk::message(" && IS_AT(", pointer, ", ", vector.total(), ")");
    arrays += sdk::message("  STORAGE(", type, ") ", array, '[', width, "];\n");
    words += vector.read(pointer, word);
    parts += vector.unpack(word, array);
    singles += sdk::message("      ", array, "[e] = ", pointer, "[e < many ? e : 0];\n");
    values += sdk::message("    VALUE(", type, ") v", k, " = LOAD(", type, ", ", array, ", e);\n");
  }
  return sdk::message("  int many = n0 - i0 < ", width, " ? (int)(n0 - i0) : ", width, ";\n", once,
                      arrays, "  STORAGE(", operands[inputs].type, ") made[", width,
                      "];\n  int is_whole = many == ", width, " && ", question,
                      ";\n  if (is_whole) {\n", words, parts, "  } else {\n    ", each, " {\n",
                      singles, "    }\n  }\n  ", each, " {\n", values, body.statements,
                      "    STORE(", operands[inputs].type, ", made, e, ", body.expression,
                      ");\n  }\n  if (is_whole) {\n", out.write("y", "made"), "  } else {\n    ",
                      each, " {\n      if (e < many) y[e] = made[e];\n", "    }\n  }\n");
}

/// The last of `operands` is the output.
inline PointwiseText pointwise_text(const StridedLoops& loops,
                                    const std::vector<PointwiseOperand>& operands,
                                    const PointwiseBody& body, const PointwiseForm& form) {
  PointwiseText result;
  std::string memory, declarations, loads, starts, seeks, close;
  const std::size_t inputs = operands.size() - 1;
  const std::string& out = operands[inputs].type;
  const std::string indices =
      form.in_bands
          ? loops_text(loops.dims, Band(loops.dims), declarations, result.arguments, close)
          : indices_text(loops.dims, declarations, result.arguments, form.width);
  for (std::size_t k = 0; k < inputs; ++k) {
    const std::string& type = operands[k].type;
    const std::string index =
        index_text(loops.strides[k], sdk::message('s', k), declarations, result.arguments);
    memory += sdk::message("IN(", type, ", x", k, "), ");
    starts += sdk::message("  AT(x", k, ");\n");
    seeks += sdk::message("  x", k, " += ", index, ";\n");
    loads +=
        sdk::message("  VALUE(", type, ") v", k, " = LOAD(", type, ", x", k, ", ", index, ");\n");
  }
  const std::string target = index_text(loops.strides[inputs], "t", declarations, result.arguments);
  for (std::size_t k = 0; k < body.parameters; ++k)
    declarations += sdk::message(", ", body.parameter_type, " p", k);
  const std::string statements =
      form.width > 1 ? sdk::message(seeks, "  y += ", target, ";\n",
                                    vector_statements(loops, operands, body, form.width))
                     : sdk::message(loads, body.statements, "  STORE(", out, ", y, ", target, ", ",
                                    body.expression, ");\n");
  result.text = sdk::message(form.width > 1 ? kNeighbourWords : "", "KERNEL run(", memory, "OUT(",
                             out, ", y)", declarations, ") {\n", starts, "  AT(y);\n", indices,
                             statements, close, "}\n");
  return result;
}

}  // namespace backplane::common

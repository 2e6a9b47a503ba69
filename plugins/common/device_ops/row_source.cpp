#include "plugins/common/device_ops/row_source.hpp"

#include <algorithm>

#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// An operand beside a row.
enum class Along : std::uint8_t {
  kOnce,    ///< one element for the whole row
  kDense,   ///< the elements lie as those of the row
  kStrided  ///< repeated along some of the row's axes
};

Along along_of(const Dims& strides, DimsView dims) {
  bool is_once = true, is_dense = true;
  std::int64_t dense = 1;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    if (dims[axis] == 1) continue;
    is_once = is_once && strides[axis] == 0;
    is_dense = is_dense && strides[axis] == dense;
    dense *= dims[axis];
  }
  return is_once ? Along::kOnce : is_dense ? Along::kDense : Along::kStrided;
}

std::string pointer_of(std::size_t operand) { return sdk::message('x', operand); }

/// Statements that move each operand's pointer to the row's first element of it.
std::string seeking(Walk& walk, const common::StridedLoops& outer) {
  const std::size_t rank = outer.dims.size();
  std::string text = "  {\n  i64 rest = row;\n";
  for (std::size_t axis = rank; axis-- > 0;) {
    const std::string size = sdk::message("outer", axis);
    if (axis == 0) {
      text += "  i64 at0 = rest;\n";
      break;
    }
    walk.number(size, outer.dims[axis]);
    text += sdk::message("  i64 at", axis, " = rest % ", size, ";\n  rest /= ", size, ";\n");
  }
  for (std::size_t operand = 0; operand < outer.strides.size(); ++operand) {
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const std::int64_t stride = outer.strides[operand][axis];
      if (stride == 0) continue;
      const std::string step = sdk::message("step", operand, '_', axis);
      walk.number(step, stride);
      text += sdk::message("  ", pointer_of(operand), " += at", axis, " * ", step, ";\n");
    }
  }
  return text + "  }\n";
}

/// Where element k of the row lies in operands that are repeated along some of its axes. Sizes and strides are arguments,
/// which functions are given as parameters.
class Offsets {
 public:
  Offsets(Walk& walk, RowReading& reading) : walk_(walk), reading_(reading) {}

  std::string of(const common::StridedLoops& inner, std::size_t index, std::size_t operand) {
    std::string text, left = "(k)";
    for (std::size_t axis = inner.dims.size(); axis-- > 0;) {
      const std::string size = sdk::message("inner", axis);
      const std::int64_t stride = inner.strides[index][axis];
      if (axis > 0 && index == 0) add(size, inner.dims[axis]);
      const std::string at = axis > 0 ? sdk::message(left, " % (INDEX)", size) : left;
      left = sdk::message('(', left, " / (INDEX)", size, ')');
      if (stride == 0) continue;
      const std::string step = sdk::message("along", operand, '_', axis);
      add(step, stride);
      text += sdk::message(text.empty() ? "" : " + ", at, " * (INDEX)", step);
    }
    return sdk::message('(', text, ')');
  }

 private:
  void add(const std::string& name, std::int64_t value) {
    walk_.number(name, value);
    reading_.parameters += sdk::message("i64 ", name, ", ");
    reading_.arguments += sdk::message(name, ", ");
  }

  Walk& walk_;
  RowReading& reading_;
};

/// The strides of operands over some of the axes.
common::StridedLoops loops_over(DimsView dims, const std::vector<Dims>& strides, std::size_t begin,
                                std::size_t end) {
  const auto part = [&](const auto& whole) {
    return Dims(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                whole.begin() + static_cast<std::ptrdiff_t>(end));
  };
  common::StridedLoops loops{part(dims), {}};
  for (const Dims& each : strides) loops.strides.push_back(part(each));
  return loops;
}

/// The expression as a function of the operands' elements.
std::string made_function(std::size_t operands, const std::string& statements,
                          const std::string& result) {
  std::string parameters;
  for (std::size_t i = 0; i < operands; ++i)
    parameters += sdk::message(i == 0 ? "" : ", ", "REAL v", i);
  return sdk::message("FUNCTION REAL made_of(", parameters.empty() ? "void" : parameters, ") {\n",
                      statements, "  return ", result, ";\n}\n");
}

}  // namespace

RowSource::RowSource(const sdk::Node& node)
    : is_made_(node.has("statements")),
      operands_(is_made_ ? static_cast<std::uint32_t>(node.get_int("operands", 0)) : 1),
      dims_(node),
      type_(static_cast<DataType>(node.get_int("type", BP_FLOAT))),
      statements_(is_made_ ? node.get_string("statements", "") : ""),
      result_(is_made_ ? node.get_string("result", "") : "") {}

RowElements RowSource::elements(const sdk::PrepareContext& ctx) const {
  if (is_made_) return {dims_.of(ctx, operands_), type_};
  const DimsView dims = ctx.input(0).dims();
  return {Dims(dims.begin(), dims.end()), ctx.input(0).type()};
}

RowReading RowSource::add_to(Walk& walk, const sdk::PrepareContext& ctx, int axis) const {
  if (is_made_) return add_operands(walk, ctx, axis);
  walk.in("x", input(0), ctx.input(0).type());
  return {};
}

RowReading RowSource::add_operands(Walk& walk, const sdk::PrepareContext& ctx, int axis) const {
  RowReading reading;
  const Dims dims = dims_.of(ctx, operands_);
  std::vector<Dims> strides;
  std::vector<const char*> codes;
  for (std::uint32_t i = 0; i < operands_; ++i) {
    const sdk::Tensor x = ctx.input(i);
    strides.push_back(broadcast_view(input(i), x.type(), x.dims(), dims).strides);
    codes.push_back(type_code(x.type()));
    walk.in(pointer_of(i), input(i), x.type());
    reading.parameters += sdk::message("GLOBAL const STORAGE(", codes.back(), ") *x", i, ", ");
    reading.arguments += sdk::message(pointer_of(i), ", ");
  }
  const auto first = static_cast<std::size_t>(axis);
  reading.beginning = seeking(walk, common::merge_axes(loops_over(dims, strides, 0, first)));
  const DimsView row = DimsView(dims.data() + first, dims.size() - first);
  const common::StridedLoops all = loops_over(dims, strides, first, dims.size());
  common::StridedLoops strided{all.dims, {}};
  std::vector<Along> along;
  for (const Dims& each : all.strides) {
    along.push_back(along_of(each, row));
    if (along.back() == Along::kStrided) strided.strides.push_back(each);
  }
  strided = common::merge_axes(strided);

  Offsets offsets(walk, reading);
  // All are asked for before one is taken apart.
  std::string asked, wide, values, elements;
  std::size_t strided_before = 0;
  for (std::size_t i = 0; i < operands_; ++i) {
    const std::string at = along[i] == Along::kOnce    ? "0"
                           : along[i] == Along::kDense ? "(k)"
                                                       : offsets.of(strided, strided_before++, i);
    const std::string element = sdk::message("LOAD(", codes[i], ", ", pointer_of(i), ", ", at, ")");
    // Those of the row's own type are read as wide as the row would be.
    const bool is_wide =
        along[i] == Along::kDense && ctx.input(static_cast<std::uint32_t>(i)).type() == type_;
    if (is_wide) {
      asked += sdk::message("  ELEMENTS word", i, " = READ_ELEMENTS(", pointer_of(i), " + at);\n");
      wide += sdk::message("  VALUE(T) wide", i, "[V];\n  UNPACK_ELEMENTS(word", i, ", wide", i,
                           ");\n");
    }
    values += sdk::message(i == 0 ? "" : ", ", is_wide ? sdk::message("wide", i, "[e]") : element);
    elements += sdk::message(i == 0 ? "" : ", ", element);
  }
  reading.element = sdk::message("made_of(", elements, ")");
  reading.functions = common::kScalarFunctions + made_function(operands_, statements_, result_);
  walk.define("SEEK", "")
      .define("READ_ROW(at, to)", sdk::message("read_row(", reading.arguments, "at, to)"));
  reading.reader = sdk::message(
      "FUNCTION void read_row(", reading.parameters, "INDEX at, VALUE(T) *to) {\n", asked, wide,
      "  UNROLL for (int e = 0; e < V; ++e) {\n    INDEX k = at + e;\n    to[e] = made_of(", values,
      ");\n  }\n}\n");
  return reading;
}

std::string making_row(const RowReading& reading, const std::string& to) {
  return sdk::message(
      "  {\n  GLOBAL STORAGE(T) *made = ", to, " + row * n;\n",
      "#if defined(__clang__)\n#pragma clang loop vectorize(assume_safety)\n#endif\n",
      "  for (i64 k = 0; k < n; ++k) STORE(T, made, k, ", reading.element,
      ");\n  }\n  GLOBAL const STORAGE(T) *x = ", to, ";\n");
}

}  // namespace backplane::device_ops

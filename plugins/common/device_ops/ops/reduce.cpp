// ReduceSum and its kin, GlobalAveragePool, GlobalMaxPool, ArgMax, ArgMin, CumSum, CumProd:
// https://onnx.ai/onnx/operators/onnx__ReduceSum.html and the pages beside it.
#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>

#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/row_source.hpp"
#include "plugins/common/device_ops/sums.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/neighbours.hpp"
#include "plugins/common/kernels/pointwise.hpp"
#include "plugins/common/kernels/reductions.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// What items read at once of rows that are neighbours.
constexpr std::int64_t kAcrossBytes = 8;

/// What a reduction folds with, and what is done to the fold ("acc", of "depth" elements).
struct Row {
  const char* op_type;
  const char* start;
  const char* step;
  const char* meet;
  const char* finish;
};

constexpr const char* kMean = "acc / (ACC)depth";

constexpr Row kRows[] = {
    {"ReduceSum", "0", "(a) + (v)", "(a) + (b)", "acc"},
    {"ReduceMean", "0", "(a) + (v)", "(a) + (b)", kMean},
    {"ReduceProd", "1", "(a) * (v)", "(a) * (b)", "acc"},
    {"ReduceL1", "0", "(a) + ((v) < 0 ? -(v) : (v))", "(a) + (b)", "acc"},
    {"ReduceL2", "0", "(a) + (v) * (v)", "(a) + (b)", "sqrt((ROOT)acc)"},
    {"ReduceSumSquare", "0", "(a) + (v) * (v)", "(a) + (b)", "acc"},
    {"ReduceLogSum", "0", "(a) + (v)", "(a) + (b)", "log((ROOT)acc)"},
    {"ReduceMax", "LEAST", "GREATER(a, v)", "GREATER(a, b)", "acc"},
    {"ReduceMin", "GREATEST", "LESS(a, v)", "LESS(a, b)", "acc"},
    {"ReduceLogSumExp", "LEAST", "GREATER(a, v)", "GREATER(a, b)", nullptr},
    {"GlobalAveragePool", "0", "(a) + (v)", "(a) + (b)", kMean},
    {"GlobalMaxPool", "LEAST", "GREATER(a, v)", "GREATER(a, b)", "acc"},
};

const Row& find_row(std::string_view op_type) {
  for (const Row& row : kRows) {
    if (op_type == row.op_type) return row;
  }
  sdk::unsupported("the reduction kernel does not know operator '", op_type, "'");
}

bool is_unsigned(DataType type) {
  return type == DataType::UInt8 || type == DataType::UInt16 || type == DataType::UInt32 ||
         type == DataType::UInt64 || type == DataType::Bool;
}

/// The number of T that every other one is above, or below.
std::string extreme(DataType type, bool is_least) {
  if (is_float(type)) return is_least ? "(-INFINITY)" : "INFINITY";
  if (is_unsigned(type))
    return is_least ? "0" : sdk::message("((STORAGE(", type_code(type), "))~0ull)");
  const int bits = sdk::element_bits(type);
  return sdk::message(is_least ? "(-" : "(", "((1ull << ", bits - 1, ") - 1)",
                      is_least ? " - 1)" : ")");
}

std::string accumulator(DataType type) {
  if (type == DataType::Double) return "double";
  if (is_float(type)) return "float";
  return is_unsigned(type) ? "u64" : "i64";
}

/// Axes of one tensor divided into those that stay and those that are folded, both merged.
struct Division {
  common::StridedLoops kept, folded;
  Dims out_dims;
  std::int64_t depth = 1;
  MemoryRef from = input(0), to = output(0);
  MemoryRef found = workspace();        ///< what parts of rows came to, where rows are divided
  DataType made_type = DataType::None;  ///< of what is stored; None: of the elements

  DataType made(DataType elements) const {
    return made_type == DataType::None ? elements : made_type;
  }
};

Division divide(DimsView dims, const std::vector<int>& axes, bool keep_dims) {
  Division division;
  division.kept.strides.resize(2);
  division.folded.strides.resize(1);
  const Dims strides = common::dense_strides(dims);
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    const bool folds = std::find(axes.begin(), axes.end(), static_cast<int>(axis)) != axes.end();
    common::StridedLoops& loops = folds ? division.folded : division.kept;
    loops.dims.push_back(dims[axis]);
    loops.strides[0].push_back(strides[axis]);
    if (folds) division.depth *= dims[axis];
    if (!folds || keep_dims) division.out_dims.push_back(folds ? 1 : dims[axis]);
  }
  division.kept.strides[1] = common::dense_strides(division.kept.dims);
  division.kept = common::merge_axes(division.kept);
  division.folded = common::merge_axes(division.folded);
  return division;
}

/// Loops over the folded axes but the last, around `inner`, which folds the row at x + row.
std::string fold_loops(std::size_t rank, const std::string& inner) {
  std::string head, foot, at = "base";
  for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
    head +=
        sdk::message("  for (i64 r", axis, " = 0; r", axis, " < m", axis, "; ++r", axis, ") {\n");
    at += sdk::message(" + r", axis, " * f", axis);
    foot += "  }\n";
  }
  return sdk::message(head, "  {\n  i64 row = ", at, ";\n", inner, "  }\n", foot);
}

/// The index of a point of the kept axes, with strides as arguments.
std::string kept_index(Walk& walk, const common::StridedLoops& kept, std::size_t operand,
                       const char* name) {
  std::string text = "0";
  const std::size_t rank = kept.dims.size();
  for (std::size_t axis = 0; axis < rank; ++axis) {
    walk.number(sdk::message(name, axis), kept.strides[operand][axis]);
    text += sdk::message(" + i", rank - 1 - axis, " * ", name, axis);
  }
  return text;
}

/// What every form of a reduction's kernel is told.
void define_fold(Walk& walk, const Work& work, const Row& row, DataType type) {
  const std::string acc = accumulator(type);
  const bool has_double = work.device().has_double();
  const std::string root = is_float(type) ? acc : has_double ? "double" : "float";
  walk.define("T", type_code(type)).define("ACC", acc).define("ROOT", root);
  walk.define("LEAST", extreme(type, true)).define("GREATEST", extreme(type, false));
  walk.define("START", sdk::message("((ACC)", row.start, ")"));
  walk.define("MEET(a, b)", sdk::message("(", row.meet, ")"));
}

/// Where kernels/rows.hpp does not.
void define_order(Walk& walk) {
  walk.define("GREATER(a, b)", "((a) > (b) || (a) != (a) ? (a) : (b))");
  walk.define("LESS(a, b)", "((a) < (b) || (a) != (a) ? (a) : (b))");
}

/// What is done to a fold. The mean of no integers is 0, as on the CPU: a processor may end the process that divides by 0.
const char* finish_of(const Row& row, DataType type, std::int64_t depth) {
  return row.finish == kMean && depth == 0 && !is_float(type) ? "acc" : row.finish;
}

void add_reduction(Work& work, const Row& row, DataType type, const Division& division) {
  Walk walk(division.kept.dims);
  const DataType made = division.made(type);
  walk.in("x", division.from, type).out("y", division.to, made).define("TY", type_code(made));
  walk.number("depth", division.depth)
      .number("row_n", division.folded.dims.back())
      .number("row_stride", division.folded.strides[0].back());
  define_fold(walk, work, row, type);
  define_order(walk);
  walk.define("STEP(a, v)", sdk::message("(", row.step, ")"));
  walk.functions = common::kFoldRow;
  const std::size_t rank = division.folded.dims.size();
  for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
    walk.number(sdk::message("m", axis), division.folded.dims[axis]);
    walk.number(sdk::message("f", axis), division.folded.strides[0][axis]);
  }
  const std::string base = kept_index(walk, division.kept, 0, "k");
  const std::string target = kept_index(walk, division.kept, 1, "t");
  std::string text =
      sdk::message("  i64 base = ", base, ";\n  ACC acc = START;\n",
                   fold_loops(rank, "  acc = fold_row(x + row, row_n, row_stride, acc);\n"));
  if (row.finish != nullptr) {
    text +=
        sdk::message("  STORE(TY, y, ", target, ", ", finish_of(row, type, division.depth), ");");
  } else {
    // log(sum(exp(v))) = m + log(sum(exp(v - m))) with m the greatest, so that nothing overflows.
    const std::string again =
        fold_loops(rank,
                   "  for (i64 k = 0; k < row_n; ++k)\n"
                   "    sum += exp((ROOT)LOAD(T, x, row + k * row_stride) - shift);\n");
    text +=
        sdk::message("  ROOT shift = (ROOT)acc;\n  if (!(fabs(shift) < INFINITY)) shift = 0;\n",
                     "  ROOT sum = 0;\n", again, "  STORE(TY, y, ", target, ", shift + log(sum));");
  }
  walk.body = text;
  walk.add_to(work);
}

/// The kept axes' point of a row of kernels/rows.hpp, as statements, and its place in the input and in the output.
struct RowPlace {
  std::string statements, base, target;
};

RowPlace row_place(Walk& walk, const common::StridedLoops& kept) {
  RowPlace place;
  const std::size_t rank = kept.dims.size();
  place.statements = "  i64 rest = row;\n";
  for (std::size_t axis = 0; axis + 1 < rank; ++axis) {
    const std::int64_t size = kept.dims[rank - 1 - axis];
    walk.number(sdk::message("n", axis), size);
    place.statements +=
        sdk::message("  i64 i", axis, " = rest % n", axis, ";\n  rest /= n", axis, ";\n");
  }
  place.statements += sdk::message("  i64 i", rank - 1, " = rest;\n");
  place.base = kept_index(walk, kept, 0, "k");
  place.target = kept_index(walk, kept, 1, "t");
  return place;
}

/// Where element k of a row lies, from the row's first one on.
std::string row_offset(Walk& walk, const common::StridedLoops& folded) {
  std::string text = "(k)", offset;
  for (std::size_t axis = folded.dims.size(); axis-- > 0;) {
    const std::string size = sdk::message("m", axis), stride = sdk::message("f", axis);
    walk.number(stride, folded.strides[0][axis]);
    if (axis > 0) walk.number(size, folded.dims[axis]);
    const std::string at = axis > 0 ? sdk::message(text, " % (INDEX)", size) : text;
    offset += sdk::message(offset.empty() ? "" : " + ", at, " * (INDEX)", stride);
    text = sdk::message("(", text, " / (INDEX)", size, ")");
  }
  return sdk::message("(", offset, ")");
}

/// The type of memory that holds what parts of a row found.
DataType part_type(DataType type) {
  if (type == DataType::Double) return DataType::Double;
  if (is_float(type)) return DataType::Float;
  return is_unsigned(type) ? DataType::UInt64 : DataType::Int64;
}

/// What a rewrite had done to each fold: see rewrite/rows.cpp.
struct After {
  std::string function = {};  ///< empty: nothing is done
  std::string of(const char* finish) const {
    return function.empty() ? finish : sdk::message("after_of(", finish, ")");
  }
  static After from(const sdk::Node& node) {
    if (!node.has("after_result")) return {};
    return {sdk::message("FUNCTION REAL after_of(REAL v0) {\n",
                         node.get_string("after_statements", ""), "  return ",
                         node.get_string("after_result", ""), ";\n}\n")};
  }
};

/// The last step of a divided reduction: what the parts found is met.
void add_meeting(Work& work, const Row& row, DataType type, const Division& division,
                 const RowForm& divided, const After& after) {
  const DataType found = part_type(type);
  const RowForm form =
      choose_rows(work.device(), {.rows = divided.rows, .n = divided.parts, .type = found});
  Walk walk(division.kept.dims);
  const DataType made = division.made(type);
  walk.in("x", division.found, found).out("y", division.to, made).number("depth", division.depth);
  define_fold(walk, work, row, type);
  walk.define("STEP(a, v)", "MEET(a, v)").define("REAL", "ACC").define("TY", type_code(made));
  // Not of the elements' type, as define_fold says.
  walk.define("OFFSET(k)", "(k)")
      .define("FINISH", after.of(row.finish))
      .define("BASE", "(row * n)");
  const RowPlace place = row_place(walk, division.kept);
  walk.define("TARGET", sdk::message("(", place.target, ")"));
  walk.functions = sdk::message("#undef T\n#define T ", type_code(found), '\n');
  if (!after.function.empty()) {
    walk.define("LIT(x)", "JOIN(x, f)");
    walk.functions += common::kScalarFunctions + after.function;
  }
  walk.body = place.statements + common::kReduceRow;
  walk.add_to(work, form, divided.part_count());
}

/// `add_input` gives the kernel what the rows are read from. Returns the bytes of workspace that it takes.
std::uint64_t add_shared_reduction(Work& work, const Row& row, DataType type,
                                   const Division& division,
                                   const std::function<RowReading(Walk&)>& add_input,
                                   const After& after = {}) {
  const common::StridedLoops &kept = division.kept, &folded = division.folded;
  const std::int64_t rows = sdk::element_count(kept.dims);
  const bool is_along = folded.strides[0].back() == 1 || division.depth == 1;
  const RowForm form = choose_rows(work.device(), {.rows = rows,
                                                   .n = division.depth,
                                                   .type = type,
                                                   .is_across = !is_along,
                                                   .is_dense = is_along && folded.dims.size() == 1,
                                                   .holds = row.finish == nullptr,
                                                   .may_divide = row.finish != nullptr});
  const bool is_divided = form.parts > 1;
  Walk walk(kept.dims);
  const RowReading reading = add_input(walk);
  const DataType found = is_divided ? part_type(type) : division.made(type);
  walk.out("y", is_divided ? division.found : division.to, found);
  walk.number("depth", division.depth);
  define_fold(walk, work, row, type);
  walk.define("STEP(a, v)", sdk::message("(", row.step, ")")).define("REAL", "ACC");
  walk.define("TY", type_code(found)).define("OFFSET(k)", row_offset(walk, folded));
  const RowPlace place = row_place(walk, kept);
  walk.define("BASE", sdk::message("(", place.base, ")"));
  walk.define("TARGET", is_divided ? "(row * parts + part)" : sdk::message("(", place.target, ")"));
  if (row.finish != nullptr) walk.define("FINISH", is_divided ? "acc" : after.of(row.finish));
  walk.functions = reading.functions + reading.reader + after.function;
  walk.body = place.statements + reading.beginning +
              (row.finish != nullptr ? common::kReduceRow : common::kLogSumExpRow);
  walk.add_to(work, form, rows * division.depth);
  if (!is_divided) return 0;
  add_meeting(work, row, type, division, form, after);
  return static_cast<std::uint64_t>(form.part_count()) * sizeof(double);
}

/// Whether rows across others are read several at once, in 8 bytes: those of images whose channels come last. Not if that leaves
/// much of a device without work.
bool is_wide_across(const Device& device, const Row& row, DataType type, const Division& division) {
  const common::StridedLoops &kept = division.kept, &folded = division.folded;
  const std::int64_t width = kAcrossBytes / std::max(1, sdk::element_bytes(type));
  if (row.finish == nullptr || !is_float(type) || division.made(type) != type ||
      type == DataType::Double || kept.dims.size() > 2 || folded.dims.size() != 1 ||
      kept.strides[0].back() != 1 || division.depth == 1)
    return false;
  for (const std::int64_t steps :
       {kept.dims.back(), folded.strides[0][0], kept.dims.size() > 1 ? kept.strides[0][0] : 0}) {
    if (steps % width != 0) return false;
  }
  const RowForm form = choose_rows(device, {.rows = sdk::element_count(kept.dims),
                                            .n = division.depth,
                                            .type = type,
                                            .is_across = true,
                                            .may_divide = true});
  constexpr std::int64_t kMostByInt = std::int64_t{1} << 30;
  return form.parts == 1 && sdk::element_count(kept.dims) * division.depth < kMostByInt;
}

void add_wide_across(Work& work, const Row& row, DataType type, const Division& division) {
  constexpr std::int64_t kItems = 256, kMostLanes = 32, kStepsOfLane = 8;
  const common::StridedLoops& kept = division.kept;
  const common::NeighbourText word(type_code(type), kAcrossBytes / sdk::element_bytes(type));
  const std::int64_t width = kAcrossBytes / sdk::element_bytes(type), columns = kept.dims.back();
  const auto items = static_cast<std::int64_t>(
      std::bit_floor(std::min<std::size_t>(kItems, work.device().limits().max_group_items)));
  const std::int64_t lanes =
      std::min({kMostLanes, items, power_from(ceil_divide(division.depth, kStepsOfLane))});
  Walk walk(Dims{1});
  walk.in("x", division.from, type).out("y", division.to, type).number("n", division.depth);
  walk.number("depth", division.depth).number("step", division.folded.strides[0][0]);
  walk.number("columns", columns);
  walk.number("outer_step", kept.dims.size() > 1 ? kept.strides[0][0] : 0);
  define_fold(walk, work, row, type);
  define_order(walk);
  walk.define("STEP(a, v)", sdk::message("(", row.step, ")")).define("FINISH", row.finish);
  walk.define("INDEX", "int").define("GROUP", items).define("LANES", lanes).define("W", width);
  walk.define("WORD", word.type());
  walk.functions = sdk::message(common::kNeighbourWords,
                                "FUNCTION void unpack_word(WORD word, STORAGE(T) *to) {\n",
                                word.unpack("word", "to"), "}\n");
  walk.body = common::kReduceAcross;
  walk.name("reduction of neighbours");
  const std::int64_t outer = kept.dims.size() > 1 ? kept.dims[0] : 1;
  walk.add_groups(work,
                  {static_cast<std::size_t>(ceil_divide(columns, items / lanes * width)),
                   static_cast<std::size_t>(outer), 1},
                  static_cast<std::size_t>(items));
}

/// In the form that fits. Returns the bytes of workspace that it takes.
std::uint64_t add_plain(Work& work, const Row& row, DataType type, const Division& division) {
  if (!shares_rows(work.device()) || division.depth == 0) {
    add_reduction(work, row, type, division);
    return 0;
  }
  if (is_wide_across(work.device(), row, type, division)) {
    add_wide_across(work, row, type, division);
    return 0;
  }
  return add_shared_reduction(work, row, type, division, [&](Walk& walk) {
    walk.in("x", division.from, type);
    return RowReading();
  });
}

class Reduce {
 public:
  Reduce(const Device&, const sdk::Node& node)
      : row_(find_row(node.op_type())),
        is_global_(node.op_type().substr(0, 6) == "Global"),
        axes_(node.get_ints("axes")),
        keep_dims_(node.get_int("keepdims", 1) != 0),
        empty_is_none_(node.get_int("noop_with_empty_axes", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.type() == DataType::Bool) sdk::unsupported("the kernel does not fold bools");
    Dims axes = ctx.input(1).present() ? ctx.input(1).to_ints() : axes_;
    if (is_global_) axes.clear();
    if (axes.empty() && !empty_is_none_) {
      for (int axis = is_global_ ? 2 : 0; axis < x.rank(); ++axis) axes.push_back(axis);
    }
    const Division division =
        divide(x.dims(), common::normalize_axes(axes, x.rank()), keep_dims_ || is_global_);
    ctx.set_output(0, x.type(), division.out_dims);
    if (sdk::element_count(division.out_dims) == 0) return;
    const std::uint64_t bytes = add_plain(work, row_, x.type(), division);
    if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
  }

 private:
  const Row& row_;
  bool is_global_;
  Dims axes_;
  bool keep_dims_, empty_is_none_;
};

/// A reduction of what an expression makes, over the axes from one on: see rewrite/rows.cpp.
class FusedReduce {
 public:
  FusedReduce(const Device&, const sdk::Node& node)
      : source_(node),
        row_(find_row(node.get_string("op", ""))),
        axis_(static_cast<int>(node.get_int("axis", 0))),
        keep_dims_(node.get_int("keepdims", 1) != 0),
        after_(After::from(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const RowElements x = source_.elements(ctx);
    std::vector<int> axes;
    for (int axis = axis_; axis < x.rank(); ++axis) axes.push_back(axis);
    const Division division = divide(x.dims, axes, keep_dims_);
    ctx.set_output(0, x.type, division.out_dims);
    if (sdk::element_count(division.out_dims) == 0) return;
    if (!shares_rows(work.device()) || division.depth == 0)
      return add_own(ctx, work, x.type, division);
    const std::uint64_t bytes = add_shared_reduction(
        work, row_, x.type, division,
        [&](Walk& walk) {
          walk.define("LIT(x)", "JOIN(x, f)");
          return source_.add_to(walk, ctx, axis_);
        },
        after_);
    if (bytes > 0) ctx.set_workspace(bytes, work.device().limits().alignment);
  }

 private:
  /// An item has a row to itself.
  void add_own(const sdk::PrepareContext& ctx, Work& work, DataType type,
               const Division& division) const {
    Walk walk(Dims{sdk::element_count(division.kept.dims)});
    const RowReading reading = source_.add_to(walk, ctx, axis_);
    walk.out("y", output(0), type).number("depth", division.depth).real_type(type);
    define_fold(walk, work, row_, type);
    define_order(walk);
    walk.define("STEP(a, v)", sdk::message("(", row_.step, ")")).define("INDEX", "i64");
    walk.define("ROW_PARAMETERS", reading.parameters).define("ELEMENT(k)", reading.element);
    walk.functions = reading.functions + after_.function + common::kFoldRow;
    walk.body = sdk::message("  i64 row = i0;\n", reading.beginning, "  ACC acc = fold_row(",
                             reading.arguments, "depth, 1, START);\n  STORE(T, y, row, ",
                             after_.of(row_.finish), ");");
    walk.add_to(work);
  }

  RowSource source_;
  const Row& row_;
  int axis_;
  bool keep_dims_;
  After after_;
};

class ArgExtreme {
 public:
  ArgExtreme(const Device&, const sdk::Node& node)
      : is_max_(node.op_type() == "ArgMax"),
        axis_(node.get_int("axis", 0)),
        keep_dims_(node.get_int("keepdims", 1) != 0),
        takes_last_(node.get_int("select_last_index", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = normalize_axis(axis_, x.rank());
    const std::int64_t n = x.dim(axis), outer = common::product(x.dims(), 0, axis),
                       inner = common::product(x.dims(), axis + 1, x.rank());
    Dims dims;
    for (int d = 0; d < x.rank(); ++d) {
      if (d != axis) dims.push_back(x.dim(d));
      if (d == axis && keep_dims_) dims.push_back(1);
    }
    ctx.set_output(0, DataType::Int64, dims);
    if (outer * inner == 0) return;
    if (n == 0) sdk::invalid("there is no extreme along axis ", axis, " of ", to_string(x.dims()));
    if (shares_rows(work.device())) return add_shared(work, x.type(), outer, n, inner);
    Walk walk(Dims{outer, inner});
    walk.in("x", input(0), x.type()).out("y", output(0), DataType::Int64);
    walk.number("n", n).number("inner", inner).define("T", type_code(x.type()));
    walk.define("BETTER", sdk::message("v ", is_max_ ? ">" : "<", takes_last_ ? "=" : "", " best"));
    walk.body =
        "  x += i1 * n * inner + i0;\n"
        "  i64 at = 0;\n  VALUE(T) best = LOAD(T, x, 0);\n"
        "  for (i64 k = 1; k < n; ++k) {\n"
        "    VALUE(T) v = LOAD(T, x, k * inner);\n"
        "    if (best == best && (v != v || (BETTER))) { best = v; at = k; }\n  }\n"
        "  STORE(i64, y, i1 * inner + i0, at);";
    walk.add_to(work);
  }

 private:
  void add_shared(Work& work, DataType type, std::int64_t outer, std::int64_t n,
                  std::int64_t inner) const {
    const RowForm form = choose_rows(work.device(), {.rows = outer * inner,
                                                     .n = n,
                                                     .type = type,
                                                     .is_across = inner > 1,
                                                     .is_dense = inner == 1,
                                                     .holds = true});
    Walk walk(Dims{outer, inner});
    walk.in("x", input(0), type).out("y", output(0), DataType::Int64).number("inner", inner);
    walk.define("T", type_code(type)).define("REAL", accumulator(type));
    walk.define("EXTREME(a, b)", is_max_ ? "GREATER(a, b)" : "LESS(a, b)");
    walk.define("TAKES_LAST", takes_last_ ? 1 : 0);
    walk.define("BASE", "(row / inner * n * inner + row % inner)");
    walk.define("OFFSET(k)", "((k) * (INDEX)inner)");
    walk.body = common::kArgRow;
    walk.add_to(work, form, outer * n * inner);
  }

  bool is_max_;
  std::int64_t axis_;
  bool keep_dims_, takes_last_;
};

/// CumSum and CumProd; the axis is a shape input.
class Cumulative {
 public:
  Cumulative(const Device&, const sdk::Node& node)
      : is_sum_(node.op_type() == "CumSum"),
        is_exclusive_(node.get_int("exclusive", 0) != 0),
        is_reverse_(node.get_int("reverse", 0) != 0) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (ctx.input(1).size() != 1)
      sdk::invalid("the axis has ", ctx.input(1).size(), " elements, not 1");
    const int axis = normalize_axis(ctx.input(1).to_ints()[0], x.rank());
    const std::int64_t n = x.dim(axis), inner = common::product(x.dims(), axis + 1, x.rank());
    ctx.set_output(0, x.type(), x.dims());
    if (x.size() == 0) return;
    Walk walk(Dims{common::product(x.dims(), 0, axis), inner});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.number("inner", inner).define("T", type_code(x.type()));
    if (shares_rows(work.device())) return add_shared(ctx, work, walk, n, inner);
    walk.number("n", n);
    const char* const step = is_sum_ ? "acc = acc + v;" : "acc = acc * v;";
    walk.body = sdk::message(
        "  x += i1 * n * inner + i0;\n  y += i1 * n * inner + i0;\n  ", accumulator(x.type()),
        " acc = ", is_sum_ ? 0 : 1,
        ";\n  for (i64 j = 0; j < n; ++j) {\n    i64 k = ", is_reverse_ ? "n - 1 - j" : "j",
        ";\n    VALUE(T) v = LOAD(T, x, k * inner);\n    ",
        is_exclusive_ ? "STORE(T, y, k * inner, acc); " : "", step,
        is_exclusive_ ? "" : " STORE(T, y, k * inner, acc);", "\n  }");
    walk.add_to(work);
  }

 private:
  void add_shared(sdk::PrepareContext& ctx, Work& work, Walk& walk, std::int64_t n,
                  std::int64_t inner) const {
    const sdk::Tensor x = ctx.input(0);
    const RowForm form = choose_rows(work.device(), {.rows = x.size() / n,
                                                     .n = n,
                                                     .type = x.type(),
                                                     .is_across = inner > 1,
                                                     .is_dense = inner == 1,
                                                     .may_divide = true});
    walk.define("ACC", accumulator(x.type())).define("START", is_sum_ ? "((ACC)0)" : "((ACC)1)");
    walk.define("MEET(a, b)", is_sum_ ? "((a) + (b))" : "((a) * (b))");
    walk.define("IS_EXCLUSIVE", is_exclusive_ ? 1 : 0).define("IS_REVERSE", is_reverse_ ? 1 : 0);
    walk.define("BASE", "(row / inner * n * inner + row % inner)");
    walk.define("OFFSET(k)", "((k) * (INDEX)inner)");
    walk.body = common::kScanRow;
    if (form.parts == 1) return walk.define("PHASE", 0).add_to(work, form, x.size());
    const DataType found = part_type(x.type());
    for (const int phase : {1, 2}) {
      Walk each = walk;
      each.out("found", workspace(), found).define("TP", type_code(found)).define("PHASE", phase);
      each.add_to(work, form, x.size());
    }
    ctx.set_workspace(static_cast<std::uint64_t>(form.part_count()) * sizeof(double),
                      work.device().limits().alignment);
  }

  bool is_sum_, is_exclusive_, is_reverse_;
};

}  // namespace

void add_sums(Work& work, const StridedSums& sums, WorkspacePieces& pieces) {
  Division division;
  division.kept = common::merge_axes(sums.kept);
  division.folded = common::merge_axes(sums.folded);
  for (const std::int64_t dim : division.folded.dims) division.depth *= dim;
  division.from = sums.from;
  division.to = sums.to;
  division.found = workspace(pieces.bytes());
  division.made_type = sums.made_type;
  pieces.add(
      static_cast<std::int64_t>(add_plain(work, find_row("ReduceSum"), sums.type, division)));
}

KernelList reduce_kernels() {
  KernelList kernels;
  for (const Row& row : kRows) {
    const bool is_global = std::string_view(row.op_type).substr(0, 6) == "Global";
    sdk::KernelBuilder builder = sdk::op(row.op_type);
    builder.name(kernel_name("reduce")).types("T", is_global ? float_types() : number_types());
    if (!is_global) builder.roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE});
    kernels.push_back(device_kernel<Reduce>(builder));
  }
  for (const char* const op_type : {"ReduceMean", "ReduceMax"}) {
    kernels.push_back(
        device_kernel<Reduce>(sdk::op(op_type, private_domain()).name(kernel_name("reduce"))));
  }
  kernels.push_back(device_kernel<FusedReduce>(
      sdk::op("FusedReduce", private_domain()).name(kernel_name("fused reduce"))));
  for (const char* const op_type : {"ArgMax", "ArgMin"}) {
    kernels.push_back(device_kernel<ArgExtreme>(
        sdk::op(op_type).name(kernel_name("arg extreme")).types("T", number_types())));
  }
  for (const char* const op_type : {"CumSum", "CumProd"}) {
    kernels.push_back(device_kernel<Cumulative>(sdk::op(op_type)
                                                    .name(kernel_name("cumulative"))
                                                    .types("T", number_types())
                                                    .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})));
  }
  return kernels;
}

}  // namespace backplane::device_ops

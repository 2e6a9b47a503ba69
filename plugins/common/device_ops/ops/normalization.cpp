// Softmax, LogSoftmax, Hardmax, LayerNormalization, RMSNormalization, InstanceNormalization,
// GroupNormalization, BatchNormalization, LpNormalization, LRN:
// https://onnx.ai/onnx/operators/onnx__LayerNormalization.html and the pages beside it.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/row_source.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/reductions.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// Dims as (outer, n, inner) around an axis; before opset 13 everything from the axis on is the row.
struct Rows {
  std::int64_t outer, n, inner;
};

Rows rows_of(DimsView dims, int axis, bool to_the_end) {
  const int rank = static_cast<int>(dims.size());
  return {common::product(dims, 0, axis), common::product(dims, axis, to_the_end ? rank : axis + 1),
          to_the_end ? 1 : common::product(dims, axis + 1, rank)};
}

/// A kernel of rows that are shared (kernels/rows.hpp); what its phases tell each other is the node's workspace.
void add_phases(sdk::PrepareContext& ctx, Work& work, const Walk& walk, const RowForm& form) {
  walk.add_phases(work, form, workspace());
  if (form.parts == 1) return;
  ctx.set_workspace(2 * static_cast<std::uint64_t>(form.part_count()) * sizeof(double),
                    work.device().limits().alignment);
}

/// The operator: of a node that rewrite/rows.cpp made, the one whose rows it took over.
std::string kind_of(const sdk::Node& node) { return node.get_string("op", node.op_type()); }

/// What an item that has a row to itself does before the kernel's own text: a row that is made is stored at `to`, and read
/// from there.
std::string made_before(Walk& walk, const RowReading& reading, const char* index, const char* to) {
  walk.define("INDEX", "i64");
  return sdk::message("  i64 row = ", index, ";\n", reading.beginning, making_row(reading, to));
}

class Softmax {
 public:
  Softmax(const Device&, const sdk::Node& node)
      : source_(node),
        kind_(kind_of(node)),
        to_the_end_(source_.is_made() || node.since_version() < 13),
        axis_(node.get_int("axis", to_the_end_ ? 1 : -1)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const RowElements x = source_.elements(ctx);
    ctx.set_output(0, x.type, x.dims);
    const bool is_end = to_the_end_ && axis_ == x.rank();
    const int axis = is_end ? x.rank() : normalize_axis(axis_, x.rank());
    const Rows rows = is_end ? Rows{x.size(), 1, 1} : rows_of(x.dims, axis, to_the_end_);
    if (x.size() == 0) return;
    const bool is_hard = kind_ == "Hardmax";
    const bool in_columns = !is_hard && rows.inner > 1 && work.device().limits().is_processor;
    Walk walk(Dims{rows.outer, in_columns ? (rows.inner + kColumns - 1) / kColumns : rows.inner});
    const RowReading reading = source_.add_to(walk, ctx, axis);
    walk.out("y", output(0), x.type);
    walk.real_type(x.type).define("IS_LOG", kind_ == "LogSoftmax" ? 1 : 0);
    walk.define("T", type_code(x.type));
    // Rows that lie one behind the other have no strides that compilers do not know.
    if (rows.inner == 1) {
      walk.define("inner", "1");
    } else {
      walk.number("inner", rows.inner);
    }
    if (shares_rows(work.device())) {
      walk.define("BASE", "(row / inner * n * inner + row % inner)");
      walk.define("OFFSET(k)", "((k) * (INDEX)inner)");
      walk.functions = reading.functions + reading.reader;
      walk.body = reading.beginning + (is_hard ? common::kHardmaxRow : common::kSoftmaxRow);
      const RowForm form = choose_rows(work.device(), {.rows = rows.outer * rows.inner,
                                                       .n = rows.n,
                                                       .type = x.type,
                                                       .is_across = rows.inner > 1,
                                                       .is_dense = rows.inner == 1,
                                                       .holds = true,
                                                       .may_divide = !is_hard,
                                                       .is_made = source_.is_made()});
      return add_phases(ctx, work, walk, form);
    }
    walk.number("n", rows.n);
    const bool is_exact = x.type == DataType::Float || x.type == DataType::Double;
    walk.define("KEEPS", is_exact ? 1 : 0).define("COLUMNS", kColumns);
    if (!is_hard) walk.functions = common::kScalarFunctions;
    walk.body = is_hard      ? kHardmaxBody
                : in_columns ? common::kSoftmaxColumns
                             : common::kSoftmaxBody;
    if (source_.is_made()) {
      walk.functions = reading.functions;
      walk.body = made_before(walk, reading, "i1", "y") + walk.body;
    }
    walk.add_to(work);
  }

 private:
  static constexpr std::int64_t kColumns = 64;  ///< of a processor's work item
  static constexpr char kHardmaxBody[] =
      "  x += i1 * n * inner + i0;\n  y += i1 * n * inner + i0;\n  i64 at = 0;\n"
      "  for (i64 k = 1; k < n; ++k)\n"
      "    if (LOAD(T, x, k * inner) > LOAD(T, x, at * inner)) at = k;\n"
      "  for (i64 k = 0; k < n; ++k) STORE(T, y, k * inner, k == at ? 1 : 0);";
  RowSource source_;
  std::string kind_;
  bool to_the_end_;
  std::int64_t axis_;
};

/// Rows one behind the other, normalised by items that share them.
void add_shared(sdk::PrepareContext& ctx, Work& work, Walk& walk, const Rows& rows, DataType type,
                const std::string& beginning = "") {
  walk.define("BASE", "(row * n)").define("OFFSET(k)", "(k)");
  walk.body = beginning + common::kNormalizeRow;
  const RowForm form = choose_rows(work.device(), {.rows = rows.outer,
                                                   .n = rows.n,
                                                   .type = type,
                                                   .is_dense = true,
                                                   .holds = true,
                                                   .may_divide = true,
                                                   .is_made = !beginning.empty()});
  add_phases(ctx, work, walk, form);
}

/// LayerNormalization and RMSNormalization: the scale lies along the row. A row that is made may be a second output.
class LayerNormalization {
 public:
  LayerNormalization(const Device&, const sdk::Node& node)
      : source_(node),
        has_mean_(kind_of(node) == "LayerNormalization"),
        axis_(node.get_int("axis", -1)),
        epsilon_(static_cast<double>(node.get_float("epsilon", 1e-5f))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const RowElements x = source_.elements(ctx);
    const std::uint32_t scale_at = source_.next_input();
    const sdk::Tensor scale = ctx.input(scale_at), bias = ctx.input(scale_at + 1);
    const int axis = normalize_axis(axis_, x.rank());
    const Rows rows = rows_of(x.dims, axis, true);
    const bool is_whole = is_along_row(scale, bias, rows.n);
    const bool keeps = source_.is_made() && ctx.output_wanted(1);
    ctx.set_output(0, x.type, x.dims);
    if (keeps) ctx.set_output(1, x.type, x.dims);
    const Statistics statistics = set_statistics(ctx, x, axis);
    if (x.size() == 0) return;
    Walk walk(Dims{rows.outer});
    const RowReading reading = source_.add_to(walk, ctx, axis);
    walk.out("y", output(0), x.type).in("scale", input(scale_at), scale.type());
    if (bias.present()) walk.in("bias", input(scale_at + 1), bias.type());
    if (keeps) walk.out("kept", output(1), x.type);
    add_statistics(walk, statistics);
    walk.real("epsilon", epsilon_).real_type(x.type).define("KEEPS_ROW", keeps ? 1 : 0);
    walk.define("T", type_code(x.type)).define("TS", type_code(scale.type()));
    walk.define("NO_MEAN", has_mean_ ? 0 : 1).define("HAS_BIAS", bias.present() ? 1 : 0);
    if (shares_rows(work.device())) {
      const bool is_row =
          is_whole && scale.type() == x.type && (!bias.present() || bias.type() == x.type);
      walk.define("TB", type_code(bias.present() ? bias.type() : scale.type()));
      walk.define("SCALE_IS_ROW", is_row ? 1 : 0).define("SCALE_AT", is_whole ? "k" : "0");
      walk.functions = reading.functions + reading.reader;
      return add_shared(ctx, work, walk, {rows.outer, rows.n, 1}, x.type, reading.beginning);
    }
    walk.number("n", rows.n).define("SCALE_AT(k)", is_whole ? "(k)" : "0");
    walk.functions = reading.functions;
    if (source_.is_made()) walk.body = made_before(walk, reading, "i0", keeps ? "kept" : "y");
    walk.body += common::kNormalizeBody;
    walk.add_to(work);
  }

 private:
  /// Which second outputs are asked for.
  struct Statistics {
    DataType type;
    unsigned inverse_at;  ///< output of the inverse deviations
    bool has_mean, has_inverse;
  };

  /// Whether scale and bias have a number for each element of a row; else one for all.
  static bool is_along_row(const sdk::Tensor& scale, const sdk::Tensor& bias, std::int64_t n) {
    if (scale.size() == n && (!bias.present() || bias.size() == n)) return true;
    if (scale.size() != 1 || (bias.present() && bias.size() != 1))
      sdk::unsupported("a scale of dims ", to_string(scale.dims()), " for rows of ", n,
                       " is not handled");
    return false;
  }

  Statistics set_statistics(sdk::PrepareContext& ctx, const RowElements& x, int axis) const {
    Statistics asked{};
    asked.type = x.type == DataType::Double ? DataType::Double : DataType::Float;
    if (source_.is_made()) return asked;
    Dims dims(x.dims);
    std::fill(dims.begin() + axis, dims.end(), 1);
    asked.inverse_at = has_mean_ ? 2 : 1;
    asked.has_mean = has_mean_ && ctx.output_wanted(1);
    asked.has_inverse = ctx.output_wanted(asked.inverse_at);
    if (asked.has_mean) ctx.set_output(1, asked.type, dims);
    if (asked.has_inverse) ctx.set_output(asked.inverse_at, asked.type, dims);
    return asked;
  }

  static void add_statistics(Walk& walk, const Statistics& asked) {
    if (asked.has_mean) walk.out("out_mean", output(1), asked.type);
    if (asked.has_inverse) walk.out("out_inverse", output(asked.inverse_at), asked.type);
    walk.define("TM", type_code(asked.type)).define("HAS_MEAN", asked.has_mean ? 1 : 0);
    walk.define("HAS_INVERSE", asked.has_inverse ? 1 : 0);
  }

  RowSource source_;
  bool has_mean_;
  std::int64_t axis_;
  double epsilon_;
};

/// InstanceNormalization and GroupNormalization: a row is a group of channels, scaled per channel (or, before
/// opset 21, per group).
class GroupNormalization {
 public:
  GroupNormalization(const Device&, const sdk::Node& node)
      : is_instance_(node.op_type() == "InstanceNormalization"),
        groups_(node.get_int("num_groups", 0)),
        per_group_(!is_instance_ && node.since_version() < 21),
        epsilon_(static_cast<double>(node.get_float("epsilon", 1e-5f))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), scale = ctx.input(1);
    if (x.rank() < 2) sdk::invalid("the input has dims ", to_string(x.dims()), ", at least two");
    const std::int64_t channels = x.dim(1), groups = is_instance_ ? channels : groups_;
    if (groups <= 0 || channels % groups != 0)
      sdk::invalid(groups, " groups do not divide ", channels, " channels");
    if (scale.size() != (per_group_ ? groups : channels))
      sdk::invalid("the scale has dims ", to_string(scale.dims()));
    ctx.set_output(0, x.type(), x.dims());
    if (x.size() == 0) return;
    const std::int64_t spatial = common::product(x.dims(), 2, x.rank());
    Walk walk(Dims{x.dim(0) * groups});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.in("scale", input(1), scale.type()).in("bias", input(2), ctx.input(2).type());
    walk.number("groups", groups);
    walk.number("members", channels / groups).number("spatial", spatial);
    walk.real("epsilon", epsilon_).real_type(x.type());
    walk.define("T", type_code(x.type())).define("TS", type_code(scale.type()));
    walk.define("NO_MEAN", 0).define("HAS_BIAS", 1).define("HAS_MEAN", 0).define("HAS_INVERSE", 0);
    const std::int64_t n = channels / groups * spatial;
    if (shares_rows(work.device())) {
      // A channel that is whole steps of any width has one place for each of them.
      constexpr std::int64_t kWidest = 8;
      const char* const place = per_group_ ? "(row % groups)"
                                : spatial % kWidest == 0
                                    ? "(row % groups * members + at / (INDEX)spatial)"
                                    : "(row % groups * members + k / (INDEX)spatial)";
      walk.define("TB", type_code(ctx.input(2).type()))
          .define("SCALE_IS_ROW", 0)
          .define("SCALE_AT", place);
      return add_shared(ctx, work, walk, {x.dim(0) * groups, n, 1}, x.type());
    }
    walk.number("n", n).define(
        "SCALE_AT(k)", per_group_ ? "(i0 % groups)" : "(i0 % groups * members + (k) / spatial)");
    walk.body = common::kNormalizeBody;
    walk.add_to(work);
  }

 private:
  bool is_instance_;
  std::int64_t groups_;
  bool per_group_;
  double epsilon_;
};

class BatchNormalization {
 public:
  BatchNormalization(const Device&, const sdk::Node& node)
      : epsilon_(static_cast<double>(node.get_float("epsilon", 1e-5f))) {
    if (node.get_int("training_mode", 0) != 0 || node.output_count() > 1)
      sdk::unsupported("BatchNormalization in training is not handled");
    if (node.get_int("spatial", 1) == 0)
      sdk::unsupported("BatchNormalization with spatial=0 is not handled");
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    std::vector<View> views{dense_view(input(0), x.type(), x.dims())};
    const std::int64_t channels = x.rank() > 1 ? x.dim(1) : 1;
    for (std::uint32_t i = 1; i < 5; ++i) {
      if (ctx.input(i).size() != channels)
        sdk::invalid("BatchNormalization: input ", i, " has dims ", to_string(ctx.input(i).dims()),
                     " where x has ", channels, " channels");
      View view{input(i), ctx.input(i).type(), Dims(x.dims().size(), 0)};
      if (x.rank() > 1) view.strides[1] = 1;
      views.push_back(view);
    }
    add_pointwise(work, x.dims(), views, dense_view(output(0), x.type(), x.dims()),
                  {"(v0 - v3) / sqrt(v4 + p0) * v1 + v2", "", {epsilon_}});
  }

 private:
  double epsilon_;
};

class LpNormalization {
 public:
  LpNormalization(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", -1)), p_(node.get_int("p", 2)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const Rows rows = rows_of(x.dims(), normalize_axis(axis_, x.rank()), false);
    ctx.set_output(0, x.type(), x.dims());
    if (x.size() == 0) return;
    Walk walk(Dims{rows.outer, rows.inner});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.number("inner", rows.inner).define("T", type_code(x.type()));
    walk.real_type(x.type()).define("TERM(v)", p_ == 1 ? "fabs(v)" : "((v) * (v))");
    walk.define("NORM(s)", p_ == 1 ? "(s)" : "sqrt(s)");
    if (shares_rows(work.device())) {
      walk.define("BASE", "(row / inner * n * inner + row % inner)");
      walk.define("OFFSET(k)", "((k) * (INDEX)inner)");
      walk.body = common::kLpNormalizeRow;
      const RowForm form = choose_rows(work.device(), {.rows = rows.outer * rows.inner,
                                                       .n = rows.n,
                                                       .type = x.type(),
                                                       .is_across = rows.inner > 1,
                                                       .is_dense = rows.inner == 1,
                                                       .holds = true,
                                                       .may_divide = true});
      return add_phases(ctx, work, walk, form);
    }
    walk.number("n", rows.n);
    walk.body =
        "  x += i1 * n * inner + i0;\n  y += i1 * n * inner + i0;\n  REAL sum = LIT(0.0);\n"
        "  for (i64 k = 0; k < n; ++k) sum += TERM((REAL)LOAD(T, x, k * inner));\n"
        "  REAL norm = NORM(sum);\n"
        "  for (i64 k = 0; k < n; ++k)\n"
        "    STORE(T, y, k * inner, norm == LIT(0.0) ? LIT(0.0) : (REAL)LOAD(T, x, k * inner) / "
        "norm);";
    walk.add_to(work);
  }

 private:
  std::int64_t axis_, p_;
};

/// y = x / (bias + alpha / size * the sum of squares of neighbouring channels) ^ beta.
constexpr char kLrnBody[] = R"kernel(
  x += i2 * channels * spatial + i0;
  y += i2 * channels * spatial + i0;
  REAL sum = LIT(0.0);
#ifdef SIZE
#pragma unroll
  for (int k = 0; k < SIZE; ++k) {
    i64 c = i1 - below + k;
    REAL v = LOAD(T, x, (c < 0 ? 0 : c >= channels ? channels - 1 : c) * spatial);
    sum += c < 0 || c >= channels ? LIT(0.0) : v * v;
  }
#else
  i64 first = i1 < below ? 0 : i1 - below;
  i64 last = i1 + above < channels - 1 ? i1 + above : channels - 1;
  for (i64 c = first; c <= last; ++c) {
    REAL v = LOAD(T, x, c * spatial);
    sum += v * v;
  }
#endif
  REAL base = bias + factor * sum;
  STORE(T, y, i1 * spatial, (REAL)LOAD(T, x, i1 * spatial) * POWER(base));
)kernel";

class Lrn {
 public:
  Lrn(const Device&, const sdk::Node& node)
      : size_(node.get_int("size", 1)),
        alpha_(static_cast<double>(node.get_float("alpha", 1e-4f))),
        beta_(static_cast<double>(node.get_float("beta", 0.75f))),
        bias_(static_cast<double>(node.get_float("bias", 1))) {
    if (size_ < 1) sdk::invalid("LRN: attribute 'size' is ", size_, "; it must be positive");
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, x.type(), x.dims());
    if (x.rank() < 2) sdk::invalid("LRN of dims ", to_string(x.dims()));
    const std::int64_t spatial = common::product(x.dims(), 2, x.rank());
    Walk walk(Dims{x.dim(0), x.dim(1), spatial});
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.number("channels", x.dim(1)).number("spatial", spatial);
    walk.number("below", (size_ - 1) / 2).number("above", size_ / 2);
    walk.real("factor", alpha_ / static_cast<double>(size_)).real("beta", beta_);
    walk.real("bias", bias_).define("T", type_code(x.type())).real_type(x.type());
    // The power that models use needs no pow, which costs more than everything else.
    walk.define("POWER(v)", beta_ == 0.75  ? "(LIT(1.0) / (sqrt(v) * sqrt(sqrt(v))))"
                            : beta_ == 0.5 ? "(LIT(1.0) / sqrt(v))"
                                           : "pow(v, -(REAL)beta)");
    // A short window is read without a branch.
    constexpr std::int64_t kMostUnrolled = 15;
    if (size_ <= kMostUnrolled) walk.define("SIZE", size_);
    walk.body = kLrnBody;
    walk.add_to(work);
  }

 private:
  std::int64_t size_;
  double alpha_, beta_, bias_;
};

}  // namespace

KernelList normalization_kernels() {
  KernelList kernels;
  for (const char* const op_type : {"Softmax", "LogSoftmax", "Hardmax"}) {
    kernels.push_back(device_kernel<Softmax>(
        sdk::op(op_type).name(kernel_name("softmax")).types("T", float_types())));
  }
  kernels.push_back(device_kernel<Softmax>(
      sdk::op("FusedSoftmax", private_domain()).name(kernel_name("fused softmax"))));
  kernels.push_back(device_kernel<LayerNormalization>(
      sdk::op("FusedNormalization", private_domain()).name(kernel_name("fused normalize"))));
  for (const char* const op_type : {"LayerNormalization", "RMSNormalization"}) {
    kernels.push_back(device_kernel<LayerNormalization>(
        sdk::op(op_type, private_domain()).name(kernel_name("normalize"))));
  }
  kernels.push_back(device_kernel<LayerNormalization>(
      sdk::op("LayerNormalization").name(kernel_name("normalize")).types("T", float_types())));
  kernels.push_back(device_kernel<LayerNormalization>(sdk::op("RMSNormalization")
                                                          .name(kernel_name("normalize"))
                                                          .types("T", float_types())
                                                          .types("V", float_types())));
  for (const char* const op_type : {"InstanceNormalization", "GroupNormalization"}) {
    kernels.push_back(device_kernel<GroupNormalization>(
        sdk::op(op_type).name(kernel_name("normalize")).since(6).types("T", float_types())));
  }
  kernels.push_back(device_kernel<BatchNormalization>(sdk::op("BatchNormalization")
                                                          .name(kernel_name("pointwise"))
                                                          .since(7)
                                                          .types("T", float_types())));
  kernels.push_back(device_kernel<LpNormalization>(
      sdk::op("LpNormalization").name(kernel_name("normalize")).types("T", float_types())));
  kernels.push_back(
      device_kernel<Lrn>(sdk::op("LRN").name(kernel_name("lrn")).types("T", float_types())));
  return kernels;
}

}  // namespace backplane::device_ops

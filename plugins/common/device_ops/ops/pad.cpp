// Pad: https://onnx.ai/onnx/operators/onnx__Pad.html. ConstantOfShape, EyeLike and Range are here too: they
// fill.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// The place in [0, n) of `at`, as each mode of Pad has it.
constexpr char kPlaces[] = R"kernel(
FUNCTION i64 edge_place(i64 at, i64 n) { return at < 0 ? 0 : at >= n ? n - 1 : at; }
FUNCTION i64 wrap_place(i64 at, i64 n) {
  at %= n;
  return at < 0 ? at + n : at;
}
FUNCTION i64 reflect_place(i64 at, i64 n) {
  if (n == 1) return 0;
  at = wrap_place(at, 2 * n - 2);
  return at < n ? at : 2 * n - 2 - at;
}
)kernel";

class Pad {
 public:
  Pad(const Device&, const sdk::Node& node)
      : mode_(node.get_string("mode", "constant")),
        pads_(node.get_ints(node.since_version() < 2 ? "paddings" : "pads")),
        value_(static_cast<double>(node.get_float("value", 0))) {
    if (mode_ != "constant" && mode_ != "edge" && mode_ != "wrap" && mode_ != "reflect")
      sdk::unsupported("Pad with mode '", mode_, "' is not handled");
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), fill = ctx.input(2);
    const auto rank = static_cast<std::size_t>(x.rank());
    const Dims before_after = all_pads(ctx, x.rank());
    Dims dims;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t before = before_after[d], after = before_after[rank + d];
      dims.push_back((common::Checked(x.dims()[d]) + before + after)
                         .value("Pad: the sum of ", x.dims()[d], " elements and pads ", before,
                                " and ", after, " along axis ", d));
      if (dims[d] < 0) sdk::invalid("Pad takes more from axis ", d, " than it has");
      if (mode_ != "constant" && x.dims()[d] == 0 && dims[d] > 0)
        sdk::invalid("Pad with mode '", mode_, "' of an axis of no elements");
    }
    ctx.set_output(0, x.type(), dims);
    const Dims strides = common::dense_strides(x.dims()), to = common::dense_strides(dims);
    Walk walk(dims);
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    const bool has_fill = mode_ == "constant" && fill.present() && fill.size() > 0;
    if (has_fill) walk.in("fill", input(2), x.type());
    if (mode_ == "constant" && !has_fill) walk.real("value", value_);
    walk.define("T", type_code(x.type()));
    walk.functions = kPlaces;
    std::string text = "  int inside = 1;\n  i64 at, from = 0;\n", target = "0";
    for (std::size_t d = 0; d < rank; ++d) {
      walk.number(sdk::message("b", d), before_after[d]).number(sdk::message("d", d), x.dims()[d]);
      walk.number(sdk::message("s", d), strides[d]).number(sdk::message("t", d), to[d]);
      text += sdk::message("  at = i", rank - 1 - d, " - b", d, ";\n");
      text += mode_ == "constant"
                  ? sdk::message("  if (at < 0 || at >= d", d, ") inside = 0;\n  from += at * s", d,
                                 ";\n")
                  : sdk::message("  from += ", mode_, "_place(at, d", d, ") * s", d, ";\n");
      target += sdk::message(" + i", rank - 1 - d, " * t", d);
    }
    const char* const outside = has_fill              ? "LOAD(T, fill, 0)"
                                : mode_ == "constant" ? "(VALUE(T))value"
                                                      : "0";
    walk.body =
        sdk::message(text, "  VALUE(T) v = ", outside,
                     ";\n  if (inside) v = LOAD(T, x, from);\n  STORE(T, y, ", target, ", v);");
    walk.in_bands(2).add_to(work);
  }

 private:
  /// For each axis what comes before, then for each what comes after.
  Dims all_pads(sdk::PrepareContext& ctx, int rank) const {
    const Dims given = ctx.input(1).present() ? ctx.input(1).to_ints() : pads_;
    Dims axes;
    if (ctx.input(3).present()) {
      axes = ctx.input(3).to_ints();
    } else {
      for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
    }
    if (given.size() != 2 * axes.size())
      sdk::invalid("Pad of ", axes.size(), " axes with ", given.size(), " pads");
    Dims pads(2 * static_cast<std::size_t>(rank), 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<std::size_t>(normalize_axis(axes[i], rank));
      pads[axis] = given[i];
      pads[static_cast<std::size_t>(rank) + axis] = given[axes.size() + i];
    }
    return pads;
  }

  std::string mode_;
  Dims pads_;
  double value_;
};

class EyeLike {
 public:
  EyeLike(const Device&, const sdk::Node& node)
      : type_(static_cast<DataType>(node.get_int("dtype", BP_NONE))), k_(node.get_int("k", 0)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const DataType type = type_ == DataType::None ? x.type() : type_;
    work.device().require(type);
    if (x.rank() != 2) sdk::invalid("EyeLike of dims ", to_string(x.dims()));
    ctx.set_output(0, type, x.dims());
    Walk walk(x.dims());
    const std::int64_t k = std::clamp(k_, -x.dim(0), x.dim(1));
    walk.out("y", output(0), type).number("k", k).number("columns", x.dim(1));
    walk.define("T", type_code(type));
    walk.body = "  STORE(T, y, i1 * columns + i0, i0 == i1 + k ? 1 : 0);";
    walk.add_to(work);
  }

 private:
  DataType type_;
  std::int64_t k_;
};

}  // namespace

KernelList pad_kernels() {
  const common::TypeList types = element_types();
  return {
      device_kernel<Pad>(
          sdk::op("Pad").name(kernel_name("pad")).since(2, 10).types("T", float_types())),
      device_kernel<Pad>(
          sdk::op("Pad")
              .name(kernel_name("pad"))
              .since(11)
              .types("T", types)
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA, BP_INPUT_HOST_VALUE})),
      device_kernel<EyeLike>(sdk::op("EyeLike")
                                 .name(kernel_name("eye"))
                                 .types("T1", types)
                                 .roles({BP_INPUT_SHAPE_ONLY})),
  };
}

}  // namespace backplane::device_ops

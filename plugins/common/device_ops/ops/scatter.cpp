// ScatterElements, Scatter, ScatterND, TensorScatter: https://onnx.ai/onnx/operators/onnx__ScatterElements.html and the
// pages beside it. Of the first three one work item does all updates of a line (or of an element of the slices), one after
// another, so that repeated indices are reduced in order and nothing races.
#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/tensor_scatter_node.hpp"

namespace backplane::device_ops {
namespace {

constexpr char kScatterFault[] = "an index is outside of its axis";

/// What becomes of the old value `a` and the update `b`.
std::string reduction_text(const std::string& reduction) {
  if (reduction == "none") return "b";
  if (reduction == "add") return "a + b";
  if (reduction == "mul") return "a * b";
  if (reduction == "max") return "a > b || a != a ? a : b";
  if (reduction == "min") return "a < b || a != a ? a : b";
  sdk::unsupported("reduction '", reduction, "' is not known");
}

class ScatterElements {
 public:
  ScatterElements(const Device&, const sdk::Node& node)
      : axis_(node.get_int("axis", 0)),
        reduction_(reduction_text(node.get_string("reduction", "none"))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), indices = ctx.input(1);
    const int axis = normalize_axis(axis_, x.rank());
    if (indices.rank() != x.rank())
      sdk::invalid("ScatterElements of ", to_string(x.dims()), " by ", to_string(indices.dims()));
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    work.add_copy(input(0), output(0), x.bytes());
    if (indices.size() == 0) return;
    const Dims strides = common::dense_strides(x.dims());
    const Dims index_strides = common::dense_strides(indices.dims());
    Dims lines(indices.dims().begin(), indices.dims().end());
    const auto along = static_cast<std::size_t>(axis);
    lines[along] = 1;
    Walk walk(lines);
    walk.in("index", input(1), indices.type()).in("updates", input(2), x.type());
    walk.out("y", output(0), x.type()).number("n", indices.dim(axis)).number("size", x.dim(axis));
    walk.number("to_stride", strides[along]).number("from_stride", index_strides[along]);
    walk.define("T", type_code(x.type())).define("TI", type_code(indices.type()));
    walk.may_fault(kScatterFault);
    std::string to = "0", from = "0";
    for (int d = 0; d < x.rank(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      walk.number(sdk::message("s", d), strides[at])
          .number(sdk::message("q", d), index_strides[at]);
      to += sdk::message(" + i", x.rank() - 1 - d, " * s", d);
      from += sdk::message(" + i", x.rank() - 1 - d, " * q", d);
    }
    walk.body = sdk::message(
        "  i64 to = ", to, ", from = ", from, ";\n  for (i64 k = 0; k < n; ++k) {\n",
        "    i64 at = LOAD(TI, index, from + k * from_stride);\n    if (at < 0) at += size;\n",
        "    if (at < 0 || at >= size) { FAULT; continue; }\n",
        "    VALUE(T) a = LOAD(T, y, to + at * to_stride);\n",
        "    VALUE(T) b = LOAD(T, updates, from + k * from_stride);\n",
        "    STORE(T, y, to + at * to_stride, ", reduction_, ");\n  }");
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
  std::string reduction_;
};

class ScatterNd {
 public:
  ScatterNd(const Device&, const sdk::Node& node)
      : reduction_(reduction_text(node.get_string("reduction", "none"))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), indices = ctx.input(1);
    if (indices.rank() == 0) sdk::invalid("ScatterND with indices of no axis");
    const auto depth = static_cast<int>(indices.dims().back());
    if (depth > x.rank())
      sdk::invalid("ScatterND of ", to_string(x.dims()), " by ", to_string(indices.dims()));
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    work.add_copy(input(0), output(0), x.bytes());
    const std::int64_t inner = common::product(x.dims(), depth, x.rank());
    const std::int64_t tuples = common::product(indices.dims(), 0, indices.rank() - 1);
    if (tuples == 0 || inner == 0) return;
    Walk walk(Dims{inner});
    walk.in("index", input(1), indices.type()).in("updates", input(2), x.type());
    walk.out("y", output(0), x.type()).number("tuples", tuples).number("inner", inner);
    walk.number("depth", depth).define("T", type_code(x.type()));
    walk.define("TI", type_code(indices.type())).may_fault(kScatterFault);
    std::string text =
        "  for (i64 t = 0; t < tuples; ++t) {\n    i64 to = 0, at;\n    int fits = 1;\n";
    for (int d = 0; d < depth; ++d) {
      walk.number(sdk::message("d", d), x.dim(d));
      text += sdk::message("    at = LOAD(TI, index, t * depth + ", d,
                           ");\n    if (at < 0) at += d", d, ";\n    if (at < 0 || at >= d", d,
                           ") fits = 0;\n    to = to * d", d, " + at;\n");
    }
    walk.body = sdk::message(text, "    if (!fits) { FAULT; continue; }\n",
                             "    VALUE(T) a = LOAD(T, y, to * inner + i0);\n",
                             "    VALUE(T) b = LOAD(T, updates, t * inner + i0);\n",
                             "    STORE(T, y, to * inner + i0, ", reduction_, ");\n  }");
    walk.add_to(work);
  }

 private:
  std::string reduction_;
};

/// An item has an element of the update, of which no two go to one place.
constexpr char kIntoCache[] = R"kernel(
#if HAS_STARTS
  i64 start = starts[i2 / prefixes];
#else
  i64 start = 0;
#endif
  if (start < 0 || (!CIRCULAR && start > cache_length - length)) {
    FAULT;
    start = 0;
  }
  i64 at = CIRCULAR ? (start % cache_length + i1) % cache_length : start + i1;
  STORE(T, y, (i2 * cache_length + at) * run_length + i0, LOAD(T, update, (i2 * length + i1) * run_length + i0));
)kernel";

/// Writes an update into a cache from each batch's write index on.
class TensorScatter {
 public:
  TensorScatter(const Device&, const sdk::Node& node) : rule_(common::tensor_scatter_rule(node)) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const common::TensorScatterSizes sizes = common::set_tensor_scatter_dims(ctx, rule_);
    const sdk::Tensor cache = ctx.input(0);
    const bool has_starts = ctx.input(2).present();
    ctx.allow_in_place(0, 0);
    work.add_copy(input(0), output(0), cache.bytes());
    Walk walk(Dims{sizes.batches * sizes.prefixes, sizes.length, sizes.run});
    walk.in("update", input(1), cache.type());
    if (has_starts) walk.in("starts", input(2), DataType::Int64);
    walk.out("y", output(0), cache.type()).number("prefixes", sizes.prefixes);
    walk.number("cache_length", sizes.cache_length)
        .number("length", sizes.length)
        .number("run_length", sizes.run);
    walk.define("T", type_code(cache.type())).define("CIRCULAR", rule_.circular ? 1 : 0);
    walk.define("HAS_STARTS", has_starts ? 1 : 0);
    walk.may_fault("a write index leaves the cache");
    walk.body = kIntoCache;
    walk.add_to(work);
  }

 private:
  common::TensorScatterRule rule_;
};

}  // namespace

KernelList scatter_kernels() {
  const common::TypeList types = element_types();
  return {
      device_kernel<ScatterElements>(
          sdk::op("ScatterElements").name(kernel_name("scatter")).types("T", types)),
      device_kernel<ScatterElements>(
          sdk::op("Scatter").name(kernel_name("scatter")).types("T", types)),
      device_kernel<ScatterNd>(sdk::op("ScatterND").name(kernel_name("scatter")).types("T", types)),
      device_kernel<TensorScatter>(
          sdk::op("TensorScatter").name(kernel_name("tensor scatter")).types("T", types)),
  };
}

}  // namespace backplane::device_ops

// Gather, GatherElements, GatherND, OneHot, ReverseSequence, Trilu: elements at places that data names.
// https://onnx.ai/onnx/operators/onnx__Gather.html and the pages beside it. An index outside of its axis
// fails the run, by the stream's fault word.
#include <algorithm>

#include "op_table.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

constexpr char kIndexFault[] = "an index is outside of its axis";

/// "i64 at": the index, counted from the end when negative; a wrong one reports a fault and becomes 0.
constexpr char kCheckIndex[] =
    "  if (at < 0) at += size;\n  if (at < 0 || at >= size) { FAULT; at = 0; }\n";

class Gather {
 public:
  Gather(const Device&, const sdk::Node& node) : axis_(node.get_int("axis", 0)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), indices = ctx.input(1);
    const int axis = normalize_axis(axis_, x.rank());
    Dims dims(x.dims().begin(), x.dims().begin() + axis);
    dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
    dims.insert(dims.end(), x.dims().begin() + axis + 1, x.dims().end());
    ctx.set_output(0, x.type(), dims);
    const std::int64_t outer = common::product(x.dims(), 0, axis);
    const std::int64_t inner = common::product(x.dims(), axis + 1, x.rank());
    if (sdk::element_count(dims) == 0) return;
    const DataType word = word_of(x.type());
    Walk walk(Dims{outer, indices.size(), inner});
    walk.in("x", input(0), word).in("index", input(1), indices.type()).out("y", output(0), word);
    walk.number("size", x.dim(axis)).number("count", indices.size()).number("inner", inner);
    walk.define("T", type_code(word)).define("TI", type_code(indices.type()));
    walk.may_fault(kIndexFault);
    walk.body = sdk::message("  i64 at = LOAD(TI, index, i1);\n", kCheckIndex,
                             "  STORE(T, y, (i2 * count + i1) * inner + i0, LOAD(T, x, (i2 * size "
                             "+ at) * inner + i0));");
    walk.in_bands();
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
};

class GatherElements {
 public:
  GatherElements(const Device&, const sdk::Node& node) : axis_(node.get_int("axis", 0)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), indices = ctx.input(1);
    const int axis = normalize_axis(axis_, x.rank());
    if (indices.rank() != x.rank())
      sdk::invalid("GatherElements of ", to_string(x.dims()), " by ", to_string(indices.dims()));
    ctx.set_output(0, x.type(), indices.dims());
    const DataType word = word_of(x.type());
    const Dims strides = common::dense_strides(x.dims());
    const Dims index_strides = common::dense_strides(indices.dims());
    Walk walk(indices.dims());
    walk.in("x", input(0), word).in("index", input(1), indices.type()).out("y", output(0), word);
    walk.number("size", x.dim(axis)).define("T", type_code(word));
    walk.define("TI", type_code(indices.type())).may_fault(kIndexFault);
    std::string from = "0", flat = "0";
    for (int d = 0; d < x.rank(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      walk.number(sdk::message("s", d), strides[at])
          .number(sdk::message("q", d), index_strides[at]);
      from += d == axis ? sdk::message(" + at * s", d)
                        : sdk::message(" + i", x.rank() - 1 - d, " * s", d);
      flat += sdk::message(" + i", x.rank() - 1 - d, " * q", d);
    }
    walk.body = sdk::message("  i64 flat = ", flat, ";\n  i64 at = LOAD(TI, index, flat);\n",
                             kCheckIndex, "  STORE(T, y, flat, LOAD(T, x, ", from, "));");
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
};

class GatherNd {
 public:
  GatherNd(const Device&, const sdk::Node& node)
      : batch_dims_(static_cast<int>(node.get_int("batch_dims", 0))) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), indices = ctx.input(1);
    if (indices.rank() == 0) sdk::invalid("GatherND with indices of no axis");
    const auto depth = static_cast<int>(indices.dims().back());
    if (batch_dims_ < 0 || batch_dims_ + depth > x.rank() || batch_dims_ >= indices.rank())
      sdk::invalid("GatherND of ", to_string(x.dims()), " by ", to_string(indices.dims()));
    Dims dims(indices.dims().begin(), indices.dims().end() - 1);
    dims.insert(dims.end(), x.dims().begin() + batch_dims_ + depth, x.dims().end());
    ctx.set_output(0, x.type(), dims);
    const std::int64_t batches = common::product(x.dims(), 0, batch_dims_);
    const std::int64_t inner = common::product(x.dims(), batch_dims_ + depth, x.rank());
    const std::int64_t tuples = common::product(indices.dims(), batch_dims_, indices.rank() - 1);
    if (batches * tuples * inner == 0) return;
    const DataType word = word_of(x.type());
    Walk walk(Dims{batches, tuples, inner});
    walk.in("x", input(0), word).in("index", input(1), indices.type()).out("y", output(0), word);
    walk.number("tuples", tuples).number("inner", inner).number("depth", depth);
    walk.number("whole", common::product(x.dims(), batch_dims_, batch_dims_ + depth));
    walk.define("T", type_code(word)).define("TI", type_code(indices.type()));
    walk.may_fault(kIndexFault);
    std::string text = "  i64 tuple = i2 * tuples + i1, from = i2;\n  i64 at, size;\n";
    for (int d = 0; d < depth; ++d) {
      walk.number(sdk::message("d", d), x.dim(batch_dims_ + d));
      text += sdk::message("  size = d", d, ";\n  at = LOAD(TI, index, tuple * depth + ", d, ");\n",
                           kCheckIndex, "  from = from * size + at;\n");
    }
    walk.body = text + "  STORE(T, y, tuple * inner + i0, LOAD(T, x, from * inner + i0));";
    walk.add_to(work);
  }

 private:
  int batch_dims_;
};

class OneHot {
 public:
  OneHot(const Device&, const sdk::Node& node) : axis_(node.get_int("axis", -1)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor indices = ctx.input(0), depth = ctx.input(1), values = ctx.input(2);
    const int axis = normalize_axis(axis_, indices.rank() + 1);
    if (depth.size() != 1) sdk::invalid("OneHot: depth has ", depth.size(), " elements, not 1");
    std::int64_t classes = 0;
    if (depth.type() == DataType::Float) {
      const float given = *depth.data<float>();
      classes = common::whole_size(static_cast<double>(given), "OneHot: depth ", given);
    } else {
      classes = depth.to_ints()[0];
    }
    if (classes < 0) sdk::invalid("OneHot: depth is ", classes);
    Dims dims(indices.dims().begin(), indices.dims().end());
    dims.insert(dims.begin() + axis, classes);
    ctx.set_output(0, values.type(), dims);
    const std::int64_t outer = common::product(indices.dims(), 0, axis);
    const std::int64_t inner = common::product(indices.dims(), axis, indices.rank());
    const DataType word = word_of(values.type());
    Walk walk(Dims{outer, classes, inner});
    walk.in("index", input(0), indices.type()).in("values", input(2), word);
    walk.out("y", output(0), word).number("classes", classes).number("inner", inner);
    walk.define("T", type_code(word)).define("TI", type_code(indices.type()));
    walk.body =
        "  i64 at = (i64)LOAD(TI, index, i2 * inner + i0);\n  if (at < 0) at += classes;\n"
        "  STORE(T, y, (i2 * classes + i1) * inner + i0, LOAD(T, values, at == i1 ? 1 : 0));";
    walk.add_to(work);
  }

 private:
  std::int64_t axis_;
};

class ReverseSequence {
 public:
  ReverseSequence(const Device&, const sdk::Node& node)
      : time_axis_(node.get_int("time_axis", 0)), batch_axis_(node.get_int("batch_axis", 1)) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 2 || std::min(time_axis_, batch_axis_) != 0 ||
        std::max(time_axis_, batch_axis_) != 1)
      sdk::invalid("ReverseSequence takes axes 0 and 1, not ", time_axis_, " and ", batch_axis_);
    if (ctx.input(1).size() != x.dim(static_cast<int>(batch_axis_)))
      sdk::invalid("ReverseSequence: ", ctx.input(1).size(), " lengths for an input of dims ",
                   to_string(x.dims()));
    ctx.set_output(0, x.type(), x.dims());
    const std::int64_t inner = common::product(x.dims(), 2, x.rank());
    const DataType word = word_of(x.type());
    Walk walk(Dims{x.dim(0), x.dim(1), inner});
    walk.in("x", input(0), word).in("lengths", input(1), ctx.input(1).type());
    walk.out("y", output(0), word).number("rows", x.dim(1)).number("inner", inner);
    walk.number("steps", x.dim(static_cast<int>(time_axis_)));
    walk.define("T", type_code(word)).define("TI", type_code(ctx.input(1).type()));
    walk.may_fault("a length is outside of its axis");
    walk.body = sdk::message(
        "  i64 a = i2, b = i1;\n  i64 n = LOAD(TI, lengths, ", time_axis_ == 0 ? "i1" : "i2",
        ");\n  if (n < 0 || n > steps) { FAULT; n = 0; }\n  ",
        time_axis_ == 0 ? "if (i2 < n) a = n - 1 - i2;" : "if (i1 < n) b = n - 1 - i1;",
        "\n  STORE(T, y, (i2 * rows + i1) * inner + i0, LOAD(T, x, (a * rows + b) * inner + i0));");
    walk.add_to(work);
  }

 private:
  std::int64_t time_axis_, batch_axis_;
};

class Trilu {
 public:
  Trilu(const Device&, const sdk::Node& node) : keeps_upper_(node.get_int("upper", 1) != 0) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 2) sdk::invalid("Trilu of dims ", to_string(x.dims()));
    if (ctx.input(1).present() && ctx.input(1).size() != 1)
      sdk::invalid("Trilu: k has ", ctx.input(1).size(), " elements, not 1");
    const std::int64_t given = ctx.input(1).present() ? ctx.input(1).to_ints()[0] : 0;
    ctx.set_output(0, x.type(), x.dims());
    const DataType word = word_of(x.type());
    const std::int64_t rows = x.dim(x.rank() - 2), columns = x.dim(x.rank() - 1);
    const std::int64_t k = std::clamp(given, -rows, columns);
    Walk walk(Dims{common::product(x.dims(), 0, x.rank() - 2), rows, columns});
    walk.in("x", input(0), word).out("y", output(0), word).number("k", k);
    walk.number("rows", rows).number("columns", columns).define("T", type_code(word));
    walk.body =
        sdk::message("  i64 at = (i2 * rows + i1) * columns + i0;\n  STORE(T, y, at, ",
                     keeps_upper_ ? "i0 >= i1 + k" : "i0 <= i1 + k", " ? LOAD(T, x, at) : 0);");
    walk.add_to(work);
  }

 private:
  bool keeps_upper_;
};

}  // namespace

KernelList gather_kernels() {
  const common::TypeList types = element_types();
  return {
      device_kernel<Gather>(sdk::op("Gather").name(kernel_name("gather")).types("T", types)),
      device_kernel<GatherElements>(
          sdk::op("GatherElements").name(kernel_name("gather")).types("T", types)),
      device_kernel<GatherNd>(sdk::op("GatherND").name(kernel_name("gather")).types("T", types)),
      device_kernel<OneHot>(sdk::op("OneHot")
                                .name(kernel_name("one hot"))
                                .types("T1", number_types())
                                .types("T2", {DataType::Int32, DataType::Int64, DataType::Float})
                                .types("T3", types)
                                .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA})),
      device_kernel<ReverseSequence>(
          sdk::op("ReverseSequence").name(kernel_name("gather")).types("T", types)),
      device_kernel<Trilu>(sdk::op("Trilu")
                               .name(kernel_name("trilu"))
                               .types("T", types)
                               .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})),
  };
}

}  // namespace backplane::device_ops

// Resize, Upsample: https://onnx.ai/onnx/operators/onnx__Resize.html, onnx__Upsample.html
#include "op_table.hpp"
#include "plugins/common/device_ops/walk.hpp"
#include "plugins/common/resize_node.hpp"

namespace backplane::device_ops {
namespace {

/// Adds the places of an axis, and its weights, as tables; the text of the loop over them.
struct AxisText {
  std::string head, foot, place, weight;
};

AxisText add_axis(Work& work, Walk& walk, const common::AxisTaps& axis, std::size_t number,
                  const std::string& index, bool has_double) {
  AxisText text;
  std::vector<std::int32_t> places(axis.places.begin(), axis.places.end());
  walk.in(sdk::message("places", number),
          work.add_table(places.data(), places.size() * sizeof(std::int32_t)), DataType::Int32);
  if (axis.weights.empty() && axis.float_weights.empty()) {
    text.place = sdk::message("places", number, "[", index, "]");
    return text;
  }
  const std::string weights = sdk::message("weights", number);
  if (has_double) {
    walk.in(weights, work.add_table(axis.weights.data(), axis.weights.size() * sizeof(double)),
            DataType::Double);
  } else {
    walk.in(weights,
            work.add_table(axis.float_weights.data(), axis.float_weights.size() * sizeof(float)),
            DataType::Float);
  }
  walk.number(sdk::message("taps", number), axis.taps);
  const std::string at = sdk::message(index, " * taps", number, " + k", number);
  text.head = sdk::message("  for (i64 k", number, " = 0; k", number, " < taps", number, "; ++k",
                           number, ") {\n");
  text.foot = "  }\n";
  text.place = sdk::message("places", number, "[", at, "]");
  text.weight = sdk::message(" * ", weights, "[", at, "]");
  return text;
}

class Resize {
 public:
  Resize(const Device&, const sdk::Node& node) : node_(node) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0);
    const std::vector<common::AxisRequest> requests = node_.requests(ctx);
    Dims dims;
    for (const common::AxisRequest& request : requests) {
      if (request.input == 0 && request.output > 0)
        sdk::invalid("Resize: an axis without elements cannot be resized to ", request.output);
      dims.push_back(request.output);
    }
    // Before the tables of places, as it refuses what is too large.
    ctx.set_output(0, x.type(), dims);
    if (sdk::element_count(dims) == 0) return;
    std::vector<common::AxisTaps> axes;
    for (const common::AxisRequest& request : requests)
      axes.push_back(make_taps(node_.rule(), request, x.type() == DataType::Double));
    add_launch(work, x, dims, axes);
  }

 private:
  void add_launch(Work& work, const sdk::Tensor& x, const Dims& dims,
                  const std::vector<common::AxisTaps>& axes) const {
    const bool is_nearest = node_.rule().interpolation == common::Interpolation::Nearest;
    const bool in_double = x.type() == DataType::Double;
    const bool is_float = in_double || x.type() == DataType::Float ||
                          x.type() == DataType::Float16 || x.type() == DataType::BFloat16;
    const Dims from = common::dense_strides(x.dims()), to = common::dense_strides(dims);
    Walk walk(dims);
    walk.in("x", input(0), x.type()).out("y", output(0), x.type());
    walk.define("T", type_code(x.type())).define("ACC", in_double ? "double" : "float");
    std::string head, foot, source = "0", target = "0", weight, outside;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const std::string index = sdk::message("i", dims.size() - 1 - d);
      walk.number(sdk::message("s", d), from[d]).number(sdk::message("t", d), to[d]);
      target += sdk::message(" + ", index, " * t", d);
      if (axes[d].same) {
        source += sdk::message(" + ", index, " * s", d);
        continue;
      }
      const AxisText text = add_axis(work, walk, axes[d], d, index, in_double);
      head += text.head;
      foot += text.foot;
      source += sdk::message(" + ", text.place, " * s", d);
      weight += text.weight;
      if (axes[d].outside.empty()) continue;
      const std::vector<std::uint8_t>& marks = axes[d].outside;
      walk.in(sdk::message("outside", d), work.add_table(marks.data(), marks.size()),
              DataType::UInt8);
      outside += sdk::message("  if (outside", d, "[", index, "]) is_outside = 1;\n");
    }
    std::int64_t taps = 1;
    for (const common::AxisTaps& axis : axes) taps *= axis.same ? 1 : axis.taps;
    walk.in_bands(taps).real("extrapolation", node_.extrapolation());
    const char* const rounded = is_float ? "acc" : "rint(acc)";
    walk.body = sdk::message(
        "  int is_outside = 0;\n", outside, is_nearest ? "  VALUE(T) acc;\n" : "  ACC acc = 0;\n",
        head, is_nearest ? "  acc = LOAD(T, x, " : "  acc += (ACC)LOAD(T, x, ", source, ")", weight,
        ";\n", foot, "  if (is_outside) acc = extrapolation;\n  STORE(T, y, ", target, ", ",
        is_nearest ? "acc" : rounded, ");");
    walk.add_to(work);
  }

  common::ResizeNode node_;
};

}  // namespace

KernelList resize_kernels() {
  const auto resize = [](const char* op_type, const common::TypeList& types, const char* param,
                         int first, int last) {
    return device_kernel<Resize>(sdk::op(op_type)
                                     .name(kernel_name("resize"))
                                     .since(first, last)
                                     .types(param, types)
                                     .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE}));
  };
  return {
      resize("Resize", number_types(), "T", 10, 10),
      resize("Resize", number_types(), "T1", 11, 1000),
      resize("Upsample", number_types(), "T", 1, 1000),
  };
}

}  // namespace backplane::device_ops

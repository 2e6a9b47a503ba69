// ConstantOfShape, Range: outputs made from shape inputs alone.
// https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html, onnx__Range.html
#include <cmath>
#include <cstring>

#include "op_table.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/common/device_ops/types.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

class ConstantOfShape {
 public:
  ConstantOfShape(const Device&, const sdk::Node& node) {
    const bp_attribute* const value = node.attribute("value");
    if (value == nullptr) return;
    if (value->type != BP_ATTRIBUTE_TENSOR) sdk::invalid("the attribute 'value' is no tensor");
    const sdk::Tensor tensor(value->tensors[0]);
    type_ = tensor.type();
    type_code(type_);
    if (tensor.size() != 1 || tensor.bytes() > sizeof(bits_))
      sdk::invalid("the attribute 'value' has dims ", to_string(tensor.dims()));
    std::memcpy(&bits_, tensor.bytes_data(), tensor.bytes());
  }

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const Dims dims = ctx.input(0).size() == 0 ? Dims() : ctx.input(0).to_ints();
    for (const std::int64_t dim : dims) {
      if (dim < 0) sdk::invalid("ConstantOfShape of ", sdk::to_string(dims));
    }
    work.device().require(type_);
    ctx.set_output(0, type_, dims);
    Walk walk(Dims{sdk::element_count(dims)});
    walk.out("y", output(0), word_of(type_)).number("bits", bits_);
    walk.define("T", type_code(word_of(type_)));
    walk.body = "  STORE(T, y, i0, bits);";
    walk.add_to(work);
  }

 private:
  DataType type_ = DataType::Float;
  std::int64_t bits_ = 0;
};

class Range {
 public:
  Range(const Device&, const sdk::Node&) {}
  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const DataType type = ctx.input(0).type();
    for (std::uint32_t i = 0; i < 3; ++i) {
      if (ctx.input(i).size() != 1) sdk::invalid("Range takes three numbers");
    }
    common::with_type<float, double, std::int16_t, std::int32_t, std::int64_t>(
        type, [&](auto tag) { add<typename decltype(tag)::type>(ctx, work, type); });
  }

 private:
  template <class T>
  static void add(sdk::PrepareContext& ctx, Work& work, DataType type) {
    const T start = *ctx.input(0).data<T>(), limit = *ctx.input(1).data<T>(),
            delta = *ctx.input(2).data<T>();
    if (delta == 0) sdk::invalid("Range with delta 0");
    const double count = std::ceil((static_cast<double>(limit) - static_cast<double>(start)) /
                                   static_cast<double>(delta));
    const Dims dims{count <= 0 ? 0
                               : common::whole_size(count, "Range: the number of steps of ", delta,
                                                    " from ", start, " to ", limit)};
    ctx.set_output(0, type, dims);
    Walk walk(dims);
    const T limits[2] = {start, delta};
    walk.in("limits", work.add_table(limits, sizeof(limits)), type).out("y", output(0), type);
    walk.define("T", type_code(type));
    walk.body = "  STORE(T, y, i0, limits[0] + (VALUE(T))i0 * limits[1]);";
    walk.add_to(work);
  }
};

}  // namespace

KernelList fill_kernels() {
  return {
      device_kernel<ConstantOfShape>(sdk::op("ConstantOfShape")
                                         .name(kernel_name("fill"))
                                         .types("T2", element_types())
                                         .roles({BP_INPUT_HOST_VALUE})),
      device_kernel<Range>(
          sdk::op("Range").name(kernel_name("range")).roles({BP_INPUT_HOST_VALUE})),
  };
}

}  // namespace backplane::device_ops

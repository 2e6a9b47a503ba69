// DequantizeLinear: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
#include <limits>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/convert.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/quantize.hpp"
#include "plugins/cpu/kernels/stretches.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

constexpr std::int64_t kBlock = 512;

/// y = (x - zero_point) * scale.
class DequantizeLinear {
 public:
  struct Prepared {
    Stretches stretches;
    DataType x_type = DataType::UInt8;
    DataType y_type = DataType::Float;
    const QuantizeLoops* loops = nullptr;
    Converter x_converter;      // x to float
    Converter scale_converter;  // scale to float
    Converter y_converter;      // float to y
    bool has_zero_point = false;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t parameters = stretches.parameter_count();
      Pieces pieces(ctx.workspace());
      auto* scale = pieces.take<float>(parameters);
      auto* zero_point = pieces.take<float>(parameters);
      scale_converter.run(ctx.input(1).bytes_data(), scale, 0, parameters);
      if (has_zero_point) {  // of x's type
        x_converter.run(ctx.input(2).bytes_data(), zero_point, 0, parameters);
      } else {
        std::fill_n(zero_point, parameters, 0.0f);
      }
      const void* x = ctx.input(0).bytes_data();
      void* y = ctx.output(0).mutable_data<char>();
      if (stretches.count() == 1) {
        split_elements(ctx.threads(), stretches.length(), 0.2,
                       [&](std::int64_t begin, std::int64_t end) {
                         const std::int64_t parameter = stretches.step() * begin;
                         run({begin, end - begin, parameter}, scale, zero_point, x, y);
                       });
        return;
      }
      const double ns = 0.2 * static_cast<double>(stretches.length());
      split_loop(ctx.threads(), stretches.count(), ns, 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     run(stretches.at(i), scale, zero_point, x, y);
                 });
    }

   private:
    void run(const Stretch& stretch, const float* scale, const float* zero_point, const void* x,
             void* y) const {
      const std::int64_t step = stretches.step();
      const bool bytes = x_type == DataType::UInt8 || x_type == DataType::Int8;
      if (bytes && y_type == DataType::Float) {
        const QuantizeParams params{scale + stretch.parameter, zero_point + stretch.parameter, step,
                                    0, 0};
        float* to = static_cast<float*>(y) + stretch.begin;
        if (x_type == DataType::UInt8) {
          loops->from_u8(params, static_cast<const std::uint8_t*>(x) + stretch.begin, to,
                         stretch.n);
        } else {
          loops->from_s8(params, static_cast<const std::int8_t*>(x) + stretch.begin, to, stretch.n);
        }
        return;
      }
      alignas(64) float block[kBlock];
      for (std::int64_t from = 0; from < stretch.n; from += kBlock) {
        const std::int64_t n = std::min(kBlock, stretch.n - from);
        const std::int64_t parameter = stretch.parameter + step * from;
        const std::int64_t begin = stretch.begin + from;
        x_converter.run(x, begin, block, 0, n);
        loops->from_f32({scale + parameter, zero_point + parameter, step, 0, 0}, block, block, n);
        y_converter.run(block, 0, y, begin, n);
      }
    }
  };

  DequantizeLinear(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        axis_(node.get_int("axis", 1)),
        block_(node.get_int("block_size", 0)),
        output_type_(static_cast<DataType>(node.get_int("output_dtype", 0))) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const sdk::Tensor scale = ctx.input(1);
    const sdk::Tensor zero_point = ctx.input(2);
    if (zero_point.present() && zero_point.size() != scale.size()) {
      sdk::invalid("the zero point's shape ", to_string(zero_point.dims()), " is not the scale's, ",
                   to_string(scale.dims()));
    }
    Prepared prepared;
    prepared.y_type = output_type_ != DataType::None ? output_type_ : scale.type();
    ctx.set_output(0, prepared.y_type, x.dims());
    prepared.stretches = Stretches(x.dims(), scale.dims(), axis_, block_);
    prepared.x_type = x.type();
    prepared.loops = &quantize_loops(isa_);
    prepared.has_zero_point = zero_point.present();
    prepared.x_converter = Converter(x.type(), DataType::Float, {}, isa_);
    prepared.scale_converter = Converter(scale.type(), DataType::Float, {}, isa_);
    prepared.y_converter = Converter(DataType::Float, prepared.y_type, {}, isa_);
    ctx.set_workspace(Pieces::bytes(scale.size(), scale.size()));
    return prepared;
  }

 private:
  Isa isa_;
  std::int64_t axis_;
  std::int64_t block_;
  DataType output_type_;
};

}  // namespace

sdk::KernelList dequantize_kernels() {
  const common::TypeList sources = {
      DataType::UInt8,          DataType::Int8,           DataType::UInt16,
      DataType::Int16,          DataType::Int32,          DataType::UInt4,
      DataType::Int4,           DataType::UInt2,          DataType::Int2,
      DataType::Float8E4M3FN,   DataType::Float8E4M3FNUZ, DataType::Float8E5M2,
      DataType::Float8E5M2FNUZ, DataType::Float4E2M1};
  const common::TypeList floats = {DataType::Float, DataType::Float16, DataType::BFloat16};
  const common::TypeList scales = common::join(floats, {DataType::Float8E8M0});
  const auto builder = [&](const char* source, int first, int last) {
    return sdk::op("DequantizeLinear")
        .name("cpu:DequantizeLinear")
        .since(first, last)
        .flags(BP_KERNEL_WIDENS_HALF)
        .types(source, sources);
  };
  constexpr int kLast = std::numeric_limits<int>::max();
  return {
      builder("T", 10, 18).kernel<DequantizeLinear>(),
      builder("T1", 19, 22).types("T2", floats).kernel<DequantizeLinear>(),
      builder("T1", 23, kLast).types("T2", scales).types("T3", floats).kernel<DequantizeLinear>()};
}

}  // namespace backplane::cpu

// QuantizeLinear, DynamicQuantizeLinear: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html,
// onnx__DynamicQuantizeLinear.html
#include "plugins/cpu/kernels/quantize.hpp"

#include <cmath>
#include <limits>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/convert.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/stretches.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

constexpr std::int64_t kBlock = 512;

struct Range {
  float least;
  float greatest;
};

/// The range of a quantised integer type; 0 to 0 for floating-point types.
Range range_of(DataType type) {
  switch (type) {
    case DataType::UInt8:
      return {0, 255};
    case DataType::Int8:
      return {-128, 127};
    case DataType::UInt16:
      return {0, 65535};
    case DataType::Int16:
      return {-32768, 32767};
    case DataType::UInt4:
      return {0, 15};
    case DataType::Int4:
      return {-8, 7};
    case DataType::UInt2:
      return {0, 3};
    case DataType::Int2:
      return {-2, 1};
    default:
      return {0, 0};
  }
}

/// y = saturate(round(x / scale) + zero_point); for floating-point y the quotient, rounded to y's type.
class QuantizeLinear {
 public:
  struct Prepared {
    Stretches stretches;
    DataType x_type = DataType::Float;
    DataType y_type = DataType::UInt8;
    Range range{};
    Isa isa = Isa::kBaseline;
    const QuantizeLoops* loops = nullptr;
    const Codec* codec = nullptr;          // of y, unless it is an 8- or 16-bit integer
    const HalfConversion* half = nullptr;  // the type that quotients are rounded to
    Converter x_converter;                 // x to float
    Converter scale_converter;             // scale to float
    Converter zero_converter;              // zero point to float
    ConvertOptions options;
    bool has_zero_point = false;

    void compute(const sdk::ComputeContext& ctx) const {
      const std::int64_t parameters = stretches.parameter_count();
      Pieces pieces(ctx.workspace());
      auto* scale = pieces.take<float>(parameters);
      auto* zero_point = pieces.take<float>(parameters);
      scale_converter.run(ctx.input(1).bytes_data(), scale, 0, parameters);
      if (has_zero_point) {
        zero_converter.run(ctx.input(2).bytes_data(), zero_point, 0, parameters);
      } else {
        std::fill_n(zero_point, parameters, 0.0f);
      }
      const void* x = ctx.input(0).bytes_data();
      void* y = ctx.output(0).mutable_data<char>();
      const auto run = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Stretch stretch = stretches.at(i);
          quantize_stretch(stretch, scale, zero_point, x, y);
        }
      };
      if (codec != nullptr) {  // elements of two stretches may share a byte
        run(0, stretches.count());
      } else if (stretches.count() == 1) {
        split_elements(ctx.threads(), stretches.length(), 0.3,
                       [&](std::int64_t begin, std::int64_t end) {
                         const std::int64_t parameter = stretches.step() * begin;
                         quantize_stretch({begin, end - begin, parameter}, scale, zero_point, x, y);
                       });
      } else {
        const double ns = 0.3 * static_cast<double>(stretches.length());
        split_loop(ctx.threads(), stretches.count(), ns, 1, run);
      }
    }

   private:
    void quantize_stretch(const Stretch& stretch, const float* scale, const float* zero_point,
                          const void* x, void* y) const {
      const std::int64_t step = stretches.step();
      const bool direct = x_type == DataType::Float && half == nullptr && codec == nullptr;
      if (direct) {
        const QuantizeParams params{scale + stretch.parameter, zero_point + stretch.parameter, step,
                                    range.least, range.greatest};
        store(params, static_cast<const float*>(x) + stretch.begin, y, stretch.begin, stretch.n);
        return;
      }
      for (std::int64_t from = 0; from < stretch.n; from += kBlock) {
        const std::int64_t n = std::min(kBlock, stretch.n - from);
        const std::int64_t parameter = stretch.parameter + step * from;
        const QuantizeParams params{scale + parameter, zero_point + parameter, step, range.least,
                                    range.greatest};
        quantize_block(params, x, y, stretch.begin + from, n);
      }
    }

    void quantize_block(const QuantizeParams& params, const void* x, void* y, std::int64_t begin,
                        std::int64_t n) const {
      alignas(64) float quotient[kBlock];
      if (x_type == DataType::Int32) {
        const auto* whole = static_cast<const std::int32_t*>(x) + begin;
        for (std::int64_t i = 0; i < n; ++i) {  // in double: not every int32 is a float
          quotient[i] = static_cast<float>(static_cast<double>(whole[i]) /
                                           static_cast<double>(params.scale[i * params.step]));
        }
      } else {
        x_converter.run(x, begin, quotient, 0, n);
        for (std::int64_t i = 0; i < n; ++i) quotient[i] /= params.scale[i * params.step];
      }
      if (half != nullptr) {
        alignas(64) std::uint16_t rounded[kBlock];
        half->from_float(quotient, rounded, n);
        half->to_float(rounded, quotient, n);
      }
      constexpr float kOne = 1;
      if (range.least == range.greatest) {
        codec->encode(quotient, y, begin, n, options);
        return;
      }
      alignas(64) float ones[kBlock];
      if (params.step != 0) std::fill_n(ones, n, kOne);
      QuantizeParams rest = params;
      rest.scale = params.step != 0 ? ones : &kOne;
      if (codec == nullptr) {
        store(rest, quotient, y, begin, n);
        return;
      }
      alignas(64) std::uint8_t wide[kBlock];
      if (range.least < 0) {
        loops->to_s8(rest, quotient, reinterpret_cast<std::int8_t*>(wide), n);
      } else {
        loops->to_u8(rest, quotient, wide, n);
      }
      codec->encode(wide, y, begin, n, options);
    }

    void store(const QuantizeParams& params, const float* x, void* y, std::int64_t begin,
               std::int64_t n) const {
      switch (y_type) {
        case DataType::UInt8:
          return loops->to_u8(params, x, static_cast<std::uint8_t*>(y) + begin, n);
        case DataType::Int8:
          return loops->to_s8(params, x, static_cast<std::int8_t*>(y) + begin, n);
        case DataType::UInt16:
          return loops->to_u16(params, x, static_cast<std::uint16_t*>(y) + begin, n);
        default:
          return loops->to_s16(params, x, static_cast<std::int16_t*>(y) + begin, n);
      }
    }
  };

  QuantizeLinear(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        axis_(node.get_int("axis", 1)),
        block_(node.get_int("block_size", 0)),
        output_type_(static_cast<DataType>(node.get_int("output_dtype", 0))),
        precision_(static_cast<DataType>(node.get_int("precision", 0))) {
    options_.saturate = node.get_int("saturate", 1) != 0;
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const sdk::Tensor scale = ctx.input(1);
    const sdk::Tensor zero_point = ctx.input(2);
    Prepared prepared;
    prepared.has_zero_point = zero_point.present();
    prepared.y_type = target_type(zero_point);
    if (prepared.has_zero_point && zero_point.size() != scale.size()) {
      sdk::invalid("the zero point's shape ", to_string(zero_point.dims()), " is not the scale's, ",
                   to_string(scale.dims()));
    }
    ctx.set_output(0, prepared.y_type, x.dims());
    prepared.stretches = Stretches(x.dims(), scale.dims(), axis_, block_);
    prepared.x_type = x.type();
    prepared.range = range_of(prepared.y_type);
    prepared.isa = isa_;
    prepared.loops = &quantize_loops(isa_);
    if (prepared.range.least == prepared.range.greatest || sdk::element_bits(prepared.y_type) < 8) {
      prepared.codec = &codec_of(prepared.y_type);
      if (prepared.codec->encode == nullptr) {
        sdk::unsupported("quantising to ", sdk::type_name(prepared.y_type), " is not handled");
      }
    }
    const DataType division = precision_ != DataType::None ? precision_ : scale.type();
    if (division == DataType::Float16 || division == DataType::BFloat16) {
      prepared.half = &half_conversion(isa_, division);
    }
    if (x.type() != DataType::Int32) {
      prepared.x_converter = Converter(x.type(), DataType::Float, {}, isa_);
    }
    prepared.scale_converter = Converter(scale.type(), DataType::Float, {}, isa_);
    if (prepared.has_zero_point) {
      prepared.zero_converter = Converter(zero_point.type(), DataType::Float, {}, isa_);
    }
    prepared.options = options_;
    ctx.set_workspace(Pieces::bytes(scale.size(), scale.size()));
    return prepared;
  }

 private:
  DataType target_type(const sdk::Tensor& zero_point) const {
    if (!zero_point.present()) {
      return output_type_ == DataType::None ? DataType::UInt8 : output_type_;
    }
    if (output_type_ != DataType::None && output_type_ != zero_point.type()) {
      sdk::invalid("attribute 'output_dtype' says ", sdk::type_name(output_type_),
                   " but the zero point is ", sdk::type_name(zero_point.type()));
    }
    return zero_point.type();
  }

  Isa isa_;
  std::int64_t axis_;
  std::int64_t block_;
  DataType output_type_;
  DataType precision_;
  ConvertOptions options_;
};

/// y = quantised x with a scale and zero point that fit x's range, which is made to contain 0.
class DynamicQuantizeLinear {
 public:
  struct Prepared {
    /// Elements whose range is found at a time.
    static constexpr std::int64_t kPart = 16384;
    struct Ends {
      float least = 0;
      float greatest = 0;
    };

    std::int64_t count = 0;
    const QuantizeLoops* loops = nullptr;

    std::int64_t parts() const { return (count + kPart - 1) / kPart; }

    Ends range_of_all(const sdk::ComputeContext& ctx, const float* x) const {
      auto* ends = reinterpret_cast<Ends*>(ctx.workspace().mutable_data<char>());
      split_loop(ctx.threads(), parts(), 0.1 * kPart, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          ends[i] = {};
          loops->widen(x + i * kPart, std::min(kPart, count - i * kPart), ends[i].least,
                       ends[i].greatest);
        }
      });
      Ends all;
      for (std::int64_t i = 0; i < parts(); ++i) {
        all.least = std::min(all.least, ends[i].least);
        all.greatest = std::max(all.greatest, ends[i].greatest);
      }
      return all;
    }

    void compute(const sdk::ComputeContext& ctx) const {
      const float* x = ctx.input(0).data<float>();
      const auto [least, greatest] = range_of_all(ctx, x);
      const ByteRange range(least, greatest);
      *ctx.output(1).mutable_data<float>() = range.scale;
      *ctx.output(2).mutable_data<std::uint8_t>() = static_cast<std::uint8_t>(range.zero_point);
      auto* y = ctx.output(0).mutable_data<std::uint8_t>();
      const QuantizeParams params = range.params();
      split_elements(ctx.threads(), count, 0.3, [&](std::int64_t begin, std::int64_t end) {
        loops->to_u8(params, x + begin, y + begin, end - begin);
      });
    }
  };

  DynamicQuantizeLinear(const sdk::CreateContext& ctx, const sdk::Node&) : isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    ctx.set_output(0, DataType::UInt8, x.dims());
    ctx.set_output(1, DataType::Float, sdk::DimsView());
    ctx.set_output(2, DataType::UInt8, sdk::DimsView());
    const Prepared prepared{x.size(), &quantize_loops(isa_)};
    ctx.set_workspace(static_cast<std::uint64_t>(prepared.parts()) * sizeof(Prepared::Ends));
    return prepared;
  }

 private:
  Isa isa_;
};

constexpr int kLast = std::numeric_limits<int>::max();

}  // namespace

sdk::KernelList quantize_kernels() {
  const common::TypeList sources = {DataType::Float, DataType::Float16, DataType::BFloat16,
                                    DataType::Int32};
  const common::TypeList scales = common::join(sources, {DataType::Float8E8M0});
  const common::TypeList targets = {
      DataType::UInt8,          DataType::Int8,       DataType::UInt16,
      DataType::Int16,          DataType::UInt4,      DataType::Int4,
      DataType::UInt2,          DataType::Int2,       DataType::Float8E4M3FN,
      DataType::Float8E4M3FNUZ, DataType::Float8E5M2, DataType::Float8E5M2FNUZ,
      DataType::Float4E2M1};
  const auto builder = [&](int first, int last) {
    return sdk::op("QuantizeLinear")
        .name("cpu:QuantizeLinear")
        .since(first, last)
        .types("T1", sources);
  };
  return {builder(10, 22).types("T2", targets).kernel<QuantizeLinear>(),
          builder(23, kLast).types("T2", scales).types("T3", targets).kernel<QuantizeLinear>(),
          sdk::op("DynamicQuantizeLinear")
              .name("cpu:DynamicQuantizeLinear")
              .types("T1", {DataType::Float})
              .types("T2", {DataType::UInt8})
              .kernel<DynamicQuantizeLinear>()};
}

}  // namespace backplane::cpu

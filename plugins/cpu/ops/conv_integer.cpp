// ConvInteger, QLinearConv: https://onnx.ai/onnx/operators/onnx__ConvInteger.html, onnx__QLinearConv.html
#include <cstring>

#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/dense/layout_copy.hpp"
#include "plugins/cpu/dense/product_s16.hpp"
#include "plugins/cpu/dense/quantized_lines.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Where the inputs stand.
struct Inputs {
  std::uint32_t x, w, x_zero, w_zero;
  std::uint32_t x_scale, w_scale, y_scale, y_zero, bias;
};
constexpr std::uint32_t kNone = 99;  // past the end
constexpr Inputs kIntegerInputs{0, 1, 2, 3, kNone, kNone, kNone, kNone, kNone};
constexpr Inputs kLinearInputs{0, 3, 2, 5, 1, 4, 6, 7, 8};

/// An integer convolution made ready, for one image at a time: the image becomes channels-last 16-bit
/// numbers without their zero point, in which pads are zeros. Immutable.
class IntegerConv {
 public:
  IntegerConv(const Window& window, std::int64_t in_channels, std::int64_t out_channels,
              std::int64_t groups, Isa isa, unsigned threads)
      : window_(window),
        in_channels_(in_channels),
        out_channels_(out_channels),
        groups_(groups),
        kernels_(&integer_kernels(isa)),
        threads_(threads),
        by_channel_(groups == in_channels && groups == out_channels) {
    IntegerShape shape;
    shape.rows = window.out_pixels();
    shape.taps = window.taps();
    shape.depth = in_channels / groups;
    shape.columns = out_channels / groups;
    shape.groups = groups;
    product_ = IntegerProduct(shape, isa, threads);
  }

  const Window& window() const { return window_; }
  std::int64_t in_channels() const { return in_channels_; }
  std::int64_t out_channels() const { return out_channels_; }
  /// 16-bit numbers of the packed weights.
  std::int64_t packed_size() const {
    return by_channel_ ? window_.taps() * out_channels_ : product_.packed_size();
  }
  std::uint64_t workspace_bytes() const {
    const auto table = static_cast<std::uint64_t>(window_.taps()) * 8 * threads_;
    return align64(static_cast<std::uint64_t>(pixel_size()) * 2) +
           align64(static_cast<std::uint64_t>(pixel_size() * window_.in_pixels()) * 2) +
           (by_channel_ ? align64(table) : product_.scratch_bytes());
  }

  /// Weights [out_channels, in_channels / groups, kernel ...]; `zero` holds one number or one per channel.
  void pack(const Bytes& weights, const Bytes& zero, bool zero_per_channel,
            std::int16_t* packed) const {
    const std::int64_t taps = window_.taps();
    const std::int64_t step = zero_per_channel ? 1 : 0;
    if (by_channel_) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        for (std::int64_t c = 0; c < out_channels_; ++c) {
          *packed++ = static_cast<std::int16_t>(weights.at(c * taps + tap) - zero.at(c * step));
        }
      }
      return;
    }
    const IntegerShape& shape = product_.shape();
    for (std::int64_t group = 0; group < groups_; ++group) {
      IntegerWeights view;
      view.data = weights;
      view.tap_stride = 1;
      view.depth_stride = taps;
      view.column_stride = shape.depth * taps;
      view.offset = group * shape.columns * shape.depth * taps;
      view.zero = zero;
      view.zero_step = step;
      view.zero_offset = group * shape.columns * step;
      product_.pack_group(view, group, packed);
    }
  }

  /// `x` is an image, channels first; `sums` [pixels, out_channels].
  void run(const Bytes& x, std::int64_t x_offset, std::int32_t x_zero, const std::int16_t* packed,
           std::int32_t* sums, char* workspace, const sdk::Threads& threads) const {
    auto* zeros = reinterpret_cast<std::int16_t*>(workspace);
    workspace += align64(static_cast<std::uint64_t>(pixel_size()) * 2);
    std::memset(zeros, 0, static_cast<std::size_t>(pixel_size()) * 2);
    auto* image = reinterpret_cast<std::int16_t*>(workspace);
    workspace += align64(static_cast<std::uint64_t>(pixel_size() * window_.in_pixels()) * 2);
    widen(x, x_offset, x_zero, image, threads);
    if (by_channel_) {
      run_by_channel(image, zeros, packed, sums, workspace, threads);
      return;
    }
    product_.run(
        packed, sums, out_channels_, threads, workspace,
        [&](const std::int16_t** table, std::int64_t pitch, std::int64_t row, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) {
            fill_pixel(image, zeros, row + i, table + i, pitch);
          }
        });
  }

 private:
  /// 16-bit numbers of a pixel of the widened image.
  std::int64_t pixel_size() const {
    return by_channel_ ? in_channels_ : groups_ * product_.shape().padded_depth();
  }

  void widen(const Bytes& x, std::int64_t offset, std::int32_t zero, std::int16_t* image,
             const sdk::Threads& threads) const {
    const std::int64_t pixels = window_.in_pixels();
    const std::int64_t depth = in_channels_ / groups_;
    const std::int64_t padded = by_channel_ ? 1 : product_.shape().padded_depth();
    const std::int64_t size = pixel_size();
    constexpr std::int64_t kBlock =
        256;  // pixels of a channel at a time: both sides stay in the cache
    split_loop(threads, pixels, 0.5 * static_cast<double>(size), kBlock,
               [&](std::int64_t begin, std::int64_t end) {
                 alignas(64) std::int16_t wide[kBlock];
                 for (std::int64_t first = begin; first < end; first += kBlock) {
                   const std::int64_t count = std::min(kBlock, end - first);
                   for (std::int64_t c = 0; c < groups_ * padded; ++c) {
                     const bool exists = c % padded < depth;
                     const std::int64_t channel = c / padded * depth + c % padded;
                     const std::int64_t from = offset + channel * pixels + first;
                     std::int16_t* to = image + first * size + c;
                     if (!exists) {
                       std::memset(wide, 0, sizeof(wide));
                     } else if (x.is_signed) {
                       kernels_->widen_s8(static_cast<const std::int8_t*>(x.data) + from, wide,
                                          count, static_cast<std::int16_t>(zero));
                     } else {
                       kernels_->widen_u8(static_cast<const std::uint8_t*>(x.data) + from, wide,
                                          count, static_cast<std::int16_t>(zero));
                     }
                     for (std::int64_t i = 0; i < count; ++i) to[i * size] = wide[i];
                   }
                 }
               });
  }

  /// Writes the pointers of one output pixel: table[t * pitch] for tap t.
  void fill_pixel(const std::int16_t* image, const std::int16_t* zeros, std::int64_t pixel,
                  const std::int16_t** table, std::int64_t pitch) const {
    const Window& w = window_;
    const std::int64_t x0 = pixel % w.out[2] * w.stride[2] - w.pad_begin[2];
    const std::int64_t y0 = pixel / w.out[2] % w.out[1] * w.stride[1] - w.pad_begin[1];
    const std::int64_t z0 = pixel / (w.out[2] * w.out[1]) * w.stride[0] - w.pad_begin[0];
    for (std::int64_t kz = 0; kz < w.kernel[0]; ++kz) {
      const std::int64_t z = z0 + kz * w.dilation[0];
      for (std::int64_t ky = 0; ky < w.kernel[1]; ++ky) {
        const std::int64_t y = y0 + ky * w.dilation[1];
        const bool line_exists = z >= 0 && z < w.in[0] && y >= 0 && y < w.in[1];
        for (std::int64_t kx = 0; kx < w.kernel[2]; ++kx, table += pitch) {
          const std::int64_t x = x0 + kx * w.dilation[2];
          const bool inside = line_exists && x >= 0 && x < w.in[2];
          *table = inside ? image + ((z * w.in[1] + y) * w.in[2] + x) * pixel_size() : zeros;
        }
      }
    }
  }

  void run_by_channel(const std::int16_t* image, const std::int16_t* zeros,
                      const std::int16_t* packed, std::int32_t* sums, char* workspace,
                      const sdk::Threads& threads) const {
    const std::int64_t taps = window_.taps();
    const std::int64_t work = taps * out_channels_;
    const auto grain = static_cast<std::uint64_t>(30000 / std::max<std::int64_t>(1, work) + 1);
    threads.parallel_for(
        static_cast<std::uint64_t>(window_.out_pixels()), grain,
        [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
          auto** table = reinterpret_cast<const std::int16_t**>(workspace) + worker * taps;
          for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end); ++i) {
            fill_pixel(image, zeros, i, table, 1);
            kernels_->channel_sums({table, taps, packed, out_channels_, sums + i * out_channels_});
          }
        });
  }

  Window window_;
  std::int64_t in_channels_;
  std::int64_t out_channels_;
  std::int64_t groups_;
  const IntegerKernels* kernels_;
  unsigned threads_;
  bool by_channel_;
  IntegerProduct product_;
};

template <bool kLinear>
class QuantizedConv {
 public:
  static constexpr Inputs kInputs = kLinear ? kLinearInputs : kIntegerInputs;

  struct Prepared {
    IntegerConv conv;
    const IntegerKernels* kernels = nullptr;
    Isa isa = Isa::kBaseline;
    std::int64_t batch = 0;
    bool packed = false;
    bool is_signed = false;  // y, of the linear form
    std::uint64_t w_bytes = 0, sum_bytes = 0, scale_bytes = 0, y_bytes = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      auto* own = reinterpret_cast<std::int16_t*>(workspace);
      auto* sums = reinterpret_cast<std::int32_t*>(workspace + w_bytes);
      auto* scales = reinterpret_cast<double*>(workspace + w_bytes + sum_bytes);
      char* y_last = workspace + w_bytes + sum_bytes + scale_bytes;
      char* rest = y_last + y_bytes;
      const std::int16_t* weights = own;
      if (packed) {
        weights = ctx.packed(0).template data<std::int16_t>();
      } else {
        const bool has_zero = ctx.has_input(kInputs.w_zero);
        conv.pack(Bytes(ctx.input(kInputs.w)),
                  has_zero ? Bytes(ctx.input(kInputs.w_zero)) : Bytes(),
                  has_zero && ctx.input(kInputs.w_zero).size() > 1, own);
      }
      const Bytes x(ctx.input(kInputs.x));
      const bool has_zero = ctx.has_input(kInputs.x_zero);
      const std::int32_t x_zero = has_zero ? Bytes(ctx.input(kInputs.x_zero)).at(0) : 0;
      const std::int64_t pixels = conv.window().out_pixels();
      const std::int64_t channels = conv.out_channels();
      const std::int64_t x_size = conv.in_channels() * conv.window().in_pixels();
      if constexpr (kLinear) read_scales(ctx, scales);
      for (std::int64_t image = 0; image < batch; ++image) {
        conv.run(x, image * x_size, x_zero, weights, sums, rest, ctx.threads());
        const std::int64_t offset = image * pixels * channels;
        if constexpr (kLinear) {
          narrow(ctx, sums, scales, reinterpret_cast<std::uint8_t*>(y_last));
          auto* y = ctx.output(0).template mutable_data<std::uint8_t>();
          transpose_planes(isa, y_last, y + offset, 1, pixels, channels, 1, ctx.threads());
        } else {
          auto* y = ctx.output(0).template mutable_data<std::int32_t>();
          transpose_planes(isa, sums, y + offset, 1, pixels, channels, 4, ctx.threads());
        }
      }
    }

    void read_scales(const sdk::ComputeContext& ctx, double* scales) const {
      const sdk::Tensor w = ctx.input(kInputs.w_scale);
      const double common =
          scale_at(ctx.input(kInputs.x_scale), 0) / scale_at(ctx.input(kInputs.y_scale), 0);
      for (std::int64_t c = 0; c < conv.out_channels(); ++c) {
        scales[c] = scale_at(w, w.size() > 1 ? c : 0) * common;
      }
    }

    /// From sums to y, a pixel at a time, all of its channels.
    void narrow(const sdk::ComputeContext& ctx, std::int32_t* sums, const double* scales,
                std::uint8_t* y) const {
      const std::int32_t* bias = ctx.has_input(kInputs.bias)
                                     ? ctx.input(kInputs.bias).template data<std::int32_t>()
                                     : nullptr;
      Requantize args{};
      args.scale = scales;
      args.scale_step = 1;
      args.factor = 1.0;
      args.zero_point = Bytes(ctx.input(kInputs.y_zero)).at(0);
      args.least = is_signed ? -128 : 0;
      args.most = is_signed ? 127 : 255;
      const std::int64_t channels = conv.out_channels();
      split_loop(ctx.threads(), conv.window().out_pixels(), 0.6 * static_cast<double>(channels), 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t pixel = begin; pixel < end; ++pixel) {
                     std::int32_t* row = sums + pixel * channels;
                     for (std::int64_t c = 0; bias != nullptr && c < channels; ++c) {
                       row[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(row[c]) +
                                                          static_cast<std::uint32_t>(bias[c]));
                     }
                     kernels->narrow(args, row, y + pixel * channels, channels);
                   }
                 });
    }
  };

  QuantizedConv(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node), groups_(node.get_int("group", 1)), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kInputs.x);
    const sdk::Tensor w = ctx.input(kInputs.w);
    const Window window = check_shapes(ctx);
    const DataType type = kLinear ? ctx.input(kInputs.y_zero).type() : DataType::Int32;
    sdk::Dims dims{x.dim(0), w.dim(0)};
    for (int axis = 5 - x.rank(); axis < 3; ++axis) {
      dims.push_back(window.out[static_cast<std::size_t>(axis)]);
    }
    ctx.set_output(0, type, dims);
    Prepared p{
        .conv = IntegerConv(window, x.dim(1), w.dim(0), groups_, isa_, ctx.threads().count()),
        .kernels = &integer_kernels(isa_),
        .isa = isa_,
        .batch = x.dim(0),
        .is_signed = type == DataType::Int8};
    const bool has_zero = ctx.input(kInputs.w_zero).present();
    p.packed = ctx.input_constant(kInputs.w) && (!has_zero || ctx.input_constant(kInputs.w_zero));
    const auto packed_bytes = static_cast<std::uint64_t>(p.conv.packed_size()) * 2;
    if (p.packed) {
      request_weights(ctx, packed_bytes, has_zero);
    } else {
      p.w_bytes = align64(packed_bytes);
    }
    const auto outputs = static_cast<std::uint64_t>(window.out_pixels() * w.dim(0));
    p.sum_bytes = align64(outputs * 4);
    if (kLinear) {
      p.scale_bytes = align64(static_cast<std::uint64_t>(w.dim(0)) * sizeof(double));
      p.y_bytes = align64(outputs);
    }
    ctx.set_workspace(p.w_bytes + p.sum_bytes + p.scale_bytes + p.y_bytes +
                      p.conv.workspace_bytes());
    ctx.set_variant(p.packed ? "packed" : "packing");
    const std::int64_t depth = x.dim(1) / groups_ * window.taps();
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(dims) * depth),
                 x.bytes() + w.bytes());
    return p;
  }

  /// Packs a constant W.
  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor w = ctx.source(0);
    Window window;  // the images' extents do not matter for packing
    for (int axis = 2; axis < w.rank(); ++axis) {
      window.kernel[static_cast<std::size_t>(axis + 3 - w.rank())] = w.dim(axis);
    }
    const IntegerConv conv(window, w.dim(1) * groups_, w.dim(0), groups_, isa_, 1);
    const bool has_zero = ctx.source_count() > 1;
    conv.pack(Bytes(w), has_zero ? Bytes(ctx.source(1)) : Bytes(),
              has_zero && ctx.source(1).size() > 1, ctx.target().mutable_data<std::int16_t>());
  }

 private:
  Window check_shapes(const sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(kInputs.x);
    const sdk::Tensor w = ctx.input(kInputs.w);
    if (x.rank() < 3) sdk::invalid("x has rank ", x.rank(), ", at least 3 is needed");
    if (w.rank() != x.rank()) sdk::invalid("w has rank ", w.rank(), ", x has rank ", x.rank());
    if (groups_ < 1 || w.dim(0) % groups_ != 0 || x.dim(1) != w.dim(1) * groups_) {
      sdk::invalid("x has ", x.dim(1), " channels, w dims ", sdk::to_string(w.dims()), " and ",
                   groups_,
                   " groups; channels must be w's second dimension times the groups, and the "
                   "groups divide w's first");
    }
    const auto check = [&](const char* what, std::uint32_t index, bool per_channel) {
      const sdk::Tensor tensor = ctx.input(index);
      if (!tensor.present() || tensor.size() == 1) return;
      if (per_channel && tensor.rank() == 1 && tensor.dim(0) == w.dim(0)) return;
      sdk::invalid(what, " has dims ", sdk::to_string(tensor.dims()), "; it needs one element",
                   per_channel ? ", or one for each output channel" : "");
    };
    check("x's zero point", kInputs.x_zero, false);
    check("w's zero point", kInputs.w_zero, true);
    if constexpr (kLinear) {
      check("x's scale", kInputs.x_scale, false);
      check("w's scale", kInputs.w_scale, true);
      check("y's scale", kInputs.y_scale, false);
      check("y's zero point", kInputs.y_zero, false);
      const sdk::Tensor bias = ctx.input(kInputs.bias);
      if (bias.present() && (bias.rank() != 1 || bias.dim(0) != w.dim(0))) {
        sdk::invalid("B has dims ", sdk::to_string(bias.dims()), ", expected [", w.dim(0), "]");
      }
    }
    const auto spatial = static_cast<std::size_t>(x.rank() - 2);
    return attributes_.resolve_convolution({x.dims().data() + 2, spatial},
                                           {w.dims().data() + 2, spatial});
  }

  void request_weights(sdk::PrepareContext& ctx, std::uint64_t bytes, bool has_zero) const {
    const sdk::Tensor w = ctx.input(kInputs.w);
    const std::string key = sdk::message("conv s16 isa ", static_cast<int>(isa_), " groups ",
                                         groups_, " dims ", sdk::to_string(w.dims()), " type ",
                                         sdk::type_name(w.type()), " zeros ", has_zero);
    if (has_zero) {
      ctx.request_pack(key, {kInputs.w, kInputs.w_zero}, bytes, this);
    } else {
      ctx.request_pack(key, {kInputs.w}, bytes, this);
    }
  }

  WindowAttributes attributes_;
  std::int64_t groups_;
  Isa isa_;
};

}  // namespace

sdk::KernelList conv_integer_kernels() {
  const std::vector<DataType> bytes = {DataType::UInt8, DataType::Int8};
  return {sdk::op("ConvInteger")
              .name("cpu:conv_integer")
              .types("T1", bytes)
              .types("T2", bytes)
              .kernel<QuantizedConv<false>>(),
          sdk::op("QLinearConv")
              .name("cpu:qlinear_conv")
              .types("T1", bytes)
              .types("T2", bytes)
              .types("T3", bytes)
              .kernel<QuantizedConv<true>>()};
}

}  // namespace backplane::cpu

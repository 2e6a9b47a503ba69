// backplane.cpu::QuantizedMaxPool: MaxPool of bytes [batch, spatial ..., channels], which a rewrite makes of
// one between DequantizeLinear and QuantizeLinear of the same scale; attributes of MaxPool.
#include <cstring>
#include <vector>

#include "plugins/cpu/dense/conv_geometry.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

class QuantizedMaxPool {
 public:
  struct Prepared {
    Window window;
    std::int64_t batch, channels;
    bool is_signed;
    const KernelsU8* kernels;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      const auto* x = static_cast<const std::uint8_t*>(ctx.input(0).bytes_data());
      auto* y = reinterpret_cast<std::uint8_t*>(ctx.output(0).mutable_data<char>());
      auto** tables = reinterpret_cast<const std::uint8_t**>(ctx.workspace().mutable_data<char>());
      const std::int64_t pixels = batch * window.out_pixels();
      const std::int64_t work = channels * window.taps();
      const auto grain = static_cast<std::uint64_t>(400'000 / std::max<std::int64_t>(1, work) + 1);
      ctx.threads().parallel_for(static_cast<std::uint64_t>(pixels), grain,
                                 [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
                                   const std::uint8_t** table = tables + worker * window.taps();
                                   for (auto i = static_cast<std::int64_t>(begin);
                                        i < static_cast<std::int64_t>(end); ++i) {
                                     const std::int64_t taps = find_taps(x, i, table);
                                     std::uint8_t* to = y + i * channels;
                                     if (taps == 0) {
                                       std::memset(to, is_signed ? 0x80 : 0,
                                                   static_cast<std::size_t>(channels));
                                     } else {
                                       kernels->greatest(table, taps, to, channels, is_signed);
                                     }
                                   }
                                 });
    }

    /// The pixels of the image under the window of an output pixel; returns how many.
    std::int64_t find_taps(const std::uint8_t* x, std::int64_t pixel,
                           const std::uint8_t** table) const {
      const Window& w = window;
      const std::int64_t image = pixel / w.out_pixels();
      const std::int64_t x0 = pixel % w.out[2] * w.stride[2] - w.pad_begin[2];
      const std::int64_t y0 = pixel / w.out[2] % w.out[1] * w.stride[1] - w.pad_begin[1];
      const std::int64_t z0 =
          pixel / (w.out[2] * w.out[1]) % w.out[0] * w.stride[0] - w.pad_begin[0];
      std::int64_t count = 0;
      for (std::int64_t kz = 0; kz < w.kernel[0]; ++kz) {
        const std::int64_t pz = z0 + kz * w.dilation[0];
        for (std::int64_t ky = 0; ky < w.kernel[1]; ++ky) {
          const std::int64_t py = y0 + ky * w.dilation[1];
          if (pz < 0 || pz >= w.in[0] || py < 0 || py >= w.in[1]) continue;
          for (std::int64_t kx = 0; kx < w.kernel[2]; ++kx) {
            const std::int64_t px = x0 + kx * w.dilation[2];
            if (px < 0 || px >= w.in[2]) continue;
            const std::int64_t at = image * w.in_pixels() + (pz * w.in[1] + py) * w.in[2] + px;
            table[count++] = x + at * channels;
          }
        }
      }
      return count;
    }
  };

  QuantizedMaxPool(const sdk::CreateContext& ctx, const sdk::Node& node)
      : attributes_(node), isa_(isa_of(ctx)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const sdk::DimsView dims = x.dims();
    if (dims.size() < 3) sdk::invalid("x has rank ", dims.size(), ", at least 3 is needed");
    const Window window =
        attributes_.resolve({dims.data() + 1, dims.size() - 2}, attributes_.kernel_shape);
    sdk::Dims out{dims[0]};
    for (std::size_t axis = 5 - dims.size(); axis < 3; ++axis) out.push_back(window.out[axis]);
    out.push_back(dims.back());
    ctx.set_output(0, x.type(), out);
    ctx.set_workspace(static_cast<std::uint64_t>(window.taps()) * 8 * ctx.threads().count());
    return {window, dims[0], dims.back(), x.type() == sdk::DataType::Int8, &kernels_u8(isa_)};
  }

 private:
  WindowAttributes attributes_;
  Isa isa_;
};

}  // namespace

sdk::KernelList quantized_max_pool_kernels() {
  return {sdk::op("QuantizedMaxPool", "backplane.cpu")
              .name("cpu:quantized_max_pool")
              .kernel<QuantizedMaxPool>()};
}

}  // namespace backplane::cpu

// backplane.cpu::QuantizedMaxPool: MaxPool of bytes [batch, spatial ..., channels], which a rewrite makes of
// one between DequantizeLinear and QuantizeLinear of the same scale; attributes of MaxPool.
#include <cstring>

#include "plugins/cpu/dense/conv_rows.hpp"
#include "plugins/cpu/dense/tile_u8.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

class QuantizedMaxPool {
 public:
  static constexpr std::int64_t kBlockPixels = 32;
  /// A table has each of them, inside of the image or not.
  static constexpr std::int64_t kMostTaps = 1 << 20;

  struct Prepared {
    Window window;
    std::int64_t batch, channels;
    bool is_signed;
    const KernelsU8* kernels;

    /// Pointers of a block of pixels, of one thread.
    static std::uint64_t table_bytes(const Window& window) {
      return static_cast<std::uint64_t>(window.taps() * kBlockPixels) * sizeof(void*);
    }

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      const auto* x = static_cast<const std::uint8_t*>(ctx.input(0).bytes_data());
      auto* y = reinterpret_cast<std::uint8_t*>(ctx.output(0).mutable_data<char>());
      // Padding is the least number of all.
      auto* least = reinterpret_cast<std::uint8_t*>(ctx.workspace().mutable_data<char>());
      std::memset(least, is_signed ? 0x80 : 0, static_cast<std::size_t>(channels));
      std::uint8_t* tables = least + align64(static_cast<std::uint64_t>(channels));
      const RowSource<std::uint8_t> source{window, x, ImageStrides::dense(window.in, channels)};
      const std::int64_t pixels = batch * window.out_pixels();
      const std::int64_t blocks = (pixels + kBlockPixels - 1) / kBlockPixels;
      const std::int64_t work = channels * window.taps() * kBlockPixels;
      const auto grain = static_cast<std::uint64_t>(400'000 / std::max<std::int64_t>(1, work) + 1);
      ctx.threads().parallel_for(
          static_cast<std::uint64_t>(blocks), grain,
          [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
            auto** table =
                reinterpret_cast<const std::uint8_t**>(tables + worker * table_bytes(window));
            for (auto i = static_cast<std::int64_t>(begin); i < static_cast<std::int64_t>(end);
                 ++i) {
              const std::int64_t first = i * kBlockPixels;
              const std::int64_t count = std::min(kBlockPixels, pixels - first);
              fill_taps<std::uint8_t>(table, count, source, least, first, count);
              for (std::int64_t p = 0; p < count; ++p) {
                kernels->greatest(table + p, count, window.taps(), y + (first + p) * channels,
                                  channels, is_signed);
              }
            }
          });
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
    common::checked_product(window.kernel)
        .at_most(kMostTaps, "QuantizedMaxPool: a window of ",
                 sdk::to_string(attributes_.kernel_shape));
    for (std::size_t axis = 5 - dims.size(); axis < 3; ++axis)
      common::require_elements(axis + dims.size() - 5, window.axis(axis));
    sdk::Dims out{dims[0]};
    for (std::size_t axis = 5 - dims.size(); axis < 3; ++axis) out.push_back(window.out[axis]);
    out.push_back(dims.back());
    ctx.set_output(0, x.type(), out);
    ctx.set_workspace(align64(static_cast<std::uint64_t>(dims.back())) +
                      Prepared::table_bytes(window) * ctx.threads().count());
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

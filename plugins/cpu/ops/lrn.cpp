// LRN: https://onnx.ai/onnx/operators/onnx__LRN.html
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/lrn_f32.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

void lrn_f64(const LrnArgs& args, const double* x, double* y, std::int64_t n) {
  for (std::int64_t c = 0; c < args.channels; ++c) {
    const std::int64_t first = std::max<std::int64_t>(0, c - (args.size - 1) / 2);
    const std::int64_t last = std::min(args.channels - 1, c + args.size / 2);
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t k = first; k <= last; ++k) {
        sum += x[k * args.stride + i] * x[k * args.stride + i];
      }
      const double base = args.bias + args.alpha / static_cast<double>(args.size) * sum;
      y[c * args.stride + i] = x[c * args.stride + i] / std::pow(base, args.beta);
    }
  }
}

/// Local response normalisation across channels.
class Lrn {
 public:
  struct Prepared {
    LrnArgs args{};
    std::int64_t batch = 0;
    std::int64_t count = 0;
    LrnF32 f32 = nullptr;
    Isa isa = Isa::kBaseline;
    bool in_double = false;
    bool converts = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (count == 0) return;
      const sdk::Tensor input = ctx.input(0);
      const sdk::Tensor output = ctx.output(0);
      if (in_double) {
        const double* x = input.data<double>();
        double* y = output.mutable_data<double>();
        over_tiles(ctx.threads(), 20, [&](std::int64_t offset, std::int64_t n) {
          lrn_f64(args, x + offset, y + offset, n);
        });
        return;
      }
      Pieces pieces(ctx.workspace());
      const float* x = read_as<float>(input, converts ? pieces.take<float>(count) : nullptr, isa);
      float* y = write_as<float>(output, converts ? pieces.take<float>(count) : nullptr);
      over_tiles(ctx.threads(), 1, [&](std::int64_t offset, std::int64_t n) {
        f32(args, x + offset, y + offset, n);
      });
      finish_write<float>(output, y, isa);
    }

   private:
    /// Calls body(offset, n) for pieces of images: all channels of a few neighbouring positions, so that
    /// a channel's neighbours are still in the cache.
    template <class Body>
    void over_tiles(const sdk::Threads& threads, double ns_each, const Body& body) const {
      constexpr std::int64_t kTile = 64;
      const std::int64_t tiles = (args.stride + kTile - 1) / kTile;
      const double ns = ns_each * static_cast<double>(args.channels * std::min(kTile, args.stride));
      split_loop(threads, batch * tiles, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t from = i % tiles * kTile;
          body(i / tiles * args.channels * args.stride + from, std::min(kTile, args.stride - from));
        }
      });
    }
  };

  Lrn(const sdk::CreateContext& ctx, const sdk::Node& node) : isa_(isa_of(ctx)) {
    args_.size = node.get_int("size", 0);
    args_.alpha = node.get_float("alpha", 1e-4f);
    args_.beta = node.get_float("beta", 0.75f);
    args_.bias = node.get_float("bias", 1.0f);
    if (args_.size < 1)
      sdk::invalid("attribute 'size' of LRN is ", args_.size, "; it must be positive");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 2)
      sdk::invalid("the input's shape ", to_string(x.dims()), " has no channel axis");
    ctx.set_output(0, x.type(), x.dims());
    Prepared prepared;
    prepared.args = args_;
    prepared.args.channels = x.dim(1);
    prepared.args.stride = common::product(x.dims(), 2, x.rank());
    prepared.batch = x.dim(0);
    prepared.count = x.size();
    prepared.f32 = lrn_f32(isa_);
    prepared.isa = isa_;
    prepared.in_double = computes_in_double(x.type());
    prepared.converts = x.type() != DataType::Float && x.type() != DataType::Double;
    if (prepared.converts) ctx.set_workspace(Pieces::bytes(prepared.count, prepared.count));
    return prepared;
  }

 private:
  Isa isa_;
  LrnArgs args_{};
};

}  // namespace

sdk::KernelList lrn_kernels() {
  return {sdk::op("LRN")
              .name("cpu:LRN")
              .types("T", common::float_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Lrn>()};
}

}  // namespace backplane::cpu

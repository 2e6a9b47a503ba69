// BatchNormalization: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/normalize.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias per channel, as x * a + b with a and b made
/// anew in each run: they are few. In training mode (opset 14) mean and variance are those of the batch,
/// and the running ones are outputs.
class BatchNormalization {
 public:
  struct Prepared {
    std::int64_t batch = 0;
    std::int64_t channels = 0;
    std::int64_t inner = 0;  // elements of a channel of one image
    float epsilon = 0;
    float momentum = 0;
    Isa isa = Isa::kBaseline;
    bool in_double = false;
    bool converts = false;
    bool training = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (in_double) {
        run<double>(ctx);
      } else {
        run<float>(ctx);
      }
    }

   private:
    /// The five inputs after x, converted, and what becomes of them.
    template <class T>
    struct Parameters {
      const T* scale;
      const T* bias;
      const T* mean;
      const T* variance;
      T* a;
      T* b;
    };

    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const std::int64_t count = batch * channels * inner;
      Pieces pieces(ctx.workspace());
      Parameters<T> p{};
      p.a = pieces.take<T>(channels);
      p.b = pieces.take<T>(channels);
      T* scratch[4];
      for (T*& piece : scratch) piece = pieces.take<T>(channels);
      p.scale = read_as<T>(ctx.input(1), scratch[0], isa);
      p.bias = read_as<T>(ctx.input(2), scratch[1], isa);
      p.mean = read_as<T>(ctx.input(3), scratch[2], isa);
      p.variance = read_as<T>(ctx.input(4), scratch[3], isa);
      T* x_scratch = converts ? pieces.take<T>(count) : nullptr;
      const T* x = count == 0 ? nullptr : read_as<T>(ctx.input(0), x_scratch, isa);
      T* y = write_as<T>(ctx.output(0), x_scratch);
      if (training) {
        T* moments[2] = {pieces.take<T>(channels), pieces.take<T>(channels)};
        measure(ctx, x, p, moments[0], moments[1]);
        p.mean = moments[0];
        p.variance = moments[1];
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        p.a[c] = p.scale[c] / std::sqrt(p.variance[c] + static_cast<T>(epsilon));
        p.b[c] = p.bias[c] - p.mean[c] * p.a[c];
      }
      if (count == 0) return;
      apply(ctx.threads(), x, y, p);
      finish_write<T>(ctx.output(0), y, isa);
    }

    template <class T>
    void apply(const sdk::Threads& threads, const T* x, T* y, const Parameters<T>& p) const {
      const NormalizeLoops<T>& loops = normalize_loops<T>(isa);
      if (inner == 1) {
        const double ns = 0.15 * static_cast<double>(channels);
        split_loop(threads, batch, ns, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            loops.affine_each(x + i * channels, y + i * channels, channels, p.a, p.b);
          }
        });
        return;
      }
      const double ns = 0.12 * static_cast<double>(inner);
      split_loop(threads, batch * channels, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t c = i % channels;
          loops.affine(x + i * inner, y + i * inner, inner, p.a[c], p.b[c]);
        }
      });
    }

    /// Mean and variance of the batch, and the running ones as outputs 1 and 2.
    template <class T>
    void measure(const sdk::ComputeContext& ctx, const T* x, const Parameters<T>& p, T* means,
                 T* variances) const {
      const NormalizeLoops<T>& loops = normalize_loops<T>(isa);
      const T images = static_cast<T>(batch);
      for (std::int64_t c = 0; c < channels; ++c) {
        T mean = 0;
        for (std::int64_t i = 0; i < batch; ++i) {
          mean += loops.moments(x + (i * channels + c) * inner, inner).mean / images;
        }
        T variance = 0;
        for (std::int64_t i = 0; i < batch; ++i) {
          const Moments<T> m = loops.moments(x + (i * channels + c) * inner, inner);
          variance += (m.variance + (m.mean - mean) * (m.mean - mean)) / images;
        }
        means[c] = mean;
        variances[c] = variance;
        const T keep = static_cast<T>(momentum);
        write(ctx, 1, c, p.mean[c] * keep + mean * (1 - keep));
        write(ctx, 2, c, p.variance[c] * keep + variance * (1 - keep));
      }
    }

    template <class T>
    static void write(const sdk::ComputeContext& ctx, std::uint32_t output, std::int64_t c,
                      T value) {
      if (!ctx.has_output(output)) return;
      const sdk::Tensor tensor = ctx.output(output);
      common::with_float(tensor.type(), [&](auto tag) {
        using To = typename decltype(tag)::type;
        tensor.mutable_data<To>()[c] = common::narrow<To>(value);
      });
    }
  };

  BatchNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        epsilon_(node.get_float("epsilon", 1e-5f)),
        momentum_(node.get_float("momentum", 0.9f)),
        per_feature_(node.since_version() < 9 && node.get_int("spatial", 1) == 0),
        training_(node.get_int("training_mode", 0) != 0) {
    if (node.since_version() < 14) {
      for (std::size_t k = 1; k < node.output_count(); ++k) {
        if (node.output(k)) {
          sdk::unsupported("output ", k,
                           " exists only in training, which is not handled before "
                           "opset 14");
        }
      }
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 1) sdk::invalid("the input has rank 0; it needs a batch axis");
    const int rank = x.rank();
    Prepared prepared;
    prepared.batch = x.dim(0);
    prepared.channels = rank == 1 ? 1 : x.dim(1);
    prepared.inner = common::product(x.dims(), std::min(rank, 2), rank);
    if (per_feature_) {
      prepared.channels *= prepared.inner;
      prepared.inner = 1;
    }
    for (std::uint32_t k = 1; k < 5; ++k) {
      if (ctx.input(k).size() != prepared.channels) {
        sdk::invalid("input ", k, " has shape ", to_string(ctx.input(k).dims()),
                     "; the input of shape ", to_string(x.dims()), " needs ", prepared.channels,
                     " elements");
      }
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    for (const std::uint32_t k : {1u, 2u}) {
      if (ctx.output_wanted(k)) ctx.set_output(k, ctx.input(k + 2).type(), ctx.input(k + 2).dims());
    }
    prepared.epsilon = epsilon_;
    prepared.momentum = momentum_;
    prepared.isa = isa_;
    prepared.training = training_;
    prepared.in_double = computes_in_double(x.type());
    prepared.converts = x.type() != DataType::Float && x.type() != DataType::Double;
    const std::int64_t c = prepared.channels;
    ctx.set_workspace(Pieces::bytes(c, c, c, c, c, c, c, c, prepared.converts ? x.size() : 0));
    return prepared;
  }

 private:
  Isa isa_;
  float epsilon_;
  float momentum_;
  bool per_feature_;
  bool training_;
};

sdk::KernelBuilder builder(int first, int last) {
  return sdk::op("BatchNormalization")
      .name("cpu:BatchNormalization")
      .since(first, last)
      .types("T", common::float_types());
}

}  // namespace

sdk::KernelList batch_normalization_kernels() {
  const common::TypeList floats = common::float_types();
  return {
      builder(1, 13).flags(BP_KERNEL_WIDENS_HALF).kernel<BatchNormalization>(),
      builder(14, 14).types("U", floats).flags(BP_KERNEL_WIDENS_HALF).kernel<BatchNormalization>(),
      builder(15, std::numeric_limits<int>::max())
          .types("T1", floats)
          .types("T2", floats)
          .flags(BP_KERNEL_WIDENS_HALF)
          .kernel<BatchNormalization>()};
}

}  // namespace backplane::cpu

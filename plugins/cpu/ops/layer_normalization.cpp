// LayerNormalization, RMSNormalization: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html,
// onnx__RMSNormalization.html
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/binary_plan.hpp"
#include "plugins/cpu/kernels/normalize.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on; RMS leaves the
/// mean out, takes the mean square for the variance, and has a bias as a node of a rewrite alone. 16-bit elements are
/// computed with in float.
class LayerNormalization {
 public:
  struct Prepared {
    std::int64_t rows = 0;
    std::int64_t n = 0;
    std::int64_t scale_count = 0;
    std::int64_t bias_count = 0;
    float epsilon = 0;
    Isa isa = Isa::kBaseline;
    bool rms = false;
    bool in_double = false;
    bool converts = false;  // some tensor is not of the type that is computed in
    bool plain = true;  // scale and bias lie as a row does; otherwise they are applied afterwards
    BroadcastRows multiply;
    BroadcastRows add;

    void compute(const sdk::ComputeContext& ctx) const {
      if (rows * n == 0) return;
      if (in_double) {
        run<double>(ctx);
      } else {
        run<float>(ctx);
      }
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      Pieces pieces(ctx.workspace());
      const bool has_bias = ctx.has_input(2);
      T* ones = pieces.take<T>(n);
      T* x_scratch = converts ? pieces.take<T>(rows * n) : nullptr;
      T* scale_scratch = converts ? pieces.take<T>(scale_count) : nullptr;
      T* bias_scratch = converts ? pieces.take<T>(bias_count) : nullptr;
      const T* x = read_as<T>(ctx.input(0), x_scratch, isa);
      const T* scale = read_as<T>(ctx.input(1), scale_scratch, isa);
      const T* bias = has_bias ? read_as<T>(ctx.input(2), bias_scratch, isa) : nullptr;
      T* y = write_as<T>(ctx.output(0), x_scratch);
      if (plain) {
        standardize(ctx, x, y, scale, bias);
      } else {
        std::fill_n(ones, n, T(1));
        standardize(ctx, x, y, ones, static_cast<const T*>(nullptr));
        multiply.run(y, scale, y, ctx.threads());
        if (has_bias) add.run(y, bias, y, ctx.threads());
      }
      finish_write<T>(ctx.output(0), y, isa);
    }

    template <class T>
    void standardize(const sdk::ComputeContext& ctx, const T* x, T* y, const T* scale,
                     const T* bias) const {
      const NormalizeLoops<T>& loops = normalize_loops<T>(isa);
      const bool wants_mean = ctx.has_output(1);
      const bool wants_factor = ctx.has_output(2);
      const double ns = (in_double ? 0.8 : 0.35) * static_cast<double>(n);
      split_loop(ctx.threads(), rows, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* from = x + row * n;
          const Moments<T> m =
              rms ? Moments<T>{T(0), loops.mean_square(from, n)} : loops.moments(from, n);
          const T factor = T(1) / std::sqrt(m.variance + static_cast<T>(epsilon));
          loops.standardize(from, y + row * n, n, m.mean, factor, scale, bias);
          if (wants_mean) write_stash(ctx.output(1), row, m.mean);
          if (wants_factor) write_stash(ctx.output(2), row, factor);
        }
      });
    }

    /// Mean and InvStdDev are float or, with stash_type 16, bfloat16.
    template <class T>
    static void write_stash(const sdk::Tensor& output, std::int64_t row, T value) {
      if (output.type() == DataType::Float) {
        output.mutable_data<float>()[row] = static_cast<float>(value);
      } else if (output.type() == DataType::Double) {
        output.mutable_data<double>()[row] = static_cast<double>(value);
      } else {
        output.mutable_data<common::BFloat16>()[row] =
            common::to_bfloat16(static_cast<float>(value));
      }
    }
  };

  LayerNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        rms_(node.op_type() == "RMSNormalization"),
        axis_(node.get_int("axis", -1)),
        epsilon_(node.get_float("epsilon", 1e-5f)) {
    const std::int64_t stash = node.get_int("stash_type", BP_FLOAT);
    if (stash != BP_FLOAT && stash != BP_BFLOAT16 && stash != BP_DOUBLE) {
      sdk::unsupported("attribute 'stash_type' is ", stash,
                       "; this kernel computes in float (1) and writes float (1), double (11) or "
                       "bfloat16 (16) statistics");
    }
    stash_ = static_cast<DataType>(stash);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const sdk::Tensor scale = ctx.input(1);
    const sdk::Tensor bias = ctx.input(2);
    const int axis = common::normalize_axis(axis_, x.rank());
    ctx.set_output(0, rms_ ? scale.type() : x.type(), x.dims());
    if (!rms_ || scale.type() == x.type()) ctx.allow_in_place(0, 0);
    sdk::Dims statistics(x.dims().begin(), x.dims().end());
    std::fill(statistics.begin() + axis, statistics.end(), 1);
    for (const std::uint32_t output : {1u, 2u}) {
      if (ctx.output_wanted(output)) ctx.set_output(output, stash_, statistics);
    }
    Prepared prepared;
    prepared.rows = common::product(x.dims(), 0, axis);
    prepared.n = common::product(x.dims(), axis, x.rank());
    prepared.epsilon = epsilon_;
    prepared.isa = isa_;
    prepared.rms = rms_;
    prepared.in_double = computes_in_double(x.type());
    const DataType inner = prepared.in_double ? DataType::Double : DataType::Float;
    prepared.converts = x.type() != inner || scale.type() != inner;
    prepared.scale_count = scale.size();
    prepared.bias_count = bias.present() ? bias.size() : 0;
    plan_parameters(prepared, x, axis, scale, bias, inner);
    const std::int64_t wide = prepared.converts ? prepared.rows * prepared.n : 0;
    ctx.set_workspace(Pieces::bytes(prepared.n, wide, prepared.scale_count, prepared.bias_count));
    return prepared;
  }

 private:
  /// Whether `parameter` has the dims of the normalised axes, up to leading ones.
  static bool lies_like_row(sdk::DimsView parameter, sdk::DimsView x, int axis) {
    const std::size_t inner = x.size() - static_cast<std::size_t>(axis);
    for (std::size_t back = 0; back < std::max(inner, parameter.size()); ++back) {
      const std::int64_t have =
          back < parameter.size() ? parameter[parameter.size() - 1 - back] : 1;
      const std::int64_t want = back < inner ? x[x.size() - 1 - back] : 1;
      if (have != want) return false;
    }
    return true;
  }

  void plan_parameters(Prepared& prepared, const sdk::Tensor& x, int axis, const sdk::Tensor& scale,
                       const sdk::Tensor& bias, DataType inner) const {
    const sdk::DimsView dims = x.dims();
    for (const sdk::Tensor& parameter : {scale, bias}) {
      if (!parameter.present()) continue;
      if (!common::broadcasts_to(parameter.dims(), dims)) {
        sdk::invalid("a parameter's shape ", to_string(parameter.dims()),
                     " does not broadcast to the input's ", to_string(dims));
      }
      prepared.plain = prepared.plain && lies_like_row(parameter.dims(), dims, axis);
    }
    if (prepared.plain) return;
    prepared.multiply = plan_binary(BinaryOp::kMul, inner, isa_, dims, scale.dims(), dims);
    if (bias.present()) {
      prepared.add = plan_binary(BinaryOp::kAdd, inner, isa_, dims, bias.dims(), dims);
    }
  }

  Isa isa_;
  bool rms_;
  std::int64_t axis_;
  float epsilon_;
  DataType stash_ = DataType::Float;
};

}  // namespace

sdk::KernelList layer_normalization_kernels() {
  return {sdk::op("LayerNormalization")
              .name("cpu:LayerNormalization")
              .types("T", common::float_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<LayerNormalization>(),
          sdk::op("RMSNormalization")
              .name("cpu:RMSNormalization")
              .types("T", common::float_types())
              .types("V", common::float_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<LayerNormalization>(),
          // Made of its parts by a rewrite.
          sdk::op("RMSNormalization", "backplane.cpu")
              .name("cpu:rms_normalization_fused")
              .kernel<LayerNormalization>()};
}

}  // namespace backplane::cpu

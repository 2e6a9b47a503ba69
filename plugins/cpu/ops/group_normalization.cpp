// InstanceNormalization, GroupNormalization:
// https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html, onnx__GroupNormalization.html
// backplane.cpu::GroupNormalization (groups, epsilon): the same on float images that are channels last, with the
// activation after it; scale and bias are per channel, and may be left out.
#include <cmath>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/channel_kernels.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/as_real.hpp"
#include "plugins/cpu/kernels/normalize.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Normalises groups of channels of each image; an instance is a group of one channel. Scale and bias
/// are per channel; in opset 18 GroupNormalization's were per group.
class GroupNormalization {
 public:
  struct Prepared {
    std::int64_t batch = 0;
    std::int64_t groups = 0;
    std::int64_t group_channels = 0;
    std::int64_t inner = 0;
    float epsilon = 0;
    Isa isa = Isa::kBaseline;
    bool in_double = false;
    bool converts = false;
    bool per_group = false;

    void compute(const sdk::ComputeContext& ctx) const {
      if (batch * groups * group_channels * inner == 0) return;
      if (in_double) {
        run<double>(ctx);
      } else {
        run<float>(ctx);
      }
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const std::int64_t group_size = group_channels * inner;
      Pieces pieces(ctx.workspace());
      T* scratch[2];
      for (T*& piece : scratch)
        piece = converts ? pieces.take<T>(groups * group_channels) : nullptr;
      T* x_scratch = converts ? pieces.take<T>(batch * groups * group_size) : nullptr;
      const T* scale = read_as<T>(ctx.input(1), scratch[0], isa);
      const T* bias = read_as<T>(ctx.input(2), scratch[1], isa);
      const T* x = read_as<T>(ctx.input(0), x_scratch, isa);
      T* y = write_as<T>(ctx.output(0), x_scratch);
      const NormalizeLoops<T>& loops = normalize_loops<T>(isa);
      const double ns = 0.4 * static_cast<double>(group_size);
      split_loop(ctx.threads(), batch * groups, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const T* from = x + i * group_size;
          const Moments<T> m = loops.moments(from, group_size);
          const T factor = T(1) / std::sqrt(m.variance + static_cast<T>(epsilon));
          const std::int64_t group = i % groups;
          for (std::int64_t c = 0; c < group_channels; ++c) {
            const std::int64_t parameter = per_group ? group : group * group_channels + c;
            const T a = factor * scale[parameter];
            const T b = bias[parameter] - m.mean * a;
            loops.affine(from + c * inner, y + i * group_size + c * inner, inner, a, b);
          }
        }
      });
      finish_write<T>(ctx.output(0), y, isa);
    }
  };

  GroupNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        epsilon_(node.get_float("epsilon", 1e-5f)),
        by_instance_(node.is("InstanceNormalization")),
        per_group_(!by_instance_ && node.since_version() < 21),
        groups_(node.get_int("num_groups", 0)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    if (x.rank() < 2) {
      sdk::invalid("the input's shape ", to_string(x.dims()), " has no channel axis");
    }
    const std::int64_t channels = x.dim(1);
    Prepared prepared;
    prepared.batch = x.dim(0);
    prepared.groups = by_instance_ ? channels : groups_;
    if (prepared.groups < 0 || (prepared.groups == 0 && channels != 0) ||
        (prepared.groups > 0 && channels % prepared.groups != 0)) {
      sdk::invalid("attribute 'num_groups' is ", groups_, ", which does not divide ", channels,
                   " channels");
    }
    prepared.group_channels = prepared.groups == 0 ? 0 : channels / prepared.groups;
    prepared.inner = common::product(x.dims(), 2, x.rank());
    prepared.epsilon = epsilon_;
    prepared.isa = isa_;
    prepared.in_double = computes_in_double(x.type());
    prepared.converts = x.type() != DataType::Float && x.type() != DataType::Double;
    prepared.per_group = per_group_;
    const std::int64_t wanted = per_group_ ? prepared.groups : channels;
    for (const std::uint32_t k : {1u, 2u}) {
      if (ctx.input(k).size() != wanted) {
        sdk::invalid("input ", k, " has shape ", to_string(ctx.input(k).dims()), "; it needs ",
                     wanted, " elements");
      }
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    if (prepared.converts) ctx.set_workspace(Pieces::bytes(channels, channels, x.size()));
    return prepared;
  }

 private:
  Isa isa_;
  float epsilon_;
  bool by_instance_;
  bool per_group_;
  std::int64_t groups_;
};

class LastGroupNormalization {
 public:
  struct Prepared {
    std::int64_t batch = 0, pixels = 0, channels = 0, groups = 0;
    std::int64_t block =
        1;  // pixels whose moments are taken at a time: they stay in the first-level cache
    float epsilon = 0;
    Activation activation;
    const ChannelKernels* kernels = nullptr;
    const ActivationKernels* activations = nullptr;

    std::int64_t blocks() const { return (pixels + block - 1) / block; }
    std::int64_t block_pixels(std::int64_t i) const { return std::min(block, pixels - i * block); }

    void compute(const sdk::ComputeContext& ctx) const {
      if (batch * pixels * channels == 0) return;
      Pieces pieces(ctx.workspace());
      auto* means = pieces.take<float>(batch * blocks() * channels);
      auto* squares = pieces.take<float>(batch * blocks() * channels);
      auto* scale = pieces.take<float>(batch * channels);
      auto* shift = pieces.take<float>(batch * channels);
      const float* x = ctx.input(0).data<float>();
      float* y = ctx.output(0).mutable_data<float>();
      const auto for_blocks = [&](double ns_per_element, const auto& body) {
        const double ns = ns_per_element * static_cast<double>(block * channels);
        split_loop(ctx.threads(), batch * blocks(), ns, 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t image = i / blocks();
                       const std::int64_t first = image * pixels + i % blocks() * block;
                       body(i, image, first * channels, block_pixels(i % blocks()));
                     }
                   });
      };
      for_blocks(0.2, [&](std::int64_t i, std::int64_t, std::int64_t at, std::int64_t count) {
        kernels->moments(x + at, count, channels, means + i * channels, squares + i * channels);
      });
      for (std::int64_t image = 0; image < batch; ++image) {
        const std::int64_t first = image * blocks() * channels;
        for (std::int64_t group = 0; group < groups; ++group) {
          finish(ctx, group, means + first, squares + first, scale + image * channels,
                 shift + image * channels);
        }
      }
      for_blocks(0.1, [&](std::int64_t, std::int64_t image, std::int64_t at, std::int64_t count) {
        activations->scale_shift(activation, x + at, channels, scale + image * channels,
                                 shift + image * channels, y + at, channels, count, channels);
      });
    }

    /// From the moments of the blocks of an image the factors of a group's channels.
    void finish(const sdk::ComputeContext& ctx, std::int64_t group, const float* means,
                const float* squares, float* scale, float* shift) const {
      const std::int64_t first = group * (channels / groups);
      const std::int64_t last = first + channels / groups;
      const auto count = static_cast<double>(pixels * (last - first));
      double mean = 0;
      for (std::int64_t i = 0; i < blocks(); ++i) {
        double sum = 0;
        for (std::int64_t c = first; c < last; ++c)
          sum += static_cast<double>(means[i * channels + c]);
        mean += sum * static_cast<double>(block_pixels(i));
      }
      mean /= count;
      double variance = 0;
      for (std::int64_t i = 0; i < blocks(); ++i) {
        const auto weight = static_cast<double>(block_pixels(i));
        for (std::int64_t c = first; c < last; ++c) {
          const double distance = static_cast<double>(means[i * channels + c]) - mean;
          variance += static_cast<double>(squares[i * channels + c]) + weight * distance * distance;
        }
      }
      const double factor = 1.0 / std::sqrt(variance / count + static_cast<double>(epsilon));
      for (std::int64_t c = first; c < last; ++c) {
        const double a = ctx.has_input(1) ? factor * parameter(ctx, 1, c) : factor;
        const double b = ctx.has_input(2) ? parameter(ctx, 2, c) : 0.0;
        scale[c] = static_cast<float>(a);
        shift[c] = static_cast<float>(b - mean * a);
      }
    }

    static double parameter(const sdk::ComputeContext& ctx, std::uint32_t input, std::int64_t c) {
      return static_cast<double>(ctx.input(input).data<float>()[c]);
    }
  };

  LastGroupNormalization(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        groups_(node.get_int("groups", 1)),
        epsilon_(node.get_float("epsilon", 1e-5f)),
        activation_(read_activation(node)) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::DimsView x = ctx.input(0).dims();
    Prepared prepared;
    prepared.batch = x[0];
    prepared.channels = x.back();
    prepared.pixels = common::product(x, 1, static_cast<int>(x.size()) - 1);
    prepared.groups = groups_;
    if (groups_ < 1 || prepared.channels % groups_ != 0)
      sdk::invalid("GroupNormalization: ", prepared.channels, " channels in ", groups_, " groups");
    for (const std::uint32_t k : {1u, 2u}) {
      const sdk::Tensor parameter = ctx.input(k);
      if (parameter.present() && parameter.size() != prepared.channels) {
        sdk::invalid("GroupNormalization: input ", k, " has ", parameter.size(), " elements for ",
                     prepared.channels, " channels");
      }
    }
    constexpr std::int64_t kBlockFloats = 4096;
    prepared.block = std::clamp<std::int64_t>(
        kBlockFloats / std::max<std::int64_t>(1, prepared.channels), 8, 256);
    prepared.epsilon = epsilon_;
    prepared.activation = activation_;
    prepared.kernels = &channel_kernels(isa_);
    prepared.activations = &activation_kernels(isa_);
    const std::int64_t moments = prepared.batch * prepared.blocks() * prepared.channels;
    const std::int64_t factors = prepared.batch * prepared.channels;
    ctx.set_output(0, DataType::Float, x);
    ctx.set_workspace(Pieces::bytes(moments, moments, factors, factors));
    ctx.allow_in_place(0, 0);
    return prepared;
  }

 private:
  Isa isa_;
  std::int64_t groups_;
  float epsilon_;
  Activation activation_;
};

}  // namespace

sdk::KernelList group_normalization_kernels() {
  sdk::KernelList list{sdk::op("GroupNormalization", "backplane.cpu")
                           .name("cpu:group_normalization_last")
                           .kernel<LastGroupNormalization>()};
  for (const char* op : {"InstanceNormalization", "GroupNormalization"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::float_types())
                       .flags(BP_KERNEL_WIDENS_HALF)
                       .kernel<GroupNormalization>());
  }
  return list;
}

}  // namespace backplane::cpu

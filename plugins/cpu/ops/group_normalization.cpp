// InstanceNormalization, GroupNormalization:
// https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html, onnx__GroupNormalization.html
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

}  // namespace

sdk::KernelList group_normalization_kernels() {
  sdk::KernelList list;
  for (const char* op : {"InstanceNormalization", "GroupNormalization"}) {
    list.push_back(sdk::op(op)
                       .name(std::string("cpu:") + op)
                       .types("T", common::float_types())
                       .kernel<GroupNormalization>());
  }
  return list;
}

}  // namespace backplane::cpu

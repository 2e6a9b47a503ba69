// backplane.cpu::ToChannelsLast: [batch, channels, spatial ...] to [batch, spatial ..., channels].
// backplane.cpu::ToChannelsFirst: the way back. A rewrite puts them at the borders of its regions.
#include "plugins/cpu/dense/layout_copy.hpp"
#include "plugins/cpu/device.hpp"

namespace backplane::cpu {
namespace {

class Reorder {
 public:
  struct Prepared {
    int64_t batch, rows, columns;
    int element_bytes;
    Isa isa;

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      transpose_planes(isa, ctx.input(0).bytes_data(), ctx.output(0).mutable_data<char>(), batch,
                       rows, columns, element_bytes, ctx.threads());
    }
  };

  Reorder(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)), to_last_(node.op_type() == "ToChannelsLast") {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int rank = x.rank();
    if (rank < 3) sdk::invalid("a reorder of images got rank ", rank, ", at least 3 is needed");
    sdk::Dims dims{x.dim(0)};
    int64_t pixels = 1;
    for (int axis = to_last_ ? 2 : 1; axis < (to_last_ ? rank : rank - 1); ++axis) {
      dims.push_back(x.dim(axis));
      pixels *= x.dim(axis);
    }
    const int64_t channels = x.dim(to_last_ ? 1 : rank - 1);
    dims.insert(to_last_ ? dims.end() : dims.begin() + 1, channels);
    ctx.set_output(0, x.type(), dims);
    // With one channel or one pixel the elements lie in the same order either way.
    if (channels == 1 || pixels == 1) ctx.set_view(0, 0);
    return {x.dim(0), to_last_ ? channels : pixels, to_last_ ? pixels : channels,
            sdk::element_bytes(x.type()), isa_};
  }

 private:
  Isa isa_;
  bool to_last_;
};

}  // namespace

sdk::KernelList layout_kernels() {
  return {
      sdk::op("ToChannelsLast", "backplane.cpu").name("cpu:to_channels_last").kernel<Reorder>(),
      sdk::op("ToChannelsFirst", "backplane.cpu").name("cpu:to_channels_first").kernel<Reorder>(),
  };
}

}  // namespace backplane::cpu

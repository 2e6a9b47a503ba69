// ArgMax, ArgMin: https://onnx.ai/onnx/operators/onnx__ArgMax.html, onnx__ArgMin.html
#include <algorithm>

#include "backplane/plugin.hpp"
#include "plugins/common/axes.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/arg_scan.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

/// x viewed as [outer, n, inner]; the index of the greatest or least of each n.
struct View {
  std::int64_t outer;
  std::int64_t n;
  std::int64_t inner;
};

void scan(const ArgScan& loops, const View& view, const char* x, std::int64_t element_bytes,
          std::int64_t* y, const sdk::Threads& threads) {
  if (view.inner == 1) {
    split_loop(threads, view.outer, static_cast<double>(view.n), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   y[i] = loops.row(x + i * view.n * element_bytes, view.n);
                 }
               });
    return;
  }
  const std::int64_t tile = std::min(kArgTile, view.inner);
  const std::int64_t tiles = (view.inner + tile - 1) / tile;
  const double ns = 0.4 * static_cast<double>(view.n * tile);
  split_loop(threads, view.outer * tiles, ns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t column = i % tiles * tile;
      const std::int64_t offset = i / tiles * view.n * view.inner + column;
      loops.columns(x + offset * element_bytes, view.n, view.inner,
                    std::min(tile, view.inner - column), y + i / tiles * view.inner + column);
    }
  });
}

class ArgExtreme {
 public:
  struct Prepared {
    View view;
    ArgScan loops;
    std::int64_t element_bytes;
    void compute(const sdk::ComputeContext& ctx) const {
      if (view.outer * view.inner == 0) return;
      scan(loops, view, ctx.input(0).data<char>(), element_bytes,
           ctx.output(0).mutable_data<std::int64_t>(), ctx.threads());
    }
  };

  ArgExtreme(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        axis_(node.get_int("axis", 0)),
        keepdims_(node.get_int("keepdims", 1) != 0),
        choice_{node.is("ArgMin"), node.get_int("select_last_index", 0) != 0} {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    const int axis = common::normalize_axis(axis_, x.rank());
    sdk::Dims out(x.dims().begin(), x.dims().end());
    if (keepdims_) {
      out[static_cast<std::size_t>(axis)] = 1;
    } else {
      out.erase(out.begin() + axis);
    }
    ctx.set_output(0, sdk::DataType::Int64, out);
    const View view{common::product(x.dims(), 0, axis), x.dim(axis),
                    common::product(x.dims(), axis + 1, x.rank())};
    if (view.n == 0 && view.outer * view.inner > 0) {
      sdk::invalid("axis ", axis_, " of the input's shape ", to_string(x.dims()),
                   " has no element to choose");
    }
    return {view, arg_scan(isa_, x.type(), choice_), sdk::element_bytes(x.type())};
  }

 private:
  Isa isa_;
  std::int64_t axis_;
  bool keepdims_;
  ArgChoice choice_;
};

}  // namespace

sdk::KernelList arg_extreme_kernels() {
  return {
      sdk::op("ArgMax").name("cpu:ArgMax").types("T", common::number_types()).kernel<ArgExtreme>(),
      sdk::op("ArgMin").name("cpu:ArgMin").types("T", common::number_types()).kernel<ArgExtreme>()};
}

}  // namespace backplane::cpu

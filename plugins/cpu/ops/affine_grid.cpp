// AffineGrid: https://onnx.ai/onnx/operators/onnx__AffineGrid.html
#include <array>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/kernels/parallel.hpp"

namespace backplane::cpu {
namespace {

/// Positions along one axis of the grid, from -1 to 1.
struct GridAxis {
  std::int64_t size = 1;
  double start = 0, step = 0;

  GridAxis() = default;
  GridAxis(std::int64_t count, bool align_corners) : size(count) {
    const auto cells = static_cast<double>(count);
    if (align_corners) {  // -1 and 1 are the centres of the outer elements
      start = -1;
      step = count > 1 ? 2 / (cells - 1) : 0;
    } else {  // ... and their outer edges
      step = count > 0 ? 2 / cells : 0;
      start = -1 + step / 2;
    }
  }
  double at(std::int64_t i) const { return start + static_cast<double>(i) * step; }
};

/// Each position of a grid of 2 or 3 axes, moved by the matrix of its image.
class AffineGrid {
 public:
  struct Prepared {
    std::int64_t batch = 0;
    std::int64_t rank = 2;           // of the space
    std::array<GridAxis, 3> axes{};  // depth (of 1 where there is none), height, width

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      common::with_float(ctx.output(0).type(),
                         [&](auto tag) { run<typename decltype(tag)::type>(ctx); });
    }

   private:
    template <class T>
    void run(const sdk::ComputeContext& ctx) const {
      const T* theta = ctx.input(0).data<T>();
      T* grid = ctx.output(0).mutable_data<T>();
      const std::int64_t width = axes[2].size, rows = axes[0].size * axes[1].size;
      const double ns = 4.0 * static_cast<double>(width * rank);
      split_loop(ctx.threads(), batch * rows, ns, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t row = i % rows;
          write_row(theta + i / rows * rank * (rank + 1), axes[0].at(row / axes[1].size),
                    axes[1].at(row % axes[1].size), grid + i * width * rank);
        }
      });
    }

    /// The matrix has a row for each axis of the space, x first: factors of x, y (and z), and a shift.
    template <class T>
    void write_row(const T* theta, double z, double y, T* to) const {
      for (std::int64_t k = 0; k < rank; ++k) {
        const T* factors = theta + k * (rank + 1);
        const auto factor = [&](std::int64_t j) {
          return static_cast<double>(common::widen(factors[j]));
        };
        const double of_x = factor(0);
        const double rest = factor(1) * y + (rank == 3 ? factor(2) * z : 0) + factor(rank);
        for (std::int64_t x = 0; x < axes[2].size; ++x)
          to[x * rank + k] = common::narrow<T>(of_x * axes[2].at(x) + rest);
      }
    }
  };

  AffineGrid(const sdk::CreateContext&, const sdk::Node& node)
      : align_corners_(node.get_int("align_corners", 0) != 0) {}

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor theta = ctx.input(0);
    const sdk::Dims size = ctx.input(1).to_ints();
    if (size.size() != 4 && size.size() != 5)
      sdk::invalid("AffineGrid: size is ", sdk::to_string(size),
                   "; [N,C,H,W] or [N,C,D,H,W] is needed");
    for (const std::int64_t dim : size) {
      if (dim < 0) sdk::invalid("AffineGrid: size ", sdk::to_string(size), " has a negative one");
    }
    Prepared prepared;
    prepared.batch = size[0];
    prepared.rank = static_cast<std::int64_t>(size.size()) - 2;
    const sdk::Dims wanted = {size[0], prepared.rank, prepared.rank + 1};
    if (sdk::to_string(theta.dims()) != sdk::to_string(wanted))
      sdk::invalid("AffineGrid: theta has dims ", sdk::to_string(theta.dims()), ", size ",
                   sdk::to_string(size), " needs ", sdk::to_string(wanted));
    sdk::Dims dims = {size[0]};
    for (std::size_t i = 2; i < size.size(); ++i) {
      prepared.axes[i + 3 - size.size()] = GridAxis(size[i], align_corners_);
      dims.push_back(size[i]);
    }
    dims.push_back(prepared.rank);
    ctx.set_output(0, theta.type(), dims);
    return prepared;
  }

 private:
  bool align_corners_;
};

}  // namespace

sdk::KernelList affine_grid_kernels() {
  return {sdk::op("AffineGrid")
              .name("cpu:affine_grid")
              .roles({BP_INPUT_DATA, BP_INPUT_HOST_VALUE})
              .types("T1", common::float_types())
              .kernel<AffineGrid>()};
}

}  // namespace backplane::cpu

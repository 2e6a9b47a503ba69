// FusedRotation: what rewrite/rotations.cpp makes of nodes that turn the halves of rows by angles.
#include "plugins/common/kernels/rotation.hpp"

#include "op_table.hpp"
#include "plugins/common/broadcast.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {
namespace {

/// x * cos + concat(-x2, x1) * sin of inputs x, cos and sin, which broadcast to one another; x1 and x2 are the halves of x's last
/// axis, which all three have. It computes in float; inputs are of any float types, the output of that in "type". x is read with its
/// axes in the order of "perm".
class FusedRotation {
 public:
  FusedRotation(const Device&, const sdk::Node& node)
      : order_(node.get_ints("perm")),
        type_(static_cast<DataType>(node.get_int("type", BP_FLOAT))) {}

  void prepare(sdk::PrepareContext& ctx, Work& work) const {
    const sdk::Tensor x = ctx.input(0), cos = ctx.input(1), sin = ctx.input(2);
    const Turned turned = turn(x);
    const std::int64_t width = turned.dims.back();
    for (const sdk::Tensor& angles : {cos, sin}) {
      if (width % 2 != 0 || angles.rank() == 0 || angles.dims().back() != width)
        sdk::invalid("halves of ", sdk::to_string(turned.dims), " turned by angles of ",
                     to_string(angles.dims()));
    }
    const Dims dims = common::broadcast_dims({turned.dims, cos.dims(), sin.dims()});
    ctx.set_output(0, type_, dims);
    if (order_.empty() && x.type() == type_ && turned.dims == dims) ctx.allow_in_place(0, 0);
    common::StridedLoops pairs{dims, {}};
    pairs.dims.back() = width / 2;
    pairs.strides = {seen_in(dims, turned),
                     broadcast_view(input(1), cos.type(), cos.dims(), dims).strides,
                     broadcast_view(input(2), sin.type(), sin.dims(), dims).strides,
                     common::dense_strides(dims)};
    add_walk(work, {x.type(), cos.type(), sin.type(), type_}, common::merge_axes(pairs), width / 2);
  }

 private:
  struct Turned {
    Dims dims, strides;
  };

  Turned turn(const sdk::Tensor& x) const {
    const Dims strides = common::dense_strides(x.dims());
    if (x.rank() == 0 || (!order_.empty() && static_cast<int>(order_.size()) != x.rank()))
      sdk::invalid("halves of ", to_string(x.dims()), " with perm ", sdk::to_string(order_));
    Turned turned;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const auto from = static_cast<std::size_t>(
          order_.empty() ? axis : normalize_axis(order_[static_cast<std::size_t>(axis)], x.rank()));
      turned.dims.push_back(x.dims()[from]);
      turned.strides.push_back(strides[from]);
    }
    return turned;
  }

  /// The strides in a walk over `out`.
  static Dims seen_in(DimsView out, const Turned& turned) {
    const std::size_t shift = out.size() - turned.dims.size();
    Dims strides(out.size(), 0);
    for (std::size_t axis = 0; axis < turned.dims.size(); ++axis)
      strides[shift + axis] = turned.dims[axis] == 1 ? 0 : turned.strides[axis];
    return strides;
  }

  /// A walk over `pairs`, whose second elements lie `half` behind the first.
  static void add_walk(Work& work, const std::array<DataType, 4>& types, common::StridedLoops pairs,
                       std::int64_t half) {
    std::array<std::string, 4> codes;
    std::vector<common::PointwiseOperand> places;
    for (std::size_t k = 0; k < 4; ++k) {
      codes[k] = type_code(types[k]);
      places.push_back({codes[k], 0});
    }
    std::int64_t width =
        work.device().limits().is_processor ? 1 : common::vector_width(pairs, places);
    while (half % width != 0) width /= 2;
    pairs.dims.back() /= width;
    for (Dims& strides : pairs.strides) strides.back() *= width;

    Walk walk(pairs.dims);
    walk.in("x", input(0), types[0]).in("c", input(1), types[1]).in("s", input(2), types[2]);
    walk.out("y", output(0), types[3]).number("behind", half);
    if (width > 1) walk.functions = common::kNeighbourWords;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::string at = sdk::message("at", k);
      walk.body += sdk::message("  i64 ", at, " = ", walk.index("s" + at, pairs.strides[k]), ";\n");
    }
    walk.body += common::rotation_text(codes, width);
    walk.in_bands(2).name("rotation").add_to(work);
  }

  Dims order_;
  DataType type_;
};

}  // namespace

KernelList rotation_kernels() {
  return {device_kernel<FusedRotation>(
      sdk::op("FusedRotation", private_domain()).name(kernel_name("rotation")))};
}

}  // namespace backplane::device_ops

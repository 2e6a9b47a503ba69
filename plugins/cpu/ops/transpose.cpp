// Transpose, DepthToSpace, SpaceToDepth: a copy in another order of the axes.
// https://onnx.ai/onnx/operators/onnx__Transpose.html, onnx__DepthToSpace.html, onnx__SpaceToDepth.html
#include "backplane/plugin.hpp"
#include "plugins/common/checked.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/dims.hpp"
#include "plugins/cpu/kernels/strided_copy.hpp"

namespace backplane::cpu {
namespace {

/// A prepared copy from input 0 to the whole of output 0.
struct PermutedCopy {
  StridedCopy copy;
  bool bits = false;

  /// The output has the axes `perm` of a dense input of dims `dims`.
  PermutedCopy(sdk::DataType type, Isa isa, sdk::DimsView dims, const sdk::Dims& strides,
               const std::vector<int>& perm)
      : copy(type, isa), bits(storage_of(type) == Storage::Bits) {
    sdk::Dims target_dims;
    for (const int axis : perm) target_dims.push_back(dims[static_cast<std::size_t>(axis)]);
    const sdk::Dims target_strides = dense_strides(target_dims);
    for (std::size_t i = 0; i < perm.size(); ++i) {
      copy.axis(target_dims[i], strides[static_cast<std::size_t>(perm[i])], target_strides[i]);
    }
    copy.finish();
  }

  void compute(const sdk::ComputeContext& ctx) const {
    if (bits) ElementMover(ctx.input_value(0), ctx.output_value(0)).clear_padding();
    copy.run(ctx, 0, 0);
  }
};

class Transpose {
 public:
  using Prepared = PermutedCopy;

  Transpose(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)), given_(node.has("perm")) {
    for (const std::int64_t axis : node.get_ints("perm")) perm_.push_back(axis);
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    const std::vector<int> perm = permutation(input.rank());
    sdk::Dims dims;
    for (const int axis : perm) dims.push_back(input.dim(axis));
    ctx.set_output(0, input.type(), dims);
    if (moves_nothing(input, perm) && has_memory(input.type())) ctx.set_view(0, 0);
    ctx.set_cost(0, 2 * static_cast<std::uint64_t>(input.size()) *
                        static_cast<std::uint64_t>(sdk::element_bits(input.type())) / 8);
    return Prepared(input.type(), isa_, input.dims(), dense_strides(input.dims()), perm);
  }

 private:
  std::vector<int> permutation(int rank) const {
    std::vector<int> perm(static_cast<std::size_t>(rank));
    if (!given_) {
      for (int i = 0; i < rank; ++i) perm[static_cast<std::size_t>(i)] = rank - 1 - i;
      return perm;
    }
    if (perm_.size() != perm.size())
      sdk::invalid("Transpose: perm ", sdk::to_string(perm_), " for an input of rank ", rank);
    axis_flags(perm_, rank);
    for (std::size_t i = 0; i < perm.size(); ++i) perm[i] = normalize_axis(perm_[i], rank);
    return perm;
  }

  // True when only axes of one element change their places.
  static bool moves_nothing(const sdk::Tensor& input, const std::vector<int>& perm) {
    int last = -1;
    for (const int axis : perm) {
      if (input.dim(axis) == 1) continue;
      if (axis < last) return false;
      last = axis;
    }
    return true;
  }

  std::vector<std::int64_t> perm_;
  Isa isa_;
  bool given_;
};

/// Both operators see the tensor as [batch, channels, blocks, blocks, height, width] in some order.
class BlockMove {
 public:
  using Prepared = PermutedCopy;

  BlockMove(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        op_(node.is("DepthToSpace") ? "DepthToSpace" : "SpaceToDepth"),
        block_(node.get_int("blocksize", 0)),
        to_space_(node.is("DepthToSpace")) {
    const std::string mode = node.get_string("mode", "DCR");
    if (mode != "DCR" && mode != "CRD")
      sdk::invalid(op_, ": mode '", mode, "' is neither DCR nor CRD");
    if (block_ < 1) sdk::invalid(op_, ": blocksize ", block_, " is not positive");
    depth_first_ = mode == "DCR";
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor input = ctx.input(0);
    if (input.rank() != 4)
      sdk::invalid(op_, ": the input has dims ", sdk::to_string(input.dims()), ", four are needed");
    const std::int64_t b = block_, n = input.dim(0), c = input.dim(1), h = input.dim(2),
                       w = input.dim(3);
    const std::int64_t block =
        (common::Checked(b) * b).value(op_, ": a block of ", b, " x ", b, " pixels");
    if (to_space_) {
      if (c % block != 0) sdk::invalid(op_, ": ", c, " channels do not divide by ", b, " x ", b);
      const std::int64_t depth = c / block;
      const sdk::Dims output{n, depth, scaled(h), scaled(w)};
      ctx.set_output(0, input.type(), output);
      const sdk::Dims dims =
          depth_first_ ? sdk::Dims{n, b, b, depth, h, w} : sdk::Dims{n, depth, b, b, h, w};
      return Prepared(
          input.type(), isa_, dims, dense_strides(dims),
          depth_first_ ? std::vector<int>{0, 3, 4, 1, 5, 2} : std::vector<int>{0, 1, 4, 2, 5, 3});
    }
    if (h % b != 0 || w % b != 0)
      sdk::invalid(op_, ": an image of ", h, " x ", w, " does not divide by blocks of ", b);
    const std::int64_t channels =
        (common::Checked(c) * block).value(op_, ": ", block, " times ", c, " channels");
    const sdk::Dims output{n, channels, h / b, w / b};
    ctx.set_output(0, input.type(), output);
    const sdk::Dims dims{n, c, h / b, b, w / b, b};
    return Prepared(
        input.type(), isa_, dims, dense_strides(dims),
        depth_first_ ? std::vector<int>{0, 3, 5, 1, 2, 4} : std::vector<int>{0, 1, 3, 5, 2, 4});
  }

 private:
  std::int64_t scaled(std::int64_t dim) const {
    return (common::Checked(dim) * block_).value(op_, ": ", block_, " times ", dim, " pixels");
  }

  Isa isa_;
  const char* op_;
  std::int64_t block_;
  bool to_space_, depth_first_ = true;
};

}  // namespace

sdk::KernelList transpose_kernels() {
  return {sdk::op("Transpose").name("cpu:transpose").kernel<Transpose>(),
          sdk::op("DepthToSpace").name("cpu:depth_to_space").kernel<BlockMove>(),
          sdk::op("SpaceToDepth").name("cpu:space_to_depth").kernel<BlockMove>()};
}

}  // namespace backplane::cpu

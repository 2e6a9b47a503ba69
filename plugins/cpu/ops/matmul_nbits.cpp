// Products with weights of 4 or 8 bits in blocks: com.microsoft::MatMulNBits,
// https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
// and backplane.cpu::MatMulNBits, which a rewrite makes. Inputs A [..., depth], B, scales, zero points, g_idx (refused),
// bias [columns], residual (as y); attributes activation, and either those of com.microsoft's operator, or depth_axis
// and block_size where B is what a DequantizeLinear reads: a matrix whose axis depth_axis is the depth, with one scale,
// one for each column, or one for each column and block_size steps of the depth.
// y = activation(A ((B - zero points) * scales) + bias + residual).
#include "plugins/common/checked.hpp"
#include "plugins/cpu/dense/activation_attributes.hpp"
#include "plugins/cpu/dense/matmul_dims.hpp"
#include "plugins/cpu/dense/product_nbits.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

/// NarrowWeights as a node has them: their shape, and where the elements are once there are pointers.
struct NarrowWeights {
  NBitsShape shape;
  NBitsSource source;

  void point_to(const sdk::Tensor& b, const sdk::Tensor& scales, const sdk::Tensor* zeros) {
    source.values = static_cast<const std::uint8_t*>(b.bytes_data());
    source.scales = scales.bytes_data();
    source.zeros = zeros != nullptr ? zeros->bytes_data() : nullptr;
  }
};

/// What the attributes say of the weights.
class WeightForm {
 public:
  explicit WeightForm(const sdk::Node& node)
      : contrib_(node.has("K")),
        depth_(node.get_int("K", 0)),
        columns_(node.get_int("N", 0)),
        bits_(static_cast<int>(node.get_int("bits", 4))),
        block_(node.get_int("block_size", 0)),
        depth_axis_(static_cast<int>(node.get_int("depth_axis", 0))) {
    if (!contrib_) return;
    if (bits_ != 4 && bits_ != 8) sdk::unsupported("MatMulNBits: weights of ", bits_, " bits");
    if (depth_ < 1 || columns_ < 1 || block_ < 16 || block_ % 16 != 0) {
      sdk::unsupported("MatMulNBits: K ", depth_, ", N ", columns_, ", block_size ", block_,
                       "; blocks of a multiple of 16 are supported");
    }
  }

  /// `zeros` may be absent.
  NarrowWeights weights(const sdk::Tensor& b, const sdk::Tensor& scales,
                        const sdk::Tensor& zeros) const {
    return contrib_ ? contrib_weights(b, scales, zeros) : matrix_weights(b, scales, zeros);
  }
  std::string key() const {
    return contrib_ ? sdk::message("blocks of ", block_, " bits ", bits_, " depth ", depth_,
                                   " columns ", columns_)
                    : sdk::message("matrix, blocks of ", block_, " depth axis ", depth_axis_);
  }

 private:
  static void check_size(const char* what, const sdk::Tensor& tensor, std::int64_t size) {
    if (tensor.size() != size) {
      sdk::invalid("MatMulNBits: ", what, " has ", tensor.size(), " elements, expected ", size);
    }
  }

  NarrowWeights contrib_weights(const sdk::Tensor& b, const sdk::Tensor& scales,
                                const sdk::Tensor& zeros) const {
    const std::int64_t blocks = common::ceil_quotient(depth_, block_);
    const std::int64_t bits =
        (common::Checked(blocks) * block_ * bits_ * columns_)
            .value("MatMulNBits: B of K ", depth_, ", N ", columns_, " and block_size ", block_);
    check_size("B", b, bits / 8);
    check_size("scales", scales, columns_ * blocks);
    NarrowWeights weights;
    weights.shape = {bits_, depth_, columns_, block_, NBitsShape::kMiddle};
    NBitsSource& source = weights.source;
    source.depth_step = 1;
    source.column_step = blocks * block_;
    source.scale_type = scales.type();
    source.scale_block_step = 1;
    source.scale_column_step = blocks;
    if (!zeros.present()) return weights;
    source.zero_block_step = 1;
    if (zeros.type() == sdk::DataType::UInt8) {
      const std::int64_t bytes = ceil_div(blocks * bits_, 8);
      check_size("zero_points", zeros, columns_ * bytes);
      weights.shape.zeros = NBitsShape::kBytes;
      source.zero_column_step = bytes * 8 / bits_;
    } else {
      check_size("zero_points", zeros, columns_ * blocks);
      weights.shape.zeros = NBitsShape::kFloats;
      source.zero_type = zeros.type();
      source.zero_column_step = blocks;
    }
    return weights;
  }

  NarrowWeights matrix_weights(const sdk::Tensor& b, const sdk::Tensor& scales,
                               const sdk::Tensor& zeros) const {
    const bool across = depth_axis_ == 0;
    const std::int64_t depth = b.dim(depth_axis_);
    const std::int64_t columns = b.dim(1 - depth_axis_);
    const sdk::DataType type = b.type();
    NarrowWeights weights;
    weights.shape.bits = sdk::element_bits(type);
    weights.shape.depth = depth;
    weights.shape.columns = columns;
    weights.shape.block = block_ > 0 ? block_ : depth;
    NBitsSource& source = weights.source;
    source.is_signed = type == sdk::DataType::Int4 || type == sdk::DataType::Int8;
    source.depth_step = across ? columns : 1;
    source.column_step = across ? 1 : depth;
    source.scale_type = scales.type();
    if (block_ > 0) {
      source.scale_block_step = across ? columns : 1;
      source.scale_column_step = across ? 1 : ceil_div(depth, block_);
    } else {
      source.scale_column_step = scales.size() == 1 ? 0 : 1;
    }
    source.zero_block_step = source.scale_block_step;
    source.zero_column_step = source.scale_column_step;
    // Without zero points, signed numbers stand around the middle of what they are shifted to.
    if (zeros.present() || !source.is_signed) weights.shape.zeros = NBitsShape::kBytes;
    return weights;
  }

  bool contrib_;
  std::int64_t depth_, columns_;
  int bits_;
  std::int64_t block_;
  int depth_axis_;
};

class MatMulNBits {
 public:
  static constexpr std::uint32_t kA = 0, kB = 1, kScales = 2, kZeros = 3, kGroups = 4, kBias = 5,
                                 kResidual = 6;

  struct Prepared {
    NBitsProduct product;
    NarrowWeights weights;
    std::int64_t rows = 0;
    bool is_packed = false;
    const HalfConversion* half = nullptr;  // null: A and y are floats
    std::uint64_t packed_bytes = 0;        // in the workspace, where they are packed on the way
    std::uint64_t a_bytes = 0, y_bytes = 0, bias_bytes = 0;  // of copies as floats

    void compute(const sdk::ComputeContext& ctx) const {
      if (ctx.output(0).size() == 0) return;
      char* workspace = ctx.workspace().mutable_data<char>();
      NBitsArgs args;
      args.packed = is_packed ? ctx.packed(0).bytes_data() : workspace;
      if (!is_packed) {
        NarrowWeights given = weights;
        const bool has_zeros = ctx.has_input(kZeros);
        const sdk::Tensor zeros = has_zeros ? ctx.input(kZeros) : ctx.input(kScales);
        given.point_to(ctx.input(kB), ctx.input(kScales), has_zeros ? &zeros : nullptr);
        product.pack(given.source, workspace, ctx.threads());
      }
      workspace += packed_bytes;
      if (half == nullptr) {
        args.a = ctx.input(kA).data<float>();
        args.bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
        args.residual = ctx.has_input(kResidual) ? ctx.input(kResidual).data<float>() : nullptr;
        args.y = ctx.output(0).mutable_data<float>();
        product.run(args, workspace, ctx.threads());
        return;
      }
      args.a = as_floats(ctx.input(kA), workspace);
      if (ctx.has_input(kBias)) args.bias = as_floats(ctx.input(kBias), workspace + a_bytes);
      args.y = reinterpret_cast<float*>(workspace + a_bytes + bias_bytes);
      product.run(args, workspace + a_bytes + bias_bytes + y_bytes, ctx.threads());
      half->from_float(args.y, ctx.output(0).mutable_data<char>(), ctx.output(0).size());
    }

   private:
    const float* as_floats(const sdk::Tensor& tensor, char* to) const {
      auto* floats = reinterpret_cast<float*>(to);
      half->to_float(tensor.bytes_data(), floats, tensor.size());
      return floats;
    }
  };

  MatMulNBits(const sdk::CreateContext& ctx, const sdk::Node& node)
      : form_(node),
        rounds_(node.get_int("accuracy_level", 0) == 4),
        activation_(read_activation(node)),
        isa_(isa_of(ctx)) {
    if (node.input(kGroups))
      sdk::unsupported("MatMulNBits: g_idx, which gives each step a block of its own");
    if (node.get_int("weight_prepacked", 0) != 0)
      sdk::unsupported("MatMulNBits: weights that were packed for another device");
  }
  MatMulNBits(const MatMulNBits&) = delete;
  MatMulNBits& operator=(const MatMulNBits&) = delete;

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor a = ctx.input(kA);
    const sdk::Tensor b = ctx.input(kB);
    const sdk::Tensor zeros = ctx.input(kZeros);
    const NarrowWeights weights = form_.weights(b, ctx.input(kScales), zeros);
    const sdk::DimsView dims = a.dims();
    if (dims.empty() || dims.back() != weights.shape.depth) {
      sdk::invalid("MatMulNBits: A has dims ", sdk::to_string(dims), "; its last must be ",
                   weights.shape.depth);
    }
    sdk::Dims out(dims.begin(), dims.end());
    out.back() = weights.shape.columns;
    ctx.set_output(0, a.type(), out);
    check_addends(ctx.input(kBias), ctx.input(kResidual), out.back(), out);
    std::int64_t rows = 1;
    for (std::size_t axis = 0; axis + 1 < dims.size(); ++axis) rows *= dims[axis];
    Prepared prepared{
        NBitsProduct(rows, weights.shape, activation_, isa_, ctx.threads().count(), rounds_),
        weights, rows};
    const NBitsProduct& product = prepared.product;
    prepared.is_packed = ctx.input_constant(kB) && ctx.input_constant(kScales) &&
                         (!zeros.present() || ctx.input_constant(kZeros));
    if (prepared.is_packed) {
      request_pack(ctx, product, b, zeros);
    } else {
      prepared.packed_bytes = align64(product.packed_bytes());
    }
    if (a.type() != sdk::DataType::Float) {
      prepared.half = &half_conversion(isa_, a.type());
      prepared.a_bytes = align64(static_cast<std::uint64_t>(a.size()) * 4);
      prepared.bias_bytes = align64(static_cast<std::uint64_t>(weights.shape.columns) * 4);
      prepared.y_bytes = align64(static_cast<std::uint64_t>(sdk::element_count(out)) * 4);
    } else if (ctx.input(kResidual).present() && product.takes_residual_in_place()) {
      ctx.allow_in_place(0, kResidual);
    }
    ctx.set_workspace(prepared.packed_bytes + prepared.a_bytes + prepared.bias_bytes +
                      prepared.y_bytes + product.workspace_bytes());
    ctx.set_variant(product.variant());
    ctx.set_cost(static_cast<std::uint64_t>(2 * sdk::element_count(out) * weights.shape.depth),
                 a.bytes() + product.packed_bytes());
    return prepared;
  }

  void pack(const sdk::PackContext& ctx) const {
    const sdk::Tensor b = ctx.source(0);
    const bool has_zeros = ctx.source_count() > 2;
    const bp_tensor none = sdk::abi_struct<bp_tensor>();
    const sdk::Tensor zeros = has_zeros ? ctx.source(2) : sdk::Tensor(&none);
    NarrowWeights weights = form_.weights(b, ctx.source(1), zeros);
    weights.point_to(b, ctx.source(1), has_zeros ? &zeros : nullptr);
    const NBitsProduct product(1, weights.shape, Activation{}, isa_, 1, rounds_);
    product.pack(weights.source, ctx.target().mutable_data<char>(), ctx.threads());
  }

 private:
  void request_pack(sdk::PrepareContext& ctx, const NBitsProduct& product, const sdk::Tensor& b,
                    const sdk::Tensor& zeros) const {
    const std::string key =
        sdk::message("matmul nbits isa ", static_cast<int>(isa_), " ",
                     product.variant() == std::string("integers"), " ", form_.key(), " dims ",
                     sdk::to_string(b.dims()), " ", sdk::type_name(b.type()), " ",
                     sdk::type_name(ctx.input(kScales).type()));
    if (zeros.present()) {
      ctx.request_pack(key + " zeros " + sdk::type_name(zeros.type()), {kB, kScales, kZeros},
                       product.packed_bytes(), this);
    } else {
      ctx.request_pack(key, {kB, kScales}, product.packed_bytes(), this);
    }
  }

  WeightForm form_;
  bool rounds_;  // rows may be rounded to 8 bits
  Activation activation_;
  Isa isa_;
};

}  // namespace

sdk::KernelList matmul_nbits_kernels() {
  return {
      sdk::op("MatMulNBits", "com.microsoft")
          .name("cpu:matmul_nbits")
          .types("T1", {sdk::DataType::Float, sdk::DataType::Float16, sdk::DataType::BFloat16})
          .flags(BP_KERNEL_WIDENS_HALF)
          .kernel<MatMulNBits>(),
      sdk::op("MatMulNBits", "backplane.cpu").name("cpu:matmul_nbits_fused").kernel<MatMulNBits>()};
}

}  // namespace backplane::cpu

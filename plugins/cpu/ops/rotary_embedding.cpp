// RotaryEmbedding: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
// and com.microsoft's: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include <algorithm>

#include "backplane/plugin.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/rotate_pairs.hpp"

namespace backplane::cpu {
namespace {

/// Where a domain has its inputs.
struct RotaryInputs {
  uint32_t x, positions, cos, sin;
};
constexpr RotaryInputs kMicrosoftRotary{0, 1, 2, 3}, kOnnxRotary{0, 3, 1, 2};

/// Turns the first columns of heads by the angles of their positions, and copies the others.
class RotaryEmbedding {
 public:
  struct Prepared {
    RotaryInputs inputs;
    RotatePairs rotate;
    bool is_by_head =
        false;  // [batch, heads, positions, width], not [batch, positions, heads, width]
    std::int64_t batch = 0, heads = 0, positions = 0, width = 0;
    std::int64_t half = 0;    // angles of a position
    std::int64_t angles = 0;  // positions that have some
    bool counts = false;      // position_ids is the first position alone
    bool has_ids = true;      // otherwise each position of each sequence has angles of its own
    std::int64_t batch_step = 0;

    void compute(const sdk::ComputeContext& ctx) const {
      const auto* ids = has_ids ? ctx.input(inputs.positions).data<std::int64_t>() : nullptr;
      // Not for its sums to overflow; below it is looked at with them.
      if (counts && (ids[0] >= angles || ids[0] < -angles)) refuse(ids[0]);
      for (std::int64_t i = 0; has_ids && i < batch * positions; ++i) {
        const std::int64_t at = place(ids, i / positions, i % positions);
        if (at < 0 || at >= angles) refuse(at);
      }
      const auto *x = ctx.input(inputs.x).data<float>(), *cos = ctx.input(inputs.cos).data<float>(),
                 *sin = ctx.input(inputs.sin).data<float>();
      auto* y = ctx.output(0).mutable_data<float>();
      const double ns = 5 + 0.15 * static_cast<double>(width);
      const auto body = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t b = row / (heads * positions);
          const std::int64_t i = is_by_head ? row % positions : row / heads % positions;
          const std::int64_t at = place(ids, b, i) * half;
          const float* from = x + row * width;
          float* to = y + row * width;
          rotate(from, to, half, cos + at, sin + at);
          if (from != to) std::copy(from + 2 * half, from + width, to + 2 * half);
        }
      };
      split_loop(ctx.threads(), batch * heads * positions, ns, 1, body);
    }

   private:
    [[noreturn]] void refuse(std::int64_t position) const {
      sdk::invalid("position ", position, " has no angles: cos_cache has ", angles, " rows");
    }
    /// Negative ones count from the end, as indices of Gather do.
    std::int64_t place(const std::int64_t* ids, std::int64_t b, std::int64_t i) const {
      if (!has_ids) return b * batch_step + i;
      const std::int64_t given = counts ? ids[0] + i : ids[b * batch_step + i];
      return given < 0 ? given + angles : given;
    }
  };

  RotaryEmbedding(const sdk::CreateContext& ctx, const sdk::Node& node)
      : is_onnx_(node.domain() == ""),
        inputs_(is_onnx_ ? kOnnxRotary : kMicrosoftRotary),
        isa_(isa_of(ctx)),
        is_interleaved_(node.get_int("interleaved", 0) != 0),
        heads_(node.get_int("num_heads", 0)),
        turned_(node.get_int("rotary_embedding_dim", 0)) {
    if (node.get_int("is_packed_batching", 0) != 0 || node.get_float("scale", 1.0f) != 1)
      sdk::unsupported("RotaryEmbedding is packed or scaled");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(inputs_.x), cos = ctx.input(inputs_.cos),
                      sin = ctx.input(inputs_.sin), ids = ctx.input(inputs_.positions);
    if (x.rank() != 3 && x.rank() != 4)
      sdk::invalid("its input has ", x.rank(), " dimensions, not 3 or 4");
    const int rank = ids.present() ? 2 : 3;
    if (cos.rank() != rank ||
        !std::equal(cos.dims().begin(), cos.dims().end(), sin.dims().begin(), sin.dims().end()))
      sdk::invalid("cos_cache has dims ", sdk::to_string(cos.dims()), " and sin_cache ",
                   sdk::to_string(sin.dims()));
    Prepared plan{.inputs = inputs_, .rotate = rotate_pairs(isa_, is_interleaved_)};
    plan.is_by_head = x.rank() == 4;
    plan.half = cos.dim(rank - 1);
    plan.angles = cos.dim(0);
    plan_heads(x, plan);
    if (ids.present()) {
      plan_positions(ids, plan);
    } else {
      plan_own_angles(cos, plan);
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    return plan;
  }

 private:
  void plan_heads(const sdk::Tensor& x, Prepared& plan) const {
    const std::int64_t turned = 2 * plan.half, last = x.dim(x.rank() - 1);
    if (turned_ > 0 && turned_ != turned)
      sdk::invalid("rotary_embedding_dim is ", turned_, ", but its caches are for ", turned);
    if (turned_ > 0 && heads_ < 1 && !plan.is_by_head)
      sdk::invalid("rotary_embedding_dim needs num_heads");
    if (is_onnx_ && !plan.is_by_head && heads_ < 1)
      sdk::invalid("an input of 3 dimensions needs num_heads");
    plan.width = plan.is_by_head ? last : heads_ > 0 ? last / heads_ : turned;
    if (plan.width < turned || plan.width < 1 || last % plan.width != 0)
      sdk::invalid("its heads of ", plan.width, " cannot be turned by caches for ", turned);
    if (is_onnx_ && turned_ < 1 && plan.width != turned)
      sdk::invalid("its heads of ", plan.width, " are turned by caches for ", turned);
    plan.batch = x.dim(0);
    plan.heads = plan.is_by_head ? x.dim(1) : last / plan.width;
    plan.positions = x.dim(plan.is_by_head ? 2 : 1);
  }

  static void plan_own_angles(const sdk::Tensor& cos, Prepared& plan) {
    plan.has_ids = false;
    plan.batch_step = cos.dim(0) == 1 ? 0 : plan.positions;
    if (cos.dim(1) != plan.positions || (cos.dim(0) != 1 && cos.dim(0) != plan.batch))
      sdk::invalid("cos_cache has dims ", sdk::to_string(cos.dims()), " for ", plan.batch,
                   " sequences of ", plan.positions);
  }

  void plan_positions(const sdk::Tensor& ids, Prepared& plan) const {
    plan.counts = !is_onnx_ && ids.rank() < 2;
    const bool is_shared = ids.rank() == 2 && ids.dim(0) == 1;
    plan.batch_step = is_shared ? 0 : plan.positions;
    const bool fits = plan.counts ? ids.size() == 1
                                  : ids.rank() == 2 && ids.dim(1) == plan.positions &&
                                        (is_shared || ids.dim(0) == plan.batch);
    if (!fits)
      sdk::invalid("position_ids has dims ", sdk::to_string(ids.dims()), " for ", plan.batch,
                   " sequences of ", plan.positions);
  }

  bool is_onnx_;
  RotaryInputs inputs_;
  Isa isa_;
  bool is_interleaved_;
  std::int64_t heads_, turned_;
};

}  // namespace

sdk::KernelList rotary_embedding_kernels() {
  return {sdk::op("RotaryEmbedding", "com.microsoft")
              .name("cpu:rotary_embedding")
              .types("T", {sdk::DataType::Float})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<RotaryEmbedding>(),
          sdk::op("RotaryEmbedding")
              .name("cpu:rotary_embedding_23")
              .since(23)
              .types("T", {sdk::DataType::Float})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<RotaryEmbedding>()};
}

}  // namespace backplane::cpu

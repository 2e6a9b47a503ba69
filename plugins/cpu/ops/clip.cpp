// Clip: https://onnx.ai/onnx/operators/onnx__Clip.html
#include <limits>

#include "backplane/plugin.hpp"
#include "plugins/common/types.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"
#include "plugins/cpu/kernels/parallel.hpp"
#include "plugins/cpu/kernels/unary_f32.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// Elements [0, n) with limits of their type, nullptr where there is none.
struct ClipRange {
  const void* x;
  void* y;
  std::int64_t n;
  const void* least;
  const void* greatest;
};

template <class T>
void clip_numbers(const ClipRange& range) {
  using Limits = std::numeric_limits<T>;
  constexpr T kLowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  constexpr T kHighest = Limits::has_infinity ? Limits::infinity() : Limits::max();
  const T least = range.least != nullptr ? *static_cast<const T*>(range.least) : kLowest;
  const T greatest = range.greatest != nullptr ? *static_cast<const T*>(range.greatest) : kHighest;
  const T* x = static_cast<const T*>(range.x);
  T* y = static_cast<T*>(range.y);
  for (std::int64_t i = 0; i < range.n; ++i) {
    const T raised = x[i] < least ? least : x[i];
    y[i] = raised > greatest ? greatest : raised;
  }
}

using ClipLoop = void (*)(const ClipRange& range);

/// y = min(max(x, least), greatest). Before opset 11 the limits are attributes, from then on inputs,
/// scalars that are read in each run.
class Clip {
 public:
  struct Prepared {
    UnaryF32 f32 = nullptr;
    const HalfConversion* half = nullptr;
    ClipLoop loop = nullptr;
    UnaryParams limits;  // where they are attributes
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    bool by_inputs = false;

    void compute(const sdk::ComputeContext& ctx) const {
      const char* x = ctx.input(0).data<char>();
      char* y = ctx.output(0).mutable_data<char>();
      const void* least = by_inputs && ctx.has_input(1) ? ctx.input(1).bytes_data() : nullptr;
      const void* greatest = by_inputs && ctx.has_input(2) ? ctx.input(2).bytes_data() : nullptr;
      UnaryParams params = limits;
      if (least != nullptr && f32 != nullptr) params.a = as_float(least);
      if (greatest != nullptr && f32 != nullptr) params.b = as_float(greatest);
      split_elements(ctx.threads(), count, 0.12, [&](std::int64_t begin, std::int64_t end) {
        const char* from = x + begin * bytes;
        char* to = y + begin * bytes;
        if (half != nullptr) {
          clip_halves(from, to, end - begin, params);
        } else if (f32 != nullptr) {
          f32(reinterpret_cast<const float*>(from), reinterpret_cast<float*>(to), end - begin,
              params);
        } else if (by_inputs) {
          loop({from, to, end - begin, least, greatest});
        } else {
          const double low = limits.a;
          const double high = limits.b;
          loop({from, to, end - begin, &low, &high});  // attributes: only double comes here
        }
      });
    }

   private:
    float as_float(const void* limit) const {
      float value = 0;
      if (half != nullptr) {
        half->to_float(limit, &value, 1);
      } else {
        std::memcpy(&value, limit, sizeof(value));
      }
      return value;
    }

    void clip_halves(const char* x, char* y, std::int64_t n, const UnaryParams& params) const {
      constexpr std::int64_t kBlock = 512;
      alignas(64) float block[kBlock];
      for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t size = std::min(kBlock, n - begin);
        half->to_float(x + 2 * begin, block, size);
        f32(block, block, size, params);
        half->from_float(block, y + 2 * begin, size);
      }
    }
  };

  Clip(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)), by_inputs_(node.since_version() >= 11) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    limits_ = {-kInfinity, kInfinity};
    if (!by_inputs_) {
      limits_ = {node.get_float("min", -kInfinity), node.get_float("max", kInfinity)};
    }
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor x = ctx.input(0);
    for (const std::uint32_t k : {1u, 2u}) {
      const sdk::Tensor limit = ctx.input(k);
      if (by_inputs_ && limit.present() && limit.size() != 1) {
        sdk::invalid("Clip: the ", k == 1 ? "least" : "greatest", " value has shape ",
                     to_string(limit.dims()), "; it must be a scalar");
      }
    }
    ctx.set_output(0, x.type(), x.dims());
    ctx.allow_in_place(0, 0);
    Prepared prepared;
    prepared.limits = limits_;
    prepared.by_inputs = by_inputs_;
    prepared.count = x.size();
    prepared.bytes = sdk::element_bytes(x.type());
    const bool is_half = x.type() == DataType::Float16 || x.type() == DataType::BFloat16;
    if (is_half) prepared.half = &half_conversion(isa_, x.type());
    if (is_half || x.type() == DataType::Float) {
      prepared.f32 = unary_f32(isa_, UnaryOp::kClip);
      return prepared;
    }
    prepared.loop = common::with_number(x.type(), [](auto tag) -> ClipLoop {
      using T = typename decltype(tag)::type;
      if constexpr (common::kIsHalfType<T>)
        return nullptr;
      else
        return clip_numbers<T>;
    });
    return prepared;
  }

 private:
  Isa isa_;
  bool by_inputs_;
  UnaryParams limits_;
};

}  // namespace

sdk::KernelList clip_kernels() {
  return {sdk::op("Clip")
              .name("cpu:Clip")
              .types("T", common::number_types())
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<Clip>()};
}

}  // namespace backplane::cpu

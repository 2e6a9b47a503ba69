// Attention: https://onnx.ai/onnx/operators/onnx__Attention.html
// and backplane.cpu::Attention, which a rewrite makes of its parts: inputs Q, K, V of 4 axes (or of 3, without heads), mask;
// attributes scale, softcap, group (heads of Q that share one of K), is_nan_zero (what the weights of no key at all are), chosen
// and otherwise (for a mask of bools), axes: "bhs" or "bsh" for each of Q, K, V and the result, as their first three axes lie. Axes
// of size 1 are broadcast as in MatMul and Add. K and V may be of 16 bits. And backplane.cpu::CachedAttention, the first with past
// and present of the attribute cache_type.
#include <algorithm>
#include <array>
#include <cmath>

#include "plugins/common/axes.hpp"
#include "plugins/cpu/dense/attention_f32.hpp"
#include "plugins/cpu/dense/attention_heads.hpp"
#include "plugins/cpu/dense/cache_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

constexpr std::uint32_t kQ = 0, kK = 1, kV = 2, kMask = 3, kPastKey = 4, kPastValue = 5,
                        kLengths = 6;
constexpr std::uint32_t kY = 0, kPresentKey = 1, kPresentValue = 2, kScores = 3;

/// New keys or values behind those of before.
struct Cache {
  bool wanted = false;  // the result is an output
  bool used = false;
  std::int64_t size = sizeof(float);          // of an element
  const HalfConversion* narrowing = nullptr;  // of new ones in float, for a cache of 16 bits
  std::uint64_t workspace = 0;                // of a result that is no output
  Heads past, fresh, whole;

  void join(const char* before, const char* now, char* to, std::int64_t b, std::int64_t h) const {
    char* target = to + whole.steps.at(b, h, 0) * size;
    const std::int64_t row = whole.width * size, old = past.positions * row;
    if (old > 0) std::copy_n(before + past.steps.at(b, h, 0) * size, old, target);
    target += old;
    for (std::int64_t p = 0; p < fresh.positions; ++p) {
      const std::int64_t at = fresh.steps.at(b, h, p);
      if (narrowing == nullptr) {
        std::copy_n(now + at * size, row, target + p * row);
      } else {
        narrowing->from_float(reinterpret_cast<const float*>(now) + at, target + p * row,
                              whole.width);
      }
    }
  }
};

/// What both operators prepare and compute.
struct PreparedAttention {
  AttentionF32 attention;
  AttentionArgs args;
  Cache keys, values;

  void compute(const sdk::ComputeContext& ctx) const {
    AttentionArgs memory = args;
    memory.q = ctx.input(kQ).data<float>();
    memory.y = ctx.output(kY).mutable_data<float>();
    if (ctx.has_input(kMask)) memory.mask = ctx.input(kMask).data<char>();
    if (ctx.has_input(kLengths)) memory.lengths = ctx.input(kLengths).data<std::int64_t>();
    char* new_keys = cached(ctx, keys, kPresentKey);
    char* new_values = cached(ctx, values, kPresentValue);
    const char *k = ctx.input(kK).data<char>(), *v = ctx.input(kV).data<char>();
    memory.k = keys.used ? new_keys : k;
    memory.v = values.used ? new_values : v;
    const auto join = [&](std::int64_t b, std::int64_t h) {
      if (keys.used) keys.join(past(ctx, kPastKey), k, new_keys, b, h);
      if (values.used) values.join(past(ctx, kPastValue), v, new_values, b, h);
    };
    attention.run(memory, ctx.threads(), ctx.workspace().mutable_data<char>(), join);
  }

 private:
  static const char* past(const sdk::ComputeContext& ctx, std::uint32_t input) {
    return ctx.has_input(input) ? ctx.input(input).data<char>() : nullptr;
  }
  static char* cached(const sdk::ComputeContext& ctx, const Cache& cache, std::uint32_t output) {
    if (!cache.used) return nullptr;
    if (cache.wanted) return ctx.output(output).mutable_data<char>();
    return ctx.workspace().mutable_data<char>() + cache.workspace;
  }
};

AttentionShape shape_of(const Heads& q, const Heads& k, const Heads& v) {
  check_same_size(q.batch, k.batch, "the batches of Q and K");
  check_same_size(k.batch, v.batch, "the batches of K and V");
  check_same_size(q.width, k.width, "the head sizes of Q and K");
  check_same_size(k.heads, v.heads, "the heads of K and V");
  check_same_size(k.positions, v.positions, "the lengths of K and V");
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0)
    sdk::invalid("Q has ", q.heads, " heads, no multiple of K's ", k.heads);
  AttentionShape shape;
  shape.batch = q.batch;
  shape.kv_heads = k.heads;
  shape.group = k.heads == 0 ? 1 : q.heads / k.heads;
  shape.queries = q.positions;
  shape.keys = k.positions;
  shape.width = q.width;
  shape.value_width = v.width;
  return shape;
}

/// Of keys and values, in which nothing is computed.
DataType type_of(const sdk::Tensor& keys, const sdk::Tensor& values) {
  if (keys.type() != values.type())
    sdk::invalid("K is of ", sdk::type_name(keys.type()), " and V of ",
                 sdk::type_name(values.type()));
  return keys.type();
}

/// float. What is computed in another precision, or wants the scores, is left to the operator's parts.
class Attention {
 public:
  using Prepared = PreparedAttention;

  Attention(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        cache_type_(cache_type_of(node)),
        has_scale_(node.has("scale")),
        scale_(node.get_float("scale", 1.0f)),
        softcap_(node.get_float("softcap", 0.0f)),
        causal_(node.get_int("is_causal", 0) != 0),
        left_window_(window(node, "left_window_size")),
        right_window_(window(node, "right_window_size")),
        q_heads_(node.get_int("q_num_heads", 0)),
        kv_heads_(node.get_int("kv_num_heads", 0)) {
    if (node.output(kScores))
      sdk::unsupported("output qk_matmul_output is wanted; this kernel never has all scores");
    const std::int64_t precision = node.get_int("softmax_precision", BP_FLOAT);
    if (precision != BP_FLOAT)
      sdk::unsupported("attribute 'softmax_precision' is ", precision,
                       "; this kernel computes in float (1)");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    const sdk::Tensor q = ctx.input(kQ), k = ctx.input(kK), v = ctx.input(kV);
    const Heads queries = heads_of(q, q_heads_, false, "Q");
    Heads keys = heads_of(k, kv_heads_, false, "K"), values = heads_of(v, kv_heads_, false, "V");
    if (ctx.input(kPastKey).present() != ctx.input(kPastValue).present())
      sdk::invalid("one of past_key and past_value is given without the other");
    const Cache key_cache = plan_cache(ctx, kPastKey, kPresentKey, keys);
    const Cache value_cache = plan_cache(ctx, kPastValue, kPresentValue, values);
    AttentionShape shape = shape_of(queries, keys, values);
    shape.scale = has_scale_ ? scale_ : 1.0f / std::sqrt(static_cast<float>(queries.width));
    shape.softcap = softcap_;
    shape.causal = causal_;
    shape.left_window = left_window_;
    shape.right_window = right_window_;
    shape.cache_type = cache_type_;
    AttentionArgs args;
    args.offset = key_cache.past.positions;
    const sdk::Tensor mask = ctx.input(kMask);
    if (mask.present()) plan_mask(mask, four_dims(mask), shape, true, args);
    plan_lengths(ctx, shape);
    args.q_steps = queries.steps;
    args.k_steps = keys.steps;
    args.v_steps = values.steps;
    const Heads result = Heads::of_axes(queries.batch, queries.heads, queries.positions,
                                        values.width, q.rank() == 3);
    args.y_steps = result.steps;
    ctx.set_output(kY, DataType::Float, result.dims(q.rank(), false));
    ctx.set_cost(attention_flops(shape), q.bytes() + k.bytes() + v.bytes());
    Prepared prepared{AttentionF32(shape, isa_, ctx.threads().count()), args, key_cache,
                      value_cache};
    std::uint64_t bytes = prepared.attention.scratch_bytes();
    for (Cache* cache : {&prepared.keys, &prepared.values}) {
      cache->workspace = bytes;
      if (cache->used && !cache->wanted)
        bytes += align64(static_cast<std::uint64_t>(cache->whole.batch * cache->whole.steps.batch) *
                         static_cast<std::uint64_t>(cache->size));
    }
    ctx.set_workspace(bytes);
    return prepared;
  }

 private:
  static std::int64_t window(const sdk::Node& node, const char* name) {
    const std::int64_t size = node.get_int(name, kNoWindow);
    if (size < kNoWindow)
      sdk::invalid("attribute '", name, "' is ", size, ", at least -1 is needed");
    return size >= kWidestWindow ? kNoWindow : size;
  }

  /// Where keys or values of before are given, or those of after are wanted, `heads` become the joined ones.
  Cache plan_cache(sdk::PrepareContext& ctx, std::uint32_t input, std::uint32_t output,
                   Heads& heads) const {
    Cache cache;
    cache.size = sdk::element_bytes(cache_type_);
    if (cache_type_ != DataType::Float) cache.narrowing = &half_conversion(isa_, cache_type_);
    cache.wanted = ctx.output_wanted(output);
    const sdk::Tensor past = ctx.input(input);
    cache.used = cache.wanted || past.present();
    if (!cache.used) return cache;
    cache.fresh = heads;
    if (past.present()) {
      if (past.type() != cache_type_)
        sdk::invalid("past keys or values are of ", sdk::type_name(past.type()));
      if (past.rank() != 4)
        sdk::invalid("past keys or values have dims ", to_string(past.dims()), ", 4 are needed");
      cache.past = heads_of(past, 0, false, "past");
      check_same_size(cache.past.batch, heads.batch, "the batches of past and new keys or values");
      check_same_size(cache.past.heads, heads.heads, "the heads of past and new keys or values");
      check_same_size(cache.past.width, heads.width,
                      "the head sizes of past and new keys or values");
    }
    heads = Heads::of_axes(heads.batch, heads.heads, cache.past.positions + heads.positions,
                           heads.width, false);
    cache.whole = heads;
    if (cache.wanted) ctx.set_output(output, cache_type_, heads.dims(4, false));
    return cache;
  }

  static sdk::Dims four_dims(const sdk::Tensor& mask) {
    if (mask.rank() < 1 || mask.rank() > 4)
      sdk::invalid("the mask has dims ", to_string(mask.dims()), ", 1 to 4 are needed");
    sdk::Dims dims(4, 1);
    std::copy(mask.dims().begin(), mask.dims().end(), dims.end() - mask.rank());
    return dims;
  }

  static void plan_lengths(const sdk::PrepareContext& ctx, const AttentionShape& shape) {
    const sdk::Tensor lengths = ctx.input(kLengths);
    if (!lengths.present()) return;
    if (ctx.input(kPastKey).present())
      sdk::invalid("nonpad_kv_seqlen is given together with past_key");
    if (lengths.size() != shape.batch)
      sdk::invalid("nonpad_kv_seqlen has ", lengths.size(), " elements for a batch of ",
                   shape.batch);
  }

  Isa isa_;
  DataType cache_type_;
  bool has_scale_;
  float scale_, softcap_;
  bool causal_;
  std::int64_t left_window_, right_window_, q_heads_, kv_heads_;
};

/// The size that sizes broadcast to.
std::int64_t spread(std::initializer_list<std::int64_t> sizes, const char* axis) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) {
    if (size == 1 || size == result) continue;
    if (result != 1) sdk::invalid("the sizes ", result, " and ", size, " of the ", axis, " differ");
    result = size;
  }
  return result;
}

/// backplane.cpu::Attention.
class FusedAttention {
 public:
  using Prepared = PreparedAttention;

  FusedAttention(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        scale_(node.get_float("scale", 1.0f)),
        softcap_(node.get_float("softcap", 0.0f)),
        group_(node.get_int("group", 1)),
        is_nan_zero_(node.get_int("is_nan_zero", 0) != 0),
        chosen_(node.get_int("chosen", 1) != 0),
        otherwise_(node.get_float("otherwise", -HUGE_VALF)) {
    const std::string axes = node.get_string("axes", "bhsbhsbhsbhs");
    for (std::size_t i = 0; i < 4; ++i) positions_first_[i] = axes.compare(i * 3, 3, "bsh") == 0;
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    Heads q = operand(ctx.input(kQ), 0), k = operand(ctx.input(kK), 1),
          v = operand(ctx.input(kV), 2);
    const int rank = ctx.input(kQ).rank();
    const sdk::Tensor mask = ctx.input(kMask);
    AttentionShape shape = spread_shape(q, k, v, mask_dims(mask, rank));
    shape.scale = scale_;
    shape.softcap = softcap_;
    shape.nan_where_empty = !is_nan_zero_;
    shape.cache_type = type_of(ctx.input(kK), ctx.input(kV));
    AttentionArgs args;
    if (mask.present()) plan_mask(mask, mask_dims(mask, rank), shape, false, args);
    args.chosen = chosen_;
    args.otherwise = otherwise_;
    const std::int64_t heads = shape.kv_heads * shape.group;
    const Heads y =
        Heads::of_axes(shape.batch, heads, shape.queries, shape.value_width, positions_first_[3]);
    args.q_steps = q.steps;
    args.k_steps = k.steps;
    args.v_steps = v.steps;
    args.y_steps = y.steps;
    sdk::Dims dims = y.dims(4, positions_first_[3]);
    if (rank == 3) dims = {shape.batch, shape.queries, shape.value_width};
    ctx.set_output(kY, DataType::Float, dims);
    ctx.set_cost(attention_flops(shape),
                 ctx.input(kQ).bytes() + ctx.input(kK).bytes() + ctx.input(kV).bytes());
    Prepared prepared{AttentionF32(shape, isa_, ctx.threads().count()), args, {}, {}};
    ctx.set_workspace(prepared.attention.scratch_bytes());
    return prepared;
  }

 private:
  Heads operand(const sdk::Tensor& tensor, std::size_t index) const {
    const sdk::DimsView d = tensor.dims();
    if (tensor.rank() == 3) return Heads::of_axes(d[0], 1, d[1], d[2], false);
    return heads_of(tensor, 0, positions_first_[index], "an operand");
  }

  /// The mask's dims as [batch, heads, queries, keys].
  static sdk::Dims mask_dims(const sdk::Tensor& mask, int rank) {
    sdk::Dims dims(4, 1);
    if (!mask.present()) return dims;
    const sdk::DimsView d = mask.dims();
    for (std::size_t back = 0; back < d.size(); ++back) {
      const std::size_t axis = rank == 3 && back == 2 ? 0 : 3 - back;
      dims[axis] = d[d.size() - 1 - back];
    }
    return dims;
  }

  /// The shape of the result; what is broadcast gets steps of 0.
  AttentionShape spread_shape(Heads& q, Heads& k, Heads& v, const sdk::Dims& mask) const {
    AttentionShape shape;
    check_same_size(q.width, k.width, "the head sizes of Q and K");
    shape.batch = spread({q.batch, k.batch, v.batch, mask[0]}, "batches");
    const std::int64_t heads =
        spread({q.heads, k.heads * group_, v.heads * group_, mask[1]}, "heads");
    shape.queries = spread({q.positions, mask[2]}, "queries");
    shape.keys = spread({k.positions, mask[3]}, "keys");
    check_same_size(shape.keys, v.positions, "the numbers of keys and values");
    shape.group = group_;
    // Heads of queries that share the only one of keys and values are computed together.
    if (k.heads == 1 && v.heads == 1) shape.group = std::max<std::int64_t>(1, heads);
    shape.kv_heads = heads / shape.group;
    shape.width = q.width;
    shape.value_width = v.width;
    for (Heads* operand : {&q, &k, &v}) {
      if (operand->batch == 1) operand->steps.batch = 0;
      if (operand->heads == 1) operand->steps.head = 0;
    }
    if (q.positions == 1) q.steps.position = 0;
    if (k.positions == 1) k.steps.position = 0;
    return shape;
  }

  Isa isa_;
  float scale_, softcap_;
  std::int64_t group_;
  bool is_nan_zero_, chosen_;
  float otherwise_;
  std::array<bool, 4> positions_first_{};
};

}  // namespace

sdk::KernelList attention_kernels() {
  return {
      sdk::op("Attention")
          .name("cpu:attention")
          .types("T1", {DataType::Float})
          .types("T2", {DataType::Float})
          .types("U", {DataType::Float, DataType::Bool})
          .flags(BP_KERNEL_WIDENS_HALF)
          .kernel<Attention>(),
      sdk::op("CachedAttention", "backplane.cpu").name("cpu:attention_halves").kernel<Attention>(),
      sdk::op("Attention", "backplane.cpu").name("cpu:attention_fused").kernel<FusedAttention>()};
}

}  // namespace backplane::cpu

#include "plugins/common/device_ops/group_query_attention.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plugins/common/device_ops/types.hpp"

namespace backplane::device_ops {
namespace {

constexpr char kFault[] =
    "seqlens_k does not fit the past and total_sequence_length, or a position has no angles";

/// What a tensor takes of a workspace.
std::uint64_t aligned_bytes(const Device& device, DataType type, const Dims& dims) {
  const std::uint64_t alignment = device.limits().alignment;
  const auto bytes =
      static_cast<std::uint64_t>(sdk::element_count(dims) * sdk::element_bytes(type));
  return (bytes + alignment - 1) / alignment * alignment;
}

bool are_same(DimsView a, DimsView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace

GroupQueryAttention::GroupQueryAttention(const Device&, const sdk::Node& node)
    : heads_(node.get_int("num_heads", 0)),
      kv_heads_(node.get_int("kv_num_heads", 0)),
      scale_(static_cast<double>(node.get_float("scale", 0.0f))),
      softcap_(static_cast<double>(node.get_float("softcap", 0.0f))),
      window_(node.get_int("local_window_size", -1)),
      is_causal_(node.get_int("causal", 1) != 0),
      turns_(node.get_int("do_rotary", 0) != 0),
      is_interleaved_(node.get_int("rotary_interleaved", 0) != 0) {
  if (node.output(kScores)) sdk::unsupported("output output_qk is wanted");
  const auto refuse = [&node](std::uint32_t input, const char* name) {
    if (node.input(input)) sdk::unsupported("input ", name, " is given");
  };
  refuse(kSink, "head_sink");
  refuse(kKeyScale, "k_scale (a quantized cache)");
  refuse(kValueScale, "v_scale (a quantized cache)");
  refuse(kQueryNorm, "q_norm_weight");
  refuse(kKeyNorm, "k_norm_weight");
  if (node.input(kPastKey) && node.input(kPastKey).type() != node.input(kQuery).type())
    sdk::unsupported("a past of another type than the queries");
  if (node.get_int("smooth_softmax", -1) == 1) sdk::unsupported("attribute smooth_softmax is 1");
  if (node.get_int("sliding_window_cache", 0) != 0)
    sdk::unsupported("attribute sliding_window_cache is not 0");
  if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0)
    sdk::invalid("num_heads is ", heads_, " and kv_num_heads ", kv_heads_,
                 ", which does not divide it");
}

RowAttention GroupQueryAttention::begin(sdk::PrepareContext& ctx, Work& work,
                                        std::uint64_t& end) const {
  RowAttention form;
  RowCache keys, values;
  RowCaches caches;
  find_heads(ctx, form, keys, values);
  find_caches(ctx, form, caches, keys, values);
  find_turn(ctx, form);
  find_bias(ctx, form);
  form.y = {output(kOutput), RowSteps::by_position(heads_, form.queries, form.width)};
  ctx.set_output(kOutput, form.type, Dims{form.batch, form.queries, heads_ * form.width});
  keys.is_turned = form.turn.has_value();
  keep(ctx, work.device(), form, keys, kPresentKey, caches, end);
  keep(ctx, work.device(), form, values, kPresentValue, caches, end);
  if (form.turn) {
    form.turn->queries = workspace(end);
    end +=
        aligned_bytes(work.device(), form.type, Dims{form.batch, heads_, form.queries, form.width});
  }
  add_caches(work, form, caches, kFault);
  if (form.turn) {
    form.q = {form.turn->queries, RowSteps::by_head(heads_, form.queries, form.width)};
    form.turn.reset();
  }
  form.k = keys.present;
  form.v = values.present;
  const std::int64_t products = form.batch * heads_ * form.queries * form.keys;
  ctx.set_cost(4 * static_cast<std::uint64_t>(products * form.width),
               ctx.input(kQuery).bytes() + ctx.input(kKey).bytes() + ctx.input(kValue).bytes() +
                   ctx.input(kPastKey).bytes() + ctx.input(kPastValue).bytes());
  return form;
}

void GroupQueryAttention::prepare(sdk::PrepareContext& ctx, Work& work) const {
  std::uint64_t end = 0;
  const RowAttention form = begin(ctx, work, end);
  if (form.has_result()) end += add_row_attention(work, form, end);
  if (end > 0) ctx.set_workspace(end, work.device().limits().alignment);
}

void GroupQueryAttention::find_heads(const sdk::PrepareContext& ctx, RowAttention& form,
                                     RowCache& keys, RowCache& values) const {
  const sdk::Tensor query = ctx.input(kQuery), key = ctx.input(kKey), value = ctx.input(kValue);
  if (query.rank() != 3) sdk::invalid("query has dims ", to_string(query.dims()), ", 3 are needed");
  if (key.present() != value.present()) sdk::invalid("one of key and value is given alone");
  const bool is_packed = !key.present();
  const std::int64_t all = is_packed ? heads_ + 2 * kv_heads_ : heads_;
  if (query.dim(2) % all != 0 || query.dim(2) == 0)
    sdk::invalid("query has dims ", to_string(query.dims()), ", which are not ", all, " heads");
  const std::int64_t width = query.dim(2) / all;
  form.type = query.type();
  form.batch = query.dim(0);
  form.queries = form.keys = query.dim(1);
  form.kv_heads = kv_heads_;
  form.group_heads = heads_ / kv_heads_;
  form.width = form.value_width = width;
  form.scale = scale_ != 0 ? scale_ : 1 / std::sqrt(static_cast<double>(width));
  form.cap = softcap_;
  form.after = is_causal_ ? std::optional<std::int64_t>(0) : std::nullopt;
  form.q = {input(kQuery), RowSteps::by_position(all, form.queries, width)};
  const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(form.type));
  if (is_packed) {
    const auto at = [&](std::int64_t head) {
      return input(kQuery, static_cast<std::uint64_t>(head * width) * bytes);
    };
    keys.fresh = {at(heads_), form.q.steps};
    values.fresh = {at(heads_ + kv_heads_), form.q.steps};
    return;
  }
  const Dims wanted{form.batch, form.queries, kv_heads_ * width};
  for (const auto& [tensor, name] : {std::pair{key, "key"}, std::pair{value, "value"}}) {
    if (!are_same(tensor.dims(), wanted))
      sdk::invalid(name, " has dims ", to_string(tensor.dims()), " where query has ",
                   to_string(query.dims()), ", of ", heads_, " heads over ", kv_heads_);
  }
  keys.fresh = {input(kKey), RowSteps::by_position(kv_heads_, form.queries, width)};
  values.fresh = {input(kValue), keys.fresh.steps};
}

void GroupQueryAttention::find_caches(const sdk::PrepareContext& ctx, RowAttention& form,
                                      RowCaches& caches, RowCache& keys, RowCache& values) const {
  const sdk::Tensor past = ctx.input(kPastKey), past_value = ctx.input(kPastValue);
  const bool has_past = past.present();
  if (past_value.present() != has_past)
    sdk::invalid("one of past_key and past_value is given without the other");
  std::int64_t room = 0;
  if (has_past) {
    const std::vector<std::int64_t> total = ctx.input(kTotal).to_ints();
    if (total.size() != 1 || total[0] < form.queries)
      sdk::invalid("total_sequence_length is to be one number, of at least the ", form.queries,
                   " new positions");
    form.keys = total[0];
    room = past.rank() == 4 ? past.dim(2) : 0;
    const Dims wanted{form.batch, kv_heads_, room, form.width};
    for (const sdk::Tensor& cache : {past, past_value}) {
      if (!are_same(cache.dims(), wanted))
        sdk::invalid("past_key or past_value has dims ", to_string(cache.dims()), ", expected ",
                     to_string(DimsView(wanted)));
    }
    if (ctx.input(kLengths).size() != form.batch)
      sdk::invalid("seqlens_k has ", ctx.input(kLengths).size(), " elements for a batch of ",
                   form.batch);
    // Otherwise the new positions are all there are, whatever room the past has.
    if (form.keys > form.queries) form.lengths = RowLengths{input(kLengths), DataType::Int32, 1};
  }
  // Without a past and a direction, windows hide nothing: as in the operator's body.
  constexpr std::int64_t kWidest = std::int64_t{1} << 40;
  if (window_ > 0 && window_ <= kWidest && (is_causal_ || has_past)) form.before = window_ - 1;
  if (has_past) {
    keys.past = input(kPastKey);
    values.past = input(kPastValue);
  }
  caches.fresh_rows = form.queries;
  caches.room = room;
  caches.rows = std::max(room, form.keys);
  for (RowCache* const cache : {&keys, &values}) {
    cache->width = form.width;
    cache->present.steps = RowSteps::by_head(kv_heads_, caches.rows, form.width);
  }
}

void GroupQueryAttention::find_turn(const sdk::PrepareContext& ctx, RowAttention& form) const {
  if (!turns_) return;
  const sdk::Tensor cos = ctx.input(kCos), sin = ctx.input(kSin), positions = ctx.input(kPositions);
  if (!cos.present() || !sin.present())
    sdk::invalid("do_rotary is 1, but cos_cache or sin_cache is left out");
  if (cos.rank() != 2 || !are_same(cos.dims(), sin.dims()) || 2 * cos.dim(1) > form.width)
    sdk::invalid("cos_cache has dims ", to_string(cos.dims()), " and sin_cache ",
                 to_string(sin.dims()), " for heads of ", form.width);
  if (cos.dim(1) == 0) return;
  RowTurn turn;
  turn.cosines = input(kCos);
  turn.sines = input(kSin);
  turn.half = cos.dim(1);
  turn.angles = cos.dim(0);
  turn.is_interleaved = is_interleaved_;
  if (turn.angles == 0) sdk::invalid("cos_cache has no rows");
  if (positions.present()) {
    const bool is_shared = positions.rank() == 2 && positions.dim(0) == 1;
    if (positions.rank() != 2 || positions.dim(1) != form.queries ||
        (!is_shared && positions.dim(0) != form.batch))
      sdk::invalid("position_ids has dims ", to_string(positions.dims()), ", expected [",
                   form.batch, ", ", form.queries, "]");
    turn.places = input(kPositions);
    turn.place_step = is_shared ? 0 : form.queries;
  }
  form.turn = turn;
}

void GroupQueryAttention::find_bias(const sdk::PrepareContext& ctx, RowAttention& form) {
  const sdk::Tensor bias = ctx.input(kBias);
  if (!bias.present()) return;
  const auto fits = [&](int axis, std::int64_t size) {
    return bias.dim(axis) == 1 || bias.dim(axis) == size;
  };
  const std::int64_t heads = form.kv_heads * form.group_heads;
  if (bias.rank() != 4 || bias.dim(3) < form.keys || !fits(0, form.batch) || !fits(1, heads) ||
      !fits(2, form.queries))
    sdk::invalid("attention_bias has dims ", to_string(bias.dims()),
                 ", expected [batch or 1, heads or 1, ", form.queries, ", ", form.keys, "]");
  RowMask mask{input(kBias), bias.type(), {}};
  if (bias.dim(2) > 1) mask.steps.position = bias.dim(3);
  if (bias.dim(1) > 1) mask.steps.head = bias.dim(2) * bias.dim(3);
  if (bias.dim(0) > 1) mask.steps.batch = bias.dim(1) * bias.dim(2) * bias.dim(3);
  form.mask = mask;
}

void GroupQueryAttention::keep(sdk::PrepareContext& ctx, const Device& device,
                               const RowAttention& form, RowCache& cache, std::uint32_t index,
                               RowCaches& caches, std::uint64_t& end) const {
  const Dims dims{form.batch, kv_heads_, caches.rows, form.width};
  if (ctx.output_wanted(index)) {
    cache.present.memory = output(index);
    ctx.set_output(index, form.type, dims);
    if (cache.past && caches.room == caches.rows && caches.room > 0)
      ctx.allow_in_place(index, cache.past->index);
  } else if (!cache.past && !cache.is_turned) {
    cache.present = cache.fresh;
    return;
  } else {
    cache.present.memory = workspace(end);
    end += aligned_bytes(device, form.type, dims);
  }
  caches.each.push_back(cache);
}

sdk::KernelBuilder group_query_attention_op() {
  const common::TypeList types{DataType::Float, DataType::Float16, DataType::BFloat16};
  return sdk::op("GroupQueryAttention", "com.microsoft")
      .name(kernel_name("group_query_attention"))
      .types("T", types)
      .types("TC", types)
      .roles({BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA,
              BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA});
}

}  // namespace backplane::device_ops

#include "plugins/common/device_ops/cached_attention.hpp"

#include <algorithm>
#include <cmath>

#include "plugins/common/device_ops/types.hpp"

namespace backplane::device_ops {
namespace {

/// An operand's heads.
struct HeadsOf {
  std::int64_t batch = 0, heads = 0, positions = 0, width = 0;
  RowSteps steps;
};

std::optional<std::int64_t> window(const sdk::Node& node, const char* name) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 40;
  const std::int64_t size = node.get_int(name, -1);
  if (size < -1) sdk::invalid("attribute '", name, "' is ", size, ", at least -1 is needed");
  return size < 0 || size >= kWidest ? std::nullopt : std::optional<std::int64_t>(size);
}

HeadsOf heads_of(const sdk::Tensor& tensor, std::int64_t count) {
  const DimsView d = tensor.dims();
  if (d.size() == 4) return {d[0], d[1], d[2], d[3], RowSteps::by_head(d[1], d[2], d[3])};
  if (d.size() != 3 || count < 1 || d[2] % count != 0)
    sdk::invalid("an operand of attention has dims ", to_string(d), ", which are not ", count,
                 " heads");
  return {d[0], count, d[1], d[2] / count, RowSteps::by_position(count, d[1], d[2] / count)};
}

/// Of the operands' dims, as if nothing were before them.
RowAttention form_of(DataType type, const HeadsOf& q, const HeadsOf& k, const HeadsOf& v) {
  if (k.batch != q.batch || v.batch != q.batch || k.width != q.width || v.heads != k.heads ||
      v.positions != k.positions || (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0))
    sdk::invalid("attention of ", q.batch, " x ", q.heads, " heads of ", q.width, " by ", k.batch,
                 " x ", k.heads, " of ", k.width, " and ", v.batch, " x ", v.heads);
  RowAttention form;
  form.type = type;
  form.batch = q.batch;
  form.kv_heads = k.heads;
  form.group_heads = k.heads == 0 ? 1 : q.heads / k.heads;
  form.queries = q.positions;
  form.keys = k.positions;
  form.width = q.width;
  form.value_width = v.width;
  form.q = {input(CachedAttention::kQ), q.steps};
  return form;
}

/// Sets up one of the caches where keys or values of before are given, or those of after wanted: `rows` becomes where they are
/// joined. Without either they are read as they come.
void keep(sdk::PrepareContext& ctx, const Device& device, const RowAttention& form,
          const HeadsOf& fresh, std::uint32_t from, std::uint32_t to, RowsAt& rows,
          RowCaches& caches, std::uint64_t& end) {
  const sdk::Tensor past = ctx.input(from);
  rows = {input(from == CachedAttention::kPastKey ? CachedAttention::kK : CachedAttention::kV),
          fresh.steps};
  if (!past.present() && !ctx.output_wanted(to)) return;
  RowCache cache;
  if (past.present()) {
    if (past.rank() != 4 || past.dim(0) != fresh.batch || past.dim(1) != fresh.heads ||
        past.dim(3) != fresh.width)
      sdk::invalid("past keys or values have dims ", to_string(past.dims()), ", expected [",
                   fresh.batch, ", ", fresh.heads, ", positions, ", fresh.width, "]");
    cache.past = input(from);
  }
  cache.fresh = rows;
  cache.width = fresh.width;
  cache.present.steps = RowSteps::by_head(fresh.heads, caches.rows, fresh.width);
  const Dims dims{fresh.batch, fresh.heads, caches.rows, fresh.width};
  if (ctx.output_wanted(to)) {
    cache.present.memory = output(to);
    ctx.set_output(to, form.type, dims);
  } else {
    const std::uint64_t alignment = device.limits().alignment;
    const auto bytes =
        static_cast<std::uint64_t>(sdk::element_count(dims) * sdk::element_bytes(form.type));
    cache.present.memory = workspace(end);
    end += (bytes + alignment - 1) / alignment * alignment;
  }
  rows = cache.present;
  caches.each.push_back(cache);
}

/// Positions of before, as many of keys as of values.
std::int64_t room_of(const sdk::PrepareContext& ctx) {
  const sdk::Tensor key = ctx.input(CachedAttention::kPastKey),
                    value = ctx.input(CachedAttention::kPastValue);
  const std::int64_t room = key.rank() == 4 ? key.dim(2) : 0;
  if (value.rank() == 4 && value.dim(2) != room)
    sdk::invalid("past_key has ", room, " positions and past_value ", value.dim(2));
  return room;
}

/// A shorter last axis masks the keys after it.
void set_mask(const sdk::PrepareContext& ctx, RowAttention& form) {
  const sdk::Tensor given = ctx.input(CachedAttention::kMask);
  if (!given.present()) return;
  if (given.rank() < 1 || given.rank() > 4)
    sdk::invalid("the mask has dims ", to_string(given.dims()), ", 1 to 4 are needed");
  Dims dims(4, 1);
  std::copy(given.dims().begin(), given.dims().end(), dims.end() - given.rank());
  const std::int64_t heads = form.kv_heads * form.group_heads;
  const Dims whole{form.batch, heads, form.queries, form.keys};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (dims[axis] != 1 && dims[axis] != whole[axis])
      sdk::invalid("the mask has dims ", to_string(given.dims()), ", which do not broadcast to ",
                   to_string(DimsView(whole)));
  }
  if (dims[3] > form.keys)
    sdk::invalid("the mask has dims ", to_string(given.dims()), " for ", form.keys, " keys");
  RowMask mask{input(CachedAttention::kMask), given.type(), {}};
  form.most_keys = dims[3];
  if (dims[2] > 1) mask.steps.position = dims[3];
  if (dims[1] > 1) mask.steps.head = dims[2] * dims[3];
  if (dims[0] > 1) mask.steps.batch = dims[1] * dims[2] * dims[3];
  form.mask = mask;
}

void set_lengths(const sdk::PrepareContext& ctx, RowAttention& form) {
  const sdk::Tensor lengths = ctx.input(CachedAttention::kLengths);
  if (!lengths.present()) return;
  if (ctx.input(CachedAttention::kPastKey).present())
    sdk::invalid("nonpad_kv_seqlen is given together with past_key");
  if (lengths.size() != form.batch)
    sdk::invalid("nonpad_kv_seqlen has ", lengths.size(), " elements for a batch of ", form.batch);
  form.lengths = RowLengths{input(CachedAttention::kLengths), DataType::Int64, 0};
}

}  // namespace

CachedAttention::CachedAttention(const Device&, const sdk::Node& node)
    : scale_(node.has("scale")
                 ? std::optional<double>(static_cast<double>(node.get_float("scale", 1)))
                 : std::nullopt),
      softcap_(static_cast<double>(node.get_float("softcap", 0))),
      is_causal_(node.get_int("is_causal", 0) != 0),
      before_(window(node, "left_window_size")),
      after_(window(node, "right_window_size")),
      q_heads_(node.get_int("q_num_heads", 0)),
      kv_heads_(node.get_int("kv_num_heads", 0)) {
  const bool keeps = node.input(kPastKey) || node.input(kPastValue) || node.output(kPresentKey) ||
                     node.output(kPresentValue);
  if (!keeps && !node.input(kLengths) && softcap_ == 0)
    sdk::unsupported("attention without a cache, lengths or softcap, which its parts compute");
  if (node.output(kScores))
    sdk::unsupported("output qk_matmul_output is wanted; this kernel never has all scores");
  if (node.get_int("softmax_precision", BP_FLOAT) == BP_DOUBLE)
    sdk::unsupported("a softmax that is to be computed in double");
  const DataType type = node.input(kQ).type();
  for (const std::uint32_t i : {kK, kV, kPastKey, kPastValue}) {
    if (node.input(i) && node.input(i).type() != type)
      sdk::unsupported("attention of ", sdk::type_name(type), " and ",
                       sdk::type_name(node.input(i).type()));
  }
}

RowAttention CachedAttention::begin(sdk::PrepareContext& ctx, Work& work,
                                    std::uint64_t& end) const {
  const sdk::Tensor q = ctx.input(kQ);
  const HeadsOf queries = heads_of(q, q_heads_), keys = heads_of(ctx.input(kK), kv_heads_),
                values = heads_of(ctx.input(kV), kv_heads_);
  RowAttention form = form_of(q.type(), queries, keys, values);
  form.scale = scale_.value_or(1 / std::sqrt(static_cast<double>(queries.width)));
  form.cap = softcap_;
  form.before = before_;
  form.after = is_causal_ ? std::optional<std::int64_t>(0) : after_;
  const bool has_past = ctx.input(kPastKey).present();
  if (ctx.input(kPastValue).present() != has_past)
    sdk::invalid("one of past_key and past_value is given without the other");
  const std::int64_t room = has_past ? room_of(ctx) : 0;
  RowCaches caches;
  caches.fresh_rows = keys.positions;
  caches.room = room;
  caches.rows = form.keys = room + keys.positions;
  form.first_place = room;
  keep(ctx, work.device(), form, keys, kPastKey, kPresentKey, form.k, caches, end);
  keep(ctx, work.device(), form, values, kPastValue, kPresentValue, form.v, caches, end);
  add_caches(work, form, caches, "");
  set_mask(ctx, form);
  set_lengths(ctx, form);
  const Dims dims = q.rank() == 3 ? Dims{form.batch, form.queries, queries.heads * form.value_width}
                                  : Dims{form.batch, queries.heads, form.queries, form.value_width};
  form.y = {output(kY), q.rank() == 3
                            ? RowSteps::by_position(queries.heads, form.queries, form.value_width)
                            : RowSteps::by_head(queries.heads, form.queries, form.value_width)};
  ctx.set_output(kY, form.type, dims);
  const std::int64_t scores = form.batch * queries.heads * form.queries * form.keys;
  ctx.set_cost(2 * static_cast<std::uint64_t>(scores * (form.width + form.value_width)),
               q.bytes() + ctx.input(kK).bytes() + ctx.input(kV).bytes());
  return form;
}

void CachedAttention::prepare(sdk::PrepareContext& ctx, Work& work) const {
  std::uint64_t end = 0;
  const RowAttention form = begin(ctx, work, end);
  if (form.has_result()) end += add_row_attention(work, form, end);
  if (end > 0) ctx.set_workspace(end, work.device().limits().alignment);
}

sdk::KernelBuilder cached_attention_op() {
  const common::TypeList types{DataType::Float, DataType::Float16, DataType::BFloat16};
  return sdk::op("Attention")
      .name(kernel_name("cached_attention"))
      .types("T1", types)
      .types("T2", types)
      .types("U", common::join(types, {DataType::Bool}))
      .since(23);
}

}  // namespace backplane::device_ops

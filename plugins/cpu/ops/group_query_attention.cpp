// GroupQueryAttention: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
// and backplane.cpu::GroupQueryAttention, the same with past and present of the attribute cache_type, all else in float.
//
// Each sequence of a batch has a length of its own. The present is the past's room, or as much as the longest sequence needs;
// new keys and values are written behind what a sequence uses of it, and attention reads them there. A sliding cache has the
// last positions alone: what they no longer have room for moves out at the front. One new position is read in the present;
// several may need what the present has no longer, and are read behind the past in memory of the run.
#include <algorithm>
#include <cmath>

#include "plugins/common/group_query_values.hpp"
#include "plugins/cpu/dense/attention_f32.hpp"
#include "plugins/cpu/dense/attention_heads.hpp"
#include "plugins/cpu/dense/cache_attributes.hpp"
#include "plugins/cpu/device.hpp"
#include "plugins/cpu/kernels/normalize.hpp"
#include "plugins/cpu/rounding.hpp"

namespace backplane::cpu {
namespace {

constexpr float kNormEpsilon = 1e-6f;

bool are_same(sdk::DimsView a, sdk::DimsView b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Turns the first columns of heads by the angles of their positions; what is beyond is left as it is. y may be x.
struct RotaryTurn {
  std::int64_t half = 0;  // angles of a position: half of the columns that are turned
  bool is_interleaved = false;

  void row(const float* x, float* y, std::int64_t width, const float* cos, const float* sin) const {
    const std::int64_t step = is_interleaved ? 2 : 1, other = is_interleaved ? 1 : half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = x[i * step], b = x[i * step + other];
      y[i * step] = a * cos[i] - b * sin[i];
      y[i * step + other] = a * sin[i] + b * cos[i];
    }
    if (x != y) std::copy(x + 2 * half, x + width, y + 2 * half);
  }
};

/// Divides heads by the root of their mean square, and weighs their columns. y may be x.
struct RootNorm {
  const NormalizeLoops<float>* loops = nullptr;  // null: heads are left as they are
  float epsilon = 0;

  void row(const float* x, float* y, std::int64_t width, const float* weight) const {
    const float factor = 1.0f / std::sqrt(loops->mean_square(x, width) + epsilon);
    loops->standardize(x, y, width, 0.0f, factor, weight, nullptr);
  }
};

/// A cache of the last positions: when its room is full, so many of them go that the window stays.
struct SlidingCache {
  std::int64_t window = 0;  // 0: the cache has all positions
  std::int64_t room = 0;

  /// How many of so many positions the cache has.
  std::int64_t kept(std::int64_t positions) const {
    if (window == 0 || positions <= room) return positions;
    const std::int64_t step = room - window + 1;
    return positions - (positions - window) / step * step;
  }
};

/// Sizes of one GroupQueryAttention.
struct GroupQuerySizes {
  AttentionShape shape;
  Heads query, fresh_key, fresh_value;  // as the inputs have them
  Heads past, present;                  // of keys, and of values
  Heads seen;                           // what attention reads: the present, or memory of the run
  SlidingCache sliding;
  bool joins = false;             // what attention reads is not the present
  std::int64_t value_offset = 0;  // floats before the values, where all are packed
  std::int64_t key_offset = 0;
  std::int64_t total = 0;  // positions of the longest sequence, with the new ones
  bool is_packed = false;
  bool is_prompt = false;  // the new positions are all there are, whatever room the past has
  bool has_past = false;
  bool keeps_key = false, keeps_value = false;  // are outputs
  RotaryTurn turn;
  RootNorm norm;
  bool turns = false;
  bool changes = false;                       // queries and keys: normalized, turned or both
  std::int64_t angles = 0;                    // positions that have some
  std::int64_t position_step = 0;             // between the positions of sequences
  const HalfConversion* narrowing = nullptr;  // of a cache of 16 bits
  std::int64_t bytes = 4;                     // of a number of the cache
};

/// Where in the workspace things are, in bytes; attention's own memory is first.
struct GroupQueryWorkspace {
  std::uint64_t lengths = 0, before = 0, places = 0, query = 0, row = 0, end = 0;
  std::uint64_t key = 0, value = 0;  // where they are no outputs, or what attention reads
  std::uint64_t sinks = 0;

  std::uint64_t take(std::int64_t count, std::uint64_t size) {
    const std::uint64_t at = end;
    end += align64(static_cast<std::uint64_t>(count) * size);
    return at;
  }
};

/// One run: the memory of its values.
struct GroupQueryRun {
  const GroupQuerySizes& sizes;
  const float *query = nullptr, *key = nullptr, *value = nullptr;
  const char *past_key = nullptr, *past_value = nullptr;
  char *present_key = nullptr, *present_value = nullptr;  // null: are not wanted
  char *seen_key = nullptr, *seen_value = nullptr;        // what attention reads
  float* changed_query = nullptr;
  float* changed_rows = nullptr;    // of keys that are narrowed, one for each head
  std::int64_t* lengths = nullptr;  // of what attention reads, by the batch
  std::int64_t* before = nullptr;   // positions before the new ones, by the batch
  std::int64_t* places = nullptr;   // of the new positions' angles: [batch, queries]
  const float *cos = nullptr, *sin = nullptr;
  const float *query_norm = nullptr, *key_norm = nullptr;

  void find_lengths(const sdk::Tensor& given) const {
    const std::int64_t queries = sizes.shape.queries;
    const bool is_sliding = sizes.sliding.window > 0;
    for (std::int64_t b = 0; b < sizes.shape.batch; ++b) {
      before[b] = 0;
      if (sizes.has_past && !sizes.is_prompt) {
        const std::int64_t last = given.data<std::int32_t>()[b];
        before[b] = last + 1 - queries;
        if (before[b] < 0 || last >= sizes.total ||
            (!is_sliding && before[b] > sizes.past.positions))
          sdk::invalid("seqlens_k[", b, "] is ", last, " where ", queries,
                       " positions are new, the past has room for ", sizes.past.positions,
                       " and total_sequence_length is ", sizes.total);
      }
      lengths[b] = sizes.joins ? sizes.sliding.kept(before[b]) + queries
                               : sizes.sliding.kept(before[b] + queries);
    }
  }

  void find_places(const std::int64_t* given) const {
    const std::int64_t queries = sizes.shape.queries;
    for (std::int64_t b = 0; b < sizes.shape.batch; ++b) {
      for (std::int64_t i = 0; i < queries; ++i) {
        std::int64_t place = given != nullptr ? given[b * sizes.position_step + i] : before[b] + i;
        if (place < 0) place += sizes.angles;
        if (place < 0 || place >= sizes.angles)
          sdk::invalid("position ", place, " has no angles: cos_cache has ", sizes.angles, " rows");
        places[b * queries + i] = place;
      }
    }
  }

  /// What attention reads of head `h` of keys and values, and of the heads of queries that share it.
  void prepare_head(std::int64_t b, std::int64_t h) const {
    append(b, h, sizes.fresh_key, key, past_key, seen_key, sizes.changes);
    append(b, h, sizes.fresh_value, value, past_value, seen_value, false);
    if (sizes.joins) {
      hand_on(b, h, seen_key, past_key, present_key);
      hand_on(b, h, seen_value, past_value, present_value);
    }
    if (!sizes.changes) return;
    const std::int64_t group = sizes.shape.group, width = sizes.shape.width;
    for (std::int64_t head = h * group; head < (h + 1) * group; ++head) {
      for (std::int64_t i = 0; i < sizes.shape.queries; ++i) {
        change(b, i, query + sizes.query.steps.at(b, head, i), query_norm,
               changed_query +
                   ((b * sizes.shape.kv_heads * group + head) * sizes.shape.queries + i) * width);
      }
    }
  }

 private:
  void change(std::int64_t b, std::int64_t i, const float* from, const float* weight,
              float* to) const {
    if (sizes.norm.loops != nullptr) {
      sizes.norm.row(from, to, sizes.shape.width, weight);
      from = to;
    }
    if (!sizes.turns) return;
    const std::int64_t at = places[b * sizes.shape.queries + i] * sizes.turn.half;
    sizes.turn.row(from, to, sizes.shape.width, cos + at, sin + at);
  }

  const char* past_of(std::int64_t b, std::int64_t h, const char* past) const {
    return past == nullptr ? nullptr : past + sizes.past.steps.at(b, h, 0) * sizes.bytes;
  }

  /// Past and new rows of a head where attention reads them. Where that is the past's memory, the new ones alone are written,
  /// and what stays of a sliding cache moves when others go.
  void append(std::int64_t b, std::int64_t h, const Heads& fresh, const float* rows,
              const char* past, char* seen, bool changes) const {
    const std::int64_t step = sizes.shape.width * sizes.bytes, queries = sizes.shape.queries;
    const std::int64_t end = lengths[b], used = end - queries;
    const std::int64_t gone = sizes.sliding.kept(before[b]) - used;
    char* to = seen + sizes.seen.steps.at(b, h, 0) * sizes.bytes;
    const char* from = past_of(b, h, past);
    if (used > 0 && (past != seen || gone > 0))
      std::copy(from + gone * step, from + (gone + used) * step, to);
    if (past != seen && !sizes.joins) fill_rest(end, from, to);
    for (std::int64_t i = 0; i < queries; ++i) {
      const float* row = rows + fresh.steps.at(b, h, i);
      char* target = to + (used + i) * step;
      if (!changes) {
        store(row, target);
        continue;
      }
      float* changed = reinterpret_cast<float*>(target);
      if (sizes.narrowing != nullptr)
        changed = changed_rows + (b * sizes.shape.kv_heads + h) * sizes.shape.width;
      change(b, i, row, key_norm, changed);
      if (sizes.narrowing != nullptr) store(changed, target);
    }
  }

  void store(const float* row, char* target) const {
    if (sizes.narrowing != nullptr) {
      sizes.narrowing->from_float(row, target, sizes.shape.width);
    } else {
      std::copy_n(row, sizes.shape.width, reinterpret_cast<float*>(target));
    }
  }

  /// The present beyond the `end` of a sequence: what the past's room has there, if it has.
  void fill_rest(std::int64_t end, const char* past, char* present) const {
    const std::int64_t step = sizes.shape.width * sizes.bytes, room = sizes.past.positions;
    if (room > end) std::copy(past + end * step, past + room * step, present + end * step);
    std::fill(present + std::max(end, room) * step, present + sizes.present.positions * step, '\0');
  }

  /// The last rows of what attention reads, as many as a sliding cache keeps.
  void hand_on(std::int64_t b, std::int64_t h, const char* seen, const char* past,
               char* present) const {
    if (present == nullptr) return;
    const std::int64_t step = sizes.shape.width * sizes.bytes;
    const std::int64_t kept = sizes.sliding.kept(before[b] + sizes.shape.queries);
    const char* end =
        seen + (sizes.seen.steps.at(b, h, 0) + lengths[b] * sizes.shape.width) * sizes.bytes;
    char* to = present + sizes.present.steps.at(b, h, 0) * sizes.bytes;
    std::copy(end - kept * step, end, to);
    if (past != present) fill_rest(kept, past_of(b, h, past), to);
  }
};

/// float. What is not handled here is left to the operator's body.
class GroupQueryAttention : public common::GroupQueryValues {
 public:
  struct Prepared {
    AttentionF32 attention;
    AttentionArgs args;
    GroupQuerySizes sizes;
    GroupQueryWorkspace workspace;
    bool is_smooth = false;  // there is a sink of 0

    void compute(const sdk::ComputeContext& ctx) const {
      char* memory = ctx.workspace().mutable_data<char>();
      const auto input = [&](std::uint32_t index) {
        return ctx.has_input(index) ? ctx.input(index).data<float>() : nullptr;
      };
      const auto kept = [&](bool is_kept, std::uint32_t output) {
        return is_kept ? ctx.output(output).mutable_data<char>() : nullptr;
      };
      const auto seen = [&](char* present, std::uint64_t at) {
        return present != nullptr && !sizes.joins ? present : memory + at;
      };
      GroupQueryRun run{.sizes = sizes};
      run.query = input(kQuery);
      run.key = sizes.is_packed ? run.query + sizes.key_offset : input(kKey);
      run.value = sizes.is_packed ? run.query + sizes.value_offset : input(kValue);
      const auto past = [&](std::uint32_t index) {
        return ctx.has_input(index) ? ctx.input(index).data<char>() : nullptr;
      };
      run.past_key = past(kPastKey);
      run.past_value = past(kPastValue);
      run.present_key = kept(sizes.keeps_key, kPresentKey);
      run.present_value = kept(sizes.keeps_value, kPresentValue);
      run.seen_key = seen(run.present_key, workspace.key);
      run.seen_value = seen(run.present_value, workspace.value);
      run.changed_query = reinterpret_cast<float*>(memory + workspace.query);
      run.changed_rows = reinterpret_cast<float*>(memory + workspace.row);
      run.lengths = reinterpret_cast<std::int64_t*>(memory + workspace.lengths);
      run.before = reinterpret_cast<std::int64_t*>(memory + workspace.before);
      run.places = reinterpret_cast<std::int64_t*>(memory + workspace.places);
      run.cos = input(kCos);
      run.sin = input(kSin);
      run.query_norm = input(kQueryNorm);
      run.key_norm = input(kKeyNorm);
      if (sizes.has_past && sizes.past.positions != sizes.present.positions &&
          (run.past_key == run.seen_key || run.past_value == run.seen_value))
        sdk::invalid("past and present are one memory, whose room of ", sizes.past.positions,
                     " positions is too small for ", sizes.present.positions);
      run.find_lengths(ctx.input(kLengths));
      if (sizes.turns) {
        const bool is_given = ctx.has_input(kPositions);
        run.find_places(is_given ? ctx.input(kPositions).data<std::int64_t>() : nullptr);
      }
      AttentionArgs all = args;
      all.q = sizes.changes ? run.changed_query : run.query;
      all.k = run.seen_key;
      all.v = run.seen_value;
      all.y = ctx.output(kOutput).mutable_data<float>();
      all.lengths = run.lengths;
      if (ctx.has_input(kBias)) all.mask = ctx.input(kBias).data<char>();
      all.sinks = input(kSink);
      if (all.sinks == nullptr && is_smooth) {
        auto* zeros = reinterpret_cast<float*>(memory + workspace.sinks);
        std::fill_n(zeros, sizes.shape.kv_heads * sizes.shape.group, 0.0f);
        all.sinks = zeros;
      }
      attention.run(all, ctx.threads(), memory,
                    [&run](std::int64_t b, std::int64_t h) { run.prepare_head(b, h); });
    }
  };

  GroupQueryAttention(const sdk::CreateContext& ctx, const sdk::Node& node)
      : isa_(isa_of(ctx)),
        cache_type_(cache_type_of(node)),
        heads_(node.get_int("num_heads", 0)),
        kv_heads_(node.get_int("kv_num_heads", 0)),
        scale_(node.get_float("scale", 0.0f)),
        softcap_(node.get_float("softcap", 0.0f)),
        window_(node.get_int("local_window_size", -1)),
        is_causal_(node.get_int("causal", 1) != 0),
        turns_(node.get_int("do_rotary", 0) != 0),
        is_interleaved_(node.get_int("rotary_interleaved", 0) != 0),
        is_smooth_(node.get_int("smooth_softmax", -1) == 1),
        is_sliding_(node.get_int("sliding_window_cache", 0) != 0),
        epsilon_(node.get_float("qk_norm_epsilon", kNormEpsilon)) {
    if (node.output(kScores)) sdk::unsupported("output output_qk is wanted");
    const auto refuse = [&node](std::uint32_t input, const char* name) {
      if (node.input(input)) sdk::unsupported("input ", name, " is given");
    };
    refuse(kKeyScale, "k_scale (a quantized cache)");
    refuse(kValueScale, "v_scale (a quantized cache)");
    if (is_sliding_ && node.input(kBias))
      sdk::unsupported("attribute sliding_window_cache is 1 and input attention_bias is given");
    if (is_sliding_ && (window_ < 1 || !is_causal_))
      sdk::invalid("sliding_window_cache is 1, but local_window_size ", window_, " or causal 0");
    if (heads_ < 1 || kv_heads_ < 1 || heads_ % kv_heads_ != 0)
      sdk::invalid("num_heads is ", heads_, " and kv_num_heads ", kv_heads_,
                   ", which does not divide it");
  }

  Prepared prepare(sdk::PrepareContext& ctx) const {
    GroupQuerySizes sizes;
    plan_heads(ctx, sizes);
    plan_caches(ctx, sizes);
    plan_rotation(ctx, sizes);
    plan_norms(ctx, sizes);
    sizes.changes = sizes.turns || sizes.norm.loops != nullptr;
    const AttentionShape& shape = sizes.shape;
    AttentionArgs args;
    plan_bias(ctx, shape, args);
    const Heads changed = Heads::of_axes(shape.batch, heads_, shape.queries, shape.width, false);
    args.q_steps = sizes.changes ? changed.steps : sizes.query.steps;
    args.k_steps = args.v_steps = sizes.seen.steps;
    args.y_steps = Heads::of_axes(shape.batch, heads_, shape.queries, shape.width, true).steps;
    ctx.set_output(kOutput, sdk::DataType::Float,
                   sdk::Dims{shape.batch, shape.queries, heads_ * shape.width});
    ctx.set_cost(attention_flops(shape),
                 ctx.input(kQuery).bytes() + ctx.input(kKey).bytes() + ctx.input(kValue).bytes() +
                     ctx.input(kPastKey).bytes() + ctx.input(kPastValue).bytes());
    const sdk::Tensor sinks = ctx.input(kSink);
    if (sinks.present() && sinks.size() != heads_)
      sdk::invalid("head_sink has ", sinks.size(), " elements for ", heads_, " heads");
    Prepared prepared{
        AttentionF32(shape, isa_, ctx.threads().count()), args, sizes, {}, is_smooth_};
    lay_out(sizes, prepared);
    ctx.set_workspace(prepared.workspace.end);
    return prepared;
  }

 private:
  void lay_out(const GroupQuerySizes& sizes, Prepared& prepared) const {
    const AttentionShape& shape = sizes.shape;
    GroupQueryWorkspace& workspace = prepared.workspace;
    workspace.end = align64(prepared.attention.scratch_bytes());
    const std::int64_t caches = shape.batch * sizes.seen.steps.batch;
    workspace.lengths = workspace.take(shape.batch, sizeof(std::int64_t));
    workspace.before = workspace.take(shape.batch, sizeof(std::int64_t));
    workspace.places = workspace.take(shape.batch * shape.queries, sizeof(std::int64_t));
    const std::int64_t queries = shape.batch * heads_ * shape.queries * shape.width;
    workspace.query = workspace.take(sizes.changes ? queries : 0, sizeof(float));
    workspace.sinks = workspace.take(is_smooth_ ? heads_ : 0, sizeof(float));
    const bool narrows = sizes.changes && sizes.narrowing != nullptr;
    workspace.row =
        workspace.take(narrows ? shape.batch * shape.kv_heads * shape.width : 0, sizeof(float));
    const auto bytes = static_cast<std::uint64_t>(sizes.bytes);
    workspace.key = workspace.take(sizes.keeps_key && !sizes.joins ? 0 : caches, bytes);
    workspace.value = workspace.take(sizes.keeps_value && !sizes.joins ? 0 : caches, bytes);
  }

  void plan_heads(const sdk::PrepareContext& ctx, GroupQuerySizes& sizes) const {
    const sdk::Tensor query = ctx.input(kQuery), key = ctx.input(kKey), value = ctx.input(kValue);
    if (query.rank() != 3)
      sdk::invalid("query has dims ", sdk::to_string(query.dims()), ", 3 are needed");
    if (key.present() != value.present()) sdk::invalid("one of key and value is given alone");
    sizes.is_packed = !key.present();
    sizes.query = heads_of(query, sizes.is_packed ? heads_ + 2 * kv_heads_ : heads_, true, "query");
    const std::int64_t width = sizes.query.width;
    AttentionShape& shape = sizes.shape;
    shape.batch = sizes.query.batch;
    shape.kv_heads = kv_heads_;
    shape.group = heads_ / kv_heads_;
    shape.queries = sizes.query.positions;
    shape.width = shape.value_width = width;
    shape.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(width));
    shape.softcap = softcap_;
    shape.causal = is_causal_;
    sizes.fresh_key = sizes.fresh_value = sizes.query;
    if (sizes.is_packed) {
      sizes.key_offset = heads_ * width;
      sizes.value_offset = (heads_ + kv_heads_) * width;
      return;
    }
    const sdk::Dims wanted{shape.batch, shape.queries, kv_heads_ * width};
    for (const auto& [tensor, name] : {std::pair{key, "key"}, std::pair{value, "value"}}) {
      if (!are_same(tensor.dims(), wanted))
        sdk::invalid(name, " has dims ", sdk::to_string(tensor.dims()), " where query has ",
                     sdk::to_string(query.dims()), ", of ", heads_, " heads over ", kv_heads_);
    }
    sizes.fresh_key = sizes.fresh_value =
        Heads::of_axes(shape.batch, kv_heads_, shape.queries, width, true);
  }

  /// How many positions a past has room for.
  std::int64_t plan_past(const sdk::PrepareContext& ctx, GroupQuerySizes& sizes) const {
    const AttentionShape& shape = sizes.shape;
    const std::vector<std::int64_t> total = ctx.input(kTotal).to_ints();
    if (total.size() != 1 || total[0] < shape.queries)
      sdk::invalid("total_sequence_length is to be one number, of at least the ", shape.queries,
                   " new positions");
    sizes.total = total[0];
    sizes.is_prompt = sizes.total == shape.queries;
    const sdk::Tensor past = ctx.input(kPastKey);
    const std::int64_t room = past.rank() == 4 ? past.dim(2) : 0;
    const sdk::Dims wanted{shape.batch, kv_heads_, room, shape.width};
    for (const sdk::Tensor& cache : {past, ctx.input(kPastValue)}) {
      if (cache.type() != cache_type_)
        sdk::invalid("past_key or past_value is of ", sdk::type_name(cache.type()));
      if (!are_same(cache.dims(), wanted))
        sdk::invalid("past_key or past_value has dims ", sdk::to_string(cache.dims()),
                     ", expected ", sdk::to_string(wanted));
    }
    if (ctx.input(kLengths).size() != shape.batch)
      sdk::invalid("seqlens_k has ", ctx.input(kLengths).size(), " elements for a batch of ",
                   shape.batch);
    return room;
  }

  void plan_caches(sdk::PrepareContext& ctx, GroupQuerySizes& sizes) const {
    AttentionShape& shape = sizes.shape;
    shape.cache_type = cache_type_;
    sizes.bytes = sdk::element_bytes(cache_type_);
    if (cache_type_ != sdk::DataType::Float) sizes.narrowing = &half_conversion(isa_, cache_type_);
    const sdk::Tensor past = ctx.input(kPastKey), past_value = ctx.input(kPastValue);
    sizes.has_past = past.present();
    if (past_value.present() != sizes.has_past)
      sdk::invalid("one of past_key and past_value is given without the other");
    sizes.total = shape.queries;
    const std::int64_t room = sizes.has_past ? plan_past(ctx, sizes) : 0;
    // Without a past and a direction, windows hide nothing: as in the operator's body.
    if (window_ > 0 && (is_causal_ || sizes.has_past))
      shape.left_window = window_ > kWidestWindow ? kNoWindow : window_ - 1;
    sizes.past = Heads::of_axes(shape.batch, kv_heads_, room, shape.width, false);
    if (is_sliding_) plan_sliding(sizes, room);
    const std::int64_t rows = is_sliding_ ? room : std::max(room, sizes.total);
    sizes.present = Heads::of_axes(shape.batch, kv_heads_, rows, shape.width, false);
    const std::int64_t seen = sizes.joins ? room + shape.queries : rows;
    sizes.seen = Heads::of_axes(shape.batch, kv_heads_, seen, shape.width, false);
    shape.keys = std::min(sizes.total, seen);
    sizes.keeps_key = ctx.output_wanted(kPresentKey);
    sizes.keeps_value = ctx.output_wanted(kPresentValue);
    const sdk::Dims dims = sizes.present.dims(4, false);
    if (sizes.keeps_key) ctx.set_output(kPresentKey, cache_type_, dims);
    if (sizes.keeps_value) ctx.set_output(kPresentValue, cache_type_, dims);
    if (room != rows || room == 0) return;
    if (sizes.keeps_key) ctx.allow_in_place(kPresentKey, kPastKey);
    if (sizes.keeps_value) ctx.allow_in_place(kPresentValue, kPastValue);
  }

  void plan_sliding(GroupQuerySizes& sizes, std::int64_t room) const {
    if (!sizes.has_past) sdk::invalid("sliding_window_cache is 1, but past_key is left out");
    if (room < window_)
      sdk::invalid("past_key has room for ", room, " positions, fewer than local_window_size ",
                   window_);
    sizes.sliding = {window_, room};
    sizes.joins = sizes.shape.queries > 1;
  }

  void plan_norms(const sdk::PrepareContext& ctx, GroupQuerySizes& sizes) const {
    const sdk::Tensor query = ctx.input(kQueryNorm), key = ctx.input(kKeyNorm);
    if (query.present() != key.present())
      sdk::invalid("one of q_norm_weight and k_norm_weight is given without the other");
    if (!query.present()) return;
    const std::int64_t width = sizes.shape.width;
    if (query.size() != width || key.size() != width)
      sdk::invalid("q_norm_weight has ", query.size(), " elements and k_norm_weight ", key.size(),
                   " for heads of ", width);
    sizes.norm = {&normalize_loops<float>(isa_), epsilon_};
  }

  void plan_rotation(const sdk::PrepareContext& ctx, GroupQuerySizes& sizes) const {
    if (!turns_) return;
    const sdk::Tensor cos = ctx.input(kCos), sin = ctx.input(kSin),
                      positions = ctx.input(kPositions);
    if (!cos.present() || !sin.present())
      sdk::invalid("do_rotary is 1, but cos_cache or sin_cache is left out");
    if (cos.rank() != 2 || !are_same(cos.dims(), sin.dims()) || 2 * cos.dim(1) > sizes.shape.width)
      sdk::invalid("cos_cache has dims ", sdk::to_string(cos.dims()), " and sin_cache ",
                   sdk::to_string(sin.dims()), " for heads of ", sizes.shape.width);
    sizes.turns = true;
    sizes.turn = {cos.dim(1), is_interleaved_};
    sizes.angles = cos.dim(0);
    if (!positions.present()) return;
    const bool is_shared = positions.rank() == 2 && positions.dim(0) == 1;
    if (positions.rank() != 2 || positions.dim(1) != sizes.shape.queries ||
        (!is_shared && positions.dim(0) != sizes.shape.batch))
      sdk::invalid("position_ids has dims ", sdk::to_string(positions.dims()), ", expected [",
                   sizes.shape.batch, ", ", sizes.shape.queries, "]");
    sizes.position_step = is_shared ? 0 : sizes.shape.queries;
  }

  /// Its last axis may be as long as the room.
  static void plan_bias(const sdk::PrepareContext& ctx, const AttentionShape& shape,
                        AttentionArgs& args) {
    const sdk::Tensor bias = ctx.input(kBias);
    if (!bias.present()) return;
    if (bias.rank() != 4 || bias.dim(3) < shape.keys)
      sdk::invalid("attention_bias has dims ", sdk::to_string(bias.dims()),
                   ", expected [batch or 1, heads or 1, ", shape.queries, ", ", shape.keys, "]");
    AttentionShape room = shape;
    room.keys = bias.dim(3);
    plan_mask(bias, to_dims(bias.dims()), room, false, args);
  }

  static sdk::Dims to_dims(const sdk::DimsView& dims) { return {dims.begin(), dims.end()}; }

  Isa isa_;
  sdk::DataType cache_type_;
  std::int64_t heads_, kv_heads_;
  float scale_, softcap_;
  std::int64_t window_;
  bool is_causal_, turns_, is_interleaved_, is_smooth_, is_sliding_;
  float epsilon_;
};

}  // namespace

sdk::KernelList group_query_attention_kernels() {
  using sdk::DataType;
  return {sdk::op("GroupQueryAttention", "com.microsoft")
              .name("cpu:group_query_attention")
              .types("T", {DataType::Float})
              .types("TC", {DataType::Float})
              .roles({BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA,
                      BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA})
              .flags(BP_KERNEL_WIDENS_HALF)
              .kernel<GroupQueryAttention>(),
          sdk::op("GroupQueryAttention", "backplane.cpu")
              .name("cpu:group_query_attention_halves")
              .roles({BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA, BP_INPUT_DATA,
                      BP_INPUT_DATA, BP_INPUT_HOST_VALUE, BP_INPUT_DATA})
              .kernel<GroupQueryAttention>()};
}

}  // namespace backplane::cpu

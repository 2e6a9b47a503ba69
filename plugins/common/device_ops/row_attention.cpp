#include "plugins/common/device_ops/row_attention.hpp"

#include <algorithm>
#include <bit>

#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/kernels/attention.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// How groups share an attention: see kAttentionGroup.
struct GroupForm {
  std::int64_t items = 1, lanes = 1, rows = 1, together = 1;
  std::int64_t width = 1;  ///< elements that are read at once
  std::int64_t steps = 1, value_steps = 1;
  std::int64_t tiles = 1, parts = 1;
};

/// Elements of the 16 bytes that are read at once.
std::int64_t wide_elements(DataType type) {
  constexpr std::int64_t kWideBytes = 16;
  return kWideBytes / sdk::element_bytes(type);
}

/// Whether rows of all operands begin at so many elements, where the first does.
bool are_multiples(const RowAttention& attention, std::int64_t elements) {
  bool all = attention.width % elements == 0 && attention.value_width % elements == 0;
  for (const RowsAt* rows : {&attention.q, &attention.k, &attention.v}) {
    const RowSteps& steps = rows->steps;
    for (const std::int64_t step : {steps.batch, steps.head, steps.position})
      all = all && step % elements == 0;
  }
  return all;
}

/// The most keys that rows of a tile read.
std::int64_t span_of(const RowAttention& attention, std::int64_t tile_rows) {
  if (!attention.before || !attention.after) return attention.keys;
  const std::int64_t queries =
      std::min(attention.queries, (tile_rows - 1) / attention.group_heads + 2);
  return std::min(attention.keys, *attention.before + *attention.after + queries);
}

GroupForm form_of(const Device& device, const RowAttention& attention) {
  constexpr std::int64_t kGroupItems = 128, kMostLanes = 32;
  // What an item keeps in registers: of a row of keys, of all rows, scores, and words of pieces that are read together.
  constexpr std::int64_t kElementsOfRow = 8, kElementsOfRows = 64, kMostRows = 8, kMostScores = 8;
  constexpr std::int64_t kLeastTogether = 2, kMostTogether = 4, kMostWords = 32, kWideWords = 4;
  // As many as a large GPU runs at once. More on a smaller one cost little.
  constexpr std::int64_t kManyGroups = 512;
  GroupForm form;
  const std::int64_t least = std::min(attention.width, attention.value_width);
  const std::int64_t most = std::max(attention.width, attention.value_width);
  const std::int64_t wide = wide_elements(attention.type);
  if (least > 0 && are_multiples(attention, wide)) form.width = wide;
  form.lanes =
      std::min(kMostLanes, power_from(ceil_divide(most, std::max(kElementsOfRow, form.width))));
  form.steps = ceil_divide(attention.width, form.lanes * form.width);
  form.value_steps = ceil_divide(attention.value_width, form.lanes * form.width);
  const std::int64_t elements = form.width * std::max(form.steps, form.value_steps);
  const auto room = static_cast<std::int64_t>(std::bit_floor(
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, kElementsOfRows / elements))));
  form.rows = std::min({kMostRows, room, power_from(attention.rows())});
  const std::int64_t words = (form.width > 1 ? kWideWords : 1) * (form.steps + form.value_steps);
  form.together = std::min(std::clamp(kMostScores / form.rows, kLeastTogether, kMostTogether),
                           std::max<std::int64_t>(1, kMostWords / words));
  // Sums of all lanes meet in local memory, of which every device has so many floats.
  constexpr std::int64_t kLocalFloats = 6144;
  const std::int64_t fitting = kLocalFloats / (form.width * form.value_steps);
  if (fitting < form.lanes)
    sdk::unsupported("attention to values of ", attention.value_width,
                     " elements, whose sums are more than a group's local memory has room for");
  const auto most_items = static_cast<std::int64_t>(device.limits().max_group_items);
  form.items = std::max(
      form.lanes, static_cast<std::int64_t>(std::bit_floor(
                      static_cast<std::uint64_t>(std::min({kGroupItems, most_items, fitting})))));
  form.tiles = ceil_divide(attention.rows(), form.rows);
  const std::int64_t at_once = form.items / form.lanes * form.together;
  const std::int64_t groups = form.tiles * attention.batch * attention.kv_heads;
  const std::int64_t keys = std::max<std::int64_t>(1, span_of(attention, form.rows));
  form.parts = std::clamp<std::int64_t>(kManyGroups / groups, 1, ceil_divide(keys, at_once));
  return form;
}

/// Heads as words of the program, by which it divides.
void add_heads(Walk& walk, const RowAttention& attention) {
  walk.define("KV_HEADS", std::max<std::int64_t>(1, attention.kv_heads));
  walk.define("GROUP_HEADS", attention.group_heads);
}

/// A row's sum over that of its weights.
const char* result_text(EmptyRow empty) {
  switch (empty) {
    case EmptyRow::kNan:
      return "((sum) / (whole))";
    case EmptyRow::kNumber:
      return "((whole) > 0.0f ? (sum) / (whole) : 0.0f)";
    case EmptyRow::kZero:
      break;
  }
  return "((whole) == 0.0f ? 0.0f : (sum) / (whole))";
}

/// Numbers that every kernel of attention has, and where results go.
void add_result(Walk& walk, const RowAttention& attention) {
  walk.out("y", attention.y.memory, attention.type);
  walk.number("result_batch", attention.y.steps.batch);
  walk.number("result_head", attention.y.steps.head);
  walk.number("result_row", attention.y.steps.position);
  walk.define("RESULT(sum, whole)", result_text(attention.empty));
}

void add_rows(Walk& walk, const char* name, const std::string& words, const RowsAt& rows,
              DataType type) {
  walk.in(name, rows.memory, type).number(words + "_batch", rows.steps.batch);
  walk.number(words + "_head", rows.steps.head).number(words + "_row", rows.steps.position);
}

/// What kernels that make scores read.
void add_operands(Walk& walk, const RowAttention& attention) {
  add_rows(walk, "q", "query", attention.q, attention.type);
  add_rows(walk, "k", "key", attention.k, attention.type);
  add_rows(walk, "v", "value", attention.v, attention.type);
  walk.number("before", attention.before.value_or(0)).number("after", attention.after.value_or(0));
  walk.number("most_keys", attention.most_keys.value_or(attention.keys));
  walk.real("scale", attention.scale).real("cap", attention.cap);
  walk.define("HAS_BEFORE", attention.before ? 1 : 0).define("HAS_AFTER", attention.after ? 1 : 0);
  walk.define("HAS_CAP", attention.cap != 0 ? 1 : 0);
  walk.define("HAS_MASK", attention.mask ? 1 : 0);
  if (!attention.mask) return;
  const RowMask& mask = *attention.mask;
  walk.in("mask", mask.memory, mask.type).number("mask_batch", mask.steps.batch);
  walk.number("mask_head", mask.steps.head).number("mask_row", mask.steps.position);
  walk.define("TM", type_code(mask.type));
  const bool is_added = mask.type != DataType::Bool;
  walk.define("ADDS_MASK", is_added ? 1 : 0);
  if (!is_added) walk.define("CHOSEN", mask.chosen ? 1 : 0).real("otherwise", mask.otherwise);
}

void add_groups(Work& work, const RowAttention& attention, const GroupForm& form, Walk walk) {
  add_operands(walk, attention);
  walk.number("parts", form.parts);
  walk.define("GROUP", form.items).define("LANES", form.lanes).define("ROWS", form.rows);
  walk.define("TOGETHER", form.together).define("V", form.width).define("STEPS", form.steps);
  walk.define("VALUE_STEPS", form.value_steps).define("WIDE_TYPE", type_code(attention.type));
  walk.define("EXP", "exp").define("IS_DIVIDED", form.parts > 1 ? 1 : 0);
  walk.functions += form.width > 1 ? common::kWideRows : common::kNarrowRows;
  walk.functions += common::kPieceWords;
  walk.functions += common::kScoreWords;
  walk.body = common::kAttentionGroup;
  walk.name("attention");
  walk.add_groups(work,
                  {static_cast<std::size_t>(form.tiles), static_cast<std::size_t>(form.parts),
                   static_cast<std::size_t>(attention.batch * attention.kv_heads)},
                  static_cast<std::size_t>(form.items));
}

/// Makes results of what parts have found.
void add_meeting(Work& work, const RowAttention& attention, std::int64_t parts,
                 const MemoryRef& found, std::int64_t facts_at) {
  constexpr std::int64_t kItems = 256, kColumns = 32, kTogether = 8;
  const auto most_items = static_cast<std::int64_t>(work.device().limits().max_group_items);
  const std::int64_t columns = std::min({kColumns, power_from(attention.value_width), most_items});
  const std::int64_t items = std::max(columns, std::min(kItems, most_items / columns * columns));
  Walk walk(Dims{1});
  walk.define("T", type_code(attention.type)).define("WV", attention.value_width);
  walk.define("EXP", "exp").define("HAS_CAP", 0).define("HAS_MASK", 0);
  walk.define("HAS_BEFORE", 0).define("HAS_AFTER", 0);
  walk.define("GROUP", items).define("COLUMNS", columns).define("TOGETHER", kTogether);
  add_heads(walk, attention);
  walk.in("found", found, DataType::Float).number("facts_at", facts_at).number("parts", parts);
  walk.number("queries", attention.queries);
  add_result(walk, attention);
  walk.functions = common::kScoreWords;
  walk.body = common::kMeetParts;
  walk.name("attention, parts met");
  walk.add_groups(work,
                  {static_cast<std::size_t>(ceil_divide(attention.value_width, columns)),
                   static_cast<std::size_t>(attention.rows()),
                   static_cast<std::size_t>(attention.batch * attention.kv_heads)},
                  static_cast<std::size_t>(items));
}

/// For items that have a core to themselves.
void add_tiles(Work& work, const RowAttention& attention) {
  constexpr std::int64_t kRows = 4, kKeys = 64, kManyItems = 64;
  const std::int64_t heads = attention.batch * attention.kv_heads;
  const std::int64_t rows = heads * attention.rows() < kRows * kManyItems ? 1 : kRows;
  Walk walk(Dims{heads, ceil_divide(attention.rows(), rows)});
  add_attention_words(walk, attention);
  add_operands(walk, attention);
  add_result(walk, attention);
  walk.define("ROWS", rows).define("KEYS", kKeys);
  walk.real_type(DataType::Float).define("EXP", "exp_of");
  walk.functions += common::kScalarFunctions;
  walk.functions += common::kScoreWords;
  walk.body = common::kAttentionTile;
  walk.name("attention");
  walk.add_to(work);
}

}  // namespace

HeadRows head_rows(DimsView dims, const std::string& axes, std::int64_t heads) {
  if (dims.size() == 3 && heads > 0 && dims[2] % heads == 0) {
    const std::int64_t width = dims[2] / heads;
    return {dims[0], heads, dims[1], width, RowSteps::by_position(heads, dims[1], width)};
  }
  if (dims.size() != 4)
    sdk::invalid("an operand of attention of dims ", sdk::to_string(dims), " in ", heads, " heads");
  if (axes == "bhs")
    return {dims[0], dims[1], dims[2], dims[3], RowSteps::by_head(dims[1], dims[2], dims[3])};
  return {dims[0], dims[2], dims[1], dims[3], RowSteps::by_position(dims[2], dims[1], dims[3])};
}

void add_attention_words(Walk& walk, const RowAttention& attention) {
  walk.define("T", type_code(attention.type)).define("W", attention.width);
  walk.define("WV", attention.value_width).define("HAS_LENGTHS", attention.lengths ? 1 : 0);
  walk.number("queries", attention.queries).number("keys", attention.keys);
  add_heads(walk, attention);
  walk.number("first_place", attention.first_place);
  if (attention.lengths) {
    walk.in("lengths", attention.lengths->memory, attention.lengths->type);
    walk.define("TL", type_code(attention.lengths->type)).define("LESS", attention.lengths->less);
  }
  const bool turns = attention.turn.has_value();
  walk.define("TURNS", turns ? 1 : 0);
  if (turns) {
    const RowTurn& turn = *attention.turn;
    walk.in("cosines", turn.cosines, attention.type).in("sines", turn.sines, attention.type);
    walk.number("half_turned", turn.half).number("angles", turn.angles);
    walk.define("IS_INTERLEAVED", turn.is_interleaved ? 1 : 0);
    walk.define("HAS_PLACES", turn.places ? 1 : 0);
    if (turn.places) {
      walk.in("places", *turn.places, DataType::Int64);
      walk.number("place_step", turn.place_step);
    }
  }
  walk.functions += common::kAttentionWords;
}

void add_caches(Work& work, const RowAttention& attention, const RowCaches& caches,
                const std::string& fault) {
  if (caches.each.empty()) return;
  RowAttention known = attention;
  if (!caches.each.front().is_turned) known.turn.reset();
  std::int64_t width = 0;
  bool is_wide = shares_rows(work.device());
  for (const RowCache& cache : caches.each) {
    width = std::max(width, cache.width);
    is_wide = is_wide && cache.width % wide_elements(attention.type) == 0;
  }
  const std::int64_t together = is_wide ? wide_elements(attention.type) : 1;
  const auto count = static_cast<std::int64_t>(caches.each.size());
  const std::int64_t query_rows =
      known.turn ? attention.batch * attention.kv_heads * attention.rows() : 0;
  Walk walk(Dims{count * attention.batch * attention.kv_heads +
                     ceil_divide(query_rows, std::max<std::int64_t>(1, caches.rows)),
                 caches.rows, ceil_divide(width, together)});
  add_attention_words(walk, known);
  if (known.turn) {
    add_rows(walk, "q", "query", attention.q, attention.type);
    walk.out("turned_queries", known.turn->queries, attention.type);
    walk.number("query_rows", query_rows);
  }
  walk.number("heads", attention.batch * attention.kv_heads).number("room", caches.room);
  walk.number("present_rows", caches.rows).number("fresh_rows", caches.fresh_rows);
  for (std::size_t i = 0; i < caches.each.size(); ++i) {
    const RowCache& cache = caches.each[i];
    const std::string of = std::to_string(i);
    walk.out("present" + of, cache.present.memory, attention.type);
    walk.in("fresh" + of, cache.fresh.memory, attention.type);
    walk.number("fresh_batch" + of, cache.fresh.steps.batch);
    walk.number("fresh_head" + of, cache.fresh.steps.head);
    walk.number("fresh_row" + of, cache.fresh.steps.position);
    const bool has_past = cache.past && caches.room > 0;
    // What is not there is not read.
    walk.in("past" + of, has_past ? *cache.past : cache.fresh.memory, attention.type);
    walk.define(("HAS_PAST" + of).c_str(), has_past ? 1 : 0);
    walk.define(("WIDTH" + of).c_str(), cache.width);
  }
  walk.define("CACHES", count).define("V", together).define("WIDE_TYPE", type_code(attention.type));
  walk.functions += is_wide ? common::kWideRows : common::kNarrowRows;
  if (attention.lengths || known.turn) walk.may_fault(fault);
  walk.in_bands();
  walk.body = common::kKeepRows;
  walk.name("attention, keys and values kept").add_to(work);
}

std::uint64_t add_row_attention(Work& work, const RowAttention& attention,
                                std::uint64_t workspace_at) {
  if (!shares_rows(work.device())) {
    add_tiles(work, attention);
    return 0;
  }
  const GroupForm form = form_of(work.device(), attention);
  const std::int64_t heads = attention.batch * attention.kv_heads;
  const MemoryRef found = workspace(workspace_at);
  Walk walk(Dims{1});
  add_attention_words(walk, attention);
  if (form.parts == 1) {
    add_result(walk, attention);
    add_groups(work, attention, form, std::move(walk));
    return 0;
  }
  const std::int64_t facts_at = heads * attention.rows() * form.parts * attention.value_width;
  walk.out("found", found, DataType::Float).number("facts_at", facts_at);
  add_groups(work, attention, form, std::move(walk));
  add_meeting(work, attention, form.parts, found, facts_at);
  constexpr std::int64_t kFacts = 2;
  const std::int64_t floats = facts_at + heads * attention.rows() * form.parts * kFacts;
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

}  // namespace backplane::device_ops

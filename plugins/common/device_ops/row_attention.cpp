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
  std::int64_t tiles = 1, parts = 1, part_keys = 1;
};

/// Elements of the 16 bytes that are read at once.
std::int64_t wide_elements(DataType type) {
  constexpr std::int64_t kWideBytes = 16;
  return kWideBytes / sdk::element_bytes(type);
}

GroupForm form_of(const Device& device, const RowAttention& attention) {
  constexpr std::int64_t kGroupItems = 128, kMostLanes = 32;
  // What an item keeps in registers: of a row of keys, of all rows, and scores.
  constexpr std::int64_t kElementsOfRow = 8, kElementsOfRows = 64, kMostRows = 8, kMostScores = 16;
  constexpr std::int64_t kMostTogether = 4, kManyGroups = 512;
  GroupForm form;
  const std::int64_t least = std::min(attention.width, attention.value_width);
  const std::int64_t most = std::max(attention.width, attention.value_width);
  const std::int64_t wide = wide_elements(attention.type);
  if (attention.width % wide == 0 && attention.value_width % wide == 0 && least > 0)
    form.width = wide;
  form.lanes =
      std::min(kMostLanes, power_from(ceil_divide(most, std::max(kElementsOfRow, form.width))));
  form.steps = ceil_divide(attention.width, form.lanes * form.width);
  form.value_steps = ceil_divide(attention.value_width, form.lanes * form.width);
  const std::int64_t elements = form.width * std::max(form.steps, form.value_steps);
  const auto room = static_cast<std::int64_t>(std::bit_floor(
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, kElementsOfRows / elements))));
  form.rows = std::min({kMostRows, room, power_from(attention.rows())});
  form.together = std::min(kMostTogether, kMostScores / form.rows);
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
  const std::int64_t keys = std::max<std::int64_t>(1, attention.keys);
  const std::int64_t parts =
      std::clamp<std::int64_t>(kManyGroups / groups, 1, ceil_divide(keys, at_once));
  form.part_keys = ceil_divide(ceil_divide(keys, parts), at_once) * at_once;
  form.parts = ceil_divide(keys, form.part_keys);
  return form;
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
  walk.number("part_keys", form.part_keys).number("parts", form.parts);
  walk.define("GROUP", form.items).define("LANES", form.lanes).define("ROWS", form.rows);
  walk.define("TOGETHER", form.together).define("V", form.width).define("STEPS", form.steps);
  walk.define("VALUE_STEPS", form.value_steps).define("WIDE_TYPE", type_code(attention.type));
  walk.define("EXP", "exp").define("IS_DIVIDED", form.parts > 1 ? 1 : 0);
  walk.functions += form.width > 1 ? common::kWideRows : common::kNarrowRows;
  walk.functions += common::kScoreWords;
  walk.body = common::kAttentionGroup;
  walk.name("attention");
  walk.add_groups(work,
                  {static_cast<std::size_t>(form.tiles), static_cast<std::size_t>(form.parts),
                   static_cast<std::size_t>(attention.batch * attention.kv_heads)},
                  static_cast<std::size_t>(form.items));
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
  walk.number("kv_heads", attention.kv_heads).number("group_heads", attention.group_heads);
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
  Walk walk(Dims{count * attention.batch * attention.kv_heads, caches.rows,
                 ceil_divide(width, together)});
  add_attention_words(walk, known);
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

void add_turned(Work& work, const RowAttention& attention, const MemoryRef& to) {
  const std::int64_t heads = attention.kv_heads * attention.group_heads;
  Walk walk(Dims{attention.batch * heads, attention.queries, attention.width});
  add_attention_words(walk, attention);
  add_rows(walk, "q", "query", attention.q, attention.type);
  walk.out("y", to, attention.type);
  walk.in_bands();
  walk.body = common::kTurnRows;
  walk.name("attention, queries turned").add_to(work);
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
  walk.out("found", found, DataType::Float);
  add_groups(work, attention, form, std::move(walk));
  Walk meet(Dims{heads, attention.rows(), attention.value_width});
  meet.define("T", type_code(attention.type)).define("WV", attention.value_width);
  meet.define("EXP", "exp").define("HAS_CAP", 0).define("HAS_MASK", 0);
  meet.define("HAS_BEFORE", 0).define("HAS_AFTER", 0);
  meet.in("found", found, DataType::Float).number("parts", form.parts);
  meet.number("queries", attention.queries).number("kv_heads", attention.kv_heads);
  meet.number("group_heads", attention.group_heads);
  add_result(meet, attention);
  meet.functions = common::kScoreWords;
  meet.body = common::kMeetParts;
  meet.name("attention, parts met").add_to(work);
  const std::int64_t floats = heads * attention.rows() * form.parts * (attention.value_width + 2);
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

}  // namespace backplane::device_ops

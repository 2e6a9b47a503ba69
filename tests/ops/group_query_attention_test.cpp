// com.microsoft::GroupQueryAttention: caches longer than what is used of them, sequences of several lengths, rotations.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/ops/cases.hpp"
#include "tests/ops/runner.hpp"
#include "tests/reference/reference.hpp"

namespace backplane::ops_test {
namespace {

/// Sizes of a case, and how much of the past each sequence uses.
struct Sizes {
  ElementType type;
  std::int64_t batch, kv_heads, group, width, queries, room;
  std::vector<std::int64_t> used;
  std::int64_t total;
  std::int64_t window = 0;  // of a cache that slides

  /// How many of so many positions a cache has: a sliding one has room for the last.
  std::int64_t kept(std::int64_t positions) const {
    while (window > 0 && positions > room) positions -= room - window + 1;
    return positions;
  }
};

Sizes any_sizes(Random& random, bool has_past) {
  Sizes s{};
  s.type = random.pick({ElementType::Float, ElementType::Float, ElementType::Float,
                        ElementType::Float16, ElementType::BFloat16});
  s.batch = random.integer(1, 3);
  s.kv_heads = random.integer(1, 3);
  s.group = random.integer(1, 3);
  s.width = random.pick<std::int64_t>({4, 6, 10, 16, 40, 64, 96});
  s.queries = random.pick<std::int64_t>({1, 1, 1, 2, 5, 17});
  s.used.assign(static_cast<std::size_t>(s.batch), 0);
  if (has_past && !random.one_in(4)) {
    const std::int64_t most = random.pick<std::int64_t>({1, 3, 8, 30, 260});
    for (std::int64_t& used : s.used) used = random.one_in(2) ? most : random.integer(0, most);
    s.used[0] = most;
  }
  const std::int64_t longest = *std::max_element(s.used.begin(), s.used.end());
  s.total = longest + s.queries;
  if (has_past) s.room = longest + (random.one_in(2) ? 0 : random.integer(1, 40));
  return s;
}

/// The past. Where a sequence ends before a present that is longer than the room, the room's last row is 0: what the
/// present has beyond both is not said. What a sliding cache has behind its positions is 0, too.
Tensor past_of(Random& random, const Sizes& s) {
  Tensor past = random.tensor(s.type, {s.batch, s.kv_heads, s.room, s.width}, -1, 1);
  if (s.window == 0 && (s.room >= s.total || s.room == 0)) return past;
  Array values = to_array(past);
  reference::for_each_index(values.dims, [&](const Dims& at) {
    const bool is_last = at[2] == s.room - 1 || s.window > 0;
    if (is_last && s.kept(s.used[at[0]]) <= at[2])
      values.values[reference::offset_of(values.dims, at)] = 0;
  });
  return to_tensor(values);
}

/// Angles for more positions than there are, of as many columns as are turned.
void add_rotation(Random& random, const Sizes& s, OpCase& row) {
  const std::int64_t half = random.one_in(3) ? std::max<std::int64_t>(1, s.width / 4) : s.width / 2;
  row.node.attributes.emplace_back("do_rotary", 1);
  row.node.attributes.emplace_back("rotary_interleaved", random.integer(0, 1));
  const std::int64_t most = s.total + random.integer(0, 5);
  row.inputs.push_back(constant(random.tensor(s.type, {most, half}, -1, 1)));
  row.inputs.push_back(constant(random.tensor(s.type, {most, half}, -1, 1)));
  if (random.one_in(3))
    row.inputs.push_back(random.indices({random.one_in(2) ? 1 : s.batch, s.queries}, 0, most - 1));
}

/// The operator: new rows packed or apart.
OpCase group_query(Random& random, const Sizes& s, bool has_past) {
  const bool is_packed = random.one_in(2);
  OpCase row{.node = {.op_type = "GroupQueryAttention", .domain = "com.microsoft", .opset = 1}};
  const auto rows = [&](std::int64_t heads) {
    return random.tensor(s.type, {s.batch, s.queries, heads * s.width}, -1, 1);
  };
  const std::int64_t heads = s.kv_heads * s.group;
  if (is_packed) {
    row.inputs = {rows(heads + 2 * s.kv_heads), absent(), absent()};
  } else {
    row.inputs = {rows(heads), rows(s.kv_heads), rows(s.kv_heads)};
  }
  for (int i = 0; i < 2; ++i) row.inputs.push_back(has_past ? Input(past_of(random, s)) : absent());
  std::vector<double> lengths;
  // Prompts that are padded on the right: their lengths say nothing of what is computed.
  const bool is_prompt = s.total == s.queries;
  for (const std::int64_t used : s.used)
    lengths.push_back(
        static_cast<double>(is_prompt ? random.integer(0, s.queries - 1) : used + s.queries - 1));
  row.inputs.push_back(i32({s.batch}, lengths));
  row.inputs.push_back(i32({}, {static_cast<double>(s.total)}));
  auto& attributes = row.node.attributes;
  attributes = {{"num_heads", heads}, {"kv_num_heads", s.kv_heads}};
  if (random.one_in(3)) attributes.emplace_back("softcap", 1.5f);
  if (random.one_in(3)) attributes.emplace_back("scale", random.one_in(4) ? 0.0f : 0.3f);
  if (random.one_in(3)) attributes.emplace_back("local_window_size", random.integer(1, 20));
  if (random.one_in(5)) attributes.emplace_back("causal", 0);
  if (!random.one_in(3)) add_rotation(random, s, row);
  if (random.one_in(5)) {
    row.inputs.resize(10);
    row.inputs.push_back(random.tensor(s.type, {random.one_in(2) ? 1 : s.batch,
                                                random.one_in(2) ? 1 : heads, s.queries, s.total}));
  }
  row.output_count = random.one_in(4) ? 1 : 3;
  row.tolerance = {64, 64};
  // On the CPU without widening the operator's body computes them, for known dims.
  row.may_be_refused = s.type != ElementType::Float;
  // Keys are rounded when they are kept.
  if (s.type == ElementType::Float16) row.tolerance.absolute = 0x1p-10 / 0x1p-23;
  if (s.type == ElementType::BFloat16) row.tolerance.absolute = 0x1p-7 / 0x1p-23;
  return row;
}

/// A sink, given or of 0, or heads of queries and keys that are normalized.
void add_sinks_and_norms(Random& random, const Sizes& s, OpCase& row) {
  const std::int64_t kind = random.integer(0, 3);
  if (kind == 0) row.node.attributes.emplace_back("smooth_softmax", 1);
  if (kind == 1 || kind == 3) {
    row.inputs.resize(std::max<std::size_t>(11, row.inputs.size()), absent());
    row.inputs.push_back(random.tensor(s.type, {s.kv_heads * s.group}, -3, 3));
  }
  if (kind < 2) return;
  row.inputs.resize(14, absent());
  for (int i = 0; i < 2; ++i) row.inputs.push_back(random.tensor(s.type, {s.width}, 0.5, 1.5));
  if (random.one_in(2)) row.node.attributes.emplace_back("qk_norm_epsilon", 0.01f);
  row.tolerance.absolute *= 4;  // rows of small numbers become larger ones, with their errors
}

OpCase sinks_and_norms(Random& random) {
  const bool has_past = !random.one_in(3);
  const Sizes s = any_sizes(random, has_past);
  OpCase row = group_query(random, s, has_past);
  add_sinks_and_norms(random, s, row);
  return row;
}
const Sweep kSinksAndNorms("GroupQueryAttention", "SinksAndNorms", 40, sinks_and_norms);

/// A cache that has room for the window and some more: it is filling up, or full, and one row is new or more than it can keep.
OpCase sliding_cache(Random& random) {
  Sizes s = any_sizes(random, false);
  s.window = random.pick<std::int64_t>({1, 2, 5, 16, 270});
  s.room = s.window + random.pick<std::int64_t>({0, 0, 1, 7});
  if (!random.one_in(4))
    for (std::int64_t& used : s.used) used = random.integer(0, 3 * s.room);
  s.total = *std::max_element(s.used.begin(), s.used.end()) + s.queries;
  OpCase row = group_query(random, s, true);
  if (row.inputs.size() > 10) row.inputs.resize(10);  // a bias by position is not taken
  auto& attributes = row.node.attributes;
  std::erase_if(attributes, [](const auto& attribute) {
    return attribute.name == "local_window_size" || attribute.name == "causal";
  });
  attributes.emplace_back("local_window_size", s.window);
  attributes.emplace_back("sliding_window_cache", 1);
  if (random.one_in(2)) add_sinks_and_norms(random, s, row);
  // What the present has behind its positions is not said where some of the past's went.
  for (const std::int64_t used : s.used) {
    const std::int64_t after = s.kept(used + s.queries);
    if (after < s.room && after < s.kept(used)) row.output_count = 1;
  }
  return row;
}
const Sweep kSliding("GroupQueryAttention", "SlidingCache", 40, sliding_cache);

/// With a past or without.
OpCase any_group_query(Random& random) {
  const bool has_past = !random.one_in(3);
  const Sizes s = any_sizes(random, has_past);
  return group_query(random, s, has_past);
}
const Sweep kAny("GroupQueryAttention", "AnyForm", 80, any_group_query);

/// Keys that are divided into parts, by how many a sequence has: others are shorter or have one, so that parts have nothing, and
/// windows are as long as some parts together.
OpCase long_caches(Random& random) {
  Sizes s = any_sizes(random, false);
  s.batch = random.integer(1, 2);
  s.group = random.pick<std::int64_t>({1, 3, 4, 8});
  s.width = random.pick<std::int64_t>({6, 16, 64});
  s.queries = random.pick<std::int64_t>({1, 1, 2, 4});
  const std::int64_t longest = random.pick<std::int64_t>({127, 128, 129, 515, 700});
  s.used.assign(static_cast<std::size_t>(s.batch), longest);
  s.used.back() = random.pick<std::int64_t>({0, 1, longest / 3, longest});
  s.used.front() = longest;
  s.total = longest + s.queries;
  s.room = longest + (random.one_in(2) ? 0 : s.queries);
  OpCase row = group_query(random, s, true);
  if (random.one_in(2)) {
    auto& attributes = row.node.attributes;
    std::erase_if(attributes,
                  [](const auto& attribute) { return attribute.name == "local_window_size"; });
    attributes.emplace_back("local_window_size", random.pick<std::int64_t>({1, 40, 64, 300}));
  }
  return row;
}
const Sweep kLong("GroupQueryAttention", "LongCachesInAnyForm", 24, long_caches);

/// Many new rows, which are all there are: some providers compute these by products.
OpCase prompt(Random& random) {
  const bool has_past = random.one_in(2);
  Sizes s = any_sizes(random, false);
  s.queries = s.total = random.integer(64, 90);
  if (has_past) s.room = random.one_in(2) ? 0 : random.integer(1, 100);
  return group_query(random, s, has_past);
}
const Sweep kPrompt("GroupQueryAttention", "Prompt", 20, prompt);

/// No sequences, or none of their positions.
OpCase empty(Random& random) {
  const std::int64_t batch = random.integer(0, 1), queries = batch == 0 ? 3 : 0;
  OpCase row{.node = {.op_type = "GroupQueryAttention", .domain = "com.microsoft", .opset = 1}};
  row.node.attributes = {{"num_heads", 2}, {"kv_num_heads", 1}};
  for (const std::int64_t heads : {2, 1, 1})
    row.inputs.push_back(random.tensor(ElementType::Float, {batch, queries, heads * 8}));
  row.inputs.insert(row.inputs.end(), {absent(), absent()});
  row.inputs.push_back(i32({batch}, std::vector<double>(static_cast<std::size_t>(batch), 0)));
  row.inputs.push_back(i32({}, {static_cast<double>(queries)}));
  row.output_count = 3;
  return row;
}
const Sweep kEmpty("GroupQueryAttention", "NothingNew", 4, empty);

std::vector<std::string> kernels_of(const OpCase& row) {
  const Session session(model_of(to_graph(row), Form::Fixed), {{"providers", "cpu"}});
  const auto explained = nlohmann::json::parse(session.explain());
  std::vector<std::string> kernels;
  for (const auto& node : explained["nodes"]) kernels.push_back(node["kernel"]);
  return kernels;
}

TEST(GroupQueryAttention, SinksNormsAndSlidingCachesHaveAKernel) {
  Random random(1);
  for (const ElementType type : {ElementType::Float, ElementType::Float16, ElementType::BFloat16}) {
    const std::string kernel = type == ElementType::Float ? "cpu:group_query_attention"
                                                          : "cpu:group_query_attention_halves";
    for (const bool is_sliding : {false, true}) {
      for (int i = 0; i < 20; ++i) {
        OpCase row = sinks_and_norms(random);
        if (is_sliding) row = sliding_cache(random);
        if (row.inputs[0].tensor.type != type) continue;
        if (row.output_count == 1 && row.inputs[3].is_absent && type != ElementType::Float)
          continue;
        EXPECT_THAT(kernels_of(row), ::testing::Contains(kernel)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace backplane::ops_test

// Attention whose scores are never in memory (kernels/attention.hpp): of few rows, as of language models that decode, at the speed
// at which keys and values are read.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/device_ops/walk.hpp"

namespace backplane::device_ops {

/// Where rows of heads lie: steps of the batch, the heads and the positions, in elements; a row's elements lie together.
struct RowSteps {
  std::int64_t batch = 0, head = 0, position = 0;

  /// Of [batch, heads, positions, width].
  static RowSteps by_head(std::int64_t heads, std::int64_t positions, std::int64_t width) {
    return {heads * positions * width, positions * width, width};
  }
  /// Of [batch, positions, heads, width].
  static RowSteps by_position(std::int64_t heads, std::int64_t positions, std::int64_t width) {
    return {heads * positions * width, width, heads * width};
  }
};

/// Rows of heads, and where they lie.
struct HeadRows {
  std::int64_t batch = 0, heads = 0, positions = 0, width = 0;
  RowSteps steps;
};
/// What dims make. `axes`: "bhs" or "bsh", in which order batch, heads and positions stand in four; of three,
/// [batch, positions, heads * width], the heads are given. Errors: BP_INVALID_ARGUMENT for other ranks, or a width that does not
/// divide.
HeadRows head_rows(DimsView dims, const std::string& axes, std::int64_t heads);

/// Operands of a kernel: some rows of heads.
struct RowsAt {
  MemoryRef memory;
  RowSteps steps;
};

/// Pairs of the first 2 * `half` columns of queries and keys are turned by the angles of a row's position.
struct RowTurn {
  MemoryRef cosines, sines;  ///< [angles, half], of the rows' type
  std::int64_t half = 0, angles = 0;
  bool is_interleaved = false;  ///< pairs are neighbours; else one half of the columns apart
  std::optional<MemoryRef>
      places;  ///< int64, of the queries: [batch or 1, queries]; none: the keys' own
  std::int64_t place_step = 0;  ///< from one sequence to the next
  MemoryRef queries;            ///< [batch, heads, queries, width]: where turned ones go
};

/// What is added to scores, or, of bools, chooses some: those whose element is `chosen` stay.
struct RowMask {
  MemoryRef memory;
  DataType type = DataType::Float;
  RowSteps steps;  ///< `head` of heads of queries, `position` of queries
  bool chosen = true;
  double otherwise = -std::numeric_limits<double>::infinity();  ///< what others become
};

/// How many keys of a sequence count, the queries' own last.
struct RowLengths {
  MemoryRef memory;  ///< [batch]
  DataType type = DataType::Int32;
  std::int64_t less = 0;  ///< what each element is less than the length
};

/// What becomes of a row whose weights are no numbers.
enum class EmptyRow : std::uint8_t {
  kZero,    ///< 0, where no key counts
  kNan,     ///< NaN, as Softmax makes it
  kNumber,  ///< 0, whatever the reason
};

/// y[b][h][i] = sum over j of softmax(scale * q[b][h][i] . k[b][g][j]) v[b][g][j], where g is the head of keys that h's group reads.
struct RowAttention {
  DataType type = DataType::Float;  ///< Float, Float16 or BFloat16: of all operands; sums are float
  std::int64_t batch = 0, kv_heads = 0;
  std::int64_t group_heads = 1;  ///< heads of queries that read one of keys
  std::int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  std::int64_t first_place = 0;  ///< of the first query among the keys, where there are no lengths
  std::optional<std::int64_t> most_keys;  ///< those after them do not count
  RowsAt q, k, v, y;
  std::optional<RowLengths> lengths;
  std::optional<RowTurn> turn;  ///< by add_caches(); what is added after it knows of none
  std::optional<RowMask> mask;
  /// How many keys before and after its own place a query reads; none: all.
  std::optional<std::int64_t> before, after;
  double scale = 1;
  double cap = 0;  ///< scores become cap * tanh(score / cap), unless 0
  EmptyRow empty = EmptyRow::kZero;

  std::int64_t rows() const { return queries * group_heads; }
  bool has_result() const { return batch * kv_heads * rows() * value_width > 0; }
};

/// Has the walk's body know a sequence's length and the angles of positions: kAttentionWords.
void add_attention_words(Walk& walk, const RowAttention& attention);

/// Keys or values: those of before, and new ones behind them.
struct RowCache {
  RowsAt fresh, present;          ///< `present` is [batch, heads, rows, width]
  std::optional<MemoryRef> past;  ///< [batch, heads, room, width]
  std::int64_t width = 0;
  bool is_turned =
      false;  ///< new rows are, by the attention's turn, and its queries: of the first cache alone
};

/// What a node keeps: keys, values, or both.
struct RowCaches {
  std::vector<RowCache> each;
  std::int64_t fresh_rows = 0, room = 0, rows = 0;  ///< of the new ones, the past, the present
};

/// Puts past and new rows side by side in the present. The new ones begin behind what a sequence uses of the past; where past and
/// present are one memory, they alone are written.
/// A run fails, saying `fault`, where lengths do not fit, or a place has no angles.
void add_caches(Work& work, const RowAttention& attention, const RowCaches& caches,
                const std::string& fault);

/// The result has elements. Returns the bytes of workspace that it takes from `workspace_at` on.
std::uint64_t add_row_attention(Work& work, const RowAttention& attention,
                                std::uint64_t workspace_at);

}  // namespace backplane::device_ops

// fp32 attention: softmax(Q K' scale + mask) V, a block of keys at a time, so that no matrix of scores is ever whole.
// Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention" (2022).
#pragma once

#include <cmath>
#include <cstdint>

#include "backplane/plugin.hpp"
#include "plugins/cpu/dense/attention_rows.hpp"
#include "plugins/cpu/dense/panels.hpp"
#include "plugins/cpu/dense/row_product.hpp"
#include "plugins/cpu/dense/tile_f32.hpp"
#include "plugins/cpu/kernels/half_f32.hpp"

namespace backplane::cpu {

/// Where element (batch, head, position, i) of queries, keys, values or results lies: i at steps of one.
struct HeadSteps {
  std::int64_t batch = 0, head = 0, position = 0;
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t p) const {
    return b * batch + h * head + p * position;
  }
};

/// Which keys a query may look at, by their numbers.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

inline constexpr std::int64_t kNoWindow = -1;

/// Everything about an attention but its memory.
struct AttentionShape {
  std::int64_t batch = 0, kv_heads = 0;
  std::int64_t group = 1;  // heads of queries that share one of keys: head h reads h / group
  std::int64_t queries = 0, keys = 0;
  std::int64_t width = 0, value_width = 0;  // of a head
  float scale = 1;
  float softcap = 0;  // 0: none
  bool causal = false;
  std::int64_t left_window = kNoWindow, right_window = kNoWindow;
  bool nan_where_empty = false;  // results of queries whose keys are all masked; otherwise 0
  sdk::DataType cache_type = sdk::DataType::Float;  // of keys and values, or one of 16 bits
};

/// The memory of one attention; nothing is owned.
struct AttentionArgs {
  enum class Mask { None, Added, Chosen };
  const float* q = nullptr;
  const void* k = nullptr;  // of the shape's cache_type, as v
  const void* v = nullptr;
  float* y = nullptr;
  HeadSteps q_steps, k_steps, v_steps, y_steps;
  Mask mask_kind = Mask::None;
  const void* mask =
      nullptr;  // floats that are added, or bools that choose; element (b, h, query, key)
  HeadSteps mask_steps;
  bool chosen = true;            // bools: scores whose element is this stay,
  float otherwise = -HUGE_VALF;  // others become this
  bool mask_spreads = false;     // one element for all keys
  std::int64_t mask_keys = 0;    // keys from here on are masked; otherwise all
  std::int64_t offset = 0;       // the number of the first query among the keys
  const std::int64_t* lengths =
      nullptr;  // by the batch: keys that count, the last ones the queries' own; or null
  const float* sinks =
      nullptr;  // by the head of queries: a score more, which has no value; or null
};

/// An attention made ready. Immutable; may run from several threads with different scratch memory.
class AttentionF32 {
 public:
  AttentionF32(const AttentionShape& shape, Isa isa, unsigned threads);

  const AttentionShape& shape() const { return shape_; }
  /// Bytes of scratch memory that a run needs, 64-byte aligned.
  std::uint64_t scratch_bytes() const { return parts_.end * threads_; }
  /// before(b, h) is called once before keys and values of that head are read, by any thread.
  template <class Before>
  void run(const AttentionArgs& args, const sdk::Threads& threads, void* scratch,
           const Before& before) const {
    const std::int64_t heads = shape_.batch * shape_.kv_heads;
    const auto prepare = [&](std::int64_t head, std::uint32_t) {
      before(head / shape_.kv_heads, head % shape_.kv_heads);
    };
    if (row_blocks_ > 1) each(heads, threads, prepare);
    each(heads * row_blocks_, threads, [&](std::int64_t item, std::uint32_t worker) {
      if (row_blocks_ == 1) prepare(item, worker);
      run_block(args, item / row_blocks_, item % row_blocks_,
                static_cast<char*>(scratch) + worker * parts_.end);
    });
  }

 private:
  /// Rows of queries that one thread works through: row r is query r / group of the head's query head r % group, so
  /// that neighbours look at nearly the same keys. Or a strip of them, whose scores are in memory together.
  struct Block {
    std::int64_t batch, kv_head, row, rows;
    std::int64_t length, offset;  // keys that count; the number of query 0 among them
    const float** table;
    float *keys, *values, *scores, *sums, *totals, *greatest, *spread, *widened;
  };
  /// Where a worker's memory has the parts of its block, in bytes.
  struct Parts {
    std::uint64_t table, keys, values, scores, sums, totals, greatest, spread, widened, end;
  };

  /// body(item, worker) for each of `count` items, on several threads where the whole is worth it.
  template <class Body>
  void each(std::int64_t count, const sdk::Threads& threads, const Body& body) const {
    const auto items = [&](std::uint64_t begin, std::uint64_t end, std::uint32_t worker) {
      for (auto i = begin; i < end; ++i) body(static_cast<std::int64_t>(i), worker);
    };
    if (is_small_) {
      items(0, static_cast<std::uint64_t>(count), 0);
    } else {
      threads.parallel_for(static_cast<std::uint64_t>(count), 1, items);
    }
  }

  void lay_out();
  void run_block(const AttentionArgs& args, std::int64_t head, std::int64_t index,
                 char* scratch) const;
  Block open_block(const AttentionArgs& args, std::int64_t head, std::int64_t index,
                   char* scratch) const;
  KeyRange keys_of(const Block& block, std::int64_t row) const;
  /// Keys or values of a block as the products read them: packed, or with the step between two of them.
  struct CacheRows {
    const void* data;
    std::int64_t step;
    std::int64_t count;
  };
  CacheRows read(const void* cache, const HeadSteps& steps, std::int64_t width, const Block& block,
                 KeyRange keys) const;
  void run_keys(const AttentionArgs& args, const Block& block, KeyRange keys) const;
  Block strip_of(const Block& block, std::int64_t index) const;
  CacheRows pack_keys(const AttentionArgs& args, const Block& block, KeyRange keys) const;
  CacheRows pack_values(const AttentionArgs& args, const Block& block, KeyRange keys) const;
  void score(const AttentionArgs& args, const Block& strip, const CacheRows& rows,
             std::int64_t count) const;
  void weigh_row(const AttentionArgs& args, const Block& block, KeyRange keys,
                 std::int64_t row) const;
  void mask_row(const AttentionArgs& args, const Block& block, KeyRange keys, std::int64_t row,
                float* x) const;
  void add_values(const Block& strip, const CacheRows& rows, std::int64_t count) const;
  void start(const AttentionArgs& args, const Block& block) const;
  void finish(const AttentionArgs& args, const Block& block) const;
  /// A product of the rows in the strip's table with a packed matrix of `packed_depth`.
  struct StripProduct {
    const float* packed;
    std::int64_t packed_depth, depth, columns;
    float* out;
    std::int64_t step;
    bool first;
  };
  void multiply(const Panels& panels, const Block& strip, const StripProduct& product) const;

  AttentionShape shape_;
  const TileKernels* tiles_;
  const AttentionRows* loops_;
  const RowProductKernels* few_rows_ = nullptr;  // read keys and values where they lie
  const HalfConversion* widening_ = nullptr;     // of 16 bits that the products do not read
  Panels value_panels_;
  std::int64_t key_step_;    // floats of a row of scores
  std::int64_t value_step_;  // floats of a row of sums
  std::int64_t row_blocks_ = 1;
  std::int64_t most_rows_ = 1;   // of a block
  std::int64_t strip_rows_ = 1;  // of a strip
  bool is_small_;                // waking threads would take longer
  unsigned threads_;
  Parts parts_{};
};

}  // namespace backplane::cpu

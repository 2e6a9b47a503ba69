#include "plugins/common/device_ops/attention_scores.hpp"

#include <algorithm>

#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/common/device_ops/row_form.hpp"
#include "plugins/common/kernels/reductions.hpp"
#include "plugins/common/kernels/rows.hpp"
#include "plugins/common/kernels/scalar_functions.hpp"

namespace backplane::device_ops {
namespace {

/// What becomes of a score `s` of column `at`, beside the mask's element `m`.
constexpr char kScoreWords[] = R"kernel(
#if HAS_CAP
#define CAPPED(s) (cap * tanh((s) / cap))
#else
#define CAPPED(s) (s)
#endif
#if !HAS_MASK
#define MASKED(s, m) (s)
#elif IS_OF_BOOLS
#define MASKED(s, m) (((m) != 0) == CHOSEN ? (s) : otherwise)
#else
#define MASKED(s, m) ((s) + (m))
#endif
#if HAS_WINDOW
#define KEPT(s, at) ((at) < begin || (at) > end ? (REAL)(-INFINITY) : (s))
#else
#define KEPT(s, at) (s)
#endif
#if HAS_MASK
#define MASK_AT(at) LOAD(TM, mask, IS_ALONG ? (at) : 0)
#else
#define MASK_AT(at) 0
#endif
)kernel";

/// V of a row, which attends to the columns from `begin` to `end`, for items that share it.
constexpr char kReadScores[] = R"kernel(
FUNCTION void read_scores(GLOBAL const STORAGE(T) *x,
#if HAS_MASK
                          GLOBAL const STORAGE(TM) *mask,
#endif
                          REAL cap, REAL otherwise, i64 begin, i64 end, INDEX at, VALUE(T) *to) {
  READ(T, x + at, to);
#if IS_WIDE
  VALUE(T) beside[V];
  READ(T, mask + at, beside);
#define BESIDE(e) beside[e]
#else
#define BESIDE(e) MASK_AT(at + e)
#endif
  UNROLL for (int e = 0; e < V; ++e) to[e] = KEPT(MASKED(CAPPED(to[e]), BESIDE(e)), at + e);
}
)kernel";

/// All of a row, before its softmax, for an item that has it to itself.
constexpr char kMakeScores[] = R"kernel(
  {
  i64 row = i1, begin = row % lines - before, end = row % lines + after;
  MASK_SEEK;
  GLOBAL STORAGE(T) *made = y + row * n;
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#endif
  for (i64 k = 0; k < n; ++k) STORE(T, made, k, KEPT(MASKED(CAPPED((REAL)LOAD(T, made, k)), MASK_AT(k)), k));
  }
)kernel";

/// After it, where it has made `greatest`.
constexpr char kZeroScores[] = R"kernel(
  for (k = 0; k < n; ++k) {
    REAL v = LOAD(T, y, k);
    STORE(T, y, k, ZERO_WHERE ? LIT(0.0) : v);
  }
)kernel";

bool has_window(const AttentionScores& scores) { return scores.before || scores.after; }

RowForm form_of(const Device& device, const AttentionScores& scores) {
  const std::int64_t n = scores.dims.back();
  return choose_rows(device, {.rows = sdk::element_count(scores.dims) / n,
                              .n = n,
                              .type = scores.type,
                              .is_dense = true,
                              .holds = true,
                              .may_divide = true});
}

/// Words for what is done where rows are read; false: they are read as they are.
bool add_words(Walk& walk, const AttentionScores& scores) {
  if (!scores.mask && scores.softcap == 0 && !has_window(scores)) return false;
  const Dims& dims = scores.dims;
  walk.number("lines", dims[2]).real("cap", scores.softcap);
  walk.define("HAS_CAP", scores.softcap != 0 ? 1 : 0).define("HAS_MASK", scores.mask ? 1 : 0);
  walk.define("HAS_WINDOW", has_window(scores) ? 1 : 0);
  const RowMask mask = scores.mask.value_or(RowMask());
  const bool is_of_bools = mask.type == DataType::Bool;
  walk.real("otherwise", mask.otherwise).define("CHOSEN", mask.chosen ? 1 : 0);
  walk.define("IS_OF_BOOLS", is_of_bools ? 1 : 0).define("IS_ALONG", scores.mask_is_along ? 1 : 0);
  walk.define("IS_WIDE", scores.mask && scores.mask_is_along && mask.type == scores.type ? 1 : 0);
  if (scores.mask) {
    walk.in("mask", mask.memory, mask.type).define("TM", type_code(mask.type));
    walk.number("heads", dims[1]).number("mask_batch", mask.steps.batch);
    walk.number("mask_head", mask.steps.head).number("mask_line", mask.steps.position);
  }
  walk.define("MASK_SEEK", scores.mask ? "mask += row / lines / heads * mask_batch + row / lines % "
                                         "heads * mask_head + row % lines * mask_line"
                                       : "");
  // Without an end on one side: as far as there are positions.
  const std::int64_t first = scores.first_place, all = first + dims[2];
  walk.number("before", std::min(scores.before.value_or(all), all) - first);
  walk.number("after", std::min(scores.after.value_or(dims[3]), dims[3]) + first);
  walk.functions += kScoreWords;
  return true;
}

}  // namespace

RowMask dense_mask(const MemoryRef& memory, DataType type, const Dims& mask, const Dims& scores) {
  const Dims steps = broadcast_view(memory, type, mask, scores).strides;
  RowMask made;
  made.memory = memory;
  made.type = type;
  made.steps = {steps[0], steps[1], steps[2]};
  return made;
}

AttentionScores add_masked(Work& work, const AttentionScores& from, const Dims& mask,
                           const Dims& dims, const MemoryRef& to) {
  const RowMask& masks = *from.mask;
  Expression made;
  made.parameters = {from.softcap, masks.otherwise};
  made.statements =
      sdk::message("  REAL score = ", from.softcap != 0 ? "p0 * tanh(v0 / p0);\n" : "v0;\n");
  if (masks.type == DataType::Bool) {
    made.statements += sdk::message("  REAL masked = (v1 != 0) == ", masks.chosen ? 1 : 0,
                                    " ? score : p1, other = masked;\n");
  } else {
    made.statements += "  REAL masked = score + v1, other = v1;\n";
  }
  // Finite numbers stay finite, as where rows are read, so that a row without any position is not NaN.
  made.text = from.type == DataType::Float16
                  ? "masked < -65504.0f && score > -INFINITY && other > -INFINITY ? -65504.0f : "
                    "masked"
                  : "masked";
  add_pointwise(work, dims,
                {broadcast_view(from.memory, from.type, from.dims, dims),
                 broadcast_view(masks.memory, masks.type, mask, dims)},
                dense_view(to, from.type, dims), made);
  AttentionScores left = from;
  left.dims = dims;
  left.memory = to;
  left.softcap = 0;
  left.mask.reset();
  return left;
}

std::uint64_t weights_bytes(const Device& device, const AttentionScores& scores) {
  if (!shares_rows(device)) return 0;
  const RowForm form = form_of(device, scores);
  return form.parts == 1 ? 0 : 2 * static_cast<std::uint64_t>(form.part_count()) * sizeof(float);
}

void add_weights(Work& work, const AttentionScores& scores, const MemoryRef& workspace) {
  const std::int64_t n = scores.dims.back();
  Walk walk(Dims{sdk::element_count(scores.dims) / n, 1});
  walk.out("y", scores.memory, scores.type);
  walk.real_type(scores.type).define("T", type_code(scores.type)).define("IS_LOG", 0);
  const bool is_zeroed = scores.empty != EmptyRow::kNan;
  if (is_zeroed) {
    walk.define("ZERO_WHERE",
                scores.empty == EmptyRow::kNumber ? "(v != v)" : "(greatest == -INFINITY)");
  }
  const bool is_made = add_words(walk, scores);
  if (!shares_rows(work.device())) {
    walk.define("KEEPS", scores.type == DataType::Float ? 1 : 0).define("inner", 1);
    walk.number("n", n);
    walk.functions += common::kScalarFunctions;
    // Compilers make vectors of loops that read and write what they know to be one place.
    walk.body = sdk::message("  GLOBAL const STORAGE(T) *x = y;\n", is_made ? kMakeScores : "",
                             common::kSoftmaxBody, is_zeroed ? kZeroScores : "");
    return walk.name("attention, weights").add_to(work);
  }
  walk.in("x", scores.memory, scores.type);
  walk.define("BASE", "(row * n)").define("OFFSET(k)", "(k)");
  if (is_made) {
    walk.define("SEEK", "x += row * n; MASK_SEEK");
    walk.define("READ_ROW(at, to)", sdk::message("read_scores(x, ", scores.mask ? "mask, " : "",
                                                 "cap, otherwise, (i64)(row % lines) - before, "
                                                 "(i64)(row % lines) + after, at, to)"));
    walk.functions += kReadScores;
  }
  walk.body = common::kSoftmaxRow;
  walk.add_phases(work, form_of(work.device(), scores), workspace);
}

}  // namespace backplane::device_ops

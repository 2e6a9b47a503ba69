#include "plugins/cuda/attention_parts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "plugins/common/device_ops/attention_scores.hpp"
#include "plugins/common/device_ops/walk.hpp"

namespace backplane::cuda {
namespace {

using device_ops::AttentionScores;
using device_ops::is_along;
using device_ops::RowMask;
using device_ops::type_code;
using device_ops::Walk;

/// Matrices of a batch with two axes. Steps are in elements; along an axis of a step 0 the matrices are the same.
struct Matrices {
  MemoryRef memory;
  std::int64_t lines = 0, width = 0;  ///< as they lie: a line's elements lie together
  std::int64_t outer = 0, inner = 0, line = 0;
};

/// The steps of dense matrices over a batch of `inner` along its second axis.
void set_dense(Matrices& matrices, std::int64_t inner) {
  matrices.line = matrices.width;
  matrices.inner = matrices.lines * matrices.width;
  matrices.outer = matrices.inner * inner;
}

/// y = factor * a b, or a b' where b is transposed, for each matrix of the batch.
struct BatchedProduct {
  std::int64_t outer = 1, inner = 1;
  Matrices a, b, y;
  bool b_is_transposed = false;
  double factor = 1;

  /// Whether both axes of the batch are one to these matrices.
  bool is_merged(const Matrices& matrices) const {
    return outer == 1 || inner == 1 || matrices.outer == inner * matrices.inner;
  }
};

enum Operand : std::size_t { kQ, kK, kV, kMask };

/// Of the mask, over scores of these four dims.
RowMask mask_of(const AttentionParts& parts, const Dims& dims) {
  const DataType type = parts.is_mask_of_bools ? DataType::Bool : parts.type;
  RowMask mask = device_ops::dense_mask(parts.memory[kMask], type, *parts.mask, dims);
  if (parts.mask_steps) mask.steps = *parts.mask_steps;
  mask.chosen = parts.chosen;
  mask.otherwise = parts.otherwise;
  return mask;
}

class PartsWriter {
 public:
  PartsWriter(NodeWork& work, const AttentionParts& parts, const AttentionExtent& extent,
              WorkspacePieces& pieces)
      : work_(work), parts_(parts), extent_(extent), pieces_(pieces) {}

  void write() {
    if (extent_.masked.back() == 0) return fill(parts_.result, sdk::element_count(extent_.result));
    add_scores();
    AttentionScores scores;
    scores.type = parts_.type;
    scores.dims = extent_.scores;
    scores.memory = scores_;
    scores.softcap = parts_.softcap;
    scores.before = parts_.before;
    scores.after = parts_.after;
    scores.first_place = parts_.first_place;
    scores.empty = parts_.empty;
    if (parts_.mask) {
      scores.mask = mask_of(parts_, extent_.masked);
      scores.mask_is_along = is_along(*parts_.mask);
    }
    if (extent_.masked != extent_.scores) {
      scores_ = pieces_.add(bytes_of(extent_.masked));
      scores =
          device_ops::add_masked(work_.launches(), scores, *parts_.mask, extent_.masked, scores_);
    }
    device_ops::add_weights(
        work_.launches(), scores,
        pieces_.add(static_cast<std::int64_t>(device_ops::weights_bytes(work_.device(), scores))));
    add_values();
  }

 private:
  std::int64_t bytes_of(const Dims& dims) const {
    return sdk::element_count(dims) * sdk::element_bytes(parts_.type);
  }

  /// An operand over the batch of `dims`.
  Matrices operand(Operand index, const AttentionOperand& form) const {
    Matrices made;
    made.memory = parts_.memory[index];
    made.lines = form.positions;
    made.width = form.width;
    made.outer = form.batch == 1 ? 0 : form.steps.batch;
    made.inner = form.heads == 1 ? 0 : form.steps.head;
    made.line = form.steps.position;
    return made;
  }
  /// Dense matrices of these four dims, over the batch of `over`.
  static Matrices dense(const MemoryRef& memory, const Dims& dims, const Dims& over) {
    Matrices made;
    made.memory = memory;
    made.lines = dims[2];
    made.width = dims[3];
    set_dense(made, dims[1]);
    if (dims[0] == 1 && over[0] != 1) made.outer = 0;
    if (dims[1] == 1 && over[1] != 1) made.inner = 0;
    return made;
  }

  void add_scores() {
    const Dims& dims = extent_.scores;
    scores_ = pieces_.add(bytes_of(dims));
    if (parts_.q.width == 0) return fill(scores_, sdk::element_count(dims));
    BatchedProduct product;
    product.outer = dims[0];
    product.inner = dims[1];
    product.a = operand(kQ, parts_.q);
    product.b = operand(kK, parts_.k);
    product.b_is_transposed = true;
    product.y = dense(scores_, dims, dims);
    product.factor = parts_.scale;
    add_grouped(product, parts_.k);
  }

  void add_values() {
    BatchedProduct product;
    product.outer = extent_.result[0];
    product.inner = extent_.result[1];
    product.a = dense(scores_, extent_.masked, extent_.result);
    product.b = operand(kV, parts_.v);
    product.y = dense(parts_.result, extent_.result, extent_.result);
    product.y.outer = parts_.y.batch;
    product.y.inner = parts_.y.head;
    product.y.line = parts_.y.position;
    add_grouped(product, parts_.v);
  }

  void fill(const MemoryRef& to, std::int64_t count) {
    Walk walk(Dims{count});
    walk.out("y", to, parts_.type).define("T", type_code(parts_.type));
    walk.body = "  STORE(T, y, i0, 0);";
    walk.add_to(work_.launches());
  }

  /// A product whose b has a matrix for several heads of a and y: these heads are the rows of one matrix, where they lie so,
  /// and are laid so where they do not.
  void add_grouped(BatchedProduct product, const AttentionOperand& b) {
    if (!parts_.is_grouped || b.heads == 1 || b.heads == product.inner) return add_product(product);
    const std::int64_t repeats = product.inner / b.heads;
    const auto is_one = [](const Matrices& m) {
      return m.lines == 1 || m.inner == m.lines * m.line;
    };
    const auto merge = [repeats](Matrices& m) {
      if (m.lines == 1) m.line = m.inner;
      m.lines *= repeats;
      m.inner *= repeats;
    };
    if (!is_one(product.a)) lay_out(product, product.a);
    const BatchedProduct apart = product;
    if (!is_one(apart.y)) {
      set_dense(product.y, product.inner);
      product.y.memory = new_piece(product, apart.y);
    }
    const Matrices made = product.y;
    merge(product.a);
    merge(product.y);
    product.inner = b.heads;
    add_product(product);
    if (!is_one(apart.y)) copy(apart, made, apart.y);
  }

  /// In one call where all matrices lie so that both axes of the batch are one. Others are calls along the shorter axis, but
  /// never more than nodes apart would put on the stream: then what lies otherwise is laid out first, as these do.
  void add_product(BatchedProduct product) {
    const bool a_is_merged = product.is_merged(product.a),
               b_is_merged = product.is_merged(product.b),
               y_is_merged = product.is_merged(product.y);
    const std::int64_t moves =
        (a_is_merged ? 0 : 1) + (b_is_merged ? 0 : 1) + (y_is_merged ? 0 : 1);
    if (moves == 0 || std::min(product.outer, product.inner) <= moves + 1)
      return add_calls(product);
    if (!a_is_merged) lay_out(product, product.a);
    if (!b_is_merged) lay_out(product, product.b);
    if (y_is_merged) return add_calls(product);
    const Matrices y = product.y;
    set_dense(product.y, product.inner);
    product.y.memory = new_piece(product, y);
    add_calls(product);
    copy(product, product.y, y);
  }

  MemoryRef new_piece(const BatchedProduct& product, const Matrices& matrices) {
    return pieces_.add(bytes_of({product.outer, product.inner, matrices.lines, matrices.width}));
  }
  void lay_out(const BatchedProduct& product, Matrices& matrices) {
    const Matrices from = matrices;
    matrices.memory = new_piece(product, matrices);
    set_dense(matrices, product.inner);
    copy(product, from, matrices);
  }
  void copy(const BatchedProduct& product, const Matrices& from, const Matrices& to) {
    device_ops::StridedCopy copy;
    copy.dims = {product.outer, product.inner, from.lines, from.width};
    copy.from = from.memory;
    copy.to = to.memory;
    copy.from_strides = {from.outer, from.inner, from.line, 1};
    copy.to_strides = {to.outer, to.inner, to.line, 1};
    device_ops::add_strided_copy(work_.launches(), parts_.type, std::move(copy));
  }

  void add_calls(const BatchedProduct& from) {
    const bool is_one = from.is_merged(from.a) && from.is_merged(from.b) && from.is_merged(from.y);
    // The axis of a call's own batch: the longer one, or both as one, by the steps of the axis that has elements.
    const bool is_by_outer = is_one ? from.inner == 1 : from.outer > from.inner;
    const auto step = [&](const Matrices& m) { return is_by_outer ? m.outer : m.inner; };
    const auto moved = [&](const Matrices& m) { return is_by_outer ? m.inner : m.outer; };
    ProductPlan plan;
    plan.a = from.a.memory;
    plan.b = from.b.memory;
    plan.y = from.y.memory;
    Product& product = plan.product;
    product.type = product.result = parts_.type;
    if (parts_.type == DataType::Float) product.precision = parts_.precision;
    product.rows = from.a.lines;
    product.depth = from.a.width;
    product.columns = from.y.width;
    product.a = {from.a.line, step(from.a), false};
    product.b = {from.b.line, step(from.b), from.b_is_transposed};
    product.y_step = from.y.line;
    product.y_batch_step = step(from.y);
    product.factor = from.factor;
    product.batch = is_one ? from.outer * from.inner : is_by_outer ? from.outer : from.inner;
    const std::int64_t calls = is_one ? 1 : is_by_outer ? from.inner : from.outer;
    const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(parts_.type));
    plan.calls.clear();
    for (std::int64_t call = 0; call < calls; ++call) {
      const auto at = [&](const Matrices& m) {
        return static_cast<std::uint64_t>(call * moved(m)) * bytes;
      };
      plan.calls.push_back({at(from.a), at(from.b), at(from.y)});
    }
    plan.workspace = device_ops::workspace(pieces_.bytes());
    auto part = std::make_unique<ProductWork>(work_.device(), work_.label(), std::move(plan),
                                              work_.choosing());
    pieces_.add(static_cast<std::int64_t>(part->workspace_bytes()));
    work_.add(std::move(part));
  }

  NodeWork& work_;
  const AttentionParts& parts_;
  const AttentionExtent& extent_;
  WorkspacePieces& pieces_;
  MemoryRef scores_;
};

/// How many rows are computed at once: all, or as many as have scores of `most_bytes`, the default of which second caches hold. Powers
/// of two, so that requests of different lengths are products of few sizes, whose algorithms are known.
std::int64_t rows_at_once(const AttentionParts& parts, const AttentionExtent& extent,
                          std::int64_t most_bytes) {
  constexpr std::int64_t kLeastRows = 64;
  const std::int64_t rows = extent.masked[2];
  if (rows <= kLeastRows || extent.masked != extent.scores) return rows;
  const std::int64_t bytes =
      sdk::element_count(extent.scores) / rows * sdk::element_bytes(parts.type);
  if (bytes == 0 || bytes * rows <= most_bytes) return rows;
  const auto fitting = static_cast<std::uint64_t>(std::max(kLeastRows, most_bytes / bytes));
  return static_cast<std::int64_t>(std::bit_floor(fitting));
}

/// The positions that windows leave to some row, from the first to before the last, of all that there are: with some more, as above.
std::pair<std::int64_t, std::int64_t> columns_of(const AttentionParts& parts, std::int64_t rows,
                                                 std::int64_t columns) {
  constexpr std::int64_t kTogether = 512;
  std::int64_t begin = 0, end = columns;
  if (parts.after) {
    const std::int64_t last = parts.first_place + rows + std::min(*parts.after, columns);
    end = std::min(columns, device_ops::ceil_divide(last, kTogether) * kTogether);
  }
  if (parts.before) begin = std::max<std::int64_t>(0, parts.first_place - *parts.before);
  return {std::min(begin, end - 1) / kTogether * kTogether, end};
}

/// The rows from `first` on.
AttentionParts rows_of(const AttentionParts& parts, const AttentionExtent& extent,
                       std::int64_t first, std::int64_t rows) {
  AttentionParts part = parts;
  const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(parts.type));
  const auto move = [](MemoryRef& memory, std::int64_t elements, std::uint64_t each) {
    memory.offset += static_cast<std::uint64_t>(elements) * each;
  };
  part.first_place += first;
  const auto [begin, end] = columns_of(part, rows, extent.scores[3]);
  part.first_place -= begin;
  part.q.positions = rows;
  part.k.positions = part.v.positions = end - begin;
  move(part.memory[kQ], first * parts.q.steps.position, bytes);
  move(part.memory[kK], begin * parts.k.steps.position, bytes);
  move(part.memory[kV], begin * parts.v.steps.position, bytes);
  move(part.result, first * parts.y.position, bytes);
  if (!parts.mask) return part;
  Dims& mask = *part.mask;
  part.mask_steps = mask_of(parts, extent.masked).steps;
  move(part.memory[kMask], first * part.mask_steps->position + (is_along(mask) ? begin : 0),
       parts.is_mask_of_bools ? 1 : bytes);
  if (is_along(mask)) mask.back() = end - begin;
  if (mask.size() > 1 && mask[mask.size() - 2] != 1) mask[mask.size() - 2] = rows;
  return part;
}

}  // namespace

void add_attention_parts(NodeWork& work, const AttentionParts& parts, const AttentionExtent& extent,
                         WorkspacePieces& pieces) {
  const auto most_bytes = static_cast<std::int64_t>(work.device().settings().attention_bytes);
  const std::int64_t all = extent.masked[2], rows = rows_at_once(parts, extent, most_bytes);
  if (rows >= all) return PartsWriter(work, parts, extent, pieces).write();
  const WorkspacePieces before = pieces;
  for (std::int64_t first = 0; first < all; first += rows) {
    const AttentionParts part = rows_of(parts, extent, first, std::min(rows, all - first));
    // On one stream, so that all of them may use the same memory.
    WorkspacePieces own = before;
    PartsWriter(work, part, extent_of(part), own).write();
    if (own.bytes() > pieces.bytes()) pieces = own;
  }
}

}  // namespace backplane::cuda

// Products of elements of eight bits. Libraries multiply int8 by int8 where both operands lie in lines along the depth,
// of a multiple of four elements, and give sums of 32 bits; so operands are laid out in such lines, unsigned elements less 128,
// and zero points are taken off the sums: of a - p and b - q over a depth of n it is ab - q * (sum of a's line) - p * (sum of
// b's line) + n * p * q, all of it modulo 2^32, as ONNX's sums are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/device_ops/kernel.hpp"
#include "plugins/common/device_ops/pointwise.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"

namespace backplane::cuda {

using device_ops::MemoryRef;
using device_ops::View;
using device_ops::WorkspacePieces;

/// An operand: element k of line l of matrix m lies at m * matrix_step + l * line_step + k * step. It is laid out with
/// `out_depth` elements a line, zeros at the end, and `out_lines` lines a matrix.
struct Lines {
  DataType type = DataType::Int8;
  std::int64_t matrices = 1, lines = 0, depth = 0;
  std::int64_t matrix_step = 0, line_step = 0, step = 1;
  std::int64_t out_lines = 0, out_depth = 0;

  std::int64_t matrix_bytes() const { return out_lines * out_depth; }
  std::int64_t bytes() const { return matrices * matrix_bytes(); }
  std::int64_t sum_count() const { return matrices * out_lines; }
  /// Whether the library can multiply it as it lies, where its address is a multiple of four.
  bool lies_right() const;
};

/// What lines are padded to: the vectors that fast algorithms load.
std::int64_t padded_depth(std::int64_t depth);

/// 128 for unsigned elements: by how much they are more than what is multiplied.
int shift_of(DataType type);

void add_lay_out(device_ops::Work& work, const Lines& lines, const MemoryRef& from,
                 const MemoryRef& to);
/// The sum of each of `count` lines of `depth` elements that are laid out.
void add_line_sums(device_ops::Work& work, std::int64_t count, std::int64_t depth,
                   const MemoryRef& from, const MemoryRef& to);

/// Where sums stand behind packed lines of so many bytes.
std::uint64_t sums_behind(std::int64_t bytes);
/// Ends a packing: the sums go behind the lines in `packed`, and all of it to the device.
void upload_with_sums(const sdk::PackContext& ctx, std::vector<unsigned char>& packed,
                      const std::vector<std::int32_t>& sums, std::uint64_t sums_at);

/// A constant operand as lines, and behind them the lines' sums.
struct LinePacker {
  Lines lines;
  std::uint64_t sums_at() const;
  std::uint64_t bytes() const;
  std::string key() const;
  void pack(const sdk::PackContext& ctx) const;
};

/// Where an operand's lines are, and their sums where those are wanted.
struct LaidOut {
  MemoryRef lines, sums;
  /// Where lines that lie right go when their address is no multiple of four; of no bytes for others.
  MemoryRef spare;
  std::uint64_t spare_bytes = 0;
};

/// Packers by what they do; they live as long as the kernel, as the host needs them to.
template <class Packer>
class KeptPackers {
 public:
  /// Has constant input `place` packed so, and not given to the kernel as it is.
  LaidOut request(sdk::PrepareContext& ctx, NodeWork& work, std::uint32_t place,
                  const Packer& wanted) const {
    const Packer* const packer = find(wanted);
    const std::uint32_t index = ctx.request_pack(packer->key(), {place}, packer->bytes(), packer,
                                                 work.device().limits().alignment);
    ctx.ignore_input(place);
    LaidOut laid;
    laid.lines = laid.sums = device_ops::packed(index);
    laid.sums.offset = packer->sums_at();
    return laid;
  }

 private:
  const Packer* find(const Packer& wanted) const {
    const std::lock_guard lock(mutex_);
    auto& packer = packers_[wanted.key()];
    if (packer == nullptr) packer = std::make_unique<Packer>(wanted);
    return packer.get();
  }

  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<Packer>> packers_;
};
using LinePackers = KeptPackers<LinePacker>;

/// Input `place`, as lines: packed where it is a constant, as it lies where that is right and `may_stay`, and else in a
/// piece of the workspace.
LaidOut lay_out(sdk::PrepareContext& ctx, NodeWork& work, const LinePackers& packers,
                std::uint32_t place, const Lines& lines, bool wants_sums, bool may_stay,
                WorkspacePieces& pieces);

/// sums[batch][row][column] of a's lines by b's. Steps through the batch are in elements.
struct LineProduct {
  std::int64_t rows = 0, columns = 0, out_columns = 0, depth = 0, batch = 1;
  std::int64_t a_step = 0, b_step = 0, sums_step = 0;
  LaidOut a, b;
  MemoryRef sums;
  std::vector<ProductPlan::Call> calls{ProductPlan::Call{}};
};
/// By the library, or, where it has no algorithm, by a kernel; says which.
std::string add_line_product(NodeWork& work, const LineProduct& product, WorkspacePieces& pieces);

/// What sums become. Views are of the result's dims.
struct LineResult {
  Dims dims;
  DataType type = DataType::Int32;
  int a_shift = 0, b_shift = 0;  ///< of what is multiplied, which is that much less
  std::int64_t depth = 0;
  View sums, y;
  std::optional<View> a_sums, b_sums, a_zero, b_zero;
  /// Scales, and for quantised results, theirs and their zero point. A bias of sums (int32) is added to them, one of floats
  /// after the scales; Relu comes last.
  std::optional<View> a_scale, b_scale, bias, y_scale, y_zero;
  bool has_relu = false;
  /// ONNX's QLinear operators scale by a_scale * b_scale / y_scale; chains of nodes divide by y_scale at their end.
  bool is_chain = false;

  bool has_a_zero() const { return a_zero.has_value() || a_shift != 0; }
  bool has_b_zero() const { return b_zero.has_value() || b_shift != 0; }
  /// Whether the sums are stored as they are.
  bool is_plain() const {
    return !has_a_zero() && !has_b_zero() && !a_scale && !bias && type == DataType::Int32;
  }
};
void add_result(device_ops::Work& work, const LineResult& result);

}  // namespace backplane::cuda

// Einsum: products of floats by cuBLASLt, those of integers by the shared tiles, and the rest by the shared kernels.
#include "plugins/common/device_ops/einsum.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "op_table.hpp"
#include "plugins/cuda/kernel.hpp"
#include "plugins/cuda/product_work.hpp"
#include "plugins/cuda/whole_products.hpp"

namespace backplane::cuda {
namespace {

using device_ops::EinsumProduct;
using device_ops::launch_count;
using device_ops::MemoryRef;
using device_ops::WorkspacePieces;

/// A matrix of `lines` lines of `length` elements whose lines, or what lies across them, are together.
bool has_lines(std::int64_t lines, std::int64_t line_step, std::int64_t length, std::int64_t step) {
  return (step == 1 || length == 1) && (lines == 1 || line_step >= length);
}

bool lies_as_matrix(std::int64_t rows, std::int64_t row_step, std::int64_t columns,
                    std::int64_t column_step) {
  return has_lines(rows, row_step, columns, column_step) ||
         has_lines(columns, column_step, rows, row_step);
}

Operand operand_of(std::int64_t rows, std::int64_t row_step, std::int64_t columns,
                   std::int64_t column_step) {
  if (has_lines(rows, row_step, columns, column_step))
    return {rows == 1 ? columns : row_step, 0, false};
  return {columns == 1 ? rows : column_step, 0, true};
}

/// By how much the call of that number moves an operand: along all axes but the last.
std::int64_t moved(const common::StridedLoops& batch, std::size_t operand, std::int64_t call,
                   std::size_t in_call) {
  std::int64_t offset = 0;
  for (std::size_t axis = batch.dims.size() - std::min(in_call, batch.dims.size()); axis-- > 0;) {
    offset += call % batch.dims[axis] * batch.strides[operand][axis];
    call /= batch.dims[axis];
  }
  return offset;
}

class Target final : public device_ops::EinsumTarget {
 public:
  Target(sdk::PrepareContext& ctx, NodeWork& work, Precision precision)
      : ctx_(ctx), work_(work), precision_(precision) {}

  device_ops::Work& launches() override { return work_.launches(); }
  std::size_t batch_axes(DataType type) const override { return is_whole(type) ? 2 : 1; }
  bool reads_a(const EinsumProduct& p) const override {
    return is_whole(p.type) || lies_as_matrix(p.rows, p.a_row, p.depth, p.a_depth);
  }
  bool reads_b(const EinsumProduct& p) const override {
    return is_whole(p.type) || lies_as_matrix(p.depth, p.b_depth, p.columns, p.b_column);
  }
  /// Lone rows have kernels of their own.
  bool wants_lone_row(DataType, bool) const override { return true; }

  std::string add(const EinsumProduct& p, WorkspacePieces& pieces) override {
    return is_whole(p.type) ? add_whole(p) : add_floats(p, pieces);
  }

 private:
  std::string add_floats(const EinsumProduct& p, WorkspacePieces& pieces) {
    ProductPlan plan;
    Product& product = plan.product;
    product.type = product.result = p.type;
    product.rows = p.rows;
    product.columns = p.columns;
    product.depth = p.depth;
    product.a = operand_of(p.rows, p.a_row, p.depth, p.a_depth);
    product.b = operand_of(p.depth, p.b_depth, p.columns, p.b_column);
    product.y_step = p.rows == 1 || p.y_row == p.columns ? 0 : p.y_row;
    product.batch = p.batch.dims.back();
    product.a.batch_step = p.batch.strides[0].back();
    product.b.batch_step = p.batch.strides[1].back();
    product.y_batch_step = p.batch.strides[2].back();
    // Sums on the way of 16 bits are float32, and exact.
    if (ctx_.input(0).type() == DataType::Float) product.precision = precision_;
    plan.a = p.a;
    plan.b = p.b;
    plan.y = p.y;
    plan.b_is_constant = p.b.place == device_ops::Place::Input && ctx_.input_constant(p.b.index);
    const auto bytes = static_cast<std::uint64_t>(sdk::element_bytes(p.type));
    plan.calls.assign(static_cast<std::size_t>(launch_count(p.batch, 1)), {});
    for (std::size_t call = 0; call < plan.calls.size(); ++call) {
      const auto offset = [&](std::size_t operand) {
        const std::int64_t elements = moved(p.batch, operand, static_cast<std::int64_t>(call), 1);
        return static_cast<std::uint64_t>(elements) * bytes;
      };
      plan.calls[call] = {offset(0), offset(1), offset(2)};
    }
    plan.workspace = device_ops::workspace(pieces.bytes());
    auto part = std::make_unique<ProductWork>(work_.device(), work_.label(), std::move(plan),
                                              work_.choosing());
    pieces.add(static_cast<std::int64_t>(part->workspace_bytes()));
    std::string way = part->way() + part->rounding();
    work_.add(std::move(part));
    return way;
  }

  std::string add_whole(const EinsumProduct& p) {
    const std::size_t rank = p.batch.dims.size();
    WholeProduct product;
    product.type = p.type;
    product.rows = p.rows;
    product.columns = p.columns;
    product.depth = p.depth;
    product.a_row = p.a_row;
    product.a_step = p.a_depth;
    product.b_row = p.b_depth;
    product.b_step = p.b_column;
    product.y_row = p.y_row;
    product.inner = p.batch.dims.back();
    product.outer = rank > 1 ? p.batch.dims[rank - 2] : 1;
    const auto steps = [&](std::size_t operand) {
      const Dims& all = p.batch.strides[operand];
      return std::array<std::int64_t, 2>{rank > 1 ? all[rank - 2] : 0, all.back()};
    };
    product.a_batch = steps(0);
    product.b_batch = steps(1);
    product.y_batch = steps(2);
    const std::int64_t calls = launch_count(p.batch, 2);
    for (std::int64_t call = 0; call < calls; ++call) {
      const auto at = [&](MemoryRef memory, std::size_t operand) {
        memory.offset += static_cast<std::uint64_t>(moved(p.batch, operand, call, 2) *
                                                    sdk::element_bytes(p.type));
        return memory;
      };
      product.a = at(p.a, 0);
      product.b = at(p.b, 1);
      product.y = at(p.y, 2);
      add_product(work_.launches(), product);
    }
    return "tiles";
  }

  sdk::PrepareContext& ctx_;
  NodeWork& work_;
  Precision precision_;
};

class EinsumOp {
 public:
  EinsumOp(const Device& device, const sdk::Node& node)
      : shared_(node), precision_(device.settings().precision.of(node)) {}

  void prepare(sdk::PrepareContext& ctx, NodeWork& work) const {
    Target target(ctx, work, precision_);
    shared_.prepare(ctx, target);
  }

 private:
  device_ops::Einsum shared_;
  Precision precision_;
};

}  // namespace

KernelList einsum_kernels() { return {cuda_kernel<EinsumOp>(device_ops::einsum_op())}; }

}  // namespace backplane::cuda

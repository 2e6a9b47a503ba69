// Constants of 4 and 8 bits that are only dequantized stay what they are: products and Gather read them so.
#include <optional>

#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// A constant matrix that a node reads by way of a DequantizeLinear, and a Transpose maybe.
struct NarrowMatrix {
  WorkNode* dequantize = nullptr;
  WorkNode* transpose = nullptr;  // null: none
  sdk::Dims dims;                 // as stored
};

bool is_narrow(DataType type) {
  return type == DataType::Int4 || type == DataType::UInt4 || type == DataType::Int8 ||
         type == DataType::UInt8;
}

bool is_float_type(DataType type) {
  return type == DataType::Float || type == DataType::Float16 || type == DataType::BFloat16;
}

/// Whether a Transpose swaps the axes of a matrix.
bool swaps(const WorkNode& node) {
  const std::vector<std::int64_t> order = node.original.get_ints("perm");
  return order.empty() || order == std::vector<std::int64_t>{1, 0};
}

std::optional<NarrowMatrix> matrix_of(const WorkingGraph& graph, const std::string& value) {
  NarrowMatrix found;
  WorkNode* node = value.empty() ? nullptr : graph.producer(value);
  if (node != nullptr && node->is("Transpose") && !node->changed && swaps(*node)) {
    found.transpose = node;
    node = graph.producer(node->input(0));
  }
  if (node == nullptr || !node->is("DequantizeLinear") || node->changed) return std::nullopt;
  found.dequantize = node;
  const bp_tensor* values = graph.constant(node->input(0));
  const bp_tensor* scales = graph.constant(node->input(1));
  if (values == nullptr || scales == nullptr) return std::nullopt;
  const sdk::Tensor x(values);
  if (x.rank() != 2 || x.size() == 0 || !is_narrow(x.type()) ||
      !is_float_type(sdk::Tensor(scales).type()))
    return std::nullopt;
  found.dims.assign(x.dims().begin(), x.dims().end());
  if (!node->input(2).empty()) {
    const bp_tensor* zeros = graph.constant(node->input(2));
    if (zeros == nullptr || sdk::Tensor(zeros).type() != x.type() ||
        sdk::Tensor(zeros).size() != sdk::Tensor(scales).size())
      return std::nullopt;
  }
  return found;
}

std::int64_t block_size(const NarrowMatrix& matrix) {
  return matrix.dequantize->original.get_int("block_size", 0);
}

/// Whether the scales are one, one for each index of the axis other than `along`, or one for each of them and a block
/// along it.
bool has_scales_along(const WorkingGraph& graph, const NarrowMatrix& matrix, int along) {
  const sdk::Tensor scales(graph.constant(matrix.dequantize->input(1)));
  std::int64_t axis = matrix.dequantize->original.get_int("axis", 1);
  if (axis < 0) axis += 2;
  const std::int64_t block = block_size(matrix);
  const auto at = static_cast<std::size_t>(along);
  if (block > 0) {
    return axis == along && scales.rank() == 2 && scales.dim(1 - along) == matrix.dims[1 - at] &&
           scales.dim(along) == (matrix.dims[at] + block - 1) / block;
  }
  if (scales.size() == 1) return scales.rank() == 0 || matrix.dims[axis == 0 ? 0 : 1] == 1;
  return axis == 1 - along && scales.rank() == 1 && scales.dim(0) == matrix.dims[1 - at];
}

void drop_narrow_source(WorkingGraph& graph, const NarrowMatrix& matrix, WorkNode* reader) {
  graph.remove_if_unread(matrix.transpose, reader);
  graph.remove_if_unread(matrix.dequantize, reader);
}

/// Whether a Gemm is a product and the addition of a row at most.
bool is_product(const WorkingGraph& graph, const WorkNode& node, std::int64_t columns) {
  const sdk::Node& original = node.original;
  if (original.since_version() < 7 || original.get_float("alpha", 1) != 1 ||
      original.get_int("transA", 0) != 0)
    return false;
  if (node.input(2).empty()) return true;
  const sdk::ValueInfo c = graph.info(node.input(2));
  return original.get_float("beta", 1) == 1 && c && c.rank() == 1 && c.dims()[0] == columns;
}

void keep_weights(WorkingGraph& graph, WorkNode* node) {
  const std::optional<NarrowMatrix> b = matrix_of(graph, node->input(1));
  if (!b || graph.is_constant(node->input(0))) return;
  const sdk::ValueInfo a = graph.info(node->input(0));
  const bool gemm = node->is("Gemm");
  const bool turned =
      (gemm && node->original.get_int("transB", 0) != 0) != (b->transpose != nullptr);
  const int depth_axis = turned ? 1 : 0;
  const std::int64_t columns = b->dims[turned ? 0 : 1];
  const std::int64_t depth = b->dims[turned ? 1 : 0];
  const std::int64_t block = block_size(*b);
  if (!a || a.rank() == 0 || !is_float_type(a.type()) || !has_scales_along(graph, *b, depth_axis) ||
      (block % 8 != 0 && block < depth))
    return;
  if (gemm && !is_product(graph, *node, columns)) return;
  const WorkNode& dequantize = *b->dequantize;
  std::vector<std::string> inputs = {node->input(0), dequantize.input(0), dequantize.input(1),
                                     dequantize.input(2)};
  if (gemm && !node->input(2).empty()) {
    inputs.insert(inputs.end(), {"", node->input(2)});
  }
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "MatMulNBits";
  node->attributes.clear();
  node->attributes["depth_axis"] = std::int64_t{depth_axis};
  node->attributes["block_size"] = block;
  graph.set_inputs(node, inputs);
  drop_narrow_source(graph, *b, node);
}

/// Rows that are picked from a table.
void keep_table(WorkingGraph& graph, WorkNode* node) {
  const std::int64_t axis = node->original.get_int("axis", 0);
  const std::optional<NarrowMatrix> table = matrix_of(graph, node->input(0));
  if (!table || table->transpose != nullptr || (axis != 0 && axis != -2) ||
      graph.is_constant(node->input(1)) || !has_scales_along(graph, *table, 1))
    return;
  const sdk::ValueInfo y = graph.info(table->dequantize->outputs[0]);
  if (!y || !is_float_type(y.type())) return;
  const WorkNode& dequantize = *table->dequantize;
  const std::vector<std::string> inputs = {dequantize.input(0), node->input(1), dequantize.input(1),
                                           dequantize.input(2)};
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "GatherBlockQuantized";
  node->attributes.clear();
  node->attributes["block_size"] = block_size(*table);
  node->attributes["to"] = static_cast<std::int64_t>(y.type());
  graph.set_inputs(node, inputs);
  drop_narrow_source(graph, *table, node);
}

}  // namespace

void keep_narrow_weights(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    if (node->is("MatMul") || node->is("Gemm")) {
      keep_weights(graph, node);
    } else if (node->is("Gather")) {
      keep_table(graph, node);
    }
  }
}

}  // namespace backplane::cpu

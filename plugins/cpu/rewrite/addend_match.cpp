#include "plugins/cpu/rewrite/addend_match.hpp"

namespace backplane::cpu {
namespace {

/// Whether a constant is one row, [columns] or [1, columns] and so on, that adds no axis to `matrix`.
bool is_row(const WorkingGraph& graph, const std::string& value, std::int64_t columns,
            const std::string& matrix) {
  const sdk::ValueInfo row = graph.constant_info(value);
  if (!row || row.type() != sdk::DataType::Float || row.rank() < 1) return false;
  const sdk::ValueInfo info = graph.info(matrix);
  return sdk::element_count(row.dims()) == columns && row.dims().back() == columns &&
         (row.rank() == 1 || (info && row.rank() <= info.rank()));
}

/// The other operand of the addition that alone reads the node's result; "" when there is none.
std::string other_addend(const WorkingGraph& graph, const WorkNode& node, WorkNode** addition) {
  const std::string& value = node.outputs[0];
  *addition = graph.only_consumer(value);
  if (*addition == nullptr || (*addition)->changed ||
      !((*addition)->is("Add") || (*addition)->is("Sum")))
    return "";
  if ((*addition)->inputs.size() != 2) return "";
  const std::string& other = (*addition)->input((*addition)->input(0) == value ? 1 : 0);
  return other == value ? "" : other;
}

void take_addend(WorkingGraph& graph, WorkNode* node, WorkNode* addition, std::size_t index,
                 const std::string& other) {
  const std::string result = addition->outputs[0];
  graph.absorb(node, addition);
  graph.set_input(node, index, other);
  graph.set_output(node, 0, result);
}

}  // namespace

void take_addends(WorkingGraph& graph, WorkNode* node, std::int64_t columns, std::size_t bias,
                  std::size_t residual) {
  WorkNode* addition = nullptr;
  std::string other = other_addend(graph, *node, &addition);
  if (!other.empty() && node->input(bias).empty() &&
      is_row(graph, other, columns, node->outputs[0])) {
    take_addend(graph, node, addition, bias, other);
    other = other_addend(graph, *node, &addition);
  }
  if (!other.empty() && node->input(residual).empty() && !graph.is_constant(other) &&
      graph.same_dims(node->outputs[0], other)) {
    take_addend(graph, node, addition, residual, other);
  }
}

}  // namespace backplane::cpu

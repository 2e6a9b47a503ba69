// A Gather of one constant place is a part of its operand, which lies in one piece where nothing stands before its axis.
#include "plugins/common/device_ops/rewrite/passes.hpp"

namespace backplane::device_ops {
namespace {

bool holds_floats(DataType type) {
  return type == DataType::Float || type == DataType::Double || type == DataType::Float16 ||
         type == DataType::BFloat16;
}

/// The constant's only number; false where it is something else.
bool only_number(const sdk::ValueInfo& value, std::int64_t& number) {
  if (!value || !value.is_constant()) return false;
  const sdk::Tensor tensor = value.constant();
  if (tensor.size() != 1 || tensor.rank() > 1) return false;
  if (value.type() == DataType::Int64 && tensor.data<std::int64_t>() != nullptr) {
    number = *tensor.data<std::int64_t>();
    return true;
  }
  if (value.type() != DataType::Int32 || tensor.data<std::int32_t>() == nullptr) return false;
  number = *tensor.data<std::int32_t>();
  return true;
}

void take_part(const sdk::Node& node, NodeSet& taken, sdk::Rewrite& edit) {
  const sdk::ValueInfo x = node.input(0);
  std::int64_t begin = 0;
  // Integers are shape arithmetic, which the host does, and which it knows by ONNX's operators.
  if (!holds_floats(x.type()) || !x.is_static() || !only_number(node.input(1), begin)) return;
  const std::int64_t rank = x.rank(), given = node.get_int("axis", 0);
  const std::int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) return;
  const std::int64_t size = x.dims()[static_cast<std::size_t>(axis)];
  if (begin < 0) begin += size;
  if (begin < 0 || begin >= size) return;
  sdk::NodeDraft draft = edit.node(private_domain(), "Part");
  draft.name(std::string(node.name())).input(x.name()).output(node.output(0).name());
  draft.attribute("axis", axis).attribute("begin", begin);
  draft.attribute("keeps_axis", std::int64_t{node.input(1).rank() == 1 ? 1 : 0});
  draft.replaces(node);
  draft.add();
  taken.insert(node.raw());
}

}  // namespace

void take_parts(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (node.is("Gather") && taken.count(node.raw()) == 0) take_part(node, taken, edit);
  }
}

}  // namespace backplane::device_ops

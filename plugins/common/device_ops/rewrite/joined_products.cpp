#include "plugins/common/device_ops/rewrite/joined_products.hpp"

#include <cstring>

namespace backplane::device_ops {
namespace {

/// Rows that are added begin at multiples of so many elements, which are 16 bytes or more: libraries read them in vectors.
constexpr std::int64_t kRowStep = 8;

using Members = std::vector<const JoinableProduct*>;

/// A name that the graph does not have.
std::string fresh(const sdk::Graph& graph, const sdk::ValueInfo& value, const char* what) {
  std::string name = sdk::message(value.name(), '/', what);
  while (graph.value(name.c_str())) name += '_';
  return name;
}

/// Constants one after another, each of them with zeros up to `dims`.
void stack(const std::string& name, const std::vector<sdk::ValueInfo>& constants, Dims dims,
           sdk::Rewrite& edit) {
  std::vector<std::string> sources;
  for (const sdk::ValueInfo& constant : constants) sources.emplace_back(constant.name());
  const DataType type = constants[0].type();
  const auto step_bytes =
      static_cast<std::size_t>(sdk::element_count(dims) * sdk::element_bytes(type));
  dims.insert(dims.begin(), static_cast<std::int64_t>(constants.size()));
  edit.lazy_constant(name, type, dims, sources, "one after another",
                     [step_bytes](const sdk::PackContext& ctx) {
                       auto* to = ctx.target().mutable_data<unsigned char>();
                       for (std::size_t i = 0; i < ctx.source_count(); ++i, to += step_bytes) {
                         const auto bytes = static_cast<std::size_t>(ctx.source(i).bytes());
                         std::memcpy(to, ctx.source(i).bytes_data(), bytes);
                         std::memset(to + bytes, 0, step_bytes - bytes);
                       }
                     });
}

void add_node(const sdk::Graph& graph, const Members& members, sdk::Rewrite& edit) {
  const JoinableProduct& first = *members[0];
  const sdk::Node& node = first.product.node;
  std::vector<sdk::ValueInfo> weights, rows;
  for (const JoinableProduct* const member : members) {
    weights.push_back(member->product.node.input(1));
    rows.push_back(member->product.bias);
  }
  const DimsView matrix = weights[0].dims();
  const bool is_transposed = node.get_int("transB", 0) != 0;
  // Rows may be others' too: names grow from the result, which is nobody else's.
  const std::string joined = fresh(graph, first.result, "joined");
  const std::string matrices = fresh(graph, first.result, "joined_weights");
  stack(matrices, weights, {matrix[0], matrix[1]}, edit);
  sdk::NodeDraft draft = edit.node(private_domain(), sdk::message("Joined", node.op_type()));
  draft.input(node.input(0).name()).input(matrices);
  if (rows[0]) {
    const std::int64_t columns = matrix[is_transposed ? 0 : 1];
    const std::string joined_rows = fresh(graph, first.result, "joined_rows");
    stack(joined_rows, rows, {(columns + kRowStep - 1) / kRowStep * kRowStep}, edit);
    draft.input(joined_rows);
  }
  draft.output(joined).attribute("origin", std::string(node.name()));
  if (is_transposed) draft.attribute("transB", std::int64_t{1});
  if (!first.activation.empty()) draft.attribute("activation", first.activation);
  for (const JoinableProduct* const member : members) {
    for (const sdk::Node& replaced : member->replaced) draft.replaces(replaced);
  }
  draft.add();
  std::vector<sdk::Node> nodes;
  for (const JoinableProduct* const member : members) nodes.push_back(member->product.node);
  std::int64_t place = 0;
  for (const JoinableProduct* const member : members) {
    edit.node(private_domain(), "JoinedPart")
        .input(joined)
        .output(member->result.name())
        .attribute("place", place++)
        .add();
    edit.note(member->product.node,
              sdk::message("joined with ", patterns::others_of(nodes, member->product.node),
                           ", which multiply the same value"));
  }
}

}  // namespace

std::vector<bool> join_products(const sdk::Graph& graph,
                                const std::vector<JoinableProduct>& products, sdk::Rewrite& edit) {
  std::vector<patterns::WeightedProduct> plain;
  for (const JoinableProduct& each : products) plain.push_back(each.product);
  std::vector<bool> is_joined(products.size(), false);
  for (const std::vector<std::size_t>& places : patterns::find_joined(plain)) {
    Members members;
    for (const std::size_t place : places) {
      is_joined[place] = true;
      members.push_back(&products[place]);
    }
    add_node(graph, members, edit);
  }
  return is_joined;
}

}  // namespace backplane::device_ops

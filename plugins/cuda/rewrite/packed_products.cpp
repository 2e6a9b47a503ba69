#include "plugins/cuda/rewrite/packed_products.hpp"

#include <string>
#include <vector>

#include "plugins/common/device_ops/block_weights.hpp"
#include "plugins/common/patterns/joined_products.hpp"

namespace backplane::cuda {
namespace {

using device_ops::MatMulNBits;

bool is_taken(const sdk::Node& node) {
  try {
    const MatMulNBits form(node);
    return true;
  } catch (const sdk::Error&) {
    return false;  // the operator's body computes it
  }
}

int type_of(const sdk::ValueInfo& value) { return value ? static_cast<int>(value.type()) : 0; }

/// What products that are one have in common; empty of one that stays apart. All but the value that they multiply are constants, so
/// that joining them makes no cycle.
std::string common_of(const PrecisionRules& precision, const sdk::Node& node) {
  const sdk::ValueInfo a = node.input(MatMulNBits::kA);
  if (!a || a.is_constant() || !is_taken(node)) return "";
  std::string common = sdk::message(a.name(), '\n', precision_name(precision.of(node)));
  for (const char* const name : {"K", "bits", "block_size"})
    common += sdk::message(' ', node.get_int(name, name == std::string_view("bits") ? 4 : 0));
  for (const std::size_t place :
       {MatMulNBits::kB, MatMulNBits::kScales, MatMulNBits::kZeros, MatMulNBits::kBias}) {
    const sdk::ValueInfo value = node.input(place);
    if (value && !value.is_constant()) return "";
    common += sdk::message(' ', type_of(value));
  }
  return common;
}

void add_node(const std::vector<sdk::Node>& members, sdk::Rewrite& edit) {
  const sdk::Node& first = members[0];
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(), "JoinedMatMulNBits");
  draft.input(first.input(MatMulNBits::kA).name());
  std::vector<std::int64_t> columns;
  for (const sdk::Node& member : members) {
    for (const std::size_t place :
         {MatMulNBits::kB, MatMulNBits::kScales, MatMulNBits::kZeros, MatMulNBits::kBias}) {
      const sdk::ValueInfo value = member.input(place);
      draft.input(value ? value.name() : "");
    }
    draft.output(member.output(0).name()).replaces(member);
    columns.push_back(member.get_int("N", 0));
  }
  for (const char* const name : {"K", "bits", "block_size"}) {
    if (first.has(name)) draft.attribute(name, first.get_int(name, 0));
  }
  draft.attribute("N", std::move(columns)).attribute("origin", std::string(first.name())).add();
}

}  // namespace

void join_packed_products(const PrecisionRules& precision, const sdk::Graph& graph,
                          device_ops::NodeSet& taken, sdk::Rewrite& edit) {
  std::vector<sdk::Node> products;
  std::vector<std::string> common;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!node.is("MatMulNBits", "com.microsoft") || taken.count(node.raw()) > 0) continue;
    products.push_back(node);
    common.push_back(common_of(precision, node));
  }
  for (const std::vector<std::size_t>& places : patterns::with_equal(common)) {
    std::vector<sdk::Node> members;
    for (const std::size_t place : places) {
      members.push_back(products[place]);
      taken.insert(products[place].raw());
    }
    add_node(members, edit);
    for (const sdk::Node& member : members)
      edit.note(member, sdk::message("joined with ", patterns::others_of(members, member),
                                     ", which multiply the same value"));
  }
}

}  // namespace backplane::cuda

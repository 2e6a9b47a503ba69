#include "plugins/cuda/rewrite/products.hpp"

#include <vector>

#include "plugins/common/device_ops/rewrite/joined_products.hpp"
#include "plugins/common/patterns/gelu.hpp"

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using device_ops::only_consumer;
using sdk::DataType;

/// A product and what it takes over.
struct Fusion {
  std::vector<sdk::Node> replaced;
  sdk::ValueInfo result;
  sdk::ValueInfo bias;  ///< of a MatMul
  std::string addend, activation;
};

void take(const sdk::Node& next, Fusion& fusion) {
  fusion.replaced.push_back(next);
  fusion.result = next.output(0);
}

/// What an Add or Sum of two adds to `value`; absent where it is no such node.
sdk::ValueInfo other_of(const sdk::Node& next, const sdk::ValueInfo& value) {
  if (!next || !(next.is("Add") || next.is("Sum")) || next.input_count() != 2)
    return sdk::ValueInfo();
  const sdk::ValueInfo other = next.input(next.input(0) == value ? 1 : 0);
  return other == value || other.type() != value.type() ? sdk::ValueInfo() : other;
}

/// A row that is added to each row of a product, whose columns are b's.
void take_row(const sdk::Node& product, const NodeSet& taken, Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, taken);
  const sdk::ValueInfo other = other_of(next, fusion.result);
  const sdk::ValueInfo b = product.input(1);
  if (!other || !other.is_static() || !b.is_static() || b.rank() < 2) return;
  const sdk::DimsView dims = other.dims();
  // The product has at least one axis, of as many elements as the row: the sum has the same dims, whatever they are.
  if (dims.size() != 1 || dims[0] != b.dims()[b.dims().size() - 1]) return;
  fusion.bias = other;
  take(next, fusion);
}

/// Whose dims may turn out to be others than the product's in a run: then it is added by a step of the kernel's own.
void take_matrix(const NodeSet& taken, Fusion& fusion) {
  const sdk::Node next = only_consumer(fusion.result, taken);
  const sdk::ValueInfo other = other_of(next, fusion.result);
  if (!other || other.is_constant() ||
      device_ops::match_dims(other, fusion.result) == device_ops::DimsMatch::kOther)
    return;
  fusion.addend = other.name();
  take(next, fusion);
}

/// Relu, and Gelu in the form that cuBLASLt has; the other one too, where the program lets it be computed so.
void take_activation(const NodeSet& taken, GeluForm form, Fusion& fusion) {
  const auto may_be_taken = [form](bool has_tanh) { return has_tanh || form == GeluForm::kTanh; };
  const sdk::Node next = only_consumer(fusion.result, taken);
  if (next && next.domain().empty() && next.is("Relu")) {
    fusion.activation = "Relu";
    take(next, fusion);
  } else if (next && next.domain().empty() && next.is("Gelu")) {
    if (!may_be_taken(next.get_string("approximate", "none") == "tanh")) return;
    fusion.activation = "Gelu";
    take(next, fusion);
  } else {
    const patterns::DecomposedGelu gelu = patterns::find_gelu_behind(fusion.result, taken);
    if (gelu.nodes.empty() || !may_be_taken(gelu.has_tanh)) return;
    fusion.activation = "Gelu";
    for (const sdk::Node& node : gelu.nodes) fusion.replaced.push_back(node);
    fusion.result = gelu.result;
  }
}

void add_node(const sdk::Node& node, const Fusion& fusion, sdk::Rewrite& edit) {
  const bool is_gemm = node.is("Gemm");
  sdk::NodeDraft draft =
      edit.node(device_ops::private_domain(), is_gemm ? "FusedGemm" : "FusedMatMul");
  draft.input(node.input(0).name()).input(node.input(1).name());
  if (is_gemm) {
    if (node.input(2)) draft.input(node.input(2).name());
    for (const char* const name : {"transA", "transB"}) {
      if (node.has(name)) draft.attribute(name, node.get_int(name, 0));
    }
    for (const char* const name : {"alpha", "beta"}) {
      if (node.has(name)) draft.attribute(name, node.get_float(name, 1));
    }
  } else {
    draft.input(fusion.bias ? fusion.bias.name() : "");
    if (!fusion.addend.empty()) draft.input(fusion.addend);
  }
  draft.output(fusion.result.name()).attribute("origin", std::string(node.name()));
  if (!fusion.activation.empty()) draft.attribute("activation", fusion.activation);
  for (const sdk::Node& replaced : fusion.replaced) draft.replaces(replaced);
  draft.add();
}

bool is_product(const sdk::Node& node) {
  if (!node.domain().empty() || !(node.is("MatMul") || node.is("Gemm"))) return false;
  const DataType type = node.output(0).type();
  return type == DataType::Float || type == DataType::Float16 || type == DataType::BFloat16;
}

/// Which of the products are parts of one. Those that add a matrix are not: what makes the matrix may read another's result.
std::vector<bool> join(const PrecisionRules& precision, const sdk::Graph& graph,
                       const std::vector<Fusion>& fusions, sdk::Rewrite& edit) {
  std::vector<device_ops::JoinableProduct> products;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < fusions.size(); ++i) {
    const Fusion& fusion = fusions[i];
    if (!fusion.addend.empty()) continue;
    const sdk::Node& node = fusion.replaced[0];
    const std::string rest =
        sdk::message(fusion.activation, ' ', precision_name(precision.of(node)));
    products.push_back({{node, node.is("Gemm") ? node.input(2) : fusion.bias, rest},
                        fusion.activation,
                        fusion.replaced,
                        fusion.result});
    places.push_back(i);
  }
  const std::vector<bool> made = device_ops::join_products(graph, products, edit);
  std::vector<bool> is_joined(fusions.size(), false);
  for (std::size_t i = 0; i < places.size(); ++i) is_joined[places[i]] = made[i];
  return is_joined;
}

}  // namespace

void fuse_products(const PrecisionRules& precision, GeluForm gelu, const sdk::Graph& graph,
                   NodeSet& taken, sdk::Rewrite& edit) {
  std::vector<Fusion> fusions;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!is_product(node) || taken.count(node.raw()) > 0) continue;
    Fusion& fusion = fusions.emplace_back(Fusion{{node}, node.output(0), sdk::ValueInfo(), "", ""});
    if (node.is("MatMul")) {
      take_row(node, taken, fusion);
      take_matrix(taken, fusion);
    }
    take_activation(taken, gelu, fusion);
    if (fusion.replaced.size() == 1) continue;
    for (const sdk::Node& each : fusion.replaced) taken.insert(each.raw());
  }
  const std::vector<bool> is_joined = join(precision, graph, fusions, edit);
  for (std::size_t i = 0; i < fusions.size(); ++i) {
    const Fusion& fusion = fusions[i];
    if (is_joined[i]) taken.insert(fusion.replaced[0].raw());
    if (!is_joined[i] && fusion.replaced.size() > 1) add_node(fusion.replaced[0], fusion, edit);
  }
}

}  // namespace backplane::cuda

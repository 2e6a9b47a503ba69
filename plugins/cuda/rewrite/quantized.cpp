#include "plugins/cuda/rewrite/quantized.hpp"

#include <map>
#include <vector>

namespace backplane::cuda {
namespace {

using device_ops::NodeSet;
using device_ops::only_consumer;
using sdk::DataType;

/// As many as the kernel multiplies one by one; of more, floats are convolved.
constexpr std::int64_t kMostQuantizedGroups = 16;

bool is_byte(const sdk::ValueInfo& value) {
  return value.type() == DataType::Int8 || value.type() == DataType::UInt8;
}

bool is_one(const sdk::ValueInfo& value) {
  return value && value.is_static() && sdk::element_count(value.dims()) == 1;
}

/// The DequantizeLinear of bytes to floats that makes a value; empty where another node does. Its parameters are one, or, with
/// `axis` not negative, one for each of that axis.
sdk::Node dequantize_of(const sdk::ValueInfo& value, int axis) {
  const sdk::Node node = value ? value.producer() : sdk::Node();
  if (!node || !node.is("DequantizeLinear") || !is_byte(node.input(0)) ||
      node.input(1).type() != DataType::Float || node.output(0).type() != DataType::Float ||
      node.get_int("block_size", 0) != 0)
    return sdk::Node();
  const auto fits = [](const sdk::ValueInfo& parameter) { return !parameter || is_one(parameter); };
  if (fits(node.input(1)) && fits(node.input(2))) return node;
  const int rank = value.rank();
  if (axis < 0 || rank < 1 || !node.input(1).is_static() || node.input(1).rank() != 1)
    return sdk::Node();
  const std::int64_t given = node.get_int("axis", 1);
  return (given < 0 ? given + rank : given) == axis ? node : sdk::Node();
}

/// A product, what it reads, and what it takes over.
struct QuantizedChain {
  sdk::Node product, a, b, quantize;
  std::vector<sdk::Node> replaced;
  sdk::ValueInfo result;
  std::string bias;
  bool has_relu = false;

  void take(const sdk::Node& next) {
    replaced.push_back(next);
    result = next.output(0);
  }
};

/// The axis of b along which it may have parameters: that of the result's columns, or filters.
int axis_of_columns(const sdk::Node& node) {
  if (node.is("Conv")) return 0;
  const int rank = node.input(1).rank();
  if (node.is("Gemm") && node.get_int("transB", 0) != 0) return 0;
  return rank - 1;
}

bool is_plain_product(const sdk::Node& node) {
  if (node.output(0).type() != DataType::Float) return false;
  if (node.is("Gemm"))
    return node.since_version() >= 7 && node.get_float("alpha", 1) == 1 &&
           (!node.input(2) || node.get_float("beta", 1) == 1);
  if (node.is("Conv")) return node.get_int("group", 1) <= kMostQuantizedGroups;
  return node.is("MatMul") && node.input(0).rank() >= 2 && node.input(1).rank() >= 2;
}

/// A row that is added to each row of a MatMul.
void take_row(const NodeSet& taken, QuantizedChain& chain) {
  const sdk::Node next = only_consumer(chain.result, taken);
  if (!next || !next.is("Add")) return;
  const sdk::ValueInfo other = next.input(next.input(0) == chain.result ? 1 : 0);
  const sdk::DimsView b = chain.product.input(1).dims();
  if (other == chain.result || other.type() != DataType::Float || !other.is_static() ||
      other.rank() != 1 || other.dims()[0] != b[b.size() - 1])
    return;
  chain.bias = other.name();
  chain.take(next);
}

void take_rest(const NodeSet& taken, QuantizedChain& chain) {
  sdk::Node next = only_consumer(chain.result, taken);
  if (next && next.is("Relu")) {
    chain.has_relu = true;
    chain.take(next);
    next = only_consumer(chain.result, taken);
  }
  if (!next || !next.is("QuantizeLinear") || next.input(0) != chain.result ||
      !is_byte(next.output(0)) || !is_one(next.input(1)) ||
      next.input(1).type() != DataType::Float || next.get_int("block_size", 0) != 0)
    return;
  const bool has_zero = static_cast<bool>(next.input(2));
  if (has_zero ? !is_one(next.input(2)) : next.output(0).type() != DataType::UInt8) return;
  chain.quantize = next;
  chain.take(next);
}

std::string input_name(const sdk::ValueInfo& value) { return value ? value.name() : ""; }

void add_node(const QuantizedChain& chain, sdk::Rewrite& edit) {
  const sdk::Node& node = chain.product;
  sdk::NodeDraft draft = edit.node(device_ops::private_domain(),
                                   node.is("Conv") ? "QuantizedConv" : "QuantizedMatMul");
  draft.name(std::string(node.name()));
  for (const sdk::Node& operand : {chain.a, chain.b}) {
    for (const std::size_t i : {0, 1, 2}) draft.input(input_name(operand.input(i)));
  }
  const bool is_quantized = static_cast<bool>(chain.quantize);
  draft.input(is_quantized ? input_name(chain.quantize.input(1)) : "");
  draft.input(is_quantized ? input_name(chain.quantize.input(2)) : "").input(chain.bias);
  draft.output(chain.result.name()).attribute("origin", std::string(node.name()));
  for (const char* const name : {"strides", "pads", "dilations", "kernel_shape"}) {
    if (node.has(name)) draft.attribute(name, node.get_ints(name));
  }
  for (const char* const name : {"group", "transA", "transB"}) {
    if (node.has(name)) draft.attribute(name, node.get_int(name, 0));
  }
  if (node.has("auto_pad")) draft.attribute("auto_pad", node.get_string("auto_pad", ""));
  if (chain.has_relu) draft.attribute("activation", std::string("Relu"));
  for (const sdk::Node& replaced : chain.replaced) draft.replaces(replaced);
  draft.add();
}

/// How many of a value's readers read the bytes instead by now.
class Readers {
 public:
  /// Whether nobody is left that reads the floats.
  bool leave(const sdk::Node& dequantize) {
    const sdk::ValueInfo floats = dequantize.output(0);
    return ++left_[dequantize.raw()] == floats.consumer_count() && !floats.is_output();
  }

 private:
  std::map<const bp_node*, std::size_t> left_;
};

}  // namespace

void fuse_quantized(const sdk::Graph& graph, NodeSet& taken, sdk::Rewrite& edit) {
  Readers readers;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const sdk::Node node = graph.node(i);
    if (!node.domain().empty() || taken.count(node.raw()) > 0) continue;
    if (!node.is("MatMul") && !node.is("Gemm") && !node.is("Conv")) continue;
    if (!is_plain_product(node)) continue;
    QuantizedChain chain;
    chain.product = node;
    chain.a = dequantize_of(node.input(0), -1);
    chain.b = dequantize_of(node.input(1), axis_of_columns(node));
    if (!chain.a || !chain.b || chain.a == chain.b) continue;
    chain.take(node);
    if (!node.is("MatMul")) chain.bias = input_name(node.input(2));
    if (node.is("MatMul")) take_row(taken, chain);
    take_rest(taken, chain);
    for (const sdk::Node& dequantize : {chain.a, chain.b}) {
      if (readers.leave(dequantize)) chain.replaced.push_back(dequantize);
    }
    for (const sdk::Node& each : chain.replaced) taken.insert(each.raw());
    add_node(chain, edit);
  }
}

}  // namespace backplane::cuda

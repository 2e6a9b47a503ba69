// Nodes between DequantizeLinear and QuantizeLinear work on the bytes themselves.
#include <cmath>
#include <limits>
#include <optional>

#include "plugins/cpu/dense/conv_u8.hpp"
#include "plugins/cpu/rewrite/activation_match.hpp"
#include "plugins/cpu/rewrite/passes.hpp"

namespace backplane::cpu {
namespace {

using sdk::DataType;

/// What bytes stand for: (byte - zero) * scale.
struct Quantization {
  DataType type = DataType::None;
  float scale = 0;
  std::int32_t zero = 0;

  bool operator==(const Quantization& other) const {
    return type == other.type && scale == other.scale && zero == other.zero;
  }
};

bool is_byte(DataType type) { return type == DataType::UInt8 || type == DataType::Int8; }

/// The one integer of a constant of bytes; uint8 0 where it is left out.
bool read_zero(const WorkingGraph& graph, const std::string& value, DataType type,
               std::int32_t& zero) {
  zero = 0;
  if (value.empty()) return true;
  const bp_tensor* tensor = graph.constant(value);
  if (tensor == nullptr || tensor->host_ptr == nullptr || sdk::Tensor(tensor).size() != 1 ||
      sdk::Tensor(tensor).type() != type)
    return false;
  zero = type == DataType::Int8 ? *static_cast<const std::int8_t*>(tensor->host_ptr)
                                : *static_cast<const std::uint8_t*>(tensor->host_ptr);
  return true;
}

/// The scale and zero point of a QuantizeLinear or DequantizeLinear that has one of each, between bytes and
/// floats.
std::optional<Quantization> quantization_of(const WorkingGraph& graph, const WorkNode& node) {
  const std::string& bytes = node.is("QuantizeLinear") ? node.outputs[0] : node.input(0);
  const std::string& floats = node.is("QuantizeLinear") ? node.input(0) : node.outputs[0];
  const sdk::ValueInfo info = graph.info(bytes);
  if (node.changed || !info || !is_byte(info.type()) || !graph.is_float(floats))
    return std::nullopt;
  Quantization found;
  found.type = info.type();
  if (!graph.scalar(node.input(1), found.scale) || !std::isfinite(found.scale) ||
      found.scale <= 0 || !read_zero(graph, node.input(2), found.type, found.zero))
    return std::nullopt;
  return found;
}

/// Bytes that a node reads by way of a DequantizeLinear.
struct Source {
  WorkNode* dequantize = nullptr;
  std::string bytes;
  Quantization quantization;
};

std::optional<Source> source_of(const WorkingGraph& graph, const std::string& value) {
  WorkNode* node = value.empty() ? nullptr : graph.producer(value);
  if (node == nullptr || !node->is("DequantizeLinear")) return std::nullopt;
  const std::optional<Quantization> quantization = quantization_of(graph, *node);
  if (!quantization || graph.is_constant(node->input(0))) return std::nullopt;
  return Source{node, node->input(0), *quantization};
}

/// A constant of a DequantizeLinear: signed bytes around 0, one scale or one for each of `axis`.
struct Weights {
  WorkNode* dequantize = nullptr;
  std::string values, scale;
};

/// Constants by name, with one scale or one for each of `axis`, which `given_axis` is then.
struct ConstantBytes {
  std::string values, scale, zero;
  std::int64_t given_axis;
};

std::optional<Weights> weights_in(const WorkingGraph& graph, const ConstantBytes& names,
                                  std::int64_t axis) {
  const bp_tensor* values = graph.constant(names.values);
  const bp_tensor* scale = graph.constant(names.scale);
  if (values == nullptr || scale == nullptr || scale->dtype != BP_FLOAT) return std::nullopt;
  const sdk::Tensor bytes(values), scales(scale);
  if (!is_byte(bytes.type())) return std::nullopt;
  if (scales.size() != 1) {
    const std::int64_t given =
        names.given_axis < 0 ? names.given_axis + bytes.rank() : names.given_axis;
    if (given != axis || scales.rank() != 1 || scales.size() != bytes.dim(static_cast<int>(axis)))
      return std::nullopt;
  }
  // Kernels read weights as signed bytes.
  const std::int32_t wanted = bytes.type() == DataType::Int8 ? 0 : 128;
  if (names.zero.empty()) {
    if (wanted != 0) return std::nullopt;
    return Weights{nullptr, names.values, names.scale};
  }
  const bp_tensor* zero = graph.constant(names.zero);
  if (zero == nullptr || zero->host_ptr == nullptr) return std::nullopt;
  const auto* zeros = static_cast<const std::uint8_t*>(zero->host_ptr);
  for (std::int64_t i = 0; i < sdk::Tensor(zero).size(); ++i) {
    if (zeros[i] != wanted) return std::nullopt;
  }
  return Weights{nullptr, names.values, names.scale};
}

std::optional<Weights> weights_of(const WorkingGraph& graph, const std::string& value,
                                  std::int64_t axis) {
  WorkNode* node = value.empty() ? nullptr : graph.producer(value);
  if (node == nullptr || !node->is("DequantizeLinear") || node->changed || !graph.is_float(value) ||
      node->original.get_int("block_size", 0) != 0)
    return std::nullopt;
  const ConstantBytes names{node->input(0), node->input(1), node->input(2),
                            node->original.get_int("axis", 1)};
  std::optional<Weights> found = weights_in(graph, names, axis);
  if (found) found->dequantize = node;
  return found;
}

/// The addend of each column: a constant of floats, or of integers by way of a DequantizeLinear.
struct Addend {
  WorkNode* dequantize = nullptr;
  std::string values, scale;  // no scale: floats
  bool present = false;
  double factor = 1;  // of the scale
};

std::optional<Addend> addend_of(const WorkingGraph& graph, const std::string& value,
                                std::int64_t columns) {
  if (value.empty()) return Addend{};
  const auto fits = [columns](const bp_tensor* tensor) {
    return tensor != nullptr && sdk::Tensor(tensor).rank() == 1 &&
           sdk::Tensor(tensor).dim(0) == columns;
  };
  const bp_tensor* floats = graph.constant(value);
  if (floats != nullptr) {
    if (!fits(floats) || floats->dtype != BP_FLOAT) return std::nullopt;
    return Addend{nullptr, value, "", true, 1};
  }
  WorkNode* node = graph.producer(value);
  if (node == nullptr || !node->is("DequantizeLinear") || node->changed || !graph.is_float(value))
    return std::nullopt;
  const bp_tensor* values = graph.constant(node->input(0));
  const bp_tensor* scale = graph.constant(node->input(1));
  if (!fits(values) || values->dtype != BP_INT32 || scale == nullptr || scale->dtype != BP_FLOAT ||
      node->original.get_int("block_size", 0) != 0)
    return std::nullopt;
  if (sdk::Tensor(scale).size() != 1 && !fits(scale)) return std::nullopt;
  if (!node->input(2).empty()) {
    const bp_tensor* zero = graph.constant(node->input(2));
    if (zero == nullptr || zero->host_ptr == nullptr) return std::nullopt;
    for (std::int64_t i = 0; i < sdk::Tensor(zero).size(); ++i) {
      if (static_cast<const std::int32_t*>(zero->host_ptr)[i] != 0) return std::nullopt;
    }
  }
  return Addend{node, node->input(0), node->input(1), true, 1};
}

/// What follows a node up to the bytes of its result: a Relu or Clip maybe, and a QuantizeLinear.
struct Result {
  std::vector<WorkNode*> nodes;  // taken over, in order
  Quantization quantization;
  float lo = -std::numeric_limits<float>::infinity();
  float hi = std::numeric_limits<float>::infinity();

  bool is_quantized() const { return quantization.type != DataType::None; }
};

Result result_of(const WorkingGraph& graph, const WorkNode& node) {
  Result result;
  WorkNode* next = graph.only_consumer(node.outputs[0]);
  Activation clamp;
  if (next != nullptr && is_activation(graph, *next, node.outputs[0], clamp) &&
      clamp.in_registers() && !std::isnan(clamp.alpha) && !std::isnan(clamp.beta)) {
    result.lo = clamp.alpha;
    result.hi = clamp.beta;
    result.nodes.push_back(next);
    next = graph.only_consumer(next->outputs[0]);
  }
  const std::string& value = result.nodes.empty() ? node.outputs[0] : result.nodes[0]->outputs[0];
  if (next == nullptr || !next->is("QuantizeLinear") || next->input(0) != value) return result;
  const std::optional<Quantization> quantization = quantization_of(graph, *next);
  if (!quantization) return result;
  result.quantization = *quantization;
  result.nodes.push_back(next);
  return result;
}

/// A DequantizeLinear whose result nobody reads any more goes, too.
void drop_unread(WorkingGraph& graph, WorkNode* dequantize, WorkNode* reader) {
  if (dequantize == nullptr) return;
  const std::string& value = dequantize->outputs[0];
  if (graph.consumers(value).empty() && !graph.is_output(value)) graph.remove(dequantize, reader);
}

/// What kernels know of the bytes of input `name`: the type of a value that a pass adds is not known before
/// it is computed.
void describe(WorkNode* node, const std::string& name, const Quantization& quantization) {
  node->attributes[name + "_type"] = static_cast<std::int64_t>(quantization.type);
  node->attributes[name + "_zero"] = static_cast<std::int64_t>(quantization.zero);
}

/// A bound of floats as a byte of the result: what it is rounded to.
std::int64_t byte_of(const Quantization& to, float bound) {
  const std::int64_t least = to.type == DataType::Int8 ? -128 : 0;
  const float whole = std::nearbyint(bound / to.scale) + static_cast<float>(to.zero);
  if (!(whole > static_cast<float>(least))) return least;
  return whole < static_cast<float>(least + 255) ? static_cast<std::int64_t>(whole) : least + 255;
}

/// The node does the work of `result` too, and says so in its attributes.
void take_result(WorkingGraph& graph, WorkNode* node, const Result& result) {
  std::string value = node->outputs[0];
  for (WorkNode* next : result.nodes) {
    value = next->outputs[0];
    graph.absorb(node, next);
  }
  graph.set_output(node, 0, value);
  const Quantization& to = result.quantization;
  const DataType type = result.is_quantized() ? to.type : DataType::Float;
  node->attributes["to"] = static_cast<std::int64_t>(type);
  if (!result.is_quantized()) {
    node->attributes["lo"] = result.lo;
    node->attributes["hi"] = result.hi;
    return;
  }
  node->attributes["zero"] = static_cast<std::int64_t>(to.zero);
  node->attributes["least"] = byte_of(to, result.lo);
  node->attributes["most"] = byte_of(to, result.hi);
}

/// A product's numbers for each column: what sums are multiplied by, and what is added then.
class Columns {
 public:
  Columns(std::int64_t count, const Quantization& x, const Weights& weights, const Addend& addend,
          const Result& result)
      : count_(count), x_scale_(static_cast<double>(x.scale)) {
    if (result.is_quantized()) y_scale_ = static_cast<double>(result.quantization.scale);
    scale_sources_ = {weights.scale};
    if (addend.present) shift_sources_ = {addend.values};
    if (!addend.scale.empty()) shift_sources_.push_back(addend.scale);
    // A constant of a rewrite has a source.
    if (!addend.present) shift_sources_ = {weights.scale};
    shift_factor_ = addend.present ? addend.factor : 0;
  }

  std::string add_scale(WorkingGraph& graph, const std::string& base) const {
    const double factor = x_scale_ / y_scale_;
    return add(graph, base + "_scale", scale_sources_, sdk::message("scaled by ", bits(factor)),
               [factor](const sdk::PackContext& ctx, std::int64_t column) {
                 return number(ctx.source(0), column) * factor;
               });
  }

  std::string add_shift(WorkingGraph& graph, const std::string& base) const {
    const double factor = shift_factor_ / y_scale_;
    return add(graph, base + "_shift", shift_sources_, sdk::message("shifted by ", bits(factor)),
               [factor](const sdk::PackContext& ctx, std::int64_t column) {
                 if (factor == 0) return 0.0;
                 const double scale = ctx.source_count() > 1 ? number(ctx.source(1), column) : 1;
                 return number(ctx.source(0), column) * scale * factor;
               });
  }

 private:
  static std::string bits(double value) { return sdk::message(std::hexfloat, value); }

  static double number(const sdk::Tensor& tensor, std::int64_t column) {
    const std::int64_t at = tensor.size() == 1 ? 0 : column;
    if (tensor.type() == DataType::Int32) return tensor.data<std::int32_t>()[at];
    return static_cast<double>(tensor.data<float>()[at]);
  }

  template <class Value>
  std::string add(WorkingGraph& graph, const std::string& base,
                  const std::vector<std::string>& sources, const std::string& key,
                  const Value& value) const {
    std::string name = graph.fresh(base);
    graph.edit().lazy_constant(name, DataType::Float, sdk::Dims{count_}, sources,
                               sdk::message("quantized columns ", count_, " ", key),
                               [count = count_, value](const sdk::PackContext& ctx) {
                                 auto* out = ctx.target().mutable_data<float>();
                                 for (std::int64_t c = 0; c < count; ++c)
                                   out[c] = static_cast<float>(value(ctx, c));
                               });
    return name;
  }

  std::int64_t count_;
  double x_scale_;
  double y_scale_ = 1;
  double shift_factor_ = 0;
  std::vector<std::string> scale_sources_, shift_sources_;
};

/// A product that reads bytes and constant bytes.
struct Match {
  Source x;
  Weights weights;
  Addend addend;
  std::int64_t columns = 0;
};

void become(WorkingGraph& graph, WorkNode* node, const char* op, const Match& match,
            const Result& result) {
  const std::string base = node->original.name();
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = op;
  const Columns columns(match.columns, match.x.quantization, match.weights, match.addend, result);
  const std::string scale = columns.add_scale(graph, base);
  graph.set_inputs(node,
                   {match.x.bytes, match.weights.values, scale, columns.add_shift(graph, base)});
  take_result(graph, node, result);
  drop_unread(graph, match.x.dequantize, node);
  drop_unread(graph, match.weights.dequantize, node);
  drop_unread(graph, match.addend.dequantize, node);
}

/// Whether there is a convolution of bytes for these operands.
bool is_conv_of_bytes(const WorkingGraph& graph, const WorkNode* node, const Source& x,
                      const sdk::Tensor& w) {
  if (w.rank() < 3 || w.rank() > 5 || graph.info(x.bytes).rank() != w.rank()) return false;
  ConvShape shape;
  shape.groups = node->original.get_int("group", 1);
  shape.in_channels = w.dim(1) * shape.groups;
  shape.out_channels = w.dim(0);
  for (int axis = 2; axis < w.rank(); ++axis)
    shape.window.kernel[static_cast<std::size_t>(axis + 3 - w.rank())] = w.dim(axis);
  return shape.groups >= 1 && ConvU8::applies(shape) &&
         w.dim(1) * shape.window.taps() <= kMostSummedU8;
}

bool quantize_conv(WorkingGraph& graph, WorkNode* node) {
  const std::optional<Source> x = source_of(graph, node->input(0));
  const std::optional<Weights> weights = weights_of(graph, node->input(1), 0);
  if (!x || !weights) return false;
  const sdk::Tensor w(graph.constant(weights->values));
  if (!is_conv_of_bytes(graph, node, *x, w)) return false;
  const std::optional<Addend> addend = addend_of(graph, node->input(2), w.dim(0));
  if (!addend) return false;
  const Result result = result_of(graph, *node);
  become(graph, node, "QuantizedConv", {*x, *weights, *addend, w.dim(0)}, result);
  describe(node, "x", x->quantization);
  return true;
}

/// Bytes with constants for their scale and zero point.
std::optional<Quantization> quantization_in(const WorkingGraph& graph, const std::string& bytes,
                                            const std::string& scale, const std::string& zero) {
  const sdk::ValueInfo info = graph.info(bytes);
  Quantization found;
  if (!info || !is_byte(info.type())) return std::nullopt;
  found.type = info.type();
  if (!graph.scalar(scale, found.scale) || !std::isfinite(found.scale) || found.scale <= 0 ||
      !read_zero(graph, zero, found.type, found.zero))
    return std::nullopt;
  return found;
}

/// QLinearConv: the same with everything in one node; its bias is of integers of the sums' scale.
bool take_qlinear_conv(WorkingGraph& graph, WorkNode* node) {
  const std::optional<Quantization> from = quantization_in(graph, node->input(0), node->input(1),
                                                           node->input(2)),
                                    to = quantization_in(graph, node->outputs[0], node->input(6),
                                                         node->input(7));
  if (!from || !to || graph.is_constant(node->input(0))) return false;
  const std::optional<Weights> weights =
      weights_in(graph, {node->input(3), node->input(4), node->input(5), 0}, 0);
  if (!weights) return false;
  const Source x{nullptr, node->input(0), *from};
  const sdk::Tensor w(graph.constant(weights->values));
  if (!is_conv_of_bytes(graph, node, x, w)) return false;
  Addend addend;
  if (!node->input(8).empty()) {
    const bp_tensor* values = graph.constant(node->input(8));
    if (values == nullptr || values->dtype != BP_INT32 || sdk::Tensor(values).size() != w.dim(0))
      return false;
    addend = {nullptr, node->input(8), weights->scale, true, static_cast<double>(from->scale)};
  }
  Result result;
  result.quantization = *to;
  become(graph, node, "QuantizedConv", {x, *weights, addend, w.dim(0)}, result);
  describe(node, "x", x.quantization);
  return true;
}

/// QLinearMatMul by a constant matrix, in the same way.
bool take_qlinear_matmul(WorkingGraph& graph, WorkNode* node) {
  const std::optional<Quantization> from = quantization_in(graph, node->input(0), node->input(1),
                                                           node->input(2)),
                                    to = quantization_in(graph, node->outputs[0], node->input(6),
                                                         node->input(7));
  if (!from || !to || graph.is_constant(node->input(0)) || graph.info(node->input(0)).rank() < 1)
    return false;
  const std::optional<Weights> weights =
      weights_in(graph, {node->input(3), node->input(4), node->input(5), 1}, 1);
  if (!weights) return false;
  const sdk::Tensor b(graph.constant(weights->values));
  if (b.rank() != 2 || b.dim(0) > kMostSummedU8) return false;
  Result result;
  result.quantization = *to;
  become(graph, node, "QuantizedMatMul", {{nullptr, node->input(0), *from}, *weights, {}, b.dim(1)},
         result);
  describe(node, "a", *from);
  return true;
}

bool is_plain_gemm(const WorkNode& node) {
  const sdk::Node& original = node.original;
  return original.since_version() >= 7 && original.get_float("alpha", 1) == 1 &&
         (node.input(2).empty() || original.get_float("beta", 1) == 1) &&
         original.get_int("transA", 0) == 0;
}

/// A row that is added to each row of a MatMul: the node, and which of its inputs the row is.
WorkNode* row_addition(const WorkingGraph& graph, const WorkNode& node, std::string& row) {
  WorkNode* next = graph.only_consumer(node.outputs[0]);
  if (next == nullptr || next->changed || !next->is("Add") || next->inputs.size() != 2)
    return nullptr;
  row = next->input(next->input(0) == node.outputs[0] ? 1 : 0);
  return row == node.outputs[0] ? nullptr : next;
}

bool quantize_matmul(WorkingGraph& graph, WorkNode* node) {
  const bool gemm = node->is("Gemm");
  if (gemm && !is_plain_gemm(*node)) return false;
  const bool transposed = gemm && node->original.get_int("transB", 0) != 0;
  const std::optional<Source> a = source_of(graph, node->input(0));
  const std::optional<Weights> weights = weights_of(graph, node->input(1), transposed ? 0 : 1);
  if (!a || !weights || graph.info(a->bytes).rank() < 1) return false;
  const sdk::Tensor b(graph.constant(weights->values));
  if (b.rank() != 2 || b.dim(transposed ? 1 : 0) > kMostSummedU8) return false;
  Match match{*a, *weights, {}, b.dim(transposed ? 0 : 1)};
  WorkNode* addition = nullptr;
  std::string row = gemm ? node->input(2) : "";
  if (!gemm) addition = row_addition(graph, *node, row);
  const std::optional<Addend> addend = addend_of(graph, row, match.columns);
  if (!addend && gemm) return false;
  if (addend && (gemm || addition != nullptr)) match.addend = *addend;
  if (addition != nullptr && match.addend.present) {
    const std::string sum = addition->outputs[0];
    graph.absorb(node, addition);
    graph.set_output(node, 0, sum);
  }
  const Result result = result_of(graph, *node);
  become(graph, node, "QuantizedMatMul", match, result);
  describe(node, "a", a->quantization);
  return true;
}

bool quantize_add(WorkingGraph& graph, WorkNode* node) {
  if (node->inputs.size() != 2) return false;
  const std::optional<Source> a = source_of(graph, node->input(0));
  const std::optional<Source> b = source_of(graph, node->input(1));
  if (!a || !b || !graph.same_dims(a->bytes, b->bytes)) return false;
  const Result result = result_of(graph, *node);
  if (!result.is_quantized()) return false;
  graph.change(node);
  node->domain = kPrivateDomain;
  node->op = "QuantizedAdd";
  node->attributes.clear();
  const auto y_scale = static_cast<double>(result.quantization.scale);
  for (const auto& [name, source] : {std::pair("a", &*a), std::pair("b", &*b)}) {
    const double scale = static_cast<double>(source->quantization.scale) / y_scale;
    node->attributes[std::string(name) + "_scale"] = static_cast<float>(scale);
    describe(node, name, source->quantization);
  }
  graph.set_inputs(node, {a->bytes, b->bytes});
  take_result(graph, node, result);
  drop_unread(graph, a->dequantize, node);
  if (b->dequantize != a->dequantize) drop_unread(graph, b->dequantize, node);
  return true;
}

/// Operators that only choose or move elements: of bytes as of floats, where both sides have one scale.
bool quantize_movement(WorkingGraph& graph, WorkNode* node) {
  const std::optional<Source> x = source_of(graph, node->input(0));
  if (!x) return false;
  const Result result = result_of(graph, *node);
  if (result.nodes.size() != 1 || !(result.quantization == x->quantization)) return false;
  WorkNode* quantize = result.nodes[0];
  const std::string value = quantize->outputs[0];
  graph.absorb(node, quantize);
  graph.set_output(node, 0, value);
  graph.set_input(node, 0, x->bytes);
  drop_unread(graph, x->dequantize, node);
  return true;
}

bool is_movement(const WorkNode& node) {
  if (node.is("MaxPool")) {
    return node.original.since_version() >= 12 && node.outputs.size() == 1;
  }
  for (const char* op : {"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"}) {
    if (node.is(op)) return true;
  }
  return false;
}

}  // namespace

void fuse_quantized(WorkingGraph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    WorkNode* node = graph.at(i);
    if (node == nullptr || node->changed) continue;
    if (node->is("Conv")) {
      quantize_conv(graph, node);
    } else if (node->is("QLinearConv")) {
      take_qlinear_conv(graph, node);
    } else if (node->is("QLinearMatMul")) {
      take_qlinear_matmul(graph, node);
    } else if (node->is("MatMul") || node->is("Gemm")) {
      quantize_matmul(graph, node);
    } else if (node->is("Add") || node->is("Sum")) {
      quantize_add(graph, node);
    } else if (is_movement(*node)) {
      quantize_movement(graph, node);
    }
  }
}

}  // namespace backplane::cpu

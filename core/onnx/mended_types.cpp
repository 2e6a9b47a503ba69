#include "core/onnx/mended_types.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace backplane::core {
namespace {

using ::onnx::InferenceContext;
using ::onnx::NodeProto;
using ::onnx::TensorShapeProto;
using ::onnx::TypeProto;
using Dim = TensorShapeProto::Dimension;

const TensorShapeProto* shape_of(const TypeProto* type) {
  if (type == nullptr || !type->has_tensor_type() || !type->tensor_type().has_shape())
    return nullptr;
  return &type->tensor_type().shape();
}

TypeProto* inner_of(TypeProto& type) {
  if (type.has_sequence_type()) return type.mutable_sequence_type()->mutable_elem_type();
  if (type.has_optional_type()) return type.mutable_optional_type()->mutable_elem_type();
  return nullptr;
}

/// The size of two that are broadcast; empty where it may be either's.
Dim broadcast(const Dim& a, const Dim& b) {
  if (a.has_dim_value() && a.dim_value() != 1) return a;
  if (b.has_dim_value() && b.dim_value() != 1) return b;
  if (a.has_dim_value()) return b;
  if (b.has_dim_value()) return a;
  return a.has_dim_param() && b.has_dim_param() && a.dim_param() == b.dim_param() ? a : Dim();
}

/// The dimensions of an Einsum's inputs by label, and those that "..." stands for, aligned at their ends.
/// https://onnx.ai/onnx/operators/onnx__Einsum.html
class EinsumDims {
 public:
  /// False where the term does not fit the shape.
  bool add(const std::string& term, const TensorShapeProto& shape) {
    const std::size_t dots = term.find("...");
    const int labels = static_cast<int>(term.size()) - (dots != std::string::npos ? 3 : 0);
    const int others = shape.dim_size() - labels;
    if (others < 0 || (others > 0 && dots == std::string::npos)) return false;
    int axis = 0;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (i == dots) {
        std::vector<Dim> leading;
        for (int k = 0; k < others; ++k) leading.push_back(shape.dim(axis++));
        add_others(leading);
        i += 2;
        continue;
      }
      const Dim& dim = shape.dim(axis++);
      const auto [known, is_new] = by_label_.emplace(term[i], dim);
      if (!is_new) known->second = broadcast(known->second, dim);
      ++uses_[term[i]];
    }
    return true;
  }

  /// What an equation without "->" makes: what "..." stands for, then the labels that occur once, in order.
  std::string implied_result() const {
    std::string result = others_.empty() ? "" : "...";
    for (const auto& [label, count] : uses_) {
      if (count == 1) result += label;
    }
    return result;
  }

  std::optional<std::vector<Dim>> result(const std::string& term) const {
    std::vector<Dim> dims;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (term.compare(i, 3, "...") == 0) {
        dims.insert(dims.end(), others_.begin(), others_.end());
        i += 2;
        continue;
      }
      const auto known = by_label_.find(term[i]);
      if (known == by_label_.end()) return std::nullopt;
      dims.push_back(known->second);
    }
    return dims;
  }

 private:
  void add_others(const std::vector<Dim>& dims) {
    const std::size_t shared = std::min(dims.size(), others_.size());
    for (std::size_t i = 1; i <= shared; ++i)
      others_[others_.size() - i] = broadcast(others_[others_.size() - i], dims[dims.size() - i]);
    if (dims.size() > shared)
      others_.insert(others_.begin(), dims.begin(),
                     dims.end() - static_cast<std::ptrdiff_t>(shared));
  }

  std::map<char, Dim> by_label_;
  std::map<char, int> uses_;
  std::vector<Dim> others_;
};

std::optional<std::vector<Dim>> einsum_dims(const InferenceContext& context) {
  const ::onnx::AttributeProto* equation = context.getAttribute("equation");
  if (equation == nullptr) return std::nullopt;
  std::string text = equation->s();
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  const std::size_t arrow = text.find("->");
  std::string terms = text.substr(0, arrow) + ",";
  EinsumDims dims;
  for (std::size_t i = 0; i < context.getNumInputs(); ++i) {
    const TensorShapeProto* shape = shape_of(context.getInputType(i));
    const std::size_t end = terms.find(',');
    if (shape == nullptr || end == std::string::npos || !dims.add(terms.substr(0, end), *shape))
      return std::nullopt;
    terms.erase(0, end + 1);
  }
  return dims.result(arrow == std::string::npos ? dims.implied_result() : text.substr(arrow + 2));
}

/// ONNX takes an operand's dimension for the result's, where another operand's may be the larger one.
void mend_einsum(InferenceContext& context) {
  TypeProto& type = *context.getOutputType(0);
  const TensorShapeProto* inferred = shape_of(&type);
  if (inferred == nullptr) return;
  const std::optional<std::vector<Dim>> dims = einsum_dims(context);
  const bool fits = dims && dims->size() == static_cast<std::size_t>(inferred->dim_size());
  TensorShapeProto& shape = *type.mutable_tensor_type()->mutable_shape();
  for (int i = 0; i < shape.dim_size(); ++i)
    *shape.mutable_dim(i) = fits ? (*dims)[static_cast<std::size_t>(i)] : Dim();
}

/// The length of what Attention's input holds: [batch, length, hidden] or [batch, heads, length, head size].
bool has_known_length(const InferenceContext& context, std::size_t input) {
  const TensorShapeProto* shape =
      input < context.getNumInputs() ? shape_of(context.getInputType(input)) : nullptr;
  return shape != nullptr && shape->dim_size() >= 3 &&
         shape->dim(shape->dim_size() - 2).has_dim_value();
}

/// ONNX adds lengths of keys of which it does not know one, and counts that as 0; and it says that scores of inputs of
/// unknown rank are a scalar.
void mend_attention(const NodeProto& node, InferenceContext& context) {
  constexpr int kKey = 1, kPastKey = 4, kScores = 3;
  if (context.getNumOutputs() <= kScores) return;
  TypeProto& type = *context.getOutputType(kScores);
  const TensorShapeProto* inferred = shape_of(&type);
  if (inferred == nullptr) return;
  if (inferred->dim_size() == 0) return type.mutable_tensor_type()->clear_shape();
  if (node.input_size() <= kPastKey || node.input(kPastKey).empty()) return;
  if (has_known_length(context, kKey) && has_known_length(context, kPastKey)) return;
  type.mutable_tensor_type()->mutable_shape()->mutable_dim(inferred->dim_size() - 1)->clear_value();
}

std::int64_t ceil_quotient(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// ONNX leaves out the rest of an `output_shape` from the first size on that is smaller than the input's.
/// https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
void mend_conv_transpose(InferenceContext& context) {
  const TensorShapeProto* from = shape_of(context.getInputType(0));
  TypeProto& type = *context.getOutputType(0);
  const TensorShapeProto* inferred = shape_of(&type);
  const ::onnx::AttributeProto* sizes = context.getAttribute("output_shape");
  if (sizes == nullptr || from == nullptr || inferred == nullptr) return;
  if (sizes->ints_size() != from->dim_size() - 2 || inferred->dim_size() < 2) return;
  TensorShapeProto& shape = *type.mutable_tensor_type()->mutable_shape();
  for (int i = shape.dim_size() - 2; i < sizes->ints_size(); ++i)
    shape.add_dim()->set_dim_value(sizes->ints(i));
}

/// How many windows of a pool with ceil_mode an axis has, of those that ONNX counts.
std::int64_t windows_within(std::int64_t counted, std::int64_t size, std::int64_t stride,
                            std::int64_t pad_begin, bool is_same) {
  if (is_same) return ceil_quotient(size, stride);
  const bool begins_past_end =
      counted > 1 && counted - 1 >= ceil_quotient(size + pad_begin, stride);
  return begins_past_end ? counted - 1 : counted;
}

/// With ceil_mode ONNX counts windows that begin in the padding at the end before opset 22, and more of them than the
/// axis has strides where auto_pad is SAME.
/// https://onnx.ai/onnx/operators/onnx__MaxPool.html
void mend_pool(InferenceContext& context) {
  const ::onnx::AttributeProto* ceil = context.getAttribute("ceil_mode");
  const TensorShapeProto* from = shape_of(context.getInputType(0));
  const TensorShapeProto* inferred = shape_of(context.getOutputType(0));
  if (ceil == nullptr || ceil->i() == 0 || from == nullptr || inferred == nullptr) return;
  const ::onnx::AttributeProto* auto_pad = context.getAttribute("auto_pad");
  const ::onnx::AttributeProto* strides = context.getAttribute("strides");
  const ::onnx::AttributeProto* pads = context.getAttribute("pads");
  const bool is_same = auto_pad != nullptr && auto_pad->s().starts_with("SAME");
  TensorShapeProto shape = *inferred;
  for (int axis = 2; axis < shape.dim_size() && axis < from->dim_size(); ++axis) {
    Dim& dim = *shape.mutable_dim(axis);
    const Dim& size = from->dim(axis);
    const int i = axis - 2;
    const std::int64_t stride =
        strides != nullptr && i < strides->ints_size() ? strides->ints(i) : 1;
    const std::int64_t begin = pads != nullptr && i < pads->ints_size() ? pads->ints(i) : 0;
    if (!dim.has_dim_value() || !size.has_dim_value() || size.dim_value() < 0 || stride < 1)
      continue;
    if (ceil->i() != 1) {
      dim.clear_value();
    } else {
      dim.set_dim_value(windows_within(dim.dim_value(), size.dim_value(), stride, begin, is_same));
    }
  }
  for (std::size_t i = 0; i < context.getNumOutputs(); ++i)
    *context.getOutputType(i)->mutable_tensor_type()->mutable_shape() = shape;
}

/// ONNX takes an `onesided` that is not there for 0, where its default is 1, and divides lengths of signals as floats.
/// https://onnx.ai/onnx/operators/onnx__STFT.html
void mend_stft(InferenceContext& context) {
  constexpr std::int64_t kMostOfFloats = std::int64_t{1} << 24;  // up to here the quotient is exact
  const TensorShapeProto* signal = shape_of(context.getInputType(0));
  TypeProto& type = *context.getOutputType(0);
  const TensorShapeProto* inferred = shape_of(&type);
  if (signal == nullptr || inferred == nullptr || inferred->dim_size() != 4) return;
  TensorShapeProto& shape = *type.mutable_tensor_type()->mutable_shape();
  if (signal->dim(1).dim_value() > kMostOfFloats) shape.mutable_dim(1)->clear_value();
  Dim& bins = *shape.mutable_dim(2);
  if (context.getAttribute("onesided") == nullptr && bins.has_dim_value())
    bins.set_dim_value(bins.dim_value() / 2 + 1);
}

/// ONNX leaves out axes that are counted from the end before opset 11, where nothing says that they may be, and files
/// have them nevertheless.
void mend_unsqueeze(InferenceContext& context) {
  const ::onnx::AttributeProto* axes = context.getAttribute("axes");
  const TensorShapeProto* from = shape_of(context.getInputType(0));
  if (axes == nullptr || from == nullptr) return;
  const int rank = from->dim_size() + axes->ints_size();
  std::vector<bool> is_new(static_cast<std::size_t>(rank));
  for (const std::int64_t axis : axes->ints()) {
    const std::int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || is_new[static_cast<std::size_t>(at)]) return;  // the kernel's error
    is_new[static_cast<std::size_t>(at)] = true;
  }
  TensorShapeProto shape;
  int next = 0;
  for (const bool is_one : is_new) {
    if (is_one) {
      shape.add_dim()->set_dim_value(1);
    } else {
      *shape.add_dim() = from->dim(next++);
    }
  }
  *context.getOutputType(0)->mutable_tensor_type()->mutable_shape() = shape;
}

}  // namespace

TypeProto without_element_shapes(const TypeProto& type) {
  TypeProto result = type;
  TypeProto* inner = inner_of(result);
  if (inner == nullptr) return result;
  *inner = without_element_shapes(*inner);
  if (inner->has_tensor_type()) inner->mutable_tensor_type()->clear_shape();
  return result;
}

void mend_output_types(const NodeProto& node, InferenceContext& context) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return;
  if (node.op_type() == "Einsum") return mend_einsum(context);
  if (node.op_type() == "Unsqueeze") return mend_unsqueeze(context);
  if (node.op_type() == "Attention") return mend_attention(node, context);
  if (node.op_type() == "ConvTranspose") return mend_conv_transpose(context);
  if (node.op_type() == "STFT") return mend_stft(context);
  if (node.op_type() == "AveragePool" || node.op_type() == "LpPool" || node.op_type() == "MaxPool")
    return mend_pool(context);
  if (node.op_type() != "Loop") return;
  for (std::size_t i = 0; i < context.getNumOutputs(); ++i) {
    TypeProto& type = *context.getOutputType(i);
    if (inner_of(type) != nullptr) type = without_element_shapes(type);
  }
}

}  // namespace backplane::core

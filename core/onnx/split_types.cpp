// https://onnx.ai/onnx/operators/onnx__Split.html
#include "core/onnx/split_types.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <onnx/defs/tensor_proto_util.h>
#include <optional>
#include <vector>

namespace backplane::core {
namespace {

using ::onnx::InferenceContext;
using ::onnx::TensorShapeProto;

constexpr int kSizesAreAnInput = 13;
constexpr int kPartsAreCounted = 18;

using Sizes = std::vector<std::int64_t>;

/// The sizes that the model names, none for equal parts; nullopt where only a run knows them.
std::optional<Sizes> named_sizes(InferenceContext& context, int since_version) {
  if (context.hasInput(1)) {
    if (since_version >= kPartsAreCounted && context.getAttribute("num_outputs") != nullptr)
      fail_shape_inference("Both 'split' input and 'num_outputs' attribute were given");
    const ::onnx::TensorProto* sizes = context.getInputData(1);
    if (sizes == nullptr || since_version < kSizesAreAnInput) return std::nullopt;
    return ::onnx::ParseData<std::int64_t>(sizes);
  }
  Sizes sizes;
  if (since_version < kSizesAreAnInput) getRepeatedAttribute(context, "split", sizes);
  return sizes;
}

void check_sizes(const Sizes& sizes, std::optional<std::int64_t> dim, std::size_t outputs) {
  if (sizes.size() != outputs) {
    fail_shape_inference("Mismatch between number of splits (", sizes.size(), ") and outputs (",
                         outputs, ")");
  }
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; }))
    fail_shape_inference("A size in 'split' is negative");
  if (!dim) return;
  std::int64_t rest = *dim;
  for (const std::int64_t size : sizes) {
    if (size > rest)
      fail_shape_inference("The sizes in 'split' are more than the ", *dim,
                           " elements of the axis");
    rest -= size;
  }
  if (rest != 0) {
    fail_shape_inference("Mismatch between the sum of 'split' (", *dim - rest,
                         ") and the split dimension of the input (", *dim, ")");
  }
}

/// Parts of one size; from opset 18 on the last ones may be smaller.
Sizes equal_parts(const InferenceContext& context, int since_version, std::int64_t dim) {
  const auto outputs = static_cast<std::int64_t>(context.getNumOutputs());
  if (since_version >= kPartsAreCounted) {
    const ::onnx::AttributeProto* count = context.getAttribute("num_outputs");
    if (count == nullptr)
      fail_shape_inference("Neither 'split' input nor 'num_outputs' attribute has been given");
    if (count->i() != outputs)
      fail_shape_inference("num_outputs is ", count->i(), ", the node has ", outputs, " outputs");
  } else if (dim % outputs != 0) {
    fail_shape_inference(dim, " elements do not divide into ", outputs, " equal parts");
  }
  const std::int64_t part = dim / outputs + (dim % outputs != 0 ? 1 : 0);
  Sizes sizes;
  for (std::int64_t i = 0, rest = dim; i < outputs; ++i) {
    sizes.push_back(std::min(part, rest));
    rest -= sizes.back();
  }
  return sizes;
}

}  // namespace

void infer_split(InferenceContext& context, int since_version) {
  const std::size_t outputs = context.getNumOutputs();
  if (outputs == 0) fail_shape_inference("Split must have at least one output");
  for (std::size_t i = 0; i < outputs; ++i)
    ::onnx::propagateElemTypeFromInputToOutput(context, 0, i);
  if (!::onnx::hasNInputShapes(context, 1)) return;
  const TensorShapeProto& shape = context.getInputType(0)->tensor_type().shape();
  const std::int64_t rank = shape.dim_size();
  std::int64_t axis = ::onnx::getAttribute(context, "axis", 0);
  if (axis < -rank || axis >= rank)
    fail_type_inference("Invalid value of attribute 'axis'. Rank=", rank, " Value=", axis);
  if (axis < 0) axis += rank;
  const auto& split_dim = shape.dim(static_cast<int>(axis));
  std::optional<std::int64_t> dim;
  if (split_dim.has_dim_value() && split_dim.dim_value() >= 0) dim = split_dim.dim_value();
  std::optional<Sizes> sizes = named_sizes(context, since_version);
  if (sizes && !sizes->empty()) {
    check_sizes(*sizes, dim, outputs);
  } else if (sizes && dim) {
    sizes = equal_parts(context, since_version, *dim);
  } else {
    sizes.reset();
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    TensorShapeProto& part = *context.getOutputType(i)->mutable_tensor_type()->mutable_shape();
    part = shape;
    auto& size = *part.mutable_dim(static_cast<int>(axis));
    size.Clear();
    if (sizes) size.set_dim_value((*sizes)[i]);
  }
}

}  // namespace backplane::core

// Tokenizer, MurmurHash3: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/base/error.hpp"
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

/// Looking for regular expressions is nothing that ONNX's operators can be put together to.
void write_tokenizer(BodyWriter&) {
  throw Error(Code::Unsupported,
              "Tokenizer has no body in ONNX's operators; a provider with a kernel of it must be "
              "among the session's");
}

/// Nor are the bytes of a string.
void write_murmur_hash(BodyWriter&) {
  throw Error(Code::Unsupported,
              "MurmurHash3 has no body in ONNX's operators; a provider with a kernel of it must be "
              "among the session's");
}

void infer_murmur_hash(::onnx::InferenceContext& context) {
  const auto* positive = context.getAttribute("positive");
  const bool is_signed = positive != nullptr && positive->i() == 0;
  ::onnx::updateOutputElemType(
      context, 0, is_signed ? ::onnx::TensorProto::INT32 : ::onnx::TensorProto::UINT32);
  if (::onnx::hasInputShape(context, 0)) ::onnx::propagateShapeFromInputToOutput(context, 0, 0);
}

void infer_tokenizer(::onnx::InferenceContext& context) {
  ::onnx::updateOutputElemType(context, 0, ::onnx::TensorProto::STRING);
  if (!::onnx::hasInputShape(context, 0)) return;
  auto* shape = ::onnx::getOutputShape(context, 0);
  *shape = context.getInputType(0)->tensor_type().shape();
  shape->add_dim();
}

}  // namespace

OperatorList text_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("Tokenizer", write_tokenizer)
                     .input("X")
                     .output("Y")
                     .required_int("mark")
                     .required_int("mincharnum")
                     .optional_string("pad_value")
                     .strings("separators")
                     .optional_string("tokenexp")
                     .types("T", {"string"})
                     .infers(infer_tokenizer)
                     .done());
  list.push_back(
      OperatorDraft("MurmurHash3", write_murmur_hash)
          .input("X", "T1")
          .output("Y", "T2")
          .int_or("positive", 1)
          .int_or("seed", 0)
          .types("T1", {"uint32", "int32", "uint64", "int64", "float", "double", "string"})
          .types("T2", {"int32", "uint32"})
          .infers(infer_murmur_hash)
          .done());
  return list;
}

}  // namespace backplane::core

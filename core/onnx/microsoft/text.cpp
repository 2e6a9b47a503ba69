// Tokenizer: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
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
  return list;
}

}  // namespace backplane::core

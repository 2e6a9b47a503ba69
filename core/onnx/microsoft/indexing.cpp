// ExpandDims, Trilu: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

void write_expand_dims(BodyWriter& body) {
  const auto axis = body.cast(body.reshape(body.in(1), {1}), DataType::Int64);
  body.output(0, body.op("Unsqueeze", {body.in(0), axis}));
}

void write_trilu(BodyWriter& body) {
  body.output(0, body.op("Trilu", {body.in(0), body.in(1)}, body.attributes({"upper"})));
}

}  // namespace

OperatorList indexing_operators() {
  const std::vector<std::string> all{"float",  "float16", "bfloat16", "double", "int8",
                                     "int16",  "int32",   "int64",    "uint8",  "uint16",
                                     "uint32", "uint64",  "bool"};
  std::vector<std::string> more = all;
  for (const char* type : {"string", "complex64", "complex128"}) more.emplace_back(type);
  OperatorList list;
  list.push_back(OperatorDraft("ExpandDims", write_expand_dims)
                     .input("X")
                     .input("axis", "int32")
                     .output("Y")
                     .types("T", more)
                     .done());
  list.push_back(OperatorDraft("Trilu", write_trilu)
                     .input("X")
                     .optional_input("k", "int64")
                     .output("Y")
                     .int_or("upper", 1)
                     .types("T", all)
                     .keeps_shape()
                     .done());
  return list;
}

}  // namespace backplane::core

// CDist, Inverse: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
#include "core/base/error.hpp"
#include "core/onnx/function_operator.hpp"

namespace backplane::core {
namespace {

/// |a - b|^2 as |a|^2 + |b|^2 - 2 a b, both seen from the middle of b's rows: what is far from 0 would cancel otherwise.
void write_cdist(BodyWriter& body) {
  const std::string metric = body.string_of("metric");
  if (metric != "euclidean" && metric != "sqeuclidean")
    body.refuse("its metric is ", metric,
                "; euclidean and sqeuclidean are supported: convert the model without CDist (of "
                "skl2onnx, without the option optim)");
  const auto middle = body.op("ReduceMean", {body.in(1), body.ints({0})});
  const auto a = body.op("Sub", {body.in(0), middle}), b = body.op("Sub", {body.in(1), middle});
  const auto squares = [&](const BodyWriter::Name& value) {
    return body.op("ReduceSumSquare", {value, body.ints({1})});
  };
  const auto lengths = body.add(squares(a), body.transpose(squares(b), {1, 0}));
  const auto turned = body.transpose(body.mul(b, body.scalar(body.type(0), -2)), {1, 0});
  const auto sum = body.add(body.op("MatMul", {a, turned}), lengths);
  const auto distance = body.op("Max", {sum, body.scalar(body.type(0), 0)});
  body.output(0, metric == "euclidean" ? body.op("Sqrt", {distance}) : distance);
}

/// Rows are exchanged by what they hold.
void write_inverse(BodyWriter&) {
  throw Error(
      Code::Unsupported,
      "Inverse has no body in ONNX's operators; a provider with a kernel of it must be among "
      "the session's");
}

}  // namespace

OperatorList matrices_operators() {
  OperatorList list;
  list.push_back(OperatorDraft("CDist", write_cdist)
                     .input("A")
                     .input("B")
                     .output("C")
                     .string_or("metric", "sqeuclidean")
                     .types("T", {"float", "double"})
                     .done());
  list.push_back(OperatorDraft("Inverse", write_inverse)
                     .input("X")
                     .output("Y")
                     .types("T", {"float16", "float", "double"})
                     .keeps_shape()
                     .done());
  return list;
}

}  // namespace backplane::core

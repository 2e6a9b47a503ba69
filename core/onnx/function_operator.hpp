// Operators that ONNX does not define, and that run as bodies of ONNX's operators wherever no provider has a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <onnx/defs/schema.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/onnx/body_writer.hpp"

namespace backplane::core {

/// Writes the body of one node. Throws what BodyWriter says.
using WriteBody = void (*)(BodyWriter& body);

/// An operator: what it looks like, and what it does in ONNX's operators.
struct FunctionOperator {
  ::onnx::OpSchema schema;
  WriteBody write;
  bool
      keeps_shape;  ///< outputs have the type and shape of the first input: its body need not be asked
};

/// The operators of a source file.
using OperatorList = std::vector<FunctionOperator>;

/// Describes one; a list of them is what a file of `microsoft/` returns. Everything is in the order of the node.
class OperatorDraft {
 public:
  explicit OperatorDraft(const std::string& name, WriteBody write,
                         const std::string& domain = "com.microsoft");

  /// A type is a parameter of `types`, or an ONNX type string.
  OperatorDraft& input(const std::string& name, const std::string& type = "T");
  OperatorDraft& optional_input(const std::string& name, const std::string& type = "T");
  OperatorDraft& variadic_input(const std::string& name, const std::string& type);
  OperatorDraft& output(const std::string& name, const std::string& type = "T");
  OperatorDraft& optional_output(const std::string& name, const std::string& type = "T");
  /// A type parameter and its types, without "tensor()" around them.
  OperatorDraft& types(const std::string& parameter, const std::vector<std::string>& names);
  OperatorDraft& required_int(const std::string& name);
  OperatorDraft& optional_int(const std::string& name);
  OperatorDraft& int_or(const std::string& name, std::int64_t otherwise);
  OperatorDraft& optional_float(const std::string& name);
  OperatorDraft& float_or(const std::string& name, float otherwise);
  OperatorDraft& string_or(const std::string& name, const std::string& otherwise);
  OperatorDraft& optional_string(const std::string& name);
  /// Lists, which may be left out; one that must be there is required_ints.
  OperatorDraft& ints(const std::string& name);
  OperatorDraft& required_ints(const std::string& name);
  OperatorDraft& floats(const std::string& name);
  OperatorDraft& strings(const std::string& name);
  OperatorDraft& keeps_shape();
  /// Where the body does not say what the outputs are.
  OperatorDraft& infers(void (*function)(::onnx::InferenceContext&));

  FunctionOperator done();

 private:
  using Kind = ::onnx::AttributeProto::AttributeType;
  OperatorDraft& attribute(const std::string& name, Kind kind, bool is_required);
  OperatorDraft& parameter(bool is_input, const std::string& name, const std::string& type,
                           ::onnx::OpSchema::FormalParameterOption option, bool is_same = true);

  FunctionOperator made_;
  int inputs_ = 0, outputs_ = 0;
};

/// "float", "float16", "bfloat16", "double".
const std::vector<std::string>& float_types();
/// "int8", "uint8".
const std::vector<std::string>& byte_types();

/// The operator that a version of a domain's opset has; null where there is none.
const FunctionOperator* function_operator(const std::string& domain, const std::string& op_type,
                                          int version);
/// All of them, in the order of their files.
const OperatorList& function_operators();
/// The same, made anew; generated from the files.
OperatorList all_function_operators();

}  // namespace backplane::core

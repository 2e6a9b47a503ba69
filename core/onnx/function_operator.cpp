#include "core/onnx/function_operator.hpp"

#include <map>

namespace backplane::core {

using Option = ::onnx::OpSchema::FormalParameterOption;

OperatorDraft::OperatorDraft(const std::string& name, WriteBody write, const std::string& domain)
    : made_{::onnx::OpSchema(name, "", 0), write, false} {
  made_.schema.SetDomain(domain).SinceVersion(1);
}

OperatorDraft& OperatorDraft::parameter(bool is_input, const std::string& name,
                                        const std::string& type, Option option, bool is_same) {
  const bool is_parameter = type.find('(') == std::string::npos && type.size() <= 3;
  const std::string written = is_parameter ? type : "tensor(" + type + ")";
  if (is_input) {
    made_.schema.Input(inputs_++, name, "", written, option, is_same);
  } else {
    made_.schema.Output(outputs_++, name, "", written, option, is_same);
  }
  return *this;
}

OperatorDraft& OperatorDraft::input(const std::string& name, const std::string& type) {
  return parameter(true, name, type, Option::Single);
}
OperatorDraft& OperatorDraft::optional_input(const std::string& name, const std::string& type) {
  return parameter(true, name, type, Option::Optional);
}
OperatorDraft& OperatorDraft::variadic_input(const std::string& name, const std::string& type) {
  return parameter(true, name, type, Option::Variadic, false);
}
OperatorDraft& OperatorDraft::output(const std::string& name, const std::string& type) {
  return parameter(false, name, type, Option::Single);
}
OperatorDraft& OperatorDraft::optional_output(const std::string& name, const std::string& type) {
  return parameter(false, name, type, Option::Optional);
}

OperatorDraft& OperatorDraft::types(const std::string& parameter,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> strings;
  for (const std::string& name : names) strings.push_back("tensor(" + name + ")");
  made_.schema.TypeConstraint(parameter, strings, "");
  return *this;
}

OperatorDraft& OperatorDraft::attribute(const std::string& name, Kind kind, bool is_required) {
  made_.schema.Attr(name, "", kind, is_required);
  return *this;
}

OperatorDraft& OperatorDraft::required_int(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_INT, true);
}
OperatorDraft& OperatorDraft::optional_int(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_INT, false);
}
OperatorDraft& OperatorDraft::int_or(const std::string& name, std::int64_t otherwise) {
  made_.schema.Attr(name, "", Kind::AttributeProto_AttributeType_INT, otherwise);
  return *this;
}
OperatorDraft& OperatorDraft::optional_float(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_FLOAT, false);
}
OperatorDraft& OperatorDraft::float_or(const std::string& name, float otherwise) {
  made_.schema.Attr(name, "", Kind::AttributeProto_AttributeType_FLOAT, otherwise);
  return *this;
}
OperatorDraft& OperatorDraft::string_or(const std::string& name, const std::string& otherwise) {
  made_.schema.Attr(name, "", Kind::AttributeProto_AttributeType_STRING, otherwise);
  return *this;
}
OperatorDraft& OperatorDraft::optional_string(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_STRING, false);
}
OperatorDraft& OperatorDraft::ints(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_INTS, false);
}
OperatorDraft& OperatorDraft::required_ints(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_INTS, true);
}
OperatorDraft& OperatorDraft::floats(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_FLOATS, false);
}
OperatorDraft& OperatorDraft::strings(const std::string& name) {
  return attribute(name, Kind::AttributeProto_AttributeType_STRINGS, false);
}
OperatorDraft& OperatorDraft::keeps_shape() {
  made_.keeps_shape = true;
  return *this;
}

OperatorDraft& OperatorDraft::infers(void (*function)(::onnx::InferenceContext&)) {
  made_.schema.TypeAndShapeInferenceFunction(function);
  return *this;
}

FunctionOperator OperatorDraft::done() {
  made_.schema.Finalize();
  return std::move(made_);
}

const std::vector<std::string>& float_types() {
  static const std::vector<std::string> kTypes{"float", "float16", "bfloat16", "double"};
  return kTypes;
}

const std::vector<std::string>& byte_types() {
  static const std::vector<std::string> kTypes{"int8", "uint8"};
  return kTypes;
}

const OperatorList& function_operators() {
  static const OperatorList kOperators = all_function_operators();
  return kOperators;
}

const FunctionOperator* function_operator(const std::string& domain, const std::string& op_type,
                                          int version) {
  using ByName = std::map<std::pair<std::string, std::string>, const FunctionOperator*>;
  static const ByName kByName = [] {
    ByName result;
    for (const FunctionOperator& one : function_operators())
      result.emplace(std::pair(one.schema.domain(), one.schema.Name()), &one);
    return result;
  }();
  const auto found = kByName.find({domain, op_type});
  if (found == kByName.end() || version < found->second->schema.since_version()) return nullptr;
  return found->second;
}

}  // namespace backplane::core

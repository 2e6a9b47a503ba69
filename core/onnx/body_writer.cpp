#include "core/onnx/body_writer.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/element_numbers.hpp"
#include "core/base/quote.hpp"

namespace backplane::core {
namespace {

using ::onnx::AttributeProto;
using ::onnx::TensorProto;

void write(const BodyWriter::Attr& from, AttributeProto& to) {
  to.set_name(from.name);
  if (const auto* number = std::get_if<std::int64_t>(&from.value)) {
    to.set_type(AttributeProto::INT);
    to.set_i(*number);
  } else if (const auto* real = std::get_if<float>(&from.value)) {
    to.set_type(AttributeProto::FLOAT);
    to.set_f(*real);
  } else if (const auto* string = std::get_if<std::string>(&from.value)) {
    to.set_type(AttributeProto::STRING);
    to.set_s(*string);
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&from.value)) {
    to.set_type(AttributeProto::INTS);
    to.mutable_ints()->Add(ints->begin(), ints->end());
  } else if (const auto* floats = std::get_if<std::vector<float>>(&from.value)) {
    to.set_type(AttributeProto::FLOATS);
    to.mutable_floats()->Add(floats->begin(), floats->end());
  } else {
    to.set_type(AttributeProto::STRINGS);
    for (const std::string& one : std::get<std::vector<std::string>>(from.value))
      to.add_strings(one);
  }
}

BodyWriter::Attr read(const AttributeProto& from) {
  BodyWriter::Attr::Value value;
  switch (from.type()) {
    case AttributeProto::FLOAT:
      value = from.f();
      break;
    case AttributeProto::STRING:
      value = from.s();
      break;
    case AttributeProto::INTS:
      value = std::vector<std::int64_t>(from.ints().begin(), from.ints().end());
      break;
    case AttributeProto::FLOATS:
      value = std::vector<float>(from.floats().begin(), from.floats().end());
      break;
    case AttributeProto::STRINGS:
      value = std::vector<std::string>(from.strings().begin(), from.strings().end());
      break;
    default:
      value = std::int64_t{from.i()};
      break;
  }
  return {from.name().c_str(), std::move(value)};
}

TensorProto tensor_of(DataType type, const std::vector<double>& numbers) {
  TensorProto tensor;
  tensor.set_data_type(static_cast<int>(type));
  std::string bytes(storage_bytes(type, numbers.size()).value_or(0), '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i)
    write_number(type, reinterpret_cast<std::byte*>(bytes.data()), i, numbers[i]);
  tensor.set_raw_data(std::move(bytes));
  return tensor;
}

}  // namespace

double lowest_of(DataType type) {
  constexpr double kLowestFloat = -3.4028234663852886e38, kLowestHalf = -65504,
                   kLowestBfloat = -3.3895313892515355e38;
  if (type == DataType::Float16) return kLowestHalf;
  return type == DataType::BFloat16 ? kLowestBfloat : kLowestFloat;
}

const Value* BodyWriter::input(std::size_t index) const {
  if (index >= node_.inputs.size() || node_.inputs[index] == kNone) return nullptr;
  return &graph_.value(node_.inputs[index]);
}

bool BodyWriter::has_input(std::size_t index) const { return input(index) != nullptr; }

bool BodyWriter::has_output(std::size_t index) const {
  return index < node_.outputs.size() && node_.outputs[index] != kNone;
}

DataType BodyWriter::type(std::size_t index) const {
  const Value* value = input(index);
  if (value == nullptr) invalid("input ", index, " is left out, but it is needed");
  if (!value->type.is_tensor() || value->type.element == DataType::None)
    refuse("the type of input ", index, " (", quoted(value->name), ") is not known");
  return value->type.element;
}

std::optional<std::int64_t> BodyWriter::known_rank(std::size_t index) const {
  const Value* value = input(index);
  if (value == nullptr || !value->type.shape) return std::nullopt;
  return static_cast<std::int64_t>(value->type.shape->size());
}

std::int64_t BodyWriter::rank(std::size_t index) const {
  const std::optional<std::int64_t> known = known_rank(index);
  if (known) return *known;
  const Value* value = input(index);
  refuse("the rank of input ", index, " (", quoted(value == nullptr ? "" : value->name),
         ") is not known before the run; give the model's inputs shapes");
}

std::optional<std::int64_t> BodyWriter::dim(std::size_t index, std::int64_t axis) const {
  const std::optional<std::int64_t> known = known_rank(index);
  if (!known) return std::nullopt;
  if (axis < 0) axis += *known;
  if (axis < 0 || axis >= *known) return std::nullopt;
  const Dim& found = (*input(index)->type.shape)[static_cast<std::size_t>(axis)];
  return found.known() ? std::optional(found.size) : std::nullopt;
}

std::int64_t BodyWriter::needed_dim(std::size_t index, std::int64_t axis, const char* what) const {
  const std::int64_t axes = rank(index);
  if (axis >= axes || axis < -axes)
    invalid("input ", index, " has ", axes, " dimensions, too few for ", what);
  const std::optional<std::int64_t> known = dim(index, axis);
  if (known) return *known;
  refuse("dimension ", axis, " of input ", index, " (", quoted(input(index)->name),
         ") is not known before the run, but it says ", what);
}

ConstantPtr BodyWriter::constant(std::size_t index) const {
  const Value* value = input(index);
  return value == nullptr || value->overridable ? nullptr : value->constant;
}

bool BodyWriter::is_scalar(std::size_t index) const {
  const Value* value = input(index);
  if (value == nullptr || !value->type.is_static()) return false;
  return std::all_of(value->type.shape->begin(), value->type.shape->end(),
                     [](const Dim& one) { return one.size == 1; });
}

const AttributeProto* BodyWriter::find(const std::string& name) const {
  for (const AttributeProto& attribute : call_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t BodyWriter::int_of(const std::string& name, std::int64_t otherwise) const {
  const AttributeProto* found = find(name);
  return found == nullptr ? otherwise : found->i();
}

float BodyWriter::float_of(const std::string& name, float otherwise) const {
  const AttributeProto* found = find(name);
  return found == nullptr ? otherwise : found->f();
}

std::string BodyWriter::string_of(const std::string& name, const std::string& otherwise) const {
  const AttributeProto* found = find(name);
  return found == nullptr ? otherwise : found->s();
}

std::vector<std::int64_t> BodyWriter::ints_of(const std::string& name) const {
  const AttributeProto* found = find(name);
  if (found == nullptr) return {};
  return {found->ints().begin(), found->ints().end()};
}

std::vector<float> BodyWriter::floats_of(const std::string& name) const {
  const AttributeProto* found = find(name);
  if (found == nullptr) return {};
  return {found->floats().begin(), found->floats().end()};
}

BodyWriter::Attrs BodyWriter::attributes(const std::vector<std::string>& names) const {
  Attrs result;
  for (const std::string& name : names) {
    if (const AttributeProto* found = find(name)) result.push_back(read(*found));
  }
  return result;
}

BodyWriter::Name BodyWriter::in(std::size_t index) const {
  return has_input(index) ? text("in", index) : Name();
}

BodyWriter::Name BodyWriter::op(const std::string& op_type, const Names& inputs,
                                const Attrs& attributes) {
  return ops(op_type, inputs, {true}, attributes).front();
}

BodyWriter::Names BodyWriter::ops(const std::string& op_type, const Names& inputs,
                                  const std::vector<bool>& wanted, const Attrs& attributes) {
  ::onnx::NodeProto& node = *function_.add_node();
  node.set_op_type(op_type);
  std::size_t count = inputs.size();
  while (count > 0 && inputs[count - 1].empty()) --count;
  for (std::size_t i = 0; i < count; ++i) node.add_input(inputs[i]);
  Names outputs;
  for (const bool is_wanted : wanted) {
    outputs.push_back(is_wanted ? text("v", values_++) : Name());
    node.add_output(outputs.back());
  }
  for (const Attr& attribute : attributes) write(attribute, *node.add_attribute());
  return outputs;
}

void BodyWriter::output(std::size_t index, const Name& value) {
  if (!has_output(index)) return;
  if (outputs_.size() <= index) outputs_.resize(index + 1);
  outputs_[index] = value;
}

BodyWriter::Name BodyWriter::constant_of(TensorProto tensor) {
  const auto [known, added] = constants_.try_emplace(tensor.SerializeAsString());
  if (!added) return known->second;
  known->second = text("v", values_++);
  ::onnx::NodeProto& node = *function_.add_node();
  node.set_op_type("Constant");
  node.add_output(known->second);
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("value");
  attribute.set_type(AttributeProto::TENSOR);
  *attribute.mutable_t() = std::move(tensor);
  return known->second;
}

BodyWriter::Name BodyWriter::scalar(DataType type, double number) {
  return constant_of(tensor_of(type, {number}));
}

BodyWriter::Name BodyWriter::numbers(DataType type, const std::vector<double>& numbers) {
  TensorProto tensor = tensor_of(type, numbers);
  tensor.add_dims(static_cast<std::int64_t>(numbers.size()));
  return constant_of(std::move(tensor));
}

BodyWriter::Name BodyWriter::ints(const std::vector<std::int64_t>& numbers) {
  TensorProto tensor;
  tensor.set_data_type(TensorProto::INT64);
  tensor.add_dims(static_cast<std::int64_t>(numbers.size()));
  tensor.mutable_int64_data()->Add(numbers.begin(), numbers.end());
  return constant_of(std::move(tensor));
}

BodyWriter::Name BodyWriter::cast(const Name& value, DataType type) {
  return op("Cast", {value}, {{"to", static_cast<int>(type)}});
}

BodyWriter::Name BodyWriter::transpose(const Name& value, const std::vector<std::int64_t>& perm) {
  return op("Transpose", {value}, {{"perm", perm}});
}

BodyWriter::Name BodyWriter::reshape(const Name& value, const std::vector<std::int64_t>& sizes) {
  return reshape_to(value, ints(sizes));
}

BodyWriter::Name BodyWriter::slice(const Name& value, std::int64_t axis, const Name& from,
                                   const Name& to) {
  return op("Slice", {value, from, to, ints({axis})});
}

BodyWriter::Name BodyWriter::concat(const Names& values, std::int64_t axis) {
  return op("Concat", values, {{"axis", axis}});
}

BodyWriter::Name BodyWriter::size_of(const Name& value, std::int64_t axis) {
  Attrs range{{"start", axis}};
  if (axis != -1) range.push_back({"end", axis + 1});
  return op("Shape", {value}, range);
}

BodyWriter::Name BodyWriter::input_size(std::size_t index, std::int64_t axis) {
  const std::optional<std::int64_t> known = dim(index, axis);
  return known ? ints({*known}) : size_of(in(index), axis);
}

::onnx::FunctionProto BodyWriter::take() {
  auto& import = *function_.add_opset_import();
  import.set_domain("");
  import.set_version(kBodyOpset);
  for (std::size_t i = 0; i < node_.inputs.size(); ++i) function_.add_input(text("in", i));
  outputs_.resize(node_.outputs.size());
  Names made;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Name value = outputs_[i];
    // An output is a value of its own, even where an input or another output has its contents.
    const bool is_shared = std::find(made.begin(), made.end(), value) != made.end();
    if (!value.empty() && (is_shared || value.starts_with("in"))) value = op("Identity", {value});
    made.push_back(value);
    function_.add_output(value);
  }
  return std::move(function_);
}

}  // namespace backplane::core

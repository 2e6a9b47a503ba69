// Writes function bodies for operators that are defined here and not by ONNX.
#pragma once

#include <cstdint>
#include <map>
#include <onnx/onnx_pb.h>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "core/graph/graph.hpp"

namespace backplane::core {

/// The body of one node, in ONNX's operators of opset kBodyOpset. Values are names; "" is one that is left out. What
/// the node's types leave open is computed in the body: dims may be unknown, ranks that a body needs may not.
///
/// Errors: `refuse` throws Unsupported with a reason, for what ONNX Runtime's documentation allows and no body does;
///         `invalid` what no implementation can take.
class BodyWriter {
 public:
  using Name = std::string;
  using Names = std::vector<Name>;
  static constexpr int kBodyOpset = 23;

  /// An attribute of a node that is written.
  struct Attr {
    using Value = std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>,
                               std::vector<float>, std::vector<std::string>>;
    std::string name;
    Value value;

    Attr(const char* attribute, int number) : name(attribute), value(std::int64_t{number}) {}
    Attr(const char* attribute, std::int64_t number) : name(attribute), value(number) {}
    Attr(const char* attribute, float number) : name(attribute), value(number) {}
    Attr(const char* attribute, const char* string) : name(attribute), value(std::string(string)) {}
    Attr(const char* attribute, Value any) : name(attribute), value(std::move(any)) {}
  };
  using Attrs = std::vector<Attr>;

  /// `call` is the node with all defaults of its attributes filled in.
  BodyWriter(const Graph& graph, const Node& node, const ::onnx::NodeProto& call)
      : graph_(graph), node_(node), call_(call) {}

  // --- What the node says.

  bool has_input(std::size_t index) const;
  std::size_t input_count() const { return node_.inputs.size(); }
  /// Whether somebody reads the output.
  bool has_output(std::size_t index) const;
  DataType type(std::size_t index) const;
  /// The rank of an input; refuses one that is not known.
  std::int64_t rank(std::size_t index) const;
  std::optional<std::int64_t> known_rank(std::size_t index) const;
  /// The size of a dimension, where it is known; a negative axis counts from the back.
  std::optional<std::int64_t> dim(std::size_t index, std::int64_t axis) const;
  /// The same, for what a body cannot be written without: `what` says what that is.
  std::int64_t needed_dim(std::size_t index, std::int64_t axis, const char* what) const;
  /// Contents of an input that never change; null where they are not known.
  ConstantPtr constant(std::size_t index) const;
  /// Whether the input is a constant of one element, or a value of which nobody knows another shape than that.
  bool is_scalar(std::size_t index) const;

  bool has_attribute(const std::string& name) const { return find(name) != nullptr; }
  std::int64_t int_of(const std::string& name, std::int64_t otherwise = 0) const;
  float float_of(const std::string& name, float otherwise = 0) const;
  std::string string_of(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::int64_t> ints_of(const std::string& name) const;
  std::vector<float> floats_of(const std::string& name) const;
  /// Those of the node's attributes that have these names, as they are.
  Attrs attributes(const std::vector<std::string>& names) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Code::Unsupported, text(parts...));
  }

  // --- What the body does.

  /// Input `index`; "" where it is left out.
  Name in(std::size_t index) const;
  /// A node with one output.
  Name op(const std::string& op_type, const Names& inputs, const Attrs& attributes = {});
  /// A node with several; `wanted` says which of them are made, the others are "".
  Names ops(const std::string& op_type, const Names& inputs, const std::vector<bool>& wanted,
            const Attrs& attributes = {});
  /// Makes `value` the node's output; nothing where that is left out.
  void output(std::size_t index, const Name& value);

  Name scalar(DataType type, double number);
  Name numbers(DataType type, const std::vector<double>& numbers);
  Name ints(const std::vector<std::int64_t>& numbers);
  Name index(std::int64_t number) { return scalar(DataType::Int64, static_cast<double>(number)); }

  Name cast(const Name& value, DataType type);
  Name transpose(const Name& value, const std::vector<std::int64_t>& perm);
  /// To sizes of which 0 is that of the value's own axis and -1 what is left.
  Name reshape(const Name& value, const std::vector<std::int64_t>& sizes);
  Name reshape_to(const Name& value, const Name& sizes) { return op("Reshape", {value, sizes}); }
  /// To the sizes of an input, of which any may be 0.
  Name reshape_as(const Name& value, std::size_t index) {
    return op("Reshape", {value, op("Shape", {in(index)})}, {{"allowzero", 1}});
  }
  Name slice(const Name& value, std::int64_t axis, const Name& from, const Name& to);
  Name slice(const Name& value, std::int64_t axis, std::int64_t from, std::int64_t to) {
    return slice(value, axis, ints({from}), ints({to}));
  }
  Name concat(const Names& values, std::int64_t axis);
  Name unsqueeze(const Name& value, const std::vector<std::int64_t>& axes) {
    return op("Unsqueeze", {value, ints(axes)});
  }
  /// The size of a value's axis, int64 [1]: computed in a run where it is not known.
  Name size_of(const Name& value, std::int64_t axis);
  Name input_size(std::size_t index, std::int64_t axis);
  Name add(const Name& a, const Name& b) { return op("Add", {a, b}); }
  Name mul(const Name& a, const Name& b) { return op("Mul", {a, b}); }
  /// a + b, where b may be left out.
  Name add_if(const Name& a, const Name& b) { return b.empty() ? a : add(a, b); }

  /// The body as far as it is written; outputs that were never made are "".
  ::onnx::FunctionProto take();

 private:
  const ::onnx::AttributeProto* find(const std::string& name) const;
  const Value* input(std::size_t index) const;
  Name constant_of(::onnx::TensorProto tensor);

  const Graph& graph_;
  const Node& node_;
  const ::onnx::NodeProto& call_;
  ::onnx::FunctionProto function_;
  Names outputs_;
  std::map<std::string, Name> constants_;  ///< by the tensor's bytes
  int values_ = 0;
};

/// +infinity's opposite where a type has it, else its lowest number: what a mask adds to what is not to be seen.
double lowest_of(DataType type);

}  // namespace backplane::core

// Backplane SDK: views of graphs, nodes and value infos.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backplane/plugin/tensor.hpp"

namespace backplane::sdk {

class Node;

/// What is known of a value before any run. Borrowed, may be empty (an input that is left out).
class ValueInfo {
 public:
  explicit ValueInfo(const bp_value_info* raw = nullptr) : raw_(raw) {}
  explicit operator bool() const { return raw_ != nullptr; }
  bool operator==(const ValueInfo& other) const { return raw_ == other.raw_; }
  bool operator!=(const ValueInfo& other) const { return raw_ != other.raw_; }

  const char* name() const { return host().graph->value_name(raw_); }
  const char* type_string() const { return host().graph->value_type(raw_); }
  DataType type() const { return static_cast<DataType>(host().graph->value_dtype(raw_)); }
  /// -1 when unknown.
  int rank() const { return host().graph->value_rank(raw_); }
  /// Empty when the rank is unknown; -1 for an unknown dimension.
  DimsView dims() const {
    return rank() < 0 ? DimsView()
                      : DimsView(host().graph->value_dims(raw_), static_cast<std::size_t>(rank()));
  }
  bool is_static() const {
    if (rank() < 0) return false;
    for (const std::int64_t dim : dims()) {
      if (dim < 0) return false;
    }
    return true;
  }
  bool is_constant() const {
    if (BP_HAS_FN(bp_graph_api, host().graph, value_is_constant))
      return host().graph->value_is_constant(raw_) != 0;
    return host().graph->value_constant(raw_) != nullptr;
  }
  /// The contents of a constant; only when is_constant(). Strings are read from constant_value.
  Tensor constant() const { return Tensor(host().graph->value_constant(raw_)); }
  /// The bytes of a constant where they lie, at any alignment, and without a copy; none where the host cannot show them so.
  std::pair<const void*, std::uint64_t> stored_constant() const {
    std::uint64_t bytes = 0;
    const void* data = BP_HAS_FN(bp_graph_api, host().graph, value_constant_stored)
                           ? host().graph->value_constant_stored(raw_, &bytes)
                           : nullptr;
    return {data, bytes};
  }
  Value constant_value() const { return Value(host().graph->value_constant_value(raw_)); }
  bool is_output() const { return host().graph->value_is_output(raw_) != 0; }
  std::size_t consumer_count() const {
    return static_cast<std::size_t>(host().graph->value_consumer_count(raw_));
  }
  inline Node consumer(std::size_t index) const;
  inline Node producer() const;
  const bp_value_info* raw() const { return raw_; }

 private:
  const bp_value_info* raw_;
};

/// A node. Borrowed, may be empty.
class Node {
 public:
  explicit Node(const bp_node* raw = nullptr) : raw_(raw) {}
  explicit operator bool() const { return raw_ != nullptr; }
  bool operator==(const Node& other) const { return raw_ == other.raw_; }
  bool operator!=(const Node& other) const { return raw_ != other.raw_; }

  const char* name() const { return host().graph->node_name(raw_); }
  std::string_view op_type() const { return host().graph->node_op_type(raw_); }
  std::string_view domain() const { return host().graph->node_domain(raw_); }
  int since_version() const { return host().graph->node_since_version(raw_); }
  bool is(std::string_view op, std::string_view of_domain = "") const {
    return op_type() == op && domain() == of_domain;
  }

  std::size_t input_count() const {
    return static_cast<std::size_t>(host().graph->node_input_count(raw_));
  }
  /// Empty when left out or past the end.
  ValueInfo input(std::size_t index) const {
    return ValueInfo(host().graph->node_input(raw_, index));
  }
  std::size_t output_count() const {
    return static_cast<std::size_t>(host().graph->node_output_count(raw_));
  }
  ValueInfo output(std::size_t index) const {
    return ValueInfo(host().graph->node_output(raw_, index));
  }

  /// The attribute, nullptr when the model does not give it.
  const bp_attribute* attribute(const char* attribute_name) const {
    return host().graph->node_attribute(raw_, attribute_name);
  }
  bool has(const char* attribute_name) const { return attribute(attribute_name) != nullptr; }
  std::int64_t get_int(const char* attribute_name, std::int64_t otherwise) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_INT);
    return found != nullptr ? found->ints[0] : otherwise;
  }
  float get_float(const char* attribute_name, float otherwise) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_FLOAT);
    return found != nullptr ? found->floats[0] : otherwise;
  }
  std::string get_string(const char* attribute_name, std::string_view otherwise) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_STRING);
    return found != nullptr ? std::string(found->strings[0].data, found->strings[0].size)
                            : std::string(otherwise);
  }
  /// Empty when the model does not give it.
  std::vector<std::int64_t> get_ints(const char* attribute_name) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_INTS);
    return found != nullptr ? std::vector<std::int64_t>(found->ints, found->ints + found->count)
                            : std::vector<std::int64_t>();
  }
  std::vector<float> get_floats(const char* attribute_name) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_FLOATS);
    return found != nullptr ? std::vector<float>(found->floats, found->floats + found->count)
                            : std::vector<float>();
  }
  std::vector<std::string> get_strings(const char* attribute_name) const {
    std::vector<std::string> texts;
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_STRINGS);
    for (std::uint32_t i = 0; found != nullptr && i < found->count; ++i) {
      texts.emplace_back(found->strings[i].data, found->strings[i].size);
    }
    return texts;
  }
  /// Empty when the model does not give it; its elements are in host memory, strings by string_at.
  Value get_tensor(const char* attribute_name) const {
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_TENSOR);
    return Value(found != nullptr ? found->values[0] : nullptr);
  }
  std::vector<Value> get_tensors(const char* attribute_name) const {
    std::vector<Value> values;
    const bp_attribute* found = typed(attribute_name, BP_ATTRIBUTE_TENSORS);
    for (std::uint32_t i = 0; found != nullptr && i < found->count; ++i) {
      values.emplace_back(found->values[i]);
    }
    return values;
  }
  const bp_node* raw() const { return raw_; }

 private:
  const bp_attribute* typed(const char* attribute_name, std::int32_t type) const {
    const bp_attribute* found = attribute(attribute_name);
    if (found != nullptr && found->type != type) {
      invalid("attribute '", attribute_name, "' of node '", name(), "' has type ", found->type,
              ", expected ", type);
    }
    return found;
  }

  const bp_node* raw_;
};

inline Node ValueInfo::consumer(std::size_t index) const {
  return Node(host().graph->value_consumer(raw_, index));
}
inline Node ValueInfo::producer() const { return Node(host().graph->value_producer(raw_)); }

/// A graph: see bp_graph_api. Borrowed.
class Graph {
 public:
  explicit Graph(const bp_graph* raw) : raw_(raw) {}
  const char* name() const { return host().graph->graph_name(raw_); }
  std::size_t node_count() const {
    return static_cast<std::size_t>(host().graph->graph_node_count(raw_));
  }
  Node node(std::size_t index) const { return Node(host().graph->graph_node(raw_, index)); }
  std::size_t input_count() const {
    return static_cast<std::size_t>(host().graph->graph_input_count(raw_));
  }
  ValueInfo input(std::size_t index) const {
    return ValueInfo(host().graph->graph_input(raw_, index));
  }
  std::size_t output_count() const {
    return static_cast<std::size_t>(host().graph->graph_output_count(raw_));
  }
  ValueInfo output(std::size_t index) const {
    return ValueInfo(host().graph->graph_output(raw_, index));
  }
  ValueInfo value(const char* value_name) const {
    return ValueInfo(host().graph->graph_value(raw_, value_name));
  }
  const bp_graph* raw() const { return raw_; }

 private:
  const bp_graph* raw_;
};

}  // namespace backplane::sdk

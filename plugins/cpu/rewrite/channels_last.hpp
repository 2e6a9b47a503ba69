// The layout pass: which values have a channels-last form, and how nodes are moved over to it.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// Walks over the nodes once, in order. A node that has a channels-last form and an input that is there in
/// that form is changed over; the others read plain values, which reorder nodes make where needed.
class ChannelsLast {
 public:
  explicit ChannelsLast(WorkingGraph& graph) : graph_(graph) {}
  void run();

 private:
  bool convert(WorkNode* node);
  bool convert_conv(WorkNode* node);
  /// Whether few input channels belong to a filter.
  bool has_few_channels(const WorkNode& conv) const;
  bool convert_quantized(WorkNode* node);
  bool convert_pool(WorkNode* node);
  bool convert_simple(WorkNode* node);
  bool convert_elementwise(WorkNode* node);
  bool convert_pointwise(WorkNode* node);
  bool convert_axis(WorkNode* node);
  bool convert_normalization(WorkNode* node);
  bool convert_group_normalization(WorkNode* node);
  bool convert_resize(WorkNode* node);
  bool convert_transpose(WorkNode* node);
  bool adopt(WorkNode* node);
  bool convert_shuffle(WorkNode* node);
  bool convert_deinterleave(WorkNode* node);
  bool convert_split(WorkNode* node);
  bool convert_slice(WorkNode* node);
  bool convert_pad(WorkNode* node);
  bool convert_flatten(WorkNode* node);
  bool convert_mean(WorkNode* node);
  bool convert_reduction(WorkNode* node);

  bool is_last(const std::string& value) const { return last_.count(value) != 0; }
  bool any_last(const WorkNode& node) const;
  /// The channels-last form of a value, made by a reorder node if need be.
  std::string to_last(const std::string& value);
  /// The node's output `index` is made channels last from now on.
  void make_last(WorkNode* node, std::size_t index = 0);
  /// Changes all float inputs and output 0 over.
  void move_over(WorkNode* node);
  /// The node becomes `op` of the private domain, without attributes, its output channels last.
  void make_private(WorkNode* node, const std::string& op, std::vector<std::string> inputs);
  int rank(const std::string& value) const;
  /// Whether the value is a float image of rank 3 to 5.
  bool is_image(const std::string& value) const;
  bool is_byte_image(const std::string& value) const;
  bool has_known_dims_of(const std::string& a, const std::string& b) const;
  bool is_operand(const std::string& value, int rank) const;
  /// Whether the value is surely one element, of rank `rank` at most.
  bool is_number(const std::string& value, int rank) const;
  std::string operand(const std::string& value, int rank);
  std::string constant_last(const std::string& value, int rank);
  /// An int64 constant of rank 1.
  std::string numbers(const std::string& base, const std::vector<int64_t>& values);
  /// The channels-last form that the model itself has of a value; "": none.
  std::string own_form(const std::string& value);
  /// Whether the node that makes `name`, the channels-last form of `value`, now makes the plain form instead.
  bool makes_plain(const std::string& value, const std::string& name);
  /// The plain form of what a convolution reads, "" where there is none.
  std::string plain_input(const std::string& value) const;
  void restore_plain();
  void drop_unread();

  WorkingGraph& graph_;
  std::unordered_map<std::string, std::string> last_;  // plain name -> channels-last name
  std::unordered_set<std::string> plain_exists_;  // made plain; the channels-last form is a copy
  std::unordered_set<std::string> renamed_;       // channels-last names that are a model's own
  std::vector<std::string> adopted_;  // plain values whose channels-last form is one of the model's
};

}  // namespace backplane::cpu

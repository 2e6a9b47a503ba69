// In which forms each value of a graph is there, and the nodes and constants that bring it into another one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "plugins/cuda/rewrite/recorded_edit.hpp"

namespace backplane::cuda {

/// How a value is stored: its element type, whether an image [batch, channels, spatial ...] lies as
/// [batch, spatial ..., channels], and how many channels it then has beside its `own`, the further ones of zeros; 0: its own, however
/// many.
struct Form {
  sdk::DataType type = sdk::DataType::None;
  bool is_last = false;
  std::int64_t channels = 0, own = 0;

  auto operator<=>(const Form&) const = default;  // NOLINT(modernize-use-nullptr): of its 0
};

/// The axes of an image in the other layout, each by its place in this one: the perm of a Transpose.
sdk::Dims order_to(bool is_last, int rank);

/// Values are named as in the graph; of a value in another form than the graph's there is one of its own, with a new
/// name. Each form is made once, whoever reads it.
class ValueForms {
 public:
  ValueForms(const sdk::Graph& graph, const RecordedEdit& recorded, sdk::Rewrite& host)
      : graph_(graph), recorded_(recorded), host_(host) {}

  /// A value that a pass added, between nodes that it added.
  void add(const std::string& value, sdk::DataType type) { added_[value] = type; }

  /// As the graph has it; of type None where that is unknown.
  Form plain(const std::string& value) const;
  /// -1: unknown.
  int rank(const std::string& value) const;
  bool is_constant(const std::string& value) const;
  /// Whether it surely has one element.
  bool is_scalar(const std::string& value) const;
  bool is_output(const std::string& value) const;
  /// The elements of a constant of integers; none where it is not one of the graph's.
  sdk::Dims ints(const std::string& value) const;
  /// The size of an axis; -1: unknown.
  std::int64_t dim(const std::string& value, std::size_t axis) const;
  /// How many elements a constant of the graph's has; -1 for other values.
  std::int64_t constant_size(const std::string& value) const;
  /// A constant of one or several runs of numbers, one for each axis of an image of this rank, with each run in the order
  /// of channels last.
  std::string get_axes(const std::string& value, int rank);

  /// The form in which it is made, and whether there is another one already.
  Form made(const std::string& value) const;
  bool has(const std::string& value, const Form& form) const;
  /// The name of a value in a form, which a node or a constant makes where nobody has asked for it yet.
  /// The rank is known where the layout changes.
  std::string get(const std::string& value, const Form& form);
  /// The same of a constant that broadcasts to values of a higher rank.
  std::string get_constant(const std::string& value, const Form& form, int rank);
  /// From here on a node makes it in this form: the name of the node's output.
  std::string make(const std::string& value, const Form& form);

 private:
  struct Held {
    Form form;                           ///< in which it is made
    std::string name;                    ///< in that form
    std::map<Form, std::string> others;  ///< made from it
  };
  sdk::Dims dims(const std::string& value) const;
  std::string fresh(const std::string& value, const Form& form, const Form& from);

  const sdk::Graph& graph_;
  const RecordedEdit& recorded_;
  sdk::Rewrite& host_;
  std::map<std::string, sdk::DataType> added_;
  std::map<std::string, Held> held_;
  std::map<std::pair<std::string, int>, std::map<Form, std::string>> constants_;  // by rank
  std::map<std::string, std::string> axes_;
  std::set<std::string> names_;
};

}  // namespace backplane::cuda

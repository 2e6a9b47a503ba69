// Values between nodes are stored in half precision, and images channels last, where the precision of the nodes allows
// it: the nodes read and write such values, and others are made at the edges alone.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/cuda/precision.hpp"
#include "plugins/cuda/rewrite/format_rules.hpp"
#include "plugins/cuda/rewrite/value_forms.hpp"

namespace backplane::cuda {

/// Goes over the nodes once, makers before readers, and decides for each how it reads and writes.
class FormatPass {
 public:
  FormatPass(const PrecisionRules& precision, ImageLayout layout, const sdk::Graph& graph,
             RecordedEdit& recorded, sdk::Rewrite& host)
      : precision_(precision),
        layout_(layout),
        recorded_(recorded),
        forms_(graph, recorded, host) {}

  /// Changes nodes in place; constants and nodes at edges go to the host.
  void run(std::vector<DraftNode>& nodes);

 private:
  void convert(DraftNode& node);
  bool is_value(const FormatRule& rule, const DraftNode& node, std::size_t index) const;
  sdk::DataType half_of(const DraftNode& node) const;
  std::int64_t wanted_channels(const FormatRule& rule, const DraftNode& node,
                               const Form& form) const;
  Form wanted_form(const FormatRule& rule, const DraftNode& node) const;
  sdk::DataType wanted_type(const FormatRule& rule, const DraftNode& node) const;
  bool wants_last(const FormatRule& rule, const DraftNode& node, sdk::DataType type) const;
  bool may_be_last(const FormatRule& rule, const DraftNode& node) const;
  bool has_axes_last(const DraftNode& node) const;
  static bool is_gradient(const DraftNode& node);
  bool folds_space(const DraftNode& node) const;
  bool is_wanted(const DraftNode& node) const;
  bool broadcasts_last(const FormatRule& rule, const DraftNode& node) const;
  bool any_input(const FormatRule& rule, const DraftNode& node, const Form& form) const;
  bool any_input_last(const FormatRule& rule, const DraftNode& node) const;

  void leave(DraftNode& node);
  void read(DraftNode& node);
  void move(const FormatRule& rule, DraftNode& node, const Form& form);
  bool move_transpose(DraftNode& node);
  void move_part(DraftNode& node);
  void move_chain(DraftNode& node, const Form& form);
  void lay_out_last(const FormatRule& rule, DraftNode& node);
  void explain(const DraftNode& node, const Form& form);

  const PrecisionRules& precision_;
  ImageLayout layout_;
  RecordedEdit& recorded_;
  ValueForms forms_;
};

}  // namespace backplane::cuda

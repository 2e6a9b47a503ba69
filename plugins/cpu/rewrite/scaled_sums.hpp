// The nodes that make floats of integer sums: Cast to float, then Mul by the product of both scales.
#pragma once

#include <functional>
#include <string>

#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// Surely one element, which adds no axis to a result.
bool is_single(const WorkingGraph& graph, const std::string& value);

struct ScaledSums {
  /// Whether a value is surely a scale that a kernel can read: one element, or one for each column.
  using IsScale = std::function<bool(const std::string& value)>;

  WorkNode* cast = nullptr;
  WorkNode* product = nullptr;   // of the sums and the scale
  WorkNode* scales = nullptr;    // the product of both scales; null: it stays, others read it too
  std::string a_scale, b_scale;  // "": 1

  /// Those that alone read `sums`.
  bool match(const WorkingGraph& graph, const std::string& sums, const IsScale& is_scale);
  /// Their work becomes that of `node`, whose output 0 is the sums, and then the floats.
  void take(WorkingGraph& graph, WorkNode* node) const;

 private:
  bool match_scales(const WorkingGraph& graph, const std::string& scale, const IsScale& is_scale);
  bool match_scale(const WorkingGraph& graph, const std::string& scale, const IsScale& is_scale);
};

}  // namespace backplane::cpu

// Per-channel scaling and shifting that comes from several nodes: BatchNormalization, and Mul, Add, Sub and
// Div with constants.
#pragma once

#include <string>
#include <vector>

#include "plugins/cpu/rewrite/working_graph.hpp"

namespace backplane::cpu {

/// y[c] = x[c] * scale[c] + shift[c], put together from steps whose constants are read when the result is
/// first needed.
class ChannelAffine {
 public:
  explicit ChannelAffine(int64_t channels) : channels_(channels) {}

  /// Takes the node's work over when it is a per-channel step on `value` with known constants.
  bool take(const WorkingGraph& graph, const WorkNode& node, const std::string& value);
  /// `node` takes over the steps that follow it.
  void take_steps(WorkingGraph& graph, WorkNode* node);
  /// A shift that comes before all steps (a convolution's bias); call first.
  void start_with_bias(const std::string& constant);
  bool empty() const { return steps_.empty(); }
  /// Whether some step scales: otherwise the factors are all one.
  bool scales() const { return scales_; }

  /// Adds the factors and the shifts as constants [channels] to the graph; returns their names.
  std::string add_scale(WorkingGraph& graph, const std::string& base) const;
  std::string add_shift(WorkingGraph& graph, const std::string& base) const;

 private:
  enum Kind : int { kBias, kNormalize, kMultiply, kDivide, kAdd, kSubtract, kSubtractFrom };
  struct Step {
    Kind kind;
    std::size_t source;  // the first of its sources
    float epsilon;
  };

  bool take_normalization(const WorkingGraph& graph, const WorkNode& node);
  std::string add(WorkingGraph& graph, const std::string& base, bool scale) const;
  static void compute(const std::vector<Step>& steps, int64_t channels, bool scale,
                      const sdk::PackContext& ctx);

  int64_t channels_;
  bool scales_ = false;
  std::vector<Step> steps_;
  std::vector<std::string> sources_;
};

}  // namespace backplane::cpu

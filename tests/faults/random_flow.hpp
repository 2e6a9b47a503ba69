// Random graphs with If, Loop and Scan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/devices.hpp"

namespace backplane::core::faults {

/// A graph of element-wise nodes over matrices of one size, with control flow that nests. Conditions and some trip
/// counts are computed from feeds. All feeds and outputs are float; every node has a name that no other one has.
class RandomFlow {
 public:
  explicit RandomFlow(std::uint64_t seed);
  /// A graph written by hand, in ONNX's text form, with feeds and names as the random ones have them.
  RandomFlow(std::string graph, Tensors feeds);

  const std::string& model() const { return model_; }
  const Tensors& feeds() const { return feeds_; }
  const std::string& describe() const { return text_; }

 private:
  using Names = std::vector<std::string>;

  std::size_t pick(std::size_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>((state_ >> 33) % count);
  }
  std::string fresh() { return text("v", values_++); }
  const std::string& any(const Names& names) { return names[pick(names.size())]; }
  /// Lines of a body; what they make is added to `seen`.
  std::string lines(Names& seen, std::size_t count, int depth);
  std::string simple(Names& seen);
  std::string if_node(Names& seen, int depth);
  std::string loop_node(Names& seen, int depth);
  std::string scan_node(Names& seen, int depth);

  ::onnx::ModelProto parsed() const;

  std::uint64_t state_ = 0;
  std::string matrix_;  ///< the type of all matrices
  std::string text_, model_;
  Tensors feeds_;
  Names stacked_;  ///< outputs of loops and scans that are no matrices
  int values_ = 0;
};

}  // namespace backplane::core::faults

// Generated graphs whose branches often do not depend on each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/run/models.hpp"

namespace backplane::session_test {

/// Float matrices of one shape, from two inputs "x0" and "x1"; the same for the same seed.
class GeneratedGraph {
 public:
  /// `plain`: of Add and Relu alone, which the null provider has.
  GeneratedGraph(std::uint64_t seed, bool plain);

  const ModelMaker& model() const { return model_; }
  /// Numbers that depend on `seed`, for both inputs.
  std::vector<std::pair<std::string, Value>> feeds(std::uint64_t seed) const;

 private:
  std::size_t pick(std::size_t count);
  std::string any() { return values_[pick(values_.size())]; }
  void add_node(bool plain);

  std::uint64_t state_;
  std::vector<std::int64_t> dims_;
  ModelMaker model_;
  std::vector<std::string> values_;
};

/// An environment with four threads and the plugins of a folder.
Environment threaded_environment(const char* plugins);

using Inputs = std::vector<std::pair<std::string, Value>>;

/// Runs two sessions of one model, several times each, since a parallel session tries both ways at first. "" or what
/// differs in any bit. `inputs` gives those of a run.
std::string difference_of(const Session& sequential, const Session& parallel, int runs,
                          const std::function<Inputs(int run)>& inputs);

/// Of a graph in both execution modes.
std::string difference_of_modes(const Environment& environment, const GeneratedGraph& graph,
                                const char* provider);

}  // namespace backplane::session_test

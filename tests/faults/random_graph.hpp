// Random graphs with random placements, and how many copies they need.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/faults/devices.hpp"

namespace backplane::core::faults {

/// Copies of a run, as the fake devices count them: all devices together.
struct Copies {
  std::uint64_t to_device = 0, to_host = 0, peer = 0;
  std::uint64_t bytes = 0;                     ///< of these three
  std::uint64_t within = 0, bytes_within = 0;  ///< from one place of a device to another
  std::uint64_t count() const { return to_device + to_host + peer; }
};

/// A graph of element-wise nodes, products, concatenations and reshapes over matrices.
class RandomGraph {
 public:
  /// `placing` chooses among the providers: the same graph has a placement for each.
  explicit RandomGraph(std::uint64_t seed,
                       std::vector<std::string> providers = {"cpu", "fakegpu:0", "fakegpu:1"},
                       std::uint64_t placing = 1);

  std::string model() const { return maker_.bytes(); }
  const Placement& placement() const { return placement_; }
  const Tensors& feeds() const { return feeds_; }
  std::string describe() const;

  /// The copies that a run needs at the least: each value once to every other device that reads it. Without copies
  /// between devices, a value goes over the host, where it then is.
  Copies copies(bool peer) const;

 private:
  struct Made {
    std::string name;
    Dims dims;
    std::string maker;  ///< the provider; "cpu" for what is fed
    std::set<std::string> readers;
    bool is_output = false;
  };
  const std::string& pick_provider() {
    placing_ = placing_ * 6364136223846793005u + 1442695040888963407u;
    return providers_[static_cast<std::size_t>((placing_ >> 33) % providers_.size())];
  }
  std::size_t pick(std::size_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>((state_ >> 33) % count);
  }
  std::string weight(const Dims& dims);
  void add(const std::string& op, const std::vector<std::size_t>& read,
           const std::vector<std::string>& inputs, const Dims& dims, int axis = -1);
  void add_unary();
  void add_binary();
  void add_product();
  void add_concat();
  void add_reshape();

  std::uint64_t state_;
  std::vector<std::string> providers_;
  std::uint64_t placing_;
  ModelMaker maker_;
  Placement placement_;
  Tensors feeds_;
  std::vector<Made> values_;
  std::string lines_;
  int weights_ = 0, nodes_ = 0;
};

}  // namespace backplane::core::faults

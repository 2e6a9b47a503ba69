// Real networks for random placements: their nodes, and what a run of one copies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/faults/random_graph.hpp"

namespace backplane::core::faults {

/// The entry of `name`, which has to be there.
template <class Map>
const auto& known(const Map& map, const std::string& name) {
  const auto found = map.find(name);
  if (found == map.end()) invalid("the test knows nothing of '", name, "'");
  return found->second;
}

/// A name's last part: what rules in bodies match.
std::string bare(const std::string& name);

/// The nodes that a fake device takes.
std::vector<std::string> nodes_taken(const std::string& model);

/// Each node on one of the providers.
Placement random_placement(const std::vector<std::string>& nodes,
                           const std::vector<std::string>& providers, std::mt19937_64& random);

/// How much of a network goes to devices that are slow, or slow to build kernels.
struct DeviceShare {
  std::int64_t fake_products = 10'000'000;  ///< in convolutions and matrix products on fake devices
  std::size_t opencl_nodes = 0;
};

class Network {
 public:
  /// Of the model's bytes; runs it on the cpu.
  explicit Network(std::string model);
  /// Of a file, whose weights may be nodes that fill them with one number.
  static Network from_file(const std::filesystem::path& file);

  const std::string& model() const { return model_; }
  const Tensors& feeds() const { return feeds_; }
  const Tensors& want() const { return want_; }

  Placement placement(std::mt19937_64& random, const DeviceShare& share) const;
  /// Where the nodes are in a session: "cpu", "fakegpu:0", "opencl".
  static Placement places(const nlohmann::json& explanation);
  /// Each value once to every other memory where it is read; between two devices over the host. Counts what a device
  /// whose name begins with `device` takes part in.
  Copies copies(const Placement& places, const std::string& device) const;

 private:
  void note_sizes(const Graph& graph);

  std::string model_;
  std::vector<std::string> taken_;
  std::vector<nlohmann::json> rows_;  ///< of the explanation, for nodes that run
  Tensors feeds_, want_;
  std::set<std::string> outputs_;
  std::map<std::string, std::int64_t> products_;
  std::map<std::string, std::uint64_t> bytes_;
};

}  // namespace backplane::core::faults
